#include "server/service.h"

#include <span>

#include "server/convert.h"
#include "server/describe.h"
#include "server/generate_rpc.h"

namespace serval {
namespace {

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

absl::Status TokenizeText(const v1::TokenizeRequest& request, const ServedModel& model,
                          v1::TokenizeResponse& response) {
  if (absl::Status status = CheckText("text", request.text()); !status.ok()) return status;
  const auto ids = model.tokenizer->Encode(
      request.text(), !request.has_add_special_tokens() || request.add_special_tokens());
  response.mutable_ids()->Add(ids.begin(), ids.end());
  response.set_count(static_cast<int32_t>(ids.size()));
  response.set_max_model_len(model.engine->options().limits.max_context);
  if (!request.return_token_strs()) return absl::OkStatus();
  for (const int32_t id : ids) {
    response.add_token_strs(std::string(model.tokenizer->TokenBytes(id)));
  }
  return absl::OkStatus();
}

absl::Status DetokenizeIds(const v1::DetokenizeRequest& request, const ServedModel& model,
                           v1::DetokenizeResponse& response) {
  const std::span<const int32_t> ids(request.ids().data(), request.ids().size());
  absl::Status status = CheckTokenIds("ids", ids, model.engine->model_info().vocab);
  if (status.ok()) response.set_text(model.tokenizer->Decode(ids, request.skip_special_tokens()));
  return status;
}

}  // namespace

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerationService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  return GenerateRpc::Start(state_, context, request);
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(grpc::CallbackServerContext* context,
                                                      const v1::TokenizeRequest* request,
                                                      v1::TokenizeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  state_->Read(request->ByteSizeLong(), [=, this] {
    const auto model = state_->Find(request->model());
    reactor->Finish(
        ToGrpc(model.ok() ? TokenizeText(*request, **model, *response) : model.status()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const v1::DetokenizeRequest* request,
                                                        v1::DetokenizeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  state_->Read(request->ByteSizeLong(), [=, this] {
    const auto model = state_->Find(request->model());
    reactor->Finish(
        ToGrpc(model.ok() ? DetokenizeIds(*request, **model, *response) : model.status()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* ModelsService::ListModels(grpc::CallbackServerContext* context,
                                                    const v1::ListModelsRequest*,
                                                    v1::ListModelsResponse* response) {
  const auto model = state_->Find("");
  if (model.ok()) DescribeModel(**model, *response->add_models());
  return Answer(context, model.status());
}

grpc::ServerUnaryReactor* ModelsService::GetModel(grpc::CallbackServerContext* context,
                                                  const v1::GetModelRequest* request,
                                                  v1::Model* response) {
  const auto model = state_->Find(request->id());
  if (model.ok()) DescribeModel(**model, *response);
  return Answer(context, model.status());
}

grpc::ServerUnaryReactor* AdminService::Stats(grpc::CallbackServerContext* context,
                                              const v1::StatsRequest*,
                                              v1::StatsResponse* response) {
  DescribeStats(*state_, state_->admission().rejected(), *response);
  return Answer(context, absl::OkStatus());
}

}  // namespace serval
