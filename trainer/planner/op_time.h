// Estimates the time of an op by a roofline model of its Cost. All functions are pure.
//
// - Elementwise ops run at the calibrated share of the memory bandwidth.
// - A GEMM, padded to whole tiles, runs at the calibrated share of the peak rate, less for a partial last wave of tiles
//   and for a short inner dimension, but no faster than its memory traffic. The model takes the best of a few tile
//   sizes and splits of the inner dimension, as libraries do.
// - Attention runs at a share of the GEMM rate that grows with the sequence, but no faster than its memory traffic. On
//   Hopper, Megalith's takes the time of its blocks (kernels/attention/hopper_grid.h).
//
// On a CPU threads take the place of multiprocessors, and a product runs at the rate of the busiest thread
// (kernels/linear/gemm_cpu.h). Each loop that threads share costs calibrated.fork (kernels/loops/loops_cpu.h).
//
// The forms come from published runs (Hagemann et al., arXiv 2311.05610, MosaicML's llm-foundry, BigScience's tables);
// bench/published.py checks them.
#pragma once

#include "configs/config.h"
#include "configs/hardware.h"
#include "kernels/stream/cost.h"

namespace megalith {

// The device of one rank, or its share of it.
struct Processor {
  double peak = 0;              // FLOP/s of GEMMs in the compute type
  double peak_f32 = 0;          // FLOP/s of GEMMs in f32
  double peak_fp8 = 0;          // FLOP/s of GEMMs in 8 bits; a CPU computes them in f32
  double bandwidth = 0;         // bytes/s
  int64_t multiprocessors = 1;  // on a CPU: threads
  bool library_tiles = false;   // on a CPU: the library divides products into tiles, assumed to be even
};

Processor processor_of(const Hardware& hardware, ComputeType compute, int ranks_per_node);

// Returns seconds.
double op_time(const Cost& cost, const Processor& processor, const Hardware& hardware);

}  // namespace megalith
