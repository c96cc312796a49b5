#include "trainer/layout/matrices.h"

#include <algorithm>
#include <numeric>

#include "kernels/elementwise/transpose.h"
#include "kernels/update/muon.h"

namespace megalith {

namespace {

// Assigns the matrices, whose products have this type, to the ranks of the shard and tensor axes. The first of them has
// the most work.
void deal_out(std::vector<Matrix>& matrices, DType type, int shards, int tensors) {
  const auto ranks = static_cast<size_t>(shards * tensors);
  std::vector<size_t> order(matrices.size()), owner(matrices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](size_t m) { return matrices[m].work(type); });
  std::vector<double> work(ranks, 0.0);
  for (const size_t m : order) {
    owner[m] = static_cast<size_t>(std::ranges::min_element(work) - work.begin());
    work[owner[m]] += matrices[m].work(type);
  }
  std::vector<size_t> by_work(ranks), place(ranks);
  std::iota(by_work.begin(), by_work.end(), size_t{0});
  std::ranges::stable_sort(by_work, std::greater{}, [&](size_t r) { return work[r]; });
  for (size_t i = 0; i < ranks; i++) place[by_work[i]] = i;
  for (size_t m = 0; m < matrices.size(); m++) {
    const auto at = static_cast<int>(place[owner[m]]);
    matrices[m].owner = at % shards;
    matrices[m].tensor_owner = at / shards;
  }
}

}  // namespace

double Matrix::work(DType type) const {
  const auto k = static_cast<double>(std::min(rows, columns)), n = static_cast<double>(std::max(rows, columns));
  const auto computed = static_cast<double>(panels_of(std::min(rows, columns), type).numel());
  return newton_schulz::steps * 2 * (computed * (n + k) + k * k * n);
}

Interval Matrix::in_shard(const UnitPlan& plan, int64_t shard) const {
  const int64_t each = plan.shard.size();
  return intersect(local, {shard * each, (shard + 1) * each});
}

std::vector<Matrix> matrices_of(const Plan& plan, size_t u) {
  const UnitPlan& unit = plan.units[u];
  const int64_t parts = plan.tensor.degree;
  std::vector<Matrix> all;
  for (size_t p = 0; p < unit.params.size(); p++) {
    const PlacedParam& param = unit.params[p];
    if (intersect(param.range(), unit.matrices).size() == 0) continue;
    const ParamSpec& spec = param.spec;
    CHECK(parts == 1 || spec.split != Split::none, "{}: Muon expects tensor parallelism to split every matrix",
          spec.name);
    int64_t begin = param.offset;
    const std::vector<RowGroup> groups =
        spec.row_groups.empty() ? std::vector<RowGroup>{{.rows = spec.shape[0]}} : spec.row_groups;
    for (const auto& [rows, block] : groups) {
      const int64_t holders = spec.row_groups.empty() ? 1 : std::max<int64_t>(1, parts / (rows / block));
      const int64_t numel = rows * spec.shape[1] / (parts / holders);
      all.push_back({.unit = u,
                     .param = p,
                     .rows = rows,
                     .columns = spec.shape[1],
                     .split = parts == 1 ? Split::none : spec.split,
                     .holders = holders,
                     .local = {begin, begin + numel}});
      begin += numel;
    }
  }
  std::ranges::sort(all, {}, [](const Matrix& m) { return m.local.begin; });
  return all;
}

std::vector<Round> rounds_of(const Plan& plan) {
  std::vector<size_t> units;
  for (size_t u = 0; u < plan.units.size(); u++)
    if (plan.units[u].matrices.size() > 0) units.push_back(u);
  const int64_t most = std::max(1, (plan.mesh.shard * plan.mesh.tensor + 1) / 2), all = std::ssize(units);
  const int64_t count = (all + most - 1) / most;
  std::vector<Round> rounds;
  for (int64_t r = 0; r < count; r++) {
    Round round;
    const Interval mine = part_of({0, all}, r, count);
    for (int64_t i = mine.begin; i < mine.end; i++) {
      round.units.push_back(units[static_cast<size_t>(i)]);
      for (Matrix& matrix : matrices_of(plan, round.units.back())) round.matrices.push_back(matrix);
    }
    deal_out(round.matrices, plan.direction, plan.mesh.shard, plan.mesh.tensor);
    rounds.push_back(std::move(round));
  }
  return rounds;
}

}  // namespace megalith
