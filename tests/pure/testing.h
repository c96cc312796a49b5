// GoogleTest, and the message of an expected error.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "kernels/base/check.h"

namespace megalith {

inline std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace megalith
