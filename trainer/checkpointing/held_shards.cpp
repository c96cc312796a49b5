#include "trainer/checkpointing/held_shards.h"
#include "kernels/system/long_work.h"

#include <algorithm>
#include <vector>

namespace megalith {

std::vector<HeldShard> held_shards(const Unit& unit, const std::string& path, Tensor values, Interval within) {
  std::vector<HeldShard> held;
  const Interval owned = unit.plan().shard;
  const int64_t first = intersect(owned, within).begin - owned.begin;
  for (const PlacedParam& param : unit.plan().params)
    for (auto& [shard, local] : unit.shards_of(param, within)) {
      shard.name = path + shard.name;
      const Tensor data = values.flat(local - first, local - first + shard.numel());
      held.push_back({std::move(shard), data});
    }
  return held;
}

namespace {
void read_into(const Tensor& to, const TensorShard& wanted, TensorSource& source) {
  if (to.dtype() == DType::f32) return source.read(wanted, to.data<float>());
  std::vector<float> values(static_cast<size_t>(to.numel()));
  source.read(wanted, values.data());
  with_16_bits(to.dtype(), [&]<class T>(T) {
    std::transform(values.begin(), values.end(), to.data<T>(), [](float v) { return T(v); });
  });
}
}  // namespace

ShardToWrite shard_to_write(Stream& s, const HeldShard& held) {
  return {held.shard, held.data.dtype(), [&s, data = held.data](int64_t begin, int64_t end, const auto& use) {
            s.download("save", data.flat(begin, end), [&](Tensor host) { use(host.raw()); });
            s.synchronize();
          }};
}

ShardToWrite shard_to_write_on_host(const HeldShard& held) {
  return {held.shard, held.data.dtype(),
          [data = held.data](int64_t begin, int64_t end, const auto& use) { use(data.flat(begin, end).raw()); }};
}

namespace {
void read_shard(Stream& s, const HeldShard& held, TensorSource& source, LongWork& work) {
  constexpr int64_t part = int64_t{4} << 20;  // elements
  const int64_t numel = held.shard.numel();
  for (int64_t begin = 0; begin < numel; begin += part) {
    TensorShard wanted = held.shard;
    wanted.elements.begin += begin;
    wanted.elements.end = std::min(wanted.elements.begin + part, held.shard.elements.end);
    s.upload("load", {held.data.flat(begin, begin + wanted.numel())},
             [&](std::span<const Tensor> host) { read_into(host[0], wanted, source); });
    work.advance(wanted.numel());
  }
}
}  // namespace

void read_shards(Stream& s, const std::vector<HeldShard>& shards, TensorSource& source, const std::string& from) {
  int64_t elements = 0;
  for (const HeldShard& held : shards) elements += held.shard.numel();
  LongWork work("reading " + from, elements);
  for (const HeldShard& held : shards) read_shard(s, held, source, work);
}

}  // namespace megalith
