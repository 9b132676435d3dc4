// What a tokenizer refuses to be made of: one sentence each, naming the key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "models/gguf.h"
#include "models/tokenizer.h"
#include "tests/models/tiny_vocabulary.h"
#include "tests/support/tiny_gguf.h"

namespace serval {
namespace {

using testing::HasSubstr;

TinyVocabulary Small() {
  TinyVocabulary vocabulary({"h e", "he l"});
  vocabulary.Add("<|im_end|>", 3);
  return vocabulary;
}

void ExpectRefused(const absl::Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(TokenizerMetadata, RefusesWhatDoesNotFitTogether) {
  using Spoil = std::function<void(TinyVocabulary&)>;
  const std::vector<std::pair<std::string, Spoil>> cases = {
      {"tokenizer.ggml.tokens is empty", [](auto& v) { v.tokens.clear(); }},
      {"tokenizer.ggml.tokens[5] (\"!\") repeats token 0",
       [](auto& v) {
         v.tokens[0] = "!";
         v.tokens[5] = "!";
         v.tokens['!'] = "elsewhere";
       }},
      {"tokenizer.ggml.token_type has 258 entries for 259 tokens",
       [](auto& v) { v.types.pop_back(); }},
      {"tokenizer.ggml.token_type[3] is 9; it can be 1 to 6", [](auto& v) { v.types[3] = 9; }},
      {"tokenizer.ggml.token_type[3] is -1", [](auto& v) { v.types[3] = -1; }},
      {"tokenizer.ggml.merges[1] (\"he x\") names a token that is not in tokenizer.ggml.tokens",
       [](auto& v) { v.merges[1] = "he x"; }},
      {"tokenizer.ggml.merges[0] (\"nope e\") names a token",
       [](auto& v) { v.merges[0] = "nope e"; }},
      {"tokenizer.ggml.merges[0] (\"he\") is not two tokens", [](auto& v) { v.merges[0] = "he"; }},
      {"tokenizer.ggml.merges[0] (\"h e l\") is not two tokens",
       [](auto& v) { v.merges[0] = "h e l"; }},
      {"tokenizer.ggml.merges[0] (\"\") is not two tokens", [](auto& v) { v.merges[0] = ""; }},
      {"tokenizer.ggml.merges[0] (\"h \") is not two tokens", [](auto& v) { v.merges[0] = "h "; }},
      {"tokenizer.ggml.pre is \"klingon\", which is not supported; it can be one of default, gpt-2",
       [](auto& v) { v.pre = "klingon"; }},
  };
  ASSERT_TRUE(Small().Make().ok());
  for (const auto& [message, spoil] : cases) {
    TinyVocabulary vocabulary = Small();
    spoil(vocabulary);
    ExpectRefused(vocabulary.Make().status(), message);
  }
}

TEST(TokenizerMetadata, RefusesIdsOutOfRange) {
  const TinyVocabulary vocabulary = Small();
  TinyVocabulary::Views views;
  BpeMetadata metadata = vocabulary.Metadata(views);
  metadata.bos_id = 259;
  ExpectRefused(MakeBpeTokenizer(metadata).status(),
                "begin-of-sequence token id is 259; the vocabulary ends at 258");
  metadata.bos_id = int64_t{1} << 40;
  ExpectRefused(MakeBpeTokenizer(metadata).status(), "token id is 1099511627776");
  metadata.bos_id = -1;
  metadata.eos_ids = {2, 300};
  ExpectRefused(MakeBpeTokenizer(metadata).status(), "end token id is 300");
  metadata.eos_ids.clear();
  metadata.add_bos = true;
  ExpectRefused(MakeBpeTokenizer(metadata).status(), "tokenizer.ggml.bos_token_id is missing");
}

GgufWriter Writer() {
  const TinyVocabulary vocabulary = Small();
  GgufWriter writer;
  writer.Text("tokenizer.ggml.model", "gpt2");
  writer.Text("tokenizer.ggml.pre", "smollm");
  writer.Texts("tokenizer.ggml.tokens", vocabulary.tokens);
  writer.Texts("tokenizer.ggml.merges", vocabulary.merges);
  writer.I32s("tokenizer.ggml.token_type", {vocabulary.types.begin(), vocabulary.types.end()});
  writer.U32("tokenizer.ggml.bos_token_id", 7);
  writer.U32("tokenizer.ggml.eos_token_id", 5);
  writer.Bool("tokenizer.ggml.add_bos_token", true);
  return writer;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> FromWriter(const GgufWriter& writer) {
  const TemporaryFile file(writer.Bytes());
  const auto gguf = GgufFile::Open(file.path());
  if (!gguf.ok()) return gguf.status();
  return Tokenizer::FromGguf(**gguf);
}

TEST(TokenizerMetadata, IsReadFromTheFileAndOutlivesIt) {
  const auto tokenizer = FromWriter(Writer());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 259);
  EXPECT_THAT((*tokenizer)->Encode("hel<|im_end|>"), testing::ElementsAre(7, 257, 258));
  EXPECT_THAT((*tokenizer)->eos_ids(), testing::ElementsAre(5, 258));
  GgufWriter bare = Writer();
  bare.Remove("tokenizer.ggml.pre");
  bare.Remove("tokenizer.ggml.token_type");
  bare.Remove("tokenizer.ggml.bos_token_id");
  bare.Remove("tokenizer.ggml.add_bos_token");
  const auto plain = FromWriter(bare);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_THAT((*plain)->Encode("hel"), testing::ElementsAre(257));
}

TEST(TokenizerMetadata, NamesTheKeyThatIsMissingOrOfAnotherType) {
  for (const std::string key :
       {"tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
    GgufWriter writer = Writer();
    writer.Remove(key);
    ExpectRefused(FromWriter(writer).status(), key);
  }
  for (const std::string key :
       {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
        "tokenizer.ggml.merges", "tokenizer.ggml.token_type", "tokenizer.ggml.bos_token_id",
        "tokenizer.ggml.eos_token_id", "tokenizer.ggml.add_bos_token"}) {
    GgufWriter writer = Writer();
    writer.value(key).type = kGgufF32;
    writer.value(key).raw = RawNumber(1.5f);
    ExpectRefused(FromWriter(writer).status(), key);
  }
  GgufWriter writer = Writer();
  writer.value("tokenizer.ggml.model").raw = RawString("llama");
  ExpectRefused(FromWriter(writer).status(), "tokenizer.ggml.model is \"llama\"; only \"gpt2\"");
  writer = Writer();
  writer.value("tokenizer.ggml.eos_token_id").type = kGgufI32;
  writer.value("tokenizer.ggml.eos_token_id").raw = RawNumber(int32_t{-1});
  ExpectRefused(FromWriter(writer).status(), "tokenizer.ggml.eos_token_id is -1");
}

}  // namespace
}  // namespace serval
