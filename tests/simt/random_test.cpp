// Initial values are the CPU's, to the bit. (On a GPU, log, sin and cos may differ in their last.)
#include "cases.h"
#include "tests/device/device.h"

namespace megalith::test {
namespace {

TEST(SimtRandom, InitialValuesAreThoseOfTheCpu) {
  for (const Case& c : {normal_fill_case(1001, 515, {}), normal_fill_case(5, 515, {7, 33, 50})}) {
    SCOPED_TRACE(c.name());
    const Memories host(c, 0);
    Stream s(World::cpu);
    c.run(s, host.tensors());
    EXPECT_TRUE(bits_of(on_device(c, 0)) == bits_of(host));
  }
}

}  // namespace
}  // namespace megalith::test
