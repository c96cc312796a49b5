// Checkpoints of runs with adapters hold only the adapters, and name the base by its path and its fingerprint.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/manifest.h"
#include "checkpoints/tensor_source.h"
#include "configs/config.h"

namespace megalith {

// Returns a hash of the model's weights by name and shape, and of 16 evenly spaced blocks of 4096 elements of each, or
// of all elements if there are no more. It distinguishes a model from one that was trained further, whatever files hold
// it, but not from one with a few changed elements in a large matrix. `model` has no adapters.
std::string weights_fingerprint(TensorSource& weights, ModelConfig model);

struct BaseWeights {
  std::string path;         // absolute
  std::string fingerprint;  // weights_fingerprint()
};
// Writes and reads the keys "base" and "adapter" of a manifest's state. `checkpoint` is its folder; the base's path is
// also stored relative to it.
nlohmann::json describe_adapter(const AdapterConfig& adapter, const BaseWeights& base, const std::string& checkpoint);
// Returns nullopt if the checkpoint holds all weights. The path is the one of the two that exists, or the absolute one.
std::optional<BaseWeights> base_of(const Manifest& manifest, const std::string& checkpoint);
AdapterConfig adapter_of(const Manifest& manifest, const std::string& checkpoint);

// Throws Error, with both fingerprints, unless the weights are the base of the checkpoint `what`.
void check_base(const std::string& what, const BaseWeights& base, const std::string& path, TensorSource& weights,
                const ModelConfig& model);

// Serves the base's weights with the adapters added: w + scale * B A, in f32.
class MergedSource : public TensorSource {
 public:
  // `model` has the adapters' config; `adapters` has their tensors, and is read here.
  MergedSource(std::unique_ptr<TensorSource> base, TensorSource& adapters, const ModelConfig& model);

  std::vector<int64_t> shape(const std::string& name) const override { return base_->shape(name); }
  void read(const TensorShard& wanted, float* out) override;

 private:
  struct Added {
    std::vector<float> a, b;        // (parts * rank, in), (rows, rank) times the scale
    std::vector<int64_t> row_of_b;  // by output feature; -1: no adapter
    std::vector<int64_t> part_of;   // by output feature
    int64_t in = 0;
  };
  std::unique_ptr<TensorSource> base_;
  int64_t rank_;
  std::map<std::string, Added> added_;  // by the weight's name
};

// Opens the adapters of adapter.init_from: a PEFT folder, or a checkpoint of a run with adapters like those of `model`.
std::unique_ptr<TensorSource> open_adapters(const std::string& path, const ModelConfig& model);

}  // namespace megalith
