#include "configs/config.h"
#include "configs/field_table.h"
#include "configs/suggest.h"

#include "kernels/system/check.h"

#include <fmt/format.h>

namespace megalith {
namespace {

// Prints a header before each section, and row(field) for each field that `only` names by section or key, or for all.
template <class Row>
std::string sections(Row row, const std::string& only = "") {
  std::string out;
  std::string_view current;
  for (const Field& field : field_table()) {
    if (!only.empty() && only != field.section && only != field.key && only != field.name()) continue;
    if (field.section != current) out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", current = field.section);
    out += row(field);
  }
  return out;
}

}  // namespace

std::string to_toml(const Config& config) {
  return sections([&](const Field& field) {
    const std::string assignment = fmt::format("{} = {}", field.key, toml_text(field.get(config)));
    return fmt::format("{:<36}  # {}\n", assignment, field.help);
  });
}

std::map<std::string, std::string> key_values(const Config& config) {
  std::map<std::string, std::string> values;
  for (const Field& field : field_table()) values[field.name()] = toml_text(field.get(config));
  return values;
}

std::vector<std::string> choices_of(const std::string& key) {
  const Field* field = find_field(key);
  CHECK(field, "there is no option {}; megalith train --help lists them", key);
  return field->kind == Key::Kind::boolean ? std::vector<std::string>{"false", "true"} : field->choices;
}

std::string describe_options(const std::string& only) {
  const std::string text = sections(
      [defaults = Config{}](const Field& field) {
        const std::string assignment = fmt::format("{} = {}", field.key, toml_text(field.get(defaults)));
        return fmt::format("  {:<36}  {}\n      {}.\n", assignment, field.expected(), field.help);
      },
      only);
  CHECK(!text.empty(), "{}", unknown_key_message(only, {field_table().begin(), field_table().end()}));
  return text;
}

namespace {

// A bar would end the cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

}  // namespace

std::string options_page() {
  const Config defaults;
  std::string out =
      "# Every option of a run\n\n`megalith manual options` prints this page; a test compares it with the program. "
      "`megalith help SECTION.KEY` prints one option.\n";
  std::string_view section;
  for (const Field& field : field_table()) {
    if (field.section != section) {
      section = field.section;
      out += fmt::format("\n## [{}]\n\n| key | default | value | meaning |\n|---|---|---|---|\n", section);
    }
    out += fmt::format("| `{}` | `{}` | {} | {} |\n", field.key, cell(toml_text(field.get(defaults))),
                       cell(field.expected()), cell(field.help));
  }
  return out;
}

}  // namespace megalith
