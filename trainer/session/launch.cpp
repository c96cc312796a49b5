#include "trainer/session/launch.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>

#include "kernels/system/check.h"
#include "trainer/session/launch_line.h"

namespace megalith {

namespace {

struct Launcher {
  const char* name;
  const char *rank, *size;
  std::array<const char*, 2> job;
};
// For srun, those of a step: the batch script itself has no SLURM_STEP_NUM_TASKS and is not a rank.
constexpr std::array<Launcher, 3> launchers{
    {{"torchrun", "RANK", "WORLD_SIZE", {"TORCHELASTIC_RUN_ID", nullptr}},
     {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {"PMIX_NAMESPACE", nullptr}},
     {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", {"SLURM_JOB_ID", "SLURM_STEP_ID"}}}};

int number(const char* variable, const char* text) {
  int n = 0;
  const char* end = text + std::strlen(text);
  const auto [last, error] = std::from_chars(text, end, n);
  CHECK(error == std::errc{} && last == end && n >= 0, "{}=\"{}\" in the environment is not a number of ranks",
        variable, text);
  return n;
}

}  // namespace

Launch launch_of(const std::function<const char*(const char*)>& variable) {
  for (const Launcher& l : launchers) {
    const char *rank = variable(l.rank), *size = variable(l.size);
    if (!rank || !size) continue;
    Launch launch{.rank = number(l.rank, rank), .size = number(l.size, size), .launcher = l.name, .job = {}};
    CHECK(launch.rank < launch.size, "{}={} and {}={} in the environment: ranks count from 0", l.rank, launch.rank,
          l.size, launch.size);
    for (const char* name : l.job)
      if (const char* part = name ? variable(name) : nullptr)
        launch.job += (launch.job.empty() ? "" : "-") + std::string(part);
    if (launch.job.empty()) launch.job = "job";
    return launch;
  }
  return {.rank = 0, .size = 1, .launcher = {}, .job = "job"};
}

double kill_delay_of_mpirun(const std::function<const char*(const char*)>& variable) {
  double seconds = 1;
  for (const char* name : {"OMPI_MCA_odls_base_sigkill_timeout", "PRTE_MCA_odls_base_sigkill_timeout"})
    if (const char* value = variable(name)) seconds = std::atof(value);
  return seconds;
}

double seconds_left_by_mpirun(const std::function<const char*(const char*)>& variable) {
  const bool is_killed = launch_of(variable).launcher == "mpirun" && !variable(started_by_run);
  return is_killed ? kill_delay_of_mpirun(variable) : std::numeric_limits<double>::infinity();
}

Launch launch_of_this_process() {
  return launch_of([](const char* name) -> const char* { return std::getenv(name); });
}

// The ranks of Open MPI end one second after they have lost mpirun: PMIx reports it once this time has passed without
// further events.
void outlive_launcher() {
  if (launch_of_this_process().launcher == "mpirun") ::setenv("PMIX_MCA_pmix_event_caching_window", "1000000", 0);
}

bool may_have_peers(const char* const* environment) {
  for (; *environment; environment++) {
    const std::string_view line = *environment;
    for (const std::string_view manager : {"PMI", "ALPS_", "PALS_", "FLUX_"})
      if (line.starts_with(manager)) return true;
    for (const Launcher& launcher : launchers)
      if (line.substr(0, line.find('=')) == launcher.size) return true;
  }
  return false;
}

}  // namespace megalith
