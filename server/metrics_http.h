// A small HTTP/1.1 server for machines that watch: GET or HEAD /metrics, /health, /version. One
// thread of its own, asynchronous, and never in the engine's way. Thread rule: Start and the
// destructor from one thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/server_state.h"

namespace serval {

class MetricsHttp {
 public:
  // Port 0 = any free one. Errors: INVALID_ARGUMENT (host), UNAVAILABLE (port taken; names it).
  static absl::StatusOr<std::unique_ptr<MetricsHttp>> Start(const std::string& host, int port,
                                                            ServerState* state);
  virtual ~MetricsHttp() = default;  // closes every connection
  virtual int port() const = 0;
};

}  // namespace serval
