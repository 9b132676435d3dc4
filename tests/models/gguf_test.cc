// GGUF files as they should be, and as they should not.
#include "models/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "tests/support/tiny_gguf.h"

namespace serval {
namespace {

// Two small tensors and a few keys: 3 values, 2 tensors.
GgufWriter SmallFile() {
  GgufWriter file;
  file.Text("general.architecture", "llama");
  file.U32("answer", 42);
  file.Texts("words", {"one", "", "three"});
  file.tensors.push_back({"a", kGgmlF32, {4, 2}, std::string(32, '\1'), {}});
  file.tensors.push_back({"b", kGgmlQ8_0, {32, 3}, std::string(102, '\2'), {}});
  return file;
}

std::string ErrorOf(const std::string& bytes) {
  const TemporaryFile file(bytes);
  const auto opened = GgufFile::Open(file.path());
  if (opened.ok()) return "opened";
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(opened.status().message());
  EXPECT_EQ(message.rfind(file.path() + ": ", 0), 0u) << message;
  return message.substr(std::min(message.size(), file.path().size() + 2));
}

TEST(Gguf, ReadsValuesAndTensors) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter writer = SmallFile();
    writer.version = version;
    writer.Bool("yes", true);
    writer.F32("pi", 3.25f);
    writer.values.push_back({"small", kGgufI8, RawNumber(int8_t{-3})});
    writer.I32s("numbers", {5, -6});
    const TemporaryFile file(writer.Bytes());
    const auto opened = GgufFile::Open(file.path());
    ASSERT_TRUE(opened.ok()) << opened.status();
    const GgufFile& gguf = **opened;
    EXPECT_EQ(*gguf.String("general.architecture"), "llama");
    EXPECT_EQ(*gguf.Int("answer"), 42);
    EXPECT_EQ(*gguf.Int("small"), -3);
    EXPECT_EQ(*gguf.Float("pi"), 3.25);
    EXPECT_TRUE(gguf.BoolOr("yes", false));
    EXPECT_EQ(gguf.IntOr("nothing", 7), 7);
    EXPECT_THAT(**gguf.Strings("words"), testing::ElementsAre("one", "", "three"));
    EXPECT_THAT(**gguf.Ints("numbers"), testing::ElementsAre(5, -6));
    ASSERT_EQ(gguf.tensors().size(), 2u);
    const GgufTensor* b = gguf.FindTensor("b");
    ASSERT_NE(b, nullptr);
    EXPECT_EQ(b->dtype, DType::kQ8_0);
    EXPECT_THAT(b->shape, testing::ElementsAre(32, 3));
    EXPECT_EQ(b->bytes, 102);
    EXPECT_EQ(std::string(static_cast<const char*>(b->data), 102), std::string(102, '\2'));
    EXPECT_EQ(gguf.FindTensor("c"), nullptr);
    gguf.DropPages(b->data, b->bytes);
    EXPECT_EQ(static_cast<const char*>(b->data)[101], '\2');
  }
}

TEST(Gguf, LookUpErrorsNameTheKeyAndBothTypes) {
  const TemporaryFile file(SmallFile().Bytes());
  const auto opened = GgufFile::Open(file.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const GgufFile& gguf = **opened;
  const auto message = [&](const absl::Status& status) {
    return std::string(status.message()).substr(file.path().size() + 2);
  };
  EXPECT_EQ(message(gguf.Float("answer").status()),
            "key \"answer\" is an integer, expected a float");
  EXPECT_EQ(message(gguf.Int("words").status()),
            "key \"words\" is an array of strings, expected an integer");
  EXPECT_EQ(message(gguf.Ints("words").status()),
            "key \"words\" is an array of strings, expected an array of integers");
  EXPECT_EQ(message(gguf.String("none").status()), "key \"none\" is missing, expected a string");
  EXPECT_EQ(message(gguf.Strings("answer").status()),
            "key \"answer\" is an integer, expected an array of strings");
}

TEST(Gguf, PathErrors) {
  EXPECT_EQ(
      GgufFile::Open("/nowhere/model.gguf").status(),
      absl::NotFoundError("/nowhere/model.gguf: no such file; give the path of a .gguf file"));
  const std::string folder = std::filesystem::temp_directory_path().string();
  EXPECT_EQ(
      GgufFile::Open(folder).status(),
      absl::InvalidArgumentError(folder + ": is a directory; give the path of a .gguf file in it"));
  EXPECT_EQ(GgufFile::Open("/dev/null").status(),
            absl::InvalidArgumentError("/dev/null: is not a regular file"));
  EXPECT_EQ(ErrorOf(""), "the file is empty");
}

TEST(Gguf, TypesThatCannotBeComputedWithAreMetadata) {
  GgufWriter writer = SmallFile();
  writer.tensors.push_back({"k", kGgmlQ4_K, {256}, std::string(144, '\0'), {}});
  const TemporaryFile file(writer.Bytes());
  const auto opened = GgufFile::Open(file.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_FALSE((*opened)->FindTensor("k")->supported);
  EXPECT_EQ((*opened)->FindTensor("k")->type_name, "Q4_K");
}

struct Spoiled {
  const char* name;
  std::function<void(GgufWriter&)> spoil;
  std::string message;
};

void PrintTo(const Spoiled& spoiled, std::ostream* out) { *out << spoiled.name; }

constexpr uint64_t kHuge = 0xFFFFFFFFFFFFFFF0u;

class HostileGguf : public testing::TestWithParam<Spoiled> {};

TEST_P(HostileGguf, GivesOneSentence) {
  GgufWriter writer = SmallFile();
  GetParam().spoil(writer);
  EXPECT_EQ(ErrorOf(writer.Bytes()), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Header, HostileGguf,
    testing::Values(
        Spoiled{"Magic", [](GgufWriter& f) { f.magic = "GGML"; },
                "header: not a GGUF file: its first four bytes are not \"GGUF\""},
        Spoiled{"Version", [](GgufWriter& f) { f.version = 1; },
                "header: GGUF version 1, expected 2 or 3"},
        Spoiled{"BigEndian", [](GgufWriter& f) { f.version = 0x03000000; },
                "header: a big-endian GGUF file; convert it to little-endian"},
        Spoiled{"TensorCount", [](GgufWriter& f) { f.tensor_count = kHuge; },
                "header: 18446744073709551600 tensors announced at byte 8, but only 400 bytes "
                "follow"},
        Spoiled{"ValueCount", [](GgufWriter& f) { f.value_count = 1000; },
                "header: 1000 metadata entries announced at byte 16, but only 392 bytes follow"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Values, HostileGguf,
    testing::Values(
        Spoiled{"KeyTwice", [](GgufWriter& f) { f.U32("answer", 43); },
                "key \"answer\": occurs twice"},
        Spoiled{"EmptyKey", [](GgufWriter& f) { f.U32("", 1); },
                "metadata entry 4 of 4: its key has 0 bytes, expected 1 to 65535"},
        Spoiled{"UnprintableKey",
                [](GgufWriter& f) {
                  f.values.push_back({"k\n\xff", 99, ""});
                },
                "key \"k\\x0a\\xff\": value type 99 is unknown, expected 0 to 12"},
        Spoiled{"BoolOfTwo",
                [](GgufWriter& f) {
                  f.values.push_back({"flag", kGgufBool, "\2"});
                },
                "key \"flag\": a bool must be 0 or 1, found 2"},
        Spoiled{"StringLength",
                [](GgufWriter& f) { f.value("general.architecture").raw = RawNumber(kHuge); },
                "key \"general.architecture\": 18446744073709551600 bytes of text announced at "
                "byte 56, but only 352 bytes follow"},
        Spoiled{"ArrayLength",
                [](GgufWriter& f) {
                  f.value("words").raw = RawNumber(uint32_t{kGgufU64}) + RawNumber(kHuge / 8);
                },
                "key \"words\": 2305843009213693950 array elements announced at byte 112, but "
                "only 264 bytes follow"},
        Spoiled{"ArrayOfArrays",
                [](GgufWriter& f) {
                  f.value("words").raw = RawNumber(uint32_t{kGgufArray}) + RawNumber(uint64_t{1});
                },
                "key \"words\": an array of arrays, which no known key needs"},
        Spoiled{"ArrayType",
                [](GgufWriter& f) {
                  f.value("words").raw = RawNumber(uint32_t{13}) + RawNumber(uint64_t{0});
                },
                "key \"words\": element type 13 is unknown, expected 0 to 12"},
        Spoiled{"ArrayElementTooLarge",
                [](GgufWriter& f) {
                  f.value("words").raw =
                      RawNumber(uint32_t{kGgufU64}) + RawNumber(uint64_t{1}) + RawNumber(kHuge);
                },
                "key \"words\": element 0 is too large: 18446744073709551600"},
        Spoiled{"AlignmentNotAPower", [](GgufWriter& f) { f.U32("general.alignment", 24); },
                "key \"general.alignment\": must be a power of two from 8 to 65536, found 24"},
        Spoiled{"AlignmentZero", [](GgufWriter& f) { f.U32("general.alignment", 0); },
                "key \"general.alignment\": must be a power of two from 8 to 65536, found 0"},
        Spoiled{"AlignmentText", [](GgufWriter& f) { f.Text("general.alignment", "32"); },
                "key \"general.alignment\": must be a power of two from 8 to 65536, found another "
                "type"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Tensors, HostileGguf,
    testing::Values(
        Spoiled{"NameTwice", [](GgufWriter& f) { f.tensor("b").name = "a"; },
                "tensor \"a\": occurs twice"},
        Spoiled{"EmptyName", [](GgufWriter& f) { f.tensor("b").name = ""; },
                "tensor 2 of 2: its name has 0 bytes, expected 1 to 65535"},
        Spoiled{"NoDimensions", [](GgufWriter& f) { f.tensor("a").shape = {}; },
                "tensor \"a\": has 0 dimensions, expected 1 to 4"},
        Spoiled{"FiveDimensions",
                [](GgufWriter& f) {
                  f.tensor("a").shape = {4, 2, 1, 1, 1};
                },
                "tensor \"a\": has 5 dimensions, expected 1 to 4"},
        Spoiled{"ZeroDimension",
                [](GgufWriter& f) {
                  f.tensor("a").shape = {4, 0};
                },
                "tensor \"a\": dimension 1 is 0, expected 1 or more"},
        Spoiled{"NegativeDimension",
                [](GgufWriter& f) {
                  f.tensor("a").shape = {4, kHuge};
                },
                "tensor \"a\": dimension 1 is 18446744073709551600, expected 1 or more"},
        Spoiled{"ProductOverflows",
                [](GgufWriter& f) {
                  f.tensor("a").shape = {uint64_t{1} << 31, uint64_t{1} << 31, 4};
                },
                "tensor \"a\": its shape [2147483648, 2147483648, 4] of F32 needs more bytes than "
                "the file's 416"},
        Spoiled{"RowNotOfBlocks",
                [](GgufWriter& f) {
                  f.tensor("b").shape = {33, 3};
                },
                "tensor \"b\": its rows have 33 elements, expected a multiple of 32 for Q8_0"},
        Spoiled{"UnknownType", [](GgufWriter& f) { f.tensor("b").type = 99; },
                "tensor \"b\": element type 99 is unknown; Serval reads F32, F16, BF16, Q4_0, "
                "Q4_1, Q8_0"},
        Spoiled{"MisalignedOffset", [](GgufWriter& f) { f.tensor("b").offset = 40; },
                "tensor \"b\": its offset 40 is not a multiple of the alignment 32"},
        Spoiled{"OffsetBeyond", [](GgufWriter& f) { f.tensor("b").offset = kHuge & ~uint64_t{31}; },
                "tensor \"b\": its offset 18446744073709551584 is beyond the file's 416 bytes"},
        Spoiled{"Overlap", [](GgufWriter& f) { f.tensor("b").offset = 0; },
                "tensor \"b\": begins at offset 0, inside tensor \"a\", which ends at 32"},
        Spoiled{"Truncated", [](GgufWriter& f) { f.tensor("b").offset = 64; },
                "tensor \"b\": expected 102 bytes at byte 320, but the file ends at byte 416; it "
                "is truncated"}),
    [](const auto& info) { return info.param.name; });

TEST(Gguf, EveryTruncationIsAnError) {
  const std::string whole = SmallFile().Bytes();
  const size_t last = whole.size() - 26;  // the padding after the last tensor may be missing
  for (size_t size = 1; size < last; ++size) {
    EXPECT_NE(ErrorOf(whole.substr(0, size)), "opened") << size;
  }
  EXPECT_EQ(ErrorOf(whole.substr(0, last)), "opened");
  EXPECT_EQ(ErrorOf(whole.substr(0, 3)),
            "header: the file ends at byte 3, expected 4 more bytes at byte 0");
}

}  // namespace
}  // namespace serval
