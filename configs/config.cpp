#include "configs/config.h"

#include "configs/field_table.h"
#include "configs/reader.h"
#include "configs/rules.h"

namespace megalith {
namespace {

Config finished(const Reader<Config>& reader, std::string_view source) {
  Config config = resolve(reader.record());
  if (const std::optional<Problem> problem = first_problem(config)) {
    const std::string where = reader.where_set(problem->key);
    FAIL("{}: {}", where.empty() ? source : where, problem->message);
  }
  return config;
}

}  // namespace

Config parse_config(std::string_view toml, std::string_view source_name, const std::vector<std::string>& overrides) {
  Reader reader(field_table(), source_name);
  reader.read(toml);
  for (const std::string& text : overrides) reader.override_with(text);
  return finished(reader, source_name);
}

Config load_config(const std::string& toml_path, const std::vector<std::string>& overrides) {
  return parse_config(read_configuration(toml_path), toml_path, overrides);
}

CommunicationConfig load_communication(const std::string& toml_path, const std::vector<std::string>& overrides) {
  Reader reader(field_table(), toml_path);
  const auto attempt = [](const auto& work) {
    try {
      work();
    } catch (const Error&) {
      // load_config reports it.
    }
  };
  attempt([&] { reader.read(read_configuration(toml_path), "communication"); });
  for (const std::string& text : overrides) attempt([&] { reader.override_with(text); });
  return reader.record().communication;
}

}  // namespace megalith
