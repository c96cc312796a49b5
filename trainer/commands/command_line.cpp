#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "configs/config.h"
#include "configs/foreign_keys.h"
#include "configs/suggest.h"
#include "configs/topics.h"
#include "trainer/commands/command_line.h"
#include "trainer/commands/help.h"
#include "trainer/job/agreement.h"
#include "trainer/machine/machine.h"
#include "trainer/machine/version.h"

namespace megalith {

namespace {

// Inserts "--" before the command that `run` starts, so that later options are passed to that command.
std::vector<std::string> with_double_dash(std::vector<std::string> args, const CLI::App& run) {
  auto arg = args.begin() + 1;
  while (arg != args.end() && arg->starts_with("-") && *arg != "--") {
    const CLI::Option* option = run.get_option_no_throw(*arg);
    const bool value_follows = option && option->get_type_size_max() > 0 && arg + 1 != args.end();
    arg += value_follows ? 2 : 1;
  }
  if (arg != args.end() && *arg != "--") args.insert(arg, "--");
  return args;
}

// Rewrites arguments for the parser: `help X` into X --help, and --section.key=value into an override for commands with
// a configuration.
std::vector<std::string> normalized(std::vector<std::string> args, const CLI::App& cli) {
  if (!args.empty() && args.front() == "help") {
    args.erase(args.begin());
    args.emplace_back("--help");
  }
  const CLI::App* named = &cli;
  for (const std::string& arg : args) {
    const CLI::App* next = nullptr;
    for (const CLI::App* command : commands_of(*named))
      if (command->get_name() == arg) next = command;
    if (!next) break;
    named = next;
  }
  if (named->get_name() == "run") return with_double_dash(std::move(args), *named);
  if (!named->get_option_no_throw("overrides")) return args;
  for (auto arg = args.begin(); arg != args.end() && *arg != "--"; ++arg) {
    const std::string key = arg->substr(0, arg->find('='));
    if (!key.starts_with("--") || key.find('.') == std::string::npos) continue;
    const bool value_follows = *arg == key;
    *arg = fmt::format("{}={}", override_option, arg->substr(2));
    const auto value = arg + 1;
    if (value_follows && value != args.end() && !value->starts_with("--")) {
      *arg += "=" + *value;
      arg = args.erase(value) - 1;
    }
  }
  return args;
}

bool names_a_command(const std::string& name, const CLI::App& cli) {
  return std::ranges::any_of(commands_of(cli), [&](const CLI::App* command) { return command->get_name() == name; });
}

// Returns the key or the section of the configuration in `help checkpoint.keep`; "" if a command is meant.
std::string help_key(const std::vector<std::string>& args, const CLI::App& cli) {
  if (args.size() != 2 || args[0] != "help") return "";
  const std::string name = args[1].substr(args[1].starts_with("--") ? 2 : 0);
  if (names_a_command(name, cli)) return "";
  bool known = name.find('.') != std::string::npos;
  for (const auto& [key, value] : key_values(Config{})) {
    const size_t dot = key.find('.');
    known = known || key.substr(0, dot) == name || key.substr(dot + 1) == name;
  }
  return known ? name : "";
}

bool has_word(std::string text, const std::string& word) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return has_phrase(text, word);
}

void add_commands_with(const CLI::App& app, const std::string& word, std::string& found) {
  for (const CLI::App* command : commands_of(app)) {
    const std::string name = name_of(*command);
    if (has_word(name + command->get_description(), word))
      found += fmt::format("{}\n      {}.\n", name, command->get_description());
    for (const CLI::Option* option : options_of(*command))
      if (has_word(head_of(*option) + describe(*option), word))
        found += fmt::format("{} {}\n      {}.\n", name, head_of(*option), describe(*option));
    add_commands_with(*command, word, found);
  }
}

// Returns the topics about these words, the keys, commands and options whose names or descriptions have them, and our
// name for another program's key; "" if there are none.
std::string help_with_words(std::string word, const CLI::App& cli) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  std::string found = topics_about(word), section;
  if (word.size() < 3) return found;
  if (const std::string known = foreign_key_message(word); !known.empty()) found += known + ".\n";
  for (const auto& [key, value] : key_values(Config{})) {
    const std::string text = describe_options(key);
    if (!has_word(text.substr(text.find('\n')), word)) continue;
    const std::string heading = text.substr(0, text.find('\n') + 1);
    found += heading == section ? text.substr(heading.size()) : text;
    section = heading;
  }
  add_commands_with(cli, word, found);
  return found;
}

// Returns the command that was named last: `export` in `megalith checkpoint export`.
const CLI::App& last_named(const CLI::App& app) {
  for (const CLI::App* command : commands_of(app))
    if (command->parsed()) return last_named(*command);
  return app;
}

template <class Named>
std::vector<std::string> names_of(const std::vector<Named>& all) {
  std::vector<std::string> names;
  for (const auto* one : all) names.push_back(one->get_name());
  return names;
}

// Suggests an option of the command, or a key of its configuration whose section was left out, for `--name`.
std::string suggested_option(const CLI::App& app, const std::string& name) {
  const std::string option = nearest(name, names_of(options_of(app)));
  if (!option.empty() || !app.get_option_no_throw("overrides")) return option;
  std::vector<std::string> bare, keys;
  for (const auto& [key, value] : key_values(Config{})) {
    keys.push_back(key);
    bare.push_back("--" + key.substr(key.find('.') + 1));
  }
  const auto found = std::find(bare.begin(), bare.end(), nearest(name, bare));
  return found == bare.end() ? "" : keys[static_cast<size_t>(found - bare.begin())] + "=...";
}

std::string unknown_argument(const CLI::App& app, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  const bool option = argument.starts_with("-");
  const std::vector<std::string> commands = names_of(commands_of(app));
  if (!option && commands.empty()) return fmt::format("{} does not take `{}`", name_of(app), shown(name));
  const std::string meant = option ? suggested_option(app, name) : nearest(name, commands);
  const std::string what = fmt::format("{} has no {} `{}`", name_of(app), option ? "option" : "command", shown(name));
  if (app.get_option_no_throw("overrides"))
    if (const std::string known = foreign_key_message(name); !known.empty()) return fmt::format("{}: {}", what, known);
  if (!meant.empty()) return fmt::format("{}; did you mean `{}`?", what, meant);
  return option ? what : fmt::format("{}; its commands are {}", what, fmt::join(commands, ", "));
}

std::string unknown_words(const std::string& words, const std::vector<std::string>& commands) {
  const std::string meant = nearest(words, commands);
  return fmt::format("megalith knows no command, option or topic `{}`{}", shown(words),
                     meant.empty() ? "" : fmt::format("; did you mean `{}`?", meant));
}

}  // namespace

CommandLine::CommandLine(int argc, char** argv) {
  cli_.formatter(std::make_shared<HelpText>());
  cli_.get_help_ptr()->description("this text");
  cli_.set_version_flag("--version", fmt::format("{}\n{}", version(), built_for()),
                        "version, commit, and the machines that it was built for");
  cli_.require_subcommand(0, 1);  // usage_error() names an unknown one
  commands_ = {train_command(cli_),    run_command(cli_),    verify_command(cli_),   prepare_command(cli_),
               plan_command(cli_),     search_command(cli_), measure_command(cli_),  info_command(cli_),
               generate_command(cli_), chat_command(cli_),   evaluate_command(cli_), data_audit_command(cli_),
               replay_command(cli_),   report_command(cli_), doctor_command(cli_),   completion_command(cli_),
               manual_command(cli_)};
  for (Command& command : checkpoint_commands(cli_)) commands_.push_back(std::move(command));
  cli_.footer(
      "megalith help COMMAND, or megalith COMMAND --help, describes a command, megalith help checkpoint.keep a key of "
      "the configuration, and megalith help WORD... answers questions: megalith help out of memory.\n\nExit "
      "status: 0 for success. "
      "1 for an error, which standard error describes, or a "
      "negative answer: a plan that does not fit, layouts that differ, a damaged checkpoint, a machine that would stop "
      "a run. `checkpoint diff` has 1 for a difference and 2 for an error. 75: a signal has ended a training, with a "
      "checkpoint from which the same command continues (checkpoint.on_signal_seconds). All ranks end with the same "
      "status; 128 and more are signals.");
  try {
    std::vector<std::string> args{argv + std::min(argc, 1), argv + argc};
    help_key_ = help_key(args, cli_);
    if (!help_key_.empty()) throw CLI::CallForHelp();
    if (args.size() >= 2 && args[0] == "help" && !names_a_command(args[1], cli_)) {
      help_words_ = fmt::format("{}", fmt::join(args.begin() + 1, args.end(), " "));
      help_text_ = help_with_words(help_words_, cli_);
      if (!help_text_.empty()) throw CLI::CallForHelp();
    }
    args = normalized(std::move(args), cli_);
    std::reverse(args.begin(), args.end());
    cli_.parse(std::move(args));
  } catch (const CLI::ParseError& e) {
    stop_ = e;
  }
}

namespace {

// Returns the description of the option, in brackets, if CLI11's message says that one is required.
std::string missing_option(const CLI::App& app, const std::string& message) {
  for (const CLI::Option* option : app.get_options())
    if (message == option->get_name() + " is required") return fmt::format(" ({})", option->get_description());
  return "";
}

}  // namespace

std::string CommandLine::usage_error() const {
  const CLI::App& named = last_named(cli_);
  const auto see = [&](const std::string& what) {
    return fmt::format("{}{} {} --help", what, what.ends_with("?") ? " See" : "; see", name_of(named));
  };
  const bool wants_help = stop_ && stop_->get_exit_code() == 0;
  // --help of an unknown command is an error.
  if (stop_ && !(wants_help && commands_of(named).empty())) {
    std::vector<std::string> unknown = named.remaining();
    std::erase(unknown, "--");
    if (!unknown.empty() && !help_words_.empty()) return see(unknown_words(help_words_, names_of(commands_of(cli_))));
    if (!unknown.empty()) return see(unknown_argument(named, unknown.front()));
  }
  if (wants_help) return "";
  if (!parsed() && named.get_parent() && !commands_of(named).empty())
    return see(fmt::format("{} needs a command: {}", name_of(named), fmt::join(names_of(commands_of(named)), ", ")));
  if (stop_) return see(stop_->what() + missing_option(named, stop_->what()));
  return parsed() ? "" : see("no command given");
}

const Command& CommandLine::chosen() const {
  static const Command none{};
  return stop_ || !parsed() ? none : *parsed();
}

CommunicationConfig CommandLine::communication() const {
  return chosen().communication ? chosen().communication() : CommunicationConfig{};
}

int CommandLine::run(const Session& session) const {
  const bool help = stop_ && stop_->get_exit_code() == 0;
  together(session, [&] {
    const std::string wrong = usage_error();
    CHECK(wrong.empty(), "{}", wrong);
    check_threads();
  });
  // Ranks with different commands would wait for one another forever.
  const std::string command = help ? "--help" : cli_.get_subcommands().front()->get_name();
  const std::string of_rank_0 = session.broadcast_text(command);
  together(session, [&] {
    CHECK(command == of_rank_0, "the command is {}, but {} on rank 0; start every rank with the same command", command,
          of_rank_0);
  });
  if (!help && parsed()->on_all_ranks) return parsed()->on_all_ranks(session);
  int status = 0;
  together(session, [&] {
    if (session.rank() != 0) return;
    use_threads(1);
    if (!help_key_.empty() || !help_text_.empty())
      fmt::print("{}",
                 wrapped(help_text_.empty() ? topics_about(help_key_) + describe_options(help_key_) : help_text_));
    else
      status = help ? cli_.exit(*stop_) : parsed()->on_rank_0();
  });
  return std::stoi(session.broadcast_text(std::to_string(status)));
}

const Command* CommandLine::parsed() const {
  const auto found = std::ranges::find_if(commands_, [](const Command& c) { return c.app->parsed(); });
  return found == commands_.end() ? nullptr : &*found;
}

}  // namespace megalith
