// Many trainings in one job, since a job takes longer to start than a small model to train:
//
//   mpirun -n RANKS train_several config.toml [section.key=value ...] -- [section.key=value ...] -- ...
//
// trains once for each list of overrides, as `megalith train` does, and exports what comes of it to the folder export
// of the run. The first that fails ends the job with its error.
//
// spoil=FIRST-LAST:ROW:NAME among the overrides writes NaN into an element of that row of the batch, in these steps,
// where the step shows it under that name (Observer in stage.h).
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "kernels/system/check.h"
#include "trainer/checkpointing/run_start.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/session/mpi_session.h"
#include "trainer/train/run.h"

namespace {

struct Spoil {
  long first = 0, last = -1, row = 0;
  std::string name;
};

Spoil parse_spoil(const std::string& words) {
  Spoil spoil;
  int name = 0;
  CHECK(std::sscanf(words.c_str(), "spoil=%ld-%ld:%ld:%n", &spoil.first, &spoil.last, &spoil.row, &name) == 3 && name,
        "{} is not spoil=FIRST-LAST:ROW:NAME", words);
  spoil.name = words.substr(static_cast<size_t>(name));
  return spoil;
}

// Every row is shown once a step.
void plant(megalith::Run& run, const Spoil& spoil) {
  run.trainer().stage().observe(
      [spoil, step = run.progress().step](const std::string& name, int64_t first_row, megalith::Tensor rows) mutable {
        if (name != spoil.name || spoil.row < first_row || spoil.row >= first_row + rows.rows()) return;
        step++;
        if (step < spoil.first || step > spoil.last) return;
        // All bits are 1 in a NaN of any type.
        std::memset(rows.rows(spoil.row - first_row, spoil.row - first_row + 1).raw(), 0xff,
                    static_cast<size_t>(megalith::size_of(rows.dtype())));
      });
}

void export_run(const std::string& folder) {
  std::filesystem::remove_all(folder + "/export");
  const megalith::WeightSource source = megalith::open_weights(folder);
  megalith::export_hugging_face(*source.tensors, source.model, megalith::stored_parameters(source.model),
                                folder + "/export");
}

}  // namespace

int main(int argc, char** argv) {
  const megalith::MpiSession session(&argc, &argv, std::numeric_limits<double>::infinity());
  std::vector<std::vector<std::string>> trainings(1);
  std::vector<Spoil> spoils(1);
  try {
    for (int i = 2; i < argc; i++)
      if (const std::string word = argv[i]; word == "--") {
        trainings.emplace_back();
        spoils.emplace_back();
      } else if (word.starts_with("spoil=")) {
        spoils.back() = parse_spoil(word);
      } else {
        trainings.back().push_back(word);
      }
    for (size_t t = 0; t < trainings.size(); t++) {
      const megalith::Config config = megalith::load_run_config(argv[1], trainings[t]);
      {
        megalith::Run run(config, session);
        if (!spoils[t].name.empty()) plant(run, spoils[t]);
        run.train();
      }
      if (session.rank() == 0) export_run(config.run.output);
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "train_several: rank {}: {}\n", session.rank(), e.what());
    std::fflush(nullptr);
    session.abort(1);
  }
}
