// Text to ids: added tokens, merging, the whole tokenizer on a vocabulary made by hand, and the
// default model's ids as Hugging Face gives them.
#include "models/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "models/bpe_merge.h"
#include "models/gguf.h"
#include "models/tokenizer_added.h"
#include "tests/models/tiny_vocabulary.h"
#include "tests/models/tokenizer_golden.h"

namespace serval {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ByteAlphabet, EveryByteComesBack) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string_view symbol = ByteSymbol(static_cast<uint8_t>(byte));
    EXPECT_EQ(BytesOfSymbols(symbol), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(ByteSymbol(' '), "Ġ");
  EXPECT_EQ(ByteSymbol('\n'), "Ċ");
  EXPECT_EQ(ByteSymbol(0xAD), "Ń");
  EXPECT_EQ(BytesOfSymbols("Ġthe"), " the");
  EXPECT_EQ(BytesOfSymbols("▁the"), "▁the");    // not of this alphabet: its own text
  EXPECT_EQ(BytesOfSymbols("a\xC4"), "a\xC4");  // cut off
  EXPECT_EQ(BytesOfSymbols("Ġ the"), "Ġ the");  // a plain space is no symbol
}

TEST(AddedTokens, LeftmostThenLongest) {
  const AddedTokens added({{"<a>", 1}, {"<a><b>", 2}, {"<b>", 3}, {"b><c", 4}, {"<", 5}});
  const auto find = [&](std::string_view text, size_t from) {
    const AddedTokens::Match match = added.Find(text, from);
    return std::vector<int>{static_cast<int>(match.begin), static_cast<int>(match.end), match.id};
  };
  EXPECT_THAT(find("x<a>y", 0), ElementsAre(1, 4, 1));
  EXPECT_THAT(find("x<a><b>", 0), ElementsAre(1, 7, 2));
  EXPECT_THAT(find("<a><b", 0), ElementsAre(0, 3, 1));  // the longer one is not whole
  EXPECT_THAT(find("<b><c", 0), ElementsAre(0, 3, 3));  // leftmost beats longest
  EXPECT_THAT(find("<b><c", 1), ElementsAre(1, 5, 4));
  EXPECT_THAT(find("<<a", 0), ElementsAre(0, 1, 5));
  EXPECT_EQ(added.Find("plain", 0).id, -1);
  EXPECT_EQ(added.Find("<a>", 3).id, -1);
  EXPECT_EQ(AddedTokens().Find("<a>", 0).id, -1);
}

// Merging by the definition: join the leftmost of the best pairs, look again.
std::vector<int32_t> MergeByDefinition(const TinyVocabulary& vocabulary, std::string_view word) {
  std::vector<std::string> parts;
  for (const char byte : word) parts.emplace_back(ByteSymbol(static_cast<uint8_t>(byte)));
  const auto rank = [&](size_t i) {
    const auto found = std::find(vocabulary.merges.begin(), vocabulary.merges.end(),
                                 parts[i] + " " + parts[i + 1]);
    return found - vocabulary.merges.begin();
  };
  while (parts.size() > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < parts.size(); ++i) {
      if (rank(i) < rank(best)) best = i;
    }
    if (rank(best) == static_cast<std::ptrdiff_t>(vocabulary.merges.size())) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<int32_t> ids;
  for (const std::string& part : parts) {
    const auto found = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), part);
    ids.push_back(static_cast<int32_t>(found - vocabulary.tokens.begin()));
  }
  return ids;
}

TEST(BpeMerger, EqualsTheDefinitionOnRandomVocabularies) {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    TinyVocabulary vocabulary({});
    std::vector<std::string> parts = {"a", "b", "c"};
    while (parts.size() < 20) {
      const std::string left = parts[random() % parts.size()],
                        right = parts[random() % parts.size()];
      if (std::find(parts.begin(), parts.end(), left + right) != parts.end()) continue;
      parts.push_back(left + right);
      vocabulary.Add(left + right, 1);
      vocabulary.merges.push_back(left + " " + right);
    }
    std::shuffle(vocabulary.merges.begin(), vocabulary.merges.end(), random);
    const auto tokenizer = vocabulary.Make();
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (int i = 0; i < 50; ++i) {
      std::string word;
      for (size_t size = random() % 60 + 1; word.size() < size;) word += "abc"[random() % 3];
      EXPECT_EQ((*tokenizer)->Encode(word), MergeByDefinition(vocabulary, word)) << word;
    }
  }
}

TinyVocabulary Hello() { return TinyVocabulary({"h e", "l l", "he ll", "hell o", "Ġ hello"}); }

TEST(Tokenizer, SplitsMergesAndKeepsSpecialTokens) {
  TinyVocabulary vocabulary = Hello();
  const int32_t end = vocabulary.Add("<|im_end|>", 3);
  const int32_t user = vocabulary.Add("hello!", 4);
  const auto made = vocabulary.Make();
  ASSERT_TRUE(made.ok()) << made.status();
  const Tokenizer& tokenizer = **made;
  const int32_t hello = tokenizer.TokenId("hello"), space_hello = tokenizer.TokenId("Ġhello");
  EXPECT_THAT(tokenizer.Encode("hello hello"), ElementsAre(hello, space_hello));
  EXPECT_THAT(tokenizer.Encode("hello<|im_end|> hello!"), ElementsAre(hello, end, ' ', user));
  EXPECT_THAT(tokenizer.Encode(""), IsEmpty());
  EXPECT_THAT(tokenizer.Encode("\xFF"), ElementsAre(0xEF, 0xBF, 0xBD));  // as U+FFFD
  EXPECT_EQ(tokenizer.TokenBytes(space_hello), " hello");
  EXPECT_EQ(tokenizer.TokenBytes(end), "<|im_end|>");
  EXPECT_EQ(tokenizer.TokenBytes(-1), "");
  EXPECT_EQ(tokenizer.TokenBytes(tokenizer.vocab_size()), "");
  EXPECT_EQ(tokenizer.TokenId("no such token"), -1);
  EXPECT_TRUE(tokenizer.IsSpecial(end));
  EXPECT_FALSE(tokenizer.IsSpecial(user));
  EXPECT_FALSE(tokenizer.IsSpecial(-7));
  EXPECT_THAT(tokenizer.eos_ids(), ElementsAre(end));
  EXPECT_EQ(tokenizer.bos_id(), -1);
  const std::vector<int32_t> ids = {space_hello, end, 0xC3, user};
  EXPECT_EQ(tokenizer.Decode(ids), " hello\xEF\xBF\xBDhello!");
  EXPECT_EQ(tokenizer.Decode(ids, false), " hello<|im_end|>\xEF\xBF\xBDhello!");
}

TEST(Tokenizer, LeavesOutBytesWithoutToken) {
  TinyVocabulary vocabulary = Hello();
  vocabulary.tokens['z'] = "unused";
  const auto tokenizer = vocabulary.Make();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->Encode("zhezllzozz"), ElementsAre((*tokenizer)->TokenId("hello")));
  EXPECT_THAT((*tokenizer)->Encode("zz"), IsEmpty());
}

TEST(Tokenizer, FollowsTheTraitsOfItsPretokenizer) {
  TinyVocabulary vocabulary = Hello();
  const int32_t bos = vocabulary.Add("<s>", 3);
  const int32_t whole = vocabulary.Add("qqq", 1);  // no merge leads here
  TinyVocabulary::Views views;
  BpeMetadata metadata = vocabulary.Metadata(views);
  metadata.bos_id = bos;
  EXPECT_THAT((*MakeBpeTokenizer(metadata))->Encode("qqq"), ElementsAre('q', 'q', 'q'));
  metadata.add_bos = true;
  EXPECT_THAT((*MakeBpeTokenizer(metadata))->Encode("q"), ElementsAre(bos, 'q'));
  EXPECT_THAT((*MakeBpeTokenizer(metadata))->Encode("q", false), ElementsAre('q'));
  metadata.add_bos.reset();
  metadata.pre = "llama-bpe";
  EXPECT_THAT((*MakeBpeTokenizer(metadata))->Encode("qqq"), ElementsAre(bos, whole));
  metadata.pre = "qwen2";  // composes: e and U+0301 are U+00E9
  EXPECT_THAT((*MakeBpeTokenizer(metadata))->Encode("e\xCC\x81"), ElementsAre(0xC3, 0xA9));
  metadata.pre = "gpt-2";
  EXPECT_THAT((*MakeBpeTokenizer(metadata))->Encode("e\xCC\x81"), ElementsAre('e', 0xCC, 0x81));
}

TEST(Tokenizer, AgreesWithItselfFromManyThreads) {
  const auto made = Hello().Make();
  ASSERT_TRUE(made.ok()) << made.status();
  std::string text;
  std::mt19937 random(3);
  for (int i = 0; i < 60000; ++i) text += "helo abcdefgh\n12'"[random() % 17];
  const std::vector<int32_t> expected = (*Hello().Make())->Encode(text);
  std::vector<std::thread> threads;
  std::vector<std::vector<int32_t>> found(4);
  for (auto& ids : found) threads.emplace_back([&] { ids = (*made)->Encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& ids : found) EXPECT_EQ(ids, expected);
}

TEST(Tokenizer, TakesWordsAndPromptsOfAnyLength) {
  const auto made = Hello().Make();
  ASSERT_TRUE(made.ok()) << made.status();
  std::string word;
  while (word.size() < (5u << 20)) word += "hello";
  EXPECT_EQ((*made)->Encode(word),
            std::vector<int32_t>(word.size() / 5, (*made)->TokenId("hello")));
  for (const std::string_view piece : {" ", "\n", "1", "\t", "!", "'", "\xFF", "\xE8\xAA\x9E"}) {
    std::string prompt;
    while (prompt.size() < (2u << 20)) prompt += piece;
    const std::vector<int32_t> ids = (*made)->Encode(prompt);
    EXPECT_EQ(ids.size(), prompt.size() * (piece == "\xFF" ? 3 : 1));
  }
}

std::string DefaultModel() {
  if (const char* path = std::getenv("SERVAL_TEST_MODEL")) return path;
  const char* home = std::getenv("HOME");
  return std::string(home == nullptr ? "" : home) +
         "/.cache/serval/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

TEST(DefaultModelTokenizer, GivesTheIdsOfHuggingFace) {
  const std::string path = DefaultModel();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no model at " << path;
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto made = Tokenizer::FromGguf(**file);
  ASSERT_TRUE(made.ok()) << made.status();
  const Tokenizer& tokenizer = **made;
  EXPECT_EQ(tokenizer.vocab_size(), 49152);
  EXPECT_EQ(tokenizer.bos_id(), 1);
  const auto eos = tokenizer.eos_ids();
  EXPECT_NE(std::find(eos.begin(), eos.end(), tokenizer.TokenId("<|im_end|>")), eos.end());
  ASSERT_GE(kGoldenLines.size(), 60u);
  for (const GoldenLine& line : kGoldenLines) {
    EXPECT_EQ(tokenizer.Encode(line.text), line.ids) << line.text;
    EXPECT_EQ(tokenizer.Encode(line.text), line.ids) << "from the cache: " << line.text;
  }
  for (const std::string_view text :
       {"今天天气很好。", "It's 3.14 <|im_start|>user\n  ok\t\n", "e\xCC\x81"}) {
    EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text), false), text);
  }
}

}  // namespace
}  // namespace serval
