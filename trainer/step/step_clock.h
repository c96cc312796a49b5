// The clock of a rank's steps. A Stream reports beginnings and ends to it (timekeeper.h); it breaks down the time of a
// step and, on request, records when each op and transfer ran. It does not change what it measures.
//
// In the cpu and dry worlds it reads the host's clock. In the cuda world the host runs ahead, so events in the stream
// measure the time; a step's time is known once the stream has passed its end. They cost a few microseconds an op, so
// the caller chooses which steps to measure. Time between ops is Account::launches there, since the GPU waits for the
// host; in the other worlds it is Account::elsewhere.
//
// A transfer lasts from the call that begins it to the end of the wait for it; an earlier end is not visible.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <optional>

#include "kernels/stream/stream.h"
#include "trainer/step/account.h"
#include "trainer/step/trace_file.h"

namespace megalith {

class StepClock : public Timekeeper {
 public:
  using Now = std::function<double()>;  // seconds
  static double host_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  // In the cuda world it uses the stream's time, else `now`. It measures nothing until the stream's trace gets it.
  explicit StepClock(const Stream& stream, Now now = host_now);

  // All times are counted from here. This, begin_step() and end_step() return the reading of `now` that they use (in
  // the cuda world one of about that time), so that callers that measure the same need not read another.
  double align();
  void keep_spans(bool keep) { keeps_spans_ = keep; }
  std::vector<Span> take_spans() { return std::exchange(spans_, {}); }

  void begin_op(const char* name, const Cost& cost) override;
  void begin_transfer(int64_t ticket, int channel, Transfer transfer) override;
  void begin_wait(int64_t ticket) override;
  void end() override { mark({.what = Mark::What::end}); }

  // A step begins, and ends. The next begins with its end, unless begin_step() is called later.
  double begin_step() { return mark({.what = Mark::What::begin_step}); }
  double end_step(int64_t number) { return mark({.what = Mark::What::end_step, .ticket = number}); }
  // Returns the accounts of the step that has ended, the first of several. In the cuda world the host waits until the
  // stream has passed its end.
  Accounts take();
  // Returns the accounts of the current step. Not in the cuda world.
  Accounts so_far();

 private:
  struct Mark {
    enum class What : uint8_t { op, transfer, wait, end, begin_step, end_step };
    What what;
    Transfer transfer{};
    Account account{};
    int channel = -1;
    const char* name = nullptr;
    int64_t ticket = 0;  // of the transfer; for a step its number
  };
  struct Flight {
    int64_t ticket;
    int channel;
    Transfer transfer;
    double begin;
  };
  struct Open {
    const char* name;  // an op's
    Account account;
    double begin;
    std::optional<Flight> flight{};  // a flight that ends here
  };
  struct Later {
    Mark mark;
    device::OwnedEvent event;
  };

  double now() const { return now_() - zero_; }
  double mark(const Mark& mark);
  void apply(const Mark& mark, double at);
  void open(double at, const Open& what);
  void close(double at);

  CUstream_st* stream_ = nullptr;  // cuda world only
  Now now_;
  double zero_ = 0;
  device::OwnedEvent zero_event_;
  std::deque<Later> later_;                 // cuda world: marks that the stream may not have passed
  std::vector<device::OwnedEvent> unused_;  // events
  Laps laps_;
  std::deque<Accounts> steps_;  // steps that have ended
  std::vector<Open> open_;
  std::vector<Flight> flights_;
  bool keeps_spans_ = false;
  double step_begin_ = 0;
  std::vector<Span> spans_;
};

}  // namespace megalith
