#include "engine/memory/memory_plan.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace serval {
namespace {

// A cursor over the plan's text. Positions in messages count from 1, as editors do.
class PlanParser {
 public:
  PlanParser(std::string_view text, int layers) : text_(text), layers_(layers) {}

  absl::StatusOr<std::vector<LayerPlan>> Parse() {
    std::optional<LayerPlan> fallback;
    std::vector<std::optional<LayerPlan>> named(layers_);
    do {
      std::vector<int> target;  // empty = default
      if (absl::Status status = Target(target); !status.ok()) return status;
      if (absl::Status status = Expect('='); !status.ok()) return status;
      LayerPlan kind;
      if (absl::Status status = Kind(kind); !status.ok()) return status;
      if (target.empty()) fallback = kind;
      for (const int layer : target) named[layer] = kind;
    } while (Take(';'));
    if (Peek() != '\0') return Error("';' or the end");
    std::vector<LayerPlan> plan(named.size(), fallback.value_or(LayerPlan{}));
    for (size_t i = 0; i < named.size(); ++i) {
      if (named[i]) plan[i] = *std::move(named[i]);
    }
    return plan;
  }

 private:
  char Peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Take(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }
  absl::Status Expect(char c) {
    return Take(c) ? absl::OkStatus() : Error(absl::StrCat("'", std::string(1, c), "'"));
  }
  absl::Status Error(const std::string& expected) { return ErrorAt(at_, expected); }
  absl::Status ErrorAt(size_t at, const std::string& expected) const {
    const std::string found =
        at < text_.size() ? absl::StrCat("\"", std::string(text_.substr(at, 16)), "\"") : "the end";
    return absl::InvalidArgumentError(absl::StrCat("--memory-plan, position ", at + 1,
                                                   ": expected ", expected, ", found ", found));
  }
  // Letters, digits and the signs that numbers and names need.
  std::string_view Word() {
    Peek();
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
                                  text_[at_] == '_' || text_[at_] == '.')) {
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  absl::Status Target(std::vector<int>& layers) {
    Peek();
    const size_t begin = at_;
    const std::string_view word = Word();
    if (word == "default") return absl::OkStatus();
    if (word != "layers") return ErrorAt(begin, "\"default\" or \"layers[…]\"");
    if (absl::Status status = Expect('['); !status.ok()) return status;
    do {
      int first, last;
      if (absl::Status status = Layer(first); !status.ok()) return status;
      last = first;
      if (Take('-')) {
        Peek();
        const size_t end = at_;
        if (absl::Status status = Layer(last); !status.ok()) return status;
        if (last < first) return ErrorAt(end, absl::StrCat("a layer not before ", first));
      }
      for (int layer = first; layer <= last; ++layer) layers.push_back(layer);
    } while (Take(','));
    return Expect(']');
  }

  absl::Status Layer(int& layer) {
    Peek();
    const size_t begin = at_;
    const std::string_view word = Word();
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), layer);
    if (error != std::errc() || end != word.data() + word.size() || layer >= layers_) {
      return ErrorAt(begin, absl::StrCat("a layer 0 … ", layers_ - 1));
    }
    return absl::OkStatus();
  }

  absl::Status Kind(LayerPlan& kind) {
    Peek();
    const size_t begin = at_;
    kind.kind = Word();
    if (FindBankKind(kind.kind) == nullptr) {
      std::string kinds;
      for (const BankKind& known : BankKinds()) {
        absl::StrAppend(&kinds, kinds.empty() ? "" : ", ", std::string(known.name));
      }
      return ErrorAt(begin, absl::StrCat("a kind of memory (", kinds, ")"));
    }
    if (!Take(':')) return absl::OkStatus();
    do {
      Peek();
      const size_t key_begin = at_;
      const std::string key(Word());
      if (key.empty()) return ErrorAt(key_begin, "an option's name");
      if (absl::Status status = Expect('='); !status.ok()) return status;
      Peek();
      const size_t value_begin = at_;
      const std::string value(Word());
      if (value.empty()) return ErrorAt(value_begin, absl::StrCat("a value for \"", key, "\""));
      if (!kind.options.emplace(key, value).second) {
        return ErrorAt(key_begin, absl::StrCat("option \"", key, "\" only once"));
      }
    } while (Take(','));
    return absl::OkStatus();
  }

  std::string_view text_;
  int layers_;
  size_t at_ = 0;
};

std::string Human(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return absl::StrFormat("%.*f %s", unit == 0 ? 0 : 1, value, kUnits[unit]);
}

}  // namespace

absl::StatusOr<std::vector<LayerPlan>> ParseMemoryPlan(std::string_view text, int layers) {
  return PlanParser(text, layers).Parse();
}

std::vector<BankPlan> GroupLayers(const std::vector<LayerPlan>& plan, const ModelInfo& model,
                                  const StepLimits& limits, DType kv_dtype) {
  std::vector<BankPlan> banks;
  for (size_t layer = 0; layer < plan.size(); ++layer) {
    const BankKind* kind = FindBankKind(plan[layer].kind);
    auto bank = std::find_if(banks.begin(), banks.end(), [&](const BankPlan& other) {
      return other.kind == kind && other.config.options == plan[layer].options;
    });
    if (bank == banks.end()) {
      const int index = static_cast<int>(banks.size());
      banks.push_back({kind, {{}, kv_dtype, limits, plan[layer].options, index, 0}, {}});
      bank = banks.end() - 1;
    }
    bank->config.layers.push_back(model.layers[layer]);
    bank->layers.push_back(static_cast<int>(layer));
  }
  return banks;
}

std::string PlanTable(const std::vector<BankPlan>& banks, int64_t context, int64_t total_bytes) {
  std::vector<int64_t> lengths;
  for (const int64_t length : {4096, 32768, 131072}) {
    if (length < context) lengths.push_back(length);
  }
  lengths.push_back(context);
  std::string table = absl::StrFormat("%-10s %7s %12s", "memory", "layers", "bytes/token");
  for (const int64_t length : lengths) {
    const std::string name = length % 1024 == 0 ? absl::StrCat(length / 1024, "K tokens")
                                                : absl::StrCat(length, " tokens");
    absl::StrAppendFormat(&table, " %14s", name);
  }
  std::vector<int64_t> totals(lengths.size());
  int64_t layers = 0, per_token = 0;
  const auto row = [&](const std::string& name, int64_t count, int64_t token,
                       const std::vector<int64_t>& bytes) {
    absl::StrAppendFormat(&table, "\n%-10s %7d %12d", name, count, token);
    for (const int64_t value : bytes) absl::StrAppendFormat(&table, " %14s", Human(value));
  };
  for (const BankPlan& bank : banks) {
    std::vector<int64_t> bytes;
    for (size_t i = 0; i < lengths.size(); ++i) {
      bytes.push_back(bank.kind->bytes_for(bank.config, lengths[i]));
      totals[i] += bytes.back();
    }
    // The price of a token in the long run: what kinds of constant size do not pay.
    const int64_t token =
        (bank.kind->bytes_for(bank.config, 2 << 20) - bank.kind->bytes_for(bank.config, 1 << 20)) >>
        20;
    row(std::string(bank.kind->name), static_cast<int64_t>(bank.layers.size()), token, bytes);
    layers += static_cast<int64_t>(bank.layers.size());
    per_token += token;
  }
  if (banks.size() > 1) row("total", layers, per_token, totals);
  absl::StrAppendFormat(&table, "\n%-31s", absl::StrCat("sequences in ", Human(total_bytes)));
  for (const int64_t bytes : totals) absl::StrAppendFormat(&table, " %14d", total_bytes / bytes);
  return table + "\n";
}

}  // namespace serval
