// Parses the command line, and runs the subcommand that it names on all ranks.
#pragma once

#include <optional>
#include <vector>

#include "trainer/commands/command.h"

namespace megalith {

class CommandLine {
 public:
  CommandLine(int argc, char** argv);

  // Returns how the ranks of the chosen command find each other.
  CommunicationConfig communication() const;
  bool handles_signals() const { return chosen().handles_signals; }
  bool starts_ranks() const { return chosen().starts_ranks; }

  // Collective. Returns the exit status of all ranks. Throws Error on all where the line is wrong.
  int run(const Session& session) const;

 private:
  const Command* parsed() const;
  const Command& chosen() const;  // an empty one where the line is wrong or asks for help
  // Returns what is wrong with the line, and the help that has the remedy; "" where it asks for help.
  std::string usage_error() const;

  CLI::App cli_{"Megalith trains GPT-2 style language models, from a laptop's CPU to hundreds of GPUs.", "megalith"};
  std::vector<Command> commands_;
  std::optional<CLI::Error> stop_;  // an error or a request for help
  std::string help_key_;            // key or section of the configuration whose help is requested
};

}  // namespace megalith
