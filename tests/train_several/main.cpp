// Many trainings in one job, since a job takes longer to start than a small model to train:
//
//   mpirun -n RANKS train_several config.toml [section.key=value ...] -- [section.key=value ...] -- ...
//
// trains once for each list of overrides, as `megalith train` does. The first that fails ends the job with its error.
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "trainer/session/mpi_session.h"
#include "trainer/train/run.h"

int main(int argc, char** argv) {
  const megalith::MpiSession session(&argc, &argv);
  std::vector<std::vector<std::string>> trainings(1);
  for (int i = 2; i < argc; i++)
    if (const std::string word = argv[i]; word == "--")
      trainings.emplace_back();
    else
      trainings.back().push_back(word);
  try {
    for (const std::vector<std::string>& overrides : trainings)
      megalith::Run(megalith::load_config(argv[1], overrides), session).train();
  } catch (const std::exception& e) {
    fmt::print(stderr, "train_several: rank {}: {}\n", session.rank(), e.what());
    std::fflush(nullptr);
    session.abort(1);
  }
}
