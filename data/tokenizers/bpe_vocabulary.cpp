#include "data/tokenizers/bpe_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/tokenizers/bpe_names.h"
#include "kernels/system/json.h"

namespace megalith {

std::array<uint8_t, 256> bytes_in_gpt2_order() {
  std::array<uint8_t, 256> order;
  for (size_t i = 0; i < order.size(); i++) order[i] = static_cast<uint8_t>(i);
  std::stable_partition(order.begin(), order.end(), is_printable_byte);
  return order;
}

BpeVocabulary bpe_of_bytes() {
  BpeVocabulary vocabulary;
  for (int32_t id = 0; id < 256; id++) {
    vocabulary.byte_ids[static_cast<size_t>(id)] = id;
    vocabulary.tokens.emplace_back(1, static_cast<char>(id));
  }
  vocabulary.end_of_text = 256;
  vocabulary.tokens.emplace_back();
  return vocabulary;
}

std::map<std::string, std::string> gpt2_files(const BpeVocabulary& vocabulary) {
  std::vector<std::string> names;
  nlohmann::ordered_json ids = nlohmann::ordered_json::object();
  // Entries are appended directly, since lookups in this object take linear time.
  auto& entries = ids.get_ref<nlohmann::ordered_json::object_t&>();
  for (const std::string& token : vocabulary.tokens) {
    const auto id = static_cast<int32_t>(names.size());
    std::string& name = names.emplace_back();
    for (const char byte : token) name += name_of_byte(byte);
    if (id == vocabulary.end_of_text) name = end_of_text_name;
    entries.emplace_back(name, id);
  }
  std::string merges = "#version: 0.2\n";
  for (const BpeVocabulary::Merge& merge : vocabulary.merges)
    merges += names[static_cast<size_t>(merge.left)] + " " + names[static_cast<size_t>(merge.right)] + "\n";
  return {{vocab_file, json_text(ids) + "\n"}, {merges_file, merges}};
}

}  // namespace megalith
