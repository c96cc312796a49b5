// Completion for bash, zsh and fish. Their scripts ask the program for the possible next words, which it takes from the
// parser and the configuration's keys: `megalith completion bash --offers=LINES` prints them, one a line. The first of
// LINES is the unfinished word, the others are the words before it.
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "configs/config.h"
#include "configs/config_file.h"
#include "configs/hardware.h"
#include "trainer/commands/command.h"
#include "trainer/commands/help.h"

namespace megalith {

namespace {

using Words = std::vector<std::string>;

// Returns the words of a choice such as "auto|cuda|cpu"; an empty list for the name of a value, such as "INTEGER".
Words choices_in(const std::string& value) {
  Words words;
  std::istringstream in(value);
  for (std::string word; std::getline(in, word, '|');) words.push_back(word);
  return words.size() > 1 ? words : Words{};
}

Words words_in(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

Words offers(const CLI::App& megalith, const std::string& begun, const Words& before) {
  const auto begins_small = [](const std::string& word) { return !word.empty() && word[0] >= 'a' && word[0] <= 'z'; };
  const CLI::App* command = &megalith;
  const auto enter = [&](const std::string& word) {
    // What `megalith run` starts is a command of its own.
    if (name_of(*command) == "megalith run" && begins_small(word)) command = &megalith;
  };
  for (const std::string& word : before) {
    enter(word);
    for (const CLI::App* next : commands_of(*command))
      if (next->get_name() == word) {
        command = next;
        break;
      }
  }
  enter(begun);
  Words words;
  for (const CLI::App* next : commands_of(*command)) words.push_back(next->get_name());
  for (const CLI::Option* option : options_of(*command)) {
    Words choices = choices_in(value_of(*option));
    if (!option->nonpositional()) words.insert(words.end(), choices.begin(), choices.end());
    for (const std::string& name : option->get_lnames()) {
      if (!before.empty() && before.back() == "--" + name && !choices.empty()) return choices;
      words.push_back("--" + name);
    }
    if (option->get_name() == "config" && !begun.empty()) {
      const Words recipes = recipe_names();
      words.insert(words.end(), recipes.begin(), recipes.end());
    }
    if (option->get_name() != "overrides" || !begins_small(begun)) continue;
    if (const size_t end = begun.find('='); end != std::string::npos) {
      const std::string key = begun.substr(0, end);
      Words values = key == "hardware.profile" ? words_in(known_profile_names()) : choices_of(key);
      for (std::string& value : values) value.insert(0, begun.substr(0, end + 1));
      if (!values.empty()) return values;
    }
    for (const auto& [key, value] : key_values(Config{})) words.push_back(key + "=");
  }
  return words;
}

constexpr const char* bash_script = R"sh(# Completion of megalith for bash: source <(megalith completion bash)
_megalith() {
  # Split the line into words here: bash's own words end at '=' as well.
  local line=${COMP_LINE:0:COMP_POINT} words
  read -ra words <<< "$line"
  [[ $line == *[[:space:]] ]] && words+=('')
  local last=$((${#words[@]} - 1))
  local now=${words[last]}
  local lines=$(printf '%s\n' "$now" "${words[@]:1:last - 1}")
  COMPREPLY=($(compgen -W "$("${words[0]}" completion bash --offers="$lines" 2>/dev/null)" -- "$now"))
  [[ $now == -* ]] || COMPREPLY+=($(compgen -f -- "$now"))
  [[ ${#COMPREPLY[@]} == 1 && $COMPREPLY == *= ]] && compopt -o nospace 2>/dev/null
  [[ $now == *=* && $COMP_WORDBREAKS == *=* ]] && COMPREPLY=("${COMPREPLY[@]#"${now%=*}="}")
  return 0
}
complete -o default -F _megalith megalith
)sh";

constexpr const char* zsh_script = R"sh(#compdef megalith
# Completion of megalith for zsh: this file as _megalith in a folder of $fpath, or, after compinit,
# source <(megalith completion zsh)
_megalith() {
  local word now=${words[CURRENT]}
  local lines=$(printf '%s\n' "$now" "${(@)words[2,CURRENT-1]}")
  local -a closed open
  for word in ${(f)"$(${words[1]} completion zsh --offers="$lines" 2>/dev/null)"}; do
    if [[ $word == -* && $now != -* ]]; then continue; fi
    if [[ $word == *= ]]; then open+=($word); else closed+=($word); fi
  done
  local found=0
  compadd -- $closed && found=1
  compadd -S '' -- $open && found=1
  (( found )) && return 0
  [[ $now == *=* ]] && compset -P '*='
  _files
}
if [[ ${funcstack[1]} == _megalith ]]; then _megalith "$@"; else compdef _megalith megalith; fi
)sh";

constexpr const char* fish_script = R"sh(# Completion of megalith for fish: megalith completion fish | source
function __megalith_offers
    set -l words (commandline -opc)
    set -l now (commandline -ct)
    set -l lines (printf '%s\n' "$now" $words[2..-1] | string collect)
    $words[1] completion fish --offers="$lines" 2>/dev/null
end
complete -c megalith -a '(__megalith_offers)'
)sh";

}  // namespace

Command completion_command(CLI::App& cli) {
  auto* app =
      cli.add_subcommand("completion", "Print a script for shell completion: source <(megalith completion bash)");
  auto shell = std::make_shared<std::string>(), lines = std::make_shared<std::string>();
  app->add_option("shell", *shell, "the shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->type_name("bash|zsh|fish");
  const CLI::Option* asked = app->add_option("--offers", *lines, "what its script asks")->group("");
  return {app, [&cli, shell, lines, asked] {
            if (asked->count() == 0) {
              fmt::print("{}", *shell == "bash" ? bash_script : *shell == "zsh" ? zsh_script : fish_script);
              return 0;
            }
            std::istringstream in(*lines);
            std::string begun;
            std::getline(in, begun);
            Words before;
            for (std::string word; std::getline(in, word);) before.push_back(word);
            fmt::print("{}\n", fmt::join(offers(cli, begun, before), "\n"));
            return 0;
          }};
}

}  // namespace megalith
