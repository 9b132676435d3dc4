#include "tests/support/tiny_gguf.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "kernels/core.h"

namespace serval {
namespace {

using Random = std::mt19937;

float Normal(Random& random, float deviation) {
  return std::normal_distribution<float>(0.0f, deviation)(random);
}

// `rows` rows of `in` random elements of about the given standard deviation.
std::string RandomRows(uint32_t type, int64_t rows, int64_t in, float deviation, Random& random) {
  std::string data;
  if (type == kGgmlF32 || type == kGgmlF16 || type == kGgmlBF16) {
    for (int64_t i = 0; i < rows * in; ++i) {
      const float value = Normal(random, deviation);
      data += type == kGgmlF32 ? RawNumber(value)
                               : RawNumber(type == kGgmlF16 ? F32ToF16(value) : F32ToBF16(value));
    }
    return data;
  }
  const bool wide = type == kGgmlQ8_0;
  const float step =
      deviation / (wide ? 73.0f : 4.6f);  // of uniform quants: 256 / sqrt(12), 16 / sqrt(12)
  for (int64_t block = 0; block < rows * in / 32; ++block) {
    data += RawNumber(F32ToF16(step * (1.0f + 0.2f * Normal(random, 1.0f))));
    if (type == kGgmlQ4_1) data += RawNumber(F32ToF16(-7.5f * step));
    for (int i = 0; i < (wide ? 32 : 16); ++i) data += static_cast<char>(random());
  }
  return data;
}

void AddMatrix(GgufWriter& file, const std::string& name, uint32_t type, int out, int in,
               Random& random) {
  const float deviation = 1.0f / std::sqrt(static_cast<float>(in));
  file.tensors.push_back({name,
                          type,
                          {uint64_t(in), uint64_t(out)},
                          RandomRows(type, out, in, deviation, random),
                          {}});
}

void AddNorm(GgufWriter& file, const std::string& name, int size, Random& random) {
  std::string data;
  for (int i = 0; i < size; ++i) data += RawNumber(1.0f + Normal(random, 0.2f));
  file.tensors.push_back({name, kGgmlF32, {uint64_t(size)}, data, {}});
}

void AddTokenizer(GgufWriter& file, int vocab) {
  std::vector<std::string> tokens = {"<|end|>"};
  std::vector<int32_t> types = {3};
  int shifted =
      256;  // byte-level BPE: a byte that does not print stands as a character from U+0100 on
  for (int byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const int code = prints ? byte : shifted++;
    tokens.push_back(code < 0x80 ? std::string(1, static_cast<char>(code))
                                 : std::string{static_cast<char>(0xC0 | code >> 6),
                                               static_cast<char>(0x80 | (code & 63))});
  }
  while (static_cast<int>(tokens.size()) < vocab) {
    tokens.push_back("<|extra" + std::to_string(tokens.size()) + "|>");
  }
  types.resize(tokens.size(), 1);
  file.Text("tokenizer.ggml.model", "gpt2");
  file.Text("tokenizer.ggml.pre", "smollm");
  file.Texts("tokenizer.ggml.tokens", tokens);
  file.I32s("tokenizer.ggml.token_type", types);
  file.Texts("tokenizer.ggml.merges", {});
  file.U32("tokenizer.ggml.eos_token_id", 0);
}

void AddConfig(GgufWriter& file, const TinyLlama& model) {
  file.Text("general.architecture", "llama");
  file.Text("general.name", "Tiny");
  file.U32("llama.block_count", model.layers);
  file.U32("llama.context_length", 512);
  file.U32("llama.embedding_length", model.hidden);
  file.U32("llama.feed_forward_length", model.feed_forward);
  file.U32("llama.attention.head_count", model.heads);
  file.U32("llama.attention.head_count_kv", model.kv_heads);
  if (model.head_dim * model.heads != model.hidden) {
    file.U32("llama.attention.key_length", model.head_dim);
    file.U32("llama.attention.value_length", model.head_dim);
  }
  file.F32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  file.F32("llama.rope.freq_base", 10000.0f);
  file.U32("llama.rope.dimension_count", model.rotary ? model.rotary : model.head_dim);
  if (model.linear_scaling > 0) {
    file.Text("llama.rope.scaling.type", "linear");
    file.F32("llama.rope.scaling.factor", model.linear_scaling);
  }
}

void AddLayer(GgufWriter& file, const TinyLlama& model, int layer, Random& random) {
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  const int q = model.heads * model.head_dim, kv = model.kv_heads * model.head_dim;
  const auto matrix = [&](const char* name, int out, int in) {
    AddMatrix(file, prefix + name, model.matrices, out, in, random);
  };
  AddNorm(file, prefix + "attn_norm.weight", model.hidden, random);
  matrix("attn_q.weight", q, model.hidden);
  matrix("attn_k.weight", kv, model.hidden);
  matrix("attn_v.weight", kv, model.hidden);
  matrix("attn_output.weight", model.hidden, q);
  AddNorm(file, prefix + "ffn_norm.weight", model.hidden, random);
  matrix("ffn_gate.weight", model.feed_forward, model.hidden);
  matrix("ffn_up.weight", model.feed_forward, model.hidden);
  matrix("ffn_down.weight", model.hidden, model.feed_forward);
}

template <class Items>
auto FindNamed(Items& items, std::string_view name, std::string Items::value_type::*field) {
  return std::find_if(items.begin(), items.end(),
                      [&](const auto& item) { return item.*field == name; });
}

}  // namespace

std::string RawString(std::string_view text) {
  return RawNumber(uint64_t{text.size()}).append(text);
}

void GgufWriter::Texts(const std::string& key, const std::vector<std::string>& items) {
  std::string raw = RawNumber(uint32_t{kGgufString}) + RawNumber(uint64_t{items.size()});
  for (const std::string& item : items) raw += RawString(item);
  values.push_back({key, kGgufArray, raw});
}

void GgufWriter::I32s(const std::string& key, const std::vector<int32_t>& items) {
  std::string raw = RawNumber(uint32_t{kGgufI32}) + RawNumber(uint64_t{items.size()});
  for (const int32_t item : items) raw += RawNumber(item);
  values.push_back({key, kGgufArray, raw});
}

GgufWriter::Value& GgufWriter::value(std::string_view key) {
  const auto found = FindNamed(values, key, &Value::key);
  SERVAL_CHECK(found != values.end(), "no such key");
  return *found;
}

GgufWriter::Tensor& GgufWriter::tensor(std::string_view name) {
  const auto found = FindNamed(tensors, name, &Tensor::name);
  SERVAL_CHECK(found != tensors.end(), "no such tensor");
  return *found;
}

void GgufWriter::Remove(std::string_view key_or_name) {
  std::erase_if(values, [&](const Value& value) { return value.key == key_or_name; });
  std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == key_or_name; });
}

std::string GgufWriter::Bytes() const {
  std::string out = magic + RawNumber(version) + RawNumber(tensor_count.value_or(tensors.size())) +
                    RawNumber(value_count.value_or(values.size()));
  for (const Value& value : values) out += RawString(value.key) + RawNumber(value.type) + value.raw;
  std::string data;
  for (const Tensor& tensor : tensors) {
    out += RawString(tensor.name) + RawNumber(static_cast<uint32_t>(tensor.shape.size()));
    for (const uint64_t dim : tensor.shape) out += RawNumber(dim);
    out += RawNumber(tensor.type) + RawNumber(tensor.offset.value_or(data.size()));
    data += tensor.data;
    data.resize((data.size() + alignment - 1) / alignment * alignment);
  }
  out.resize((out.size() + alignment - 1) / alignment * alignment);
  return out + data;
}

GgufWriter WriteTinyLlama(const TinyLlama& model) {
  SERVAL_CHECK_GE(model.vocab, 257);
  GgufWriter file;
  Random random(model.seed);
  AddConfig(file, model);
  AddTokenizer(file, model.vocab);
  AddMatrix(file, "token_embd.weight", model.embedding, model.vocab, model.hidden, random);
  for (int layer = 0; layer < model.layers; ++layer) AddLayer(file, model, layer, random);
  AddNorm(file, "output_norm.weight", model.hidden, random);
  if (!model.tied) {
    AddMatrix(file, "output.weight", model.matrices, model.vocab, model.hidden, random);
  }
  if (model.rope_factors) {
    const int pairs = (model.rotary ? model.rotary : model.head_dim) / 2;
    std::string factors;
    for (int i = 0; i < pairs; ++i) factors += RawNumber(1.0f + 0.5f * static_cast<float>(i));
    file.tensors.push_back({"rope_freqs.weight", kGgmlF32, {uint64_t(pairs)}, factors, {}});
  }
  return file;
}

TemporaryFile::TemporaryFile(const std::string& bytes) {
  path_ = (std::filesystem::temp_directory_path() / "serval-XXXXXX.gguf").string();
  const int fd = mkstemps(path_.data(), 5);
  SERVAL_CHECK(fd >= 0, "no temporary file");
  close(fd);
  Write(bytes);
}

TemporaryFile::~TemporaryFile() { unlink(path_.c_str()); }

void TemporaryFile::Write(const std::string& bytes) const {
  std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace serval
