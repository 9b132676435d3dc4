#include "tests/engine/harness.h"

namespace serval {

void RecordingSink::OnPromptLogprobs(int64_t first, std::span<const SampleResult> rows) {
  MutexLock lock(&mutex_);
  record_.slices.emplace_back(first, rows.size());
  for (const SampleResult& row : rows) record_.prompt.push_back(row.chosen);
}

void RecordingSink::OnToken(const TokenOutput& output) {
  MutexLock lock(&mutex_);
  EXPECT_EQ(record_.done, 0);
  record_.tokens[output.choice].push_back(output.token);
  if (output.has_logprob) record_.logprobs[output.choice].push_back(output.logprob);
  ++record_.total;
  changed_.NotifyAll();
}

void RecordingSink::OnFinish(int choice, FinishReason reason) {
  MutexLock lock(&mutex_);
  EXPECT_EQ(record_.done, 0);
  record_.finished.emplace_back(choice, reason);
}

void RecordingSink::OnDone(const absl::Status& status, const Usage& usage) {
  MutexLock lock(&mutex_);
  ++record_.done;
  record_.status = status;
  record_.usage = usage;
  changed_.NotifyAll();
}

void RecordingSink::Wait() {
  const TimePoint limit = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  MutexLock lock(&mutex_);
  while (record_.done == 0) {
    if (changed_.WaitUntil(&mutex_, limit)) continue;
    ADD_FAILURE() << "OnDone did not come";
    return;
  }
}

void RecordingSink::WaitForTokens(int64_t count) {
  MutexLock lock(&mutex_);
  while (record_.done == 0 && record_.total < count) changed_.Wait(&mutex_);
}

RecordingSink::Record RecordingSink::record() const {
  MutexLock lock(&mutex_);
  return record_;
}

SamplingParams Tokens(int64_t max_tokens) {
  SamplingParams sampling;
  sampling.max_tokens = max_tokens;
  return sampling;
}

Rig::Rig(RigOptions options) {
  ModelInfo model;
  model.layers.assign(2, {2, 1, 8, 0});
  auto plan = GroupLayers(std::vector<LayerPlan>(2), model, options.limits, DType::kF32);
  plan[0].config.bytes = options.pages * plan[0].kind->bytes_for(plan[0].config, 1);
  auto bank = plan[0].kind->make(plan[0].config);
  EXPECT_TRUE(bank.ok()) << bank.status();
  banks.banks.push_back(*std::move(bank));
  scheduler = std::make_unique<Scheduler>(
      SchedulerConfig{options.limits, options.prefix_caching, options.eos_tokens},
      std::vector<MemoryBank*>{banks.banks[0].get()});
}

std::shared_ptr<RecordingSink> Rig::Add(int64_t prompt, SamplingParams sampling, int first) {
  Request request;
  for (int64_t i = 0; i < prompt; ++i) {
    request.prompt.push_back(static_cast<int32_t>((first + i) % 97));
  }
  request.sampling = std::move(sampling);
  return Add(std::move(request));
}

std::shared_ptr<RecordingSink> Rig::Add(Request request) {
  auto sink = std::make_shared<RecordingSink>();
  request.sink = sink;
  scheduler->Add(std::make_unique<RequestState>(++last_handle, std::move(request), now(), 1));
  return sink;
}

bool Rig::StepOnce() {
  ++seconds;
  Step& step = scheduler->Plan(now());
  counts.clear();
  for (const StepSequence& sequence : step.sequences) counts.push_back(sequence.token_count);
  if (step.empty()) return false;
  for (size_t row = 0; row < step.rows.size(); ++row) {
    const SampleRow& sample = step.samples[row];
    step.results[row].finite = true;
    step.results[row].chosen.token =
        sample.given >= 0 ? sample.given : Drawn(sample.position, sample.seed);
  }
  scheduler->Commit(step, now());
  return true;
}

void Rig::RunDry() {
  for (int steps = 0; StepOnce(); ++steps) ASSERT_LT(steps, 100000);
  scheduler->CheckConservation();
}

}  // namespace serval
