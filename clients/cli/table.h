// Text tables of the clients, and quantities as people read them.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace serval {

class Table {
 public:
  // Columns of numbers stand flush right: give their titles a leading '>'.
  explicit Table(const std::vector<std::string>& titles);
  void Row(std::vector<std::string> cells);
  std::string Text() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;  // the titles first
};

std::string ShowBytes(int64_t bytes);      // 87.5 MiB
std::string ShowCount(int64_t count);      // 134.5M
std::string ShowDuration(double seconds);  // 35.2 ms, 12.0 s, 3 h 20 min
std::string ShowPercent(double fraction);  // 12.5 %

}  // namespace serval
