// Generates the documentation of commands and options from the parser: the text of --help, in lines of at most 80
// characters, and the man page.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace megalith {

class HelpText : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

// Wraps long lines. They continue below their beginning or, in a table, below the last column.
std::string wrapped(const std::string& text);

// Returns "megalith checkpoint export".
std::string name_of(const CLI::App& app);

// Returns the man page megalith(1) in the macros of man(7), without a date: the same program has the same page.
std::string man_page(const CLI::App& megalith);

// Return the subcommands of an app, and its listed options.
std::vector<const CLI::App*> commands_of(const CLI::App& app);
std::vector<const CLI::Option*> options_of(const CLI::App& app);

// Return how an option is written, "--device auto|cuda|cpu"; its value alone, "INTEGER", "TEXT ..."; and its sentence
// with its default.
std::string head_of(const CLI::Option& option);
std::string value_of(const CLI::Option& option);
std::string describe(const CLI::Option& option);

}  // namespace megalith
