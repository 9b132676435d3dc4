// `serval stats`: how a running server is doing.
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "clients/cli/command.h"
#include "clients/cli/table.h"
#include "clients/common/rpc.h"
#include "serval/v1/admin.grpc.pb.h"

namespace serval {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kName[] = "stats";

Json ToJson(const v1::LatencyStats& latency) {
  return {{"count", latency.count()},
          {"mean_seconds", latency.mean_seconds()},
          {"p50_seconds", latency.p50_seconds()},
          {"p99_seconds", latency.p99_seconds()}};
}

// Sorted: protobuf's maps have no order.
template <class Map>
std::map<std::string, uint64_t> Sorted(const Map& map) {
  return {map.begin(), map.end()};
}

Json ToJson(const v1::StatsResponse& stats) {
  Json banks = Json::array();
  for (const v1::BankStats& bank : stats.banks()) {
    banks.push_back({{"kind", bank.kind()},
                     {"used_bytes", bank.used_bytes()},
                     {"free_bytes", bank.free_bytes()},
                     {"capacity_bytes", bank.capacity_bytes()}});
  }
  return {{"version", stats.version()},
          {"uptime_seconds", stats.uptime_seconds()},
          {"draining", stats.draining()},
          {"num_requests_running", stats.num_requests_running()},
          {"num_requests_waiting", stats.num_requests_waiting()},
          {"kv_cache_usage_perc", stats.kv_cache_usage_perc()},
          {"banks", banks},
          {"prefix_cache_queries", stats.prefix_cache_queries()},
          {"prefix_cache_hits", stats.prefix_cache_hits()},
          {"num_preemptions", stats.num_preemptions()},
          {"prompt_tokens", stats.prompt_tokens()},
          {"generation_tokens", stats.generation_tokens()},
          {"finished", Sorted(stats.finished())},
          {"rejected", Sorted(stats.rejected())},
          {"time_to_first_token", ToJson(stats.time_to_first_token())},
          {"inter_token_latency", ToJson(stats.inter_token_latency())},
          {"e2e_request_latency", ToJson(stats.e2e_request_latency())},
          {"resident_bytes", stats.resident_bytes()},
          {"steps", stats.steps()}};
}

std::string ShowCounts(const std::map<std::string, uint64_t>& counts) {
  std::string out;
  for (const auto& [reason, count] : counts) {
    out += (out.empty() ? "" : ", ") + reason + " " + std::to_string(count);
  }
  return out.empty() ? "none" : out;
}

std::string Overview(const v1::StatsResponse& stats) {
  const double queries = static_cast<double>(stats.prefix_cache_queries());
  const double hits = static_cast<double>(stats.prefix_cache_hits());
  Table table({"SERVER", stats.version() + (stats.draining() ? ", draining" : "")});
  table.Row({"up for", ShowDuration(stats.uptime_seconds())});
  table.Row({"resident memory", ShowBytes(stats.resident_bytes())});
  table.Row({"requests running", std::to_string(stats.num_requests_running())});
  table.Row({"requests waiting", std::to_string(stats.num_requests_waiting())});
  table.Row({"finished", ShowCounts(Sorted(stats.finished()))});
  table.Row({"rejected", ShowCounts(Sorted(stats.rejected()))});
  table.Row({"pre-empted", std::to_string(stats.num_preemptions())});
  table.Row({"prompt tokens", std::to_string(stats.prompt_tokens())});
  table.Row({"generated tokens", std::to_string(stats.generation_tokens())});
  table.Row({"prefix cache hits", queries > 0 ? ShowPercent(hits / queries) : "no queries"});
  table.Row({"memory in use", ShowPercent(stats.kv_cache_usage_perc())});
  table.Row({"engine steps", std::to_string(stats.steps())});
  return table.Text();
}

std::string Memory(const v1::StatsResponse& stats) {
  Table table({"MEMORY", ">USED", ">FREE", ">CAPACITY"});
  for (const v1::BankStats& bank : stats.banks()) {
    table.Row({bank.kind(), ShowBytes(bank.used_bytes()), ShowBytes(bank.free_bytes()),
               ShowBytes(bank.capacity_bytes())});
  }
  return table.Text();
}

std::string Latencies(const v1::StatsResponse& stats) {
  Table table({"LATENCY", ">COUNT", ">MEAN", ">P50", ">P99"});
  auto row = [&table](const char* name, const v1::LatencyStats& latency) {
    table.Row({name, std::to_string(latency.count()), ShowDuration(latency.mean_seconds()),
               ShowDuration(latency.p50_seconds()), ShowDuration(latency.p99_seconds())});
  };
  row("first token", stats.time_to_first_token());
  row("between tokens", stats.inter_token_latency());
  row("whole request", stats.e2e_request_latency());
  return table.Text();
}

}  // namespace

int RunStats(Args args, Io io) {
  Server server = DefaultServer();
  bool json = false;
  FlagSet flags("serval stats [FLAGS]",
                "Shows requests, tokens, latencies and memory of a running serval-server.");
  flags.Section("Output");
  flags.AddSwitch("json", "one JSON object", [&](bool on) { json = on; });
  AddServerFlags(flags, server);
  int code = kOk;
  if (!ParseOrExplain(flags, kName, args, io, &code)) return code;

  auto stub = v1::Admin::NewStub(Connect(server));
  grpc::ClientContext context;
  SetDeadline(server, context);
  v1::StatsResponse response;
  const grpc::Status status = stub->Stats(&context, {}, &response);
  if (!status.ok()) return Fail(io, kName, Explain(server, status), kFailed);
  if (json) {
    io.out << ToJson(response).dump(2, ' ', false, Json::error_handler_t::replace) << std::endl;
  } else {
    io.out << Overview(response) << '\n'
           << Memory(response) << '\n'
           << Latencies(response) << std::flush;
  }
  return kOk;
}

}  // namespace serval
