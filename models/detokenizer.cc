#include "models/detokenizer.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"
#include "models/tokenizer_utf8.h"

namespace serval {
namespace {

struct Found {
  size_t begin = std::string_view::npos;
  size_t end = std::string_view::npos;
};

// The stop string that is complete first; of several that end there, the longest.
Found FindStop(std::string_view text, const std::vector<std::string>& stops) {
  Found best;
  for (const std::string& stop : stops) {
    const size_t begin = text.find(stop);
    if (begin == std::string_view::npos) continue;
    const size_t end = begin + stop.size();
    if (end < best.end || (end == best.end && begin < best.begin)) best = {begin, end};
  }
  return best;
}

// How many bytes at the end of `text` may still grow into a stop string.
size_t HeldBack(std::string_view text, const std::vector<std::string>& stops, size_t longest) {
  const size_t most = longest == 0 ? 0 : std::min(text.size(), longest - 1);
  for (size_t held = most; held > 0; --held) {
    const std::string_view tail = text.substr(text.size() - held);
    for (const std::string& stop : stops) {
      if (std::string_view(stop).substr(0, held) == tail && stop.size() > held) return held;
    }
  }
  return 0;
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer* tokenizer, DetokenizerOptions options)
    : tokenizer_(tokenizer), options_(std::move(options)) {
  for (std::string& stop : options_.stop) {
    SERVAL_CHECK(!stop.empty(), "empty stop string");
    // Text is well-formed, so a stop string has to be, too: it then begins and ends between
    // characters.
    std::string repaired;
    stop = std::string(ToValidUtf8(stop, repaired));
    longest_stop_ = std::max(longest_stop_, stop.size());
  }
}

bool Detokenizer::Push(int32_t token, std::string& out) {
  SERVAL_CHECK(!stopped_, "token pushed after a stop string");
  ++pushed_;
  if (options_.skip_special && tokenizer_->IsSpecial(token)) return false;
  pending_ += tokenizer_->TokenBytes(token);
  return Release(out, false);
}

void Detokenizer::Flush(std::string& out) {
  if (!stopped_) Release(out, true);
}

bool Detokenizer::Release(std::string& out, bool final) {
  std::string text;
  const size_t cut_off = AppendValidUtf8(pending_, !final, text);
  const bool searching = pushed_ > options_.min_tokens;
  const Found stop = searching ? FindStop(text, options_.stop) : Found();
  if (stop.end != std::string_view::npos) {
    out.append(text, 0, options_.include_stop ? stop.end : stop.begin);
    pending_.clear();
    stopped_ = true;
    return true;
  }
  const size_t held = final || !searching ? 0 : HeldBack(text, options_.stop, longest_stop_);
  out.append(text, 0, text.size() - held);
  pending_ = text.substr(text.size() - held) + pending_.substr(pending_.size() - cut_off);
  return false;
}

}  // namespace serval
