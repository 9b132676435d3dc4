#include "engine/sequence.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/memory/block_keys.h"

namespace serval {

int64_t Sequence::prompt_size() const {
  return static_cast<int64_t>(request->request.prompt.size());
}

std::span<const int32_t> Sequence::output() const {
  return std::span(tokens).subspan(request->request.prompt.size());
}

void Sequence::ReserveTokens() {
  const int64_t most = prompt_size() + request->request.sampling.max_tokens;
  tokens.reserve(most);
  keys.reserve(most / kBlockTokens);
}

RequestState::RequestState(RequestHandle handle, Request from, TimePoint arrival, size_t banks)
    : handle(handle),
      request(std::move(from)),
      arrival(arrival),
      choices(request.sampling.n),
      forked(request.sampling.n == 1),
      live(request.sampling.n) {
  for (int c = 0; c < request.sampling.n; ++c) {
    choices[c].request = this;
    choices[c].choice = c;
    choices[c].seed = ChoiceSeed(request.sampling.seed, c);
    choices[c].holdings.resize(banks);
  }
  choices[0].tokens = request.prompt;
  usage.prompt_tokens = static_cast<int64_t>(request.prompt.size());
}

bool RunsBefore(const Sequence& a, const Sequence& b) {
  return std::tuple(a.request->request.priority, a.request->handle, a.choice) <
         std::tuple(b.request->request.priority, b.request->handle, b.choice);
}

uint64_t ChoiceSeed(uint64_t seed, int choice) {
  if (choice == 0) return seed;
  // splitmix64: neighbouring choices get unrelated seeds.
  uint64_t z = seed + static_cast<uint64_t>(choice) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void UpdateBanned(Sequence& sequence, std::span<const int32_t> eos) {
  const SamplingParams& sampling = sequence.request->request.sampling;
  const std::span<const int32_t> output = sequence.output();
  auto& banned = sequence.banned;
  banned.clear();
  banned.reserve(eos.size() + sampling.stop_token_ids.size() + sampling.bad_words.size());
  if (static_cast<int64_t>(output.size()) < sampling.min_tokens) {
    if (!sampling.ignore_eos) banned.assign(eos.begin(), eos.end());
    banned.insert(banned.end(), sampling.stop_token_ids.begin(), sampling.stop_token_ids.end());
  }
  for (const std::vector<int32_t>& word : sampling.bad_words) {
    const size_t before = word.size() - 1;
    if (output.size() < before) continue;
    if (std::equal(word.begin(), word.end() - 1, output.end() - static_cast<ptrdiff_t>(before))) {
      banned.push_back(word.back());
    }
  }
}

bool EndsWithLastToken(const Sequence& sequence, std::span<const int32_t> eos,
                       FinishReason& reason) {
  const SamplingParams& sampling = sequence.request->request.sampling;
  const auto is_last = [&](int32_t id) { return id == sequence.tokens.back(); };
  if (std::ranges::any_of(sampling.stop_token_ids, is_last) ||
      (!sampling.ignore_eos && std::ranges::any_of(eos, is_last))) {
    reason = FinishReason::kStop;
    return true;
  }
  reason = FinishReason::kLength;
  return static_cast<int64_t>(sequence.output().size()) >= sampling.max_tokens;
}

SampleRow DrawRow(const Sequence& sequence) {
  const SamplingParams& sampling = sequence.request->request.sampling;
  return {.temperature = sampling.temperature,
          .top_k = sampling.top_k,
          .top_p = sampling.top_p,
          .min_p = sampling.min_p,
          .repetition_penalty = sampling.repetition_penalty,
          .presence_penalty = sampling.presence_penalty,
          .frequency_penalty = sampling.frequency_penalty,
          .prompt = sequence.request->request.prompt,
          .output = sequence.output(),
          .logit_bias = sampling.logit_bias,
          .banned = sequence.banned,
          .seed = sequence.seed,
          .position = sequence.size(),
          .top_logprobs = sampling.logprobs};
}

SampleRow PromptLogprobRow(const Sequence& sequence, int64_t position) {
  SampleRow row;
  row.position = position;
  row.top_logprobs = sequence.request->request.sampling.prompt_logprobs;
  row.given = sequence.tokens[position];
  return row;
}

}  // namespace serval
