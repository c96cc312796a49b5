#include "trainer/machine/interrupt.h"

#include <array>
#include <atomic>
#include <csignal>

namespace megalith {
namespace {

constexpr std::array<int, 2> recorded{SIGINT, SIGTERM};
std::array<struct sigaction, recorded.size()> actions_before;
std::atomic<int> received = 0;
static_assert(std::atomic<int>::is_always_lock_free, "the handler writes it");

}  // namespace

Interrupt::Interrupt() {
  received = 0;
  struct sigaction action {};
  action.sa_handler = [](int signal) { received = signal; };
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  ::sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < recorded.size(); i++) ::sigaction(recorded[i], &action, &actions_before[i]);
}

Interrupt::~Interrupt() {
  for (size_t i = 0; i < recorded.size(); i++) ::sigaction(recorded[i], &actions_before[i], nullptr);
}

int Interrupt::signal() const { return received; }

}  // namespace megalith
