#include "configs/config.h"
#include "configs/field_table.h"

#include <fmt/format.h>

#include <iterator>

namespace megalith {
namespace {

// Calls section(name) before the first field of each section, then row(field).
template <class Section, class Row>
void for_each_row(Section section, Row row) {
  std::string_view current;
  for (const Field& field : field_table()) {
    if (field.section != current) section(current = field.section);
    row(field);
  }
}

}  // namespace

std::string to_toml(const Config& config) {
  std::string out;
  for_each_row(
      [&](std::string_view name) {
        fmt::format_to(std::back_inserter(out), "{}[{}]\n", out.empty() ? "" : "\n", name);
      },
      [&](const Field& field) {
        const std::string assignment = fmt::format("{} = {}", field.key, toml_text(field.get(config)));
        fmt::format_to(std::back_inserter(out), "{:<36}  # {}\n", assignment, field.help);
      });
  return out;
}

std::map<std::string, std::string> key_values(const Config& config) {
  std::map<std::string, std::string> values;
  for (const Field& field : field_table()) values[field.name()] = toml_text(field.get(config));
  return values;
}

std::string describe_options() {
  const Config defaults;
  std::string out;
  for_each_row(
      [&](std::string_view name) {
        fmt::format_to(std::back_inserter(out), "{}[{}]\n", out.empty() ? "" : "\n", name);
      },
      [&](const Field& field) {
        const std::string assignment = fmt::format("{} = {}", field.key, toml_text(field.get(defaults)));
        fmt::format_to(std::back_inserter(out), "  {:<36}  {}\n      {}.\n", assignment, field.expected(), field.help);
      });
  return out;
}

}  // namespace megalith
