// The sampling half of a request. Errors: INVALID_ARGUMENT naming the field, the value and the
// allowed range. Thread rule: pure.
#pragma once

#include "absl/status/statusor.h"
#include "engine/request.h"
#include "serval/v1/generation.pb.h"
#include "server/served_model.h"

namespace serval {

// Everything but the seed of a request that gives none, which stays 0.
absl::StatusOr<SamplingParams> ParseSampling(const v1::SamplingParams& message,
                                             const ServedModel& model);
// Stop strings, or the error.
absl::StatusOr<std::vector<std::string>> ParseStop(const v1::SamplingParams& message);

}  // namespace serval
