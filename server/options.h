// What the operator may choose: one field a flag, with its default. Filled by flags.h. Thread rule:
// plain data, const once parsed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/core.h"

namespace serval {

struct ServerOptions {
  std::string model;              // --model: a .gguf file, or the name of one in the cache
  std::string served_model_name;  // empty = the model's name
  std::string host = "0.0.0.0";
  int port = 8000;            // HTTP; 0 = off
  int grpc_port = 50051;      // 0 = any free port
  int threads = 0;            // 0 = cores
  int64_t max_model_len = 0;  // 0 = the model's
  std::string memory_plan = "default=paged";
  DType kv_dtype = DType::kBF16;
  int64_t kv_bytes = 0;  // 0 = a share of the machine's free memory
  bool prefix_caching = true;
  int64_t max_num_seqs = 64;
  int64_t max_num_batched_tokens = 512;
  int64_t max_num_queued_reqs = 1024;
  std::optional<uint64_t> seed;  // base of the seeds of requests that give none; unset = random
  int64_t shutdown_timeout_s = 30;
  std::string config;  // YAML file
  std::string log_level = "info";
  bool log_json = false;
  bool cpu_exact = false;
  bool help = false;
  bool version = false;
};

inline constexpr char kServalVersion[] = "0.1.0";

}  // namespace serval
