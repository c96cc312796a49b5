// See command.h.
#include "trainer/commands/command.h"

namespace megalith {

void add_config(CLI::App* app, std::string& path, std::vector<std::string>& overrides) {
  app->add_option("config", path, "TOML file")->required();
  app->add_option("overrides", overrides, "section.key=value ..., or --section.key=value");
  app->add_option_function<std::vector<std::string>>(override_option,
                                                     [&overrides](const std::vector<std::string>& more) {
                                                       overrides.insert(overrides.end(), more.begin(), more.end());
                                                     })
      ->allow_extra_args(false)
      ->group("");
  app->footer("Options of the configuration:\n" + describe_options());
}

}  // namespace megalith
