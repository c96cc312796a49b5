#include "trainer/commands/command.h"

#include <filesystem>

namespace megalith {

CLI::Validator no_less_than(int64_t least) {
  const auto check = [least](const std::string& word) {
    double value = 0;
    if (!CLI::detail::lexical_cast(word, value)) return fmt::format("{} is not a number", word);
    return value >= static_cast<double>(least) ? "" : fmt::format("{} is too small; give {} or more", word, least);
  };
  return {check, fmt::format(">={}", least), ""};
}

bool is_override(const std::string& word) {
  const size_t equals = word.find('=');
  return equals != std::string::npos && key_values(Config{}).contains(word.substr(0, equals));
}

void add_config(CLI::App* app, std::string& path, std::vector<std::string>& overrides) {
  app->add_option("config", path, "TOML file, a run folder, or the name of a recipe")->required();
  add_overrides(app, overrides, "section.key=value ..., or --section.key=value");
  app->footer("Options of the configuration:\n" + describe_options());
  app->parse_complete_callback([&path, &overrides] { move_override(path, overrides); });
}

void move_override(std::string& first_word, std::vector<std::string>& overrides) {
  std::error_code absent;
  if (!is_override(first_word) || std::filesystem::exists(first_word, absent)) return;
  overrides.insert(overrides.begin(), first_word);
  first_word.clear();
}

void add_overrides(CLI::App* app, std::vector<std::string>& overrides, const char* sentence) {
  app->add_option("overrides", overrides, sentence);
  app->add_option_function<std::vector<std::string>>(override_option,
                                                     [&overrides](const std::vector<std::string>& more) {
                                                       overrides.insert(overrides.end(), more.begin(), more.end());
                                                     })
      ->allow_extra_args(false)
      ->group("");
}

void add_special_tokens(CLI::App* app, SpecialTexts& value, const std::string& refused) {
  const std::string sentence =
      "how to encode special tokens that are written in texts: ids, as in transformers; text, as plain text; refuse: " +
      refused;
  add_choice(app, "--special-tokens", value, sentence.c_str());
}

}  // namespace megalith
