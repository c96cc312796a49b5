// The same command, started twice: one of the two has the folder, and the other is told who.
#include <unistd.h>

#include <filesystem>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

Args never_ending(const Args& more) {
  Args args{"train", "config.toml", "train.steps=1000000", "checkpoint.every=10"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

void wait_for(Process& process, const std::string& words) {
  const double start = now();
  while (process.out().find(words) == std::string::npos) {
    ASSERT_LT(now() - start, 60);
    ASSERT_TRUE(process.running()) << process.wait().text();
    sleep_for(0.01);
  }
}

TEST(TwoJobs, do_not_share_a_folder) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  write_reference_config(scratch / "config.toml", reference("tiny"), "");
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  Process first(mpirun(2, never_ending({})), scratch.folder());
  wait_for(first, "\nstep 3/");
  const auto refused = [&](const Args& overrides, const std::string& folder, const std::string& remedy) {
    const Result second = run(mpirun(2, never_ending(overrides)), scratch.folder());
    EXPECT_EQ(second.status, 1) << second.text();
    EXPECT_EQ(second.out.find("step "), std::string::npos) << second.text();
    for (const std::string& words : {folder + " is in use by process ", std::string(host), remedy})
      EXPECT_NE(second.err.find(words), std::string::npos) << words << " is missing: " << second.text();
  };
  refused({}, "run", "run.output=DIR");
  refused({"run.output=other", "checkpoint.directory=run/checkpoints"}, "run/checkpoints", "checkpoint.directory=DIR");

  // The first has noticed nothing, and what is left when it is killed is free again.
  ASSERT_TRUE(first.running());
  const int64_t before = static_cast<int64_t>(read_steps(scratch / "run").size());
  wait_for(first, "\nstep " + std::to_string(before + 10) + "/");
  first.kill_all();
  const std::vector<Step> steps = read_steps(scratch / "run");
  for (size_t i = 0; i < steps.size(); i++) EXPECT_EQ(steps[i].step, static_cast<int64_t>(i) + 1);
  EXPECT_FALSE(read_file(scratch / "run/lock").empty());
  train(scratch.folder(), 2, {"train.steps=" + std::to_string(steps.size() + 5)});
  EXPECT_TRUE(read_file(scratch / "run/lock").empty());
}

}  // namespace
}  // namespace megalith::e2e
