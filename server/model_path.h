// From --model to a file: a path as it is, or the name of a model in the cache directory. Thread
// rule: any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace serval {

// ${SERVAL_CACHE}/models, else ${XDG_CACHE_HOME}/serval/models, else ~/.cache/serval/models.
std::string ModelCacheDirectory();

// A file that exists. A name stands for NAME, NAME.gguf or the only NAME.*.gguf in `directory`.
// Errors: NOT_FOUND (lists what is there), INVALID_ARGUMENT (a directory; several files fit the
// name).
absl::StatusOr<std::string> FindModelFile(const std::string& model, const std::string& directory);

// How clients call it unless --served-model-name says: the name as given, or the file's without its
// folder and ".gguf".
std::string DefaultServedName(const std::string& model);

}  // namespace serval
