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

  // Collective. Returns the exit status of all ranks. Throws Error on all of them if the command line is invalid.
  int run(const Session& session) const;

 private:
  const Command* parsed() const;
  const Command& chosen() const;  // empty if the command line is invalid or asks for help
  // Returns the error in the command line, and the help that has the remedy; "" if it asks for help.
  std::string usage_error() const;

  CLI::App cli_{
      "Megalith trains language models (GPT-2, Llama, Qwen and others), from a text file to a model that completes "
      "text or chats, on one CPU or hundreds of GPUs.",
      "megalith"};
  std::vector<Command> commands_;
  std::optional<CLI::Error> stop_;  // an error or a request for help
  std::string help_key_;            // key or section of the configuration whose help is requested
  std::string help_words_;          // the words after `help`, unless the first names a command
  std::string help_text_;           // the help of these words, unless they are a key
};

}  // namespace megalith
