#include "server/model_path.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace serval {
namespace {

namespace fs = std::filesystem;

std::string EnvironmentOr(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

std::vector<std::string> GgufFiles(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".gguf") names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string ModelCacheDirectory() {
  const std::string home = EnvironmentOr("HOME", "");
  const std::string base =
      EnvironmentOr("SERVAL_CACHE", EnvironmentOr("XDG_CACHE_HOME", home + "/.cache") + "/serval");
  return base + "/models";
}

absl::StatusOr<std::string> FindModelFile(const std::string& model, const std::string& directory) {
  std::error_code error;
  if (fs::is_directory(model, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--model ", model, ": a directory; name a .gguf file"));
  }
  if (fs::exists(model, error)) return model;
  if (model.find('/') != std::string::npos || model.ends_with(".gguf")) {
    const std::string cached = directory + "/" + model;
    if (model.find('/') == std::string::npos && fs::exists(cached, error)) return cached;
    return absl::NotFoundError(absl::StrCat("--model ", model, ": no such file"));
  }
  const std::vector<std::string> there = GgufFiles(directory);
  std::vector<std::string> fitting;
  for (const std::string& name : there) {
    if (name == model + ".gguf") return absl::StrCat(directory, "/", name);
    if (name.starts_with(model + ".")) fitting.push_back(name);
  }
  if (fitting.size() == 1) return directory + "/" + fitting[0];
  if (fitting.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("--model ", model, ": several fit in ",
                                                   directory, "; name one of ",
                                                   absl::StrJoin(fitting, ", ")));
  }
  return absl::NotFoundError(absl::StrCat(
      "--model ", model, ": neither a file nor the name of a model in ", directory,
      there.empty() ? ", where there is none"
                    : absl::StrCat(", where there are: ", absl::StrJoin(there, ", "))));
}

std::string DefaultServedName(const std::string& model) {
  const fs::path path(model);
  return path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
}

}  // namespace serval
