// Declares the subcommands, with their options in the parser and the functions that run them.
#pragma once

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "configs/config.h"
#include "data/tokenizers/special_text.h"
#include "trainer/session/session.h"

namespace megalith {

// Most commands run on rank 0; in some all ranks take part, which connect as `communication` specifies. Both functions
// return the exit status and throw Error.
struct Command {
  CLI::App* app;
  std::function<int()> on_rank_0;
  std::function<int(const Session&)> on_all_ranks = {};
  std::function<CommunicationConfig()> communication = {};
  bool handles_signals = false;
  bool starts_ranks = false;  // this process is then not a rank, however it was started
};

// Each adds a subcommand to the parser.
Command train_command(CLI::App& cli);
Command run_command(CLI::App& cli);
Command verify_command(CLI::App& cli);
Command prepare_command(CLI::App& cli);
Command plan_command(CLI::App& cli);
Command search_command(CLI::App& cli);
Command measure_command(CLI::App& cli);
Command info_command(CLI::App& cli);
Command generate_command(CLI::App& cli);
Command chat_command(CLI::App& cli);
Command evaluate_command(CLI::App& cli);
Command replay_command(CLI::App& cli);
Command report_command(CLI::App& cli);
Command doctor_command(CLI::App& cli);
Command completion_command(CLI::App& cli);
Command manual_command(CLI::App& cli);
std::vector<Command> checkpoint_commands(CLI::App& cli);
Command data_audit_command(CLI::App& cli);

// Adds the positional arguments of a command that reads a config.
void add_config(CLI::App* app, std::string& path, std::vector<std::string>& overrides);

// Returns whether a word is section.key=value, with a key of the configuration: an option of several words takes the
// overrides that follow them as well.
bool is_override(const std::string& word);

// Moves the first word to the overrides if it is one, and not the name of a file.
void move_override(std::string& first_word, std::vector<std::string>& overrides);

// Adds the overrides, and the hidden option for one more override, which wins.
constexpr const char* override_option = "--override";
void add_overrides(CLI::App* app, std::vector<std::string>& overrides, const char* sentence);

// Checks that a number is at least `least`. CLI11's own check would also print the largest double.
CLI::Validator no_less_than(int64_t least);

template <class T>
CLI::Option* add_number(CLI::App* app, const char* name, T& value, const char* sentence, int64_t least = 0) {
  return app->add_option(name, value, sentence)->capture_default_str()->check(no_less_than(least));
}

// Adds an option that takes one of the words of a choice.
template <class Choice>
CLI::Option* add_choice(CLI::App* app, const char* name, Choice& value, const char* sentence) {
  const std::string words = fmt::format("{}", fmt::join(choice_words<Choice>(), "|"));
  const auto check = [words](const std::string& word) {
    return parse_choice<Choice>(word) ? "" : fmt::format("{} is not one of {}", word, words);
  };
  return app
      ->add_option_function<std::string>(
          name, [&value](const std::string& word) { value = *parse_choice<Choice>(word); }, sentence)
      ->check(CLI::Validator(check, ""))
      ->type_name(words)
      ->default_str(to_string(value));
}

constexpr auto words_of(SpecialTexts) { return words("ids", "text", "refuse"); }

// Adds --special-tokens; `refused` describes the effect of refusing.
void add_special_tokens(CLI::App* app, SpecialTexts& value, const std::string& refused);

}  // namespace megalith
