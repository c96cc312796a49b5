// The matcher against planted faults, one at a time at a random place of real traces: every one is found, and none is
// invented.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/long_tests.h"
#include "tests/pure/matcher_twin.h"
#include "tests/pure/small_run.h"
#include "trainer/planner/dry_run.h"

namespace megalith {
namespace {

using Random = std::mt19937;
using Events = std::vector<TraceEvent>;
using Kind = TraceEvent::Kind;

Job job_of(const Config& config, int ranks) {
  DryRun run = dry_run(config, ranks);
  return {run.mesh, std::move(run.traces)};
}

// Two microbatches of 8 layers a rank, whatever the layout.
Config eight_layers() {
  Config config = small_config();
  config.model = {.layers = 8, .hidden = 12, .heads = 6, .vocab = 31, .context = 12, .dropout = 0};
  config.batch = {.sequence_length = 12, .global_batch_size = 16, .microbatch_size = 1};
  return config;
}

Job sharded() {
  Config config = eight_layers();
  config.parallel.sharded_data_parallel_degree = 4;
  return job_of(config, 8);
}

Job two_levels() {
  Config config = eight_layers();
  config.parallel.hierarchical_allgather = true;
  config.parallel.ranks_per_node = 4;
  return job_of(config, 8);
}

Job pipeline() {
  Config config = eight_layers();
  config.parallel.pipeline_parallel_degree = 4;
  config.parallel.virtual_stages = 2;
  return job_of(config, 8);
}

Job composed() {
  Config config = eight_layers();
  config.parallel.tensor_parallel_degree = 2;
  config.parallel.sequence_parallel = true;
  config.parallel.pipeline_parallel_degree = 2;
  return job_of(config, 8);
}

// Messages and collectives on one channel, of other sizes each time and under way together.
Job by_hand() {
  Job job{.mesh = {.data = 2, .pipeline = 4}, .traces = {}};
  for (int rank = 0; rank < job.mesh.size(); rank++) {
    const Mesh mesh = Mesh::dry(job.mesh, rank);
    Communicator &line = mesh.channel(Channel::forward), &world = mesh.channel(Channel::world);
    Stream s(World::dry);
    s.trace().keep(TraceLevel::transfers);
    Arena arena(World::dry, "test", 0);
    const int at = line.rank(), last = line.size() - 1;
    for (int64_t k = 1; k <= 5; k++) {
      const Tensor x = arena.tensor(DType::f32, {10 * k});
      const Pending everybody = world.all_reduce(s, x, Reduce::sum);
      Pending down, up;
      if (at > 0) down = line.recv(s, x, at - 1);
      if (at < last) up = line.recv(s, x, at + 1);
      down.wait();
      if (at < last) down = line.send(s, x, at + 1);
      up.wait();
      if (at > 0) up = line.send(s, x, at - 1);
      line.broadcast(s, x, static_cast<int>(k % 4)).wait();
      if (k % 2) line.barrier(s);
    }
    job.traces.push_back(s.trace().events());
  }
  return job;
}

size_t wait_of(const Events& events, size_t begin) {
  for (size_t i = begin; i < events.size(); i++)
    if (events[i].kind == Kind::wait && events[i].id == events[begin].id) return i;
  return events.size();
}

void move(Events& events, size_t from, size_t to) {
  const TraceEvent e = events[from];
  events.erase(events.begin() + static_cast<std::ptrdiff_t>(from));
  events.insert(events.begin() + static_cast<std::ptrdiff_t>(to), e);
}

void insert(Events& events, size_t at, TraceEvent e) {
  e.id = 1'000'000;
  events.insert(events.begin() + static_cast<std::ptrdiff_t>(at), e);
}

// A change of a trace at the transfer that begins at `at`, in a group of `size`; false where there is nothing to spoil.
using Change = std::function<bool(Events&, size_t at, int size, Random&)>;

// Each of these is a fault wherever it is planted.
const std::map<std::string, Change>& faults() {
  const auto add_message = [](Transfer transfer) {
    return [=](Events& events, size_t at, int size, Random&) {
      TraceEvent e = events[at];
      e.transfer = transfer;
      e.peer = 1 % size;
      e.bytes = 40;
      insert(events, at, e);
      return true;
    };
  };
  static const std::map<std::string, Change> all = {
      {"a call is forgotten",
       [](Events& events, size_t at, int, Random&) {
         const int32_t id = events[at].id;
         std::erase_if(events, [id](const TraceEvent& e) { return e.id == id; });
         return true;
       }},
      {"a call is made twice",
       [](Events& events, size_t at, int, Random&) {
         insert(events, at, events[at]);
         return true;
       }},
      {"two calls of a channel change places",
       [](Events& events, size_t at, int, Random&) {
         for (size_t other = at + 1; other < events.size(); other++) {
           TraceEvent &a = events[at], &b = events[other];
           if (b.kind != Kind::begin || a.channel != b.channel || same_call(a, b)) continue;
           if (is_message(a) ? a.transfer != b.transfer || a.peer != b.peer : is_message(b)) continue;
           std::swap(a.transfer, b.transfer);
           std::swap(a.bytes, b.bytes);
           std::swap(a.peer, b.peer);
           return true;
         }
         return false;
       }},
      {"another size",
       [](Events& events, size_t at, int, Random&) {
         events[at].bytes += 4;
         return true;
       }},
      {"another operation",
       [](Events& events, size_t at, int, Random&) {
         if (is_message(events[at])) return false;
         Transfer& t = events[at].transfer;
         t = t == Transfer::all_gather ? Transfer::reduce_scatter : Transfer::all_gather;
         return true;
       }},
      {"the wrong peer",
       [](Events& events, size_t at, int size, Random&) {
         if (events[at].peer < 0) return false;
         events[at].peer = (events[at].peer + 1) % size;
         return true;
       }},
      {"a message that nobody sends", add_message(Transfer::recv)},
      {"a message that nobody reads", add_message(Transfer::send)},
      {"a rank stops early",
       [](Events& events, size_t at, int, Random&) {
         events.resize(at);
         return true;
       }},
  };
  return all;
}

// These are faults only where somebody depends on the order.
const std::map<std::string, Change>& reorderings() {
  static const std::map<std::string, Change> all = {
      {"a wait comes earlier",
       [](Events& events, size_t at, int, Random& random) {
         const size_t wait = wait_of(events, at);
         if (wait == events.size() || wait == at + 1) return false;
         move(events, wait, at + 1 + random() % (wait - at - 1));
         return true;
       }},
      {"a transfer begins later",
       [](Events& events, size_t at, int, Random& random) {
         const size_t wait = wait_of(events, at);
         if (wait <= at + 1) return false;
         move(events, at, at + random() % (wait - at));
         return true;
       }},
      {"a transfer begins earlier",
       [](Events& events, size_t at, int, Random& random) {
         if (at == 0) return false;
         move(events, at, at - 1 - random() % std::min<size_t>(at, 8));
         return true;
       }},
      {"a transfer goes elsewhere whole",
       [](Events& events, size_t at, int, Random& random) {
         const size_t wait = wait_of(events, at);
         if (wait == events.size()) return false;
         const size_t to = random() % (events.size() - 1);
         move(events, wait, events.size() - 1);
         move(events, at, to);
         move(events, events.size() - 1, to + 1);
         return true;
       }},
  };
  return all;
}

const std::map<std::string, Job (*)()> jobs = {{"sharded", sharded},
                                               {"two_levels", two_levels},
                                               {"pipeline", pipeline},
                                               {"composed", composed},
                                               {"by_hand", by_hand}};
class Matcher : public testing::TestWithParam<std::pair<const std::string, Job (*)()>> {
 protected:
  const Job job_ = GetParam().second();
  Random random_{11};

  // Plants the change at a random transfer of a random channel of several ranks and tells where; empty where there is
  // nothing to spoil.
  std::string plant(Job& job, const Change& change) {
    const size_t rank = random_() % job.traces.size();
    std::vector<Channel> several;
    for (const Channel channel : all_channels)
      if (job.mesh.position(0, channel).size > 1) several.push_back(channel);
    const Channel channel = several[random_() % several.size()];
    Events& events = job.traces[rank];
    const Events there = transfers_on(events, static_cast<int>(channel));
    if (there.empty()) return "";
    const auto at =
        static_cast<size_t>(std::find(events.begin(), events.end(), there[random_() % there.size()]) - events.begin());
    if (!change(events, at, job.mesh.position(0, channel).size, random_)) return "";
    return fmt::format("{}, {}, event {}", job.mesh.describe(static_cast<int>(rank)), name_of(channel), at);
  }
};
INSTANTIATE_TEST_SUITE_P(Job, Matcher, testing::ValuesIn(jobs), [](const auto& p) { return p.param.first; });

TEST_P(Matcher, FindsNothingWhereNothingIsWrong) {
  EXPECT_EQ(match(job_.mesh, job_.traces), std::vector<std::string>{});
  EXPECT_TRUE(drains(job_));
  for (const Events& events : job_.traces) EXPECT_GT(events.size(), 30u);
}

TEST_P(Matcher, FindsEveryPlantedFault) {
  const int64_t rounds = taken("Matcher.FindsEveryPlantedFault");
  std::map<std::string, int> planted;
  for (int64_t round = 0; round < rounds; round++)
    for (const auto& [what, fault] : faults()) {
      Job job = job_;
      const std::string where = plant(job, fault);
      if (where.empty()) continue;
      planted[what]++;
      EXPECT_FALSE(match(job.mesh, job.traces).empty()) << what << ": " << where;
      EXPECT_FALSE(drains(job)) << what << ": " << where;
    }
  const bool messages = GetParam().first != "sharded" && GetParam().first != "two_levels";
  for (const auto& [what, fault] : faults()) {
    if (what == "the wrong peer" && !messages) continue;
    EXPECT_GT(planted[what], rounds / 25) << what << " was hardly ever planted";
  }
}

// What depends on the order of events, and what does not, both ways.
TEST_P(Matcher, FindsTheReorderingsThatDeadlockAndNoOthers) {
  const int64_t rounds = taken("Matcher.FindsTheReorderingsThatDeadlockAndNoOthers");
  int harmless = 0, harmful = 0;
  for (int64_t round = 0; round < rounds; round++)
    for (const auto& [what, change] : reorderings()) {
      Job job = job_;
      const std::string where = plant(job, change);
      if (where.empty()) continue;
      const bool fine = drains(job);
      (fine ? harmless : harmful)++;
      EXPECT_EQ(match(job.mesh, job.traces).empty(), fine) << what << ": " << where;
    }
  EXPECT_GT(harmless, rounds / 10);
  EXPECT_GT(harmful, rounds / 10);
}

}  // namespace
}  // namespace megalith
