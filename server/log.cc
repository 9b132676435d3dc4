#include "server/log.h"

#include <grpc/support/log.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

namespace serval {
namespace {

std::atomic<bool> log_json = false;

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// The rest of the line after spdlog's own time stamp and level, which stand in the pattern.
std::string JsonTail(std::string_view message, std::string_view request_id) {
  nlohmann::ordered_json object;
  object["message"] = message;
  if (!request_id.empty()) object["request_id"] = request_id;
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(1);
}

// gRPC reports what happens to single connections as errors; the calls' statuses already say it.
void FromGrpc(gpr_log_func_args* args) { Log(LogLevel::kDebug, args->message); }

}  // namespace

void StartLog(std::string_view level, bool json) {
  log_json = json;
  auto logger = std::make_shared<spdlog::logger>(
      "serval", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_level(spdlog::level::from_str(std::string(level)));
  logger->set_pattern(
      json ? R"({"time":"%Y-%m-%dT%T.%eZ","level":"%l",%v)" : "%Y-%m-%d %T.%e %^%l%$ %v",
      json ? spdlog::pattern_time_type::utc : spdlog::pattern_time_type::local);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

std::string TextLine(std::string_view message, std::string_view request_id) {
  std::string line;
  const auto append = [&line](std::string_view text) {
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte >= 0x20 && byte != 0x7F) {
        line += c;
      } else {
        line += fmt::format("\\x{:02X}", byte);
      }
    }
  };
  if (!request_id.empty()) {
    line += '[';
    append(request_id);
    line += "] ";
  }
  append(message);
  return line;
}

void Log(LogLevel level, std::string_view message, std::string_view request_id) {
  spdlog::logger* logger = spdlog::default_logger_raw();
  if (!logger->should_log(ToSpdlog(level))) return;
  if (log_json) {
    logger->log(ToSpdlog(level), "{}", JsonTail(message, request_id));
  } else {
    logger->log(ToSpdlog(level), "{}", TextLine(message, request_id));
  }
}

void AdoptGrpcLog() { gpr_set_log_function(&FromGrpc); }

}  // namespace serval
