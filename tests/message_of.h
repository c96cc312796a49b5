// The message of an error that a test expects.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kernels/base/check.h"

namespace megalith {

// What `call` throws, which must be megalith::Error: the test fails if nothing is thrown, and anything else goes on.
template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected an error";
  return {};
}

}  // namespace megalith
