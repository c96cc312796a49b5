#include "bench/desk.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/fp8.h"
#include "kernels/system/json.h"

namespace megalith::bench {

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

cuda::Queue queue_of(DeviceQueue* owner, int generation) {
  cuda::Queue queue = owner ? owner->queue() : cuda::Queue{};
  if (generation) queue.chip.generation = generation;
  return queue;
}

}  // namespace

void select_gpu() {
  CHECK(device::in_build(), "this build has no CUDA; configure with: cmake --preset cuda");
  CHECK(device::count() > 0, "no GPU here, or no driver for it; does nvidia-smi show one?");
  device::select(0);
}

std::string describe(World world) {
  if (world != World::cuda)
    return json_text(nlohmann::ordered_json{{"name", processor_name()}, {"threads", omp_get_max_threads()}});
  const device::Properties p = device::properties();
  return json_text(nlohmann::ordered_json{{"name", p.name},
                                          {"compute_capability", fmt::format("{}.{}", p.major, p.minor)},
                                          {"processors", p.processors},
                                          {"memory", p.memory},
                                          {"free", p.free},
                                          {"cache", p.cache},
                                          {"driver", p.driver},
                                          {"runtime", p.runtime}});
}

Desk::Desk(World w, int64_t bytes, int generation)
    : world(w),
      queue(w == World::cuda ? std::make_unique<DeviceQueue>() : nullptr),
      stream(w, queue_of(queue.get(), generation)),
      arena(w, "bench", bytes) {
  if (world != World::cuda) return;
  cache_ = device::properties().cache;
  begin_ = device::make_timed_event();
  end_ = device::make_timed_event();
  screen_ = arena.tensor(DType::f32, {64 << 20});
  stretch([] {}, 1);
  fill_seconds_ = stretch([&] { launch(stream, Fill{.y = screen_, .value = 1}); }, 1);
}

Tensor Desk::tensor(DType t, Shape shape) {
  const Tensor x = arena.tensor(t, shape);
  if (t == DType::f32) {
    launch(stream, NormalFill{.y = x, .seed = 1, .stream = ++count_, .begin = 0, .std = 0.5});
  } else {
    const auto scope = arena.scope();
    const Tensor wide = arena.tensor(DType::f32, shape);
    launch(stream, NormalFill{.y = wide, .seed = 1, .stream = ++count_, .begin = 0, .std = 0.5});
    if (!is_8_bit(t)) {
      launch(stream, Copy{.y = x, .x = wide});
      return x;
    }
    const Tensor scale = arena.tensor(DType::f32, {2});
    launch(stream, Fill{.y = scale, .value = 4});
    launch(stream,
           CastToFp8{.y = x, .transposed = {}, .unscale = scale.flat(0, 1), .x = wide, .amax = scale.flat(1, 2)});
  }
  return x;
}

Tensor Desk::zeros(DType t, Shape shape) {
  const Tensor x = arena.tensor(t, shape);
  launch(stream, Fill{.y = x, .value = 0});
  return x;
}

Tensor Desk::tokens(int64_t n, int64_t V) {
  const Tensor x = arena.tensor(DType::i32, {n});
  stream.upload("tokens", {x}, [&](std::span<const Tensor> host) {
    std::mt19937 random(static_cast<uint32_t>(++count_));
    for (int64_t i = 0; i < n; i++)
      host[0].data<int32_t>()[i] = static_cast<int32_t>(random() % static_cast<uint32_t>(V));
  });
  return x;
}

double Desk::stretch(const std::function<void()>& work, int64_t fills) {
  if (world != World::cuda) {
    const double start = now();
    work();
    return now() - start;
  }
  for (int64_t i = 0; i < fills; i++) launch(stream, Fill{.y = screen_, .value = 1});
  device::record(begin_.get(), stream.queue().stream);
  work();
  device::record(end_.get(), stream.queue().stream);
  device::synchronize(stream.queue().stream);
  return device::seconds_between(begin_.get(), end_.get());
}

Timing Desk::time(const std::vector<std::function<void()>>& sets, double seconds) {
  const auto turns = static_cast<int64_t>(sets.size());
  const auto all = [&] {
    for (const auto& run : sets) run();
  };
  all();  // warms up
  stream.synchronize();
  const double start = now();
  all();
  const double by_host = now() - start;
  stream.synchronize();
  const double by_device = std::max(stretch(all, 4), 1e-7);

  // Measure several batches of a few milliseconds, as many as there is time for.
  int64_t rounds = 1, fills = 0;
  if (world == World::cuda) {
    rounds = std::clamp<int64_t>(std::llround(2e-3 / by_device), 1, 400 / turns + 1);
    fills = std::clamp<int64_t>(std::llround(1.5 * static_cast<double>(rounds) * by_host / fill_seconds_), 4, 100);
  }
  const double each = static_cast<double>(rounds) * by_device + static_cast<double>(fills) * fill_seconds_;
  const int64_t stretches = std::clamp<int64_t>(std::llround(seconds / each), 7, 1001);
  std::vector<double> times;
  for (int64_t i = 0; i < stretches; i++)
    times.push_back(stretch(
                        [&] {
                          for (int64_t k = 0; k < rounds; k++) all();
                        },
                        fills) /
                    static_cast<double>(rounds * turns));
  return {median(times), *std::min_element(times.begin(), times.end())};
}

}  // namespace megalith::bench
