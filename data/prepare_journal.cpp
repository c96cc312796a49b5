#include "data/prepare_journal.h"

#include <fmt/format.h>

#include "kernels/base/json.h"

namespace megalith {

namespace {

nlohmann::json to_json(const TokenShards::Mark& mark) {
  return {mark.shard,  mark.written.tokens, mark.written.documents, mark.written.open_tokens, mark.documents,
          mark.tokens, mark.bytes,          mark.open_bytes};
}

TokenShards::Mark mark_from(const nlohmann::json& j) {
  const auto at = [&](size_t i) { return j.at(i).get<int64_t>(); };
  return {.shard = at(0),
          .written = {at(1), at(2), at(3)},
          .documents = at(4),
          .tokens = at(5),
          .bytes = at(6),
          .open_bytes = at(7)};
}

nlohmann::json to_json(const PrepareReport::Part& part) { return {part.documents, part.bytes, part.tokens}; }
PrepareReport::Part part_from(const nlohmann::json& j) {
  return {j.at(0).get<int64_t>(), j.at(1).get<int64_t>(), j.at(2).get<int64_t>()};
}

// Bytes that need not be UTF-8.
nlohmann::json bytes_to_json(std::string_view bytes) { return std::vector<uint8_t>(bytes.begin(), bytes.end()); }
std::string bytes_from(const nlohmann::json& j) {
  const auto bytes = j.get<std::vector<uint8_t>>();
  return {bytes.begin(), bytes.end()};
}

}  // namespace

nlohmann::json to_json(const PreparePosition& p) {
  return {{"input", p.text.input},
          {"offset", p.text.offset},
          {"lines", p.text.lines},
          {"in_document", p.text.in_document},
          {"held_out", p.text.held_out},
          {"document_begin", p.text.document_begin},
          {"in_bad_document", p.in_bad_document},
          {"bad_documents", p.bad_documents},
          {"first_bad", bytes_to_json(p.first_bad)},
          {"train", to_json(p.train)},
          {"validation", to_json(p.validation)}};
}

PreparePosition position_from(const nlohmann::json& j) {
  return {.text = {.input = j.at("input").get<int64_t>(),
                   .offset = j.at("offset").get<int64_t>(),
                   .lines = j.at("lines").get<int64_t>(),
                   .in_document = j.at("in_document").get<bool>(),
                   .held_out = j.at("held_out").get<bool>(),
                   .document_begin = j.at("document_begin").get<int64_t>()},
          .train = mark_from(j.at("train")),
          .validation = mark_from(j.at("validation")),
          .in_bad_document = j.at("in_bad_document").get<bool>(),
          .bad_documents = j.at("bad_documents").get<int64_t>(),
          .first_bad = bytes_from(j.at("first_bad"))};
}

nlohmann::json made_of(const PrepareOptions& options, const std::vector<TextInput>& inputs) {
  nlohmann::json texts = nlohmann::json::array();
  for (const TextInput& input : inputs)
    texts.push_back({bytes_to_json(input.path), input.size, input.modified, input.json_lines});
  return {{"version", 1},
          {"texts", texts},
          {"--tokenizer", options.tokenizer},
          {"--separator", bytes_to_json(options.corpus.separator)},
          {"--field", bytes_to_json(options.corpus.field)},
          {"--validation", options.corpus.held_out_fraction},
          {"--shard-tokens", options.shard_tokens}};
}

std::string difference_of(const nlohmann::json& before, const nlohmann::json& now) {
  for (const char* option : {"version", "--tokenizer", "--separator", "--field", "--validation", "--shard-tokens"})
    if (!before.contains(option) || before.at(option) != now.at(option)) return fmt::format("{} is another", option);
  const nlohmann::json &old_texts = before.at("texts"), &texts = now.at("texts");
  for (size_t i = 0; i < std::max(old_texts.size(), texts.size()); i++) {
    if (i >= texts.size()) return fmt::format("{} is missing", bytes_from(old_texts.at(i).at(0)));
    const std::string path = bytes_from(texts.at(i).at(0));
    if (i >= old_texts.size() || old_texts.at(i).at(0) != texts.at(i).at(0))
      return fmt::format("{} is new, or the texts come in another order", path);
    if (old_texts.at(i) != texts.at(i)) return fmt::format("{} changed", path);
  }
  return {};
}

nlohmann::json held_out_of(const Corpus& corpus) {
  nlohmann::json sizes = nlohmann::json::array();
  for (const auto& [place, size] : corpus.sizes) sizes.push_back({place.first, place.second, size});
  return {{"rule", static_cast<int>(corpus.held_out.rule())}, {"sizes", sizes}};
}

Corpus corpus_from(const nlohmann::json& held_out, const CorpusOptions& options, std::vector<TextInput> inputs) {
  DocumentSizes sizes;
  for (const nlohmann::json& j : held_out.at("sizes"))
    sizes[{j.at(0).get<int64_t>(), j.at(1).get<int64_t>()}] = j.at(2).get<int64_t>();
  return reopen_corpus(options, std::move(inputs), static_cast<HoldOut::Rule>(held_out.at("rule").get<int>()),
                       std::move(sizes));
}

nlohmann::json to_json(const PrepareReport& r) {
  nlohmann::json common = nlohmann::json::array();
  for (const auto& [text, share] : r.most_common) common.push_back({bytes_to_json(text), share});
  return {{"train", to_json(r.train)},
          {"validation", to_json(r.validation)},
          {"vocab_size", r.vocab_size},
          {"bytes_per_token", r.bytes_per_token},
          {"held_out", static_cast<int>(r.held_out)},
          {"most_common", common},
          {"bad_documents", r.bad_documents},
          {"first_bad", bytes_to_json(r.first_bad)}};
}

PrepareReport report_from(const nlohmann::json& j) {
  PrepareReport r{.train = part_from(j.at("train")),
                  .validation = part_from(j.at("validation")),
                  .vocab_size = j.at("vocab_size").get<int32_t>(),
                  .bytes_per_token = j.at("bytes_per_token").get<int>(),
                  .held_out = static_cast<HoldOut::Rule>(j.at("held_out").get<int>()),
                  .most_common = {},
                  .bad_documents = j.at("bad_documents").get<int64_t>(),
                  .first_bad = bytes_from(j.at("first_bad"))};
  for (const nlohmann::json& piece : j.at("most_common"))
    r.most_common.push_back({bytes_from(piece.at(0)), piece.at(1).get<double>()});
  return r;
}

}  // namespace megalith
