// Many trainings in one job, since a job takes longer to start than a small model to train:
//
//   mpirun -n RANKS train_several config.toml [section.key=value ...] -- [section.key=value ...] -- ...
//
// trains once for each list of overrides, as `megalith train` does, and exports what comes of it to the folder export
// of the run. The first that fails ends the job with its error.
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/session/mpi_session.h"
#include "trainer/train/run.h"

namespace {

void export_run(const std::string& folder) {
  std::filesystem::remove_all(folder + "/export");
  const megalith::WeightSource source = megalith::open_weights(folder);
  megalith::export_hugging_face(*source.tensors, source.model, megalith::stored_parameters(source.model), {},
                                folder + "/export");
}

}  // namespace

int main(int argc, char** argv) {
  const megalith::MpiSession session(&argc, &argv);
  std::vector<std::vector<std::string>> trainings(1);
  for (int i = 2; i < argc; i++)
    if (const std::string word = argv[i]; word == "--")
      trainings.emplace_back();
    else
      trainings.back().push_back(word);
  try {
    for (const std::vector<std::string>& overrides : trainings) {
      const megalith::Config config = megalith::load_config(argv[1], overrides);
      megalith::Run(config, session).train();
      if (session.rank() == 0) export_run(config.run.output);
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "train_several: rank {}: {}\n", session.rank(), e.what());
    std::fflush(nullptr);
    session.abort(1);
  }
}
