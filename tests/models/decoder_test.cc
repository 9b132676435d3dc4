// The decoder against float64, and against itself under other batches.
#include "models/decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/thread_pool.h"
#include "tests/models/step_runner.h"
#include "tests/support/reference_llama.h"
#include "tests/support/tiny_gguf.h"

namespace serval {
namespace {

using Tokens = StepRunner::Tokens;
using Rows = StepRunner::Rows;

Tokens RandomTokens(int count, int vocab, uint32_t seed) {
  std::mt19937 random(seed);
  Tokens tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % vocab);
  return tokens;
}

std::unique_ptr<GgufFile> OpenTiny(const TinyLlama& tiny) {
  const TemporaryFile file(WriteTinyLlama(tiny).Bytes());
  return *GgufFile::Open(file.path());
}

std::unique_ptr<Model> MakeModel(const GgufFile& file) {
  ModelConfig config = *ReadConfig(file);
  ThreadPool pool(2);
  ModelWeights weights = *LoadWeights(file, config, pool, nullptr);
  return std::make_unique<Decoder>(std::move(config), std::move(weights), Tokens{0});
}

StepRunner RunnerOf(const TinyLlama& tiny, bool exact, int threads = 2) {
  return StepRunner(MakeModel(*OpenTiny(tiny)), exact, threads);
}

struct Case {
  const char* name;
  TinyLlama model;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"F32", {}},
    {"F16Untied", {.matrices = kGgmlF16, .embedding = kGgmlF16, .tied = false}},
    {"BF16", {.matrices = kGgmlBF16, .embedding = kGgmlBF16, .seed = 2}},
    {"Q4_0", {.matrices = kGgmlQ4_0, .embedding = kGgmlQ8_0}},
    {"Q4_1", {.matrices = kGgmlQ4_1, .embedding = kGgmlQ8_0, .tied = false}},
    {"Q8_0", {.matrices = kGgmlQ8_0, .embedding = kGgmlQ8_0, .seed = 3}},
    {"OddHeads", {.hidden = 96, .heads = 9, .kv_heads = 3, .head_dim = 32, .feed_forward = 160}},
    {"OneKvHead", {.layers = 1, .heads = 7, .kv_heads = 1, .head_dim = 24, .vocab = 300}},
    {"OddWidths", {.hidden = 50, .heads = 5, .kv_heads = 5, .head_dim = 10, .feed_forward = 77}},
    {"PartRotary", {.rotary = 8}},
    {"RopeFactors", {.rope_factors = true}},
    {"LinearScaling", {.linear_scaling = 4}},
};

class DecoderCases : public testing::TestWithParam<Case> {};

// (The model's own numbers are of order one, so absolute differences mean something.)
TEST_P(DecoderCases, ExactModeAgreesWithFloat64) {
  const std::unique_ptr<GgufFile> file = OpenTiny(GetParam().model);
  const Tokens tokens = RandomTokens(33, GetParam().model.vocab, 7);
  const auto expected = ReferenceLlama(*file).Logits(tokens);
  StepRunner runner(MakeModel(*file), true, 2);
  const Rows found = runner.Step({tokens});
  double worst = 0;
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (size_t v = 0; v < expected[t].size(); ++v) {
      worst = std::max(worst, std::abs(found[t][v] - expected[t][v]));
    }
  }
  EXPECT_LE(worst, 1e-4);
}

TEST_P(DecoderCases, DecodeIsPrefillToTheBit) {
  for (const bool exact : {true, false}) {
    StepRunner runner = RunnerOf(GetParam().model, exact);
    const Tokens tokens = RandomTokens(19, GetParam().model.vocab, 8);
    const Rows whole = runner.Step({tokens});
    runner.Forget();
    for (size_t t = 0; t < tokens.size(); ++t) {
      EXPECT_EQ(runner.Step({{tokens[t]}})[0], whole[t]) << "token " << t << " exact " << exact;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DecoderCases, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(Decoder, BatchMatesAndThreadsDoNotMatter) {
  const TinyLlama tiny{.matrices = kGgmlQ4_1, .embedding = kGgmlQ8_0};
  const Tokens a = RandomTokens(9, tiny.vocab, 1), b = RandomTokens(5, tiny.vocab, 2);
  StepRunner alone = RunnerOf(tiny, false, 1);
  const Rows expected = alone.Step({a});
  StepRunner together = RunnerOf(tiny, false, 3);
  const Rows found = together.Step({b, a});
  for (size_t t = 0; t < a.size(); ++t) EXPECT_EQ(found[b.size() + t], expected[t]);
}

TEST(Decoder, InfoTellsTheShapes) {
  const std::unique_ptr<Model> model = MakeModel(*OpenTiny({.layers = 2, .tied = false}));
  const ModelInfo& info = model->info();
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_EQ(info.vocab, 261);
  EXPECT_EQ(info.context, 512);
  ASSERT_EQ(info.layers.size(), 2u);
  EXPECT_EQ(info.layers[1].q_heads, 4);
  EXPECT_EQ(info.layers[1].kv_heads, 2);
  EXPECT_EQ(info.layers[1].head_dim, 16);
  const int64_t layer = 2 * 64 + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64;
  EXPECT_EQ(info.parameters, 2 * layer + 64 + 2 * 261 * 64);
  EXPECT_GE(info.weight_bytes, info.parameters * 4);
  EXPECT_EQ(info.eos_tokens, Tokens{0});
}

}  // namespace
}  // namespace serval
