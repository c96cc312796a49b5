// Makes completions for bash, zsh and fish from the parser and the configuration's keys. The scripts work alike: they
// follow the words of the line to the command that is named last, and offer what may come next. What `megalith run`
// starts is a command of its own.
#include <fmt/ranges.h>

#include <algorithm>

#include "configs/config.h"
#include "trainer/commands/command.h"
#include "trainer/commands/help.h"

namespace megalith {

namespace {

using Words = std::vector<std::string>;

struct Offers {
  Words commands;                                      // "megalith train"
  std::vector<std::pair<std::string, Words>> next;     // after "megalith train": "--shrink", ...
  std::vector<std::pair<std::string, Words>> values;   // after "megalith generate --device": "auto", ...
  Words keyed;                                         // commands that take keys of the configuration
  Words keys;                                          // "run.device="
  std::vector<std::pair<std::string, Words>> choices;  // of "run.device=": "run.device=auto", ...

  explicit Offers(const CLI::App& megalith) {
    add(megalith);
    for (const auto& [key, value] : key_values(Config{})) {
      keys.push_back(key + "=");
      Words words = choices_of(key);
      for (std::string& word : words) word.insert(0, key + "=");
      if (!words.empty()) choices.emplace_back(key + "=", words);
    }
  }

 private:
  void add(const CLI::App& app) {
    const std::string name = name_of(app);
    Words words;
    for (const CLI::App* command : commands_of(app)) {
      words.push_back(command->get_name());
      commands.push_back(name + " " + command->get_name());
    }
    for (const CLI::Option* option : options_of(app)) {
      std::string of_value = value_of(*option);
      const bool chosen = of_value.find('|') != std::string::npos;
      std::ranges::replace(of_value, '|', ' ');
      if (chosen && !option->nonpositional()) words.push_back(of_value);
      for (const std::string& long_name : option->get_lnames()) {
        words.push_back("--" + long_name);
        if (chosen) values.emplace_back(name + " --" + long_name, Words{of_value});
      }
      if (option->get_name() == "overrides") keyed.push_back(name);
    }
    next.emplace_back(name, words);
    for (const CLI::App* command : commands_of(app)) add(*command);
  }
};

// Returns 'megalith train' | 'megalith run', or with another separator.
std::string patterns(const Words& words, const char* separator) {
  return fmt::format("'{}'", fmt::join(words, fmt::format("'{}'", separator)));
}

// Returns what bash and zsh have in common: it sets `command` to the command that the words before `now` name, and
// `offers` to what may come next. The caller's line makes `word` each of these words in turn.
std::string posix_body(const Offers& all, const char* each_word) {
  std::string next, values, choices;
  for (const auto& [name, words] : all.next)
    next += fmt::format("    '{}') offers='{}' ;;\n", name, fmt::join(words, " "));
  for (const auto& [name, words] : all.values)
    values += fmt::format("    '{}') offers='{}' ;;\n", name, fmt::join(words, " "));
  for (const auto& [key, words] : all.choices)
    choices += fmt::format("      {}*) offers='{}' ;;\n", key, fmt::join(words, " "));
  return fmt::format(
      R"(  {each_word}; do
    [[ $command == 'megalith run' && $word == [a-z]* ]] && command=megalith
    case "$command $word" in
      {commands}) command="$command $word" ;;
    esac
  done
  [[ $command == 'megalith run' && $now == [a-z]* ]] && command=megalith
  case $command in
{next}  esac
  case $command in {keyed})
    [[ $now == [a-z]* ]] && offers="$offers {keys}"
    case $now in
{choices}    esac ;;
  esac
  case "$command $before" in
{values}  esac
)",
      fmt::arg("each_word", each_word), fmt::arg("commands", patterns(all.commands, " | ")), fmt::arg("next", next),
      fmt::arg("keyed", patterns(all.keyed, " | ")), fmt::arg("keys", fmt::join(all.keys, " ")),
      fmt::arg("choices", choices), fmt::arg("values", values));
}

}  // namespace

std::string bash_completion(const CLI::App& megalith) {
  // Split the line into words itself: bash's own words end at '=' as well.
  return fmt::format(
      R"(# Completion of megalith for bash: source <(megalith completion bash)
_megalith() {{
  local line=${{COMP_LINE:0:COMP_POINT}} command=megalith word offers= words
  read -ra words <<< "$line"
  [[ $line == *[[:space:]] ]] && words+=('')
  local last=$((${{#words[@]}} - 1))
  local now=${{words[last]}} before=${{words[last - 1]}}
{}  COMPREPLY=($(compgen -W "$offers" -- "$now"))
  [[ $now == -* ]] || COMPREPLY+=($(compgen -f -- "$now"))
  [[ ${{#COMPREPLY[@]}} == 1 && $COMPREPLY == *= ]] && compopt -o nospace 2>/dev/null
  [[ $now == *=* && $COMP_WORDBREAKS == *=* ]] && COMPREPLY=("${{COMPREPLY[@]#"${{now%=*}}="}}")
  return 0
}}
complete -o default -F _megalith megalith
)",
      posix_body(Offers(megalith), "for word in \"${words[@]:1:last - 1}\""));
}

std::string zsh_completion(const CLI::App& megalith) {
  return fmt::format(
      R"(#compdef megalith
# Completion of megalith for zsh: this file as _megalith in a folder of $fpath, or, after compinit,
# source <(megalith completion zsh)
_megalith() {{
  local command=megalith word offers= now=${{words[CURRENT]}} before=${{words[CURRENT-1]}}
  local -a closed open
{}  for word in ${{=offers}}; do
    if [[ $word == -* && $now != -* ]]; then continue; fi
    if [[ $word == *= ]]; then open+=($word); else closed+=($word); fi
  done
  local found=0
  compadd -- $closed && found=1
  compadd -S '' -- $open && found=1
  (( found )) && return 0
  [[ $now == *=* ]] && compset -P '*='
  _files
}}
if [[ ${{funcstack[1]}} == _megalith ]]; then _megalith "$@"; else compdef _megalith megalith; fi
)",
      posix_body(Offers(megalith), "for word in \"${(@)words[2,CURRENT-1]}\""));
}

std::string fish_completion(const CLI::App& megalith) {
  const Offers all(megalith);
  std::string next, values, choices;
  for (const auto& [name, words] : all.next)
    next += fmt::format("        case '{}'\n            set offers {}\n", name, fmt::join(words, " "));
  for (const auto& [name, words] : all.values)
    values += fmt::format("        case '{}'\n            set offers {}\n", name, fmt::join(words, " "));
  for (const auto& [key, words] : all.choices)
    choices += fmt::format("            case '{}*'\n                set offers {}\n", key, fmt::join(words, " "));
  return fmt::format(
      R"(# Completion of megalith for fish: megalith completion fish | source
function __megalith_offers
    set -l words (commandline -opc)
    set -l now (commandline -ct)
    set -l command megalith
    set -l offers
    for word in $words[2..-1]
        if test "$command" = 'megalith run'; and string match -qr '^[a-z]' -- $word
            set command megalith
        end
        switch "$command $word"
            case {commands}
                set command "$command $word"
        end
    end
    if test "$command" = 'megalith run'; and string match -qr '^[a-z]' -- "$now"
        set command megalith
    end
    switch $command
{next}    end
    switch $command
        case {keyed}
            if string match -qr '^[a-z]' -- "$now"
                set offers $offers {keys}
            end
            switch "$now"
{choices}            end
    end
    switch "$command $words[-1]"
{values}    end
    printf '%s\n' $offers
end
complete -c megalith -a '(__megalith_offers)'
)",
      fmt::arg("commands", patterns(all.commands, " ")), fmt::arg("next", next),
      fmt::arg("keyed", patterns(all.keyed, " ")), fmt::arg("keys", fmt::join(all.keys, " ")),
      fmt::arg("choices", choices), fmt::arg("values", values));
}

Command completion_command(CLI::App& cli) {
  auto* app =
      cli.add_subcommand("completion", "Print a script for shell completion: source <(megalith completion bash)");
  auto shell = std::make_shared<std::string>();
  app->add_option("shell", *shell, "the shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->type_name("bash|zsh|fish");
  return {app, [&cli, shell] {
            const auto script = *shell == "bash" ? bash_completion : *shell == "zsh" ? zsh_completion : fish_completion;
            fmt::print("{}", script(cli));
            return 0;
          }};
}

}  // namespace megalith
