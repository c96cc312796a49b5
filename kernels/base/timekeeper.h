// Who is told, while a Stream works, what begins and what ends: ops, the calls that begin transfers, and the waits for
// them. A Stream's trace carries one, or none (trace.h); in the dry world, where nothing takes time, none is told.
//
// What begins inside of something else ends before it does. After an exception what was open is never told to have
// ended.
#pragma once

#include <cstdint>

#include "kernels/base/cost.h"

namespace megalith {

enum class Transfer : uint8_t;

class Timekeeper {
 public:
  virtual ~Timekeeper() = default;
  virtual void begin_op(const char* name, const Cost& cost) = 0;
  virtual void begin_transfer(int64_t ticket, int channel, Transfer transfer) = 0;  // the call that begins it
  virtual void begin_wait(int64_t ticket) = 0;
  virtual void end() = 0;  // of the innermost that is open
};

}  // namespace megalith
