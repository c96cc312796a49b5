// The session of a process that was started by itself, without other ranks.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "trainer/session/session.h"

namespace megalith {

class SingleRank : public Session {
 public:
  SingleRank() = default;
  std::vector<std::string> all_gather_text(const std::string& mine) const override { return {mine}; }
  std::string broadcast_text(const std::string& text) const override { return text; }
  // The main thread may be computing, so nothing is destroyed.
  [[noreturn]] void abort(int status) const override {
    std::fflush(nullptr);
    std::_Exit(status);
  }
};

}  // namespace megalith
