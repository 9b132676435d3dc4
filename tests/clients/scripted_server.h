// A gRPC server in this process that answers what a test tells it to, for the clients' tests.
// Thread rule: set the answers before the call; handlers run on gRPC's threads.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "serval/v1/admin.grpc.pb.h"
#include "serval/v1/generation.grpc.pb.h"
#include "serval/v1/models.grpc.pb.h"

namespace serval {

class ScriptedServer final : public v1::Generation::Service,
                             public v1::Models::Service,
                             public v1::Admin::Service {
 public:
  using Writer = grpc::ServerWriter<v1::GenerateResponse>;
  using Script =
      std::function<grpc::Status(grpc::ServerContext*, const v1::GenerateRequest&, Writer*)>;

  ScriptedServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("localhost:0", grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(64 << 20);
    builder.RegisterService(static_cast<v1::Generation::Service*>(this));
    builder.RegisterService(static_cast<v1::Models::Service*>(this));
    builder.RegisterService(static_cast<v1::Admin::Service*>(this));
    server_ = builder.BuildAndStart();
  }
  ~ScriptedServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string Target() const { return "localhost:" + std::to_string(port_); }

  Script script = [](auto*, const auto&, auto*) { return grpc::Status::OK; };
  v1::ListModelsResponse models;
  v1::StatsResponse stats;
  grpc::Status status;  // of ListModels and Stats

  // The requests of the Generate calls so far.
  std::vector<v1::GenerateRequest> Requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        Writer* writer) override {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(*request);
    }
    return script(context, *request, writer);
  }
  grpc::Status ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response) override {
    *response = models;
    return status;
  }
  grpc::Status Stats(grpc::ServerContext*, const v1::StatsRequest*,
                     v1::StatsResponse* response) override {
    *response = stats;
    return status;
  }

  int port_ = 0;
  std::mutex mutex_;
  std::vector<v1::GenerateRequest> requests_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace serval
