// The engine's counts as Prometheus metrics. Names follow vLLM's, with the prefix "serval:". Thread
// rule: pure, any thread.
#pragma once

#include <string>

#include "server/server_state.h"

namespace serval {

// The text exposition format, version 0.0.4. While loading: only what the process itself knows.
std::string MetricsText(ServerState& state);

}  // namespace serval
