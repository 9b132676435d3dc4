// The few flags of the benchmark and evaluation tools: --name value pairs and --switch. Thread
// rule: main only.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

namespace serval::bench {

class Flags {
 public:
  // Exits with a sentence on an unknown flag or a missing value. `usage` is printed by --help.
  // `known` maps each flag, with its dashes, to its default; a default of "false" makes a switch.
  Flags(int argc, char** argv, std::map<std::string, std::string> known, const char* usage)
      : values_(std::move(known)) {
    for (int i = 1; i < argc; ++i) {
      const std::string name = argv[i];
      if (name == "--help") {
        std::fputs(usage, stdout);
        std::exit(0);
      }
      const auto found = values_.find(name);
      if (found == values_.end()) Fail("unknown flag " + name + "; --help lists the flags");
      if (found->second == "false") {
        found->second = "true";
      } else if (++i < argc) {
        found->second = argv[i];
      } else {
        Fail(name + " wants a value");
      }
    }
  }

  const std::string& Text(const std::string& name) const { return values_.at(name); }
  bool On(const std::string& name) const { return values_.at(name) == "true"; }
  long Int(const std::string& name) const {
    const std::string& text = values_.at(name);
    char* end = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    if (text.empty() || *end != 0 || value < 0) Fail(name + " wants a number, not '" + text + "'");
    return value;
  }

  [[noreturn]] static void Fail(const std::string& sentence) {
    std::fprintf(stderr, "%s\n", sentence.c_str());
    std::exit(2);
  }

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace serval::bench
