// The services of serval.v1 on gRPC's callback API: no call holds a thread. Thread rule: gRPC's
// threads; the state outlives them.
#pragma once

#include <grpcpp/grpcpp.h>

#include "serval/v1/admin.grpc.pb.h"
#include "serval/v1/generation.grpc.pb.h"
#include "serval/v1/models.grpc.pb.h"
#include "server/server_state.h"

namespace serval {

class GenerationService final : public v1::Generation::CallbackService {
 public:
  explicit GenerationService(ServerState* state) : state_(state) {}
  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;

 private:
  ServerState* state_;
};

class ModelsService final : public v1::Models::CallbackService {
 public:
  explicit ModelsService(ServerState* state) : state_(state) {}
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::Model* response) override;

 private:
  ServerState* state_;
};

class AdminService final : public v1::Admin::CallbackService {
 public:
  explicit AdminService(ServerState* state) : state_(state) {}
  // Answers in every phase: zeros while loading.
  grpc::ServerUnaryReactor* Stats(grpc::CallbackServerContext* context,
                                  const v1::StatsRequest* request,
                                  v1::StatsResponse* response) override;

 private:
  ServerState* state_;
};

}  // namespace serval
