// megalith data audit.
#include <fmt/format.h>

#include "trainer/commands/command.h"
#include "trainer/train/audit.h"

namespace megalith {

Command data_audit_command(CLI::App& cli) {
  auto* group = cli.add_subcommand("data", "What a run was trained on");
  group->require_subcommand(1);
  auto* app = group->add_subcommand(
      "audit", "Prove from a run's metrics and checkpoints that it left out and repeated no sample within an epoch");
  auto run = std::make_shared<std::string>();
  app->add_option("run", *run, "run folder")->required();
  return {app, [run] {
            const Audit audit = audit_run(*run);
            for (const std::string& line : audit.lines) fmt::print("{}\n", line);
            fmt::print("{}\n", audit.violation.empty() ? "all well: within an epoch no sample was repeated or left out"
                                                       : "VIOLATION: " + audit.violation);
            return audit.violation.empty() ? 0 : 1;
          }};
}

}  // namespace megalith
