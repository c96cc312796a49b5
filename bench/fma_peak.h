#pragma once

namespace megalith::bench {

// Operations a second in f32 that the processor's multiply-adds reach on this program's threads, from registers to
// registers in the widest vectors it has: measured, about a tenth of a second. 0 where it has none.
double fma_peak();

}  // namespace megalith::bench
