#include "trainer/step/trace_file.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "kernels/system/json.h"

namespace megalith {

namespace {

constexpr size_t text_at_once = size_t{1} << 20;  // bytes
constexpr int lanes = 256;                        // step of track numbers: tid_of_lane, plus this for each further row

int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }
double microseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-3; }
std::string quoted(const std::string& text) { return json_text(nlohmann::json(text)); }

int tid_of_lane(int lane) { return lane == schedule_lane ? lanes - 1 : lane + 1; }

std::string name_of_lane(int lane) {
  if (lane == schedule_lane) return "schedule";
  return lane < 0 ? "compute" : name_of(static_cast<Channel>(lane));
}

const char* category_of(const Span& span) {
  if (span.lane == schedule_lane) return span.category;
  return span.lane < 0 ? name_of(span.account) : "transfer";
}

// Returns the row of each span, in the order of their beginnings, so that spans in a row do not overlap. On compute,
// nested spans share one row.
std::vector<int> rows_of(const std::vector<const Span*>& spans, int lane) {
  std::vector<int> rows;
  std::vector<int64_t> ends;  // by row
  for (const Span* span : spans) {
    const int64_t begin = nanoseconds(span->begin);
    const auto free = std::ranges::find_if(ends, [=](int64_t end) { return lane < 0 || end <= begin; });
    rows.push_back(static_cast<int>(free - ends.begin()));
    if (free == ends.end()) ends.emplace_back();
    ends[static_cast<size_t>(rows.back())] = nanoseconds(span->end);
  }
  return rows;
}

}  // namespace

TraceFile::TraceFile(const std::string& path) : file_(path, {.replace = true}) {
  text_ = R"({"displayTimeUnit":"ms","traceEvents":[)";
}

void TraceFile::write(const std::string& event) {
  text_ += (first_ ? "\n" : ",\n") + event;
  first_ = false;
  if (text_.size() < text_at_once) return;
  file_.append(text_);
  text_.clear();
}

void TraceFile::add(const TraceProcess& process) {
  const int pid = processes_++;
  const auto name = [&](const char* what, int tid, const std::string& text) {
    write(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what, pid, tid,
                      quoted(text)));
  };
  const auto order = [&](const char* what, int tid, int place) {
    write(
        fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", what, pid, tid, place));
  };
  name("process_name", 0, process.name);
  order("process_sort_index", 0, pid);
  std::map<int, std::vector<const Span*>> by_lane;
  for (const Span& span : process.spans) by_lane[span.lane].push_back(&span);
  for (auto& [lane, spans] : by_lane) {
    std::ranges::stable_sort(spans, [](const Span* a, const Span* b) {
      return std::pair(nanoseconds(a->begin), -nanoseconds(a->end)) <
             std::pair(nanoseconds(b->begin), -nanoseconds(b->end));
    });
    const std::vector<int> rows = rows_of(spans, lane);
    const auto tid_of = [l = lane](int row) { return tid_of_lane(l) + lanes * row; };
    for (int row = 0; row <= std::ranges::max(rows); row++) {
      name("thread_name", tid_of(row), name_of_lane(lane));
      order("thread_sort_index", tid_of(row), (lane + 1) * lanes + row);
    }
    for (size_t i = 0; i < spans.size(); i++) {
      const int64_t begin = nanoseconds(spans[i]->begin), end = nanoseconds(spans[i]->end);
      write(fmt::format(R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
                        quoted(spans[i]->name), quoted(category_of(*spans[i])), pid, tid_of(rows[i]),
                        microseconds(begin), microseconds(end - begin)));
    }
  }
}

void TraceFile::publish() {
  file_.append(text_ + "\n]}\n");
  file_.publish();
}

}  // namespace megalith
