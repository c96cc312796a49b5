// What --help prints, in lines of at most 80 characters, and what bash offers on Tab: both are read off the parser.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace megalith {

class HelpText : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

// Lines that are too long go on below where they began: below the last column of what has columns.
std::string folded(const std::string& text);

// "megalith checkpoint export".
std::string name_of(const CLI::App& app);

// A script for `source`: completes commands, options, keys of the configuration and the words of choices.
std::string bash_completion(const CLI::App& megalith);

// The subcommands of an app, and its options that are listed.
std::vector<const CLI::App*> commands_of(const CLI::App& app);
std::vector<const CLI::Option*> options_of(const CLI::App& app);

}  // namespace megalith
