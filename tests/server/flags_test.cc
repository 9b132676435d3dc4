// Flags: every value, where it may come from, and what is said about wrong ones.
#include "server/flags.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>

#include "server/flag_table.h"
#include "server/flag_values.h"

namespace serval {
namespace {

using Variables = std::map<std::string, std::string>;

absl::StatusOr<ServerOptions> Parse(std::vector<std::string_view> args, Variables variables = {}) {
  return ParseFlags(args, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string ErrorOf(std::vector<std::string_view> args, Variables variables = {}) {
  const auto options = Parse(std::move(args), std::move(variables));
  return options.ok() ? "no error" : std::string(options.status().message());
}

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) : path_(testing::TempDir() + "serval-flags.yaml") {
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(FlagsTest, Defaults) {
  const auto options = Parse({"--model", "m.gguf"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->model, "m.gguf");
  EXPECT_EQ(options->grpc_port, 50051);
  EXPECT_EQ(options->port, 8000);
  EXPECT_EQ(options->kv_dtype, DType::kBF16);
  EXPECT_TRUE(options->prefix_caching);
  EXPECT_FALSE(options->seed.has_value());
  EXPECT_EQ(options->shutdown_timeout_s, 30);
}

TEST(FlagsTest, EveryFlagSets) {
  const auto options = Parse({"--model=a",
                              "--served-model-name=b",
                              "--host=::1",
                              "--port=0",
                              "--grpc-port",
                              "1234",
                              "--device=cpu",
                              "--threads=3",
                              "--max-model-len=4096",
                              "--memory-plan=default=paged",
                              "--kv-cache-dtype=float32",
                              "--kv-cache-bytes=2GiB",
                              "--no-enable-prefix-caching",
                              "--max-num-seqs=8",
                              "--max-num-batched-tokens=256",
                              "--max-num-queued-reqs=9",
                              "--seed=5",
                              "--shutdown-timeout=1",
                              "--log-level=debug",
                              "--log-json",
                              "--cpu-exact=true"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->served_model_name, "b");
  EXPECT_EQ(options->host, "::1");
  EXPECT_EQ(options->port, 0);
  EXPECT_EQ(options->grpc_port, 1234);
  EXPECT_EQ(options->threads, 3);
  EXPECT_EQ(options->max_model_len, 4096);
  EXPECT_EQ(options->memory_plan, "default=paged");
  EXPECT_EQ(options->kv_dtype, DType::kF32);
  EXPECT_EQ(options->kv_bytes, int64_t{2} << 30);
  EXPECT_FALSE(options->prefix_caching);
  EXPECT_EQ(options->max_num_seqs, 8);
  EXPECT_EQ(options->max_num_batched_tokens, 256);
  EXPECT_EQ(options->max_num_queued_reqs, 9);
  EXPECT_EQ(options->seed, 5u);
  EXPECT_EQ(options->shutdown_timeout_s, 1);
  EXPECT_EQ(options->log_level, "debug");
  EXPECT_TRUE(options->log_json);
  EXPECT_TRUE(options->cpu_exact);
}

TEST(FlagsTest, CommandLineOverEnvironmentOverFile) {
  const ConfigFile file(
      "model: file.gguf\nport: 1\ngrpc_port: 2\nmax-num-seqs: 3\nlog-json: true\n");
  const auto options = Parse({"--config", file.path(), "--port", "10"},
                             {{"SERVAL_PORT", "20"}, {"SERVAL_GRPC_PORT", "30"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->port, 10);
  EXPECT_EQ(options->grpc_port, 30);
  EXPECT_EQ(options->max_num_seqs, 3);
  EXPECT_EQ(options->model, "file.gguf");
  EXPECT_TRUE(options->log_json);
}

TEST(FlagsTest, EverySwitchAndValueWorksFromTheEnvironment) {
  const auto options = Parse({}, {{"SERVAL_MODEL", "e"},
                                  {"SERVAL_ENABLE_PREFIX_CACHING", "false"},
                                  {"SERVAL_KV_CACHE_BYTES", "512MB"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_FALSE(options->prefix_caching);
  EXPECT_EQ(options->kv_bytes, 512000000);
}

TEST(FlagsTest, UnknownFlagNamesTheNearest) {
  EXPECT_EQ(ErrorOf({"--modle", "x"}), "unknown flag --modle; did you mean --model?");
  EXPECT_EQ(ErrorOf({"--max-num-seq=4"}),
            "unknown flag --max-num-seq; did you mean --max-num-seqs?");
  EXPECT_EQ(ErrorOf({"--grpc_port=4"}), "unknown flag --grpc_port; did you mean --grpc-port?");
  EXPECT_EQ(ErrorOf({"--zzzzzzzzzzzz"}), "unknown flag --zzzzzzzzzzzz; --help lists them all");
  EXPECT_EQ(ErrorOf({"--no-model"}), "unknown flag --no-model; did you mean --model?");
  EXPECT_EQ(ErrorOf({"model.gguf"}),
            "unexpected argument 'model.gguf'; flags start with --, see --help");
}

TEST(FlagsTest, WrongValueNamesFlagValueAndWhatIsAllowed) {
  EXPECT_EQ(ErrorOf({"--model=m", "--port=70000"}),
            "--port: '70000' is refused; allowed: a whole number from 0 to 65535");
  EXPECT_EQ(ErrorOf({"--model=m", "--max-num-seqs=many"}),
            "--max-num-seqs: 'many' is refused; allowed: a whole number from 1 to 65536");
  EXPECT_EQ(ErrorOf({"--model=m"}, {{"SERVAL_THREADS", "-1"}}),
            "SERVAL_THREADS: '-1' is refused; allowed: a whole number from 0 to 1024");
  EXPECT_EQ(ErrorOf({"--model=m", "--device=cuda"}),
            "--device: 'cuda' is refused; this build computes on the CPU only; allowed: auto, cpu");
  EXPECT_EQ(ErrorOf({"--model=m", "--kv-cache-dtype=int4"}),
            "--kv-cache-dtype: 'int4' is refused; allowed: auto, bf16, f16, f32 (or bfloat16, "
            "float16, float32)");
  EXPECT_EQ(ErrorOf({"--model=m", "--kv-cache-bytes=2GX"}),
            "--kv-cache-bytes: '2GX' is refused; allowed: a number of bytes such as 2GiB, 512MB or "
            "1073741824");
  EXPECT_EQ(ErrorOf({"--model=m", "--log-json=maybe"}),
            "--log-json: 'maybe' is refused; allowed: true or false");
  EXPECT_EQ(ErrorOf({"--model"}), "--model needs a value: PATH|NAME");
  EXPECT_EQ(ErrorOf({}), "--model is missing: name a .gguf file, see --help");
}

TEST(FlagsTest, ConfigFileErrors) {
  EXPECT_EQ(ErrorOf({"--config=/no/such.yaml"}), "--config /no/such.yaml: no such file");
  EXPECT_EQ(ErrorOf({"--config=/"}), "--config /: a directory; name a file");
  EXPECT_NE(ErrorOf({"--config=/proc/self/mem"}).find("--config /proc/self/mem: "),
            std::string::npos);
  const ConfigFile unknown("modle: x\n");
  EXPECT_EQ(ErrorOf({"--config", unknown.path()}),
            "unknown flag 'modle' in --config " + unknown.path() + "; did you mean --model?");
  const ConfigFile list("- a\n");
  EXPECT_EQ(ErrorOf({"--config", list.path()}),
            "--config " + list.path() + ": expected lines of the form 'flag: value'");
  const ConfigFile broken("a: [\n");
  EXPECT_NE(ErrorOf({"--config", broken.path()}).find("--config " + broken.path() + ": "),
            std::string::npos);
  const ConfigFile wrong("model: m\nport: x\n");
  EXPECT_EQ(ErrorOf({"--config", wrong.path()}),
            "'port' in --config " + wrong.path() +
                ": 'x' is refused; allowed: a whole number from 0 to 65535");
}

TEST(FlagsTest, HelpNamesEveryFlag) {
  const std::string help = HelpText();
  for (const Flag& flag : Flags()) {
    EXPECT_NE(help.find("--" + std::string(flag.name)), std::string::npos) << flag.name;
  }
  EXPECT_TRUE(Parse({"--help"})->help);
  EXPECT_TRUE(Parse({"-h"})->help);
  EXPECT_TRUE(Parse({"--version"})->version);
}

TEST(FlagValuesTest, Bytes) {
  EXPECT_EQ(*ParseBytes("0"), 0);
  EXPECT_EQ(*ParseBytes("1.5GiB"), 3LL << 29);
  EXPECT_EQ(*ParseBytes("64k"), 65536);
  EXPECT_EQ(*ParseBytes("2TB"), 2000000000000);
  for (const char* wrong : {"", "-1", "nan", "inf", "1e999", "GiB", "1 GiB", "1e30TB"}) {
    EXPECT_FALSE(ParseBytes(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace serval
