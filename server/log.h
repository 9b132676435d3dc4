// The server's log: lines of text, or one JSON object a line, on standard error; a request's lines
// carry its id. Thread rule: StartLog once before the others; Log from any thread.
#pragma once

#include <string>
#include <string_view>

namespace serval {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// `level`: debug, info, warning, error, off.
void StartLog(std::string_view level, bool json);
// A line of the text log: control characters, which could fake a line, are written as \\xNN.
std::string TextLine(std::string_view message, std::string_view request_id);
void Log(LogLevel level, std::string_view message, std::string_view request_id = {});
// gRPC's own messages go to the log instead of raw standard error.
void AdoptGrpcLog();

}  // namespace serval
