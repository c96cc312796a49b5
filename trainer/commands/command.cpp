#include "trainer/commands/command.h"

namespace megalith {

CLI::Validator no_less_than(int64_t least) {
  const auto check = [least](const std::string& word) {
    double value = 0;
    if (!CLI::detail::lexical_cast(word, value)) return fmt::format("{} is not a number", word);
    return value >= static_cast<double>(least) ? "" : fmt::format("{} is too small; give {} or more", word, least);
  };
  return {check, fmt::format(">={}", least), ""};
}

void add_config(CLI::App* app, std::string& path, std::vector<std::string>& overrides) {
  app->add_option("config", path, "TOML file, a run folder, or the name of a recipe")->required();
  add_overrides(app, overrides, "section.key=value ..., or --section.key=value");
  app->footer("Options of the configuration:\n" + describe_options());
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
      "what special tokens that are written out in texts become: ids, as in transformers; text, as if they were none; "
      "refuse: " +
      refused;
  add_choice(app, "--special-tokens", value, sentence.c_str());
}

}  // namespace megalith
