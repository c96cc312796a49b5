// Muon's updates as the step makes them, against its rule in doubles, matrix by matrix.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "kernels/update/muon.h"
#include "tests/pure/small_run.h"
#include "trainer/layout/matrices.h"
#include "trainer/step/learning_rate.h"
#include "trainer/step/orthogonalize.h"

namespace megalith {
namespace {

using MatrixValues = std::vector<double>;

// Newton-Schulz's iteration on u (rows, columns), in doubles.
MatrixValues orthogonalized(MatrixValues u, int64_t rows, int64_t columns) {
  const auto at = [&](const MatrixValues& m, int64_t r, int64_t c, int64_t width) {
    return m[static_cast<size_t>(r * width + c)];
  };
  if (rows > columns) {
    MatrixValues turned(u.size());
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < columns; c++) turned[static_cast<size_t>(c * rows + r)] = at(u, r, c, columns);
    const MatrixValues x = orthogonalized(turned, columns, rows);
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < columns; c++) u[static_cast<size_t>(r * columns + c)] = at(x, c, r, rows);
    return u;
  }
  const auto times = [&](const MatrixValues& a, const MatrixValues& b, int64_t m, int64_t k, int64_t n,
                         bool transposed) {
    MatrixValues product(static_cast<size_t>(m * n));
    for (int64_t r = 0; r < m; r++)
      for (int64_t c = 0; c < n; c++)
        for (int64_t i = 0; i < k; i++)
          product[static_cast<size_t>(r * n + c)] += at(a, r, i, k) * (transposed ? at(b, c, i, k) : at(b, i, c, n));
    return product;
  };
  double sum = 0;
  for (const double v : u) sum += v * v;
  for (double& v : u) v /= std::max(std::sqrt(sum), 1e-7);
  for (int step = 0; step < 5; step++) {
    const MatrixValues a = times(u, u, rows, columns, rows, true), b = times(a, a, rows, rows, rows, false);
    MatrixValues polynomial(a.size());
    for (size_t i = 0; i < a.size(); i++) polynomial[i] = -4.7750 * a[i] + 2.0315 * b[i];
    const MatrixValues more = times(polynomial, u, rows, rows, columns, false);
    for (size_t i = 0; i < u.size(); i++) u[i] = 3.4445 * u[i] + more[i];
  }
  return u;
}

Config muon_config() {
  Config config = small_config();
  config.run.device = Device::cpu;
  config.precision.compute = ComputeType::fp32;
  config.optimizer.algorithm = Algorithm::muon;
  config.optimizer.muon_learning_rate = 2e-2;
  config.optimizer.weight_decay = 0.3;
  return config;
}

// Gradients that are a function of the step and of the element's place in the whole model, the same in every layout.
float place_gradient(uint64_t parameter, int64_t place, int64_t step) {
  const PhiloxBlock words = philox(7, parameter, static_cast<uint64_t>(place * 8 + step));
  return static_cast<float>(words[0]) * 0x1p-32f - 0.5f;
}
void set_place_gradients(SmallRun& run, int64_t step) {
  for (const Unit& unit : run.units()) {
    std::fill_n(unit.gradient().data<float>(), unit.gradient().numel(), 0.0f);
    for (const PlacedParam& param : unit.plan().params)
      for (const auto& [shard, local] : unit.shards_of(param, {0, unit.plan().numel}))
        for (int64_t i = 0; i < shard.numel(); i++)
          unit.gradient().data<float>()[local + i] =
              place_gradient(param.spec.id, place_in_whole(columns_of(shard), shard.elements.begin + i), step);
  }
}
void muon_step(SmallRun& run, int64_t step, double norm = 2) {
  double sums[] = {norm * norm, 1};
  run.update(step, {sums, DType::f64, {2}});
}

// Clipped, with momentum from update to update, decayed, at Muon's own rate; everything else as AdamW does it.
TEST(Muon, UpdatesWholeMatricesByItsRule) {
  for (const double offloaded : {0.0, 1.0}) {
    Config config = muon_config();
    config.memory.offload_optimizer = offloaded;
    SmallRun run(config);
    Config other = config;
    other.optimizer.algorithm = Algorithm::adamw;
    other.optimizer.muon_learning_rate = 0;
    SmallRun adamw(other);
    std::map<std::string, MatrixValues> momentum;
    for (int64_t s = 0; s < 4; s++) {
      std::vector<std::vector<float>> before;
      for (const Unit& unit : run.units()) before.push_back(values_of(unit.master()));
      for (SmallRun* r : {&run, &adamw}) {
        set_place_gradients(*r, s);
        muon_step(*r, s);
      }
      const double lr = learning_rate_at(muon_rates(config.optimizer), s);
      EXPECT_NE(lr, learning_rate_at(config.optimizer, s));
      for (size_t u = 0; u < run.units().size(); u++) {
        const Unit& unit = run.units()[u];
        const std::vector<float> after = values_of(unit.master()), as_adamw = values_of(adamw.units()[u].master());
        for (const Matrix& m : matrices_of(run.plan, u)) {
          const PlacedParam& param = unit.plan().params[m.param];
          MatrixValues& state = momentum[fmt::format("{} {}", param.spec.name, m.local.begin)];
          state.resize(static_cast<size_t>(m.local.size()));
          MatrixValues direction;
          for (int64_t i = m.local.begin; i < m.local.end; i++) {
            const double g = static_cast<double>(place_gradient(param.spec.id, i - param.offset, s)) / (2 + 1e-6);
            double& v = state[static_cast<size_t>(i - m.local.begin)];
            v = 0.95 * v + 0.05 * g;
            direction.push_back(0.05 * g + 0.95 * v);
          }
          direction = orthogonalized(direction, m.rows, m.columns);
          const double size = 0.2 * std::sqrt(static_cast<double>(std::max(m.rows, m.columns)));
          for (int64_t i = m.local.begin; i < m.local.end; i++) {
            const auto at = static_cast<size_t>(i);
            const double p = static_cast<double>(before[u][at]),
                         moved = p * (1 - lr * 0.3) - lr * size * direction[at - static_cast<size_t>(m.local.begin)];
            ASSERT_NEAR(static_cast<double>(after[at]), moved, 2e-5 * lr)
                << param.spec.name << " " << i << ", step " << s;
          }
        }
        for (auto i = static_cast<size_t>(unit.plan().matrices.end); i < after.size(); i++)
          ASSERT_EQ(after[i], as_adamw[i]) << unit.plan().name << " " << i;
      }
    }
  }
}

// Higher than wide, wider than high, and of several panels of the Gram matrix.
TEST(Muon, OrthogonalizesMatricesOfEveryShape) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{130, 150}, {150, 130}, {300, 17}, {128, 128}}) {
    Arena arena(World::cpu, "matrices", int64_t{1} << 20);
    Stream s(World::cpu, {});
    const Orthogonalizer orthogonalizer(arena, DType::f32, rows * columns, std::min(rows, columns));
    const Tensor x = orthogonalizer.input(rows, columns);
    for (int64_t i = 0; i < x.numel(); i++) x.data<float>()[i] = place_gradient(3, i, 0);
    const MatrixValues expected = orthogonalized({x.data<float>(), x.data<float>() + x.numel()}, rows, columns);
    const Tensor y = orthogonalizer.orthogonalize(s, rows, columns);
    for (int64_t i = 0; i < y.numel(); i++)
      ASSERT_NEAR(static_cast<double>(y.data<float>()[i]), expected[static_cast<size_t>(i)], 1e-5)
          << rows << " x " << columns << ", element " << i;
  }
}

TEST(Muon, OffloadAndAsynchronousCopiesChangeNoBit) {
  Config config = muon_config();
  SmallRun kept(config);
  config.memory.offload_optimizer = 1;
  SmallRun offloaded(config);
  for (int64_t s = 0; s < 3; s++)
    for (SmallRun* run : {&kept, &offloaded}) run->step(s);
  for (size_t u = 0; u < kept.units().size(); u++)
    EXPECT_EQ(values_of(kept.units()[u].master()), values_of(offloaded.units()[u].master()));
}

// A skipped step leaves momentum and weights as they are, and the next one is as if it had not been.
TEST(Muon, ASkippedStepLeavesNoTrace) {
  SmallRun run(muon_config()), never(muon_config());
  for (SmallRun* r : {&run, &never}) {
    set_place_gradients(*r, 0);
    muon_step(*r, 0);
  }
  set_place_gradients(run, 1);
  run.units()[1].gradient().data<float>()[3] = NAN;
  muon_step(run, 1, NAN);
  for (SmallRun* r : {&run, &never}) {
    set_place_gradients(*r, 2);
    muon_step(*r, 2);
  }
  for (size_t u = 0; u < run.units().size(); u++)
    EXPECT_EQ(values_of(run.units()[u].master()), values_of(never.units()[u].master()));
}

// State in bf16 is half as large, and one momentum takes the place of two moments.
TEST(Muon, KeepsOneMomentumOfMatrices) {
  Config config = muon_config();
  const auto bytes = [&] {
    const SmallRun run(config);
    return run.rehearsal.memory.at(MemoryClass::optimizer, MemoryPlace::device);
  };
  const int64_t muon = bytes();
  config.precision.moments = StorageType::bf16;
  EXPECT_LT(bytes(), muon * 3 / 5);
  config.precision.moments = StorageType::fp32;
  config.optimizer.algorithm = Algorithm::adamw;
  config.optimizer.muon_learning_rate = 0;
  SmallRun adamw(config);
  int64_t matrices = 0;
  for (const Unit& unit : adamw.units())
    if (unit.plan().is_layer) matrices += unit.plan().decayed;
  EXPECT_NEAR(static_cast<double>(bytes() - muon), static_cast<double>(4 * matrices), 256 * 8);
}

// Rounded at random, weights and momentum in bf16 follow those in fp32.
TEST(Muon, RoundedAtRandomFollowsFp32) {
  Config config = muon_config();
  SmallRun wide(config);
  config.precision.compute = ComputeType::bf16;
  config.precision.master = config.precision.moments = StorageType::bf16;
  config.precision.stochastic_rounding = true;
  SmallRun narrow(config);
  for (size_t u = 0; u < wide.units().size(); u++) {
    const std::vector<float> weights = values_of(narrow.units()[u].master());
    std::copy(weights.begin(), weights.end(), wide.units()[u].master().data<float>());
  }
  for (int64_t s = 0; s < 3; s++)
    for (SmallRun* run : {&wide, &narrow}) {
      set_place_gradients(*run, s);
      muon_step(*run, s);
    }
  for (size_t u = 0; u < wide.units().size(); u++) {
    const std::vector<float> a = values_of(wide.units()[u].master()), b = values_of(narrow.units()[u].master());
    double difference = 0, all = 0;
    for (size_t i = 0; i < a.size(); i++) {
      difference += std::pow(static_cast<double>(a[i] - b[i]), 2);
      all += std::pow(static_cast<double>(a[i]), 2);
    }
    EXPECT_LT(std::sqrt(difference / all), 2e-2) << wide.units()[u].plan().name;
  }
}

}  // namespace
}  // namespace megalith
