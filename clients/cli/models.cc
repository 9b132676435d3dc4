// `serval models`: what a server serves.
#include <nlohmann/json.hpp>
#include <ostream>

#include "clients/cli/command.h"
#include "clients/cli/table.h"
#include "clients/common/rpc.h"
#include "serval/v1/models.grpc.pb.h"

namespace serval {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kName[] = "models";

Json ToJson(const v1::Model& model) {
  Json memory = Json::array();
  for (const v1::MemoryBytes& kind : model.memory()) {
    memory.push_back({{"kind", kind.kind()},
                      {"layers", kind.layers()},
                      {"bytes_per_token", kind.bytes_per_token()},
                      {"bytes_per_sequence", kind.bytes_per_sequence()},
                      {"capacity_bytes", kind.capacity_bytes()}});
  }
  return {{"id", model.id()},
          {"architecture", model.architecture()},
          {"max_model_len", model.max_model_len()},
          {"vocab_size", model.vocab_size()},
          {"parameters", model.parameters()},
          {"weight_bytes", model.weight_bytes()},
          {"created", model.created()},
          {"memory_plan", model.memory_plan()},
          {"memory", memory},
          {"chat_template", model.chat_template()}};
}

std::string ToText(const v1::ListModelsResponse& response) {
  Table table({"MODEL", "ARCHITECTURE", ">CONTEXT", ">VOCABULARY", ">PARAMETERS", ">WEIGHTS"});
  std::string plans;
  for (const v1::Model& model : response.models()) {
    table.Row({model.id(), model.architecture(), std::to_string(model.max_model_len()),
               std::to_string(model.vocab_size()), ShowCount(model.parameters()),
               ShowBytes(model.weight_bytes())});
    if (!model.memory_plan_table().empty()) {
      plans += "\nMemory of " + model.id() + ":\n" + model.memory_plan_table();
      if (!plans.ends_with('\n')) plans += '\n';
    }
  }
  return table.Text() + plans;
}

}  // namespace

int RunModels(Args args, Io io) {
  Server server = DefaultServer();
  bool json = false;
  FlagSet flags("serval models [FLAGS]",
                "Lists what a serval-server serves, with context length, size and memory plan.");
  flags.Section("Output");
  flags.AddSwitch("json", "one JSON object: models", [&](bool on) { json = on; });
  AddServerFlags(flags, server);
  int code = kOk;
  if (!ParseOrExplain(flags, kName, args, io, &code)) return code;

  auto stub = v1::Models::NewStub(Connect(server));
  grpc::ClientContext context;
  SetDeadline(server, context);
  v1::ListModelsResponse response;
  const grpc::Status status = stub->ListModels(&context, {}, &response);
  if (!status.ok()) return Fail(io, kName, Explain(server, status), kFailed);
  if (json) {
    Json models = Json::array();
    for (const v1::Model& model : response.models()) models.push_back(ToJson(model));
    io.out << Json{{"models", models}}.dump(2, ' ', false, Json::error_handler_t::replace)
           << std::endl;
  } else {
    io.out << ToText(response) << std::flush;
  }
  return kOk;
}

}  // namespace serval
