#include "kernels/stream/launch_graph.h"

#include <algorithm>

#include "kernels/stream/stream.h"

namespace megalith {

void LaunchNotes::add(const char* name, const Cost& cost, std::span<const Tensor> written) {
  launched_.push_back({name, cost});
  for (const Tensor& t : written) written_.push_back(t.raw());
  const auto found = std::ranges::find(ops_, name, &OpRecord::name);
  OpRecord& op = found != ops_.end() ? *found : ops_.emplace_back(OpRecord{.name = name});
  op.launches++;
  op.flops += cost.flops;
  op.bytes += cost.bytes;
}

void Stream::replay(LaunchGraph& graph, const std::function<void()>& launches) {
  using Status = LaunchGraph::Status;
  if (world_ == World::dry) return count_as_graph(launches);
  if (world_ == World::cpu || ops_are_looked_at() || graph.status_ == Status::refused) return launches();
  if (graph.status_ == Status::captured) {
    for (const OpRecord& op : graph.notes_->ops()) {
      OpRecord& record = record_of(op.name);
      record.launches += op.launches;
      record.flops += op.flops;
      record.bytes += op.bytes;
    }
    return launch(graph);
  }
  if (graph.status_ == Status::fresh) {
    graph.notes_ = noted(launches);
    graph.status_ = graph.notes_->launches() < LaunchGraph::least ? Status::refused : Status::noted;
    return;
  }
  device::begin_capture(queue_.stream);
  LaunchNotes now;
  try {
    now = noted(launches);
  } catch (...) {
    device::drop_capture(queue_.stream);
    throw;
  }
  graph.graph_ = device::end_capture(queue_.stream);
  graph.status_ = now.same_as(*graph.notes_) ? Status::captured : Status::refused;
  launch(graph);  // also when this is the only launch
  if (graph.status_ == Status::refused) graph.graph_.reset();
}

void Stream::launch(const LaunchGraph& graph) {
  device::launch(queue_.stream, graph.graph_.get());
  graphs_.graphs++;
  graphs_.ops += graph.notes_->launches();
}

LaunchNotes Stream::noted(const std::function<void()>& launches) {
  LaunchNotes notes;
  struct Noting {
    Stream& stream;
    ~Noting() { stream.notes_ = nullptr; }
  } noting{*this};
  CHECK(!notes_, "a stretch of launches that is replayed holds another");
  notes_ = &notes;
  launches();
  return notes;
}

void Stream::count_as_graph(const std::function<void()>& launches) {
  const size_t before = trace_->events().size();
  const int64_t ops = noted(launches).launches();
  if (ops < LaunchGraph::least) return;
  graphs_.graphs++;
  graphs_.ops += ops;
  trace_->launched_together(before);
}

bool Stream::ops_are_looked_at() const {
  return timer_ || watcher_ || trace_->timekeeper() || trace_->level() == TraceLevel::everything;
}

}  // namespace megalith
