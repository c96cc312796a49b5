// What a call threw, for tests that read the message: fails the test where nothing was thrown, and lets anything that
// is not megalith::Error through.
#pragma once

#include "kernels/base/check.h"

#include <gtest/gtest.h>

#include <string>

namespace megalith {

template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected an error";
  return {};
}

}  // namespace megalith
