#include "trainer/step/rank_stats.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace megalith {

namespace {

// The flags are stored in the tensor as numbers below 2^53, whose sum is exact.
struct Flags {
  double stop, save, save_phases;
};
constexpr int64_t numbers_of_flags = sizeof(Flags) / sizeof(double);
constexpr int64_t numbers_of_stats = sizeof(HostStats) / sizeof(double);
static_assert(std::is_trivially_copyable_v<HostStats> && sizeof(HostStats) == numbers_of_stats * sizeof(double));

}  // namespace

RankStats::RankStats(int rank, int ranks, Memory& memory)
    : rank_(rank),
      record_(memory[MemoryClass::gradients].tensor(DType::f64, {numbers_of_flags + ranks * numbers_of_stats})) {}

void RankStats::write(Stream& s, const Source& source) {
  s.upload("write_rank_stats", {record_}, [&](std::span<const Tensor> host) {
    double* all = host[0].data<double>();
    std::fill_n(all, host[0].numel(), 0);
    const RankRecord mine = source ? source() : RankRecord{};
    const Flags flags{.stop = static_cast<double>(mine.flags.stop),
                      .save = static_cast<double>(mine.flags.save),
                      .save_phases = static_cast<double>(mine.flags.save_phases)};
    std::memcpy(all, &flags, sizeof flags);
    std::memcpy(all + numbers_of_flags + rank_ * numbers_of_stats, &mine.stats, sizeof mine.stats);
  });
}

Pending RankStats::exchange(Stream& s, Communicator& world) { return world.all_reduce(s, record_, Reduce::sum); }

Stream::Ticket RankStats::read(Stream& s, RankRecords* out) const {
  return s.download("read_rank_stats", record_, [out](Tensor host) {
    const double* all = host.data<double>();
    Flags flags{};
    std::memcpy(&flags, all, sizeof flags);
    out->stop = static_cast<int64_t>(flags.stop);
    out->save = static_cast<int64_t>(flags.save);
    out->save_phases = static_cast<int64_t>(flags.save_phases);
    out->stats.resize(static_cast<size_t>((host.numel() - numbers_of_flags) / numbers_of_stats));
    std::memcpy(static_cast<void*>(out->stats.data()), all + numbers_of_flags, out->stats.size() * sizeof(HostStats));
  });
}

}  // namespace megalith
