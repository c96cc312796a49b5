#include "data/corpus/documents.h"

#include <simdjson.h>

#include <charconv>
#include <cstring>
#include <optional>

#include "data/corpus/conversation_lines.h"
#include "data/samples/known_files.h"
#include "data/tokenizers/json_fields.h"
#include "kernels/system/check.h"

namespace megalith {

namespace {

constexpr std::string_view blanks = " \t\r\n";

bool is_good(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size()) && std::memchr(text.data(), 0, text.size()) == nullptr;
}

// Returns the offset of the first invalid UTF-8 sequence or NUL byte.
size_t first_fault(std::string_view text) {
  size_t good = 0, bad = text.size() + 1;  // bytes known to be valid, and the number of those that are not
  while (bad - good > 1) {
    const size_t middle = good + (bad - good) / 2;
    // A character that is cut off at the end may still be valid.
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
  std::string repaired;

  // Returns the text of a line, valid until the next call; or sets `bad` to a description of its error.
  std::string_view text_of(std::string_view line, std::string_view field, std::string& bad) {
    simdjson::dom::element element;
    if (!parse_object(line, fmt::format("{{\"{}\": \"...\"}}", field), element, bad)) return {};
    const std::optional<simdjson::dom::element> value = member_of(element, field);
    std::string_view text;
    if (!value)
      bad = fmt::format(
          "an object without \"{}\"; name the field of the text with --field, as in --field text or, in nested "
          "objects, --field data.text{}",
          field, member_of(element, "messages") ? "; conversations take --template" : "");
    else if (value->get(text))
      bad = fmt::format("an object whose \"{}\" is not a string but {}; name the field of the text with --field{}",
                        field, kind_of(*value), value->is_array() ? ", or make one string of it with jq" : "");
    else if (std::memchr(text.data(), 0, text.size()) != nullptr)
      bad = fmt::format("an object whose \"{}\" has a NUL character; remove it", field);
    return text;
  }

  // Returns the messages of a line, or sets `bad` to a description of its error.
  std::vector<ChatMessage> messages_of(std::string_view line, const ConversationFields& fields, std::string& bad) {
    simdjson::dom::element element;
    if (!parse_object(line, form_of(fields), element, bad)) return {};
    return messages_in(element, fields, bad);
  }

 private:
  bool parse_object(std::string_view line, const std::string& form, simdjson::dom::element& element, std::string& bad) {
    const simdjson::error_code error = parser.parse(line.data(), line.size(), false).get(element);
    if (error == simdjson::MEMALLOC) throw std::bad_alloc();
    if (error)
      bad = why_not_parsed(line, simdjson::error_message(error));
    else if (!element.is_object())
      bad = fmt::format("JSON, but {} instead of an object; each line must be an object such as {}{}", kind_of(element),
                        form, element.is_array() ? ", and jq -c '.[]' makes lines of an array of them" : "");
    return bad.empty();
  }

  std::string why_not_parsed(std::string_view line, const char* error) {
    if (!simdjson::validate_utf8(line.data(), line.size())) {
      const size_t at = first_fault(line);
      return fmt::format("not UTF-8: its byte {} is 0x{:02x}; write the lines in UTF-8", at,
                         static_cast<uint8_t>(line[std::min(at, line.size() - 1)]));
    }
    repaired = line;
    if (const auto [at, escape] = replace_lone_surrogates(repaired); !escape.empty()) {
      simdjson::dom::element element;
      if (!parser.parse(repaired).get(element))
        return fmt::format(
            "not a text: at its byte {} is the surrogate {}, which is half a character; write \\ufffd there, or the "
            "character",
            at, escape);
    }
    const size_t begin = line.find_first_not_of(blanks);
    if (begin != std::string_view::npos && line[begin] == '[')
      return fmt::format(
          "the beginning of an array ({}); each line must be one whole object, which jq -c '.[]' makes of an array of "
          "them",
          error);
    return fmt::format(
        "not JSON ({}); each line must be one whole object, which jq -c . makes of objects over several lines", error);
  }

  // Replaces lone surrogates in the escapes of a JSON text. Returns the offset and text of the first.
  static std::pair<size_t, std::string> replace_lone_surrogates(std::string& text) {
    std::pair<size_t, std::string> first;
    const auto unit_at = [&](size_t at) -> int {
      if (text.size() < at + 6 || text[at] != '\\' || text[at + 1] != 'u') return -1;
      int unit = -1;
      const auto [end, error] = std::from_chars(text.data() + at + 2, text.data() + at + 6, unit, 16);
      return error == std::errc() && end == text.data() + at + 6 ? unit : -1;
    };
    const auto is_high = [](int unit) { return unit >= 0xd800 && unit < 0xdc00; };
    const auto is_low = [](int unit) { return unit >= 0xdc00 && unit < 0xe000; };
    for (size_t at = text.find('\\'); at != std::string::npos; at = text.find('\\', at)) {
      const int unit = unit_at(at);
      if (is_high(unit) && is_low(unit_at(at + 6))) {
        at += 12;
      } else if (is_high(unit) || is_low(unit)) {
        if (first.second.empty()) first = {at, text.substr(at, 6)};
        text.replace(at, 6, "\\ufffd");
        at += 6;
      } else {
        at += 2;
      }
    }
    return first;
  }
};

DocumentReader::DocumentReader(const Corpus& corpus) : corpus_(corpus), parser_(std::make_unique<Parser>()) {}
DocumentReader::~DocumentReader() = default;

void DocumentReader::documents_of(const TextBatch& batch, const Give& give) {
  if (batch.kind == TextBatch::Kind::json_lines) return lines_of(batch, give);
  const std::string_view text = batch.text, separator = corpus_.separator;
  if (batch.kind == TextBatch::Kind::part) {
    const bool is_end = batch.begin.for_validation && corpus_.split.rule() == ValidationSplit::Rule::ends;
    give({.text = text,
          .for_validation = batch.begin.for_validation,
          .is_whole = false,
          .is_first = !batch.begin.in_document || (is_end && !batch.begin.in_end),
          .is_last = batch.is_last,
          .bad = fault_of(text, batch, 0)});
    return;
  }
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = separator.empty() ? text.size() : std::min(text.find(separator, begin), text.size());
    if (end > begin)
      give_whole(text.substr(begin, end - begin), [&](const Document& document) {
        const auto offset = static_cast<int64_t>(document.text.data() - text.data());
        give({.text = document.text,
              .for_validation = document.for_validation,
              .bad = fault_of(document.text, batch, offset)});
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
    const auto where = [&] { return fmt::format("{}, line {} (at byte {})", path, line_number, offset); };
    if (corpus_.conversations) {
      give_conversation(line, where(), give);
      continue;
    }
    std::string bad;
    const std::string_view document = parser_->text_of(line, corpus_.field, bad);
    if (!bad.empty())
      give({.text = line, .bad = fmt::format("{} is {}", where(), bad)});
    else if (!document.empty())
      give_whole(document, give);
  }
}

void DocumentReader::give_conversation(std::string_view line, const std::string& where, const Give& give) {
  std::string bad;
  const std::vector<ChatMessage> messages = parser_->messages_of(line, *corpus_.conversations, bad);
  if (!bad.empty()) return give({.text = line, .bad = fmt::format("{} is {}", where, bad)});
  std::string text;
  for (const ChatMessage& message : messages) text += message.role + "\n" + message.content + "\n";
  const ValidationSplit& split = corpus_.split;
  give({.text = text,
        .messages = messages,
        .where = where,
        .for_validation = split.rule() == ValidationSplit::Rule::documents && split.draws(text)});
}

std::string DocumentReader::fault_of(std::string_view text, const TextBatch& batch, int64_t offset) const {
  if (is_good(text)) return {};
  const size_t at = first_fault(text);
  const std::string path = corpus_.inputs[static_cast<size_t>(batch.begin.input)].name();
  const int64_t place = batch.begin.offset + offset + static_cast<int64_t>(at);
  if (at < text.size() && text[at] == '\0')
    return fmt::format("{} has a NUL byte at byte {}, so it is hardly a text; leave it out, or remove the byte", path,
                       place);
  return fmt::format(
      "{} is not UTF-8 at byte {} (0x{:02x}); if it is Latin-1, this reads it: {} | megalith prepare --text - ...; "
      "iconv -c -f UTF-8 -t UTF-8 in its place removes such bytes",
      path, place, at < text.size() ? static_cast<uint8_t>(text[at]) : 0,
      unpack_command({"", "iconv -f LATIN1 -t UTF-8 FILE", KnownFile::Holds::text},
                     path == "the standard input" ? "-" : path));
}

void DocumentReader::give_whole(std::string_view text, const Give& give) const {
  const ValidationSplit& split = corpus_.split;
  if (split.rule() != ValidationSplit::Rule::ends) {
    give({.text = text, .for_validation = split.rule() == ValidationSplit::Rule::documents && split.draws(text)});
    return;
  }
  const auto begin = static_cast<size_t>(split.split_of(text));
  give({.text = text.substr(0, begin)});
  if (begin < text.size()) give({.text = text.substr(begin), .for_validation = true});
}

}  // namespace megalith
