// From a path to a model: what is refused, what comes of random damage, and the default model
// itself.
#include "models/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>

#include "tests/models/step_runner.h"
#include "tests/support/tiny_gguf.h"

namespace serval {
namespace {

LoadOptions OptionsFor(const std::string& path) {
  LoadOptions options;
  options.path = path;
  options.threads = 2;
  return options;
}

TEST(Load, FillsEverything) {
  GgufWriter writer = WriteTinyLlama({});
  writer.Text("tokenizer.chat_template", "{{ messages }}");
  const TemporaryFile file(writer.Bytes());
  int64_t last = 0, all = 0;
  LoadOptions options = OptionsFor(file.path());
  options.progress = [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, total);
    last = done;
    all = total;
  };
  const auto loaded = LoadModel(options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->name, "Tiny");
  EXPECT_EQ(loaded->chat_template, "{{ messages }}");
  EXPECT_EQ(loaded->tokenizer->vocab_size(), 261);
  EXPECT_THAT(loaded->model->info().eos_tokens, testing::ElementsAre(0));
  EXPECT_GT(all, 0);
  EXPECT_EQ(last, all);
}

TEST(Load, NamelessModelIsCalledAfterItsFile) {
  for (const char* name : {"", "\xFF"}) {  // the second is not UTF-8
    GgufWriter writer = WriteTinyLlama({});
    writer.Remove("general.name");
    if (*name) writer.Text("general.name", name);
    const TemporaryFile file(writer.Bytes());
    const auto loaded = LoadModel(OptionsFor(file.path()));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->name,
              *name ? "\xEF\xBF\xBD" : std::filesystem::path(file.path()).stem().string());
    EXPECT_EQ(loaded->chat_template, "");
  }
}

TEST(Load, WrongPath) {
  EXPECT_EQ(
      LoadModel(OptionsFor("/nowhere/model.gguf")).status(),
      absl::NotFoundError("/nowhere/model.gguf: no such file; give the path of a .gguf file"));
}

struct Refused {
  const char* name;
  std::function<void(GgufWriter&)> spoil;
  std::string message;
};
void PrintTo(const Refused& refused, std::ostream* out) { *out << refused.name; }

class RefusedModel : public testing::TestWithParam<Refused> {};

TEST_P(RefusedModel, GivesOneSentence) {
  GgufWriter writer = WriteTinyLlama({});
  GetParam().spoil(writer);
  const TemporaryFile file(writer.Bytes());
  EXPECT_EQ(LoadModel(OptionsFor(file.path())).status(),
            absl::InvalidArgumentError(file.path() + ": " + GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Load, RefusedModel,
    testing::Values(
        Refused{"MissingTensor", [](GgufWriter& f) { f.Remove("blk.1.attn_k.weight"); },
                "tensor \"blk.1.attn_k.weight\" is missing, expected shape [64, 32]"},
        Refused{"MissingNorm", [](GgufWriter& f) { f.Remove("output_norm.weight"); },
                "tensor \"output_norm.weight\" is missing, expected shape [64]"},
        Refused{"FewerLayers", [](GgufWriter& f) { f.value("llama.block_count").raw[0] = 3; },
                "tensor \"blk.2.attn_norm.weight\" is missing, expected shape [64]"},
        Refused{"WrongShape",
                [](GgufWriter& f) {
                  f.tensor("blk.0.ffn_up.weight").shape = {96, 64};
                },
                "tensor \"blk.0.ffn_up.weight\": expected shape [64, 96], found [96, 64]"},
        Refused{"FlatEmbedding",
                [](GgufWriter& f) { f.tensor("token_embd.weight").shape = {64 * 261}; },
                "tensor \"token_embd.weight\" has 1 dimension(s), expected 2"},
        Refused{"UnsupportedType",
                [](GgufWriter& f) { f.tensor("blk.0.attn_q.weight").type = kGgmlI32; },
                "tensor \"blk.0.attn_q.weight\": type I32 is not supported; supported: F32, F16, "
                "BF16, Q4_0, Q4_1, Q8_0"},
        Refused{"FewerRowsThanTokens",
                [](GgufWriter& f) {
                  f.tensor("token_embd.weight").shape = {64, 260};
                },
                "key \"tokenizer.ggml.tokens\" has 261 tokens, expected at most the 260 rows of "
                "tensor \"token_embd.weight\""}),
    [](const auto& info) { return info.param.name; });

// Random damage: flipped bytes, cut ends, copied runs. Whatever comes of it, it is a model or a
// status.
TEST(Load, RandomDamageNeverCrashes) {
  const TinyLlama tiny{.layers = 1,
                       .hidden = 32,
                       .heads = 2,
                       .kv_heads = 1,
                       .feed_forward = 32,
                       .matrices = kGgmlQ8_0,
                       .embedding = kGgmlQ8_0};
  const std::string whole = WriteTinyLlama(tiny).Bytes();
  const size_t header = whole.find("output_norm.weight") + 64;  // where damage matters most
  ASSERT_LT(header, whole.size());
  std::mt19937 random(12);
  const TemporaryFile file(whole);
  LoadOptions options = OptionsFor(file.path());
  options.threads = 1;
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = whole;
    const size_t reach = round % 8 == 0 ? bytes.size() : header;
    for (uint32_t i = random() % 4; i != uint32_t(-1); --i) {
      bytes[random() % reach] = static_cast<char>(random() % 4 ? random() : random() % 2 * 255);
    }
    if (round % 5 == 0) bytes.resize(random() % bytes.size());
    if (round % 7 == 0 && bytes.size() > 64) {
      const size_t from = random() % (bytes.size() - 64), to = random() % (bytes.size() - 64);
      std::copy_n(whole.begin() + from, random() % 64, bytes.begin() + to);
    }
    file.Write(bytes);
    const auto loaded = LoadModel(options);
    if (loaded.ok()) continue;
    ++refused;
    EXPECT_NE(loaded.status().message().find(file.path()), absl::string_view::npos)
        << loaded.status();
  }
  EXPECT_GT(refused, 1000);
}

std::string DefaultModel() {
  if (const char* path = std::getenv("SERVAL_TEST_MODEL")) return path;
  const char* home = std::getenv("HOME");
  return std::string(home ? home : "") + "/.cache/serval/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

TEST(DefaultModel, KnowsTheCapitalOfFrance) {
  if (!std::filesystem::exists(DefaultModel())) {
    GTEST_SKIP() << DefaultModel() << " is not there; ./quickstart --build fetches it";
  }
  auto loaded = LoadModel(OptionsFor(DefaultModel()));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Tokenizer& tokenizer = *loaded->tokenizer;
  StepRunner runner(std::move(loaded->model), false, 2);
  StepRunner::Tokens next = tokenizer.Encode("The capital of France is"), answer;
  for (int i = 0; i < 8; ++i) {
    const std::vector<float> logits = runner.Step({next}).back();
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    next = {static_cast<int32_t>(best)};
    answer.push_back(next[0]);
  }
  EXPECT_THAT(tokenizer.Decode(answer), testing::HasSubstr(" Paris"));
}

}  // namespace
}  // namespace serval
