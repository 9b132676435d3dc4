#include "server/flag_table.h"

#include <array>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/flag_values.h"

namespace serval {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kMostPort = 65535;

template <auto kField>
absl::Status SetText(ServerOptions& options, std::string_view value) {
  if (value.empty()) return absl::InvalidArgumentError("allowed: any text that is not empty");
  options.*kField = std::string(value);
  return absl::OkStatus();
}

template <auto kField, int64_t kLeast, int64_t kMaximum = kMost>
absl::Status SetInteger(ServerOptions& options, std::string_view value) {
  const auto number = ParseInteger(value, kLeast, kMaximum);
  if (number.ok()) options.*kField = *number;
  return number.status();
}

template <auto kField>
absl::Status SetBool(ServerOptions& options, std::string_view value) {
  const auto parsed = ParseBool(value);
  if (parsed.ok()) options.*kField = *parsed;
  return parsed.status();
}

absl::Status SetSeed(ServerOptions& options, std::string_view value) {
  const auto number = ParseInteger(value, 0, kMost);
  if (number.ok()) options.seed = static_cast<uint64_t>(*number);
  return number.status();
}

absl::Status SetKvBytes(ServerOptions& options, std::string_view value) {
  const auto bytes = ParseBytes(value);
  if (bytes.ok()) options.kv_bytes = *bytes;
  return bytes.status();
}

absl::Status SetDevice(ServerOptions&, std::string_view value) {
  if (value == "cuda") {
    return absl::InvalidArgumentError("this build computes on the CPU only; allowed: auto, cpu");
  }
  if (value == "auto" || value == "cpu") return absl::OkStatus();
  return absl::InvalidArgumentError("allowed: auto, cpu");
}

absl::Status SetKvDtype(ServerOptions& options, std::string_view value) {
  struct Entry {
    std::string_view name;
    DType type;
  };
  static constexpr std::array<Entry, 7> kTypes = {{{"auto", DType::kBF16},
                                                   {"bf16", DType::kBF16},
                                                   {"bfloat16", DType::kBF16},
                                                   {"f16", DType::kF16},
                                                   {"float16", DType::kF16},
                                                   {"f32", DType::kF32},
                                                   {"float32", DType::kF32}}};
  for (const Entry& entry : kTypes) {
    if (value != entry.name) continue;
    options.kv_dtype = entry.type;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "allowed: auto, bf16, f16, f32 (or bfloat16, float16, float32)");
}

absl::Status SetLogLevel(ServerOptions& options, std::string_view value) {
  for (const std::string_view level : {"debug", "info", "warning", "error", "off"}) {
    if (value != level) continue;
    options.log_level = std::string(value);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("allowed: debug, info, warning, error, off");
}

using O = ServerOptions;
constexpr Flag kFlags[] = {
    {"Model", "model", "PATH|NAME",
     "the model to serve: a .gguf file, or the name of one in the cache directory", "",
     &SetText<&O::model>},
    {"Model", "served-model-name", "NAME", "the name clients use", "the model's",
     &SetText<&O::served_model_name>},
    {"Model", "max-model-len", "TOKENS", "longest prompt and output together", "the model's",
     &SetInteger<&O::max_model_len, 1>},

    {"Network", "host", "ADDRESS", "address to listen on", "0.0.0.0", &SetText<&O::host>},
    {"Network", "grpc-port", "PORT", "gRPC; 0 = any free port, printed when ready", "50051",
     &SetInteger<&O::grpc_port, 0, kMostPort>},
    {"Network", "port", "PORT", "HTTP: /metrics, /health, /version; 0 = off", "8000",
     &SetInteger<&O::port, 0, kMostPort>},
    {"Network", "shutdown-timeout", "SECONDS", "time for running requests to finish after SIGTERM",
     "30", &SetInteger<&O::shutdown_timeout_s, 0, 86400>},

    {"Memory", "memory-plan", "PLAN", "which memory each layer uses, e.g. 'default=paged'",
     "default=paged", &SetText<&O::memory_plan>},
    {"Memory", "kv-cache-dtype", "TYPE", "element type of keys and values: auto, bf16, f16, f32",
     "auto (bf16)", &SetKvDtype},
    {"Memory", "kv-cache-bytes", "BYTES", "room for all memories, e.g. 2GiB; 0 = chosen at start",
     "0", &SetKvBytes},
    {"Memory", "enable-prefix-caching", "", "reuse the memory of prompts that begin alike", "true",
     &SetBool<&O::prefix_caching>},

    {"Scheduling", "max-num-seqs", "N", "most requests computed at once", "64",
     &SetInteger<&O::max_num_seqs, 1, 65536>},
    {"Scheduling", "max-num-batched-tokens", "N", "most tokens computed in one step", "512",
     &SetInteger<&O::max_num_batched_tokens, 1, 1048576>},
    {"Scheduling", "max-num-queued-reqs", "N", "most requests waiting; more are refused", "1024",
     &SetInteger<&O::max_num_queued_reqs, 1, 10000000>},
    {"Scheduling", "seed", "N", "makes requests that give no seed repeatable", "random", &SetSeed},

    {"Computing", "device", "DEVICE", "auto or cpu", "auto", &SetDevice},
    {"Computing", "threads", "N", "CPU threads; 0 = one per core", "0",
     &SetInteger<&O::threads, 0, 1024>},
    {"Computing", "cpu-exact", "", "32-bit activations: slower, for comparisons", "false",
     &SetBool<&O::cpu_exact>},

    {"Logging", "log-level", "LEVEL", "debug, info, warning, error or off", "info", &SetLogLevel},
    {"Logging", "log-json", "", "one JSON object a line instead of text", "false",
     &SetBool<&O::log_json>},

    {"Other", "config", "FILE.yaml", "flags from a file, e.g. 'max-num-seqs: 32'", "",
     &SetText<&O::config>},
    {"Other", "help", "", "print this and exit", "", &SetBool<&O::help>},
    {"Other", "version", "", "print the version and exit", "", &SetBool<&O::version>},
};

}  // namespace

std::span<const Flag> Flags() { return kFlags; }

}  // namespace serval
