// The server without its model: the gRPC services, health, reflection, and the HTTP port. It
// answers at once, with UNAVAILABLE until a model is served. Thread rule: Start, Serve and Stop
// from one thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/metrics_http.h"
#include "server/options.h"
#include "server/server_state.h"
#include "server/service.h"

namespace serval {

class Frontend {
 public:
  // Errors: UNAVAILABLE (a port is taken; names it), INVALID_ARGUMENT (host).
  static absl::StatusOr<std::unique_ptr<Frontend>> Start(const ServerOptions& options);
  ~Frontend();  // Stop(0) unless stopped

  // From now on requests are taken. Once.
  void Serve(std::unique_ptr<const ServedModel> model);
  // NOT_SERVING at once; new calls are refused; running ones finish within `timeout`, those that do
  // not end UNAVAILABLE. True when all finished by themselves.
  bool Stop(std::chrono::milliseconds timeout);

  int grpc_port() const { return grpc_port_; }
  int http_port() const { return http_ ? http_->port() : 0; }  // 0 = off
  ServerState& state() { return state_; }

 private:
  explicit Frontend(const ServerOptions& options);
  absl::Status StartGrpc(const ServerOptions& options);

  ServerState state_;
  GenerationService generation_;
  ModelsService models_;
  AdminService admin_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<MetricsHttp> http_;
  int grpc_port_ = 0;
  bool stopped_ = false;
};

// "[::1]:50051" for an IPv6 address, else "host:port".
std::string HostPort(const std::string& host, int port);

}  // namespace serval
