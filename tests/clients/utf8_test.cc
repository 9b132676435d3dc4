// UTF-8 of the clients.
#include "clients/common/utf8.h"

#include <gtest/gtest.h>

namespace serval {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

TEST(Utf8, WellFormed) {
  for (const char* text : {"", "abc", "\xC2\x80", "\xE2\x82\xAC", "\xED\x9F\xBF",
                           "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
    EXPECT_EQ(ReplaceInvalidUtf8(text), text);
  }
}

TEST(Utf8, IllFormed) {
  for (const char* text :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\x80\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xFF"}) {
    EXPECT_FALSE(IsUtf8(text)) << text;
    EXPECT_TRUE(IsUtf8(ReplaceInvalidUtf8(text)));
  }
}

TEST(Utf8, OneReplacementForEachMaximalPiece) {
  const std::string r = kReplacement;
  EXPECT_EQ(ReplaceInvalidUtf8("a\xE2\x82z"), "a" + r + "z");
  EXPECT_EQ(ReplaceInvalidUtf8("\xF0\x9F\x98"), r);
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\xAF"), r + r);
}

TEST(Utf8, NulIsACharacter) { EXPECT_TRUE(IsUtf8(std::string_view("a\0b", 3))); }

}  // namespace
}  // namespace serval
