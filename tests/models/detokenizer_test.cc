// Ids to text as it may be shown: UTF-8 repair, held-back text, stop strings; and streaming equals
// the definition.
#include "models/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "models/tokenizer_utf8.h"

namespace serval {
namespace {

const std::string kBad = std::string(kReplacement);

// Tokens are given bytes; those of `special` are special.
class TableTokenizer : public Tokenizer {
 public:
  explicit TableTokenizer(std::vector<std::string> tokens, int32_t special = -1)
      : tokens_(std::move(tokens)), special_(special) {}
  std::vector<int32_t> Encode(std::string_view, bool) const override { return {}; }
  std::string_view TokenBytes(int32_t id) const override {
    return id >= 0 && id < vocab_size() ? std::string_view(tokens_[id]) : std::string_view();
  }
  bool IsSpecial(int32_t id) const override { return id == special_; }
  int32_t TokenId(std::string_view) const override { return -1; }
  int32_t vocab_size() const override { return static_cast<int32_t>(tokens_.size()); }
  int32_t bos_id() const override { return -1; }
  std::span<const int32_t> eos_ids() const override { return {}; }

 private:
  std::vector<std::string> tokens_;
  int32_t special_;
};

TEST(Utf8, OneReplacementForEachMaximalSubpart) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"plain ascii, longer than eight bytes", "plain ascii, longer than eight bytes"},
      {"\xFF", kBad},
      {"\x80\xBF", kBad + kBad},
      {"\xC3(", kBad + "("},
      {"\xC0\xAF", kBad + kBad},
      {"\xE0\x80\xAF", kBad + kBad + kBad},
      {"\xED\xA0\x80", kBad + kBad + kBad},
      {"\xE2\x82", kBad},
      {"\xE2\x82\xE2\x82\xAC", kBad + "€"},
      {"\xF0\x9F\x98", kBad},
      {"\xF0\x9F\x98z", kBad + "z"},
      {"\xF0\x80\x80\x80", kBad + kBad + kBad + kBad},
      {"\xF4\x90\x80\x80", kBad + kBad + kBad + kBad},
      {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
      {"a\xF1\x80\x80\xE1\x80\xC2z\x80", "a" + kBad + kBad + kBad + "z" + kBad},
  };
  for (const auto& [bytes, expected] : cases) {
    std::string out, storage;
    EXPECT_EQ(AppendValidUtf8(bytes, false, out), 0u);
    EXPECT_EQ(out, expected);
    EXPECT_EQ(ToValidUtf8(bytes, storage), expected);
  }
}

struct Streamed {
  std::vector<std::string> deltas;
  std::string text;
  bool stopped = false;
};

Streamed Stream(const Tokenizer& tokenizer, const DetokenizerOptions& options,
                const std::vector<int32_t>& ids) {
  Detokenizer detokenizer(&tokenizer, options);
  Streamed streamed;
  for (const int32_t id : ids) {
    std::string delta;
    streamed.stopped = detokenizer.Push(id, delta);
    EXPECT_EQ(streamed.stopped, detokenizer.stopped());
    EXPECT_EQ(ValidUtf8Prefix(delta), delta.size());
    streamed.deltas.push_back(delta);
    if (streamed.stopped) break;
  }
  std::string rest;
  detokenizer.Flush(rest);
  EXPECT_TRUE(!streamed.stopped || rest.empty());
  streamed.stopped = detokenizer.stopped();
  streamed.deltas.push_back(rest);
  for (const std::string& delta : streamed.deltas) streamed.text += delta;
  return streamed;
}

// Streams each string as one token.
Streamed StreamTexts(const std::vector<std::string>& tokens, const std::vector<std::string>& stop,
                     bool include = false) {
  const TableTokenizer tokenizer(tokens);
  std::vector<int32_t> ids(tokens.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  return Stream(tokenizer, {.stop = stop, .include_stop = include}, ids);
}

using Texts = std::vector<std::string>;

TEST(Detokenizer, ShowsWhatIsCertainAndNoSooner) {
  EXPECT_EQ(StreamTexts({"ab", "c"}, {}).deltas, (Texts{"ab", "c", ""}));
  EXPECT_EQ(StreamTexts({"a\xE2", "\x82", "\xAC!"}, {}).deltas, (Texts{"a", "", "€!", ""}));
  EXPECT_EQ(StreamTexts({"a\xE2", "\x82"}, {}).deltas, (Texts{"a", "", kBad}));
  EXPECT_EQ(StreamTexts({"\xE2\x82", "z"}, {}).deltas, (Texts{"", kBad + "z", ""}));
  EXPECT_EQ(StreamTexts({"\xFF", "z"}, {}).deltas, (Texts{kBad, "z", ""}));
  EXPECT_EQ(StreamTexts({"", ""}, {}).deltas, (Texts{"", "", ""}));
}

TEST(Detokenizer, HoldsBackWhatMayBecomeAStopString) {
  EXPECT_EQ(StreamTexts({"one\n", "\nUs", "ing"}, {"\n\nUser:"}).deltas,
            (Texts{"one", "", "\n\nUsing", ""}));
  EXPECT_EQ(StreamTexts({"aab", "aab", "x"}, {"aabaax"}).deltas, (Texts{"", "aab", "aabx", ""}));
  EXPECT_EQ(StreamTexts({"x", "EN", "D"}, {"END"}).text, "x");
  EXPECT_TRUE(StreamTexts({"x", "EN", "D"}, {"END"}).stopped);
  EXPECT_EQ(StreamTexts({"xE", "N"}, {"END"}).deltas, (Texts{"x", "", "EN"}));
  EXPECT_FALSE(StreamTexts({"xE", "N"}, {"END"}).stopped);
  EXPECT_EQ(StreamTexts({"xEND tail"}, {"END"}).text, "x");
  EXPECT_EQ(StreamTexts({"xE", "ND tail"}, {"END"}, true).text, "xEND");
}

TEST(Detokenizer, TakesTheEarliestEndThenTheEarliestStart) {
  EXPECT_EQ(StreamTexts({"abcdef"}, {"cdef", "bc"}).text, "a");
  EXPECT_EQ(StreamTexts({"abc", "def"}, {"bcde", "cd"}).text, "ab");
  EXPECT_EQ(StreamTexts({"xabc"}, {"c", "abc"}).text, "x");
  EXPECT_EQ(StreamTexts({"xabc"}, {"abc", "c"}, true).text, "xabc");
}

TEST(Detokenizer, FirstTokensTakeNoPartInStopStrings) {
  const TableTokenizer tokenizer({"E", "ND", "x\xE2", "\x82\xAC", "<s>"}, 4);
  const auto text = [&](int64_t min_tokens, const std::vector<int32_t>& ids) {
    return Stream(tokenizer, {.stop = {"END", "€"}, .min_tokens = min_tokens}, ids).text;
  };
  EXPECT_EQ(text(0, {0, 1, 0, 1}), "");
  EXPECT_EQ(text(1, {0, 1, 0, 1, 0}), "END");  // "E" is shown at once and not part of a stop
  EXPECT_EQ(text(2, {0, 1, 0, 1, 0}), "END");
  EXPECT_EQ(text(4, {0, 1, 0, 1}), "ENDEND");
  EXPECT_EQ(text(2, {4, 4, 0, 1}), "");  // special tokens count
  EXPECT_EQ(text(1, {2, 3, 0}), "x");    // a character counts where it ends
}

TEST(Detokenizer, StopStringsMeetRepairedText) {
  EXPECT_EQ(StreamTexts({"a\xC3",
                         "\xA9"
                         "b"},
                        {"é"})
                .text,
            "a");
  EXPECT_EQ(StreamTexts({"a\xFF", "b"}, {kBad + "b"}).text, "a");
  const Streamed flushed = StreamTexts({"a", "\xE2\x82"}, {kBad});
  EXPECT_EQ(flushed.text, "a");
  EXPECT_TRUE(flushed.stopped);  // settled by the flush
}

TEST(Detokenizer, SkipsSpecialTokensWhenAsked) {
  const TableTokenizer tokenizer({"a", "<end>", "b"}, 1);
  EXPECT_EQ(Stream(tokenizer, {}, {0, 1, 2}).text, "ab");
  EXPECT_EQ(Stream(tokenizer, {.stop = {}, .skip_special = false}, {0, 1, 2}).text, "a<end>b");
  EXPECT_EQ(Stream(tokenizer, {.stop = {"ab"}}, {0, 1, 2}).text, "");
  EXPECT_EQ(Stream(tokenizer, {}, {0, 99, -1, 2}).text, "ab");
}

TEST(DetokenizerDeathTest, RefusesTokensAfterAStop) {
  const TableTokenizer tokenizer({"a"});
  Detokenizer detokenizer(&tokenizer, {.stop = {"a"}});
  std::string out;
  EXPECT_TRUE(detokenizer.Push(0, out));
  EXPECT_DEATH(detokenizer.Push(0, out), "after a stop string");
}

// The definition: the whole text, cut at the first prefix of it that ends with a stop string.
std::string OneShot(const Tokenizer& tokenizer, const DetokenizerOptions& options,
                    const std::vector<int32_t>& ids, bool& stopped) {
  const std::string text = tokenizer.Decode(ids, options.skip_special);
  stopped = true;
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string_view prefix = std::string_view(text).substr(0, end);
    for (size_t begin = 0; begin < end; ++begin) {
      for (const std::string& stop : options.stop) {
        if (prefix.substr(begin) == stop) {
          return text.substr(0, options.include_stop ? end : begin);
        }
      }
    }
  }
  stopped = false;
  return text;
}

TEST(Detokenizer, StreamingEqualsTheDefinition) {
  const std::vector<std::string> tokens = {"a",        "b",    "ab",   "ba",   "aab",  "é",
                                           "\xC3",     "\xA9", "\xE2", "\x82", "\xAC", "\xE2\x82",
                                           "\xF0\x9F", "\x98", "\x80", "\xFF", "€b",   "<s>"};
  const TableTokenizer tokenizer(tokens, 17);
  const std::vector<std::string> pieces = {"a", "b", "ab", "é", "€", kBad, "😀", "<s>"};
  std::mt19937 random(5);
  int stops = 0;
  for (int round = 0; round < 20000; ++round) {
    DetokenizerOptions options;
    options.include_stop = random() % 2;
    options.skip_special = random() % 2;
    options.stop.resize(random() % 4);
    for (std::string& stop : options.stop) {
      for (size_t n = random() % 4 + 1; n > 0; --n) stop += pieces[random() % pieces.size()];
    }
    std::vector<int32_t> ids(random() % 24);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % tokens.size());
    bool stopped = false;
    const std::string expected = OneShot(tokenizer, options, ids, stopped);
    const Streamed streamed = Stream(tokenizer, options, ids);
    ASSERT_EQ(streamed.text, expected) << "round " << round;
    ASSERT_EQ(streamed.stopped, stopped) << "round " << round;
    stops += stopped;
  }
  EXPECT_GT(stops, 2000);
}

}  // namespace
}  // namespace serval
