// What a subcommand is: its options in the parser, and who does its work.
#pragma once

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "configs/choices.h"
#include "trainer/session/session.h"

namespace megalith {

// Of most commands rank 0 does the work; in some all ranks take part, and these say how the ranks find each other.
// Both return the exit status and throw Error.
struct Command {
  CLI::App* app;
  std::function<int()> on_rank_0;
  std::function<int(const Session&)> on_all_ranks = {};
  std::function<CommunicationConfig()> communication = {};
  bool ends_by_signals = false;  // in its own way, which SignalWatch sees to
  bool starts_ranks = false;     // and is itself none, wherever it was started
};

// Each adds its subcommand to the parser.
Command train_command(CLI::App& cli);
Command run_command(CLI::App& cli);
Command verify_command(CLI::App& cli);
Command prepare_command(CLI::App& cli);
Command plan_command(CLI::App& cli);
Command search_command(CLI::App& cli);
Command measure_command(CLI::App& cli);
Command info_command(CLI::App& cli);
Command generate_command(CLI::App& cli);
Command evaluate_command(CLI::App& cli);
Command replay_command(CLI::App& cli);
Command report_command(CLI::App& cli);
Command doctor_command(CLI::App& cli);
Command completion_command(CLI::App& cli);
std::vector<Command> checkpoint_commands(CLI::App& cli);
Command data_audit_command(CLI::App& cli);

// The positional arguments of what reads a config.
void add_config(CLI::App* app, std::string& path, std::vector<std::string>& overrides);

// The overrides among them; and the option, not listed, that gives one more override, which wins against those.
constexpr const char* override_option = "--override";
void add_overrides(CLI::App* app, std::vector<std::string>& overrides, const char* sentence);

// A check of a number that has a least value; CLI11's own names the largest double as the other end.
CLI::Validator no_less_than(int64_t least);

template <class T>
CLI::Option* add_number(CLI::App* app, const char* name, T& value, const char* sentence) {
  return app->add_option(name, value, sentence)->capture_default_str()->check(no_less_than(0));
}

// An option that is one of the words of a choice of the configuration.
template <class Choice>
CLI::Option* add_choice(CLI::App* app, const char* name, Choice& value, const char* sentence) {
  const std::string words = fmt::format("{}", fmt::join(choice_words<Choice>(), "|"));
  const auto check = [words](const std::string& word) {
    return parse_choice<Choice>(word) ? "" : fmt::format("{} is none of {}", word, words);
  };
  return app
      ->add_option_function<std::string>(
          name, [&value](const std::string& word) { value = *parse_choice<Choice>(word); }, sentence)
      ->check(CLI::Validator(check, ""))
      ->type_name(words)
      ->default_str(to_string(value));
}

}  // namespace megalith
