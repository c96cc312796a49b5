// The MPI session that main() opened: every test of this program runs on all its ranks at once, in the same order.
#pragma once

#include <gtest/gtest.h>

#include "trainer/session/session.h"

namespace megalith {

const Session& session();

}  // namespace megalith
