// grpc.health.v1 for the server as a whole and for each of its services. Thread rule: any thread.
#pragma once

#include <grpcpp/grpcpp.h>

namespace serval {

// Before the server is built: adds the health service and server reflection.
void EnableHealthAndReflection();
// SERVING or NOT_SERVING, everywhere at once; those who watch are told.
void SetHealth(grpc::Server* server, bool serving);

}  // namespace serval
