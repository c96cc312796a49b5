#include "data/tokenizers/bpe_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/tokenizers/bpe_names.h"
#include "data/tokenizers/special_tokens.h"
#include "kernels/system/files.h"
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

BpeVocabulary read_bpe(const std::string& folder) {
  const std::string vocab_path = folder + "/vocab.json";
  BpeNames names(read_json_file(vocab_path), vocab_path, "vocab.json");
  const SpecialTokens special = special_tokens_in(folder);
  for (const auto& [name, id] : special.added) names.add_special(name, id);
  for (const std::string& name : special.names) names.make_special(name);
  names.end_is(special.end);
  BpeVocabulary vocabulary = names.without_merges();
  const std::string merges_path = folder + "/merges.txt";
  names.add_merges(read_text_file(merges_path), merges_path);
  vocabulary.merges = names.merges();
  vocabulary.use = special.use;
  return vocabulary;
}

void write_bpe(const BpeVocabulary& vocabulary, const std::string& folder) {
  std::string merges = "#version: 0.2\n";
  for (const auto& [left, right] : merge_names(vocabulary)) merges += left + " " + right + "\n";
  write_file(folder + "/vocab.json", json_text(token_names(vocabulary)) + "\n");
  write_file(folder + "/merges.txt", merges);
}

std::string content_of(const BpeVocabulary& vocabulary) {
  std::string content =
      fmt::format("BPE of {} tokens, {} ends a text\n", vocabulary.tokens.size(), vocabulary.end_of_text);
  for (const std::string& token : vocabulary.tokens) content += fmt::format("{} {}\n", token.size(), token);
  for (const BpeVocabulary::Merge& merge : vocabulary.merges)
    content += fmt::format("{} {} {}\n", merge.left, merge.right, merge.result);
  if (vocabulary.end_name != end_of_text_name) content += fmt::format("texts end with {}\n", vocabulary.end_name);
  for (const int32_t id : vocabulary.specials) content += fmt::format("{} is special\n", id);
  return content;
}

}  // namespace megalith
