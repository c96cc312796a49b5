#pragma once

namespace megalith::bench {

// Measures in about a tenth of a second the f32 operations a second of the processor's multiply-adds on this program's
// threads, register to register in the widest vectors. Returns 0 if it has none.
double fma_peak();

}  // namespace megalith::bench
