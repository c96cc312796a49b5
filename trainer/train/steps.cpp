#include "trainer/train/steps.h"

#include "checkpoints/store.h"
#include "kernels/system/counted.h"
#include "trainer/job/agreement.h"
#include "trainer/log/log.h"
#include "trainer/step/learning_rate.h"
#include "trainer/train/bad_step_file.h"
#include "trainer/train/skipped_step.h"

namespace megalith {

Steps::Steps(const Config& config, const Session& session, RankContext& work, const Loader& data,
             StepProfiler& profiler, Metrics& metrics)
    : config_(config), session_(session), work_(work), data_(data), profiler_(profiler), metrics_(metrics) {}

policy::Event Steps::launch(const Progress& progress, const std::function<ControlFlags()>& flags) {
  StepInFlight step{.number = progress.step + 1, .first_sequence = progress.sequences};
  if (const RecordedGroup* ranks = session_.recorded()) ranks->recorder().begin_step(step.number);
  profiler_.begin_launch(step.number);
  Stream& s = work_.runtime->stream;
  const bool op_by_op = s.ops_are_looked_at();
  const GraphCounts before = s.graphs();
  step.ticket = work_.trainer->step(
      progress.step, progress.sequences, feed_from(data_, progress.sequences, config_.model.vocab),
      [&] {
        return RankRecord{flags(), profiler_.stats()};
      },
      step.scalars.get());
  if (!op_by_op) log_graphs(s.graphs() - before);
  profiler_.end_launch(step.number);
  in_flight_.push_back(std::move(step));
  return policy::StepLaunched{};
}

// Logs once: the first step records the launches, the second makes the graphs.
void Steps::log_graphs(const GraphCounts& of_step) {
  const GraphCounts& planned = work_.rehearsal.graphs;
  if (graphs_logged_ || planned.graphs == 0 || work_.device.world != World::cuda) return;
  const bool as_planned = of_step == planned;
  if (!as_planned && ++without_graphs_ < 3) return;
  graphs_logged_ = true;
  int64_t launches = 0;
  for (const OpRecord& op : work_.rehearsal.ops) launches += op.launches;
  const std::string text =
      fmt::format("run.cuda_graphs: {} of the {} ops of a step are in {}, the others launched one by one", of_step.ops,
                  launches, counted(of_step.graphs, "graph"));
  if (as_planned) return log_info("{}", text);
  log_warning("{}; the plan has {} in {}, but some ops differ from step to step", text, planned.ops,
              counted(planned.graphs, "graph"));
}

const StepScalars& Steps::report() {
  CHECK(!in_flight_.empty(), "there is no step in flight to report after step {}", last_.number);
  last_ = std::move(in_flight_.front());
  in_flight_.pop_front();
  work_.runtime->stream.receive(last_.ticket);
  const Measured measured = profiler_.report(last_.number, *last_.scalars);
  metrics_.end_step({.step = last_.number,
                     .scalars = *last_.scalars,
                     .learning_rate = learning_rate_at(config_.optimizer, last_.number - 1),
                     .samples = samples_of(last_),
                     .measured = measured});
  if (profiler_.trace_is_over(last_.number)) metrics_.start_clock(profiler_.write_trace());
  return *last_.scalars;
}

// The steps in flight still write their scalars.
void Steps::drain() { work_.runtime->stream.synchronize(); }

void Steps::log_overflow(const Progress& progress) const {
  log_info("step {} is skipped, {} in all: {}", last_.number, progress.skipped, why_skipped(config_, *last_.scalars));
}

void Steps::log_nothing(const Progress& progress) const {
  const Interval samples = samples_of(last_);
  log_warning(
      "step {} is skipped, {} in all: no token of samples {} to {} of data.train counts; raise "
      "batch.global_batch_size, or leave out examples without an answer",
      last_.number, progress.skipped, samples.begin, samples.end - 1);
}

void Steps::log_bad_step(const Progress& progress) const {
  log_warning("step {} is skipped, {} in a row and {} in all: {}", last_.number, progress.skipped_in_a_row,
              progress.skipped, why_skipped(config_, *last_.scalars));
  const std::string seen = seen_by_this_rank(work_.plan, *last_.scalars, data_, last_.first_sequence);
  for (const std::string& line : lines_of(merge_messages(session_, seen)))
    log_warning("step {}: {}", last_.number, line);
}

void Steps::keep_bad_step(const Progress& progress, int64_t checkpoint_step, bool ended_the_run) const {
  megalith::keep_bad_step(
      config_, session_, work_.plan, data_,
      {.number = last_.number,
       .samples = samples_of(last_),
       .scalars = *last_.scalars,
       .learning_rate = learning_rate_at(config_.optimizer, last_.number - 1),
       .progress = progress,
       .ended_the_run = ended_the_run,
       .checkpoint = checkpoint_step > 0 ? CheckpointStore(config_.checkpoint).path_of(checkpoint_step) : "",
       .checkpoint_step = checkpoint_step});
}

}  // namespace megalith
