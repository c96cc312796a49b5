// The matcher against planted faults, one at a time at a random place: every one is found, and none is invented.
#include "trainer/plan/matcher.h"

#include <map>
#include <random>

#include "tests/pure/small_run.h"
#include "tests/pure/testing.h"
#include "trainer/plan/dry_run.h"

namespace megalith {
namespace {

using Random = std::mt19937;
using Log = std::vector<TraceEvent>;

struct Job {
  MeshShape mesh;
  Traces logs;
};

// The step of 8 ranks: gathers and scatters over 4, sums over 2.
Job sharded_job() {
  Config config = small_config();
  config.parallel.sharded_data_parallel_degree = 4;
  config.batch.global_batch_size = 20;
  DryRun run = dry_run(config, 8);
  return {run.mesh, std::move(run.traces)};
}

// Messages down and up a pipeline of 4, microbatch by microbatch, with collectives in between: the model has no such
// stage yet, so the calls are made here, on the dry mesh.
Job pipeline_job() {
  Job job{.mesh = {.data = 2, .pipeline = 4}, .logs = {}};
  for (int rank = 0; rank < job.mesh.size(); rank++) {
    const Mesh mesh = Mesh::dry(job.mesh, rank);
    Communicator& line = mesh.channel(Channel::forward);
    Stream s(World::dry);
    s.trace().keep(TraceLevel::transfers);
    Arena arena(World::dry, "test", 0);
    const int at = line.rank(), last = line.size() - 1;
    for (int64_t k = 1; k <= 5; k++) {
      const Tensor x = arena.tensor(DType::f32, {10 * k});
      if (at > 0) line.recv(s, x, at - 1);
      if (at < last) line.send(s, x, at + 1);
      if (at < last) line.recv(s, x, at + 1);
      if (at > 0) line.send(s, x, at - 1);
      line.broadcast(s, x, static_cast<int>(k % 4));
      line.all_reduce(s, x, Reduce::sum);
      if (k % 2) line.barrier(s);
    }
    job.logs.push_back(s.trace().events());
  }
  return job;
}

bool is_message(const TraceEvent& r) { return r.transfer == Transfer::send || r.transfer == Transfer::recv; }

TraceEvent a_message(Transfer transfer, TraceEvent there) {
  there.transfer = transfer;
  there.peer = 1;
  there.bytes = 40;
  return there;
}

// A fault changes a log and returns true, or finds that this place has nothing for it to spoil.
using Fault = std::function<bool(Log&, size_t at, int size)>;

const std::map<std::string, Fault>& faults() {
  static const std::map<std::string, Fault> all = {
      {"a call is forgotten",
       [](Log& log, size_t at, int) {
         log.erase(log.begin() + static_cast<std::ptrdiff_t>(at));
         return true;
       }},
      {"a call is made twice",
       [](Log& log, size_t at, int) {
         log.insert(log.begin() + static_cast<std::ptrdiff_t>(at), log[at]);
         return true;
       }},
      {"two collectives change places",
       [](Log& log, size_t at, int) {
         for (size_t other = at + 1; other < log.size() && !is_message(log[at]); other++) {
           const TraceEvent &a = log[at], &b = log[other];
           if (is_message(b) || (a.transfer == b.transfer && a.bytes == b.bytes && a.peer == b.peer)) continue;
           std::swap(log[at], log[other]);
           return true;
         }
         return false;
       }},
      {"another size",
       [](Log& log, size_t at, int) {
         log[at].bytes += 4;
         return log[at].transfer != Transfer::barrier;
       }},
      {"another operation",
       [](Log& log, size_t at, int) {
         if (is_message(log[at])) return false;
         log[at].transfer = log[at].transfer == Transfer::all_gather ? Transfer::reduce_scatter : Transfer::all_gather;
         return true;
       }},
      {"the wrong peer",
       [](Log& log, size_t at, int size) {
         if (log[at].peer < 0) return false;
         log[at].peer = (log[at].peer + 1) % size;
         return true;
       }},
      {"a message that nobody sends",
       [](Log& log, size_t at, int) {
         log.insert(log.begin() + static_cast<std::ptrdiff_t>(at), a_message(Transfer::recv, log[at]));
         return true;
       }},
      {"a message that nobody reads",
       [](Log& log, size_t at, int) {
         log.insert(log.begin() + static_cast<std::ptrdiff_t>(at), a_message(Transfer::send, log[at]));
         return true;
       }},
      {"a rank stops early",
       [](Log& log, size_t at, int) {
         log.resize(at);
         return true;
       }},
  };
  return all;
}

class Matcher : public testing::TestWithParam<Job (*)()> {};
INSTANTIATE_TEST_SUITE_P(Job, Matcher, testing::Values(&sharded_job, &pipeline_job),
                         [](const auto& p) { return p.param == &sharded_job ? "sharded" : "pipeline"; });

TEST_P(Matcher, FindsNothingWhereNothingIsWrong) {
  const Job job = GetParam()();
  EXPECT_EQ(match(job.mesh, job.logs), std::vector<std::string>{});
}

TEST_P(Matcher, FindsEveryPlantedFault) {
  const Job job = GetParam()();
  Random random(11);
  std::map<std::string, int> planted;
  for (int round = 0; round < 300; round++)
    for (const auto& [what, fault] : faults()) {
      Traces logs = job.logs;
      const size_t rank = random() % logs.size(), channel = random() % num_channels;
      Log log = transfers_on(logs[rank], static_cast<int>(channel));
      const int size = job.mesh.place(0, all_channels[channel]).size;
      if (size == 1 || log.empty()) continue;
      const size_t at = random() % log.size();
      if (!fault(log, at, size)) continue;
      planted[what]++;
      std::erase_if(logs[rank], [&](const TraceEvent& e) { return e.channel == static_cast<int>(channel); });
      logs[rank].insert(logs[rank].end(), log.begin(), log.end());
      EXPECT_FALSE(match(job.mesh, logs).empty())
          << what << ": rank " << rank << ", " << name_of(all_channels[channel]) << ", call " << at;
    }
  for (const auto& [what, fault] : faults())
    if (what != "the wrong peer" || GetParam() == &pipeline_job) {
      EXPECT_GT(planted[what], 10) << what << " was hardly ever planted";
    }
}

TEST(Matcher, SaysWhereAndWhat) {
  const auto begin = [](Transfer transfer, int64_t bytes) {
    const auto channel = static_cast<int8_t>(Channel::shard);
    return TraceEvent{.kind = TraceEvent::Kind::begin, .transfer = transfer, .channel = channel, .bytes = bytes};
  };
  const Log good = {begin(Transfer::all_gather, 64), begin(Transfer::all_reduce, 24)};
  const MeshShape mesh{.shard = 2};
  const auto logs_with = [&](const Log& second) {
    Traces logs(2);
    logs[0] = good;
    logs[1] = second;
    return logs;
  };
  EXPECT_TRUE(match(mesh, logs_with(good)).empty());
  const std::vector<std::string> shorter = match(mesh, logs_with({good[0]}));
  ASSERT_EQ(shorter.size(), 1u);
  EXPECT_EQ(shorter[0],
            "shard, group of rank 0: member 0 waits at its call 1: all_reduce of 24 bytes; member 1 is done");
  const std::vector<std::string> other = match(mesh, logs_with({good[1], good[0]}));
  ASSERT_FALSE(other.empty());
  EXPECT_EQ(other[0],
            "shard, group of rank 0: at call 0 member 0 makes all_gather of 64 bytes, at call 0 member 1 makes "
            "all_reduce of 24 bytes");
  EXPECT_NE(message_of([&] { match(mesh, Traces(3)); }).find("3 traces for a mesh of 2"), std::string::npos);
}

}  // namespace
}  // namespace megalith
