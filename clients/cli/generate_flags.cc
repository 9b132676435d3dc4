#include "clients/cli/generate_flags.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

namespace serval {
namespace {

// The system prompt that SmolLM2's own template puts where none is given.
constexpr char kDefaultSystem[] =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
// The server's default of 16 tokens cuts nearly every answer short.
constexpr int kChatMaxTokens = 512;
constexpr double kNoLimit = std::numeric_limits<float>::max();

// Each part of a comma-separated list of token ids goes to `add`.
FlagSet::Setter TokenList(const std::function<void(int32_t)>& add) {
  return [add](std::string_view text) {
    for (const std::string& part : SplitList(text)) {
      const auto id = ParseInteger(part, 0, kInt32Max);
      if (!id.ok()) return id.status();
      add(static_cast<int32_t>(*id));
    }
    return absl::OkStatus();
  };
}

FlagSet::Setter LogitBias(v1::SamplingParams& sampling) {
  return [&sampling](std::string_view text) {
    for (const std::string& part : SplitList(text)) {
      const size_t equals = part.find('=');
      if (equals == std::string::npos) {
        return absl::InvalidArgumentError("wants ID=BIAS pairs such as 42=-5,7=2.5, not '" + part +
                                          "'");
      }
      const std::string_view pair = part;
      const auto id = ParseInteger(pair.substr(0, equals), 0, kInt32Max);
      if (!id.ok()) return id.status();
      const auto bias = ParseNumber(pair.substr(equals + 1), -100, 100);
      if (!bias.ok()) return bias.status();
      (*sampling.mutable_logit_bias())[static_cast<int32_t>(*id)] = static_cast<float>(*bias);
    }
    return absl::OkStatus();
  };
}

void AddPromptFlags(FlagSet& flags, GenerateOptions& options) {
  v1::GenerateRequest& request = options.request;
  flags.Section("Prompt (standard input, byte for byte, where no flag gives one)");
  flags.AddText("prompt", "TEXT", "the text to continue",
                [&](std::string text) { options.prompt = std::move(text); });
  flags.AddText("prompt-file", "FILE", "the text to continue, byte for byte",
                [&](std::string path) { options.prompt_file = std::move(path); });
  flags.Add("prompt-tokens", "IDS", "token ids to continue, such as 1,2,3",
            [&request](std::string_view text) {
              auto* ids = request.mutable_tokens()->mutable_ids();
              return TokenList([ids](int32_t id) { ids->Add(id); })(text);
            });
  flags.AddSwitch("chat", "put the prompt into ChatML as a user's message and ask for the answer",
                  [&](bool on) { options.chat = on; });
  flags.AddText("system", "TEXT", "system prompt of --chat [SmolLM2's own]",
                [&](std::string text) { options.system = std::move(text); });
  flags.AddSwitch("echo", "print the prompt's text first", [&](bool on) { request.set_echo(on); });
  flags.AddInteger("truncate-prompt-tokens", "keep only the last N tokens of the prompt", 1,
                   kInt32Max,
                   [&](int64_t n) { request.set_truncate_prompt_tokens(static_cast<int32_t>(n)); });
}

void AddLengthFlags(FlagSet& flags, v1::SamplingParams& sampling) {
  flags.Section("Where to stop");
  flags.AddInteger("max-tokens", "most tokens to generate [16; 512 with --chat]", 1, kInt32Max,
                   [&](int64_t n) { sampling.set_max_tokens(static_cast<int32_t>(n)); });
  flags.AddInteger("min-tokens", "do not end before N tokens [0]", 0, kInt32Max,
                   [&](int64_t n) { sampling.set_min_tokens(static_cast<int32_t>(n)); });
  flags.AddText("stop", "TEXT", "end before this text; may be repeated",
                [&](std::string text) { sampling.add_stop(std::move(text)); });
  flags.Add("stop-token-ids", "IDS", "end at any of these tokens, such as 1,2",
            TokenList([&](int32_t id) { sampling.add_stop_token_ids(id); }));
  flags.AddSwitch("include-stop-str-in-output", "print the stop text too",
                  [&](bool on) { sampling.set_include_stop_str_in_output(on); });
  flags.AddSwitch("ignore-eos", "go on after the model's end token",
                  [&](bool on) { sampling.set_ignore_eos(on); });
}

void AddSamplingFlags(FlagSet& flags, v1::SamplingParams& sampling) {
  flags.Section("Sampling (what is not given is the model's own default)");
  flags.AddNumber("temperature", "0 takes the most likely token each time [1]", 0, kNoLimit,
                  [&](double x) { sampling.set_temperature(static_cast<float>(x)); });
  flags.AddInteger("top-k", "only the N most likely tokens; 0 or -1 = all [0]", -1, kInt32Max,
                   [&](int64_t n) { sampling.set_top_k(static_cast<int32_t>(n)); });
  flags.AddNumber("top-p", "only the most likely tokens that make up this probability [1]", 0, 1,
                  [&](double x) { sampling.set_top_p(static_cast<float>(x)); });
  flags.AddNumber("min-p", "only tokens at least this likely, relative to the most likely [0]", 0,
                  1, [&](double x) { sampling.set_min_p(static_cast<float>(x)); });
  flags.AddNumber("repetition-penalty", "above 1 discourages what was in prompt or answer [1]", 0,
                  kNoLimit,
                  [&](double x) { sampling.set_repetition_penalty(static_cast<float>(x)); });
  flags.AddNumber("presence-penalty", "taken from the logits of tokens already generated [0]", -2,
                  2, [&](double x) { sampling.set_presence_penalty(static_cast<float>(x)); });
  flags.AddNumber("frequency-penalty", "the same, once for each time [0]", -2, 2,
                  [&](double x) { sampling.set_frequency_penalty(static_cast<float>(x)); });
  flags.AddInteger("seed", "the same seed gives the same text [random]", 0,
                   std::numeric_limits<int64_t>::max(),
                   [&](int64_t n) { sampling.set_seed(static_cast<uint64_t>(n)); });
  flags.AddInteger("n", "answers to one prompt, from 1 to 64 [1]", 1, 64,
                   [&](int64_t n) { sampling.set_n(static_cast<int32_t>(n)); });
  flags.Add("logit-bias", "ID=X,...", "added to these tokens' logits, from -100 to 100",
            LogitBias(sampling));
  flags.AddText("bad-words", "TEXT", "never generate this text; may be repeated",
                [&](std::string text) { sampling.add_bad_words(std::move(text)); });
}

void AddOutputFlags(FlagSet& flags, GenerateOptions& options) {
  v1::SamplingParams& sampling = *options.request.mutable_sampling();
  flags.Section("Output");
  flags.AddSwitch("json",
                  "one JSON object at the end: text, token_ids, finish_reason, logprobs, "
                  "prompt_logprobs, usage, and with --n choices",
                  [&](bool on) { options.json = on; });
  flags.AddSwitch("stats", "a line of counts and rates on standard error at the end",
                  [&](bool on) { options.stats = on; });
  flags.Alias("-v", "stats");
  flags.AddInteger("logprobs", "log-probabilities of the N likeliest tokens too (--json)", 0, 20,
                   [&](int64_t n) { sampling.set_logprobs(static_cast<int32_t>(n)); });
  flags.AddInteger("prompt-logprobs", "the same for the prompt's tokens (--json)", 0, 20,
                   [&](int64_t n) { sampling.set_prompt_logprobs(static_cast<int32_t>(n)); });
  flags.AddSwitch("skip-special-tokens", "=false prints <|im_end|> and the like [true]",
                  [&](bool on) { sampling.set_skip_special_tokens(on); });
}

void AddRequestFlags(FlagSet& flags, v1::GenerateRequest& request) {
  flags.Section("Request");
  flags.AddText("model", "NAME", "the model, where the server has several names [the served one]",
                [&](std::string text) { request.set_model(std::move(text)); });
  flags.AddInteger("priority", "lower runs earlier [0]", std::numeric_limits<int32_t>::min(),
                   kInt32Max, [&](int64_t n) { request.set_priority(static_cast<int32_t>(n)); });
  flags.AddText("cache-salt", "TEXT", "share cached prefixes only with requests of this salt",
                [&](std::string text) { request.set_cache_salt(std::move(text)); });
  flags.AddText("request-id", "TEXT", "name of the request in the server's log [made up there]",
                [&](std::string text) { request.set_request_id(std::move(text)); });
}

absl::Status Refuse(const char* why) { return absl::InvalidArgumentError(why); }

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // Not through iterators: those throw on a directory, this sets a bit.
  if (file.is_open() && file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError("cannot read --prompt-file '" + path + "' (" + std::strerror(errno) +
                               "): check the path");
  }
  return text.str();
}

}  // namespace

FlagSet GenerateFlags(GenerateOptions& options) {
  FlagSet flags("serval generate [--prompt TEXT | --prompt-file FILE] [FLAGS]",
                "Sends a prompt to a serval-server and prints the text as it comes.\n"
                "Example: serval generate --chat --prompt 'Why is the sky blue?'");
  AddPromptFlags(flags, options);
  AddLengthFlags(flags, *options.request.mutable_sampling());
  AddSamplingFlags(flags, *options.request.mutable_sampling());
  AddOutputFlags(flags, options);
  AddRequestFlags(flags, options.request);
  AddServerFlags(flags, options.server);
  return flags;
}

absl::Status TakePrompt(GenerateOptions& options, std::istream& in) {
  v1::GenerateRequest& request = options.request;
  const bool tokens = request.has_tokens();
  if (options.prompt.has_value() + options.prompt_file.has_value() + tokens > 1) {
    return Refuse("give one of --prompt, --prompt-file and --prompt-tokens, not several");
  }
  if (tokens && options.chat) return Refuse("--chat wants text, not --prompt-tokens");
  if (options.system && !options.chat) return Refuse("--system has a meaning only with --chat");
  request.set_return_token_ids(options.json);
  if (options.chat && !request.sampling().has_max_tokens()) {
    request.mutable_sampling()->set_max_tokens(kChatMaxTokens);
  }
  if (tokens) return absl::OkStatus();

  std::string text;
  if (options.prompt) {
    text = *std::move(options.prompt);
  } else if (options.prompt_file) {
    auto read = ReadFile(*options.prompt_file);
    if (!read.ok()) return read.status();
    text = *std::move(read);
  } else {
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  if (options.chat) {
    text = ChatMl(options.system.value_or(kDefaultSystem), text);
    request.set_add_special_tokens(false);  // the template has them
  }
  request.set_text(std::move(text));
  return absl::OkStatus();
}

std::string ChatMl(const std::string& system, const std::string& user) {
  return "<|im_start|>system\n" + system + "<|im_end|>\n<|im_start|>user\n" + user +
         "<|im_end|>\n<|im_start|>assistant\n";
}

}  // namespace serval
