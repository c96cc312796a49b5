#include "trainer/train/skipped_step.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "kernels/system/counted.h"

namespace megalith {

namespace {

std::string unit_name(const ModelConfig& model, size_t unit) { return model_spec(model).at(unit).name; }

// Returns "17, 4 and 9 more".
std::string some_of(const std::vector<std::string>& all) {
  constexpr size_t shown = 8;
  const auto end = all.begin() + static_cast<ptrdiff_t>(std::min(shown, all.size()));
  const std::string more = all.size() > shown ? fmt::format(" and {} more", all.size() - shown) : "";
  return fmt::format("{}{}", fmt::join(all.begin(), end, ", "), more);
}

}  // namespace

std::string why_skipped(const Config& config, const StepScalars& scalars) {
  if (scalars.decision == Decision::spike)
    return fmt::format("the gradient norm {:.4g} is more than train.skip_norm_above = {} times {:.4g}, the median",
                       scalars.grad_norm, config.train.skip_norm_above, scalars.median);
  if (scalars.decision == Decision::overflow)
    return fmt::format("the gradient overflows at a loss scale of {}; the next step's is {}", scalars.loss_scale,
                       scalars.next_loss_scale);
  if (scalars.decision == Decision::nothing) return "none of its tokens counts in the loss";
  const std::string from = scalars.bad_unit ? fmt::format("; the gradient is not finite from {} back",
                                                          unit_name(config.model, *scalars.bad_unit))
                                            : "; every unit's gradient is finite";
  return fmt::format("the loss is {} and the gradient norm {}{}", scalars.loss, scalars.grad_norm, from);
}

std::vector<std::string> sample_names(const Plan& plan, const Loader& data, int64_t microbatch,
                                      int64_t first_sequence) {
  std::vector<std::string> names;
  const Interval sequences = plan.batch.sequences(microbatch);
  for (int64_t i = sequences.begin; i < sequences.end; i++) names.push_back(data.name_of(first_sequence + i));
  return names;
}

std::string seen_by_this_rank(const Plan& plan, const StepScalars& scalars, const Loader& data,
                              int64_t first_sequence) {
  std::vector<std::string> microbatches, samples;
  for (const int64_t k : scalars.bad_microbatches) {
    microbatches.push_back(std::to_string(k));
    for (std::string& name : sample_names(plan, data, k, first_sequence)) samples.push_back(std::move(name));
  }
  std::string text;
  if (!microbatches.empty())
    text = fmt::format("the loss is not finite in microbatch {}, samples {} of data.train", some_of(microbatches),
                       some_of(samples));
  if (scalars.bad_units.empty()) return text;
  std::vector<std::string> units;
  for (const size_t unit : scalars.bad_units) units.push_back(unit_name(plan.model, unit));
  return fmt::format("{}{}its part of the gradient is not finite in {}", text, text.empty() ? "" : "; ",
                     some_of(units));
}

std::vector<std::string> lines_of(const std::string& said) {
  std::vector<std::string> lines;
  std::istringstream text(said);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  if (lines.size() == 1 && !said.starts_with("rank ")) lines[0] = "all ranks: " + lines[0];
  return lines;
}

std::string restart_in_words(const Config& config, const RestartPoint& back) {
  const std::string command =
      config.checkpoint.resume == "auto" ? "the same command" : "the same command with checkpoint.resume=auto";
  std::string text =
      back.path.empty()
          ? fmt::format("no checkpoint in {} is from before that, and {} starts from the beginning",
                        config.checkpoint.directory, command)
          : fmt::format("{} resumes from {}, {}", command, back.path,
                        back.last_weights ? "whose weights still have a normal loss on the samples before these"
                        : back.stable_after == 0
                            ? "which no stable step followed"
                            : fmt::format("which {} followed", counted(back.stable_after, "stable step")));
  if (back.suspects.empty()) return text;
  return text + fmt::format("; {}, which may contain the cause, {} now {}{}",
                            back.suspects.size() == 1 ? "a newer checkpoint"
                                                      : fmt::format("{} newer checkpoints", back.suspects.size()),
                            back.suspects.size() == 1 ? "is" : "are", back.suspects.front(),
                            back.suspects.size() == 1 ? "" : " and the like");
}

std::string remedy_of(const Config& config, Decision decision, int64_t step) {
  if (decision == Decision::spike)
    return "Raise train.skip_norm_above, or set it to 0, if larger gradients are to be expected; else lower "
           "optimizer.learning_rate, with checkpoint.allow_changes=true";
  return fmt::format(
      "Lower optimizer.learning_rate (it was {}) or set optimizer.gradient_clip, with checkpoint.allow_changes=true, "
      "which changes need; or inspect the samples in the log. `megalith replay {} --step {}` finds the first op whose "
      "output is not finite. train.max_bad_steps is the maximum number of steps skipped in a row",
      config.optimizer.learning_rate, config.run.output, step);
}

}  // namespace megalith
