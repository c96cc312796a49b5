// What a subcommand is: its options in the parser, and who does its work.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "configs/config.h"
#include "trainer/session/session.h"

namespace megalith {

// Of most commands rank 0 does the work; in some all ranks take part, and these say how the ranks find each other.
// Both return the exit status and throw Error.
struct Command {
  CLI::App* app;
  std::function<int()> on_rank_0;
  std::function<int(const Session&)> on_all_ranks = {};
  std::function<CommunicationConfig()> communication = {};
};

// Each adds its subcommand to the parser.
Command train_command(CLI::App& cli);
Command verify_command(CLI::App& cli);
Command prepare_command(CLI::App& cli);
Command plan_command(CLI::App& cli);
Command search_command(CLI::App& cli);
Command measure_command(CLI::App& cli);
Command info_command(CLI::App& cli);
Command generate_command(CLI::App& cli);
Command evaluate_command(CLI::App& cli);
Command report_command(CLI::App& cli);
std::vector<Command> checkpoint_commands(CLI::App& cli);

// The positional arguments of what reads a config.
void add_config(CLI::App* app, std::string& path, std::vector<std::string>& overrides);

template <class T>
CLI::Option* add_number(CLI::App* app, const char* name, T& value, const char* sentence) {
  return app->add_option(name, value, sentence)->capture_default_str()->check(CLI::NonNegativeNumber);
}

}  // namespace megalith
