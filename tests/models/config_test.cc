// A llama's shape from metadata, plausible or refused.
#include "models/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/support/tiny_gguf.h"

namespace serval {
namespace {

absl::StatusOr<ModelConfig> ConfigOf(const GgufWriter& writer, std::string* path = nullptr) {
  const TemporaryFile file(writer.Bytes());
  if (path != nullptr) *path = file.path();
  const auto opened = GgufFile::Open(file.path());
  if (!opened.ok()) return opened.status();
  return ReadConfig(**opened);
}

TEST(Config, ReadsLlama) {
  const auto config = ConfigOf(WriteTinyLlama({.layers = 3, .rotary = 8}));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->family->architecture, "llama");
  EXPECT_EQ(config->layers, 3);
  EXPECT_EQ(config->hidden, 64);
  EXPECT_EQ(config->context, 512);
  EXPECT_EQ(config->q_heads, 4);
  EXPECT_EQ(config->kv_heads, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->feed_forward, 96);
  EXPECT_EQ(config->vocab, 261);
  EXPECT_FLOAT_EQ(config->rms_eps, 1e-5f);
  EXPECT_THAT(config->inv_freq,
              testing::Pointwise(testing::FloatEq(), {1.0f, 0.1f, 0.01f, 0.001f}));
}

TEST(Config, HeadsWiderThanTheirShare) {
  const auto config =
      ConfigOf(WriteTinyLlama({.hidden = 96, .heads = 5, .kv_heads = 1, .head_dim = 32}));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_EQ(config->q_dim(), 160);
  EXPECT_EQ(config->kv_dim(), 32);
}

TEST(Config, RopeScaling) {
  const auto config =
      ConfigOf(WriteTinyLlama({.rotary = 4, .rope_factors = true, .linear_scaling = 2}));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->inv_freq, testing::Pointwise(testing::FloatEq(), {0.5f, 0.01f / 2 / 1.5f}));
}

TEST(Config, MissingOptionalKeysHaveTheirDefaults) {
  GgufWriter writer = WriteTinyLlama({});
  writer.Remove("llama.attention.head_count_kv");
  writer.Remove("llama.rope.freq_base");
  writer.Remove("llama.rope.dimension_count");
  const auto config = ConfigOf(writer);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->kv_heads, 4);
  EXPECT_EQ(config->inv_freq.size(), 8u);
}

struct Refused {
  const char* name;
  std::function<void(GgufWriter&)> spoil;
  std::string message;
};
void PrintTo(const Refused& refused, std::ostream* out) { *out << refused.name; }

auto SetU32(std::string key, uint32_t number) {
  return [=](GgufWriter& file) {
    file.Remove(key);
    file.U32(key, number);
  };
}
auto SetF32(std::string key, float number) {
  return [=](GgufWriter& file) {
    file.Remove(key);
    file.F32(key, number);
  };
}
auto SetText(std::string key, std::string text) {
  return [=](GgufWriter& file) {
    file.Remove(key);
    file.Text(key, text);
  };
}

class RefusedConfig : public testing::TestWithParam<Refused> {};

TEST_P(RefusedConfig, GivesOneSentence) {
  GgufWriter writer = WriteTinyLlama({});
  GetParam().spoil(writer);
  std::string path;
  const auto config = ConfigOf(writer, &path);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status(), absl::InvalidArgumentError(path + ": " + GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Config, RefusedConfig,
    testing::Values(
        Refused{"NoArchitecture", [](GgufWriter& f) { f.Remove("general.architecture"); },
                "key \"general.architecture\" is missing, expected a string"},
        Refused{"OtherArchitecture", SetText("general.architecture", "mamba"),
                "architecture \"mamba\" is not supported; supported: llama"},
        Refused{"NoLayers", [](GgufWriter& f) { f.Remove("llama.block_count"); },
                "key \"llama.block_count\" is missing, expected an integer"},
        Refused{"TooManyLayers", SetU32("llama.block_count", 4000000000u),
                "key \"llama.block_count\" is 4000000000, expected 1 to 1024"},
        Refused{"ZeroHidden", SetU32("llama.embedding_length", 0),
                "key \"llama.embedding_length\" is 0, expected 1 to 1048576"},
        Refused{"TextContext", SetText("llama.context_length", "many"),
                "key \"llama.context_length\" is a string, expected an integer"},
        Refused{"HeadsDoNotDivide", SetU32("llama.attention.head_count", 6),
                "key \"llama.attention.head_count\" is 6, expected a divisor of the embedding "
                "length 64"},
        Refused{"KvHeadsDoNotDivide", SetU32("llama.attention.head_count_kv", 3),
                "key \"llama.attention.head_count_kv\" is 3, expected a divisor of the 4 query "
                "heads"},
        Refused{"ValuesOfOtherSize", SetU32("llama.attention.value_length", 8),
                "keys of 16 and values of 8 elements a head are not supported, expected equal "
                "sizes of at most 1024"},
        Refused{"NanEpsilon",
                SetF32("llama.attention.layer_norm_rms_epsilon",
                       std::numeric_limits<float>::quiet_NaN()),
                "key \"llama.attention.layer_norm_rms_epsilon\" is nan, expected 1e-12 to 0.1"},
        Refused{"RopeBase", SetF32("llama.rope.freq_base", -1),
                "key \"llama.rope.freq_base\" is -1, expected 1 to 1e+12"},
        Refused{"OddRotary", SetU32("llama.rope.dimension_count", 7),
                "key \"llama.rope.dimension_count\" is 7, expected an even number of at most the "
                "head's 16"},
        Refused{"WideRotary", SetU32("llama.rope.dimension_count", 32),
                "key \"llama.rope.dimension_count\" is 32, expected an even number of at most the "
                "head's 16"},
        Refused{"Yarn", SetText("llama.rope.scaling.type", "yarn"),
                "key \"llama.rope.scaling.type\" is \"yarn\", expected \"none\" or \"linear\""},
        Refused{"LinearWithoutFactor", SetText("llama.rope.scaling.type", "linear"),
                "key \"llama.rope.scaling.factor\" is missing, expected a float"},
        Refused{"RopeFactorsShape",
                [](GgufWriter& f) {
                  f.tensors.push_back({"rope_freqs.weight", kGgmlF32, {2}, std::string(8, 1), {}});
                },
                "tensor \"rope_freqs.weight\": expected F32 of shape [8]"},
        Refused{"RopeFactorsZero",
                [](GgufWriter& f) {
                  f.tensors.push_back({"rope_freqs.weight", kGgmlF32, {8}, std::string(32, 0), {}});
                },
                "tensor \"rope_freqs.weight\": factors must be above 0, found 0"},
        Refused{"NoEmbedding", [](GgufWriter& f) { f.Remove("token_embd.weight"); },
                "tensor \"token_embd.weight\" is missing"},
        Refused{"VocabDisagrees", SetU32("llama.vocab_size", 300),
                "key \"llama.vocab_size\" is 300, expected the rows of tensor "
                "\"token_embd.weight\", 261"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace serval
