#include "checkpoints/decoder_folder.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "checkpoints/decoder_family.h"
#include "kernels/system/check.h"

namespace megalith {
namespace {

// Buffers, which old versions of `transformers` saved like weights.
bool is_buffer(const std::string& name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with("attention.bias") ||
         name.ends_with("attention.masked_bias");
}

std::string path_of(const std::string& name) { return std::string(parameters_path) + name; }

}  // namespace

DecoderReader::DecoderReader(const std::string& folder, const ModelConfig& model,
                             const std::vector<StoredParameter>& parameters)
    : tensors_(folder), heads_(model.heads), head_size_(model.size_of_head()) {
  const auto name_in = [&](const char* type, const char* ours) {
    return decoder_tensors(type, model, ours, {model.vocab, model.hidden}).front().name;
  };
  // Tensors are named as Llama's in all families except GPT-NeoX.
  const char* type = tensors_.files().contains(name_in("gpt_neox", "wte.weight")) ? "gpt_neox" : "llama";
  std::set<std::string> unclaimed;
  for (const auto& [name, file] : tensors_.files()) unclaimed.insert(name);
  for (const StoredParameter& p : parameters) {
    Stored stored{p.shape, decoder_tensors(type, model, p.name, p.shape), is_head_by_head(type, p.name)};
    for (const DecoderTensor& t : stored.tensors) {
      CHECK(unclaimed.contains(t.name), "{} has no {}, a parameter of the model in its config.json", tensors_.path(),
            t.name);
      unclaimed.erase(t.name);
      const SafeTensors::Entry& e = tensors_.entry(t.name);
      CHECK(e.dtype == "F32" || e.dtype == "F16" || e.dtype == "BF16",
            "{}: {} is stored as {}; F32, F16 and BF16 can be read", tensors_.path(), t.name, e.dtype);
      CHECK(e.shape == t.shape, "{}: {} has shape ({}), expected ({}) from config.json", tensors_.path(), t.name,
            fmt::join(e.shape, ", "), fmt::join(t.shape, ", "));
    }
    stored_.emplace(path_of(p.name), std::move(stored));
  }
  const std::string head = name_in(type, "lm_head.weight");
  if (unclaimed.erase(head) > 0) check_tied(head);
  for (const std::string& name : unclaimed)
    CHECK(is_buffer(name), "{} has {}, which is not a parameter of the model in its config.json", tensors_.path(),
          name);
}

void DecoderReader::check_tied(const std::string& head) const {
  const Stored& table = stored(path_of("wte.weight"));
  const int64_t rows = table.shape[0], cols = table.shape[1];
  CHECK(tensors_.entry(head).shape == table.shape, "{}: {} has another shape than the embedding", tensors_.path(),
        head);
  std::vector<float> a(static_cast<size_t>(cols)), b(a.size());
  for (int64_t row = 0; row < rows; row++) {
    tensors_.read(head, row * cols, 1, cols, a.data());
    tensors_.read(table.tensors.front().name, row * cols, 1, cols, b.data());
    CHECK(a == b,
          "{}: row {} of {} differs from the embedding, and config.json has tie_word_embeddings = true; set false "
          "there if the head has its own matrix",
          tensors_.path(), row, head);
  }
}

const DecoderReader::Stored& DecoderReader::stored(const std::string& name) const {
  const auto it = stored_.find(name);
  CHECK(it != stored_.end(), "{} has no {}", tensors_.path(), name);
  return it->second;
}

std::vector<int64_t> DecoderReader::shape(const std::string& name) const { return stored(name).shape; }

void DecoderReader::read(const TensorShard& wanted, float* out) {
  check_shard(wanted);
  const Stored& s = stored(wanted.name);
  CHECK(s.shape == wanted.shape, "{}: {} has shape ({}), expected ({}); is it another model?", tensors_.path(),
        wanted.name, fmt::join(s.shape, ", "), fmt::join(wanted.shape, ", "));
  // Split by output features: a vector has one column, which a shard counts as one row.
  const bool vector = s.shape.size() == 1;
  const int64_t cols = vector ? 1 : s.shape[1], width = vector ? 1 : wanted.columns.size();
  const int64_t first_col = vector ? 0 : wanted.columns.begin, shift = vector ? wanted.columns.begin : 0;
  for (int64_t position = wanted.elements.begin; position < wanted.elements.end;) {
    const int64_t row = shift + position / width, skipped = position % width, col = first_col + skipped;
    int64_t rows = 1, count = std::min(width - skipped, wanted.elements.end - position);
    auto tensor = std::prev(std::ranges::upper_bound(s.tensors, row, {}, &DecoderTensor::first_row));
    int64_t theirs = row - tensor->first_row;
    if (s.head_by_head) {
      theirs = row_head_by_head(row, heads_, head_size_);
    } else if (width == cols && skipped == 0) {  // a run of contiguous whole rows
      const int64_t end = std::next(tensor) == s.tensors.end() ? s.shape[0] : std::next(tensor)->first_row;
      rows = std::max<int64_t>(1, std::min(end - row, (wanted.elements.end - position) / width));
      if (rows > 1) count = rows * width;
    }
    tensors_.read(tensor->name, theirs * cols + col, 1, count, out);
    out += count;
    position += count;
  }
}

}  // namespace megalith
