// What is served once loading is over. Thread rule: const after construction; the engine and the
// tokenizer have their own rules.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "models/tokenizer.h"

namespace serval {

struct ServedModel {
  std::string name;  // what clients call it
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<Engine> engine;
  std::string chat_template;
  int64_t created = 0;  // Unix seconds
  int64_t longest_token_bytes =
      0;  // no token stands for more bytes: bounds the prompts that can fit
};

// Fills `created` and `longest_token_bytes`.
std::unique_ptr<const ServedModel> MakeServedModel(std::string name,
                                                   std::shared_ptr<const Tokenizer> tokenizer,
                                                   std::unique_ptr<Engine> engine,
                                                   std::string chat_template);

}  // namespace serval
