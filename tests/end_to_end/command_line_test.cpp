// The front door: what the program says of itself, and what it understands.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <regex.h>  // <regex> takes the compiler a second

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

Result said(const Args& args) {
  const Scratch scratch;
  return run(megalith(args), scratch.folder(), 20);
}

// The help of every command and group, by its words, read off the help of the program and of its groups.
void collect_help(const Args& command, std::map<Args, std::string>& all) {
  Args help{"help"};
  help.insert(help.end(), command.begin(), command.end());
  const Result result = said(help);
  EXPECT_EQ(result.status, 0) << result.text();
  const std::string text = all[command] = result.out;
  const size_t begin = text.find("\ncommands:\n");
  if (begin == std::string::npos) return;
  std::istringstream lines(text.substr(begin + 11, text.find("\n\n", begin + 1) - begin - 11));
  for (std::string line; std::getline(lines, line);) {
    if (line.size() < 3 || line[2] == ' ') continue;  // a description goes on
    Args below = command;
    below.push_back(line.substr(2, line.find(' ', 2) - 2));
    collect_help(below, all);
  }
}

TEST(CommandLine, says_its_version_commit_and_machines) {
  const Result version = said({"--version"});
  EXPECT_EQ(version.status, 0);
  regex_t line;
  ASSERT_EQ(::regcomp(&line,
                      "^megalith [0-9]+\\.[0-9]+\\.[0-9]+, commit ([0-9a-f]{12}(, with changes)?|unknown)\n"
                      "built for [^\n]*processor[^\n]*, with(out)? [^\n]*GPUs[^\n]*, by [A-Za-z]+ [0-9.]+ on [^\n]+\n$",
                      REG_EXTENDED | REG_NOSUB),
            0);
  EXPECT_EQ(::regexec(&line, version.out.c_str(), 0, nullptr, 0), 0) << version.text();
  ::regfree(&line);
}

// Each command's help ends with two examples, whose options it has.
TEST(CommandLine, every_command_has_two_examples) {
  std::map<Args, std::string> all;
  collect_help({}, all);
  size_t commands = 0;
  for (const auto& [command, help] : all) {
    const bool is_group = help.find("\ncommands:\n") != std::string::npos;
    const size_t at = help.find("\nexamples:\n");
    EXPECT_EQ(at == std::string::npos, is_group) << help;
    if (is_group || at == std::string::npos) continue;
    commands++;
    std::istringstream lines(help.substr(at + 11));
    int examples = 0;
    for (std::string line; std::getline(lines, line); examples++) {
      EXPECT_LE(line.size(), 80u) << line;
      EXPECT_NE(line.find(fmt::format(" {}", fmt::join(command, " "))), std::string::npos) << line;
      std::istringstream words(line);
      for (std::string word; words >> word;) {
        if (!word.starts_with("--")) continue;
        const bool of_run =
            line.find("megalith run ") != std::string::npos && all[{"run"}].find(word) != std::string::npos;
        EXPECT_TRUE(of_run || help.substr(0, at).find(word) != std::string::npos) << word << " in: " << line;
      }
    }
    EXPECT_EQ(examples, 2) << help;
  }
  EXPECT_GT(commands, 20u);
}

// What writes the version, on trees of its own.
TEST(CommandLine, the_commit_is_that_of_the_sources) {
  const Scratch scratch;
  const auto sh = [&](const std::string& line) {
    const Result result = run({"sh", "-c", line}, scratch.folder(), 20);
    EXPECT_EQ(result.status, 0) << result.text();
    return result.out;
  };
  if (run({"git", "--version"}, scratch.folder(), 20).status != 0) GTEST_SKIP() << "there is no git";
  const auto written = [&](const std::string& folder) {
    sh("cmake -DSOURCE=" + scratch / folder + " -DVERSION=1.2.3 -DFILE=" + (scratch / "version.cpp") + " -P " +
       MEGALITH_SOURCE_DIR "/trainer/machine/commit.cmake");
    const std::string text = read_file(scratch / "version.cpp");
    const size_t begin = text.find("megalith 1.2.3, ");
    return text.substr(begin, text.find('"', begin) - begin);
  };
  sh("mkdir -p tree/unpacked plain && cd tree && git init -q . && echo a > file && git add file && "
     "git -c user.name=a -c user.email=a@b commit -qm a");
  const std::string commit = sh("git -C tree rev-parse --short=12 HEAD").substr(0, 12);
  EXPECT_EQ(written("tree"), "megalith 1.2.3, commit " + commit);
  const auto time = std::filesystem::last_write_time(scratch / "version.cpp");
  written("tree");
  EXPECT_EQ(std::filesystem::last_write_time(scratch / "version.cpp"), time) << "what stays as it is compiles nothing";
  write_file(scratch / "tree/file", "b");
  EXPECT_EQ(written("tree"), "megalith 1.2.3, commit " + commit + ", with changes");
  EXPECT_EQ(written("tree/unpacked"), "megalith 1.2.3, commit unknown");
  EXPECT_EQ(written("plain"), "megalith 1.2.3, commit unknown");
}

TEST(CommandLine, help_is_of_the_command_that_it_names_and_fits_80_columns) {
  std::map<Args, std::string> all;
  collect_help({}, all);
  EXPECT_GE(all.size(), 15u);
  EXPECT_NE(all[{}].find("Exit status: 0 "), std::string::npos);
  EXPECT_EQ(all[{}], said({"--help"}).out);
  EXPECT_EQ((all[{"checkpoint", "export"}]), said({"checkpoint", "export", "-h"}).out);
  EXPECT_NE(all[{"generate"}].find("--device auto|cuda|cpu"), std::string::npos);
  for (const auto& [command, text] : all) {
    const std::string name = fmt::format("{}", fmt::join(command, " "));
    EXPECT_NE(text.find("usage: megalith " + name), std::string::npos) << text;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << line;
      EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
    }
    EXPECT_EQ(count(text, "ENUM") + count(text, "->") + count(text, "NONNEGATIVE"), 0u) << text;
  }
}

TEST(CommandLine, mistakes_are_answered_with_what_was_meant) {
  for (const auto& [args, words] : std::vector<std::pair<Args, std::string>>{
           {{"trian", "x"}, "megalith has no command `trian`; did you mean `train`? See megalith --help"},
           {{"help", "trian"},
            "megalith knows no command, option or topic `trian`; did you mean `train`? See megalith --help"},
           {{"help", "loud", "music"}, "megalith knows no command, option or topic `loud music`; see megalith --help"},
           {{"help", "checkpoint", "exprot"}, "has no command `exprot`; did you mean `export`?"},
           {{"qqqqqqq"}, "megalith has no command `qqqqqqq`; its commands are train, run, verify, "},
           {{"checkpoint"},
            "megalith checkpoint needs a command: inspect, verify, export, diff, reshard, average; see megalith "
            "checkpoint "
            "--help"},
           {{"checkpoint", "exprot", "a"},
            "has no command `exprot`; did you mean `export`? See megalith checkpoint --help"},
           {{"train", "--shrnk", "4", "c"},
            "has no option `--shrnk`; did you mean `--shrink`? See megalith train --help"},
           {{"train", "--setps=4", "c"},
            "has no option `--setps`; did you mean `train.steps=...`? See megalith train --help"},
           {{"train", "--modle.layers=4"},
            "megalith: config is required (TOML file, a run folder, or the name of a recipe); see megalith train "
            "--help"},
           {{"train"},
            "megalith: config is required (TOML file, a run folder, or the name of a recipe); see megalith train "
            "--help"},
           {{"generate", "--checkpoint", "a", "--device", "gpu"},
            "gpu is not one of auto|cuda|cpu; see megalith generate --help"},
           {{"checkpoint", "export", "a"},
            "--out is required (folder for the files, which `transformers` opens); see megalith checkpoint export "
            "--help"},
           {{"train", "--micro-batch-size=4", "c"},
            "has no option `--micro-batch-size`: `micro_batch_size` of Megatron-LM is `batch.microbatch_size` here; "
            "see megalith train --help"},
           {{"info", "--train.steps=1"}, "has no option `--train.steps`; see megalith info --help"}}) {
    const Result result = said(args);
    EXPECT_EQ(result.status, 1) << result.text();
    EXPECT_NE(result.err.find(words), std::string::npos) << "\"" << words << "\" is missing: " << result.text();
    EXPECT_EQ(count(result.err, "\n"), 1u) << result.text();
  }
}

TEST(CommandLine, help_is_of_a_key_as_well) {
  const Result key = said({"help", "checkpoint.keep"});
  EXPECT_EQ(key.status, 0) << key.text();
  EXPECT_EQ(key.out,
            "[checkpoint]\n  keep = 0                              an integer (checkpoints, 0 to\n                     "
            "                   1000000000)\n      How many of the newest checkpoints to keep; 0: all.\n");
  EXPECT_EQ(said({"help", "--checkpoint.keep"}).out, key.out);
  const Result section = said({"help", "parallel"});
  EXPECT_EQ(count(section.out, "\n  pipeline_parallel_degree = 1 "), 1u) << section.text();
  EXPECT_EQ(count(section.out, "["), 1u) << section.text();
  const Result wrong = said({"help", "checkpoint.kep"});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_NE(wrong.err.find("did you mean `checkpoint.keep`?"), std::string::npos) << wrong.text();
  EXPECT_EQ(said({"help", "keep"}).out, key.out);
  EXPECT_EQ(count(said({"help", "seed"}).out, "\n  seed = 1 "), 2u) << "of [data] and of [train]";
}

TEST(CommandLine, help_is_of_a_word_as_well) {
  const Result lora = said({"help", "LoRA"});
  EXPECT_EQ(lora.status, 0) << lora.text();
  EXPECT_NE(lora.out.find("[adapter]\n  rank = 0 "), std::string::npos) << lora.text();
  const Result warmup = said({"help", "warmup"});
  EXPECT_EQ(count(warmup.out, "[optimizer]\n"), 1u) << warmup.text();
  EXPECT_NE(warmup.out.find("  warmup_steps = 0 "), std::string::npos) << warmup.text();
  EXPECT_EQ(said({"help", "num_train_epochs"}).out.rfind("`num_train_epochs` of transformers is not set: ", 0), 0u);
  const Result chat = said({"help", "template"});
  EXPECT_NE(chat.out.find("megalith chat --template"), std::string::npos) << chat.text();
  EXPECT_NE(chat.out.find("megalith prepare --template"), std::string::npos) << chat.text();
  std::istringstream lines(chat.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  // Topics come before keys, and a query may have several words.
  EXPECT_EQ(lora.out.rfind("The recipe `lora`", 0), 0u) << lora.text();
  EXPECT_EQ(said({"help", "Out", "of", "memory"}).out.rfind("Lower `batch.microbatch_size`", 0), 0u);
  EXPECT_EQ(said({"help", "resume"}).out.rfind("The same command continues", 0), 0u);
  // A query matches the beginnings of words only: "remain" has no "ema".
  EXPECT_EQ(count(said({"help", "ema"}).out, "["), 0u);
}

// --section.key=value is section.key=value, wherever it stands.
TEST(CommandLine, keys_may_be_written_as_options) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  write_reference_config(scratch / "config.toml", reference("tiny"), "");
  const auto planned = [&](Args more) {
    Args args{"plan", "config.toml", "--ranks", "2"};
    args.insert(args.end(), more.begin(), more.end());
    return succeed(megalith(args), scratch).out;
  };
  const std::string expected = planned({"model.layers=3"});
  EXPECT_NE(expected, planned({}));
  EXPECT_EQ(expected, planned({"--model.layers=3"}));
  EXPECT_EQ(expected, planned({"--model.layers", "3"}));
  EXPECT_EQ(expected, planned({"model.layers=2", "--model.heads=4", "model.heads=8", "--model.layers=3"}));
  EXPECT_EQ(succeed(megalith({"plan", "--model.layers=3", "config.toml", "--ranks=2"}), scratch).out, expected);
  // Behind an option that takes any number of keys.
  const auto verified = [&](const char* steps) {
    return succeed(megalith({"verify", "config.toml", "--steps", "1", "--against", "batch.microbatch_size=1", steps}),
                   scratch)
        .out;
  };
  EXPECT_NE(verified("--model.layers=3").find("h.2."), std::string::npos);
  const Result wrong = run(megalith({"plan", "config.toml", "--ranks=2", "--modle.layers=3"}), scratch.folder(), 20);
  EXPECT_NE(wrong.err.find("did you mean `model.layers`?"), std::string::npos) << wrong.text();
}

// The scripts ask the program that the line names.
std::string with_program_in_path(const std::string& script) {
  return fmt::format("PATH={}:$PATH; {}", std::filesystem::path(MEGALITH_PROGRAM).parent_path().string(), script);
}

TEST(CommandLine, bash_completes) {
  const Scratch scratch;
  write_file(scratch / "megalith.bash", said({"completion", "bash"}).out);
  write_file(scratch / "config.toml", "");
  // As bash calls it, with its own idea of where words end.
  const auto completed = [&](const std::string& line) {
    const Result result = run({"bash", "-c",
                               with_program_in_path("source megalith.bash; COMP_LINE=\"" + line +
                                                    "\" COMP_WORDBREAKS=' ='; COMP_POINT=${#COMP_LINE}; "
                                                    "_megalith && echo \"${COMPREPLY[@]}\"")},
                              scratch.folder(), 20);
    EXPECT_TRUE(result.status == 0 && result.err.empty()) << result.text();
    return result.out;
  };
  EXPECT_EQ(completed("megalith tr"), "train\n");
  EXPECT_EQ(completed(MEGALITH_PROGRAM " che"), "checkpoint\n");
  EXPECT_EQ(completed("megalith checkpoint ex"), "export\n");
  EXPECT_EQ(completed("megalith checkpoint export --o"), "--out\n");
  EXPECT_EQ(completed("megalith train --shr"), "--shrink\n");
  EXPECT_EQ(completed("megalith generate --device "), "auto cuda cpu megalith.bash config.toml\n");
  EXPECT_EQ(completed("megalith train config.toml run.dev"), "run.device=\n");
  EXPECT_EQ(completed("megalith train config.toml run.device=c"), "cuda cpu\n");
  EXPECT_EQ(completed("megalith train config.t"), "config.toml\n");
  EXPECT_EQ(completed("megalith train quick"), "quickstart\n");
  EXPECT_EQ(completed("megalith plan lor"), "lora\n");
  EXPECT_EQ(completed("megalith plan quickstart hardware.profile=rtx"), "rtx_4090\n");
  EXPECT_EQ(completed("megalith info run.dev"), "\n");
  EXPECT_EQ(completed("megalith run --ho"), "--hosts\n");
  EXPECT_EQ(completed("megalith run -n 2 tr"), "train\n");
  EXPECT_EQ(completed("megalith run -n 2 train config.toml --shr"), "--shrink\n");
}

// The line as zsh and fish cut it into words, with the one that is typed last; what their machinery shows is printed.
TEST(CommandLine, zsh_completes) {
  const Scratch scratch;
  if (run({"zsh", "-c", "true"}, scratch.folder(), 20).status != 0) GTEST_SKIP() << "there is no zsh";
  write_file(scratch / "megalith.zsh", said({"completion", "zsh"}).out);
  const auto completed = [&](const std::string& line) {
    // compadd works only while a line is edited: it shows here which words begin as the typed one does.
    const Result result =
        run({"zsh", "-fc",
             with_program_in_path("") +
                 "compdef() { }; compset() { }; _files() { print -n -- 'files '; }\n"
                 "compadd() { [[ $1 == -S ]] && shift 2; shift; local found=(${(M)@:#${words[CURRENT]}*}); "
                 "print -n -- \"$found \"; (( $#found )) }\n"
                 "source ./megalith.zsh; words=(" +
                 line + "); CURRENT=$#words; _megalith"},
            scratch.folder(), 20);
    EXPECT_TRUE(result.status == 0 && result.err.empty()) << result.text();
    std::istringstream in(result.out);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    return fmt::format("{}", fmt::join(words, " "));
  };
  EXPECT_EQ(completed("megalith tr"), "train");
  EXPECT_EQ(completed("megalith checkpoint ex"), "export");
  EXPECT_EQ(completed("megalith checkpoint export --o"), "--out");
  EXPECT_EQ(completed("megalith generate --device ''"), "auto cuda cpu");
  EXPECT_EQ(completed("megalith train config.toml run.dev"), "run.device=");
  EXPECT_EQ(completed("megalith train config.toml run.device=c"), "run.device=cuda run.device=cpu");
  EXPECT_EQ(completed("megalith run -n 2 train config.toml --shr"), "--shrink");
  EXPECT_EQ(completed("megalith completion f"), "fish");
  EXPECT_EQ(completed("megalith train ''"), "files");
  EXPECT_EQ(completed("megalith train finet"), "finetune");
  EXPECT_EQ(completed("megalith train quickstart data.train=a"), "files");
}

TEST(CommandLine, fish_completes) {
  const Scratch scratch;
  if (run({"fish", "-c", "true"}, scratch.folder(), 20).status != 0) GTEST_SKIP() << "there is no fish";
  write_file(scratch / "megalith.fish", said({"completion", "fish"}).out);
  const auto completed = [&](const std::string& line) {
    const Result result = run({"fish", "--no-config", "-c",
                               "set -x PATH " + std::filesystem::path(MEGALITH_PROGRAM).parent_path().string() +
                                   " $PATH; source megalith.fish; complete -C '" + line + "' | sort"},
                              scratch.folder(), 20);
    EXPECT_TRUE(result.status == 0 && result.err.empty()) << result.text();
    return result.out;
  };
  EXPECT_EQ(completed("megalith tr"), "train\n");
  EXPECT_EQ(completed("megalith checkpoint ex"), "export\n");
  EXPECT_EQ(completed("megalith checkpoint export --o"), "--out\n");
  EXPECT_EQ(completed("megalith train config.toml run.dev"), "run.device=\n");
  EXPECT_EQ(completed("megalith train config.toml run.device=c"), "run.device=cpu\nrun.device=cuda\n");
  EXPECT_EQ(completed("megalith run -n 2 train config.toml --shr"), "--shrink\n");
  EXPECT_EQ(completed("megalith completion f"), "fish\n");
}

// The page of options is the program's.
TEST(CommandLine, the_page_of_options_is_that_of_the_program) {
  const std::string page = said({"manual", "options"}).out;
  EXPECT_GE(count(page, "\n| `"), 80u) << page;
  EXPECT_EQ(read_file(MEGALITH_SOURCE_DIR "/configs/OPTIONS.md"), page)
      << "write it again: megalith manual options > configs/OPTIONS.md";
}

TEST(CommandLine, the_man_page_has_every_command_and_key) {
  const std::string page = said({"manual", "man"}).out;
  std::map<Args, std::string> all;
  collect_help({}, all);
  EXPECT_EQ(all.erase(Args{}), 1u);
  for (const auto& [command, text] : all)
    EXPECT_EQ(count(page, fmt::format("\n.SS megalith {}\n", fmt::join(command, " "))), 1u);
  EXPECT_EQ(count(page, "\n.B activation_checkpointing = "), 1u);
  EXPECT_EQ(count(page, "\n.B decay = \\(dqcosine\\(dq"), 1u) << "a quote would be the macro's";
  const Scratch scratch;
  if (run({"man", "--version"}, scratch.folder(), 20).status != 0) GTEST_SKIP() << "there is no man";
  write_file(scratch / "megalith.1", page);
  const Result shown = run({"man", "--warnings=all", "-l", "./megalith.1"}, scratch.folder(), 20, "MAN_KEEP_STDERR=1");
  EXPECT_EQ(shown.err, "");
  EXPECT_NE(shown.out.find("megalith checkpoint export"), std::string::npos) << shown.text();
}

// A recipe is named from anywhere; what exists under that name is preferred.
TEST(CommandLine, a_recipe_is_found_by_its_name) {
  const Scratch scratch;
  const Result named = run(megalith({"plan", "quickstart", "--ranks", "2", "model.vocab=4096"}), scratch.folder(), 60);
  const Result path =
      run(megalith({"plan", MEGALITH_SOURCE_DIR "/configs/quickstart.toml", "--ranks", "2", "model.vocab=4096"}),
          scratch.folder(), 60);
  EXPECT_EQ(named.status, 0) << named.text();
  EXPECT_EQ(named.out, path.out);
  const Result none = run(megalith({"plan", "quickstrat", "--ranks", "2"}), scratch.folder(), 20);
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.err.find("no such file, folder or recipe; the recipes are 10b_h100 "), std::string::npos)
      << none.text();
  write_file(scratch / "quickstart", "[model]\nlayers = \"two\"\n");
  const Result file = run(megalith({"plan", "quickstart", "--ranks", "2"}), scratch.folder(), 20);
  EXPECT_EQ(file.status, 1);
  EXPECT_NE(file.err.find("quickstart:2"), std::string::npos) << file.text();
}

}  // namespace
}  // namespace megalith::e2e
