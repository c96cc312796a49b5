#include "trainer/verify/verify.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>

#include "kernels/system/counted.h"
#include "kernels/system/long_work.h"
#include "trainer/checkpointing/run_start.h"
#include "trainer/communication/mpi.h"
#include "trainer/job/agreement.h"
#include "trainer/job/memory_check.h"
#include "trainer/job/ranks_agree.h"
#include "trainer/machine/machine.h"
#include "trainer/step/learning_rate.h"
#include "trainer/step/text_data.h"
#include "trainer/verify/difference.h"
#include "trainer/verify/observed_run.h"

namespace megalith {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Difference, at, a, b, size, tolerance, part)

namespace {

// Parses "[STEP:]NAME".
Fault parse_fault(const std::string& text, const VerifyOptions& options, const Config& config) {
  if (text.empty()) return {};
  const auto has = [](const std::vector<ComparedTensor>& all, const std::string& name) {
    return std::any_of(all.begin(), all.end(), [&](const ComparedTensor& t) { return t.name == name; });
  };
  Fault fault{.name = text.substr(text.find(':') + 1)};
  fault.step = has(tensors_before(config), fault.name) ? 0 : 1;
  if (const size_t colon = text.find(':'); colon != std::string::npos) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + colon, fault.step);
    CHECK(error == std::errc{} && end == text.data() + colon && fault.step >= 0 && fault.step <= options.steps,
          "--inject {}: the step is a number from 0 to {}", text, options.steps);
  }
  CHECK(has(fault.step == 0 ? tensors_before(config) : tensors_of_step(config), fault.name),
        "--inject {}: no tensor of step {} has this name; write it as in the table", text, fault.step);
  return fault;
}

struct Finding {
  Difference difference;
  std::string fault;  // WholeTensor::fault()
  bool exceeds() const { return !fault.empty() || difference.exceeds(); }
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, difference, fault)

// Returns the type with the larger unit in the last place.
ComputeType coarser(ComputeType a, ComputeType b) {
  for (ComputeType type : {ComputeType::bf16, ComputeType::fp16})
    if (a == type || b == type) return type;
  return ComputeType::fp32;
}

// Gathers each tensor of both layouts on the rank that compares it.
class LayoutComparison {
 public:
  LayoutComparison(const Session& session, Communicator& world, ObservedRun& a, ObservedRun& b, double factor)
      : session_(session), world_(world), a_(a), b_(b), factor_(factor) {
    for (const ObservedRun* run : {&a, &b}) {
      const PrecisionConfig& precision = run->config().precision;
      compute_ = coarser(compute_, precision.compute);
      fp8_ = fp8_ || precision.products == ProductType::fp8;
      gradients_ = coarser(gradients_, precision.compute);
      if (precision.gradient_reduce == StorageType::bf16) gradients_ = ComputeType::bf16;
      if (precision.master == StorageType::bf16) weights_ = ComputeType::bf16;
    }
  }

  // Collective. Returns the same on every rank, in the order of `tensors`. Copies the first layout's weights to the
  // second.
  std::vector<Finding> compare(const std::vector<ComparedTensor>& tensors, int64_t step) {
    const auto shards_a = exchange_shards(tensors, a_), shards_b = exchange_shards(tensors, b_);
    std::map<size_t, Finding> mine;
    for (size_t t = 0; t < tensors.size(); t++) {
      const WholeTensor a = gather(tensors[t], a_, shards_a, t), b = gather(tensors[t], b_, shards_b, t);
      if (!a.values().empty()) mine[t] = difference_of(tensors[t], a, b, step);
      if (tensors[t].kind == TensorKind::weight) copy_weight(tensors[t], a, shards_b, t);
    }
    if (step > 0) b_.weights_set();
    std::vector<Finding> all(tensors.size());
    for (const auto& theirs : of_all_ranks(session_, mine))
      for (const auto& [t, finding] : theirs) all.at(t) = finding;
    return all;
  }

 private:
  using Shards = std::vector<TensorShard>;

  // Returns all shards, by rank and tensor.
  std::vector<std::vector<Shards>> exchange_shards(const std::vector<ComparedTensor>& tensors, ObservedRun& run) {
    std::vector<std::vector<std::array<int64_t, 4>>> mine(tensors.size());
    for (size_t t = 0; t < tensors.size(); t++)
      for (const TensorShard& p : run.shards(tensors[t].name))
        mine[t].push_back({p.columns.begin, p.columns.end, p.elements.begin, p.elements.end});
    std::vector<std::vector<Shards>> all;
    for (const auto& theirs : of_all_ranks(session_, mine)) {
      std::vector<Shards>& of_rank = all.emplace_back(tensors.size());
      for (size_t t = 0; t < tensors.size(); t++)
        for (const auto& [col_begin, col_end, begin, end] : theirs.at(t))
          of_rank[t].push_back({tensors[t].name, tensors[t].shape, {col_begin, col_end}, {begin, end}});
    }
    return all;
  }

  // Gathers the tensor on the rank that compares it.
  WholeTensor gather(const ComparedTensor& tensor, ObservedRun& run, const std::vector<std::vector<Shards>>& shards,
                     size_t index) {
    Recorded here = run.take(tensor.name);
    if (session_.rank() != comparing_rank(tensor)) {
      if (!here.values.empty()) world_.send(stream_, tensor_of(here.values), comparing_rank(tensor)).wait();
      return {tensor.name, {0}};
    }
    WholeTensor whole(tensor.name, tensor.shape);
    std::vector<float> elements;
    for (int rank = 0; rank < session_.size(); rank++) {
      const Shards& theirs = shards[static_cast<size_t>(rank)][index];
      if (rank == session_.rank()) {
        whole.add(rank, theirs, here.values);
        continue;
      }
      elements.resize(numel_of(theirs));
      if (!elements.empty()) world_.recv(stream_, tensor_of(elements), rank).wait();
      whole.add(rank, theirs, elements);
    }
    return whole;
  }

  // Sends the first layout's weight from the rank that compares it to the ranks with shards of it in the second.
  void copy_weight(const ComparedTensor& tensor, const WholeTensor& a, const std::vector<std::vector<Shards>>& shards,
                   size_t index) {
    const auto here = static_cast<size_t>(session_.rank());
    std::vector<float> values(numel_of(shards[here][index]));
    if (session_.rank() != comparing_rank(tensor)) {
      if (!values.empty()) world_.recv(stream_, tensor_of(values), comparing_rank(tensor)).wait();
      b_.set_weights(tensor.name, values);
      return;
    }
    for (int rank = 0; rank < session_.size(); rank++) {
      const Shards& theirs = shards[static_cast<size_t>(rank)][index];
      values.clear();
      for (const TensorShard& shard : theirs) a.append_shard(values, shard);
      if (rank == session_.rank())
        b_.set_weights(tensor.name, values);
      else if (!values.empty())
        world_.send(stream_, tensor_of(values), rank).wait();
    }
  }

  Finding difference_of(const ComparedTensor& tensor, const WholeTensor& a, const WholeTensor& b, int64_t step) {
    Finding finding;
    for (const auto& [layout, whole] : {std::pair{"A", &a}, {"B", &b}})
      if (const std::string fault = whole->fault(); !fault.empty() && finding.fault.empty())
        finding.fault = fmt::format("layout {}: {}", layout, fault);
    const bool reduced = tensor.parameter || tensor.name == "gradient norm";  // residuals are not reduced
    const ComputeType type = tensor.kind == TensorKind::weight ? weights_ : reduced ? gradients_ : compute_;
    const double tolerance = factor_ * tolerance_of(tensor.kind, type, fp8_);
    if (tensor.kind == TensorKind::weight) {
      finding.difference = largest_difference(a.values(), b.values(), tolerance, updates_[tensor.id].allowance());
      return finding;
    }
    finding.difference = largest_difference(a.values(), b.values(), tolerance);
    if (tensor.parameter && tensor.kind == TensorKind::gradient)
      updates_[tensor.id].add(a.values(), tolerance, learning_rate_at(a_.config().optimizer, step - 1));
    return finding;
  }

  int comparing_rank(const ComparedTensor& tensor) const {
    return static_cast<int>(tensor.id % static_cast<uint64_t>(session_.size()));
  }
  static Tensor tensor_of(std::vector<float>& values) {
    return {values.data(), DType::f32, {static_cast<int64_t>(values.size())}};
  }
  static size_t numel_of(const Shards& shards) {
    int64_t numel = 0;
    for (const TensorShard& shard : shards) numel += shard.numel();
    return static_cast<size_t>(numel);
  }

  const Session& session_;
  Communicator& world_;
  ObservedRun &a_, &b_;
  double factor_;
  ComputeType compute_ = ComputeType::fp32, gradients_ = ComputeType::fp32, weights_ = ComputeType::fp32;
  bool fp8_ = false;
  Stream stream_{World::cpu};
  std::map<uint64_t, UncertainUpdate> updates_;  // by parameter compared on this rank
};

// Prints on rank 0 and collects the verdict.
class Report {
 public:
  Report(bool print, bool all) : print_(print), all_(all) {}

  void step(int64_t step, const std::vector<ComparedTensor>& tensors, const std::vector<Finding>& findings) {
    if (compared_ == 0)
      print("{:>4}  {:<28} {:>10}  {:>10}  {}\n", "step", "tensor", "difference", "tolerance", "where");
    const bool equal = std::all_of(findings.begin(), findings.end(),
                                   [](const Finding& f) { return f.fault.empty() && f.difference.part == 0; });
    equal_ = equal_ && equal;
    // A weight that passes comes last, since it often uses up the allowance of an uncertain update.
    const auto nearness = [](const ComparedTensor& tensor, const Finding& f) {
      if (f.exceeds()) return std::numeric_limits<double>::infinity();
      return f.difference.part - (tensor.kind == TensorKind::weight ? 1 : 0);
    };
    size_t worst = 0, first = tensors.size();
    for (size_t t = 0; t < tensors.size(); t++) {
      const Finding& f = findings[t];
      const double nearest = nearness(tensors[t], f);
      if (nearest > nearness(tensors[worst], findings[worst])) worst = t;
      if (compared_++ == 0 || nearest > nearest_) {
        nearest_ = nearest;
        nearest_text_ = fmt::format("{} of step {}: {:.2e} of {:.2e}", tensors[t].name, step, f.difference.size,
                                    f.difference.tolerance);
      }
      if (!f.exceeds()) continue;
      exceeding_++;
      first = std::min(first, t);
      if (!first_.empty()) continue;
      const Difference& d = f.difference;
      first_ = !f.fault.empty() ? fmt::format("step {}, {}: {}", step, tensors[t].name, f.fault)
                                : fmt::format("step {}, {} at {}: {:.7g} against {:.7g}", step, tensors[t].name,
                                              describe_place(tensors[t].shape, d.at), d.a, d.b);
    }
    if (equal && !all_) {
      print("{:>4}  {:<28} all are equal\n", step, counted(tensors.size(), "tensor"));
    } else {
      for (size_t t = 0; t < tensors.size(); t++)
        if (all_ || step == 1 || t == worst || t == first) line(step, tensors[t], findings[t]);
    }
    std::fflush(stdout);
  }

  // Prints the verdict and returns whether no tensor exceeds its tolerance.
  bool finish(int64_t steps) const {
    if (equal_)
      print("all are equal: {} in {}\n", counted(compared_, "comparison"), counted(steps, "step"));
    else if (first_.empty())
      print("no tensor exceeds its tolerance: {} in {}; the nearest is {}\n", counted(compared_, "comparison"),
            counted(steps, "step"), nearest_text_);
    else
      print("first difference beyond its tolerance: {}\n{} of {} comparisons exceed theirs\n", first_, exceeding_,
            compared_);
    return first_.empty();
  }

 private:
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) const {
    if (print_) fmt::print(format, std::forward<Args>(args)...);
  }

  void line(int64_t step, const ComparedTensor& tensor, const Finding& finding) const {
    const Difference& d = finding.difference;
    std::string where = d.size != 0 ? describe_place(tensor.shape, d.at) : "equal";
    if (!finding.fault.empty()) where = finding.fault;
    print("{:>4}  {:<28} {:>10.2e}  {:>10.2e}  {}{}\n", step, tensor.name, d.size, d.tolerance, where,
          finding.exceeds() ? "  EXCEEDS" : "");
  }

  bool print_, all_, equal_ = true;
  std::string first_;   // first tensor beyond its tolerance
  double nearest_ = 0;  // largest Difference::part
  std::string nearest_text_;
  int64_t compared_ = 0, exceeding_ = 0;
};

// Error: both layouts do not fit at the same time.
void rehearse(RankContext& a, RankContext& b, const Session& session) {
  for (RankContext* work : {&a, &b}) work->rehearse();
  check_memory({{a.device.world, a.rehearsal.memory}, {b.device.world, b.rehearsal.memory}},
               session.ranks_on_this_node(), std::max(a.device.ranks, b.device.ranks));
}

void print_header(const VerifyOptions& options, ObservedRun& a, ObservedRun& b, int ranks) {
  const Config& config = a.config();
  fmt::print("A: {}{}{}\nB: the same with {}\n", options.config, options.overrides.empty() ? "" : " ",
             fmt::join(options.overrides, " "), fmt::join(options.against, " "));
  fmt::print("{}; {} of {} of {}, {}\n", counted(ranks, "rank"), counted(options.steps, "step"),
             counted(config.batch.global_batch_size, "sequence"), counted(config.batch.sequence_length, "token"),
             config.data.train.empty() ? "made up, since data.train is empty" : "from " + config.data.train);
  const std::string& warning = (a.work().layout.warning.empty() ? b : a).work().layout.warning;
  if (!warning.empty()) fmt::print("warning: {}\n", warning);
  fmt::print("differences are |a - b| / max |a| of the element nearest to its tolerance\n\n");
  std::fflush(stdout);  // a step may take minutes
}

}  // namespace

void check_against(const std::vector<std::string>& against) {
  CHECK(!against.empty(),
        "nothing to verify: name the other layout, as in --against parallel.tensor_parallel_degree=2");
  for (const std::string& text : against) {
    const size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
    const std::string key = text.substr(begin, text.find_first_of(" \t=", begin) - begin);
    bool layout = key == "batch.microbatch_size" || key == "run.device" || key == "communication.backend";
    for (const char* section : {"parallel.", "memory.", "precision."}) layout = layout || key.starts_with(section);
    CHECK(layout,
          "--against {}: {} changes the results of a step, not only their computation; verify compares layouts of one "
          "run, which differ in parallel.*, memory.*, precision.*, batch.microbatch_size, run.device or "
          "communication.backend. A key before --against applies to both",
          text, key);
  }
}

bool run_verify(const VerifyOptions& options, const Session& session) {
  Config config_a, config_b;
  together(session, [&] {
    std::vector<std::string> overrides = options.overrides;
    config_a = load_run_config(options.config, overrides);
    overrides.insert(overrides.end(), options.against.begin(), options.against.end());
    config_b = load_run_config(options.config, overrides);
    check_against(options.against);
  });
  together(session, [&] { session.require_mpi(); });
  check_ranks_agree(config_a, session,
                    {{"--steps", {fmt::format("{}", options.steps), ""}},
                     {"--tolerance", {fmt::format("{}", options.tolerance), ""}},
                     {"--inject", {options.inject, ""}}});
  check_ranks_agree(config_b, session);
  use_threads(session.ranks_on_this_node());

  std::optional<Loader> data;
  Fault fault;
  together(session, [&] {
    for (Config* config : {&config_a, &config_b}) {
      config->checkpoint.asynchronous = false;
      open_tokenizer(*config);
      // Any token may end documents of made-up text.
      DataConfig& made_up = config->data;
      if (made_up.train.empty() && made_up.end_of_text < 0) made_up.end_of_text = 0;
    }
    const DataConfig& d = config_a.data;
    if (!d.train.empty()) data = open_data("data.train", d.train, config_a, d.shuffle, session.rank(), session.size());
    fault = parse_fault(options.inject, options, config_a);
  });
  ObservedRun a(config_a, session, {}), b(config_b, session, fault);
  together(session, [&] { rehearse(a.work(), b.work(), session); });
  for (ObservedRun* run : {&a, &b}) run->start();
  if (session.rank() == 0) print_header(options, a, b, session.size());

  const auto world = host_world(session);
  LayoutComparison comparison(session, *world, a, b, options.tolerance);
  Report report(session.rank() == 0, options.all);
  const auto before = tensors_before(config_a), of_step = tensors_of_step(config_a);
  const int64_t parts = 3;  // of a step: each layout, and the comparison
  LongWork work("comparing the layouts", 1 + parts * options.steps);
  report.step(0, before, comparison.compare(before, 0));
  work.advance(1);
  for (int64_t step = 1; step <= options.steps; step++) {
    for (ObservedRun* run : {&a, &b}) {
      run->step(step, data ? &*data : nullptr);
      work.advance(1);
    }
    report.step(step, of_step, comparison.compare(of_step, step));
    work.advance(1);
  }
  return report.finish(options.steps);
}

}  // namespace megalith
