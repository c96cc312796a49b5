// The message of an error, and what it has to say.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "kernels/system/check.h"

namespace megalith {

// Returns the message of the megalith::Error that `call` throws, if it throws; what else it throws goes on.
template <class Call>
std::optional<std::string> error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

// The same where an error is expected: the test fails if nothing is thrown.
template <class Call>
std::string message_of(const Call& call) {
  const std::optional<std::string> message = error_of(call);
  EXPECT_TRUE(message) << "expected an error";
  return message.value_or("");
}

}  // namespace megalith

// Expects every part in the text.
#define EXPECT_SAYS(text, ...)                                                                    \
  do {                                                                                            \
    const std::string said = text; /* a copy: the text may be part of a temporary */              \
    for (const std::string& part : std::vector<std::string>{__VA_ARGS__})                         \
      EXPECT_NE(said.find(part), std::string::npos) << "\"" << part << "\" is missing: " << said; \
  } while (false)
