#include "models/weights.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/gguf_types.h"

namespace serval {
namespace {

constexpr int64_t kAlign = 64;
constexpr int64_t kPanelRows = 16;
constexpr int64_t kPieceBytes = 1 << 20;  // of work handed to a worker at once
constexpr auto kProgressInterval = std::chrono::milliseconds(100);

// One tensor on its way from the file into memory.
struct Item {
  const GgufTensor* from;
  Weight* matrix;  // one of the two is set
  TensorView* vector;
  int64_t to;  // offset in memory
};

// Rows [row, row + rows) of an item: a whole number of panels, but for the last.
struct Piece {
  const Item* item;
  int64_t row, rows;
};

// Collects what the config asks for and checks that the file has it so. The first error sticks.
class Plan {
 public:
  explicit Plan(const GgufFile& file) : file_(file) {}

  void Matrix(const std::string& name, int64_t out, int64_t in, Weight* to) {
    const GgufTensor* tensor = Check(name, {in, out});
    if (tensor == nullptr) return;
    *to = Weight{nullptr, tensor->dtype, WeightLayout::kPanels, out, in};
    Add(Item{tensor, to, nullptr, 0}, WeightBytes(tensor->dtype, WeightLayout::kPanels, out, in));
    parameters_ += out * in;
  }
  void Vector(const std::string& name, int64_t size, TensorView* to) {
    const GgufTensor* tensor = Check(name, {size});
    if (tensor == nullptr) return;
    *to = TensorView(nullptr, DType::kF32, {size});
    Add(Item{tensor, nullptr, to, 0}, size * 4);
    parameters_ += size;
  }

  const absl::Status& status() const { return status_; }
  const std::vector<Item>& items() const { return items_; }
  int64_t bytes() const { return bytes_; }
  int64_t parameters() const { return parameters_; }

 private:
  static std::string ShapeText(const std::vector<int64_t>& shape) {
    std::string text;
    for (const int64_t dim : shape) absl::StrAppend(&text, text.empty() ? "[" : ", ", dim);
    return text + "]";
  }

  const GgufTensor* Check(const std::string& name, const std::vector<int64_t>& shape) {
    if (!status_.ok()) return nullptr;
    const GgufTensor* tensor = file_.FindTensor(name);
    std::string what;
    if (tensor == nullptr) {
      what = absl::StrCat(" is missing, expected shape ", ShapeText(shape));
    } else if (tensor->shape != shape) {
      what =
          absl::StrCat(": expected shape ", ShapeText(shape), ", found ", ShapeText(tensor->shape));
    } else if (!tensor->supported) {
      what = absl::StrCat(": type ", std::string(tensor->type_name),
                          " is not supported; supported: ", SupportedGgmlTypes());
    } else {
      return tensor;
    }
    status_ =
        absl::InvalidArgumentError(absl::StrCat(file_.path(), ": tensor ", Quoted(name), what));
    return nullptr;
  }

  void Add(Item item, int64_t bytes) {
    item.to = bytes_;
    items_.push_back(item);
    bytes_ += (bytes + kAlign - 1) / kAlign * kAlign;
  }

  const GgufFile& file_;
  absl::Status status_;
  std::vector<Item> items_;
  int64_t bytes_ = 0;
  int64_t parameters_ = 0;
};

void PlanLayer(const ModelConfig& config, const std::string& prefix, LayerWeights& layer,
               Plan& plan) {
  const int64_t hidden = config.hidden, feed_forward = config.feed_forward;
  plan.Vector(prefix + "attn_norm.weight", hidden, &layer.attention_norm);
  plan.Matrix(prefix + "attn_q.weight", config.q_dim(), hidden, &layer.q);
  plan.Matrix(prefix + "attn_k.weight", config.kv_dim(), hidden, &layer.k);
  plan.Matrix(prefix + "attn_v.weight", config.kv_dim(), hidden, &layer.v);
  plan.Matrix(prefix + "attn_output.weight", hidden, config.q_dim(), &layer.o);
  plan.Vector(prefix + "ffn_norm.weight", hidden, &layer.feed_forward_norm);
  plan.Matrix(prefix + "ffn_gate.weight", feed_forward, hidden, &layer.gate);
  plan.Matrix(prefix + "ffn_up.weight", feed_forward, hidden, &layer.up);
  plan.Matrix(prefix + "ffn_down.weight", hidden, feed_forward, &layer.down);
}

std::vector<Piece> Cut(const std::vector<Item>& items) {
  std::vector<Piece> pieces;
  for (const Item& item : items) {
    const int64_t rows = item.matrix ? item.matrix->out : 1;
    const int64_t panels = kPieceBytes / (item.from->bytes / rows * kPanelRows);
    const int64_t step = std::max<int64_t>(1, panels) * kPanelRows;
    for (int64_t row = 0; row < rows; row += step) {
      pieces.push_back({&item, row, std::min(step, rows - row)});
    }
  }
  return pieces;
}

// Panels of whole 16-row groups stand one after another, so a piece is a smaller matrix of its own.
void PackPiece(const Piece& piece, std::byte* memory) {
  const Item& item = *piece.item;
  if (item.vector != nullptr) {
    const int64_t size = item.vector->dim(0);
    const Weight row{item.from->data, item.from->dtype, WeightLayout::kRows, 1, size};
    return DequantiseRow(row, 0, reinterpret_cast<float*>(memory + item.to));
  }
  const Weight& whole = *item.matrix;
  const auto* from = static_cast<const std::byte*>(item.from->data);
  PackPanels(
      {from + piece.row * RowBytes(whole.dtype, whole.in), whole.dtype, WeightLayout::kRows,
       piece.rows, whole.in},
      memory + item.to + WeightBytes(whole.dtype, WeightLayout::kPanels, piece.row, whole.in));
}

void PackAll(const GgufFile& file, const Plan& plan, std::byte* memory, ThreadPool& pool,
             const std::function<void(int64_t, int64_t)>& progress) {
  const std::vector<Piece> pieces = Cut(plan.items());
  int64_t total = 0;
  for (const Item& item : plan.items()) total += item.from->bytes;
  std::atomic<int64_t> done = 0;
  auto last = std::chrono::steady_clock::now();
  pool.ParallelFor(static_cast<int64_t>(pieces.size()), [&](int64_t task, int worker) {
    const Piece& piece = pieces[task];
    PackPiece(piece, memory);
    const GgufTensor& from = *piece.item->from;
    const int64_t row_bytes =
        piece.item->matrix ? from.bytes / piece.item->matrix->out : from.bytes;
    const int64_t bytes = row_bytes * piece.rows;
    file.DropPages(static_cast<const std::byte*>(from.data) + piece.row * row_bytes, bytes);
    done.fetch_add(bytes, std::memory_order_relaxed);
    if (worker != 0 || !progress) return;  // worker 0 is the loading thread
    const auto now = std::chrono::steady_clock::now();
    if (now - last < kProgressInterval) return;
    last = now;
    progress(done.load(std::memory_order_relaxed), total);
  });
  if (progress) progress(total, total);
}

}  // namespace

absl::StatusOr<ModelWeights> LoadWeights(const GgufFile& file, const ModelConfig& config,
                                         ThreadPool& pool,
                                         const std::function<void(int64_t, int64_t)>& progress) {
  ModelWeights weights;
  weights.layers.resize(config.layers);
  Plan plan(file);
  plan.Matrix("token_embd.weight", config.vocab, config.hidden, &weights.embedding);
  for (int i = 0; i < config.layers; ++i) {
    PlanLayer(config, absl::StrCat("blk.", i, "."), weights.layers[i], plan);
  }
  plan.Vector("output_norm.weight", config.hidden, &weights.output_norm);
  const bool tied = file.FindTensor("output.weight") == nullptr;
  if (!tied) plan.Matrix("output.weight", config.vocab, config.hidden, &weights.head);
  if (!plan.status().ok()) return plan.status();

  weights.memory = Mapping(plan.bytes());
  if (weights.memory.data() == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(file.path(), ": no memory for ", plan.bytes(),
                                                     " bytes of weights; use a smaller model"));
  }
  madvise(weights.memory.data(), plan.bytes(), MADV_HUGEPAGE);  // fewer TLB misses; fine if refused
  PackAll(file, plan, weights.memory.data(), pool, progress);
  for (const Item& item : plan.items()) {
    if (item.matrix != nullptr) item.matrix->data = weights.memory.data() + item.to;
    if (item.vector != nullptr) item.vector->data = weights.memory.data() + item.to;
  }
  if (tied) weights.head = weights.embedding;
  weights.parameters = plan.parameters();
  return weights;
}

}  // namespace serval
