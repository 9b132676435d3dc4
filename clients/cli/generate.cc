// `serval generate`: one Generate call, its text on standard output as it comes.
#include <unistd.h>

#include <iostream>

#include "clients/cli/command.h"
#include "clients/cli/generate_flags.h"
#include "clients/cli/generation.h"
#include "clients/common/interrupt.h"
#include "clients/common/rpc.h"
#include "serval/v1/generation.grpc.pb.h"

namespace serval {
namespace {

constexpr char kName[] = "generate";

// Streams the first choice that is not finished; the others wait their turn, so that texts never
// mix.
class TextPrinter {
 public:
  explicit TextPrinter(std::ostream& out) : out_(out) {}

  void Print(const Generation& generation) {
    const auto& choices = generation.choices();
    while (current_ < choices.size()) {
      const std::string& text = choices[current_].text;
      if (choices.size() > 1 && !headed_) out_ << "=== choice " << current_ << " ===\n";
      headed_ = true;
      out_ << std::string_view(text).substr(printed_);
      printed_ = text.size();
      if (!generation.Finished(static_cast<int>(current_))) break;
      if (++current_ == choices.size()) break;
      out_ << '\n';
      printed_ = 0;
      headed_ = false;
    }
    out_.flush();
  }

 private:
  std::ostream& out_;
  size_t current_ = 0;  // choice
  size_t printed_ = 0;  // bytes of its text
  bool headed_ = false;
};

struct Outcome {
  grpc::Status status;
  std::string retry_after_ms;
  bool interrupted = false;
};

Outcome Stream(const GenerateOptions& options, Io io, Generation& generation) {
  auto stub = v1::Generation::NewStub(Connect(options.server));
  grpc::ClientContext context;
  SetDeadline(options.server, context);
  const Interrupt interrupt([&context] { context.TryCancel(); });
  auto stream = stub->Generate(&context, options.request);
  TextPrinter printer(io.out);
  v1::GenerateResponse message;
  while (stream->Read(&message)) {
    generation.Add(message);
    if (!options.json) printer.Print(generation);
    if (!io.out) context.TryCancel();  // nobody reads it any more
  }
  Outcome outcome;
  outcome.status = stream->Finish();
  outcome.retry_after_ms = RetryAfterMs(context);
  outcome.interrupted = interrupt.Raised();
  return outcome;
}

}  // namespace

int RunGenerate(Args args, Io io) {
  GenerateOptions options;
  FlagSet flags = GenerateFlags(options);
  int code = kOk;
  if (!ParseOrExplain(flags, kName, args, io, &code)) return code;

  const bool from_stdin = !options.prompt && !options.prompt_file && !options.request.has_tokens();
  if (from_stdin && &io.in == &std::cin && isatty(STDIN_FILENO) != 0) {
    io.err << "Type the prompt, then Ctrl-D on a line of its own:" << std::endl;
  }
  if (const absl::Status status = TakePrompt(options, io.in); !status.ok()) {
    return Fail(io, kName, std::string(status.message()),
                absl::IsInvalidArgument(status) ? kUsage : kFailed);
  }

  Generation generation(options.request);
  const Outcome outcome = Stream(options, io, generation);
  const bool some_text = !options.json && !generation.choices()[0].text.empty();
  if (outcome.status.ok() && options.json) {
    using Json = nlohmann::ordered_json;
    io.out << generation.ToJson().dump(2, ' ', false, Json::error_handler_t::replace);
  }
  if (outcome.status.ok() || some_text) io.out << std::endl;
  if (outcome.interrupted)
    return Fail(io, kName, "interrupted; the call was cancelled", kInterrupted);
  if (!io.out) {
    return Fail(io, kName,
                "standard output was closed before the end, so the call was cancelled: see that "
                "its reader stays and the disk is not full",
                kFailed);
  }
  if (!outcome.status.ok()) {
    return Fail(io, kName, Explain(options.server, outcome.status, outcome.retry_after_ms),
                kFailed);
  }
  if (options.stats) io.err << "serval: " << generation.Summary() << std::endl;
  return kOk;
}

}  // namespace serval
