// megalith completion.
#include "trainer/commands/command.h"
#include "trainer/commands/help.h"

namespace megalith {

Command completion_command(CLI::App& cli) {
  auto* app =
      cli.add_subcommand("completion", "A script that makes a shell complete: source <(megalith completion bash)");
  app->add_option("shell", "the shell")->required()->check(CLI::IsMember({"bash"}))->type_name("bash");
  return {app, [&cli] {
            fmt::print("{}", bash_completion(cli));
            return 0;
          }};
}

}  // namespace megalith
