#include "models/load.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/config.h"
#include "models/decoder.h"
#include "models/gguf.h"
#include "models/tokenizer_utf8.h"
#include "models/weights.h"

namespace serval {
namespace {

// Repaired where it is not UTF-8: it will travel in messages that must be.
std::string TextOr(const GgufFile& file, std::string_view key, std::string_view fallback) {
  const absl::StatusOr<std::string_view> value = file.String(key);
  std::string storage;
  return std::string(ToValidUtf8(value.ok() && !value->empty() ? *value : fallback, storage));
}

// The tokenizer knows keys; which file they are of is known here.
absl::Status InFile(const GgufFile& file, const absl::Status& status) {
  const std::string message(status.message());
  if (message.rfind(file.path(), 0) == 0) return status;
  return absl::Status(status.code(), absl::StrCat(file.path(), ": ", message));
}

// A model may have rows to spare for tokens that do not exist, never the other way round.
absl::Status CheckVocabulary(const GgufFile& file, const Tokenizer& tokenizer,
                             const ModelConfig& config) {
  if (tokenizer.vocab_size() <= config.vocab) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      file.path(), ": key \"tokenizer.ggml.tokens\" has ", tokenizer.vocab_size(),
      " tokens, expected at most the ", config.vocab, " rows of tensor \"token_embd.weight\""));
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(const LoadOptions& options) {
  const auto file = GgufFile::Open(options.path);
  if (!file.ok()) return file.status();
  absl::StatusOr<ModelConfig> config = ReadConfig(**file);
  if (!config.ok()) return config.status();
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromGguf(**file);
  if (!tokenizer.ok()) return InFile(**file, tokenizer.status());
  const absl::Status vocabulary = CheckVocabulary(**file, **tokenizer, *config);
  if (!vocabulary.ok()) return vocabulary;

  ThreadPool pool(options.threads);
  absl::StatusOr<ModelWeights> weights = LoadWeights(**file, *config, pool, options.progress);
  if (!weights.ok()) return weights.status();

  LoadedModel loaded;
  const std::span<const int32_t> eos = (*tokenizer)->eos_ids();
  loaded.model = std::make_unique<Decoder>(*std::move(config), *std::move(weights),
                                           std::vector<int32_t>(eos.begin(), eos.end()));
  loaded.tokenizer = *std::move(tokenizer);
  const std::string stem = std::filesystem::path(options.path).stem().string();
  loaded.name = TextOr(**file, "general.name", stem);
  loaded.chat_template = TextOr(**file, "tokenizer.chat_template", "");
  return loaded;
}

}  // namespace serval
