#include "clients/common/rpc.h"

#include <chrono>
#include <cstdlib>
#include <sstream>

namespace serval {
namespace {

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// gRPC itself says UNAVAILABLE for whatever happens to the connection; the server says it while
// loading or draining.
std::string ExplainUnavailable(const Server& server, const std::string& message) {
  const std::string& at = server.target;
  if (Has(message, "DNS resolution") || Has(message, "name resolution") ||
      Has(message, "Name or service not known")) {
    return "the host of '" + at + "' is not known: check --target HOST:PORT";
  }
  if (Has(message, "Connection refused")) {
    return "connection refused: is serval-server running at " + at +
           "? Start it with 'serval-server --model PATH', or name another with --target HOST:PORT";
  }
  if (Has(message, "http1.x") || Has(message, "HTTP/1") || Has(message, "http2")) {
    return at +
           " does not speak gRPC: give the gRPC port of the server (50051 unless it was told "
           "otherwise)";
  }
  if (Has(message, "failed to connect") || Has(message, "Failed to connect")) {
    return "cannot reach " + at + " (" + message +
           "): check --target, the network and the firewall";
  }
  if (Has(message, "Socket closed") || Has(message, "reset") || Has(message, "Broken pipe") ||
      Has(message, "GOAWAY") || Has(message, "recvmsg")) {
    return "the connection to " + at + " broke (" + message +
           "): see whether serval-server still runs there, then ask again";
  }
  return "the server at " + at + " is not ready (" + message + "): try again in a moment";
}

std::string ExplainExhausted(const Server& server, const std::string& message,
                             std::string_view retry_after_ms) {
  if (Has(message, "larger than max")) {
    return "the message is too large (" + message +
           "): send a shorter prompt or ask for fewer logprobs";
  }
  std::string when = "a moment";
  if (const auto ms = ParseInteger(retry_after_ms, 0, kInt32Max); ms.ok()) {
    std::ostringstream seconds;
    seconds << static_cast<double>(*ms) / 1000 << " s";
    when = seconds.str();
  }
  return "the server at " + server.target + " is full (" + message + "): try again in " + when;
}

std::string ExplainDeadline(const Server& server, const std::string& message) {
  if (server.timeout <= 0) {
    return "the server at " + server.target + " ran out of time (" + message +
           "): ask for fewer tokens";
  }
  std::ostringstream out;
  out << "no complete answer within --timeout " << server.timeout
      << " s: give more time or ask for fewer tokens";
  return out.str();
}

}  // namespace

Server DefaultServer() {
  const char* target = std::getenv("SERVAL_TARGET");
  return {.target = target != nullptr && *target != '\0' ? target : "localhost:50051"};
}

void AddServerFlags(FlagSet& flags, Server& server) {
  flags.Section("Server");
  flags.Add(
      "target", "HOST:PORT", "gRPC address [SERVAL_TARGET, else localhost:50051]",
      [&server](std::string_view text) {
        if (text.find(':') == std::string_view::npos) {
          return absl::InvalidArgumentError("wants HOST:PORT, not '" + std::string(text) + "'");
        }
        server.target = text;
        return absl::OkStatus();
      });
  flags.AddNumber("timeout", "seconds for the whole call; 0 waits as long as it takes [0]", 0, 1e6,
                  [&server](double seconds) { server.timeout = seconds; });
}

std::shared_ptr<grpc::Channel> Connect(const Server& server) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(server.target, grpc::InsecureChannelCredentials(), args);
}

void SetDeadline(const Server& server, grpc::ClientContext& context) {
  if (server.timeout <= 0) return;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::microseconds(static_cast<int64_t>(server.timeout * 1e6)));
}

std::string RetryAfterMs(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find("retry-after-ms");
  return found == trailers.end() ? "" : std::string(found->second.data(), found->second.size());
}

std::string Explain(const Server& server, const grpc::Status& status,
                    std::string_view retry_after_ms) {
  const std::string& at = server.target;
  const std::string message =
      status.error_message().empty() ? "it gave no reason" : status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return ExplainUnavailable(server, message);
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return ExplainExhausted(server, message, retry_after_ms);
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return ExplainDeadline(server, message);
    case grpc::StatusCode::INVALID_ARGUMENT:
      return "the server refused the request (" + message +
             "): correct that value; --help lists the ranges";
    case grpc::StatusCode::OUT_OF_RANGE:
      return "the request does not fit the model (" + message +
             "): shorten the prompt, lower --max-tokens or give --truncate-prompt-tokens N";
    case grpc::StatusCode::NOT_FOUND:
      return "the server at " + at + " does not have it (" + message +
             "): 'serval models' lists what it serves";
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
      return "the server at " + at + " does not let this client in (" + message +
             "): ask whoever runs it for access";
    case grpc::StatusCode::CANCELLED:
      return "the call was cancelled at the server's side (" + message +
             "): see whether it is shutting down, then ask again";
    case grpc::StatusCode::UNIMPLEMENTED:
      return "the server at " + at + " does not know this call (" + message +
             "): is it a serval-server of the same version?";
    default:
      return "the server at " + at + " failed (" + message + "): its log says why";
  }
}

}  // namespace serval
