#include "tests/end_to_end/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checkpoints/reader.h"
#include "tests/end_to_end/reference_tensors.h"

namespace megalith::e2e {

namespace {

// The tensors of a reference that hold a parameter of ours, joined by rows: written out by hand, beside the program's
// own table.
Values theirs(const std::string& h5, const std::string& kind, const std::string& ours, bool neox, int64_t heads) {
  std::string stem = ours, layer;
  if (stem.starts_with("h.")) {
    const size_t end = stem.find('.', 2);
    layer = stem.substr(2, end - 2);
    stem = stem.substr(end + 1);
  }
  const size_t dot = stem.rfind('.');
  const std::string what = stem.substr(dot), base = stem.substr(0, dot);
  const std::string in_layer = (neox ? "gpt_neox.layers." : "model.layers.") + layer + ".";
  std::vector<std::string> names;
  if (base == "wte") names = {neox ? "gpt_neox.embed_in" : "model.embed_tokens"};
  if (base == "ln_f") names = {neox ? "gpt_neox.final_layer_norm" : "model.norm"};
  if (base == "lm_head") names = {neox ? "embed_out" : "lm_head"};
  if (base == "ln_1") names = {in_layer + "input_layernorm"};
  if (base == "ln_2") names = {in_layer + "post_attention_layernorm"};
  if (base == "attn.q_norm") names = {in_layer + "self_attn.q_norm"};
  if (base == "attn.k_norm") names = {in_layer + "self_attn.k_norm"};
  if (base == "attn.c_proj") names = {in_layer + (neox ? "attention.dense" : "self_attn.o_proj")};
  if (base == "mlp.c_proj") names = {in_layer + (neox ? "mlp.dense_4h_to_h" : "mlp.down_proj")};
  if (base == "attn.c_attn")
    for (const char* part : {"q", "k", "v"}) names.push_back(in_layer + "self_attn." + part + "_proj");
  if (base == "mlp.c_fc") names = {in_layer + "mlp.gate_proj", in_layer + "mlp.up_proj"};
  if (neox && base == "attn.c_attn") names = {in_layer + "attention.query_key_value"};
  if (neox && base == "mlp.c_fc") names = {in_layer + "mlp.dense_h_to_4h"};
  Values all;
  for (const std::string& name : names) {
    const Values values = read_hdf5(h5, kind + "/" + name + what);
    all.insert(all.end(), values.begin(), values.end());
  }
  if (!neox || base != "attn.c_attn") return all;
  // From (heads, 3, rows of a head) to (3, heads, rows of a head).
  const size_t H = static_cast<size_t>(heads), block = all.size() / (3 * H);
  Values sorted(all.size());
  for (size_t h = 0; h < H; h++)
    for (size_t k = 0; k < 3; k++)
      std::copy_n(all.begin() + static_cast<ptrdiff_t>((h * 3 + k) * block), block,
                  sorted.begin() + static_cast<ptrdiff_t>((k * H + h) * block));
  return sorted;
}

}  // namespace

nlohmann::json Family::recipe() const {
  return nlohmann::json::parse(read_file(folder() + "/reference.json")).at("recipe");
}

std::vector<Step> Family::steps() const {
  return steps_of(nlohmann::json::parse(read_file(folder() + "/reference.json")));
}

void Family::write_config(const Scratch& scratch, const std::string& weights) const {
  write_reference_config(scratch / "config.toml", folder(), weights);
  const std::string text = read_file(scratch / "config.toml");
  write_file(scratch / "config.toml", text.substr(text.find("[data]")));
}

double Family::furthest(const std::string& checkpoint, const std::string& path, const std::string& kind) const {
  CheckpointReader reader(checkpoint);
  const bool neox = recipe().at("family") == "gpt_neox";
  double worst = 0;
  size_t tensors = 0;
  for (const std::string& tensor : reader.names()) {
    if (!tensor.starts_with(path)) continue;
    const std::vector<int64_t> shape = reader.shape(tensor);
    Values found(static_cast<size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1)));
    reader.read(whole_tensor(tensor, shape), found.data());
    const Values expected =
        theirs(folder() + "/reference.h5", kind, tensor.substr(path.size()), neox, recipe().at("heads"));
    EXPECT_FALSE(expected.empty()) << tensor;
    worst = std::max(worst, relative_error(found, expected));
    tensors++;
  }
  EXPECT_GT(tensors, 10u);
  return worst;
}

void Family::expect_near(const std::string& run, const std::string& type) const {
  const std::vector<Step> found = read_steps(run), expected = steps();
  ASSERT_EQ(found.size(), expected.size());
  Bounds worst{0, 0, furthest(run + "/checkpoints/" + step_name(std::ssize(expected)), "parameters/", "final")};
  for (size_t s = 0; s < found.size(); s++) {
    worst.loss = std::max(worst.loss, std::abs(found[s].loss / expected[s].loss - 1));
    worst.norm = std::max(worst.norm, std::abs(found[s].grad_norm / expected[s].grad_norm - 1));
  }
  const Bounds& bounds = bounds_in_sixteen_bits.at(type);
  EXPECT_LT(worst.loss, bounds.loss);
  EXPECT_LT(worst.norm, bounds.norm);
  EXPECT_LT(worst.weights, bounds.weights);
  EXPECT_GT(worst.loss, 1e-6) << "nothing was rounded";
  fmt::print("  {} in {}: losses within {:.1e}, norms {:.1e}, weights {:.1e}\n", name, type, worst.loss, worst.norm,
             worst.weights);
}

}  // namespace megalith::e2e
