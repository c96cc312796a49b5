// An observer of the beginnings and ends on a Stream: of ops, of the calls that begin transfers, and of the waits for
// them. A Stream's trace has at most one (trace.h). It is not called in the dry world, where nothing takes time. Calls
// nest. An exception leaves the open ones without their end.
#pragma once

#include <cstdint>

#include "kernels/stream/cost.h"

namespace megalith {

enum class Transfer : uint8_t;

class Timekeeper {
 public:
  virtual ~Timekeeper() = default;
  virtual void begin_op(const char* name, const Cost& cost) = 0;
  virtual void begin_transfer(int64_t ticket, int channel, Transfer transfer) = 0;  // the call that begins the transfer
  virtual void begin_wait(int64_t ticket) = 0;
  virtual void end() = 0;  // ends the innermost open one
};

}  // namespace megalith
