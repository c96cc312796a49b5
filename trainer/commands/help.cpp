#include "trainer/commands/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "trainer/commands/examples.h"

namespace megalith {

namespace {

constexpr size_t width = 80, column = 26;

// Wraps text into lines after `indent` blanks. The first line follows `head`, or begins below it if it is long.
std::string entry(const std::string& head, const std::string& text, size_t indent) {
  const bool head_fits = head.empty() || head.size() + 2 <= indent;
  std::string lines = head_fits ? "" : head + "\n", line = head_fits ? head : "";
  line.resize(indent, ' ');
  std::istringstream words(text);
  bool empty = true;
  for (std::string word; std::getline(words, word, ' '); empty = false) {
    if (!empty && line.size() + 1 + word.size() > width) {
      lines += line + "\n";
      line = std::string(indent, ' ') + word;
    } else {
      line += (empty ? "" : " ") + word;
    }
  }
  return lines + line + "\n";
}

}  // namespace

std::string wrapped(const std::string& text) {
  std::string lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find_first_not_of(' ');
    if (line.size() <= width || first == std::string::npos) {
      lines += line + "\n";
      continue;
    }
    const size_t gap = line.rfind("  ");
    const size_t text_at = gap == std::string::npos || gap < first ? first : gap + 2;
    const size_t head = line.find_last_not_of(' ', text_at - 1);
    lines += entry(head == std::string::npos || text_at == first ? "" : line.substr(0, head + 1), line.substr(text_at),
                   text_at);
  }
  return lines;
}

std::string value_of(const CLI::Option& option) {
  if (option.get_type_size_max() == 0) return "";
  const std::string type = option.get_type_name();
  std::string value = type.substr(0, type.find(':'));
  if (value == "FLOAT" || value == "UINT" || value == "INT") value = value == "FLOAT" ? "NUMBER" : "INTEGER";
  if (value.find(',') != std::string::npos || value.starts_with("[")) value = "TEXT";
  return value + (option.get_expected_max() > 1 ? " ..." : "");
}

namespace {

// Turns "[a,b]" into "a, b".
std::string spaced(std::string list) {
  if (list.starts_with('[') && list.ends_with(']')) list = list.substr(1, list.size() - 2);
  for (size_t at = list.find(','); at != std::string::npos; at = list.find(',', at + 2)) list.insert(at + 1, " ");
  return list;
}

std::string names_of(const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options) names.push_back(option->get_name());
  std::sort(names.begin(), names.end());
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string describe(const CLI::Option& option) {
  std::vector<std::string> notes;
  if (option.get_required()) notes.emplace_back("required");
  if (const std::string value = option.get_default_str(); !value.empty()) notes.push_back("default " + spaced(value));
  if (!option.get_needs().empty()) notes.push_back("with " + names_of(option.get_needs()));
  if (!option.get_excludes().empty()) notes.push_back("not with " + names_of(option.get_excludes()));
  const std::string text = option.get_description();
  if (notes.empty()) return text;
  return fmt::format("{}{}({})", text, text.empty() ? "" : " ", fmt::join(notes, "; "));
}

std::string head_of(const CLI::Option& option) {
  if (!option.nonpositional()) return option.get_name() + (option.get_expected_max() > 1 ? " ..." : "");
  const std::string names = spaced(option.get_name(false, true));
  const std::string value = value_of(option);
  return value.empty() ? names : names + " " + value;
}

std::string name_of(const CLI::App& app) {
  return app.get_parent() ? name_of(*app.get_parent()) + " " + app.get_name() : app.get_name();
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_name().empty(); });
}

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return !option->get_group().empty(); });
}

std::string HelpText::make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const {
  std::string usage = "usage: " + name_of(*app), arguments, options, commands;
  for (const CLI::Option* option : options_of(*app)) {
    const std::string line = entry("  " + head_of(*option), describe(*option), column);
    if (option->nonpositional()) {
      options += line;
    } else {
      arguments += line;
      usage += (option->get_required() ? " " : " [") + head_of(*option) + (option->get_required() ? "" : "]");
    }
  }
  for (const CLI::App* command : commands_of(*app))
    commands += entry("  " + command->get_name(), command->get_description(), 14);
  usage += commands.empty() ? " [OPTIONS]" : " COMMAND";
  std::string text = wrapped(app->get_description()) + "\n" + usage + "\n";
  if (!arguments.empty()) text += "\n" + arguments;
  if (!commands.empty()) text += "\ncommands:\n" + commands;
  if (!options.empty()) text += "\noptions:\n" + options;
  if (!app->get_footer().empty()) text += "\n" + wrapped(app->get_footer());
  if (const auto examples = examples_of(name_of(*app)); !examples.empty())
    text += fmt::format("\nexamples:\n  {}\n", fmt::join(examples, "\n  "));
  return text;
}

}  // namespace megalith
