#pragma once

namespace megalith::bench {

// Measures in about a tenth of a second the f32 operations a second of the processor's multiply-adds on this program's
// threads, register to register in the vectors that the CPU's ops are compiled for. Returns 0 if these are shorter than
// AVX2's.
double fma_peak();

}  // namespace megalith::bench
