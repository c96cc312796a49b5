#include "trainer/checkpointing/background.h"

#include <sys/resource.h>

#include <utility>

namespace megalith {

namespace {
constexpr int niceness =
    5;  // of 19: about a third of what a thread that computes gets where there is no processor left
}

Background::Background(std::function<void()> work)
    : thread_([this, work = std::move(work)] {
        ::setpriority(PRIO_PROCESS, 0, niceness);  // on Linux of this thread, and of its disk's queue as well
        work();
        done_ = true;
      }) {}

void Background::wait() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace megalith
