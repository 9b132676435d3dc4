// From the messages of the service to the engine's request, with every check the server can make,
// and statuses back. Errors are INVALID_ARGUMENT and name the field, the value and what is allowed;
// OUT_OF_RANGE for a prompt that cannot fit. Thread rule: pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/request.h"
#include "grpcpp/support/status.h"
#include "serval/v1/generation.pb.h"
#include "server/choice_stream.h"
#include "server/served_model.h"

namespace serval {

inline constexpr size_t kMaxPromptBytes = 4 << 20;

struct ParsedRequest {
  Request request;  // without deadline and sink
  OutputFormat format;
};

// `random_seed` is used when the request gives none.
absl::StatusOr<ParsedRequest> ParseGenerate(const v1::GenerateRequest& message,
                                            const ServedModel& model, uint64_t random_seed);

// Whether a request may be called so: 1 to 128 printable ASCII characters without spaces.
bool IsRequestId(std::string_view id);

// Names `field` and the byte offset where `text` stops being UTF-8, or the limit on its size.
absl::Status CheckText(const std::string& field, std::string_view text);
// Names `field`, the id and its index when one is not a token of the model.
absl::Status CheckTokenIds(const std::string& field, std::span<const int32_t> ids, int64_t vocab);

grpc::Status ToGrpc(const absl::Status& status);

}  // namespace serval
