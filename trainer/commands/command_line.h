// The command line: which subcommand it names, and running that on all ranks.
#pragma once

#include <optional>
#include <vector>

#include "trainer/commands/command.h"

namespace megalith {

class CommandLine {
 public:
  CommandLine(int argc, char** argv);

  // How the ranks of the chosen command find each other.
  CommunicationConfig communication() const;
  bool ends_by_signals() const;
  bool starts_ranks() const;

  // Collective. The exit status of all ranks; what is wrong with the line itself is an Error of all.
  int run(const Session& session) const;

 private:
  const Command* parsed() const;
  // What is wrong with the line, with the help that has the remedy; nothing where it asks for help.
  std::string complaint() const;

  CLI::App cli_{"Megalith trains GPT-2 style language models, from a laptop's CPU to hundreds of GPUs.", "megalith"};
  std::vector<Command> commands_;
  std::optional<CLI::Error> stop_;  // what is wrong with it, or a wish for help
  std::string key_;                 // of the configuration, whose help is wished for
};

}  // namespace megalith
