// Checkpoints of runs with adapters hold the adapters alone, and name the base by its path and its fingerprint.
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

// Returns a hash of the model's weights by name and shape, and of 16 blocks of 4096 elements of each, evenly spaced: of
// all elements where there are no more. So it tells a model from one that was trained on, whatever files hold it, but
// not from one with a few other elements in a large matrix. `model` without adapters.
std::string weights_fingerprint(TensorSource& weights, ModelConfig model);

struct BaseWeights {
  std::string path;         // absolute
  std::string fingerprint;  // weights_fingerprint()
};
// Writes and reads the keys "base" and "adapter" of a manifest's state; `checkpoint` is its folder, from which the
// base's place is known as well.
nlohmann::json describe_adapter(const AdapterConfig& adapter, const BaseWeights& base, const std::string& checkpoint);
// Returns nothing where the checkpoint holds all weights. Of the two places the one that exists, or the absolute one.
std::optional<BaseWeights> base_of(const Manifest& manifest, const std::string& checkpoint);
AdapterConfig adapter_of(const Manifest& manifest, const std::string& checkpoint);

// Throws Error, with both fingerprints, unless the weights are the base of the checkpoint `what`.
void check_base(const std::string& what, const BaseWeights& base, const std::string& path, TensorSource& weights,
                const ModelConfig& model);

// Serves the base's weights with the adapters added: w + scale * B A, in f32.
class MergedSource : public TensorSource {
 public:
  // `model` has the adapters' config; `adapters` serves them under their names, and is read here.
  MergedSource(std::unique_ptr<TensorSource> base, TensorSource& adapters, const ModelConfig& model);

  std::vector<int64_t> shape(const std::string& name) const override { return base_->shape(name); }
  void read(const TensorShard& wanted, float* out) override;

 private:
  struct Added {
    std::vector<float> a, b;        // (parts * rank, in), (rows, rank) times the scale
    std::vector<int64_t> row_of_b;  // by output feature; -1: it has no adapter
    std::vector<int64_t> part_of;   // by output feature
    int64_t in = 0;
  };
  std::unique_ptr<TensorSource> base_;
  int64_t rank_;
  std::map<std::string, Added> added_;  // by the weight's name
};

// Opens the adapters of adapter.init_from: a folder of PEFT, or a checkpoint of a run with adapters like those of
// `model`.
std::unique_ptr<TensorSource> open_adapters(const std::string& path, const ModelConfig& model);

}  // namespace megalith
