#include "trainer/verify/difference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "configs/adapter.h"
#include "kernels/system/check.h"
#include "trainer/model/model.h"

namespace megalith {

namespace {

// Frozen weights have no gradients.
std::vector<ComparedTensor> parameters(const Config& config, const std::string& prefix, TensorKind kind) {
  std::vector<ComparedTensor> all;
  for (const UnitSpec& unit : model_spec(config.model))
    for (const ParamSpec& param : unit.params)
      if (kind != TensorKind::gradient || is_trained(config.model, param.name))
        all.push_back({prefix + param.name, param.shape.dims(), kind, true, param.id});
  return all;
}

}  // namespace

std::vector<ComparedTensor> tensors_before(const Config& config) {
  return parameters(config, "", TensorKind::initial_weight);
}

std::vector<ComparedTensor> tensors_of_step(const Config& config) {
  const int64_t rows = config.batch.global_batch_size * config.batch.sequence_length, L = config.model.layers;
  std::vector<ComparedTensor> all;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, TensorKind kind) {
    all.push_back({name, std::move(shape), kind, false, all.size()});
  };
  const std::vector<int64_t> residual{rows, config.model.hidden};
  add("embedding", residual, TensorKind::activation);
  for (int64_t i = 0; i < L; i++) add(fmt::format("h.{}", i), residual, TensorKind::activation);
  add("loss", {rows, 1}, TensorKind::loss);
  add("mean loss", {1}, TensorKind::loss);
  for (int64_t i = L; i-- > 0;) add(fmt::format("d h.{}", i), residual, TensorKind::gradient);
  add("d embedding", residual, TensorKind::gradient);
  std::vector<ComparedTensor> gradients = parameters(config, "d ", TensorKind::gradient);
  all.insert(all.end(), gradients.rbegin(), gradients.rend());
  add("gradient norm", {1}, TensorKind::gradient);
  const std::vector<ComparedTensor> weights = parameters(config, "", TensorKind::weight);
  all.insert(all.end(), weights.begin(), weights.end());
  return all;
}

double tolerance_of(TensorKind kind, ComputeType type, bool fp8) {
  const bool fp32 = type == ComputeType::fp32;
  const double unit = type == ComputeType::fp16 ? 0x1p-10 : 0x1p-7;
  switch (kind) {
    case TensorKind::initial_weight: return 0;
    case TensorKind::activation: return fp32 ? 1e-5 : 8 * unit;
    case TensorKind::loss: return fp32 ? 1e-5 : unit;
    case TensorKind::gradient: return fp8 ? 0x1p-2 : fp32 ? 1e-4 : 16 * unit;
    case TensorKind::weight: return fp32 ? 1e-3 : 1e-3 + unit;
  }
  FAIL("a tensor of kind {}", static_cast<int>(kind));
}

WholeTensor::WholeTensor(std::string name, std::vector<int64_t> shape)
    : whole_(whole_tensor(std::move(name), std::move(shape))),
      values_(static_cast<size_t>(whole_.numel())),
      holder_(values_.size(), -1) {}

void WholeTensor::add(int rank, std::span<const TensorShard> shards, std::span<const float> values) {
  for (const TensorShard& shard : shards) {
    CHECK(static_cast<size_t>(shard.numel()) <= values.size(), "{}: {} values came with it", describe(shard),
          values.size());
    for (const CopyRun& run : copy_runs(shard, whole_))
      for (int64_t i = 0; i < run.length; i++) {
        const auto at = static_cast<size_t>(run.destination + i);
        const float value = values[static_cast<size_t>(run.source + i)];
        if (holder_[at] < 0) {
          holder_[at] = rank;
          values_[at] = value;
        } else if (disagreement_.empty() && std::bit_cast<uint32_t>(value) != std::bit_cast<uint32_t>(values_[at])) {
          disagreement_ =
              fmt::format("{} is {} on rank {} and {} on rank {}", describe_place(whole_.shape, run.destination + i),
                          values_[at], holder_[at], value, rank);
        }
      }
    values = values.subspan(static_cast<size_t>(shard.numel()));
  }
  CHECK(values.empty(), "{}: {} values of rank {} are in no shard", whole_.name, values.size(), rank);
}

void WholeTensor::append_shard(std::vector<float>& values, const TensorShard& shard) const {
  const size_t begin = values.size();
  values.resize(begin + static_cast<size_t>(shard.numel()));
  for (const CopyRun& run : copy_runs(whole_, shard))
    std::copy_n(values_.begin() + run.source, run.length,
                values.begin() + static_cast<std::ptrdiff_t>(begin) + run.destination);
}

std::string WholeTensor::fault() const {
  const auto missing = std::find(holder_.begin(), holder_.end(), -1);
  if (missing != holder_.end())
    return fmt::format("{} is on no rank, and {} elements in all",
                       describe_place(whole_.shape, missing - holder_.begin()), std::count(missing, holder_.end(), -1));
  return disagreement_;
}

void UncertainUpdate::add(std::span<const float> gradient, double tolerance, double rate) {
  largest_.resize(gradient.size());
  allowance_.resize(gradient.size());
  float scale = 0;
  for (float g : gradient) scale = std::max(scale, std::abs(g));
  uncertainty_ = std::max(uncertainty_, tolerance * scale);
  for (size_t i = 0; i < gradient.size(); i++) {
    largest_[i] = std::max(largest_[i], std::abs(gradient[i]));
    // A gradient that is 0 everywhere is certain.
    const double share = uncertainty_ == 0 ? 0 : uncertainty_ < 2.0 * largest_[i] ? uncertainty_ / largest_[i] : 2;
    allowance_[i] = static_cast<float>(rate * share);
  }
}

Difference largest_difference(std::span<const float> a, std::span<const float> b, double tolerance,
                              std::span<const float> allowance) {
  CHECK(a.size() == b.size() && (allowance.empty() || allowance.size() == a.size()),
        "tensors of {} and {} elements, allowances for {}", a.size(), b.size(), allowance.size());
  constexpr double infinity = std::numeric_limits<double>::infinity();
  double scale = 0;
  for (float v : a)
    if (std::isfinite(v)) scale = std::max(scale, std::abs(double{v}));
  const auto relative = [&](double v) { return v == 0 ? 0 : scale > 0 ? v / scale : infinity; };

  Difference worst{.tolerance = tolerance};
  double largest = 0;
  for (size_t i = 0; i < a.size(); i++) {
    const double distance = std::abs(double{a[i]} - double{b[i]});
    if (distance == 0) continue;
    const double allowed = tolerance * scale + (allowance.empty() ? 0 : allowance[i]);
    const bool finite = std::isfinite(a[i]) && std::isfinite(b[i]);
    const double part = finite && allowed > 0 ? distance / allowed : infinity;
    if (part < worst.part || (part == worst.part && (!finite || distance <= largest))) continue;
    largest = distance;
    worst = {static_cast<int64_t>(i),
             a[i],
             b[i],
             relative(distance),
             allowance.empty() ? tolerance : relative(allowed),
             part};
    if (!finite) break;
  }
  return worst;
}

std::string describe_place(const std::vector<int64_t>& shape, int64_t at) {
  if (shape.size() < 2) return fmt::format("element {}", at);
  if (shape.back() == 1) return fmt::format("row {}", at);
  return fmt::format("row {}, column {}", at / shape.back(), at % shape.back());
}

}  // namespace megalith
