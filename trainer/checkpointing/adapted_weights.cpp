#include "trainer/checkpointing/adapted_weights.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoints/checksum.h"
#include "checkpoints/peft_folder.h"
#include "checkpoints/reader.h"
#include "configs/adapter.h"
#include "kernels/system/check.h"
#include "kernels/system/json.h"
#include "trainer/checkpointing/weight_source.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

std::vector<float> whole(TensorSource& source, const std::string& name) {
  const TensorShard shard = whole_tensor(name, source.shape(name));
  std::vector<float> values(static_cast<size_t>(shard.numel()));
  source.read(shard, values.data());
  return values;
}

}  // namespace

std::string weights_fingerprint(TensorSource& weights, ModelConfig model) {
  constexpr int64_t blocks = 16, size = 4096;
  model.adapter = {};
  model.freeze.clear();
  Checksum sum;
  std::vector<float> values(size);
  for (const StoredParameter& p : stored_parameters(model)) {
    const std::string name = std::string(parameters_path) + p.name;
    const TensorShard all = whole_tensor(name, p.shape);
    const std::string said = describe(all);
    sum.add(said.data(), std::ssize(said));
    const int64_t numel = all.numel(), count = numel <= blocks * size ? (numel + size - 1) / size : blocks;
    for (int64_t block = 0; block < count; block++) {
      // The last block ends with the tensor.
      const int64_t begin = numel <= blocks * size ? block * size : (numel - size) / (blocks - 1) * block;
      const int64_t end = block + 1 == count ? numel : std::min(begin + size, numel);
      const int64_t first = std::max(begin, end - size);
      weights.read(flat_shard(name, p.shape, {first, end}), values.data());
      sum.add(values.data(), (end - first) * static_cast<int64_t>(sizeof(float)));
    }
  }
  return hex(sum.value());
}

nlohmann::json describe_adapter(const AdapterConfig& adapter, const BaseWeights& base, const std::string& checkpoint) {
  const fs::path from = fs::absolute(checkpoint).lexically_normal();
  return {{"base",
           {{"path", base.path},
            {"path_from_here", fs::path(base.path).lexically_relative(from).string()},
            {"fingerprint", base.fingerprint}}},
          {"adapter",
           {{"rank", adapter.rank},
            {"alpha", adapter.alpha},
            {"dropout", adapter.dropout},
            {"target_modules", adapter.target_modules}}}};
}

std::optional<BaseWeights> base_of(const Manifest& manifest, const std::string& checkpoint) {
  if (!manifest.state.contains("base")) return {};
  try {
    const nlohmann::json& base = manifest.state.at("base");
    BaseWeights found{base.at("path").get<std::string>(), base.at("fingerprint").get<std::string>()};
    const fs::path moved = (fs::absolute(checkpoint) / base.at("path_from_here").get<std::string>()).lexically_normal();
    std::error_code absent;
    if (!fs::is_directory(found.path, absent) && fs::is_directory(moved, absent)) found.path = moved.string();
    return found;
  } catch (const nlohmann::json::exception& e) {
    FAIL("checkpoint {}: its manifest does not name a base ({}); was it written by another program?", checkpoint,
         e.what());
  }
}

AdapterConfig adapter_of(const Manifest& manifest, const std::string& checkpoint) {
  AdapterConfig adapter;
  try {
    const nlohmann::json& there = manifest.state.at("adapter");
    adapter.rank = whole_number(there.at("rank"));
    adapter.alpha = there.at("alpha").get<double>();
    adapter.dropout = there.at("dropout").get<double>();
    adapter.target_modules = there.at("target_modules").get<std::string>();
  } catch (const nlohmann::json::exception& e) {
    FAIL("checkpoint {}: its manifest does not describe its adapters ({}); was it written by another program?",
         checkpoint, e.what());
  }
  CHECK(adapter.rank > 0 && adapter.rank <= 65536, "checkpoint {}: its adapters have rank {}, expected 1 to 65536",
        checkpoint, adapter.rank);
  return adapter;
}

void check_base(const std::string& what, const BaseWeights& base, const std::string& path, TensorSource& weights,
                const ModelConfig& model) {
  const std::string found = weights_fingerprint(weights, model);
  CHECK(found == base.fingerprint,
        "{} has adapters of a base with the fingerprint {}, {}, but {} has {}; set checkpoint.init_from to the weights "
        "that they were trained with",
        what, base.fingerprint, base.path, path, found);
}

MergedSource::MergedSource(std::unique_ptr<TensorSource> base, TensorSource& adapters, const ModelConfig& model)
    : base_(std::move(base)), rank_(model.adapter.rank) {
  for (int64_t layer = 0; layer < model.layers; layer++)
    for (const AdapterModule& module : adapted_modules(model)) {
      const std::string stem = fmt::format("{}h.{}.{}", parameters_path, layer, module.linear);
      const auto [place, first] = added_.try_emplace(stem + ".weight");
      Added& added = place->second;
      if (first) {
        const std::vector<int64_t> shape = base_->shape(stem + ".weight");
        added.a = whole(adapters, stem + std::string(adapter_a));
        added.b = whole(adapters, stem + std::string(adapter_b));
        for (float& b : added.b) b *= static_cast<float>(model.adapter.scale());
        added.in = shape[1];
        added.row_of_b.assign(static_cast<size_t>(shape[0]), -1);
        added.part_of.assign(static_cast<size_t>(shape[0]), 0);
      }
      int64_t row = 0, next = 1 + *std::ranges::max_element(added.row_of_b);
      const int64_t part = 1 + *std::ranges::max_element(added.part_of);
      for (const AdapterModule& before : adapter_modules(model))
        if (before.linear == module.linear && before.part < module.part) row += rows_of(before, model);
      for (int64_t end = row + rows_of(module, model); row < end; row++) {
        added.row_of_b[static_cast<size_t>(row)] = next++;
        added.part_of[static_cast<size_t>(row)] = first ? 0 : part;
      }
    }
}

void MergedSource::read(const TensorShard& wanted, float* out) {
  base_->read(wanted, out);
  const auto found = added_.find(wanted.name);
  if (found == added_.end()) return;
  const Added& added = found->second;
  const int64_t width = wanted.columns.size();
  for (int64_t at = wanted.elements.begin; at < wanted.elements.end;) {
    const auto row = static_cast<size_t>(at / width);
    const int64_t column = wanted.columns.begin + at % width;
    const int64_t count = std::min(width - at % width, wanted.elements.end - at);
    if (const int64_t b = added.row_of_b[row]; b >= 0)
      for (int64_t k = 0; k < rank_; k++) {
        const float factor = added.b[static_cast<size_t>(b * rank_ + k)];
        const float* a = added.a.data() + (added.part_of[row] * rank_ + k) * added.in + column;
        for (int64_t i = 0; i < count; i++) out[i] += factor * a[i];
      }
    out += count;
    at += count;
  }
}

std::unique_ptr<TensorSource> open_adapters(const std::string& path, const ModelConfig& model) {
  CHECK(fs::is_directory(path),
        "adapter.init_from = {} is not a folder; name a folder of PEFT, or a run with adapters or its checkpoint",
        path);
  if (is_peft_folder(path)) return std::make_unique<MemorySource>(read_peft(path, model));
  auto reader = std::make_unique<CheckpointReader>(find_checkpoint(path));
  const AdapterConfig there = adapter_of(reader->manifest(), reader->folder()), &here = model.adapter;
  CHECK(there.rank == here.rank && there.alpha == here.alpha && there.target_modules == here.target_modules,
        "{} has adapters of rank {} with alpha {}, but this run of rank {} with alpha {}, or for other layers; set "
        "adapter.rank, adapter.alpha and adapter.target_modules to match it",
        reader->folder(), there.rank, there.alpha, here.rank, here.alpha);
  return reader;
}

}  // namespace megalith
