// megalith: subcommands, nothing else.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/hugging_face.h"
#include "checkpoints/reader.h"
#include "configs/config.h"
#include "configs/hardware.h"
#include "configs/shrink.h"
#include "data/prepare.h"
#include "data/tokenizer.h"
#include "kernels/base/files.h"
#include "trainer/checkpointing/checkpointer.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/inference/inference.h"
#include "trainer/job/agreement.h"
#include "trainer/job/device_choice.h"
#include "trainer/job/inventory.h"
#include "trainer/planner/commands.h"
#include "trainer/planner/this_machine.h"
#include "trainer/session/machine.h"
#include "trainer/session/open_session.h"
#include "trainer/step/text_data.h"
#include "trainer/train/metrics.h"
#include "trainer/train/progress_bar.h"
#include "trainer/train/run.h"
#include "trainer/verify/verify.h"

namespace megalith {
namespace {

// A command has its options in the parser. Of most commands rank 0 does the work; in some all ranks take part, and
// these say how the ranks find each other.
struct Command {
  CLI::App* app;
  std::function<int()> on_rank_0;
  std::function<int(const Session&)> on_all_ranks = {};
  std::function<CommunicationConfig()> communication = {};
};

void add_config(CLI::App* app, std::string& path, std::vector<std::string>& overrides) {
  app->add_option("config", path, "TOML file")->required();
  app->add_option("overrides", overrides, "section.key=value ...");
  app->footer("Options of the configuration:\n" + describe_options());
}

template <class T>
CLI::Option* add_number(CLI::App* app, const char* name, T& value, const char* sentence) {
  return app->add_option(name, value, sentence)->capture_default_str()->check(CLI::NonNegativeNumber);
}

struct ModelArguments {
  std::string checkpoint, tokenizer;
  Device device = Device::automatic;
  Inference open() const {
    const WorldChoice choice = choose_device(device);
    if (!choice.why_cpu.empty()) fmt::print(stderr, "on the CPU: {}\n", choice.why_cpu);
    return {checkpoint, tokenizer, choice.world};
  }
};

void add_model(CLI::App* app, ModelArguments& model) {
  app->add_option("--checkpoint", model.checkpoint, "checkpoint, run folder, or Hugging Face GPT-2 folder")->required();
  app->add_option("--tokenizer", model.tokenizer, "folder; default: the one the checkpoint was trained with");
  const std::map<std::string, Device> words{{"auto", Device::automatic}, {"cuda", Device::cuda}, {"cpu", Device::cpu}};
  app->add_option("--device", model.device, "auto, cuda or cpu; auto: a GPU where there is one")
      ->transform(CLI::CheckedTransformer(words))
      ->default_str("auto");
}

Command prepare_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("prepare", "Text files to token files");
  auto options = std::make_shared<PrepareOptions>();
  app->add_option("--text", options->text_files, "text files, one document each")->required();
  app->add_option("--tokenizer", options->tokenizer,
                  "bytes, train:VOCAB (byte-level BPE trained on the text), or a folder with vocab.json and merges.txt")
      ->required();
  app->add_option("--out", options->out, "folder for train.bin, validation.bin and tokenizer/")->required();
  app->add_option("--validation", options->validation_fraction, "share of each text held out, from its end")
      ->capture_default_str();
  app->add_option("--threads", options->threads, "0: one for each core")->capture_default_str();
  return {app, [options] {
            ProgressBar bar;
            const PrepareReport r = prepare(*options, [&](std::string_view stage, int64_t done, int64_t all) {
              bar.draw(all > 0 ? static_cast<double>(done) / static_cast<double>(all) : 1,
                       fmt::format("{} {:.1f} of {:.1f} MB", stage, static_cast<double>(done) / 1e6,
                                   static_cast<double>(all) / 1e6));
            });
            bar.clear();
            fmt::print("{}: {} training tokens, {} held-out tokens, vocabulary {}, {:.2f} bytes a token\n",
                       options->out, r.train.tokens, r.validation.tokens, r.vocab_size,
                       static_cast<double>(r.train.bytes) / static_cast<double>(r.train.tokens));
            return 0;
          }};
}

Command train_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("train", "Train; alone or under mpirun");
  struct Options {
    std::string config;
    std::vector<std::string> overrides;
    int64_t shrink = 0;
  };
  auto o = std::make_shared<Options>();
  add_config(app, o->config, o->overrides);
  app->add_option(
         "--shrink", o->shrink,
         "rehearse the layout of [hardware] on this many ranks: a small model with every option of the large one")
      ->check(CLI::PositiveNumber);
  const auto train = [o](const Session& session) {
    Config config;
    together(session, [&] {
      config = load_config(o->config, o->overrides);
      if (o->shrink > 0) config = shrink(config, o->shrink);
    });
    Run(config, session).train();
    return 0;
  };
  return {app, {}, train, [o] { return load_communication(o->config, o->overrides); }};
}

Command verify_command(CLI::App& cli) {
  auto* app = cli.add_subcommand(
      "verify",
      "Run the same steps under two layouts and report what differs by more than rounding; alone or under "
      "mpirun. Needs the memory of both layouts at once, and writes nothing to disk");
  auto options = std::make_shared<VerifyOptions>();
  add_config(app, options->config, options->overrides);
  app->add_option(
         "--against", options->against,
         "section.key=value ... of the other layout: parallel.*, memory.*, precision.*, batch.microbatch_size, "
         "run.device, communication.backend")
      ->required();
  app->add_option("--steps", options->steps, "updates under each layout")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  add_number(app, "--tolerance", options->tolerance, "multiplies every tolerance");
  app->add_flag("--all", options->all, "print every tensor of every step; else of the first, and then the worst");
  app->add_option("--inject", options->inject,
                  "test of verify itself: adds 1 to an element of the tensor [STEP:]NAME of the other layout")
      ->group("");  // not listed
  return {app,
          {},
          [=](const Session& session) { return run_verify(*options, session) ? 0 : 1; },
          [=] { return load_communication(options->config, options->overrides); }};
}

Command plan_command(CLI::App& cli) {
  auto* app =
      cli.add_subcommand("plan", "Run every rank's step dry: memory, traffic, work, and whether all transfers meet");
  struct Options {
    PlanOptions plan;
    CalibrationOptions calibration;
  };
  auto o = std::make_shared<Options>();
  o->calibration.keys = numbers_of("calibrated");
  o->calibration.keys.push_back("stack.attention_share");
  add_config(app, o->plan.config, o->plan.overrides);
  auto* config = app->get_option("config")->required(false);
  auto* calibrate =
      app->add_option("--calibrate", o->calibration.runs,
                      "run folders: compares their measured steps with predicted ones, and fits the numbers of --fit");
  app->add_option("--fit", o->calibration.keys, "numbers of the hardware profile; none: fits nothing")
      ->delimiter(',')
      ->capture_default_str()
      ->needs(calibrate);
  app->add_option("--json", o->calibration.json, "file for what --calibrate found")->needs(calibrate);
  app->add_option("--ranks", o->plan.ranks, "number of ranks; default: all devices of [hardware]")->excludes(calibrate);
  auto* tokens = add_number(app, "--tokens", o->plan.tokens, "of the whole run, for its hours; 0: train.steps");
  auto* trace =
      app->add_option("--trace", o->plan.trace, "file for the predicted time line, to be opened in ui.perfetto.dev");
  auto* compare =
      app->add_option("--compare", o->plan.compare,
                      "KEY or KEY=VALUE,VALUE: memory, work and time under each value of an option, in a table");
  compare->excludes(tokens, trace);
  calibrate->excludes(config, tokens, trace, compare);
  return {app, [=] {
            if (o->calibration.runs.empty()) {
              CHECK(config->count() > 0, "config is required, unless --calibrate names runs; see megalith plan --help");
              return run_plan(o->plan) ? 0 : 1;
            }
            if (o->calibration.keys == std::vector<std::string>{"none"}) o->calibration.keys.clear();
            run_calibration(o->calibration);
            return 0;
          }};
}

Command search_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("search", "Try every layout on the machines of [hardware]: the fastest that fit");
  auto options = std::make_shared<SearchOptions>();
  add_config(app, options->config, options->overrides);
  app->add_option("--ranks", options->ranks, "number of ranks; default: all devices of [hardware]");
  app->add_option("--most", options->most, "layouts to print")->capture_default_str()->check(CLI::PositiveNumber);
  app->add_option("--write", options->out, "file for the config in the fastest layout");
  return {app, [options] { return run_search(*options) ? 0 : 1; }};
}

Command measure_command(CLI::App& cli) {
  auto* app = cli.add_subcommand(
      "measure", "What this machine's CPU and the link between its ranks do, as a profile for plan; under mpirun -n 2");
  auto out = std::make_shared<std::string>();
  app->add_option("--write", *out, "file for the profile; default: prints it");
  return {app, {}, [out](const Session& session) {
            together(session, [&] { check_measurable(session); });
            const std::string profile = measure_this_machine(session);
            if (session.rank() == 0 && out->empty()) fmt::print("{}", profile);
            together(session, [&] {
              if (session.rank() == 0 && !out->empty()) write_file(*out, profile, {.replace = true});
            });
            return 0;
          }};
}

Command info_command(CLI::App& cli) {
  auto* app = cli.add_subcommand(
      "info", "What this build and this machine have, GPUs, links, limits, and what of it would stop a run");
  return {app, [] {
            const Inventory machine = look_around();
            fmt::print("{}", describe(machine));
            return obstacles(machine).empty() ? 0 : 1;
          }};
}

Command generate_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("generate", "Continue a text");
  struct Options {
    ModelArguments model;
    std::string prompt;
    int64_t tokens = 200;
    Sampling sampling;
  };
  auto o = std::make_shared<Options>();
  add_model(app, o->model);
  app->add_option("--prompt", o->prompt, "text to continue");
  add_number(app, "--tokens", o->tokens, "most tokens to add");
  add_number(app, "--temperature", o->sampling.temperature, "0: always the most likely token");
  add_number(app, "--top-k", o->sampling.top_k, "sample among this many most likely tokens; 0: all");
  app->add_option("--seed", o->sampling.seed)->capture_default_str();
  return {app, [o] {
            o->model.open().generate(o->prompt, o->tokens, o->sampling, [](std::string_view text) {
              fmt::print("{}", text);
              std::fflush(stdout);
            });
            fmt::print("\n");
            return 0;
          }};
}

Command evaluate_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("evaluate", "Loss and bits per byte of a checkpoint on a token file");
  struct Options {
    ModelArguments model;
    std::string data;
    int64_t sequence_length = 0, sequences = 0;
  };
  auto o = std::make_shared<Options>();
  add_model(app, o->model);
  app->add_option("--data", o->data, "token file")->required();
  add_number(app, "--sequence-length", o->sequence_length, "0: the model's context");
  add_number(app, "--sequences", o->sequences, "only this many, from the first on; 0: all");
  return {app, [o] {
            ProgressBar bar;
            const EvaluationResult r = o->model.open().evaluate(o->data, o->sequence_length, o->sequences,
                                                                [&](double share) { bar.draw(share, "evaluating"); });
            bar.clear();
            fmt::print("loss {:.8f} nats a token over {} tokens", r.loss, r.tokens);
            if (r.bytes > 0) fmt::print(", {:.4f} bits per byte", bits_per_byte(r.loss, r.tokens, r.bytes));
            fmt::print("\n");
            return 0;
          }};
}

// The checkpoint that a path names, which is printed where the path is not the checkpoint itself.
std::string tell_checkpoint(const std::string& path) {
  const std::string found = find_weights(path);
  if (found != path) fmt::print("checkpoint {}\n", found);
  return found;
}

int verify_folder(const std::string& path) {
  const VerifyReport r = verify_checkpoint(tell_checkpoint(path));
  for (const std::string& damage : r.damaged) fmt::print("damaged: {}\n", damage);
  fmt::print("{} files, {} datasets, {} bytes: {}\n", r.num_files, r.num_datasets, r.bytes,
             r.damaged.empty() ? "all well" : "DAMAGED");
  return r.damaged.empty() ? 0 : 1;
}

int export_folder(const std::string& path, const std::string& tokenizer, const std::string& out) {
  CheckpointReader reader(tell_checkpoint(path));
  const ModelConfig m = model_of(reader.manifest(), reader.folder());
  const std::string known = reader.manifest().state.value("tokenizer", "");
  const std::string folder = tokenizer.empty() && std::filesystem::exists(known) ? known : tokenizer;
  std::optional<int64_t> end_of_text;
  if (!folder.empty()) end_of_text = load_tokenizer(folder)->end_of_text();
  export_hugging_face(reader, m, stored_parameters(m), end_of_text, out);
  fmt::print("{}\nend of text: {}\n", out,
             end_of_text ? fmt::format("token {}, of {}", *end_of_text, folder)
                         : "none, for no tokenizer is known; --tokenizer FOLDER names one");
  return 0;
}

std::vector<Command> checkpoint_commands(CLI::App& cli) {
  auto* group = cli.add_subcommand("checkpoint", "Inspect, verify and export checkpoints");
  group->require_subcommand(1);
  struct Options {
    std::string path, out, tokenizer;
  };
  auto o = std::make_shared<Options>();
  auto* inspect = group->add_subcommand("inspect", "What a checkpoint holds");
  auto* verify = group->add_subcommand("verify", "Read every byte and compare every checksum");
  auto* convert = group->add_subcommand("export", "To a Hugging Face GPT-2 folder");
  for (CLI::App* app : {inspect, verify, convert})
    app->add_option("checkpoint", o->path, "step-* folder, or a run folder: its newest complete one")->required();
  convert->add_option("--out", o->out, "folder for config.json and model.safetensors")->required();
  convert->add_option("--tokenizer", o->tokenizer,
                      "folder, for its end-of-text token; default: the one the checkpoint was trained with");
  const auto describe = [o] {
    fmt::print("{}", describe_checkpoint(find_weights(o->path)));
    return 0;
  };
  return {{inspect, describe},
          {verify, [o] { return verify_folder(o->path); }},
          {convert, [o] { return export_folder(o->path, o->tokenizer, o->out); }}};
}

class CommandLine {
 public:
  CommandLine(int argc, char** argv) {
    cli_.require_subcommand(0, 1);  // so that the error names an unknown one, see below
    commands_ = {train_command(cli_), verify_command(cli_),   prepare_command(cli_),
                 plan_command(cli_),  search_command(cli_),   measure_command(cli_),
                 info_command(cli_),  generate_command(cli_), evaluate_command(cli_)};
    for (Command& command : checkpoint_commands(cli_)) commands_.push_back(std::move(command));
    try {
      cli_.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
      stop_ = e;
    }
  }

  CommunicationConfig communication() const {
    const Command* chosen = stop_ ? nullptr : parsed();
    return chosen && chosen->communication ? chosen->communication() : CommunicationConfig{};
  }

  // Collective. The exit status of all ranks.
  int run(const Session& session) const {
    const bool help = stop_ && stop_->get_exit_code() == 0;
    together(session, [&] {
      if (stop_ && !help) FAIL("{}; see megalith --help", stop_->what());
      CHECK(help || parsed(), "no command given; see megalith --help");
    });
    // Different commands communicate differently, and would wait for one another forever.
    const std::string command = help ? "--help" : cli_.get_subcommands().front()->get_name();
    const std::string of_rank_0 = session.broadcast_text(command);
    together(session, [&] {
      CHECK(command == of_rank_0, "the command is {}, but {} on rank 0; start every rank with the same command",
            command, of_rank_0);
    });
    if (!help && parsed()->on_all_ranks) return parsed()->on_all_ranks(session);
    int status = 0;
    together(session, [&] {
      if (session.rank() != 0) return;  // the other ranks have nothing to do
      use_threads(1);
      status = help ? cli_.exit(*stop_) : parsed()->on_rank_0();
    });
    return std::stoi(session.broadcast_text(std::to_string(status)));
  }

 private:
  const Command* parsed() const {
    const auto chosen =
        std::find_if(commands_.begin(), commands_.end(), [](const Command& c) { return c.app->parsed(); });
    return chosen == commands_.end() ? nullptr : &*chosen;
  }

  CLI::App cli_{"Megalith trains GPT-2 style language models, from a laptop's CPU to hundreds of GPUs.", "megalith"};
  std::vector<Command> commands_;
  std::optional<CLI::Error> stop_;  // what is wrong with it, or a wish for help
};

int run(const CommandLine& line, const Session& session) {
  try {
    int status = 1;
    try {
      status = line.run(session);
      together(session, [] {
        CHECK(std::fflush(stdout) == 0 && !std::ferror(stdout), "cannot write all of the output: {}; is the disk full?",
              std::strerror(errno));
      });
    } catch (const JobError& e) {  // all ranks have it
      if (session.rank() == 0) fmt::print(stderr, "megalith: {}\n", e.what());
      status = 1;
    }
    // mpirun ends a job when one rank ends with an error, so all wait until rank 0 has printed.
    session.broadcast_text("printed");
    return status;
  } catch (const Error& e) {
    fmt::print(stderr, "megalith: rank {}: {} ({}:{})\n", session.rank(), e.what(), e.file(), e.line());
  } catch (const std::exception& e) {
    fmt::print(stderr, "megalith: rank {}: {}\n", session.rank(), e.what());
  }
  session.abort(1);
  return 1;  // not reached: abort() does not return
}

}  // namespace
}  // namespace megalith

int main(int argc, char** argv) {
  // Exceeding a limit on file sizes becomes an error of the write, which names the remedy, and not a silent death.
  std::signal(SIGXFSZ, SIG_IGN);
  const megalith::CommandLine line(argc, argv);
  std::unique_ptr<megalith::Session> session;
  try {
    session = megalith::open_session(line.communication(), &argc, &argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "megalith: {}\n", e.what());
    return 1;
  }
  return megalith::run(line, *session);
}
