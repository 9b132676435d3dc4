// The other commands, and choosing among them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "clients/cli/table.h"
#include "tests/clients/run_cli.h"
#include "tests/clients/scripted_server.h"

namespace serval {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

TEST(Commands, HelpAndWrongNames) {
  EXPECT_EQ(RunInProcess({}).code, kUsage);
  EXPECT_THAT(RunInProcess({"--help"}).out,
              AllOf(HasSubstr("generate"), HasSubstr("models"), HasSubstr("stats")));
  EXPECT_THAT(RunInProcess({"--version"}).out, HasSubstr("serval 0."));
  const CliResult wrong = RunInProcess({"genrate"});
  EXPECT_EQ(wrong.code, kUsage);
  EXPECT_EQ(wrong.err, "serval: unknown command 'genrate'; did you mean 'generate'?\n");
  for (const char* command : {"generate", "models", "stats"}) {
    EXPECT_THAT(RunInProcess({command, "-h"}).out, HasSubstr("--target HOST:PORT"));
  }
}

v1::Model SomeModel() {
  v1::Model model;
  model.set_id("smol");
  model.set_architecture("llama");
  model.set_max_model_len(8192);
  model.set_vocab_size(49152);
  model.set_parameters(134'515'008);
  model.set_weight_bytes(96 << 20);
  model.set_memory_plan("default=paged");
  model.set_memory_plan_table("kind   4K\npaged  90 MiB");
  auto* memory = model.add_memory();
  memory->set_kind("paged");
  memory->set_layers(30);
  memory->set_bytes_per_token(23040);
  return model;
}

TEST(Models, Table) {
  ScriptedServer server;
  *server.models.add_models() = SomeModel();
  const CliResult result = RunInProcess({"models", "--target", server.Target()});
  EXPECT_EQ(result.code, kOk);
  EXPECT_EQ(result.out,
            "MODEL  ARCHITECTURE  CONTEXT  VOCABULARY  PARAMETERS   WEIGHTS\n"
            "smol   llama            8192       49152      134.5M  96.0 MiB\n"
            "\nMemory of smol:\nkind   4K\npaged  90 MiB\n");
}

TEST(Models, Json) {
  ScriptedServer server;
  *server.models.add_models() = SomeModel();
  const json answer =
      json::parse(RunInProcess({"models", "--json", "--target", server.Target()}).out);
  ASSERT_EQ(answer["models"].size(), 1u);
  EXPECT_EQ(answer["models"][0]["parameters"], 134515008);
  EXPECT_EQ(answer["models"][0]["memory"][0]["bytes_per_token"], 23040);
}

TEST(Stats, TableAndJson) {
  ScriptedServer server;
  server.stats.set_version("0.1.0");
  server.stats.set_uptime_seconds(3700);
  server.stats.set_prefix_cache_queries(8);
  server.stats.set_prefix_cache_hits(2);
  server.stats.set_resident_bytes(200 << 20);
  (*server.stats.mutable_finished())["stop"] = 3;
  (*server.stats.mutable_finished())["length"] = 1;
  server.stats.mutable_time_to_first_token()->set_p99_seconds(0.25);
  auto* bank = server.stats.add_banks();
  bank->set_kind("paged");
  bank->set_capacity_bytes(1 << 30);
  const CliResult table = RunInProcess({"stats", "--target", server.Target()});
  EXPECT_EQ(table.code, kOk);
  EXPECT_THAT(table.out,
              AllOf(HasSubstr("length 1, stop 3"), HasSubstr("1 h 1 min"), HasSubstr("25.0 %"),
                    HasSubstr("200.0 MiB"), HasSubstr("1.0 GiB"), HasSubstr("250.0 ms")));
  const json answer =
      json::parse(RunInProcess({"stats", "--json", "--target", server.Target()}).out);
  EXPECT_EQ(answer["finished"]["stop"], 3);
  EXPECT_EQ(answer["banks"][0]["capacity_bytes"], 1 << 30);
  EXPECT_EQ(answer["time_to_first_token"]["p99_seconds"], 0.25);
}

TEST(Stats, FailuresAreExplained) {
  ScriptedServer server;
  server.status = {grpc::StatusCode::UNAVAILABLE, "the model is loading"};
  for (const char* command : {"models", "stats"}) {
    const CliResult result = RunInProcess({command, "--target", server.Target()});
    EXPECT_EQ(result.code, kFailed);
    EXPECT_THAT(result.err, HasSubstr("is not ready (the model is loading)"));
  }
}

TEST(Tables, Quantities) {
  EXPECT_EQ(ShowBytes(1023), "1023 B");
  EXPECT_EQ(ShowBytes(1536), "1.5 KiB");
  EXPECT_EQ(ShowCount(999), "999");
  EXPECT_EQ(ShowCount(1'500'000'000), "1.5B");
  EXPECT_EQ(ShowDuration(0.0352), "35.2 ms");
  EXPECT_EQ(ShowDuration(12), "12.0 s");
  EXPECT_EQ(ShowDuration(120), "2 min");
}

}  // namespace
}  // namespace serval
