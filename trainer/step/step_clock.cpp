#include "trainer/step/step_clock.h"

#include <algorithm>
#include <thread>

namespace megalith {

StepClock::StepClock(const Stream& stream, Now now)
    : stream_(stream.world() == World::cuda ? stream.queue().stream : nullptr),
      now_(std::move(now)),
      laps_(0, stream_ ? Account::launches : Account::elsewhere) {
  align();
}

double StepClock::align() {
  CHECK(later_.empty() && open_.empty(), "the clock of steps is set while one is measured");
  zero_ = now_();
  laps_ = Laps(0, stream_ ? Account::launches : Account::elsewhere);
  flights_.clear();
  step_begin_ = 0;
  if (!stream_) return zero_;
  zero_event_ = device::make_timed_event();
  device::record(zero_event_.get(), stream_);
  return zero_;
}

void StepClock::begin_op(const char* name, const Cost& cost) {
  mark({.what = Mark::What::op, .account = account_of_op(cost), .name = name});
}

void StepClock::begin_transfer(int64_t ticket, int channel, Transfer transfer) {
  mark({.what = Mark::What::transfer, .transfer = transfer, .channel = channel, .ticket = ticket});
}

void StepClock::begin_wait(int64_t ticket) { mark({.what = Mark::What::wait, .ticket = ticket}); }

double StepClock::mark(const Mark& mark) {
  const double host = now_();
  if (!stream_) {
    apply(mark, host - zero_);
    return host;
  }
  device::OwnedEvent event;
  if (unused_.empty()) {
    event = device::make_timed_event();
  } else {
    event = std::move(unused_.back());
    unused_.pop_back();
  }
  device::record(event.get(), stream_);
  later_.push_back({mark, std::move(event)});
  return host;
}

void StepClock::apply(const Mark& mark, double at) {
  switch (mark.what) {
    case Mark::What::op: return open(at, {mark.name, mark.account, at});
    case Mark::What::transfer:
      flights_.push_back({mark.ticket, mark.channel, mark.transfer, at});
      return open(at, {nullptr, account_of_wait(static_cast<Channel>(mark.channel), mark.transfer), at});
    case Mark::What::wait: {
      const auto found = std::ranges::find(flights_, mark.ticket, &Flight::ticket);
      if (found == flights_.end())  // it began before this clock started
        return open(at, {nullptr, Account::elsewhere, at});
      const Account account = account_of_wait(static_cast<Channel>(found->channel), found->transfer);
      open(at, {nullptr, account == Account::messages ? Account::bubble : account, at, *found});
      flights_.erase(found);
      return;
    }
    case Mark::What::end: return close(at);
    case Mark::What::begin_step:
      laps_.take(at);
      step_begin_ = at;
      return;
    case Mark::What::end_step:
      steps_.push_back(laps_.take(at));
      if (keeps_spans_)
        spans_.push_back({fmt::format("step {}", mark.ticket), -1, step_begin_, at, Account::elsewhere});
      step_begin_ = at;
      return;
  }
}

void StepClock::open(double at, const Open& what) {
  laps_.enter(at, what.account);
  open_.push_back(what);
}

void StepClock::close(double at) {
  CHECK(!open_.empty(), "the clock of steps gets an end without a beginning");
  const Open ended = open_.back();
  open_.pop_back();
  laps_.leave(at);
  if (!keeps_spans_) return;
  if (ended.name) spans_.push_back({ended.name, -1, ended.begin, at, ended.account});
  if (!ended.flight) return;
  spans_.push_back({fmt::format("wait: {}", name_of(ended.account)), -1, ended.begin, at, ended.account});
  spans_.push_back({name_of(ended.flight->transfer), ended.flight->channel, ended.flight->begin, at, ended.account});
}

Accounts StepClock::take() {
  while (steps_.empty()) {
    CHECK(!later_.empty(), "there is no ended step whose accounts are not taken yet");
    Later next = std::move(later_.front());
    later_.pop_front();
    while (!device::passed(next.event.get())) std::this_thread::yield();
    apply(next.mark, device::seconds_between(zero_event_.get(), next.event.get()));
    unused_.push_back(std::move(next.event));
  }
  const Accounts first = steps_.front();
  steps_.pop_front();
  return first;
}

Accounts StepClock::so_far() {
  CHECK(!stream_, "in the cuda world a step's account is known when it has ended");
  return laps_.until(now());
}

}  // namespace megalith
