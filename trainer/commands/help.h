// Makes the text of --help, in lines of at most 80 characters, and bash's completions from the parser.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace megalith {

class HelpText : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

// Wraps long lines. They continue below their beginning, or below the last column of a table.
std::string wrapped(const std::string& text);

// Returns "megalith checkpoint export".
std::string name_of(const CLI::App& app);

// Returns a script for `source` that completes commands, options, keys of the configuration and words of choices.
std::string bash_completion(const CLI::App& megalith);

// Return the subcommands of an app, and its listed options.
std::vector<const CLI::App*> commands_of(const CLI::App& app);
std::vector<const CLI::Option*> options_of(const CLI::App& app);

}  // namespace megalith
