#include "tests/support/bank_contract.h"

#include <algorithm>
#include <cstring>

namespace serval {
namespace {

class Buffer final : public ByteSink, public ByteSource {
 public:
  absl::Status Write(std::span<const std::byte> bytes) override {
    data.insert(data.end(), bytes.begin(), bytes.end());
    return absl::OkStatus();
  }
  absl::Status Read(std::span<std::byte> bytes) override {
    if (at + bytes.size() > data.size()) return absl::DataLossError("the snapshot ends early");
    std::copy_n(data.begin() + static_cast<ptrdiff_t>(at), bytes.size(), bytes.begin());
    at += bytes.size();
    return absl::OkStatus();
  }
  std::vector<std::byte> data;
  size_t at = 0;
};

}  // namespace

BankContract::BankContract() {
  auto plan = ParseMemoryPlan(GetParam().plan, static_cast<int>(model_.info().layers.size()));
  EXPECT_TRUE(plan.ok()) << plan.status();
  auto groups = GroupLayers(*plan, model_.info(), limits_, GetParam().kv_dtype);
  EXPECT_EQ(groups.size(), 1u);
  const int64_t one = groups[0].kind->bytes_for(groups[0].config, limits_.max_context);
  auto banks = MakeBanks(groups, 8 * one);
  EXPECT_TRUE(banks.ok()) << banks.status();
  banks_ = *std::move(banks);
  model_.Bind(banks_.layers, limits_);
  workspace_ = std::make_unique<Workspace>(bank().WorkspaceBytes(pool_.threads()));
  ctx_.pool = &pool_;
  ctx_.workspace = workspace_.get();
}

std::vector<int32_t> BankContract::Tokens(int64_t count, int seed) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>((i * i * 31 + i * 17 + seed * 41) % 97));
  }
  return tokens;
}

std::vector<BankContract::Logits> BankContract::Step(
    const std::vector<std::pair<Stream*, int64_t>>& parts) {
  serval::Step step;
  for (const auto& [stream, count] : parts) {
    EXPECT_TRUE(bank().Reserve(stream->holdings[0], count));
    step.sequences.push_back({stream->holdings, static_cast<int32_t>(step.tokens.size()),
                              static_cast<int32_t>(count), stream->stored});
    for (int64_t p = stream->stored; p < stream->stored + count; ++p) {
      step.tokens.push_back(stream->tokens[p]);
      step.positions.push_back(static_cast<int32_t>(p));
    }
    step.rows.push_back(static_cast<int32_t>(step.tokens.size()) - 1);
  }
  const auto count = static_cast<int64_t>(parts.size());
  std::vector<float> all(count * model_.info().vocab);
  bank().Begin(ctx_, step.batch());
  const TensorView hidden = model_.Forward(ctx_, step.batch());
  model_.Logits(ctx_, hidden, TensorView(step.rows.data(), DType::kI32, {count}),
                TensorView(all.data(), DType::kF32, {count, model_.info().vocab}));
  bank().End(ctx_, step.batch());
  std::vector<Logits> logits;
  for (size_t i = 0; i < parts.size(); ++i) {
    bank().Commit(parts[i].first->holdings[0], parts[i].second);
    parts[i].first->stored += parts[i].second;
    const auto row = all.begin() + static_cast<ptrdiff_t>(i) * model_.info().vocab;
    logits.emplace_back(row, row + model_.info().vocab);
  }
  return logits;
}

BankContract::Logits BankContract::Feed(Stream& stream, int64_t chunk) {
  Logits last;
  while (stream.stored < static_cast<int64_t>(stream.tokens.size())) {
    const int64_t left = static_cast<int64_t>(stream.tokens.size()) - stream.stored;
    last = Step({{&stream, std::min(chunk, left)}})[0];
  }
  return last;
}

BankContract::Logits BankContract::Alone(std::span<const int32_t> tokens) {
  Stream stream;
  stream.tokens.assign(tokens.begin(), tokens.end());
  Logits logits = Feed(stream);
  Release(stream);
  return logits;
}

void BankContract::Release(Stream& stream) {
  bank().Release(stream.holdings[0]);
  stream.stored = 0;
}

TEST_P(BankContract, PrefillThenStepIsPrefillOfOneMore) {
  for (const int64_t n : {1, 2, 63, 64, 65, 127, 128, 300}) {
    Stream stream;
    stream.tokens = Tokens(n + 1, 1);
    Step({{&stream, n}});
    EXPECT_EQ(Step({{&stream, 1}})[0], Alone(stream.tokens)) << n;
    Release(stream);
  }
}

TEST_P(BankContract, ChunkedIsWhole) {
  const std::vector<int32_t> tokens = Tokens(401, 2);
  const Logits whole = Alone(tokens);
  for (const int64_t chunk : {1, 7, 63, 64, 65, 200, 400}) {
    Stream stream;
    stream.tokens = tokens;
    EXPECT_EQ(Feed(stream, chunk), whole) << chunk;
    Release(stream);
  }
}

TEST_P(BankContract, BatchMatesDoNotMatter) {
  std::vector<Stream> streams(5);
  std::vector<std::pair<Stream*, int64_t>> parts;
  const int64_t lengths[] = {1, 64, 90, 130, 3};
  for (int i = 0; i < 5; ++i) {
    streams[i].tokens = Tokens(lengths[i] + 1, i);
    parts.emplace_back(&streams[i], lengths[i]);
  }
  Step(parts);
  for (auto& part : parts) part.second = 1;
  const std::vector<Logits> together = Step(parts);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(together[i], Alone(streams[i].tokens)) << i;
  for (Stream& stream : streams) Release(stream);
}

TEST_P(BankContract, ShareGivesTheSameNextTokenAndLeavesTheOriginalAlone) {
  for (const int64_t n : {1, 64, 65, 130}) {
    Stream first;
    first.tokens = Tokens(n, 3);
    Feed(first);
    Stream second, third;
    second.holdings[0] = bank().Share(first.holdings[0], n);
    third.holdings[0] = bank().Share(second.holdings[0], n);  // of one that is not copied yet
    first.stored = second.stored = third.stored = n;
    second.tokens = third.tokens = first.tokens;
    bank().Release(second.holdings[0]);
    second.holdings[0] = bank().Share(third.holdings[0], n);
    first.tokens.push_back(11);
    second.tokens.push_back(12);
    third.tokens.push_back(13);
    const auto logits = Step({{&first, 1}, {&second, 1}, {&third, 1}});
    EXPECT_EQ(logits[0], Alone(first.tokens)) << n;
    EXPECT_EQ(logits[1], Alone(second.tokens)) << n;
    EXPECT_EQ(logits[2], Alone(third.tokens)) << n;
    for (Stream* stream : {&first, &second, &third}) Release(*stream);
  }
  bank().CheckConservation(true);
}

TEST_P(BankContract, ShareOfFewerTokensThanStored) {
  Stream first;
  first.tokens = Tokens(200, 4);
  Feed(first);
  for (const int64_t n : {1, 64, 100, 199}) {
    Stream second;
    second.holdings[0] = bank().Share(first.holdings[0], n);
    second.stored = n;
    second.tokens.assign(first.tokens.begin(), first.tokens.begin() + n);
    second.tokens.push_back(5);
    EXPECT_EQ(Feed(second), Alone(second.tokens)) << n;
    Release(second);
  }
  first.tokens.push_back(9);
  EXPECT_EQ(Feed(first), Alone(first.tokens));
  Release(first);
}

TEST_P(BankContract, ShareOutlivesTheOriginal) {
  Stream first, second;
  first.tokens = Tokens(100, 5);
  Feed(first);
  second.holdings[0] = bank().Share(first.holdings[0], 100);
  second.tokens = first.tokens;
  second.tokens.push_back(1);
  second.stored = 100;
  Release(first);
  Stream other;  // may take what the first gave back
  other.tokens = Tokens(500, 6);
  const auto logits = Step({{&other, 400}, {&second, 1}});
  EXPECT_EQ(logits[1], Alone(second.tokens));
  Release(second);
  Release(other);
}

TEST_P(BankContract, SaveAndLoadGiveTheSameNextToken) {
  for (const int64_t n : {1, 64, 150}) {
    Stream first, second;
    first.tokens = Tokens(n, 7);
    Feed(first);
    Buffer snapshot, again;
    ASSERT_TRUE(bank().Save(first.holdings[0], snapshot).ok());
    ASSERT_TRUE(bank().Save(first.holdings[0], again).ok());
    EXPECT_EQ(snapshot.data, again.data);
    auto loaded = bank().Load(snapshot);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(snapshot.at, snapshot.data.size());
    second.holdings[0] = *loaded;
    second.stored = n;
    second.tokens = first.tokens;
    second.tokens.push_back(1);
    EXPECT_EQ(Feed(second), Alone(second.tokens)) << n;
    Release(first);
    Release(second);
  }
}

TEST_P(BankContract, LoadRefusesDamageAndLeavesNothingHeld) {
  Stream stream;
  stream.tokens = Tokens(100, 8);
  Feed(stream);
  Buffer snapshot;
  ASSERT_TRUE(bank().Save(stream.holdings[0], snapshot).ok());
  Release(stream);
  for (size_t at = 0; at < 32; ++at) {  // every byte of the header counts
    Buffer damaged;
    damaged.data = snapshot.data;
    damaged.data[at] ^= std::byte{1};
    EXPECT_EQ(bank().Load(damaged).status().code(), absl::StatusCode::kInvalidArgument) << at;
  }
  for (const size_t size : {size_t{0}, size_t{20}, snapshot.data.size() - 1}) {
    Buffer cut;
    cut.data.assign(snapshot.data.begin(), snapshot.data.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_EQ(bank().Load(cut).status().code(), absl::StatusCode::kDataLoss) << size;
  }
  bank().CheckConservation(true);
}

TEST_P(BankContract, ReleaseReturnsEveryByte) {
  const Bytes before = bank().Free();
  EXPECT_EQ(before, bank().Capacity());
  std::vector<Stream> streams(4);
  for (int i = 0; i < 4; ++i) {
    streams[i].tokens = Tokens(40 + 50 * i, i);
    Feed(streams[i], 33);
    EXPECT_LE(bank().Used(), bank().Capacity());
    EXPECT_EQ(bank().Used().value + bank().Free().value, bank().Capacity().value);
  }
  EXPECT_GT(bank().Used().value, 0);
  bank().CheckConservation(false);
  for (Stream& stream : streams) Release(stream);
  EXPECT_EQ(bank().Free(), before);
  EXPECT_EQ(bank().Used().value, 0);
  bank().CheckConservation(true);
}

TEST_P(BankContract, PreemptAndResumeGivesTheSameTokens) {
  Stream stream;
  stream.tokens = Tokens(170, 9);
  const Logits expected = Feed(stream);
  Release(stream);
  Stream other;
  other.tokens = Tokens(300, 10);
  Feed(other);
  EXPECT_EQ(Feed(stream, 50), expected);
  Release(stream);
  Release(other);
}

TEST_P(BankContract, ReserveIsAllOrNothing) {
  std::vector<Stream> streams(32);
  size_t full = 0;
  while (full < streams.size() && bank().Reserve(streams[full].holdings[0], 500)) ++full;
  ASSERT_LT(full, streams.size());
  const Bytes free = bank().Free();
  EXPECT_FALSE(bank().Reserve(streams[full].holdings[0], 500));
  EXPECT_EQ(bank().Free(), free);
  EXPECT_EQ(streams[full].holdings[0].reserved, 0);
  for (Stream& stream : streams) Release(stream);
  bank().CheckConservation(true);
}

TEST_P(BankContract, NeedIsWhatASequenceHolds) {
  for (const int64_t n : {1, 64, 65, 512}) {
    Stream stream;
    stream.tokens = Tokens(n, 1);
    ASSERT_TRUE(bank().Reserve(stream.holdings[0], n));
    EXPECT_LE(bank().Used(), bank().Need(n)) << n;
    Release(stream);
  }
}

TEST_P(BankContract, AFoundPrefixGivesTheSameNextToken) {
  Stream first, second;
  first.tokens = Tokens(200, 12);
  Feed(first);
  std::vector<BlockKey> keys;
  for (uint64_t i = 0; i < 3; ++i) keys.push_back({i + 100, 5});
  bank().Publish(first.holdings[0], keys);
  Release(first);
  const int64_t found = bank().Match(keys);
  bank().Adopt(second.holdings[0], std::span<const BlockKey>(keys).first(found / 64), found);
  second.stored = found;
  second.tokens = Tokens(200, 12);
  EXPECT_EQ(Feed(second), Alone(second.tokens));
  Release(second);
  bank().CheckConservation(true);
}

}  // namespace serval
