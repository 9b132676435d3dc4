// Where each rule splits.
#include "models/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "models/tokenizer_utf8.h"

namespace serval {
namespace {

using testing::ElementsAre;

const std::vector<std::string> kNames = {
    "default",   "gpt-2",  "phi-2",    "olmo",  "smollm",           "starcoder", "refact",
    "llama-bpe", "llama3", "llama-v3", "qwen2", "deepseek-r1-qwen", "gpt-4o"};

std::vector<std::string> Words(std::string_view name, std::string_view text) {
  const auto pretokenizer = Pretokenizer::Make(name);
  EXPECT_TRUE(pretokenizer.ok()) << pretokenizer.status();
  std::vector<std::string> words;
  pretokenizer->Split(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

TEST(Pretokenizer, SplitsAsGpt2) {
  EXPECT_THAT(Words("gpt-2", "I'm 12 cats,  you're"),
              ElementsAre("I", "'m", " 12", " cats", ",", " ", " you", "'re"));
  EXPECT_THAT(Words("gpt-2", "A'S"), ElementsAre("A", "'", "S"));
  EXPECT_THAT(Words("gpt-2", "a \n\n b\n"), ElementsAre("a", " \n\n", " b", "\n"));
  EXPECT_THAT(Words("gpt-2", "a\u00a0\u3000b\u0085"),
              ElementsAre("a", "\u00a0", "\u3000", "b", "\u0085"));
  EXPECT_THAT(Words("gpt-2", "a\u180eb\u200bc"), ElementsAre("a", "\u180e", "b", "\u200b", "c"));
  EXPECT_THAT(Words("gpt-2", "a \u180e"),
              ElementsAre("a", " \u180e"));  // no space since Unicode 6.3
}

TEST(Pretokenizer, SplitsDigitsBeforeAllElse) {
  for (const char* name : {"smollm", "starcoder", "refact"}) {
    EXPECT_THAT(Words(name, "a  12b"), ElementsAre("a", "  ", "1", "2", "b"));
    EXPECT_THAT(Words(name, "x\u0663\u00bd\u2167!"),
                ElementsAre("x", "\u0663", "\u00bd", "\u2167", "!"));
    EXPECT_THAT(Words(name, "\U00010d40\U00011de0"),
                ElementsAre("\U00010d40", "\U00011de0"));  // of Unicode 16, 17
  }
}

TEST(Pretokenizer, SplitsAsLlama3AndQwen2) {
  EXPECT_THAT(Words("llama-bpe", "I'LL 12345 (ok)\n\nx"),
              ElementsAre("I", "'LL", " ", "123", "45", " (", "ok", ")\n\n", "x"));
  EXPECT_THAT(Words("qwen2", "12 \tab"), ElementsAre("1", "2", " ", "\tab"));
  EXPECT_THAT(Words("gpt-4o", "HTMLParser's a/b/\n"),
              ElementsAre("HTMLParser's", " a", "/b", "/\n"));
}

TEST(Pretokenizer, SplitsByDefaultAsLlamaCpp) {
  EXPECT_THAT(Words("default", "a+b 12345"), ElementsAre("a", "+", "b", " ", "123", "45"));
}

TEST(Pretokenizer, LosesNothing) {
  std::mt19937 random(11);
  for (const std::string& name : kNames) {
    for (int i = 0; i < 200; ++i) {
      std::string bytes, text;
      for (size_t size = random() % 80; bytes.size() < size;) {
        bytes += static_cast<char>(random() % (random() % 2 ? 256 : 128));
      }
      AppendValidUtf8(bytes, false, text);
      std::string joined;
      for (const std::string& word : Words(name, text)) {
        EXPECT_FALSE(word.empty());
        EXPECT_EQ(ValidUtf8Prefix(word), word.size());
        joined += word;
      }
      EXPECT_EQ(joined, text);
    }
  }
}

TEST(Pretokenizer, ListsTheNamesItKnows) {
  const absl::Status status = Pretokenizer::Make("nope").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const std::string& name : kNames) {
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(name));
  }
}

}  // namespace
}  // namespace serval
