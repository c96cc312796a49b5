#include "trainer/planner/this_machine.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/linear.h"
#include "kernels/loops/loops_cpu.h"
#include "kernels/stream/arena.h"
#include "kernels/system/counted.h"
#include "kernels/system/files.h"
#include "trainer/communication/mpi.h"
#include "trainer/machine/machine.h"
#include "trainer/step/step_clock.h"

namespace megalith {

namespace {

constexpr int repeats = 15;
constexpr int64_t product = 1024;              // rows, columns and inner dimension of the GEMM
constexpr int64_t copied = int64_t{64} << 20;  // bytes, more than caches hold
constexpr int launches = 1000;

class Bench {
 public:
  explicit Bench(const Session& session)
      : session_(session), world_(host_world(session)), stream_(World::cpu, {}), arena_(World::cpu, "measure", size) {}

  double gemm_rate(DType type) {
    const auto scope = arena_.scope();
    const Tensor y = filled(type, {product, product}), x = filled(type, {product, product}),
                 w = filled(type, {product, product});
    const double seconds = time([&] { launch(stream_, LinearForward{.y = y, .x = x, .w = w}); });
    return session_.size() * 2 * std::pow(static_cast<double>(product), 3) / seconds;
  }

  double copy_rate() {
    const auto scope = arena_.scope();
    const Tensor y = filled(DType::f32, {copied / 4}), x = filled(DType::f32, {copied / 4});
    return session_.size() * 2.0 * copied / time([&] { launch(stream_, Copy{.y = y, .x = x}); });  // read and written
  }

  // Returns the seconds of one fill.
  double small_op(int64_t elements) {
    const auto scope = arena_.scope();
    const Tensor x = filled(DType::f32, {elements});
    return time([&] {
             for (int i = 0; i < launches; i++) launch(stream_, Fill{.y = x, .value = 1});
           }) /
           launches;
  }

  // Returns the seconds of a gather with `bytes` from each rank.
  double gather(int64_t bytes) {
    const auto scope = arena_.scope();
    const Tensor mine = filled(DType::f32, {bytes / 4}), all = filled(DType::f32, {bytes / 4 * session_.size()});
    return time([&] { world_->all_gather(stream_, all, mine).wait(); });
  }

  std::vector<double> from_all_ranks(double mine) {
    std::vector<double> all;
    for (const std::string& text : session_.all_gather_text(fmt::format("{}", mine))) all.push_back(std::stod(text));
    return all;
  }

 private:
  static constexpr int64_t size = 4 * copied;

  Tensor filled(DType type, Shape shape) {
    const Tensor x = arena_.tensor(type, shape);
    launch(stream_, Fill{.y = x, .value = 1});
    return x;
  }

  // Measures from the first rank's start to the last one's end, since ranks that share a core may take turns. Returns
  // the fastest of several, since other load only adds time.
  double time(const std::function<void()>& work) {
    double fastest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < repeats; i++) {
      world_->barrier(stream_);
      const double start = StepClock::host_now();
      work();
      const double end = StepClock::host_now();
      fastest = std::min(fastest, std::ranges::max(from_all_ranks(end)) - std::ranges::min(from_all_ranks(start)));
    }
    return fastest;
  }

  const Session& session_;
  std::unique_ptr<Communicator> world_;
  Stream stream_;
  Arena arena_;
};

// Returns the GiB that all ranks occupy.
double resident(Bench& bench) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const std::vector<double> all = bench.from_all_ranks(static_cast<double>(usage.ru_maxrss) / (1 << 20));
  return std::accumulate(all.begin(), all.end(), 0.0);
}

struct MeasuredLink {
  double rate, latency;  // GB/s a rank; seconds a step of a gather
};

// A single rank has no link, so a copy and a guess replace it.
MeasuredLink link_of(Bench& bench, int ranks, double bandwidth) {
  if (ranks == 1) return {bandwidth / 2, 1e-6};
  const int64_t part = copied / ranks;
  const double latency = bench.gather(256) / (ranks - 1);
  return {static_cast<double>(part) * (ranks - 1) / (bench.gather(part) - latency * (ranks - 1)) * 1e-9, latency};
}

constexpr const char* profile_begin = "# This machine, as `megalith measure`";
constexpr char profile_text[] =
    R"({0} found it with {1} of {2} each, all at work at once.
#
# It holds for this number of ranks: others share the cores and the memory differently. The shares in [calibrated] are
# 1, since the rates are those that programs reach. MPI's transfers take the cores' time, so they do not overlap with
# work. The collectives' delay and the overhead of a microbatch and a step are guesses{15}: fit them to a few runs of
# your own with megalith plan --calibrate RUN...

[device]
name = "{3}"  # all its cores are one device, which the ranks share
kind = "cpu"
per_node = 1
memory = {4:.2f}    # GiB: the machine's
reserved = {5:.2f}  # GiB that {1} had taken before they allocated anything
bandwidth = {6:.2f}  # GB/s, copies of {7} MB, read and written
bf16 = {8:.4f}   # TFLOP/s, products of {9} x {9} matrices
fp16 = {14:.4f}   # TFLOP/s, products of {9} x {9} matrices
fp32 = {10:.4f}  # TFLOP/s, products of {9} x {9} matrices
multiprocessors = {20}  # threads of all ranks

[host]
memory = {4:.2f}  # GiB: the same
link = {11:.2f}    # GB/s: a copy

[node]
link = {12:.3f}  # GB/s that a rank sends, gathers of {7} MB in all
topology = "switch"
latency = {13:.2f}  # us a step of a gather of 256 bytes a rank

[network]
link = {12:.3f}  # no other node was seen: the node's
latency = {13:.2f}

[calibrated]
gemm = 1.0
memory = 1.0
node_link = 1.0
network_link = 1.0
collective_delay = 10.0
overlap = 1.0
launch = {16:.2f}  # us of an op of {17} elements, which one thread does
fork = {18:.2f}    # us that an op takes longer when {19}
microbatch = 0.1
step = 0.1
)";

}  // namespace

void check_measurable(const Session& session) {
  CHECK(session.ranks_on_this_node() == session.size(),
        "{} of {} ranks are on this node; start all ranks on the node to measure", session.ranks_on_this_node(),
        session.size());
}

bool is_measured_profile(const std::string& path) {
  std::error_code absent;
  return std::filesystem::is_regular_file(path, absent) && read_file(path).starts_with(profile_begin);
}

std::string measure_this_machine(const Session& session) {
  const int ranks = session.size();
  const int threads = use_threads(ranks);
  Bench bench(session);
  const double reserved = resident(bench);
  const double f32 = bench.gemm_rate(DType::f32) * 1e-12, bf16 = bench.gemm_rate(DType::bf16) * 1e-12,
               f16 = bench.gemm_rate(DType::f16) * 1e-12;
  const double bandwidth = bench.copy_rate() * 1e-9, memory = static_cast<double>(physical_memory()) / (1 << 30);
  const auto [link, latency] = link_of(bench, ranks, bandwidth);
  // One thread runs the first fill, all threads share the second.
  const double one = bench.small_op(cpu::fork_threshold - 1), all = bench.small_op(cpu::fork_threshold);
  const double fork = threads == 1 ? 0 : std::max(0.0, all - one);
  return session.broadcast_text(fmt::format(
      profile_text, profile_begin, counted(ranks, "rank"), counted(threads, "thread"), processor_name(), memory,
      reserved, bandwidth, copied >> 20, bf16, product, f32, bandwidth / 2, link, latency * 1e6, f16,
      ranks == 1 ? ", as is the link, since there was one rank" : "", one * 1e6, cpu::fork_threshold - 1, fork * 1e6,
      threads == 1 ? "threads share it, but a rank has one" : "its threads share it", ranks * threads));
}

}  // namespace megalith
