// A GPT-2 in Hugging Face's files, and its parameters as they hold them, written out by hand: the plain twin of the
// trainer's table.
#pragma once

#include <fmt/format.h>

#include "checkpoints/hugging_face.h"

namespace megalith {

inline const std::string tiny = MEGALITH_SOURCE_DIR "/../shared/reference/tiny";

inline std::vector<StoredParameter> gpt2_parameters(const ModelConfig& m) {
  const int64_t c = m.hidden;
  std::vector<StoredParameter> all = {{"wte.weight", {m.vocab, c}}, {"wpe.weight", {m.context, c}}};
  for (int64_t i = 0; i < m.layers; i++) {
    const std::string h = fmt::format("h.{}.", i);
    all.insert(all.end(), {{h + "ln_1.weight", {c}},
                           {h + "ln_1.bias", {c}},
                           {h + "attn.c_attn.weight", {3 * c, c}, true},
                           {h + "attn.c_attn.bias", {3 * c}},
                           {h + "attn.c_proj.weight", {c, c}, true},
                           {h + "attn.c_proj.bias", {c}},
                           {h + "ln_2.weight", {c}},
                           {h + "ln_2.bias", {c}},
                           {h + "mlp.c_fc.weight", {4 * c, c}, true},
                           {h + "mlp.c_fc.bias", {4 * c}},
                           {h + "mlp.c_proj.weight", {c, 4 * c}, true},
                           {h + "mlp.c_proj.bias", {c}}});
  }
  all.insert(all.end(), {{"ln_f.weight", {c}}, {"ln_f.bias", {c}}});
  return all;
}

inline HuggingFaceReader open_gpt2(const std::string& folder) {
  return {folder, gpt2_parameters(read_hugging_face_shape(folder))};
}

}  // namespace megalith
