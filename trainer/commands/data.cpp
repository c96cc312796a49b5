// megalith prepare.
#include <fmt/format.h>

#include "data/prepare.h"
#include "trainer/commands/command.h"
#include "trainer/train/progress_bar.h"

namespace megalith {

Command prepare_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("prepare", "Text files to token files");
  auto options = std::make_shared<PrepareOptions>();
  app->add_option("--text", options->text_files, "text files, one document each")->required();
  app->add_option(
         "--tokenizer", options->tokenizer,
         "bytes, train:VOCAB (byte-level BPE trained on the text), or a folder with tokenizer.json, or vocab.json "
         "and merges.txt")
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

}  // namespace megalith
