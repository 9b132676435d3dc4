// The flag parser.
#include "clients/common/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace serval {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

struct Parsed {
  int64_t count = -1;
  double rate = std::nan("");
  std::vector<std::string> stops;
  bool quiet = false;
};

absl::Status Parse(const std::vector<std::string>& args, Parsed& parsed) {
  FlagSet flags("test", "A test.");
  flags.AddInteger("max-count", "how many", 1, 100, [&](int64_t n) { parsed.count = n; });
  flags.AddNumber("rate", "how fast", 0, 1, [&](double x) { parsed.rate = x; });
  flags.AddText("stop", "TEXT", "where", [&](std::string s) { parsed.stops.push_back(s); });
  flags.AddSwitch("quiet", "say nothing", [&](bool on) { parsed.quiet = on; });
  flags.Alias("-q", "quiet");
  return flags.Parse(args);
}

std::string Refusal(const std::vector<std::string>& args) {
  Parsed parsed;
  return Message(Parse(args, parsed));
}

TEST(Flags, BothSpellingsOfAValue) {
  Parsed parsed;
  ASSERT_TRUE(Parse({"--max-count", "5", "--rate=0.25", "--stop", "a", "--stop=b=c"}, parsed).ok());
  EXPECT_EQ(parsed.count, 5);
  EXPECT_EQ(parsed.rate, 0.25);
  EXPECT_THAT(parsed.stops, ElementsAre("a", "b=c"));
}

TEST(Flags, AValueMayLookLikeAFlag) {
  Parsed parsed;
  ASSERT_TRUE(Parse({"--stop", "--quiet", "--stop="}, parsed).ok());
  EXPECT_THAT(parsed.stops, ElementsAre("--quiet", ""));
  EXPECT_FALSE(parsed.quiet);
}

TEST(Flags, Switches) {
  Parsed parsed;
  ASSERT_TRUE(Parse({"-q"}, parsed).ok());
  EXPECT_TRUE(parsed.quiet);
  ASSERT_TRUE(Parse({"--quiet=false"}, parsed).ok());
  EXPECT_FALSE(parsed.quiet);
  EXPECT_EQ(Refusal({"--quiet=perhaps"}), "--quiet wants true or false, not 'perhaps'");
}

TEST(Flags, UnknownOnesNameTheNearest) {
  EXPECT_EQ(Refusal({"--max_count", "5"}), "unknown flag '--max_count'; did you mean --max-count?");
  EXPECT_EQ(Refusal({"--max"}), "unknown flag '--max'; did you mean --max-count?");
  EXPECT_EQ(Refusal({"--raet=1"}), "unknown flag '--raet'; did you mean --rate?");
  EXPECT_EQ(Refusal({"--zzzzzzzzzz"}), "unknown flag '--zzzzzzzzzz'; see --help");
  EXPECT_EQ(Refusal({"--"}), "unknown flag '--'; see --help");
  EXPECT_THAT(Refusal({"5"}), HasSubstr("unexpected argument '5'"));
}

TEST(Flags, WrongValuesSayWhatWasExpected) {
  EXPECT_EQ(Refusal({"--max-count"}), "--max-count wants a value (N), and none follows it");
  EXPECT_EQ(Refusal({"--max-count", "0"}),
            "--max-count wants a whole number from 1 to 100, not '0'");
  EXPECT_EQ(Refusal({"--max-count", "5x"}),
            "--max-count wants a whole number from 1 to 100, not '5x'");
  EXPECT_EQ(Refusal({"--rate", "nan"}), "--rate wants a number from 0 to 1, not 'nan'");
  EXPECT_EQ(Refusal({"--rate", "inf"}), "--rate wants a number from 0 to 1, not 'inf'");
  EXPECT_EQ(Refusal({"--rate="}), "--rate wants a number from 0 to 1, not ''");
}

TEST(Flags, IntegersThatDoNotFitAreRefused) {
  EXPECT_FALSE(ParseInteger("9223372036854775808", 0, kInt32Max).ok());
  EXPECT_EQ(Message(ParseInteger("3000000000", 1, kInt32Max).status()),
            "wants a whole number of at most 2147483647, not '3000000000'");
  EXPECT_EQ(*ParseInteger("-1", -1, kInt32Max), -1);
}

TEST(Flags, Lists) {
  EXPECT_THAT(SplitList(""), IsEmpty());
  EXPECT_THAT(SplitList("1,2,3"), ElementsAre("1", "2", "3"));
  EXPECT_THAT(SplitList("1,,"), ElementsAre("1", "", ""));
}

TEST(Flags, HelpListsEveryFlagWithinTheWidth) {
  FlagSet flags("serval test", "About it.");
  flags.Section("Numbers");
  flags.AddInteger("n", std::string(300, 'x') + " " + std::string(80, 'y'), 0, 1, [](int64_t) {});
  flags.AddSwitch("a-flag-whose-name-is-longer-than-the-column", "help", [](bool) {});
  const std::string help = flags.Help();
  EXPECT_THAT(help, HasSubstr("Usage: serval test\n\nAbout it.\n\nNumbers:\n  --n N"));
  EXPECT_THAT(help, HasSubstr("longer-than-the-column\n" + std::string(36, ' ') + "help\n"));
}

}  // namespace
}  // namespace serval
