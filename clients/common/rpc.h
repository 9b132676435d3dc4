// The way to a server: its address, the channel, and what a failed call means to the person who
// made it. Thread rule: any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <string_view>

#include "clients/common/flags.h"

namespace serval {

inline constexpr int kMaxMessageBytes =
    64 << 20;  // prompts of 10 MB and the logprobs of 8K prompt tokens pass

// Where to call and how long to wait; shared by all commands.
struct Server {
  std::string target;  // HOST:PORT
  double timeout = 0;  // seconds for the whole call, 0 = no limit
};

// SERVAL_TARGET, else localhost:50051.
Server DefaultServer();

// --target and --timeout.
void AddServerFlags(FlagSet& flags, Server& server);

// Not connected yet: the first call connects. No proxy from the environment: a local server must
// not be looked for there.
std::shared_ptr<grpc::Channel> Connect(const Server& server);

// Sets the deadline of a call that starts now.
void SetDeadline(const Server& server, grpc::ClientContext& context);

// One sentence: what failed at which server, and the remedy. REQUIRES: !status.ok().
// `retry_after_ms` is the trailer of that name, empty when there was none.
std::string Explain(const Server& server, const grpc::Status& status,
                    std::string_view retry_after_ms = {});

// The value of the trailer `retry-after-ms` of a finished call; empty when there was none.
std::string RetryAfterMs(const grpc::ClientContext& context);

}  // namespace serval
