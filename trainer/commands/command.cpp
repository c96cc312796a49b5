// See command.h.
#include "trainer/commands/command.h"

namespace megalith {

void add_config(CLI::App* app, std::string& path, std::vector<std::string>& overrides) {
  app->add_option("config", path, "TOML file")->required();
  app->add_option("overrides", overrides, "section.key=value ...");
  app->footer("Options of the configuration:\n" + describe_options());
}

}  // namespace megalith
