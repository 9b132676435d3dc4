// A paged cache for tests: random keys and values of several sequences, pages dealt in any order.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/paged/paged.h"
#include "tests/kernels/support.h"

namespace serval::testing {

struct Heads {
  int q = 1, kv = 1, dim = 64;
};

inline float Load(const std::vector<std::byte>& bytes, DType dtype, int64_t i) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(bytes.data())[i];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(bytes.data())[i];
  return dtype == DType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
}

// Sequences of the given lengths. Every element of a slot that no token has reached is NaN.
class PagedCache {
 public:
  PagedCache(Heads heads, std::vector<int> lengths, DType dtype = DType::kF32, uint32_t seed = 1)
      : heads_(heads), lengths_(std::move(lengths)), dtype_(dtype) {
    int total = 0;
    for (int length : lengths_) {
      const int pages = (length + kPageTokens - 1) / kPageTokens;
      max_pages_ = std::max(max_pages_, pages);
      total += pages;
    }
    std::vector<int32_t> order(total);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    pages_.assign(std::max<size_t>(1, lengths_.size() * max_pages_), -1);
    int next = 0;
    for (size_t s = 0; s < lengths_.size(); ++s) {
      int32_t* row = &pages_[s * max_pages_];
      for (int p = 0; p * kPageTokens < lengths_[s]; ++p) row[p] = order[next++];
      const int64_t kv = int64_t{lengths_[s]} * heads.kv * heads.dim;
      q_.push_back(Normals(int64_t{lengths_[s]} * heads.q * heads.dim, seed * 100 + s * 3));
      k_.push_back(Normals(kv, seed * 100 + s * 3 + 1));
      v_.push_back(Normals(kv, seed * 100 + s * 3 + 2));
    }
    slots_ = std::max(1, total) * heads.kv;
    const int64_t elements = int64_t{slots_} * 2 * kPageTokens * heads.dim;
    pool_.assign(RowBytes(dtype, elements), std::byte{0xFF});  // NaN in every type
  }

  // One step: queries [past, past + count) of the sequences in `seqs`. Appends them, attends;
  // returns out rows in step order.
  struct Part {
    int seq, past, count;
  };
  std::vector<float> Step(const Ctx& ctx, const std::vector<Part>& parts, int window = 0) {
    std::vector<int32_t> begin = {0}, past, pages;
    std::vector<float> q, k, v;
    for (const Part& part : parts) {
      begin.push_back(begin.back() + part.count);
      past.push_back(part.past);
      pages.insert(pages.end(), pages_.begin() + part.seq * max_pages_,
                   pages_.begin() + (part.seq + 1) * max_pages_);
      Slice(q_[part.seq], part, heads_.q, &q);
      Slice(k_[part.seq], part, heads_.kv, &k);
      Slice(v_[part.seq], part, heads_.kv, &v);
    }
    const int64_t tokens = begin.back(), seqs = static_cast<int64_t>(parts.size());
    const PageTable table{.pages = {pages.data(), DType::kI32, {seqs, max_pages_}},
                          .query_begin = {begin.data(), DType::kI32, {seqs + 1}},
                          .past = {past.data(), DType::kI32, {seqs}}};
    const TensorView pool(pool_.data(), dtype_, {slots_, 2, kPageTokens, heads_.dim});
    Run(ctx, PagedAppend{.k = {k.data(), DType::kF32, {tokens, heads_.kv, heads_.dim}},
                         .v = {v.data(), DType::kF32, {tokens, heads_.kv, heads_.dim}},
                         .pool = pool,
                         .table = table});
    std::vector<float> out(q.size(), -7.0f);
    Run(ctx, PagedAttention{.q = {q.data(), DType::kF32, {tokens, heads_.q, heads_.dim}},
                            .pool = pool,
                            .table = table,
                            .out = {out.data(), DType::kF32, {tokens, heads_.q, heads_.dim}},
                            .kv_heads = heads_.kv,
                            .scale = scale(),
                            .window = window});
    return out;
  }

  // The whole of sequence `seq` in float64, from the elements as the pool's type holds them.
  std::vector<double> Reference(int seq, int window = 0) const {
    const int dim = heads_.dim, group = heads_.q / heads_.kv;
    std::vector<double> out(q_[seq].size());
    for (int p = 0; p < lengths_[seq]; ++p) {
      for (int h = 0; h < heads_.q; ++h) {
        const float* q = &q_[seq][(int64_t{p} * heads_.q + h) * dim];
        Attend(seq, h / group, q, window > 0 ? std::max(0, p - window + 1) : 0, p,
               &out[(int64_t{p} * heads_.q + h) * dim]);
      }
    }
    return out;
  }

  // Element i of token `position`'s key (which = 0) or value (1).
  float Stored(int seq, int position, int head, int which, int i) const {
    const int64_t page = pages_[seq * max_pages_ + position / kPageTokens];
    const int64_t row = ((page * heads_.kv + head) * 2 + which) * kPageTokens;
    return Load(pool_, dtype_, (row + position % kPageTokens) * heads_.dim + i);
  }
  const std::vector<float>& keys(int seq) const { return k_[seq]; }
  const std::vector<float>& values(int seq) const { return v_[seq]; }
  std::vector<float>* queries(int seq) { return &q_[seq]; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(heads_.dim)); }
  int length(int seq) const { return lengths_[seq]; }

 private:
  void Slice(const std::vector<float>& all, const Part& part, int heads,
             std::vector<float>* out) const {
    const auto begin = all.begin() + int64_t{part.past} * heads * heads_.dim;
    out->insert(out->end(), begin, begin + int64_t{part.count} * heads * heads_.dim);
  }

  void Attend(int seq, int kv_head, const float* q, int first, int last, double* out) const {
    std::vector<double> score(last - first + 1);
    double max = -1e300, sum = 0;
    for (int j = first; j <= last; ++j) {
      double s = 0;
      for (int i = 0; i < heads_.dim; ++i) s += double{q[i]} * Stored(seq, j, kv_head, 0, i);
      score[j - first] = s * scale();
      max = std::max(max, score[j - first]);
    }
    for (double& s : score) sum += s = std::exp(s - max);
    for (int j = first; j <= last; ++j) {
      for (int i = 0; i < heads_.dim; ++i) {
        out[i] += score[j - first] / sum * Stored(seq, j, kv_head, 1, i);
      }
    }
  }

  Heads heads_;
  std::vector<int> lengths_;
  DType dtype_;
  int max_pages_ = 0, slots_ = 0;
  std::vector<int32_t> pages_;
  std::vector<std::byte> pool_;
  std::vector<std::vector<float>> q_, k_, v_;
};

}  // namespace serval::testing
