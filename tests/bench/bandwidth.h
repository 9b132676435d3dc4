// The ceiling of everything that streams weights: how fast this machine reads memory.
#pragma once

namespace serval::bench {

// Bytes per second, best of a few passes, of `threads` threads that each sum their own part of a
// buffer far larger than any cache.
double MeasureReadBandwidth(int threads);

}  // namespace serval::bench
