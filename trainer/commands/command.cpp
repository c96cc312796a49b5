// See command.h.
#include "trainer/commands/command.h"

namespace megalith {

void add_config(CLI::App* app, std::string& path, std::vector<std::string>& overrides) {
  app->add_option("config", path, "TOML file")->required();
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

}  // namespace megalith
