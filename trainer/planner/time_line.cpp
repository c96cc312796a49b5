#include "trainer/planner/time_line.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>

#include "trainer/planner/transfer_time.h"
#include "trainer/program/action_number.h"

namespace megalith {

namespace {

// A kernel of a graph costs the host almost nothing in addition to the graph's launch (Constant Time Launch for
// Straight-Line CUDA Graphs, NVIDIA Technical Blog, 2024; CUDA 12.6).
constexpr double in_graph = 1e-9;  // seconds

struct QueuedTransfer {
  size_t id = 0;
  double left = 0;  // seconds, if its link has no other transfer
  Link link = Link::node;
  double begun = 0;
};

// Several stages take part in a Rendezvous, which starts when all of them have begun it.
struct Rendezvous {
  size_t needed = 2, begun = 0;
  double start = 0, end = 0;
  std::vector<size_t> stages;
  bool complete() const { return begun == needed; }
};

struct TransferState {
  bool over = false;
  bool held_up = false;              // work has waited for it
  Rendezvous* rendezvous = nullptr;  // null: a transfer within the stage
  Account account{};
  int channel = 0;
  Transfer transfer{};
};

struct StageClock {
  double now = 0;   // compute queue's time
  double host = 0;  // host's time
  size_t at = 0;    // next event
  Accounts breakdown{};
  TimeLine::Copies copies;
  double tensor_sums = 0;
  std::array<std::deque<QueuedTransfer>, num_channels + 1> queues;  // by channel; the last: copies to and from the host
  std::vector<TransferState> transfers;                             // by number of the transfer
  int32_t part = -1;                                                // the last action, and its span
  size_t action = 0;
};

bool carries_messages(Channel channel) { return direction_of(channel) != 0; }

const char* category_of(const Action& action) {
  switch (action.kind) {
    case Action::Kind::forward: return "forward";
    case Action::Kind::backward: return "backward";
    case Action::Kind::backward_input: return "backward, inputs";
    default: return "backward, weights";
  }
}

struct TimedOpRun {
  double seconds = 0;
  Accounts breakdown{};
  double launches = 0;  // host's seconds
  double lead = 0;      // seconds that the host must be ahead at the start so that no op waits for it
};

class StepSimulator {
 public:
  StepSimulator(const MeshShape& mesh, const std::vector<StageTrace>& stages, const Hardware& hardware,
                const Processor& processor, bool with_spans)
      : mesh_(mesh), stages_(stages), hardware_(hardware), with_spans_(with_spans), clocks_(stages.size()) {
    for (const StageTrace& stage : stages) {
      auto& links = links_.emplace_back();
      for (Channel channel : all_channels)
        if (!carries_messages(channel))
          links[static_cast<size_t>(channel)] = group_link(mesh, hardware, stage.rank, channel);
      links[num_channels] = group_link(mesh, hardware, stage.rank, Channel::host);
      time(stage, processor);
    }
    if (with_spans) spans_.resize(stages.size());
  }

  TimeLine run() {
    for (size_t stage = 0; stage < stages_.size(); stage++) ready_.push_back(stage);
    while (!ready_.empty()) {
      const size_t stage = ready_.back();
      ready_.pop_back();
      advance(stage);
    }
    TimeLine line;
    for (size_t stage = 0; stage < stages_.size(); stage++) {
      CHECK(clocks_[stage].at == stages_[stage].events.size(), "stage {} waits for ever at event {}", stage,
            clocks_[stage].at);
      line.seconds = std::max(line.seconds, clocks_[stage].now);
    }
    for (size_t stage = 0; stage < stages_.size(); stage++) {
      idle(stage, line.seconds, Account::bubble);
      line.breakdowns.push_back(clocks_[stage].breakdown);
      line.copies.push_back(clocks_[stage].copies);
      line.tensor_sums.push_back(clocks_[stage].tensor_sums);
    }
    line.spans = std::move(spans_);
    return line;
  }

 private:
  void time(const StageTrace& stage, const Processor& processor) {
    auto& times = times_.emplace_back();
    for (const StageTrace::Op& op : stage.ops)
      times.emplace_back(op_time(op.cost, processor, hardware_), account_of_op(op.cost));
    auto& op_runs = op_runs_.emplace_back();
    for (const StageTrace::OpRun& ops : stage.op_runs) {
      TimedOpRun& timed = op_runs.emplace_back();
      double launched = 0;
      for (uint32_t op : ops) {
        launched += launch_time(stage.ops[op]);
        timed.lead = std::max(timed.lead, launched - timed.seconds);
        timed.seconds += times[op].first;
        timed.breakdown[static_cast<size_t>(times[op].second)] += times[op].first;
      }
      const auto later =
          static_cast<double>(std::ranges::count_if(ops, [&](uint32_t op) { return stage.ops[op].together; }));
      timed.launches = launch_time() * (static_cast<double>(ops.size()) - later) + in_graph * later;
    }
  }

  void advance(size_t stage) {
    StageClock& clock = clocks_[stage];
    const std::vector<StageTrace::Event>& events = stages_[stage].events;
    for (; clock.at < events.size(); clock.at++) {
      const StageTrace::Event& e = events[clock.at];
      if (e.kind == TraceEvent::Kind::op) run_ops(stage, e.id, e.part);
      if (e.kind == TraceEvent::Kind::begin) begin(stage, e);
      if (e.kind == TraceEvent::Kind::wait && !wait(stage, e)) return;
    }
  }

  double launch_time() const { return hardware_.calibrated.launch * 1e-6; }
  double launch_time(const StageTrace::Op& op) const { return op.together ? in_graph : launch_time(); }

  void launch(size_t stage, double seconds) {
    StageClock& clock = clocks_[stage];
    if (is_its_own_host_) clock.host = std::max(clock.host, clock.now);
    clock.host += seconds;
    idle(stage, clock.host, Account::launches);
  }

  void run_ops(size_t stage, uint32_t number, int32_t part) {
    StageClock& clock = clocks_[stage];
    const TimedOpRun& timed = op_runs_[stage][number];
    const StageTrace::OpRun& ops = stages_[stage].op_runs[number];
    if (!with_spans_ && !is_its_own_host_ && clock.now - clock.host >= timed.lead) {
      clock.host += timed.launches;
      work(stage, timed.seconds);
      for (size_t a = 0; a < num_accounts; a++) clock.breakdown[a] += timed.breakdown[a];
      return;
    }
    for (uint32_t op : ops) {
      launch(stage, launch_time(stages_[stage].ops[op]));
      const double begin = clock.now;
      const auto [seconds, account] = times_[stage][op];
      work(stage, seconds);
      clock.breakdown[static_cast<size_t>(account)] += seconds;
      if (with_spans_) spans_[stage].push_back({stages_[stage].ops[op].name, -1, begin, clock.now, account});
      if (with_spans_ && part >= 0) extend_action(stage, part, begin);
    }
  }

  // Extends the current action to the stage's clock: an op that started at `began` has ended.
  void extend_action(size_t stage, int32_t part, double began) {
    StageClock& clock = clocks_[stage];
    if (clock.part != part) {
      const int64_t virtual_stages = stages_[stage].virtual_stages;
      const Action action = action_of(part, virtual_stages);
      clock.part = part;
      clock.action = spans_[stage].size();
      spans_[stage].push_back({.name = megalith::name_of(action, virtual_stages),
                               .lane = schedule_lane,
                               .begin = began,
                               .category = category_of(action)});
    }
    spans_[stage][clock.action].end = clock.now;
  }

  void begin(size_t stage, const StageTrace::Event& e) {
    launch(stage, launch_time());
    StageClock& clock = clocks_[stage];
    const size_t id = e.id;
    if (clock.transfers.size() <= id) clock.transfers.resize(id + 1);
    TransferState& state = clock.transfers[id];
    const auto channel = static_cast<Channel>(e.channel);
    const size_t queue = channel == Channel::host ? num_channels : static_cast<size_t>(e.channel);
    const bool message = carries_messages(channel);
    const GroupLink group =
        message ? message_link(mesh_, hardware_, stages_[stage].rank, stages_[static_cast<size_t>(e.peer)].rank)
                : links_[stage][queue];
    state = {.account = account_of_wait(channel, e.transfer), .channel = e.channel, .transfer = e.transfer};
    const bool gradients = (e.transfer == Transfer::reduce_scatter && channel != Channel::tensor) ||
                           (e.transfer == Transfer::all_reduce && channel == Channel::data);
    const double payload = static_cast<double>(e.bytes) * (gradients ? hardware_.stack.gradient_bytes / 4 : 1);
    double seconds = transfer_time(group, e.transfer, payload, hardware_, std::max(e.peer, 1));
    if (channel == Channel::tensor) seconds *= hardware_.stack.tensor_exposed;
    if (state.account == Account::tensor_sums) clock.tensor_sums += seconds;
    const auto& events = stages_[stage].events;
    const bool awaited = clock.at + 1 < events.size() && events[clock.at + 1].kind == TraceEvent::Kind::wait &&
                         events[clock.at + 1].id == e.id;
    if (channel == Channel::world || message) {
      begin_rendezvous(stage, e, seconds, state);
    } else if (awaited && !transfers_under_way(stage)) {  // alone: no need to queue
      state.over = state.held_up = true;
      if (with_spans_) add_span(stage, state, clock.now, clock.now + seconds);
      idle(stage, clock.now + seconds, state.account);
    } else {
      clock.queues[queue].push_back({.id = id, .left = seconds, .link = group.link, .begun = clock.now});
    }
  }

  void begin_rendezvous(size_t stage, const StageTrace::Event& e, double seconds, TransferState& state) {
    const bool all = static_cast<Channel>(e.channel) == Channel::world;
    const auto here = static_cast<int>(stage);
    const bool sends = e.transfer == Transfer::send;
    const Route route = all     ? Route{e.channel, -1, -1}
                        : sends ? Route{e.channel, here, e.peer}
                                : Route{e.channel, e.peer, here};
    std::deque<Rendezvous>& all_rendezvous = rendezvous_[route];
    size_t& call = calls_[{route, stage}];
    while (all_rendezvous.size() <= call) all_rendezvous.emplace_back().needed = all ? stages_.size() : 2;
    Rendezvous& rendezvous = all_rendezvous[call];
    const double before = call > 0 ? all_rendezvous[call - 1].end : 0;
    call++;
    rendezvous.start = std::max({rendezvous.start, clocks_[stage].now, before});
    rendezvous.end = std::max(rendezvous.end, rendezvous.start + seconds);
    rendezvous.begun++;
    rendezvous.stages.push_back(stage);
    state.rendezvous = &rendezvous;
    if (rendezvous.complete())
      for (size_t other : rendezvous.stages)
        if (other != stage) ready_.push_back(other);
  }

  // Returns false while the transfer's end is unknown.
  bool wait(size_t stage, const StageTrace::Event& e) {
    StageClock& clock = clocks_[stage];
    TransferState& state = clock.transfers[e.id];
    if (state.rendezvous) {
      if (!state.rendezvous->complete()) return false;
      idle(stage, state.rendezvous->start, Account::bubble);
      idle(stage, state.rendezvous->end, state.account);
      if (with_spans_) add_span(stage, state, state.rendezvous->start, state.rendezvous->end);
    } else {
      const double since = clock.now;
      state.held_up = state.held_up || !state.over;
      while (!state.over) pass(stage, next_arrival(stage, 1), 1);
      if (state.account == Account::host_copies) {
        clock.copies.all++;
        clock.copies.hidden += state.held_up ? 0 : 1;
      }
      clock.breakdown[static_cast<size_t>(state.account)] += clock.now - since;
      add_wait_span(stage, since, clock.now, state.account);
    }
    return true;
  }

  // Passes the time of `seconds` of work, which transfers in flight slow down. The caller accounts for `seconds`.
  void work(size_t stage, double seconds) {
    while (seconds > 0) {
      const double rate = 1 / (1 + (transfers_under_way(stage) ? hardware_.calibrated.overlap : 0));
      const double whole = seconds / rate, time = std::min(whole, next_arrival(stage, rate));
      seconds = time == whole ? 0 : seconds - time * rate;
      clocks_[stage].breakdown[static_cast<size_t>(Account::slowed)] += time * (1 - rate);
      pass(stage, time, rate);
    }
  }

  void idle(size_t stage, double until, Account account) {
    StageClock& clock = clocks_[stage];
    if (clock.now >= until) return;
    clock.breakdown[static_cast<size_t>(account)] += until - clock.now;
    add_wait_span(stage, clock.now, until, account);
    while (clock.now < until) {
      const double all = until - clock.now, arrival = next_arrival(stage, 1);
      pass(stage, std::min(all, arrival), 1);
      if (all <= arrival) clock.now = until;
    }
  }

  // Advances the time, with transfers at `rate` of their full rate.
  void pass(size_t stage, double time, double rate) {
    StageClock& clock = clocks_[stage];
    clock.now += time;
    const std::array<double, 3> rates = rates_of(stage, rate);
    for (std::deque<QueuedTransfer>& queue : clock.queues) {
      if (queue.empty()) continue;
      QueuedTransfer& first = queue.front();
      const double done = time * rates[static_cast<size_t>(first.link)];
      const bool arrives = first.left <= done * (1 + 1e-12);
      first.left -= done;
      if (!arrives) continue;
      TransferState& state = clock.transfers[first.id];
      state.over = true;
      if (with_spans_) add_span(stage, state, first.begun, clock.now);
      queue.pop_front();
      if (!queue.empty()) queue.front().begun = std::max(queue.front().begun, clock.now);
    }
  }

  bool transfers_under_way(size_t stage) const {
    return std::ranges::any_of(clocks_[stage].queues, [](const auto& queue) { return !queue.empty(); });
  }

  std::array<double, 3> rates_of(size_t stage, double rate) const {
    std::array<double, 3> sharing{};
    for (const auto& queue : clocks_[stage].queues)
      if (!queue.empty()) sharing[static_cast<size_t>(queue.front().link)]++;
    for (double& share : sharing) share = share > 0 ? rate / share : rate;
    return sharing;
  }

  double next_arrival(size_t stage, double rate) const {
    const std::array<double, 3> rates = rates_of(stage, rate);
    double time = std::numeric_limits<double>::infinity();
    for (const auto& queue : clocks_[stage].queues)
      if (!queue.empty()) time = std::min(time, queue.front().left / rates[static_cast<size_t>(queue.front().link)]);
    return time;
  }

  void add_span(size_t stage, const TransferState& state, double begin, double end) {
    spans_[stage].push_back({name_of(state.transfer), state.channel, begin, end, state.account});
  }
  void add_wait_span(size_t stage, double begin, double end, Account account) {
    if (with_spans_ && end > begin)
      spans_[stage].push_back({fmt::format("wait: {}", name_of(account)), -1, begin, end, account});
  }

  struct Route {
    int channel, from, to;
    auto operator<=>(const Route&) const = default;
  };

  const MeshShape& mesh_;
  const std::vector<StageTrace>& stages_;
  const Hardware& hardware_;
  const bool with_spans_;
  const bool is_its_own_host_ = hardware_.device.kind == DeviceKind::cpu;
  std::vector<StageClock> clocks_;
  std::vector<std::array<GroupLink, num_channels + 1>> links_;  // by stage and channel of collectives; the last: host
  std::vector<std::vector<std::pair<double, Account>>> times_;  // by stage and op
  std::vector<std::vector<TimedOpRun>> op_runs_;                // by stage
  std::map<Route, std::deque<Rendezvous>> rendezvous_;
  std::map<std::pair<Route, size_t>, size_t> calls_;
  std::vector<size_t> ready_;
  std::vector<std::vector<Span>> spans_;
};

}  // namespace

StageTrace stage_trace(int rank, const std::vector<TraceEvent>& trace, int64_t virtual_stages) {
  StageTrace stage{.rank = rank, .virtual_stages = virtual_stages, .ops = {}, .op_runs = {}, .events = {}};
  std::map<StageTrace::OpRun, uint32_t> numbers;
  StageTrace::OpRun open;
  int32_t part = -1;
  const auto close = [&] {
    if (open.empty()) return;
    const auto [found, is_new] = numbers.try_emplace(open, static_cast<uint32_t>(stage.op_runs.size()));
    if (is_new) stage.op_runs.push_back(open);
    stage.events.push_back({.kind = TraceEvent::Kind::op, .id = found->second, .part = part});
    open.clear();
  };
  for (const TraceEvent& e : trace) {
    if (e.kind == TraceEvent::Kind::op) {
      if (e.part != part) close();
      part = e.part;
      const StageTrace::Op op{e.op, e.cost, e.together};
      const auto found = std::find(stage.ops.begin(), stage.ops.end(), op);
      open.push_back(static_cast<uint32_t>(found - stage.ops.begin()));
      if (found == stage.ops.end()) stage.ops.push_back(op);
      continue;
    }
    close();
    stage.events.push_back({e.kind, e.transfer, e.channel, e.peer, static_cast<uint32_t>(e.id), e.bytes});
  }
  close();
  return stage;
}

TimeLine time_line(const MeshShape& mesh, const std::vector<StageTrace>& stages, const Hardware& hardware,
                   const Processor& processor, bool with_spans) {
  return StepSimulator(mesh, stages, hardware, processor, with_spans).run();
}

}  // namespace megalith
