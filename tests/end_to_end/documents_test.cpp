// Documents that are kept apart, from texts to a model: by the config and the tokenizer that prepare made, over a
// resume, in another layout, and as `evaluate` sees it.
#include <fmt/format.h>

#include <filesystem>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

// Documents of one word to a few lines, many in a sequence.
std::string short_documents() {
  std::string text;
  for (int i = 0; i < 400; i++) {
    text += fmt::format("{} {}", i % 7, i * i % 11);
    for (int line = 0; line < i % 4; line++) text += fmt::format("\n{} of {}", line, i % 5);
    text += "<|endoftext|>";
  }
  return text;
}

TEST(Documents, kept_apart_from_text_to_evaluation) {
  const Scratch scratch;
  write_file(scratch / "text.txt", short_documents());
  succeed(megalith({"prepare", "--text", "text.txt", "--tokenizer", "bytes", "--out", "data", "--validation", "0.2"}),
          scratch);
  write_file(scratch / "config.toml",
             "[model]\nlayers = 4\nhidden = 16\nheads = 2\ncontext = 40\n"
             "[data]\ntrain = \"data/train.bin\"\nvalidation = \"data/validation.bin\"\nisolate_documents = true\n"
             "[batch]\nglobal_batch_size = 4\nmicrobatch_size = 1\n[optimizer]\nlearning_rate = 1e-2\n"
             "decay_steps = 100\n[train]\nsteps = 6\nevaluate_batches = 2\n");
  const Args layout{"parallel.pipeline_parallel_degree=2", "parallel.virtual_stages=2"};
  const auto with = [&](Args more) {
    more.insert(more.end(), layout.begin(), layout.end());
    return more;
  };
  train(scratch.folder(), 2, with({"run.output=whole"}));
  train(scratch.folder(), 2, with({"run.output=parts", "train.steps=3"}));
  train(scratch.folder(), 2, with({"run.output=parts"}));
  const std::vector<Step> whole = read_steps(scratch / "whole");
  EXPECT_EQ(whole, read_steps(scratch / "parts"));
  expect_same_rank_files(scratch / "whole/checkpoints/" + step_name(6), scratch / "parts/checkpoints/" + step_name(6));

  // Together they are other samples to learn from.
  train(scratch.folder(), 1, {"run.output=alone", "train.steps=1"});
  train(scratch.folder(), 1, {"run.output=together", "train.steps=1", "data.isolate_documents=false"});
  EXPECT_NEAR(read_steps(scratch / "alone")[0].loss, whole[0].loss, 1e-5 * whole[0].loss);
  EXPECT_GT(std::abs(read_steps(scratch / "together")[0].loss - whole[0].loss), 1e-4 * whole[0].loss);

  const nlohmann::json last = read_metrics(scratch / "whole").back();
  const auto evaluated = [&](const char* model) {
    return succeed(megalith({"evaluate", "--checkpoint", model, "--data", "data/validation.bin", "--sequences", "8"}),
                   scratch)
        .out;
  };
  const std::string of_checkpoint = evaluated("whole");
  const double loss = std::stod(of_checkpoint.substr(of_checkpoint.find("loss ") + 5));
  EXPECT_NEAR(loss, last.at("validation_loss").get<double>(), 1e-5 * loss) << of_checkpoint;
  EXPECT_NE(of_checkpoint.find("; documents isolated, as in training\n"), std::string::npos) << of_checkpoint;
  EXPECT_NE(succeed(megalith({"checkpoint", "export", "whole", "--out", "exported"}), scratch)
                .out.find("documents were isolated"),
            std::string::npos);
  EXPECT_EQ(evaluated("exported"), of_checkpoint);

  const Result refused =
      run(mpirun(1, {"train", "config.toml", "run.output=parts", "train.steps=9", "data.isolate_documents=false"}),
          scratch.folder());
  EXPECT_NE(refused.status, 0);
  EXPECT_NE(refused.err.find("data.isolate_documents: true there, no effect here"), std::string::npos)
      << refused.text();

  std::filesystem::remove_all(scratch / "data/tokenizer");
  const Result unknown =
      run(mpirun(1, {"train", "config.toml", "run.output=new", "model.vocab=257"}), scratch.folder());
  EXPECT_NE(unknown.status, 0);
  EXPECT_NE(unknown.err.find("the token that ends a document is unknown"), std::string::npos) << unknown.text();
  train(scratch.folder(), 1, {"run.output=named", "train.steps=1", "model.vocab=257", "data.end_of_text=256"});
  EXPECT_EQ(read_steps(scratch / "named"), read_steps(scratch / "alone"));
}

}  // namespace
}  // namespace megalith::e2e
