#include "server/health.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include "serval/v1/admin.grpc.pb.h"
#include "serval/v1/generation.grpc.pb.h"
#include "serval/v1/models.grpc.pb.h"

namespace serval {

void EnableHealthAndReflection() {
  grpc::EnableDefaultHealthCheckService(true);
  // Named here, so that a static link keeps it.
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
}

void SetHealth(grpc::Server* server, bool serving) {
  grpc::HealthCheckServiceInterface* health = server->GetHealthCheckService();
  health->SetServingStatus("", serving);
  for (const char* name : {v1::Generation::service_full_name(), v1::Models::service_full_name(),
                           v1::Admin::service_full_name()}) {
    health->SetServingStatus(name, serving);
  }
}

}  // namespace serval
