// What may be asked for. Messages name the field, the value and the allowed range.
// Thread rule: pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/memory/bank.h"
#include "engine/model.h"
#include "engine/request.h"
#include "engine/step.h"

namespace serval {

// Errors: INVALID_ARGUMENT (a value, a token id, an empty prompt), OUT_OF_RANGE (prompt +
// max_tokens over the context).
absl::Status ValidateRequest(const Request& request, const ModelInfo& model,
                             const StepLimits& limits);
// Errors: OUT_OF_RANGE when the banks could not hold one choice of the request even if it were
// alone.
absl::Status ValidateFits(const Request& request, std::span<MemoryBank* const> banks);

}  // namespace serval
