#include "engine/memory/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace serval {
namespace {

using testing::HasSubstr;

std::string Error(std::string_view text) {
  const auto plan = ParseMemoryPlan(text, 8);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(plan.status().message());
}

TEST(MemoryPlan, Parses) {
  for (const char* text : {"default=paged", " default = paged ; layers[0,1] = paged",
                           "layers[0-3,7]=paged", "layers[ 0 - 3 , 7 ]=paged;default=paged"}) {
    const auto plan = ParseMemoryPlan(text, 8);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(*plan, std::vector<LayerPlan>(8));
  }
}

TEST(MemoryPlan, OptionsBelongToTheirLayersAndLaterClausesWin) {
  const auto plan =
      ParseMemoryPlan("default=paged:a=1,b=0.5;layers[1-2]=paged:c=x;layers[2]=paged", 4);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const LayerPlan fallback{"paged", {{"a", "1"}, {"b", "0.5"}}};
  EXPECT_EQ((*plan)[0], fallback);
  EXPECT_EQ((*plan)[1], (LayerPlan{"paged", {{"c", "x"}}}));
  EXPECT_EQ((*plan)[2], LayerPlan{});
  EXPECT_EQ((*plan)[3], fallback);
}

TEST(MemoryPlan, ErrorsNameThePositionAndWhatWasExpected) {
  const std::string at = "--memory-plan, position ";
  EXPECT_EQ(Error(""), at + "1: expected \"default\" or \"layers[…]\", found the end");
  EXPECT_EQ(Error("defualt=paged"),
            at + "1: expected \"default\" or \"layers[…]\", found \"defualt=paged\"");
  EXPECT_EQ(Error("default:paged"), at + "8: expected '=', found \":paged\"");
  EXPECT_EQ(Error("default=wildcat"),
            at + "9: expected a kind of memory (paged), found \"wildcat\"");
  EXPECT_EQ(Error("default=paged;"),
            at + "15: expected \"default\" or \"layers[…]\", found the end");
  EXPECT_EQ(Error("default=paged layers[1]=paged"),
            at + "15: expected ';' or the end, found \"layers[1]=paged\"");
  EXPECT_EQ(Error("layers[8]=paged"), at + "8: expected a layer 0 … 7, found \"8]=paged\"");
  EXPECT_EQ(Error("layers[99999999999]=paged"),
            at + "8: expected a layer 0 … 7, found \"99999999999]=pag\"");
  EXPECT_EQ(Error("layers[]=paged"), at + "8: expected a layer 0 … 7, found \"]=paged\"");
  EXPECT_EQ(Error("layers[3-1]=paged"),
            at + "10: expected a layer not before 3, found \"1]=paged\"");
  EXPECT_EQ(Error("layers[1=paged"), at + "9: expected ']', found \"=paged\"");
  EXPECT_EQ(Error("default=paged:=1"), at + "15: expected an option's name, found \"=1\"");
  EXPECT_EQ(Error("default=paged:a"), at + "16: expected '=', found the end");
  EXPECT_EQ(Error("default=paged:a="), at + "17: expected a value for \"a\", found the end");
  EXPECT_EQ(Error("default=paged:a=1,a=2"),
            at + "19: expected option \"a\" only once, found \"a=2\"");
}

class MemoryPlanBanks : public testing::Test {
 protected:
  MemoryPlanBanks() {
    model_.layers.assign(3, {6, 2, 8, 0});
    limits_.max_context = 32768;
  }
  std::vector<BankPlan> Group(const char* text) {
    return GroupLayers(*ParseMemoryPlan(text, 3), model_, limits_, DType::kBF16);
  }
  ModelInfo model_;
  StepLimits limits_;
};

TEST_F(MemoryPlanBanks, LayersOfOneKindAndOptionsShareABank) {
  EXPECT_EQ(Group("layers[1]=paged").size(), 1u);
  const auto banks = Group("default=paged:a=1;layers[1]=paged");
  ASSERT_EQ(banks.size(), 2u);
  EXPECT_EQ(banks[0].layers, (std::vector<int>{0, 2}));
  EXPECT_EQ(banks[1].layers, (std::vector<int>{1}));
  EXPECT_EQ(banks[1].config.index, 1);
}

TEST_F(MemoryPlanBanks, TableOfBytes) {
  // 3 layers x 2 heads x 8 x (K and V) x 2 bytes = 192 bytes a token.
  EXPECT_EQ(PlanTable(Group("default=paged"), 32768, 16 << 20),
            "memory      layers  bytes/token      4K tokens     32K tokens\n"
            "paged            3          192      768.0 KiB        6.0 MiB\n"
            "sequences in 16.0 MiB                       21              2\n");
}

TEST_F(MemoryPlanBanks, UnknownOptionsAreRefusedByTheKind) {
  const auto banks = MakeBanks(Group("default=paged:ratio=2"), 1 << 30);
  EXPECT_EQ(banks.status(), absl::InvalidArgumentError(
                                "memory kind \"paged\" takes no options, but got \"ratio\""));
}

TEST_F(MemoryPlanBanks, TooFewBytesSaysWhatWouldFit) {
  EXPECT_EQ(MakeBanks(Group("default=paged"), 1 << 20).status(),
            absl::ResourceExhaustedError(
                "one sequence of --max-model-len 32768 tokens needs 6291456 bytes of memory, but "
                "--kv-cache-bytes is 1048576: raise it to at least 6291456, or lower "
                "--max-model-len to 5440"));
  EXPECT_EQ(MakeBanks(Group("default=paged"), 1).status(),
            absl::ResourceExhaustedError(
                "one sequence of --max-model-len 32768 tokens needs 6291456 bytes of memory, but "
                "--kv-cache-bytes is 1: raise it to at least 6291456"));
}

TEST_F(MemoryPlanBanks, EveryLayerFindsItsMemory) {
  const auto banks = MakeBanks(Group("default=paged"), 8 << 20);
  ASSERT_TRUE(banks.ok()) << banks.status();
  ASSERT_EQ(banks->layers.size(), 3u);
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(banks->layers[layer].bank, banks->banks[0].get());
    EXPECT_EQ(banks->layers[layer].layer, layer);
  }
  EXPECT_EQ(banks->banks[0]->Capacity().value, (8 << 20) / (64 * 192) * (64 * 192));
  EXPECT_EQ(banks->banks[0]->Need(1).value, 64 * 192);
  EXPECT_EQ(banks->banks[0]->Need(65).value, 2 * 64 * 192);
}

}  // namespace
}  // namespace serval
