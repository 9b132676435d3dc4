// From a path to a model and its tokenizer.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/model.h"
#include "models/tokenizer.h"

namespace serval {

struct LoadOptions {
  std::string path;  // a .gguf file
  int threads = 0;   // for repacking
  // Called from the loading thread, a few times a second: bytes done, bytes in all.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct LoadedModel {
  std::unique_ptr<Model> model;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string name;           // general.name, or the file's stem
  std::string chat_template;  // Jinja source, may be empty
};

// Errors: NOT_FOUND (path), INVALID_ARGUMENT (broken or unsupported file: which tensor or key,
// expected, found).
absl::StatusOr<LoadedModel> LoadModel(const LoadOptions& options);

}  // namespace serval
