// Generates the reference pages: the man page, and the page of all options.
#include <fmt/ranges.h>

#include <sstream>

#include "configs/config.h"
#include "configs/hardware.h"
#include "trainer/commands/command.h"
#include "trainer/commands/examples.h"
#include "trainer/commands/help.h"
#include "trainer/machine/version.h"

namespace megalith {

namespace {

// Escapes text for man(7). A line that begins with a dot or a quote would be a macro, and a macro removes double quotes
// around its arguments.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '"')
      out += "\\(dq";
    else
      out += c;
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string item(const std::string& head, const std::string& text) {
  return fmt::format(".TP\n.B {}\n{}\n", roff(head), roff(text));
}

// Paragraphs are separated by empty lines.
std::string paragraphs(const std::string& text) {
  std::string out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out += line.empty() ? ".PP\n" : roff(line) + "\n";
  return out;
}

std::string command_section(const CLI::App& app) {
  std::string out = fmt::format(".SS {}\n{}", roff(name_of(app)), paragraphs(app.get_description()));
  for (const CLI::Option* option : options_of(app)) out += item(head_of(*option), describe(*option));
  for (const std::string_view example : examples_of(name_of(app))) out += item("Example", std::string(example));
  for (const CLI::App* command : commands_of(app)) out += command_section(*command);
  return out;
}

std::string key_items() {
  std::string out;
  std::istringstream lines(describe_options());
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const size_t first = line.find_first_not_of(' ');
    if (first == 0)
      out += fmt::format(".SS {}\n", roff(line));
    else if (first == 2)
      out += fmt::format(".TP\n.B {}\n", roff(line.substr(2)));
    else
      out += roff(line.substr(first)) + "\n";
  }
  return out;
}

}  // namespace

std::string man_page(const CLI::App& megalith) {
  const std::string program = version();
  std::string page = fmt::format(
      ".TH MEGALITH 1 \"\" \"{}\" \"User Commands\"\n.SH NAME\nmegalith \\- train language models from raw text or a "
      "Hugging Face checkpoint\n.SH SYNOPSIS\n.B megalith\n.I COMMAND\n[\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n{}.SH "
      "COMMANDS\n",
      roff(program.substr(0, program.find(','))), paragraphs(megalith.get_description()));
  for (const CLI::App* command : commands_of(megalith)) page += command_section(*command);
  page +=
      ".SH CONFIGURATION\nA configuration is a TOML file, the name of a recipe, or a run folder. Every key may also "
      "be given on the command line as section.key=value.\n" +
      key_items();
  page += ".SH FILES\n" +
          item("share/megalith/configs/*.toml",
               "Recipes, which commands take by name, as in megalith plan 30b_p4d. The folder is relative to the "
               "program's: /usr/share/megalith/configs for /usr/bin/megalith.") +
          item("share/megalith/configs/hardware/*.toml",
               "Profiles of machines, to read and to copy. They are also built into the program.");
  page += ".SH NOTES\n" + paragraphs(megalith.get_footer());
  return page;
}

Command manual_command(CLI::App& cli) {
  auto* app = cli.add_subcommand(
      "manual",
      "Print a reference page: man, a man page; options, every key in Markdown; profile, a hardware profile to edit");
  auto page = std::make_shared<std::string>();
  app->add_option("page", *page, "the page")
      ->required()
      ->check(CLI::IsMember({"man", "options", "profile"}))
      ->type_name("man|options|profile");
  return {app, [&cli, page] {
            fmt::print("{}", *page == "man" ? man_page(cli) : *page == "options" ? options_page() : profile_template());
            return 0;
          }};
}

}  // namespace megalith
