#include "server/frontend.h"

#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/health.h"

namespace serval {
namespace {

constexpr int kMaxReceivedBytes = 64 << 20;
constexpr int kStreamWindowBytes = 1 << 20;
// Only health watchers and reflection run on threads of gRPC's own; they are kept few.
constexpr int kMaxSyncThreads = 16;
constexpr auto kAbortTime = std::chrono::seconds(5);

void Configure(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxReceivedBytes);
  builder.SetMaxSendMessageSize(-1);
  // Two servers on one port would share its clients at random: a taken port must be an error.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // A client that vanished without a word is noticed within half a minute.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  // gRPC's guess at the window for a large request at times stalled one for ten seconds.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  grpc::ResourceQuota quota("serval");
  quota.SetMaxThreads(kMaxSyncThreads);
  builder.SetResourceQuota(quota);
}

}  // namespace

std::string HostPort(const std::string& host, int port) {
  const bool ipv6 = host.find(':') != std::string::npos && !host.starts_with('[');
  return ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

Frontend::Frontend(const ServerOptions& options)
    : state_(options.seed), generation_(&state_), models_(&state_), admin_(&state_) {}

absl::StatusOr<std::unique_ptr<Frontend>> Frontend::Start(const ServerOptions& options) {
  std::unique_ptr<Frontend> frontend(new Frontend(options));
  if (absl::Status status = frontend->StartGrpc(options); !status.ok()) return status;
  if (options.port != 0) {
    auto http = MetricsHttp::Start(options.host, options.port, &frontend->state_);
    if (!http.ok()) return http.status();
    frontend->http_ = *std::move(http);
  }
  return frontend;
}

absl::Status Frontend::StartGrpc(const ServerOptions& options) {
  EnableHealthAndReflection();
  grpc::ServerBuilder builder;
  Configure(builder);
  builder.AddListeningPort(HostPort(options.host, options.grpc_port),
                           grpc::InsecureServerCredentials(), &grpc_port_);
  builder.RegisterService(&generation_);
  builder.RegisterService(&models_);
  builder.RegisterService(&admin_);
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr || grpc_port_ == 0) {
    return absl::UnavailableError(
        absl::StrCat("--grpc-port ", options.grpc_port, ": cannot listen on ",
                     HostPort(options.host, options.grpc_port),
                     " (the port is taken, or the address is not this machine's); choose another "
                     "with --grpc-port, or 0 for any"));
  }
  SetHealth(grpc_.get(), false);
  return absl::OkStatus();
}

void Frontend::Serve(std::unique_ptr<const ServedModel> model) {
  state_.Serve(std::move(model));
  SetHealth(grpc_.get(), state_.phase() == Phase::kServing);
}

bool Frontend::Stop(std::chrono::milliseconds timeout) {
  if (std::exchange(stopped_, true)) return true;
  state_.Drain();
  if (grpc_ == nullptr) return true;
  SetHealth(grpc_.get(), false);
  if (state_.model() != nullptr) state_.model()->engine->Drain([] {});
  const bool finished = state_.WaitUntilIdle(timeout);
  if (!finished) {
    state_.AbortAll(absl::UnavailableError("the server shut down before the answer was complete"));
    state_.WaitUntilIdle(kAbortTime);
  }
  grpc_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
  grpc_->Wait();
  http_.reset();
  return finished;
}

Frontend::~Frontend() { Stop(std::chrono::milliseconds(0)); }

}  // namespace serval
