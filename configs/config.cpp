#include "configs/config.h"

#include "configs/config_file.h"
#include "configs/field_table.h"
#include "configs/reader.h"
#include "configs/rules.h"

namespace megalith {
namespace {

Config finished(const Config& read, const Reader<Config>& reader, std::string_view source) {
  Config config = resolve(read);
  if (const std::optional<Problem> problem = first_problem(config)) {
    const std::string where = reader.where_set(problem->key);
    FAIL("{}: {}", where.empty() ? source : where, problem->message);
  }
  return config;
}

// Reads the file, then the changes that its location implies, then the overrides.
void read_file_and(const std::vector<std::string>& overrides, const std::string& path, Reader<Config>& reader) {
  if (!path.empty()) {
    reader.read(read_configuration(config_file(path)));
    check_run_folder(path, reader.record());
    for (const std::string& text : meant_by_place(path, reader.record())) reader.override_with(text);
  }
  for (const std::string& text : overrides) reader.override_with(text);
}

Config readable_part(const std::string& toml_path, const std::vector<std::string>& overrides,
                     std::initializer_list<std::string_view> sections) {
  Reader reader(field_table(), toml_path);
  const auto attempt = [](const auto& work) {
    try {
      work();
    } catch (const Error&) {
      // load_config reports the error.
    }
  };
  for (const std::string_view section : sections)
    attempt([&] { reader.read(read_configuration(config_file(toml_path)), section); });
  attempt([&] {
    for (const std::string& text : meant_by_place(toml_path, reader.record()))
      attempt([&] { reader.override_with(text); });
  });
  for (const std::string& text : overrides) attempt([&] { reader.override_with(text); });
  return reader.record();
}

}  // namespace

Config parse_config(std::string_view toml, std::string_view source_name, const std::vector<std::string>& overrides) {
  Reader reader(field_table(), source_name);
  reader.read(toml);
  for (const std::string& text : overrides) reader.override_with(text);
  return finished(reader.record(), reader, source_name);
}

Config load_config(const std::string& toml_path, const std::vector<std::string>& overrides) {
  const std::string file = config_file(toml_path);
  Reader reader(field_table(), file);
  read_file_and(overrides, toml_path, reader);
  return finished(reader.record(), reader, file);
}

bool may_grow(const std::string& key, const ModelConfig& base, const ModelConfig& here) {
  if (key == "vocab") return here.vocab >= base.vocab;
  return key == "context" && base.positions == Positions::rotary && here.context >= base.context;
}

Config load_config(const std::string& toml_path, const std::vector<std::string>& overrides, const KnownShape& known) {
  Config defaults;
  defaults.model = known.model;
  defaults.model.dropout = known.dropout.value_or(0);
  const std::string file = config_file(toml_path);
  Reader reader(field_table(), file, defaults);
  read_file_and(overrides, toml_path, reader);
  CHECK(known.dropout || !reader.where_set("model.dropout").empty(),
        "{} was trained with different dropouts in its attention, embeddings and branches, but megalith has only one; "
        "set model.dropout",
        known.source);
  ModelConfig model = reader.record().model;
  if (model.vocab == 0) model.vocab = known.model.vocab;
  std::string wrong;
  for (const std::string& key : shape_keys())
    if (const std::string here = shape_value(model, key), there = shape_value(known.model, key);
        here != there && !may_grow(key, known.model, model))
      wrong += fmt::format("{}{}: model.{} = {} here, {} there", wrong.empty() ? "" : "; ",
                           reader.where_set("model." + key), key, here, there);
  CHECK(wrong.empty(),
        "the config does not fit the model of {}: {}. Remove these keys to take those of the weights, or use other "
        "weights. Only model.vocab may be larger and, with rotary positions, model.context",
        known.source, wrong);
  Config config = reader.record();
  config.model = model;
  return finished(config, reader, file);
}

Config load_places(const std::string& toml_path, const std::vector<std::string>& overrides) {
  return resolve(readable_part(toml_path, overrides, {"run", "checkpoint"}));
}

CommunicationConfig load_communication(const std::string& toml_path, const std::vector<std::string>& overrides) {
  return readable_part(toml_path, overrides, {"communication", "run", "checkpoint"}).communication;
}

const std::vector<std::string>& shape_keys() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> all;
    for (const Field& field : field_table())
      if (field.section == "model" && field.key != "dropout" && !field.key.starts_with("initial_"))
        all.emplace_back(field.key);
    return all;
  }();
  return keys;
}

std::string shape_value(const ModelConfig& model, const std::string& key) {
  Config config;
  config.model = model;
  return toml_text(find_field("model." + key)->get(config));
}

void set_shape_value(ModelConfig& model, const std::string& key, const std::string& value, const std::string& source) {
  Config config;
  config.model = model;
  Reader reader(field_table(), source, config);
  try {
    reader.override_with(fmt::format("model.{}={}", key, value));
  } catch (const Error& error) {
    FAIL("{}: {}", source, error.what());
  }
  model = reader.record().model;
}

bool is_generated(const std::string& toml) {
  Reader reader(field_table(), "");
  try {
    reader.read(toml);
  } catch (const Error&) {
    return false;
  }
  return to_toml(reader.record()) == toml;
}

}  // namespace megalith
