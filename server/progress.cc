#include "server/progress.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace serval {
namespace {

constexpr int kWidth = 24;
constexpr auto kTerminalPause = std::chrono::milliseconds(100);
constexpr auto kLinePause = std::chrono::seconds(2);

}  // namespace

std::string FormatBytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", unit == 0 ? 0 : 1, bytes, kUnits[unit]);
}

std::string ProgressLine(const std::string& what, int64_t done, int64_t total, double seconds) {
  const double share =
      total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0) : 0;
  const int filled = static_cast<int>(share * kWidth);
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, ' ');
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  const double left = rate > 0 ? static_cast<double>(total - done) / rate : 0;
  return absl::StrFormat("%s %3.0f%% [%s] %s of %s, %s/s, %.1f s left", what, share * 100, bar,
                         FormatBytes(static_cast<double>(done)),
                         FormatBytes(static_cast<double>(total)), FormatBytes(rate), left);
}

ProgressBar::ProgressBar(std::string what, std::FILE* out)
    : what_(std::move(what)), out_(out), terminal_(isatty(fileno(out)) != 0) {}

void ProgressBar::Update(int64_t done, int64_t total) {
  const Clock::time_point now = Clock::now();
  total_ = total;
  const Clock::duration pause = terminal_ ? Clock::duration(kTerminalPause) : kLinePause;
  if (now - shown_ < pause) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - started_).count();
  const std::string line = ProgressLine(what_, done, total, seconds);
  std::fprintf(out_, terminal_ ? "\r\033[K%s" : "%s\n", line.c_str());
  std::fflush(out_);
}

void ProgressBar::Done() {
  const double seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  const std::string line =
      absl::StrFormat("%s: %s in %.2f s", what_, FormatBytes(static_cast<double>(total_)), seconds);
  std::fprintf(out_, terminal_ ? "\r\033[K%s\n" : "%s\n", line.c_str());
  std::fflush(out_);
}

}  // namespace serval
