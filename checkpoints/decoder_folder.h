// The weights of the families of decoder_family.h in Hugging Face's folder layout: model.safetensors or several files
// with an index. hugging_face.h opens them, and GPT-2's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoints/decoder_family.h"
#include "checkpoints/hugging_face.h"
#include "checkpoints/safetensors_folder.h"
#include "checkpoints/tensor_source.h"
#include "configs/config.h"

namespace megalith {

// Serves "parameters/<name>" in our layout, and reads only the requested elements. Opening checks that every tensor
// exists with its shape and that there are no unknown ones.
class DecoderReader : public TensorSource {
 public:
  DecoderReader(const std::string& folder, const ModelConfig& model, const std::vector<StoredParameter>& parameters);

  std::vector<int64_t> shape(const std::string& name) const override;
  void read(const TensorShard& wanted, float* out) override;

 private:
  struct Stored {
    std::vector<int64_t> shape;          // our parameter's
    std::vector<DecoderTensor> tensors;  // ascending by row
    bool head_by_head = false;           // q, k and v ordered as in GPT-NeoX
  };
  const Stored& stored(const std::string& name) const;
  void check_tied(const std::string& head) const;

  SafeTensorsFolder tensors_;
  int64_t heads_, head_size_;
  std::map<std::string, Stored> stored_;  // by our name
};

}  // namespace megalith
