#include "trainer/train/bad_step_file.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include "kernels/system/json.h"
#include "trainer/job/agreement.h"
#include "trainer/log/log.h"
#include "trainer/machine/version.h"
#include "trainer/train/run_folder.h"
#include "trainer/train/skipped_step.h"

namespace megalith {

namespace {

std::string bad_step_path(const std::string& run_folder, int64_t step) {
  return fmt::format("{}/bad-steps/step-{:08}.json", run_folder, step);
}

nlohmann::json found_by_this_rank(const Plan& plan, const Loader& data, const BadStep& step) {
  nlohmann::json units = nlohmann::json::array(), microbatches = nlohmann::json::array();
  const std::vector<UnitSpec> model = model_spec(plan.model);
  for (const size_t unit : step.scalars.bad_units) units.push_back(model.at(unit).name);
  for (const int64_t k : step.scalars.bad_microbatches)
    microbatches.push_back({{"microbatch", k}, {"samples", sample_names(plan, data, k, step.samples.begin)}});
  return {{"rank", plan.rank}, {"units", units}, {"microbatches", microbatches}};
}

// Checks that the value is number_or_word's; else throws nlohmann::json::exception.
const nlohmann::json& word_or_number(const nlohmann::json& value) {
  if (value != "nan" && value != "inf" && value != "-inf") real_number(value);
  return value;
}

}  // namespace

nlohmann::json number_or_word(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

void keep_bad_step(const Config& config, const Session& session, const Plan& plan, const Loader& data,
                   const BadStep& step) {
  nlohmann::json by_rank = nlohmann::json::array();
  for (nlohmann::json& found : json_of_all_ranks(session, found_by_this_rank(plan, data, step)))
    if (!found.at("units").empty() || !found.at("microbatches").empty()) by_rank.push_back(std::move(found));
  if (session.rank() != 0) return;

  const StepScalars& s = step.scalars;
  nlohmann::ordered_json file{{"step", step.number},
                              {"samples", {step.samples.begin, step.samples.end}},
                              {"learning_rate", step.learning_rate},
                              {"ranks", session.size()},
                              {"layout", plan.mesh.summary()},
                              {"version", version()},
                              {"decision", s.decision == Decision::spike ? "norm" : "not finite"},
                              {"ended_the_run", step.ended_the_run},
                              {"skipped_in_a_row", step.progress.skipped_in_a_row},
                              {"skipped", step.progress.skipped},
                              {"loss", number_or_word(s.loss)},
                              {"grad_norm", number_or_word(s.grad_norm)},
                              {"median", number_or_word(s.median)},
                              {"loss_scale", number_or_word(s.loss_scale)},
                              {"why", why_skipped(config, s)},
                              {"first_bad_unit", nullptr},
                              {"by_rank", by_rank},
                              {"checkpoint", nullptr},
                              {"config", config_to_keep(config)}};
  if (s.bad_unit) file["first_bad_unit"] = model_spec(config.model).at(*s.bad_unit).name;
  if (!step.checkpoint.empty()) file["checkpoint"] = {{"path", step.checkpoint}, {"step", step.checkpoint_step}};
  const std::string path = bad_step_path(config.run.output, step.number);
  try {
    make_folders(std::filesystem::path(path).parent_path().string(), "may this user write there?");
    write_file(path, json_text(file, 1) + "\n", {.replace = true});
  } catch (const Error& e) {
    log_warning("cannot keep the file of bad step {}: {}", step.number, e.what());
  }
}

std::optional<KeptStep> read_bad_step(const std::string& run_folder, int64_t step) {
  const std::string path = bad_step_path(run_folder, step);
  std::error_code absent;
  if (!std::filesystem::exists(path, absent)) return {};
  constexpr const char* remedy = "remove it, and the step is replayed from the run's config.toml";
  try {
    const nlohmann::json file = parse_json(read_file(path));
    const int64_t its = whole_number(file.at("step"));
    CHECK(its == step, "{} is of step {}; {}", path, its, remedy);
    return KeptStep{.config = file.at("config").get<std::string>(),
                    .loss = word_or_number(file.at("loss")),
                    .grad_norm = word_or_number(file.at("grad_norm")),
                    .ranks = static_cast<int>(whole_number(file.at("ranks"), 1, std::numeric_limits<int>::max()))};
  } catch (const nlohmann::json::exception& e) {
    FAIL("{} is not valid ({}); {}", path, e.what(), remedy);
  }
}

}  // namespace megalith
