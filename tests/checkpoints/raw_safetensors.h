// Files of safetensors made and read byte by byte, and a small model of them, for tests of Hugging Face folders.
#pragma once

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/checkpoints/gpt2.h"
#include "tests/checkpoints/helpers.h"

namespace megalith::test {

using Json = nlohmann::ordered_json;

struct Raw {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

inline std::string with_header(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

inline std::string safetensors(const std::vector<std::pair<std::string, Raw>>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const auto& [name, t] : tensors) {
    header[name] = {
        {"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {data.size(), data.size() + t.bytes.size()}}};
    data += t.bytes;
  }
  return with_header(header.dump(), data);
}

// A second, plain reader of the format.
inline std::map<std::string, Raw> parse(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  std::map<std::string, Raw> tensors;
  const Json header = Json::parse(file.substr(8, length));
  for (const auto& [name, t] : header.items()) {
    if (name == "__metadata__") continue;
    const uint64_t begin = t["data_offsets"][0], end = t["data_offsets"][1];
    tensors[name] = {t["dtype"], t["shape"], file.substr(8 + length + begin, end - begin)};
  }
  return tensors;
}

inline const ModelConfig small{.layers = 1, .hidden = 4, .heads = 2, .vocab = 7, .context = 5};

inline Json config_of(const ModelConfig& m) {
  return {{"model_type", "gpt2"}, {"n_layer", m.layers},   {"n_embd", m.hidden},
          {"n_head", m.heads},    {"vocab_size", m.vocab}, {"n_positions", m.context}};
}

inline std::vector<std::pair<std::string, Raw>> small_tensors(const std::string& prefix = "") {
  std::vector<std::pair<std::string, Raw>> tensors;
  float value = 0;
  for (StoredParameter p : gpt2_parameters(small)) {
    if (p.transposed) std::swap(p.shape[0], p.shape[1]);
    std::string bytes;
    for (int64_t i = whole_tensor("t", p.shape).numel(); i > 0; i--, value++)
      bytes.append(reinterpret_cast<const char*>(&value), 4);
    tensors.push_back({prefix + p.name, {"F32", p.shape, bytes}});
  }
  return tensors;
}

// A folder holding one model.
class Model {
 public:
  Model(const std::vector<std::pair<std::string, Raw>>& tensors, const Json& config) {
    spill(folder_ / "model.safetensors", safetensors(tensors));
    spill(folder_ / "config.json", config.dump());
  }
  const std::string& path() const { return folder_.path(); }
  std::string open_error() const {
    return message_of([&] { open_gpt2(path()); });
  }

 private:
  TemporaryFolder folder_;
};

inline void expect_part(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
}

}  // namespace megalith::test
