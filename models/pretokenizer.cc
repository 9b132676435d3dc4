#include "models/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "models/pretokenizer_unicode.h"

// Unicode White_Space, spelled out: PCRE2's own \s also takes U+180E, which lost the property in
// Unicode 6.3.
#define WS \
  R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"
#define SPACE "[" WS "]"
#define NOT_SPACE "[^" WS "]"
// A-Z and 0-9 again in front: PCRE2 then answers ASCII from a bit map.
#define LETTERS R"(A-Za-z\p{L})" NEW_LETTER
#define NUMBERS R"(0-9\p{N})" NEW_NUMBER
#define LETTER "[" LETTERS "]"
#define NUMBER "[" NUMBERS "]"
#define OTHER "[^" WS LETTERS NUMBERS "]"
// Any one character but a line end may lead a word.
#define LEAD R"([^\r\n)" LETTERS NUMBERS "]?"
// Not followed by more than white space: a run leaves its last space to the word behind it.
#define TRAILING_SPACE SPACE "+(?!" NOT_SPACE ")"
#define CONTRACTION R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M})" NEW_UPPER NEW_OTHER_LETTER NEW_MARK "]"
#define LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M})" NEW_LOWER NEW_OTHER_LETTER NEW_MARK "]"

namespace serval {
namespace {

constexpr const char* kDigit = "[" NUMBERS NEWEST_NUMBER "]";
constexpr const char* kGpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?" LETTER "+| ?" NUMBER "+| ?" OTHER
                              "+|" TRAILING_SPACE "|" SPACE "+";
constexpr const char* kLlama3 =
    CONTRACTION "|" LEAD LETTER "+|" NUMBER "{1,3}| ?" OTHER R"(+[\r\n]*|)" SPACE
                R"(*[\r\n]+|)" TRAILING_SPACE "|" SPACE "+";
constexpr const char* kQwen2 =
    CONTRACTION "|" LEAD LETTER "+|" NUMBER "| ?" OTHER R"(+[\r\n]*|)" SPACE
                R"(*[\r\n]+|)" TRAILING_SPACE "|" SPACE "+";
constexpr const char* kGpt4o =
    LEAD UPPER "*" LOWER "+" CONTRACTION "?|" LEAD UPPER "+" LOWER "*" CONTRACTION "?|" NUMBER
               "{1,3}| ?" OTHER R"(+[\r\n/]*|)" SPACE R"(*[\r\n]+|)" TRAILING_SPACE "|" SPACE "+";

struct Rule {
  const char* name;
  std::array<const char*, 4> stages;  // the first nullptr ends them
  PretokenizerTraits traits;
};

constexpr PretokenizerTraits kLlamaTraits = {.ignore_merges = true, .add_bos = true};
constexpr PretokenizerTraits kQwenTraits = {.nfc = true};
// As the models' tokenizer.json files have them; "default" as llama.cpp reads files that name no
// rule.
constexpr Rule kRules[] = {
    {"default",
     {R"([\p{P})" NEW_PUNCTUATION R"(\$\+<=>\^~\|]+)",
      "'s|'t|'re|'ve|'m|'ll|'d| ?" LETTER "+| ?" NUMBER "+| ?" OTHER "+|" TRAILING_SPACE,
      NUMBER "+", "[0-9][0-9][0-9]"},
     {}},
    {"gpt-2", {kGpt2}, {}},
    {"phi-2", {kGpt2}, {}},
    {"olmo", {kGpt2}, {}},
    {"smollm", {kDigit, kGpt2}, {}},
    {"starcoder", {kDigit, kGpt2}, {}},
    {"refact", {kDigit, kGpt2}, {}},
    {"llama-bpe", {kLlama3}, kLlamaTraits},
    {"llama3", {kLlama3}, kLlamaTraits},
    {"llama-v3", {kLlama3}, kLlamaTraits},
    {"qwen2", {kQwen2}, kQwenTraits},
    {"deepseek-r1-qwen", {kQwen2}, kQwenTraits},
    {"gpt-4o", {kGpt4o}, {}},
};

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using MatchData = std::unique_ptr<pcre2_match_data, FreeMatchData>;

}  // namespace

class Pretokenizer::Regex {
 public:
  explicit Regex(const char* pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    SERVAL_CHECK(code_ != nullptr, "pre-tokenizer pattern does not compile");
    // Where executable memory is refused PCRE2 interprets instead: slower, the same words.
    pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);
  }
  ~Regex() { pcre2_code_free(code_); }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // Calls `piece` with each match and each gap.
  template <class Piece>
  void Split(std::string_view text, Piece&& piece) const {
    // Per thread, because making one costs more than most matches. One pair of offsets is enough:
    // the patterns capture nothing.
    thread_local const MatchData match(pcre2_match_data_create(1, nullptr));
    SERVAL_CHECK(match != nullptr, "out of memory");
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
    size_t done = 0;  // all before it has been handed on
    size_t from = 0;
    while (from < text.size()) {
      const int found =
          pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                      PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match.get(), nullptr);
      // No match, or a resource limit, which no pattern of the table is known to reach: either way
      // the rest is one piece, and no request can bring the server down.
      if (found < 0) break;
      // Read now: the next stage uses the same offsets.
      const size_t begin = bounds[0], end = bounds[1];
      if (begin > done) piece(text.substr(done, begin - done));
      piece(text.substr(begin, end - begin));
      done = from = end;
    }
    if (done < text.size()) piece(text.substr(done));
  }

 private:
  pcre2_code* code_;
};

absl::StatusOr<Pretokenizer> Pretokenizer::Make(std::string_view name) {
  std::string known;
  for (const Rule& rule : kRules) {
    if (name != rule.name) {
      absl::StrAppend(&known, known.empty() ? "" : ", ", rule.name);
      continue;
    }
    Pretokenizer pretokenizer;
    pretokenizer.traits_ = rule.traits;
    for (const char* pattern : rule.stages) {
      if (pattern == nullptr) break;
      pretokenizer.stages_.push_back(std::make_shared<const Regex>(pattern));
    }
    return pretokenizer;
  }
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.pre is \"", std::string(name),
                                                 "\", which is not supported; it can be one of ",
                                                 known));
}

void Pretokenizer::SplitFrom(size_t stage, std::string_view text, const Sink& word) const {
  if (stage == stages_.size()) {
    word(text);
    return;
  }
  stages_[stage]->Split(text, [&](std::string_view piece) { SplitFrom(stage + 1, piece, word); });
}

}  // namespace serval
