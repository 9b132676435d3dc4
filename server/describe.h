// The model and the engine's counts as messages of the service. Thread rule: pure functions, any
// thread.
#pragma once

#include "serval/v1/admin.pb.h"
#include "serval/v1/models.pb.h"
#include "server/server_state.h"

namespace serval {

void DescribeModel(const ServedModel& model, v1::Model& out);
void DescribeStats(const ServerState& state, const std::map<std::string, uint64_t>& refused,
                   v1::StatsResponse& out);

// The value below which the share `quantile` (0 … 1) of the observations lies, by linear
// interpolation within a bucket as Prometheus' histogram_quantile does; 0 without observations.
double Quantile(const Histogram& histogram, double quantile);

// Resident memory of this process, bytes; 0 where the system does not tell.
int64_t ResidentBytes();

}  // namespace serval
