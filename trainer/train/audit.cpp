#include "trainer/train/audit.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "checkpoints/manifest.h"
#include "checkpoints/store.h"
#include "kernels/system/counted.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

class Violation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw Violation(fmt::vformat(format, fmt::make_format_args(args...)));
}

struct StepLine {
  int64_t step = 0, first = 0, end = 0, ranks = 0;
  std::string skipped;  // the reason; empty: not skipped
};

std::vector<StepLine> steps_of(const std::string& metrics) {
  constexpr int64_t most_samples = 1'000'000'000;  // limit of batch.global_batch_size
  std::vector<StepLine> steps;
  int64_t ranks = 0;
  const auto ranks_in = [&](const nlohmann::json& object) {
    return whole_number(object.value("ranks", nlohmann::json(ranks)), 0);
  };
  for_each_json_line(metrics, "metrics.jsonl", [&](const nlohmann::json& line) {
    if (const auto start = line.find("start"); start != line.end()) {
      ranks = ranks_in(*start);
      return;
    }
    const int64_t step = whole_number(line.at("step"), 0);
    if (line.contains("validation_loss") || line.contains("texts") || line.contains("time_after")) return;
    CHECK(line.contains("samples"),
          "step {} does not record its samples; it is from an older version and cannot be audited", step);
    const int64_t first = whole_number(line.at("samples").at(0), 0), end = whole_number(line.at("samples").at(1), 0);
    CHECK(end - first <= most_samples, "step {} has {} samples; a batch has at most {}", step, end - first,
          most_samples);
    steps.push_back({step, first, end, ranks_in(line), line.value("skipped", std::string())});
  });
  return steps;
}

// Tracks the samples of each source in its present epoch.
class Epochs {
 public:
  // Starts the order that holds from the run's sample `n` on, at step `step`.
  void begin(const OrderRecord& record, int64_t step, int64_t n) {
    record_ = &record;
    const bool counted_anew = record.counts_from_start || sources_.empty() || n != record.order.first();
    std::map<uint64_t, Source> before;
    if (!counted_anew) before.swap(sources_);
    sources_.clear();
    for (size_t i = 0; i < record.sources.size(); i++) {
      const uint64_t key = record.order.begins()[i].key;
      if (const auto found = before.find(key); found != before.end())
        sources_[key] = gone_on(found->second, record, i, step);
      else if (const auto left = left_.find(key); left != left_.end() && !counted_anew)
        sources_[key] = gone_on(left->second, record, i, step);
      else
        sources_[key] = begun(record, i, n);
    }
    for (auto& [key, source] : before) left_[key] = std::move(source);
  }

  void add(int64_t step, int64_t n) {
    const Sample sample = record_->order.at(n);
    Source& source = sources_.at(record_->order.begins()[sample.source].key);
    const std::string& name = source.name;
    if (sample.epoch != source.epoch) {
      require(source.absent == 0 && sample.epoch == source.epoch + 1,
              "step {}: epoch {} of {} begins, but {} samples of epoch {} were left out", step, sample.epoch, name,
              source.absent, source.epoch);
      whole_epochs_[name] += source.whole;
      const int64_t size = record_->order.sizes()[sample.source];
      source.epoch = sample.epoch;
      source.renew(size);
    }
    require(sample.of_rest == source.of_rest && !source.seen[static_cast<size_t>(sample.index)],
            "step {}: sample {} of {} comes again in epoch {}", step, sample.index, name, sample.epoch);
    source.seen[static_cast<size_t>(sample.index)] = true;
    source.absent--;
  }

  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    for (size_t i = 0; i < record_->sources.size(); i++) {
      const Source& s = sources_.at(record_->order.begins()[i].key);
      const auto size = std::ssize(s.seen);
      const auto seen = std::count(s.seen.begin(), s.seen.end(), true);
      const auto found = whole_epochs_.find(s.name);
      lines.push_back(fmt::format("{}: {} whole epochs seen; of {}epoch {}, {} of {} samples", s.name,
                                  (found == whole_epochs_.end() ? 0 : found->second) + (s.whole && seen == size),
                                  s.of_rest ? "the rest of " : "", s.epoch, seen, size));
      if (const int64_t left_out = record_->sources[i].left_out; left_out > 0)
        lines.back() +=
            fmt::format("; an epoch leaves out its last {}, too few for a sample", counted(left_out, "token"));
    }
    return lines;
  }

 private:
  struct Source {
    std::string name;
    SampleCut cut;
    int64_t epoch = 0;
    int64_t absent = 0;  // samples still to come
    bool of_rest = false;
    int64_t part = 0;  // tokens from which its samples are cut
    std::vector<bool> seen;
    bool whole = true;  // the audit saw the epoch from its beginning

    void renew(int64_t samples) {
      seen.assign(static_cast<size_t>(samples), false);
      absent = samples;
      of_rest = false;
      part = cut.tokens - 1;
      whole = true;
    }
  };

  // Returns a source whose samples before `n` the audit did not see.
  static Source begun(const OrderRecord& record, size_t i, int64_t n) {
    Source source{.name = record.sources[i].name, .cut = record.cut_of(i), .seen = {}};
    const SourceBegin& begin = record.order.begins()[i];
    const int64_t size = record.order.sizes()[i];
    const int64_t taken = begin.taken + record.order.taken(i, n);
    source.epoch = begin.epoch;
    if (taken < begin.rest) {
      source.renew(begin.rest);
      source.of_rest = true;
      source.part = begin.rest * source.cut.sequence_length;
      source.absent -= taken;
      source.whole = false;
      return source;
    }
    const int64_t of_whole = taken - begin.rest;
    source.epoch += of_whole / size + (begin.rest > 0);
    source.renew(size);
    source.absent -= of_whole % size;
    source.whole = of_whole % size == 0;
    return source;
  }

  // Returns a source that continues, possibly with another cut.
  Source gone_on(Source source, const OrderRecord& record, size_t i, int64_t step) {
    const SourceBegin& begin = record.order.begins()[i];
    const SampleCut cut = record.cut_of(i);
    source.name = record.sources[i].name;
    if (cut == source.cut) {
      const bool ended = source.absent == 0 && begin.epoch == source.epoch + 1 && begin.taken == 0;
      const auto taken = std::ssize(source.seen) - source.absent;
      require(ended || (begin.epoch == source.epoch && begin.taken == taken && (begin.rest > 0) == source.of_rest),
              "step {}: {} continues after {} samples of epoch {}, but it was after {} of epoch {}", step, source.name,
              begin.taken, begin.epoch, taken, source.epoch);
      return source;
    }
    // The part of the epoch that was still to come, and what the source has had since.
    const int64_t had = (std::ssize(source.seen) - source.absent) * source.cut.sequence_length;
    const bool untouched = had == 0 && !source.of_rest;
    const int64_t unseen = source.part - had + cut.tokens - source.cut.tokens;
    const int64_t size = record.order.sizes()[i];
    const int64_t rest = cut.masked ? begin.rest : unseen / cut.sequence_length;
    const bool next = begin.epoch == source.epoch + 1 && begin.taken == 0 && begin.rest == 0;
    require(
        begin.taken == 0 && ((untouched && begin.rest == 0 && begin.epoch == source.epoch) ||
                             (!untouched && begin.epoch == source.epoch && begin.rest == rest && rest > 0) ||
                             (!untouched && next && (cut.masked || rest == 0))),
        "step {}: {} continues with {} samples of the rest of epoch {}, but {} tokens of epoch {} are left, which are "
        "{}: samples come twice or are left out",
        step, source.name, begin.rest, begin.epoch, unseen, source.epoch, rest);
    if (next) whole_epochs_[source.name] += source.whole;
    const bool whole = source.whole;
    source.cut = cut;
    source.epoch = begin.epoch;
    source.renew(begin.rest > 0 ? begin.rest : size);
    if (begin.rest > 0) {
      source.of_rest = true;
      source.part = unseen;
      source.whole = whole;
    }
    return source;
  }

  const OrderRecord* record_ = nullptr;
  std::map<uint64_t, Source> sources_, left_;  // by key; left_: not in the present order
  std::map<std::string, int64_t> whole_epochs_;
};

void follow(const std::vector<StepLine>& steps, const std::vector<OrderRecord>& orders, Epochs& epochs,
            std::vector<std::string>& lines) {
  const StepLine* before = nullptr;
  size_t next = 0;
  if (steps.front().step > 1)
    lines.push_back(fmt::format("steps 1 to {} were made by the run that this one resumed from: not audited",
                                steps.front().step - 1));
  for (const StepLine& step : steps) {
    if (before) {
      require(step.step > before->step, "step {} comes again after step {}, with samples [{}, {})", step.step,
              before->step, step.first, step.end);
      require(step.step == before->step + 1, "steps {} to {} are missing: after step {} comes {}", before->step + 1,
              step.step - 1, before->step, step.step);
      const int64_t gap = step.first - before->end;
      require(gap == 0, "step {} trained on samples [{}, {}), but step {} went to {}: {} samples are {}", step.step,
              step.first, step.end, before->step, before->end, std::abs(gap), gap < 0 ? "repeated" : "left out");
    } else {
      require(step.step > 1 || step.first == 0, "step 1 begins with sample {}: those before it are left out",
              step.first);
    }
    require(step.end > step.first, "step {} trained on no samples: [{}, {})", step.step, step.first, step.end);
    const size_t was = next;
    while (next < orders.size() && orders[next].sample <= step.first) next++;
    require(next > 0, "step {}: no checkpoint records in which order sample {} came", step.step, step.first);
    if (next != was || !before) epochs.begin(orders[next - 1], step.step, step.first);
    if (next != was && before)
      lines.push_back(fmt::format(
          "from step {} on, with sample {}, the order of samples is different, as checkpoint.allow_changes permitted: "
          "{}",
          step.step, step.first,
          orders[next - 1].counts_from_start ? "an older Megalith read its place in the new order, so samples may have "
                                               "come twice or never, and epochs are counted anew"
                                             : "each source continues where it was"));
    for (int64_t n = step.first; n < step.end; n++) epochs.add(step.step, n);
    if (!step.skipped.empty())
      lines.push_back(fmt::format("step {}, samples [{}, {}): skipped ({}), so they were read but not trained on",
                                  step.step, step.first, step.end, step.skipped));
    before = &step;
  }
}

void check_checkpoints(const std::vector<StepLine>& steps, const std::vector<LedgerCheckpoint>& checkpoints) {
  for (const LedgerCheckpoint& c : checkpoints) {
    if (c.step < steps.front().step) continue;  // an earlier run's
    require(c.step <= steps.back().step, "{} is of step {}, but metrics.jsonl ends with step {}", c.path, c.step,
            steps.back().step);
    const StepLine& step = steps[static_cast<size_t>(c.step - steps.front().step)];
    require(c.samples == step.end, "{} was trained on {} samples, but its step {} went to {}", c.path, c.samples,
            c.step, step.end);
  }
}

// Returns "1 to 5 on 2 ranks, 6 to 11 on 4 ranks".
std::string layouts_of(const std::vector<StepLine>& steps) {
  std::string text;
  for (size_t i = 0; i < steps.size();) {
    size_t end = i;
    while (end < steps.size() && steps[end].ranks == steps[i].ranks) end++;
    text += fmt::format("{}{} to {} on {}", text.empty() ? "" : ", ", steps[i].step, steps[end - 1].step,
                        counted(steps[i].ranks, "rank"));
    i = end;
  }
  return text;
}

}  // namespace

Audit audit(const std::string& metrics, const std::vector<LedgerCheckpoint>& checkpoints,
            const std::vector<OrderRecord>& orders) {
  const std::vector<StepLine> steps = steps_of(metrics);
  CHECK(!steps.empty(), "metrics.jsonl has no step: there is nothing to audit");
  Audit found;
  Epochs epochs;
  try {
    follow(steps, orders, epochs, found.lines);
    check_checkpoints(steps, checkpoints);
  } catch (const Violation& e) {
    found.violation = e.what();
    return found;
  }
  found.lines.push_back(fmt::format("samples [{}, {}); steps {}; {} agree{}", steps.front().first, steps.back().end,
                                    layouts_of(steps), counted(checkpoints.size(), "checkpoint"),
                                    checkpoints.size() == 1 ? "s" : ""));
  for (std::string& line : epochs.lines()) found.lines.push_back(std::move(line));
  return found;
}

Audit audit_run(const std::string& run_folder) {
  const fs::path folder = run_folder;
  const std::string metrics = (folder / "metrics.jsonl").string(), config = (folder / "config.toml").string();
  CHECK(fs::exists(metrics), "{} has no metrics.jsonl; name the folder of a run", run_folder);
  // The folder may have moved, so config.toml's directory comes second.
  std::string directory = (folder / "checkpoints").string();
  if (!fs::is_directory(directory) && fs::exists(config)) directory = load_places(config, {}).checkpoint.directory;

  std::vector<LedgerCheckpoint> checkpoints;
  std::vector<OrderRecord> orders;
  for (const std::string& path : CheckpointStore(directory).usable()) {
    const Manifest manifest = read_manifest(path);
    try {
      checkpoints.push_back({path, manifest.step, whole_number(manifest.state.at("sequences"))});
      if (checkpoints.size() > 1) continue;  // the newest has all orders
      CHECK(
          manifest.state.contains("orders"),
          "{} does not record in which order samples came; it is from an older version, and its run cannot be audited",
          path);
      orders = orders_from(manifest.state.at("orders"));
    } catch (const nlohmann::json::exception& e) {
      FAIL("{}: the state in its manifest is not valid ({}); was it written by another program?", path, e.what());
    }
  }
  CHECK(!checkpoints.empty(), "{} has no complete checkpoint, which records in which order samples came", directory);
  Audit found = audit(read_file(metrics), checkpoints, orders);
  for (int k = 1; fs::exists(folder / fmt::format("metrics.earlier-{}.jsonl", k)); k++)
    found.lines.push_back(
        fmt::format("metrics.earlier-{}.jsonl is of an earlier start, whose weights were dropped", k));
  return found;
}

}  // namespace megalith
