// How long an op takes on a device: rooflines of what its Cost says. Pure functions.
//
// - elementwise: its bytes at the share of the memory's bandwidth that such ops reach, times what another program moves
//   more; the optimizer's updates are one pass in all programs.
// - GEMM: the product, padded to whole tiles, at the share of the peak rate that large ones reach; less where the last
//   wave of tiles leaves multiprocessors idle or where the inner dimension is short; never faster than its bytes.
//   The best of a few tile sizes and splits of the inner dimension is taken, as libraries do.
// - attention: its FLOPs at a share of that rate, which grows with the sequence; never faster than its bytes.
//
// On a CPU a rank's threads stand where multiprocessors do. A product takes its operations at the rate, and longer
// where its tiles (kernels/gemm_cpu.h) leave threads without work, as attention's heads may; the bf16 products of a
// processor that has faster ones are cut by the library, and taken to be shared evenly. Each loop that threads share
// costs calibrated.fork; elementwise ops have one where they are large enough (kernels/loops_cpu.h), and what is
// computed beside a product is another. A product's inner dimension has no ramp.
//
// The forms are those of a study of published runs: Hagemann et al., arXiv 2311.05610, MosaicML's llm-foundry and
// BigScience's tables; bench/published.py holds them against such runs.
#pragma once

#include "configs/config.h"
#include "configs/hardware.h"
#include "kernels/base/cost.h"

namespace megalith {

// What one rank computes with.
struct Processor {
  double peak = 0;              // FLOP/s of GEMMs in the type that the step computes in
  double bandwidth = 0;         // bytes/s
  int64_t multiprocessors = 1;  // of a CPU: threads
  bool library_tiles = false;   // on a CPU: products are cut in ways that are not known
};

// A device, or a share of one where there are more ranks on a node than devices.
Processor processor_of(const Hardware& hardware, ComputeType compute, int ranks_per_node);

// Seconds.
double op_time(const Cost& cost, const Processor& processor, const Hardware& hardware);

}  // namespace megalith
