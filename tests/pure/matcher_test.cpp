// The matcher against planted faults, one at a time at a random place of real traces: every one is found, and none is
// invented.
#include "trainer/plan/matcher.h"

#include <map>
#include <random>

#include "tests/pure/small_run.h"
#include "tests/pure/testing.h"
#include "trainer/plan/dry_run.h"

namespace megalith {
namespace {

using Random = std::mt19937;
using Events = std::vector<TraceEvent>;
using Kind = TraceEvent::Kind;

struct Job {
  MeshShape mesh;
  Traces traces;
};

Job job_of(const Config& config, int ranks) {
  DryRun run = dry_run(config, ranks);
  return {run.mesh, std::move(run.traces)};
}

// Two microbatches of 8 layers a rank, whatever the layout.
Config model() {
  Config config = small_config();
  config.model = {.layers = 8, .hidden = 12, .heads = 6, .vocab = 31, .context = 12, .dropout = 0};
  config.batch = {.sequence_length = 12, .global_batch_size = 16, .microbatch_size = 1};
  return config;
}

Job sharded() {
  Config config = model();
  config.parallel.sharded_data_parallel_degree = 4;
  return job_of(config, 8);
}

Job two_levels() {
  Config config = model();
  config.parallel.hierarchical_allgather = true;
  config.parallel.ranks_per_node = 4;
  return job_of(config, 8);
}

Job pipeline() {
  Config config = model();
  config.parallel.pipeline_parallel_degree = 4;
  config.parallel.virtual_stages = 2;
  return job_of(config, 8);
}

Job composed() {
  Config config = model();
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

bool is_message(const TraceEvent& e) { return e.transfer == Transfer::send || e.transfer == Transfer::recv; }
bool same_call(const TraceEvent& a, const TraceEvent& b) {
  return a.transfer == b.transfer && a.bytes == b.bytes && a.peer == b.peer;
}

// The same question answered in another way. Ranks wait in vain exactly if "comes before" runs in a circle: each event
// before the next one of its rank, and the begin of every partner before a wait.
bool drains(const Job& job) {
  struct At {
    size_t rank, event;
  };
  std::map<std::array<int, 3>, std::vector<At>> collectives;            // channel, group, index
  std::map<std::array<int, 4>, std::array<std::vector<At>, 2>> routes;  // channel, group, from, to
  std::vector<std::map<int32_t, std::vector<At>>> partners(job.traces.size());
  std::vector<size_t> first;
  size_t total = 0;
  for (size_t rank = 0; rank < job.traces.size(); rank++) {
    first.push_back(total);
    total += job.traces[rank].size();
    for (size_t i = 0; i < job.traces[rank].size(); i++) {
      const TraceEvent& e = job.traces[rank][i];
      if (e.kind != Kind::begin) continue;
      const auto place = job.mesh.place(static_cast<int>(rank), static_cast<Channel>(e.channel));
      if (!is_message(e)) collectives[{e.channel, place.group, place.index}].push_back({rank, i});
      const bool sends = e.transfer == Transfer::send;
      const int from = sends ? place.index : e.peer, to = sends ? e.peer : place.index;
      if (is_message(e)) routes[{e.channel, place.group, from, to}][sends].push_back({rank, i});
    }
  }
  const auto event = [&](At at) -> const TraceEvent& { return job.traces[at.rank][at.event]; };
  const auto meet = [&](At a, At b) { partners[a.rank][event(a).id].push_back(b); };
  for (const auto& [key, mine] : collectives) {
    const int size = job.mesh.place(static_cast<int>(mine.front().rank), static_cast<Channel>(key[0])).size;
    for (int other = 0; other < size; other++) {
      const std::vector<At>& theirs = collectives[{key[0], key[1], other}];
      if (theirs.size() != mine.size()) return false;
      for (size_t n = 0; n < mine.size(); n++) {
        if (!same_call(event(mine[n]), event(theirs[n]))) return false;
        meet(mine[n], theirs[n]);
      }
    }
  }
  for (const auto& [key, ends] : routes) {
    if (ends[0].size() != ends[1].size()) return false;
    for (size_t n = 0; n < ends[0].size(); n++) {
      if (event(ends[0][n]).bytes != event(ends[1][n]).bytes) return false;
      meet(ends[0][n], ends[1][n]);
      meet(ends[1][n], ends[0][n]);
    }
  }
  std::vector<std::vector<size_t>> later(total);
  std::vector<int> earlier(total, 0);
  const auto before = [&](size_t a, size_t b) {
    later[a].push_back(b);
    earlier[b]++;
  };
  for (size_t rank = 0; rank < job.traces.size(); rank++)
    for (size_t i = 0; i < job.traces[rank].size(); i++) {
      if (i > 0) before(first[rank] + i - 1, first[rank] + i);
      if (job.traces[rank][i].kind == Kind::wait)
        for (At p : partners[rank][job.traces[rank][i].id]) before(first[p.rank] + p.event, first[rank] + i);
    }
  std::vector<size_t> free;
  for (size_t node = 0; node < total; node++)
    if (earlier[node] == 0) free.push_back(node);
  size_t seen = 0;
  for (; !free.empty(); seen++) {
    const size_t node = free.back();
    free.pop_back();
    for (size_t next : later[node])
      if (--earlier[next] == 0) free.push_back(next);
  }
  return seen == total;
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

  // Plants the change at a random transfer of a random channel and tells where; empty where there is nothing to spoil.
  std::string plant(Job& job, const Change& change) {
    const size_t rank = random_() % job.traces.size();
    const Channel channel = all_channels[random_() % num_channels];
    Events& events = job.traces[rank];
    const Events there = transfers_on(events, static_cast<int>(channel));
    if (there.empty()) return "";
    const auto at =
        static_cast<size_t>(std::find(events.begin(), events.end(), there[random_() % there.size()]) - events.begin());
    if (!change(events, at, job.mesh.place(0, channel).size, random_)) return "";
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
  std::map<std::string, int> planted;
  for (int round = 0; round < 100; round++)
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
    EXPECT_GT(planted[what], 4) << what << " was hardly ever planted";
  }
}

// What depends on the order of events, and what does not, both ways.
TEST_P(Matcher, FindsTheReorderingsThatDeadlockAndNoOthers) {
  int harmless = 0, harmful = 0;
  for (int round = 0; round < 200; round++)
    for (const auto& [what, change] : reorderings()) {
      Job job = job_;
      const std::string where = plant(job, change);
      if (where.empty()) continue;
      const bool fine = drains(job);
      (fine ? harmless : harmful)++;
      EXPECT_EQ(match(job.mesh, job.traces).empty(), fine) << what << ": " << where;
    }
  EXPECT_GT(harmless, 20);
  EXPECT_GT(harmful, 20);
}

// Two ranks that share the channels shard and world.
class TwoRanks : public testing::Test {
 protected:
  struct Call {
    Channel channel;
    Transfer transfer;
    int64_t bytes;
    int32_t peer = -1;
    bool wait = true;
  };
  static std::vector<std::string> match(const std::vector<Call>& first, const std::vector<Call>& second) {
    Traces traces;
    for (const auto& calls : {first, second}) {
      Trace trace;
      trace.keep(TraceLevel::transfers);
      std::vector<int64_t> open;
      for (const Call& c : calls) {
        const int64_t ticket = trace.begin(static_cast<int>(c.channel), c.transfer, c.peer, c.bytes);
        if (c.wait)
          trace.wait(ticket);
        else
          open.push_back(ticket);
      }
      for (int64_t ticket : open) trace.wait(ticket);
      traces.push_back(trace.events());
    }
    return megalith::match({.shard = 2}, traces);
  }
  const Call gather{Channel::shard, Transfer::all_gather, 64}, sum{Channel::world, Transfer::all_reduce, 24};
};

TEST_F(TwoRanks, CirclesAcrossChannelsAreFound) {
  EXPECT_TRUE(match({gather, sum}, {gather, sum}).empty());
  const std::vector<std::string> faults = match({gather, sum}, {sum, gather});
  ASSERT_EQ(faults.size(), 3u);
  EXPECT_EQ(faults[0], "ranks wait for one another: rank 0 (shard 0) for rank 1 (shard 1), that for rank 0 (shard 0)");
  EXPECT_EQ(faults[1],
            "shard, group of rank 0: all_gather of 64 bytes that rank 0 (shard 0) began at event 0 is waited for at "
            "event 1, but rank 1 (shard 1) has not begun it at event 1");
  Call early = sum;
  early.wait = false;
  EXPECT_TRUE(match({gather, sum}, {early, gather}).empty()) << "beginning blocks nobody";
}

TEST_F(TwoRanks, SendsAreNotBuffered) {
  const auto message = [](Transfer transfer, int32_t peer, bool wait) {
    return Call{Channel::shard, transfer, 8, peer, wait};
  };
  using enum Transfer;
  EXPECT_FALSE(match({message(send, 1, true), message(recv, 1, true)},  //
                     {message(send, 0, true), message(recv, 0, true)})
                   .empty());
  EXPECT_TRUE(match({message(send, 1, false), message(recv, 1, true)},  //
                    {message(send, 0, false), message(recv, 0, true)})
                  .empty());
  EXPECT_TRUE(match({message(send, 1, true), message(recv, 1, true)},  //
                    {message(recv, 0, true), message(send, 0, true)})
                  .empty());
}

TEST_F(TwoRanks, FaultsSayWhoAndWhere) {
  Traces left(2);
  left[0] = {{.kind = Kind::begin, .transfer = Transfer::send, .channel = 1, .peer = 1, .id = 0, .bytes = 40}};
  EXPECT_EQ(megalith::match({.shard = 2}, left),
            std::vector<std::string>{"shard, group of rank 0: send of 40 bytes to member 1 that rank 0 (shard 0) began "
                                     "at event 0 is never complete: rank 1 (shard 1) came to the end without it"});
  EXPECT_EQ(match({gather, sum}, {gather}),
            std::vector<std::string>{"world, group of rank 0: all_reduce of 24 bytes that rank 0 (shard 0) began at "
                                     "event 2 is waited for at event 3, but rank 1 (shard 1) came to the end without "
                                     "it"});
  Call larger = gather;
  larger.bytes = 72;
  EXPECT_EQ(match({gather}, {larger}),
            std::vector<std::string>{"shard, group of rank 0: all_gather of 72 bytes that rank 1 (shard 1) began at "
                                     "event 0 and shard, group of rank 0: all_gather of 64 bytes that rank 0 (shard 0) "
                                     "began at event 0 disagree in collective 0"});
  left[0] = {{.kind = Kind::wait, .id = 3}};
  EXPECT_EQ(megalith::match({.shard = 2}, left),
            std::vector<std::string>{"rank 0 (shard 0) waits at event 0 for a transfer that it has not begun"});
  EXPECT_NE(message_of([] { megalith::match({.shard = 2}, Traces(3)); }).find("3 traces for a mesh of 2"),
            std::string::npos);
}

}  // namespace
}  // namespace megalith
