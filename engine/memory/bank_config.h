// What any bank is made from. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/model.h"
#include "engine/step.h"
#include "kernels/core.h"

namespace serval {

// key=value pairs of a memory plan, by key.
using KindOptions = std::map<std::string, std::string, std::less<>>;

struct BankConfig {
  std::vector<AttentionShape> layers;  // those of the model's that this bank serves, in order
  DType kv_dtype = DType::kBF16;       // f32, f16 or bf16
  StepLimits limits;
  KindOptions options;
  int index = 0;      // the bank's place in every StepSequence::holdings
  int64_t bytes = 0;  // at most; the bank takes what whole pages or slots fit
};

}  // namespace serval
