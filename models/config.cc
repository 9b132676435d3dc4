#include "models/config.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/gguf_types.h"

namespace serval {
namespace {

constexpr Family kFamilies[] = {
    {"llama", RopeLayout::kInterleaved},
};

// Far above any model there is, far below any overflow.
constexpr int64_t kMaxLayers = 1024, kMaxHeads = 1024, kMaxHeadDim = 1024;
constexpr int64_t kMaxWidth = 1 << 20, kMaxVocab = 1 << 24, kMaxContext = 1 << 26;

absl::StatusOr<const Family*> FindFamily(const GgufFile& file) {
  const auto architecture = file.String("general.architecture");
  if (!architecture.ok()) return architecture.status();
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.architecture == *architecture) return &family;
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(family.architecture));
  }
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": architecture ",
                                                 Quoted(*architecture),
                                                 " is not supported; supported: ", known));
}

// Reads one family's keys. The first error sticks.
class ConfigReader {
 public:
  ConfigReader(const GgufFile& file, const Family& family) : file_(file), family_(family) {}

  const absl::Status& status() const { return status_; }
  std::string Key(const char* name) const {
    return absl::StrCat(std::string(family_.architecture), ".", name);
  }
  bool Has(const char* name) const { return file_.Find(Key(name)) != nullptr; }
  void Fail(const std::string& what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(file_.path(), ": ", what));
  }

  // An integer in [1, most]; without a fallback the key must be there.
  int64_t Size(const char* name, int64_t most, std::optional<int64_t> fallback = std::nullopt) {
    if (fallback && !Has(name)) return *fallback;
    const absl::StatusOr<int64_t> value = file_.Int(Key(name));
    if (!value.ok()) {
      if (status_.ok()) status_ = value.status();
    } else if (*value < 1 || *value > most) {
      Fail(absl::StrCat("key ", Quoted(Key(name)), " is ", *value, ", expected 1 to ", most));
    } else {
      return *value;
    }
    return 1;
  }

  // A finite number in [least, most].
  double Real(const char* name, double least, double most,
              std::optional<double> fallback = std::nullopt) {
    if (fallback && !Has(name)) return *fallback;
    const absl::StatusOr<double> value = file_.Float(Key(name));
    if (!value.ok()) {
      if (status_.ok()) status_ = value.status();
    } else if (!(*value >= least && *value <= most)) {  // also refuses NaN
      Fail(absl::StrCat("key ", Quoted(Key(name)), " is ", *value, ", expected ", least, " to ",
                        most));
    } else {
      return *value;
    }
    return least;
  }

 private:
  const GgufFile& file_;
  const Family& family_;
  absl::Status status_;
};

void ReadAttention(ConfigReader& in, ModelConfig& config) {
  config.q_heads = static_cast<int>(in.Size("attention.head_count", kMaxHeads));
  config.kv_heads = static_cast<int>(in.Size("attention.head_count_kv", kMaxHeads, config.q_heads));
  if (config.q_heads % config.kv_heads != 0) {
    in.Fail(absl::StrCat("key ", Quoted(in.Key("attention.head_count_kv")), " is ", config.kv_heads,
                         ", expected a divisor of the ", config.q_heads, " query heads"));
  }
  if (!in.Has("attention.key_length") && config.hidden % config.q_heads != 0) {
    in.Fail(absl::StrCat("key ", Quoted(in.Key("attention.head_count")), " is ", config.q_heads,
                         ", expected a divisor of the embedding length ", config.hidden));
  }
  config.head_dim = static_cast<int>(
      in.Size("attention.key_length", kMaxHeadDim, config.hidden / config.q_heads));
  const int64_t value_dim = in.Size("attention.value_length", kMaxHeadDim, config.head_dim);
  if (config.head_dim > kMaxHeadDim || value_dim != config.head_dim) {
    in.Fail(absl::StrCat("keys of ", config.head_dim, " and values of ", value_dim,
                         " elements a head are not supported, expected equal sizes of at most ",
                         kMaxHeadDim));
  }
}

// Factors of llama 3's rope scaling, one a pair, by which frequencies are divided; empty when the
// file has none.
std::vector<float> RopeFactors(const GgufFile& file, int64_t pairs, ConfigReader& in) {
  const GgufTensor* tensor = file.FindTensor("rope_freqs.weight");
  if (tensor == nullptr) return {};
  if (!tensor->supported || tensor->dtype != DType::kF32 || tensor->shape.size() != 1 ||
      tensor->shape[0] != pairs) {
    in.Fail(absl::StrCat("tensor \"rope_freqs.weight\": expected F32 of shape [", pairs, "]"));
    return {};
  }
  std::vector<float> factors(pairs);
  std::memcpy(factors.data(), tensor->data, tensor->bytes);
  for (const float factor : factors) {
    if (!(factor > 0 && std::isfinite(factor))) {
      in.Fail(
          absl::StrCat("tensor \"rope_freqs.weight\": factors must be above 0, found ", factor));
    }
  }
  return factors;
}

// Linear position scaling: its factor, 1 when there is none.
double LinearScaling(const GgufFile& file, ConfigReader& in) {
  if (!in.Has("rope.scaling.type")) return in.Real("rope.scale_linear", 1e-3, 1e6, 1.0);
  const auto type = file.String(in.Key("rope.scaling.type"));
  if (type.ok() && *type == "none") return 1.0;
  if (!type.ok() || *type != "linear") {
    in.Fail(absl::StrCat("key ", Quoted(in.Key("rope.scaling.type")), " is ",
                         type.ok() ? Quoted(*type) : "not a string",
                         ", expected \"none\" or \"linear\""));
  }
  return in.Real("rope.scaling.factor", 1e-3, 1e6);
}

void ReadRope(const GgufFile& file, ConfigReader& in, ModelConfig& config) {
  const int64_t rotary = in.Size("rope.dimension_count", kMaxHeadDim, config.head_dim);
  if (rotary % 2 != 0 || rotary > config.head_dim) {
    in.Fail(absl::StrCat("key ", Quoted(in.Key("rope.dimension_count")), " is ", rotary,
                         ", expected an even number of at most the head's ", config.head_dim));
    return;
  }
  const double base = in.Real("rope.freq_base", 1.0, 1e12, 10000.0);
  const double scale = LinearScaling(file, in);
  const std::vector<float> factors = RopeFactors(file, rotary / 2, in);
  for (int64_t pair = 0; pair < rotary / 2; ++pair) {
    // Rounded to fp32 where Hugging Face rounds: the power, then its reciprocal.
    const auto power = static_cast<float>(
        std::pow(base, 2.0 * static_cast<double>(pair) / static_cast<double>(rotary)));
    const float turns = 1.0f / power;
    config.inv_freq.push_back(
        static_cast<float>(turns / scale / (factors.empty() ? 1.0f : factors[pair])));
  }
}

// The embedding table says how many tokens there are; the key, where present, must agree.
void ReadVocab(const GgufFile& file, ConfigReader& in, ModelConfig& config) {
  const GgufTensor* table = file.FindTensor("token_embd.weight");
  if (table == nullptr) return in.Fail("tensor \"token_embd.weight\" is missing");
  if (table->shape.size() != 2) {
    return in.Fail(absl::StrCat("tensor \"token_embd.weight\" has ", table->shape.size(),
                                " dimension(s), expected 2"));
  }
  config.vocab = table->shape[1];
  if (config.vocab > kMaxVocab) {
    in.Fail(absl::StrCat("tensor \"token_embd.weight\" has ", config.vocab,
                         " rows, expected at most ", kMaxVocab));
  }
  const int64_t told = in.Size("vocab_size", kMaxVocab, config.vocab);
  if (told != config.vocab) {
    in.Fail(absl::StrCat("key ", Quoted(in.Key("vocab_size")), " is ", told,
                         ", expected the rows of tensor \"token_embd.weight\", ", config.vocab));
  }
}

}  // namespace

absl::StatusOr<ModelConfig> ReadConfig(const GgufFile& file) {
  const absl::StatusOr<const Family*> family = FindFamily(file);
  if (!family.ok()) return family.status();
  ConfigReader in(file, **family);
  ModelConfig config;
  config.family = *family;
  config.layers = static_cast<int>(in.Size("block_count", kMaxLayers));
  config.hidden = in.Size("embedding_length", kMaxWidth);
  config.context = in.Size("context_length", kMaxContext);
  config.feed_forward = in.Size("feed_forward_length", kMaxWidth);
  config.rms_eps = static_cast<float>(in.Real("attention.layer_norm_rms_epsilon", 1e-12, 1e-1));
  if (in.status().ok()) ReadAttention(in, config);
  if (in.status().ok()) ReadRope(file, in, config);
  if (in.status().ok()) ReadVocab(file, in, config);
  if (!in.status().ok()) return in.status();
  return config;
}

}  // namespace serval
