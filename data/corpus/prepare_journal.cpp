#include "data/corpus/prepare_journal.h"

#include <fmt/format.h>

#include <limits>

#include "kernels/system/json.h"

namespace megalith {

namespace {

constexpr int64_t largest_count = int64_t{1} << 56;  // limit of bytes and of counts: no sum or product overflows

int64_t count_from(const nlohmann::json& j) { return whole_number(j, 0, largest_count); }

ValidationSplit::Rule rule_from(const nlohmann::json& j) {
  return static_cast<ValidationSplit::Rule>(whole_number(j, 0, static_cast<int>(ValidationSplit::Rule::ends)));
}

nlohmann::json to_json(const TokenShards::Mark& mark) {
  return {mark.shard,  mark.written.tokens, mark.written.documents, mark.written.open_tokens, mark.documents,
          mark.tokens, mark.bytes,          mark.open_bytes};
}

TokenShards::Mark mark_from(const nlohmann::json& j) {
  const auto at = [&](size_t i) { return count_from(j.at(i)); };
  return {.shard = at(0),
          .written = {at(1), at(2), at(3)},
          .documents = at(4),
          .tokens = at(5),
          .bytes = at(6),
          .open_bytes = at(7)};
}

nlohmann::json to_json(const PrepareReport::Counts& part) { return {part.documents, part.bytes, part.tokens}; }
PrepareReport::Counts part_from(const nlohmann::json& j) {
  return {count_from(j.at(0)), count_from(j.at(1)), count_from(j.at(2))};
}

nlohmann::json to_json(const ExampleCounts& c) {
  return {c.examples, c.turns, c.tokens, c.counted, c.without_counted, c.cut, c.cut_tokens, c.left_out};
}
ExampleCounts examples_from(const nlohmann::json& parent) {
  if (!parent.contains("examples")) return {};
  const auto at = [&](size_t i) { return count_from(parent.at("examples").at(i)); };
  return {.examples = at(0),
          .turns = at(1),
          .tokens = at(2),
          .counted = at(3),
          .without_counted = at(4),
          .cut = at(5),
          .cut_tokens = at(6),
          .left_out = at(7)};
}

// The bytes need not be UTF-8.
nlohmann::json bytes_to_json(std::string_view bytes) { return std::vector<uint8_t>(bytes.begin(), bytes.end()); }
std::string bytes_from(const nlohmann::json& j) {
  std::string bytes;
  for (const nlohmann::json& byte : as_list(j)) bytes += static_cast<char>(whole_number(byte, 0, 255));
  return bytes;
}

}  // namespace

nlohmann::json to_json(const PreparePosition& p) {
  nlohmann::json json{{"input", p.text.input},
                      {"offset", p.text.offset},
                      {"lines", p.text.lines},
                      {"in_document", p.text.in_document},
                      {"held_out", p.text.for_validation},
                      {"in_end", p.text.in_end},
                      {"document_begin", p.text.document_begin},
                      {"in_bad_document", p.in_bad_document},
                      {"bad_documents", p.bad_documents},
                      {"first_bad", bytes_to_json(p.first_bad)},
                      {"train", to_json(p.train)},
                      {"validation", to_json(p.validation)}};
  if (!(p.examples == ExampleCounts())) json["examples"] = to_json(p.examples);
  return json;
}

PreparePosition position_from(const nlohmann::json& j) {
  const auto count = [&](const char* key) { return count_from(j.at(key)); };
  const int64_t offset = count("offset");
  return {.text = {.input = count("input"),
                   .offset = offset,
                   .lines = count("lines"),
                   .in_document = j.at("in_document").get<bool>(),
                   .for_validation = j.at("held_out").get<bool>(),
                   .in_end = j.at("in_end").get<bool>(),
                   .document_begin = whole_number(j.at("document_begin"), 0, offset)},
          .train = mark_from(j.at("train")),
          .validation = mark_from(j.at("validation")),
          .in_bad_document = j.at("in_bad_document").get<bool>(),
          .bad_documents = count("bad_documents"),
          .first_bad = bytes_from(j.at("first_bad")),
          .examples = examples_from(j)};
}

nlohmann::json made_of(const PrepareOptions& options, const std::vector<TextInput>& inputs, const ChatTemplate* chat) {
  nlohmann::json texts = nlohmann::json::array();
  for (const TextInput& input : inputs)
    texts.push_back({bytes_to_json(input.path), input.size, input.modified, input.json_lines});
  nlohmann::json made{{"version", 1},
                      {"texts", texts},
                      {"--tokenizer", options.tokenizer},
                      {"--separator", bytes_to_json(options.corpus.separator)},
                      {"--field", bytes_to_json(options.corpus.field)},
                      {"--validation", options.corpus.validation_fraction},
                      {"--special-tokens", static_cast<int>(options.special_texts)},
                      {"--shard-tokens", options.shard_tokens}};
  if (const auto& fields = options.corpus.conversations) {
    const ExampleOptions& examples = options.examples;
    made["--template"] = bytes_to_json(chat_template_file(*chat));
    made["--field"] = bytes_to_json(fields->messages);
    made["--prompt-field"] = bytes_to_json(fields->prompt);
    made["--completion-field"] = bytes_to_json(fields->completion);
    made["--train-on"] = static_cast<int>(examples.train_on);
    made["--sequence-length"] = examples.sequence_length;
    made["--longer"] = static_cast<int>(examples.longer);
  }
  return made;
}

std::string difference_of(const nlohmann::json& before, const nlohmann::json& now) {
  for (const char* option :
       {"version", "--tokenizer", "--separator", "--field", "--validation", "--special-tokens", "--shard-tokens"})
    if (!before.contains(option) || before.at(option) != now.at(option)) return fmt::format("{} is another", option);
  // Options of conversations only.
  for (const char* option :
       {"--template", "--prompt-field", "--completion-field", "--train-on", "--sequence-length", "--longer"})
    if (before.contains(option) != now.contains(option) ||
        (now.contains(option) && before.at(option) != now.at(option)))
      return fmt::format("{} is another", option);
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

nlohmann::json to_json(const PrepareBegun& begun) {
  nlohmann::json sizes = nlohmann::json::array();
  for (const auto& [place, size] : begun.sizes) sizes.push_back({place.first, place.second, size});
  return {{"of", begun.of}, {"held_out", {{"rule", static_cast<int>(begun.rule)}, {"sizes", sizes}}}};
}

namespace {
// Reads the output of made_of(), or throws.
nlohmann::json begun_of(const nlohmann::json& of) {
  for (const nlohmann::json& text : as_list(of.at("texts"))) bytes_from(text.at(0));
  return of;
}
}  // namespace

PrepareBegun begun_from(const nlohmann::json& j) {
  PrepareBegun begun{.of = begun_of(j.at("of")), .rule = rule_from(j.at("held_out").at("rule")), .sizes = {}};
  for (const nlohmann::json& size : as_list(j.at("held_out").at("sizes")))
    begun.sizes[{count_from(size.at(0)), count_from(size.at(1))}] = whole_number(size.at(2), 1, largest_count);
  return begun;
}

nlohmann::json to_json(const PrepareMade& made) {
  const PrepareReport& r = made.report;
  nlohmann::json common = nlohmann::json::array();
  for (const auto& [text, share] : r.most_common) common.push_back({bytes_to_json(text), share});
  nlohmann::json report{{"train", to_json(r.train)},
                        {"validation", to_json(r.validation)},
                        {"vocab_size", r.vocab_size},
                        {"bytes_per_token", r.bytes_per_token},
                        {"held_out", static_cast<int>(r.rule)},
                        {"most_common", common},
                        {"bad_documents", r.bad_documents},
                        {"first_bad", bytes_to_json(r.first_bad)}};
  if (!(r.examples == ExampleCounts())) report["examples"] = to_json(r.examples);
  if (!r.end_of_answer.empty()) report["end_of_answer"] = r.end_of_answer;
  return {{"names", made.names}, {"report", report}};
}

PrepareMade made_from(const nlohmann::json& json) {
  const nlohmann::json& j = json.at("report");
  constexpr int64_t most_tokens = std::numeric_limits<int32_t>::max();
  PrepareMade made{.names = json.at("names").get<std::vector<std::string>>(),
                   .report = {.train = part_from(j.at("train")),
                              .validation = part_from(j.at("validation")),
                              .vocab_size = static_cast<int32_t>(whole_number(j.at("vocab_size"), 1, most_tokens)),
                              .bytes_per_token = static_cast<int>(whole_number(j.at("bytes_per_token"), 1, 4)),
                              .rule = rule_from(j.at("held_out")),
                              .most_common = {},
                              .bad_documents = count_from(j.at("bad_documents")),
                              .first_bad = bytes_from(j.at("first_bad")),
                              .examples = examples_from(j),
                              .end_of_answer = j.value("end_of_answer", "")}};
  for (const nlohmann::json& token : as_list(j.at("most_common")))
    made.report.most_common.push_back({bytes_from(token.at(0)), real_number(token.at(1), 0, 1)});
  return made;
}

nlohmann::json to_json(const Prepared& prepared) { return {{"of", prepared.of}, {"made", to_json(prepared.made)}}; }

Prepared prepared_from(const nlohmann::json& j) {
  return {.of = begun_of(j.at("of")), .made = made_from(j.at("made"))};
}

}  // namespace megalith
