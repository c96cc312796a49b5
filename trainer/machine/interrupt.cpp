#include "trainer/machine/interrupt.h"

#include <array>
#include <atomic>
#include <csignal>

namespace megalith {
namespace {

constexpr std::array<int, 2> ending_signals{SIGINT, SIGTERM};
std::array<struct sigaction, ending_signals.size()> actions_before_interrupts;
std::atomic<int> interrupted_by = 0;
static_assert(std::atomic<int>::is_always_lock_free, "the handler writes it");

}  // namespace

Interrupt::Interrupt() {
  interrupted_by = 0;
  struct sigaction action {};
  action.sa_handler = [](int signal) { interrupted_by = signal; };
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  ::sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < ending_signals.size(); i++)
    ::sigaction(ending_signals[i], &action, &actions_before_interrupts[i]);
}

Interrupt::~Interrupt() {
  for (size_t i = 0; i < ending_signals.size(); i++)
    ::sigaction(ending_signals[i], &actions_before_interrupts[i], nullptr);
}

int Interrupt::signal() const { return interrupted_by; }

}  // namespace megalith
