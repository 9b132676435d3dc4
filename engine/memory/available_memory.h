// How much memory there is to plan with. Thread rule: any thread.
#pragma once

#include <cstdint>

namespace serval {

// Bytes the process may still take: the machine's available memory, or what the control group
// leaves, whichever is less.
int64_t AvailableMemory();

}  // namespace serval
