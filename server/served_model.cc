#include "server/served_model.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace serval {

std::unique_ptr<const ServedModel> MakeServedModel(std::string name,
                                                   std::shared_ptr<const Tokenizer> tokenizer,
                                                   std::unique_ptr<Engine> engine,
                                                   std::string chat_template) {
  auto model = std::make_unique<ServedModel>();
  model->name = std::move(name);
  model->tokenizer = std::move(tokenizer);
  model->engine = std::move(engine);
  model->chat_template = std::move(chat_template);
  model->created = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  for (int32_t id = 0; id < model->tokenizer->vocab_size(); ++id) {
    model->longest_token_bytes =
        std::max<int64_t>(model->longest_token_bytes, std::ssize(model->tokenizer->TokenBytes(id)));
  }
  return model;
}

}  // namespace serval
