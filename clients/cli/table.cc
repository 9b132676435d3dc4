#include "clients/cli/table.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace serval {
namespace {

std::string Format(const char* format, double value, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof text, format, value, unit);
  return text;
}

}  // namespace

Table::Table(const std::vector<std::string>& titles) {
  rows_.emplace_back();
  for (const std::string& title : titles) {
    right_.push_back(title.starts_with('>'));
    rows_[0].push_back(right_.back() ? title.substr(1) : title);
  }
}

void Table::Row(std::vector<std::string> cells) {
  cells.resize(right_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::Text() const {
  std::vector<size_t> widths(right_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - row[i].size(), ' ');
      out += i > 0 ? "  " : "";
      out += right_[i] ? pad + row[i] : row[i] + pad;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

std::string ShowBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return Format(unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
}

std::string ShowCount(int64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000'000) return Format("%.1f%s", value / 1e9, "B");
  if (count >= 1'000'000) return Format("%.1f%s", value / 1e6, "M");
  return std::to_string(count);
}

std::string ShowDuration(double seconds) {
  if (seconds < 1) return Format("%.1f %s", seconds * 1e3, "ms");
  if (seconds < 60) return Format("%.1f %s", seconds, "s");
  const auto minutes = static_cast<int64_t>(seconds / 60);
  if (minutes < 60) return std::to_string(minutes) + " min";
  return std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min";
}

std::string ShowPercent(double fraction) { return Format("%.1f %s", fraction * 100, "%"); }

}  // namespace serval
