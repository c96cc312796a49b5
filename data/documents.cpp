#include "data/documents.h"

#include <simdjson.h>

#include <cstring>

#include "data/known_files.h"
#include "kernels/base/check.h"

namespace megalith {

namespace {

constexpr std::string_view blanks = " \t\r\n";

bool is_good(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size()) && std::memchr(text.data(), 0, text.size()) == nullptr;
}

// Where the first sequence begins that is none of UTF-8's, or the first NUL byte stands.
size_t first_fault(std::string_view text) {
  size_t good = 0, bad = text.size() + 1;  // so many bytes are good, so many are not
  while (bad - good > 1) {
    const size_t middle = good + (bad - good) / 2;
    // A character that is cut there is not bad yet.
    bool is_prefix_good = false;
    for (size_t back = 0; back <= 3 && back <= middle && !is_prefix_good; back++)
      is_prefix_good =
          is_good(text.substr(0, middle - back)) && (back == 0 || static_cast<uint8_t>(text[middle - back]) >= 0xc0);
    (is_prefix_good ? good : bad) = middle;
  }
  size_t begin = good;
  while (begin > 0 && !is_good(text.substr(0, begin))) begin--;
  return begin;
}

}  // namespace

struct DocumentReader::Parser {
  simdjson::dom::parser parser;

  // The text of a line, alive until the next call; or what is bad about the line.
  std::string_view text_of(std::string_view line, std::string_view field, std::string& bad) {
    simdjson::dom::element element;
    if (const auto error = parser.parse(line.data(), line.size(), false).get(element)) {
      bad = fmt::format("no JSON ({}); each line must be one whole object", simdjson::error_message(error));
      return {};
    }
    simdjson::dom::object object;
    if (element.get(object)) {
      bad = "JSON, but no object; each line must be an object such as {\"" + std::string(field) + "\": \"...\"}";
      return {};
    }
    bool has_field = false;
    simdjson::dom::element value;
    for (const auto& [key, v] : object)
      if (key == field) {
        has_field = true;
        value = v;
      }
    std::string_view text;
    if (!has_field)
      bad = fmt::format("an object without \"{}\"; name the field that has the text with --field", field);
    else if (value.get(text))
      bad = fmt::format("an object whose \"{}\" is no string; name the field that has the text with --field", field);
    else if (std::memchr(text.data(), 0, text.size()) != nullptr)
      bad = fmt::format("an object whose \"{}\" holds a NUL character; take it out", field);
    return text;
  }
};

DocumentReader::DocumentReader(const Corpus& corpus) : corpus_(corpus), parser_(std::make_unique<Parser>()) {}
DocumentReader::~DocumentReader() = default;

void DocumentReader::documents_of(const TextBatch& batch, const Give& give) {
  if (batch.kind == TextBatch::Kind::json_lines) return lines_of(batch, give);
  const std::string_view text = batch.text, separator = corpus_.separator;
  if (batch.kind == TextBatch::Kind::part) {
    give({.text = text,
          .held_out = batch.begin.held_out,
          .is_whole = false,
          .is_last = batch.is_last,
          .bad = fault_of(text, batch, 0)});
    return;
  }
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = separator.empty() ? text.size() : std::min(text.find(separator, begin), text.size());
    if (end > begin)
      give_whole(text.substr(begin, end - begin), [&](const Document& document) {
        const auto offset = static_cast<int64_t>(document.text.data() - text.data());
        give({.text = document.text, .held_out = document.held_out, .bad = fault_of(document.text, batch, offset)});
      });
    begin = end + std::max<size_t>(separator.size(), 1);
  }
}

void DocumentReader::lines_of(const TextBatch& batch, const Give& give) {
  const std::string path = corpus_.inputs[static_cast<size_t>(batch.begin.input)].name();
  const std::string_view text = batch.text;
  int64_t line_number = batch.begin.lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    const int64_t offset = batch.begin.offset + static_cast<int64_t>(begin);
    begin = end + 1;
    line_number++;
    if (line.find_first_not_of(blanks) == std::string_view::npos) continue;
    std::string bad;
    const std::string_view document = parser_->text_of(line, corpus_.field, bad);
    if (!bad.empty())
      give({.text = line, .bad = fmt::format("{}, line {} (at byte {}) is {}", path, line_number, offset, bad)});
    else if (!document.empty())
      give_whole(document, give);
  }
}

std::string DocumentReader::fault_of(std::string_view text, const TextBatch& batch, int64_t offset) const {
  if (is_good(text)) return {};
  const size_t at = first_fault(text);
  const std::string path = corpus_.inputs[static_cast<size_t>(batch.begin.input)].name();
  const int64_t place = batch.begin.offset + offset + static_cast<int64_t>(at);
  if (at < text.size() && text[at] == '\0')
    return fmt::format("{} has a NUL byte at byte {}, so it is hardly a text; leave it out, or take the byte out", path,
                       place);
  return fmt::format(
      "{} is not UTF-8 at byte {} (0x{:02x}); if it is Latin-1, this reads it: {} | megalith prepare --text - ...; "
      "iconv "
      "-c -f UTF-8 -t UTF-8 in its place takes such bytes out",
      path, place, at < text.size() ? static_cast<uint8_t>(text[at]) : 0,
      unpack_command({"", "iconv -f LATIN1 -t UTF-8 FILE", KnownFile::Holds::text},
                     path == "the standard input" ? "-" : path));
}

void DocumentReader::give_whole(std::string_view text, const Give& give) const {
  const HoldOut& held_out = corpus_.held_out;
  if (held_out.rule() != HoldOut::Rule::ends) {
    give({.text = text, .held_out = held_out.rule() == HoldOut::Rule::documents && held_out.draws(text)});
    return;
  }
  const auto split = static_cast<size_t>(held_out.split_of(text));
  give({.text = text.substr(0, split)});
  if (split < text.size()) give({.text = text.substr(split), .held_out = true});
}

}  // namespace megalith
