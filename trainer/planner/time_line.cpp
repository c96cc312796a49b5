#include "trainer/planner/time_line.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>

#include "trainer/planner/transfer_time.h"

namespace megalith {

namespace {

// Seconds of the host for a kernel of a graph beyond the graph's launch, which costs it 2.5 us (Constant Time Launch
// for Straight-Line CUDA Graphs, NVIDIA Technical Blog, 2024; CUDA 12.6): less than any other launch has here.
constexpr double in_graph = 1e-9;

// A transfer of one rank's trace.
struct Moving {
  size_t id = 0;
  double left = 0;  // seconds, alone on its link
  Link link = Link::node;
  double begun = 0;
};

// Of a transfer in which several stages take part: when it starts and ends, once all have begun it.
struct Joint {
  size_t needed = 2, begun = 0;
  double start = 0, end = 0;
  std::vector<size_t> stages;
  bool complete() const { return begun == needed; }
};

struct Ending {
  bool over = false;
  bool held_up = false;    // work has waited for it
  Joint* joint = nullptr;  // null: a transfer within the stage
  Account account{};
  int channel = 0;
  Transfer transfer{};
};

// The clock of one stage.
struct StageClock {
  double now = 0;   // of the compute queue
  double host = 0;  // of the launches
  size_t at = 0;    // the event that comes next
  Accounts accounts{};
  TimeLine::Copies copies;
  std::array<std::deque<Moving>, num_channels + 1> queues;  // by channel; the last: copies to and from the host
  std::vector<Ending> endings;                              // by number of the transfer
};

bool carries_messages(Channel channel) { return channel == Channel::forward || channel == Channel::backward; }

// A stretch on given machines.
struct TimedStretch {
  double seconds = 0;
  Accounts accounts{};
  double launches = 0;  // seconds of the host
  double lead = 0;      // by so much the host must be ahead at its start to hold nothing up
};

class ClockedPlay {
 public:
  ClockedPlay(const MeshShape& mesh, const std::vector<StageTrace>& stages, const Hardware& hardware,
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
      line.accounts.push_back(clocks_[stage].accounts);
      line.copies.push_back(clocks_[stage].copies);
    }
    line.spans = std::move(spans_);
    return line;
  }

 private:
  void time(const StageTrace& stage, const Processor& processor) {
    auto& times = times_.emplace_back();
    for (const StageTrace::Op& op : stage.ops)
      times.emplace_back(op_time(op.cost, processor, hardware_), account_of_op(op.cost.kind));
    auto& stretches = stretches_.emplace_back();
    for (const StageTrace::Stretch& ops : stage.stretches) {
      TimedStretch& timed = stretches.emplace_back();
      double launched = 0;
      for (uint32_t op : ops) {
        launched += launch_time(stage.ops[op]);
        timed.lead = std::max(timed.lead, launched - timed.seconds);
        timed.seconds += times[op].first;
        timed.accounts[static_cast<size_t>(times[op].second)] += times[op].first;
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
      if (e.kind == TraceEvent::Kind::op) stretch(stage, e.id);
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

  void stretch(size_t stage, uint32_t number) {
    StageClock& clock = clocks_[stage];
    const TimedStretch& timed = stretches_[stage][number];
    const StageTrace::Stretch& ops = stages_[stage].stretches[number];
    if (!with_spans_ && !is_its_own_host_ && clock.now - clock.host >= timed.lead) {
      clock.host += timed.launches;
      work(stage, timed.seconds);
      for (size_t a = 0; a < num_accounts; a++) clock.accounts[a] += timed.accounts[a];
      return;
    }
    for (uint32_t op : ops) {
      launch(stage, launch_time(stages_[stage].ops[op]));
      const double begin = clock.now;
      const auto [seconds, account] = times_[stage][op];
      work(stage, seconds);
      clock.accounts[static_cast<size_t>(account)] += seconds;
      if (with_spans_) spans_[stage].push_back({stages_[stage].ops[op].name, -1, begin, clock.now, account});
    }
  }

  void begin(size_t stage, const StageTrace::Event& e) {
    launch(stage, launch_time());
    StageClock& clock = clocks_[stage];
    const size_t id = e.id;
    if (clock.endings.size() <= id) clock.endings.resize(id + 1);
    Ending& ending = clock.endings[id];
    const auto channel = static_cast<Channel>(e.channel);
    const size_t queue = channel == Channel::host ? num_channels : static_cast<size_t>(e.channel);
    const bool message = carries_messages(channel);
    const GroupLink group =
        message ? message_link(mesh_, hardware_, stages_[stage].rank, stages_[static_cast<size_t>(e.peer)].rank)
                : links_[stage][queue];
    ending = {.account = account_of_wait(channel, e.transfer), .channel = e.channel, .transfer = e.transfer};
    const bool gradients = (e.transfer == Transfer::reduce_scatter && channel != Channel::tensor) ||
                           (e.transfer == Transfer::all_reduce && channel == Channel::data);
    const double payload = static_cast<double>(e.bytes) * (gradients ? hardware_.stack.gradient_bytes / 4 : 1);
    double seconds = transfer_time(group, e.transfer, payload, hardware_);
    if (channel == Channel::tensor) seconds *= hardware_.stack.tensor_exposed;
    const auto& events = stages_[stage].events;
    const bool awaited = clock.at + 1 < events.size() && events[clock.at + 1].kind == TraceEvent::Kind::wait &&
                         events[clock.at + 1].id == e.id;
    if (channel == Channel::world || message) {
      meet(stage, e, seconds, ending);
    } else if (awaited && !moves(stage)) {  // alone: no need to queue
      ending.over = ending.held_up = true;
      if (with_spans_) note(stage, ending, clock.now, clock.now + seconds);
      idle(stage, clock.now + seconds, ending.account);
    } else {
      clock.queues[queue].push_back({.id = id, .left = seconds, .link = group.link, .begun = clock.now});
    }
  }

  void meet(size_t stage, const StageTrace::Event& e, double seconds, Ending& ending) {
    const bool all = static_cast<Channel>(e.channel) == Channel::world;
    const auto here = static_cast<int>(stage);
    const bool sends = e.transfer == Transfer::send;
    const Line line = all     ? Line{e.channel, -1, -1}
                      : sends ? Line{e.channel, here, e.peer}
                              : Line{e.channel, e.peer, here};
    std::deque<Joint>& joints = joints_[line];
    size_t& call = calls_[{line, stage}];
    while (joints.size() <= call) joints.emplace_back().needed = all ? stages_.size() : 2;
    Joint& joint = joints[call];
    const double before = call > 0 ? joints[call - 1].end : 0;
    call++;
    joint.start = std::max({joint.start, clocks_[stage].now, before});
    joint.end = std::max(joint.end, joint.start + seconds);
    joint.begun++;
    joint.stages.push_back(stage);
    ending.joint = &joint;
    if (joint.complete())
      for (size_t other : joint.stages)
        if (other != stage) ready_.push_back(other);
  }

  // False: it cannot be known yet when that is.
  bool wait(size_t stage, const StageTrace::Event& e) {
    StageClock& clock = clocks_[stage];
    Ending& ending = clock.endings[e.id];
    if (ending.joint) {
      if (!ending.joint->complete()) return false;
      idle(stage, ending.joint->start, Account::bubble);
      idle(stage, ending.joint->end, ending.account);
      if (with_spans_) note(stage, ending, ending.joint->start, ending.joint->end);
    } else {
      const double since = clock.now;
      ending.held_up = ending.held_up || !ending.over;
      while (!ending.over) pass(stage, next_arrival(stage, 1), 1);
      if (ending.account == Account::host_copies) {
        clock.copies.all++;
        clock.copies.hidden += ending.held_up ? 0 : 1;
      }
      clock.accounts[static_cast<size_t>(ending.account)] += clock.now - since;
      note_wait(stage, since, clock.now, ending.account);
    }
    return true;
  }

  // So many seconds of work, which the caller accounts for; longer where transfers are under way beside it.
  void work(size_t stage, double seconds) {
    while (seconds > 0) {
      const double rate = 1 / (1 + (moves(stage) ? hardware_.calibrated.overlap : 0));
      const double whole = seconds / rate, time = std::min(whole, next_arrival(stage, rate));
      seconds = time == whole ? 0 : seconds - time * rate;
      clocks_[stage].accounts[static_cast<size_t>(Account::slowed)] += time * (1 - rate);
      pass(stage, time, rate);
    }
  }

  void idle(size_t stage, double until, Account account) {
    StageClock& clock = clocks_[stage];
    if (clock.now >= until) return;
    clock.accounts[static_cast<size_t>(account)] += until - clock.now;
    note_wait(stage, clock.now, until, account);
    while (clock.now < until) {
      const double all = until - clock.now, arrival = next_arrival(stage, 1);
      pass(stage, std::min(all, arrival), 1);
      if (all <= arrival) clock.now = until;
    }
  }

  // Time passes, with transfers at a share of their full rate.
  void pass(size_t stage, double time, double rate) {
    StageClock& clock = clocks_[stage];
    clock.now += time;
    const std::array<double, 3> rates = rates_of(stage, rate);
    for (std::deque<Moving>& queue : clock.queues) {
      if (queue.empty()) continue;
      Moving& first = queue.front();
      const double done = time * rates[static_cast<size_t>(first.link)];
      const bool arrives = first.left <= done * (1 + 1e-12);
      first.left -= done;
      if (!arrives) continue;
      Ending& ending = clock.endings[first.id];
      ending.over = true;
      if (with_spans_) note(stage, ending, first.begun, clock.now);
      queue.pop_front();
      if (!queue.empty()) queue.front().begun = std::max(queue.front().begun, clock.now);
    }
  }

  bool moves(size_t stage) const {
    return std::ranges::any_of(clocks_[stage].queues, [](const auto& queue) { return !queue.empty(); });
  }

  // Transfers on one kind of link share it.
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

  void note(size_t stage, const Ending& ending, double begin, double end) {
    spans_[stage].push_back({name_of(ending.transfer), ending.channel, begin, end, ending.account});
  }
  void note_wait(size_t stage, double begin, double end, Account account) {
    if (with_spans_ && end > begin)
      spans_[stage].push_back({fmt::format("wait: {}", name_of(account)), -1, begin, end, account});
  }

  struct Line {
    int channel, from, to;
    auto operator<=>(const Line&) const = default;
  };

  const MeshShape& mesh_;
  const std::vector<StageTrace>& stages_;
  const Hardware& hardware_;
  const bool with_spans_;
  const bool is_its_own_host_ = hardware_.device.kind == DeviceKind::cpu;
  std::vector<StageClock> clocks_;
  std::vector<std::array<GroupLink, num_channels + 1>> links_;  // by stage and channel of collectives; the last: host
  std::vector<std::vector<std::pair<double, Account>>> times_;  // by stage and op
  std::vector<std::vector<TimedStretch>> stretches_;            // by stage
  std::map<Line, std::deque<Joint>> joints_;
  std::map<std::pair<Line, size_t>, size_t> calls_;
  std::vector<size_t> ready_;
  std::vector<std::vector<Span>> spans_;
};

}  // namespace

StageTrace stage_trace(int rank, const std::vector<TraceEvent>& trace) {
  StageTrace stage{rank, {}, {}, {}};
  std::map<StageTrace::Stretch, uint32_t> numbers;
  StageTrace::Stretch open;
  const auto close = [&] {
    if (open.empty()) return;
    const auto [found, is_new] = numbers.try_emplace(open, static_cast<uint32_t>(stage.stretches.size()));
    if (is_new) stage.stretches.push_back(open);
    stage.events.push_back({.kind = TraceEvent::Kind::op, .id = found->second});
    open.clear();
  };
  for (const TraceEvent& e : trace) {
    if (e.kind == TraceEvent::Kind::op) {
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
  return ClockedPlay(mesh, stages, hardware, processor, with_spans).run();
}

}  // namespace megalith
