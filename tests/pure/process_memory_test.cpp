// These test what sums keep of memory, by the transfers of a step, and how the rest of a process is counted.
#include "trainer/step/process_memory.h"

#include <gtest/gtest.h>

namespace megalith {
namespace {

constexpr int64_t MiB = int64_t{1} << 20;

class SumsOf {
 public:
  SumsOf& begin(int32_t id, Transfer transfer, int64_t bytes, Channel channel = Channel::shard, int32_t peer = -1) {
    step_.push_back({.kind = TraceEvent::Kind::begin,
                     .transfer = transfer,
                     .channel = static_cast<int8_t>(channel),
                     .peer = peer,
                     .id = id,
                     .bytes = bytes});
    return *this;
  }
  SumsOf& wait(int32_t id) {
    step_.push_back({.kind = TraceEvent::Kind::wait, .id = id});
    return *this;
  }
  int64_t on(const MeshShape& mesh) const { return process_memory(mesh, 0, step_, 0, 1).sums; }

 private:
  std::vector<TraceEvent> step_;
};

TEST(ProcessMemory, SumsKeepWhatTheyTakeAtOnce) {
  const MeshShape four{.shard = 4};
  const Transfer scatter = Transfer::reduce_scatter, sum = Transfer::all_reduce;
  EXPECT_EQ(SumsOf().begin(0, scatter, 3 * MiB).wait(0).begin(1, scatter, 2 * MiB).wait(1).on(four), 3 * MiB)
      << "the second takes the piece of the first";
  EXPECT_EQ(SumsOf().begin(0, scatter, 3 * MiB).begin(1, scatter, 2 * MiB).wait(0).wait(1).on(four), 5 * MiB);
  EXPECT_EQ(SumsOf().begin(0, scatter, 2 * MiB).wait(0).begin(1, scatter, 3 * MiB).wait(1).on(four), 3 * MiB)
      << "the piece that is too small is given back";
  EXPECT_EQ(SumsOf().begin(0, sum, 2 * MiB).wait(0).on(four), 2 * MiB) << "each rank sums a part";
  EXPECT_EQ(SumsOf().begin(0, sum, 1000).wait(0).on(four), 4000) << "or all of what is small";
  EXPECT_EQ(SumsOf().begin(0, sum, 2 * MiB).wait(0).on({.shard = 2}), 4 * MiB) << "and of two ranks";
  for (const Transfer other : {Transfer::all_gather, Transfer::send, Transfer::broadcast, Transfer::all_to_all})
    EXPECT_EQ(SumsOf().begin(0, other, 2 * MiB).wait(0).on(four), 0);
  // Rank 0 is sent the first of the two parts of a scatter, by every rank.
  const Transfer part = Transfer::reduce_scatter_to;
  EXPECT_EQ(SumsOf()
                .begin(0, part, 2 * MiB, Channel::shard, 2)
                .begin(1, part, 2 * MiB, Channel::shard, 2)
                .wait(0)
                .wait(1)
                .on(four),
            4 * MiB);
  EXPECT_EQ(SumsOf().begin(0, Transfer::to_host, MiB, Channel::host).wait(0).on(four), 0);
}

TEST(ProcessMemory, ASaveTouchesNoMoreOfItsBuffersThanItWrites) {
  const auto of = [](int ranks, int64_t saved, int threads) {
    return process_memory({.shard = ranks}, 0, {}, saved, threads);
  };
  EXPECT_EQ(of(1, 0, 1).save, 0);
  EXPECT_EQ(of(1, 1, 1).save, 2 * MiB) << "a huge page";
  EXPECT_EQ(of(1, 5 * MiB, 1).save, 6 * MiB);
  EXPECT_EQ(of(1, 500 * MiB, 1).save, save_buffers);
  EXPECT_EQ(of(1, 0, 1).mpi, 0) << "a process alone";
  EXPECT_GT(of(8, 0, 1).mpi, of(2, 0, 1).mpi);
  EXPECT_GT(of(1, 0, 4).heap, of(1, 0, 1).heap);
  int64_t sum = 0;
  for (const auto& [name, bytes] : of(2, MiB, 1).parts()) sum += bytes;
  EXPECT_EQ(sum, of(2, MiB, 1).total());
}

}  // namespace
}  // namespace megalith
