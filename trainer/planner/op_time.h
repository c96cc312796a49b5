// How long an op takes on a device: rooflines of what its Cost says. Pure functions.
//
// - elementwise: its bytes at the share of the memory's bandwidth that such ops reach, times what another program moves
//   more; the optimizer's updates are one pass in all programs.
// - GEMM: the product, padded to whole tiles, at the share of the peak rate that large ones reach; less where the last
//   wave of tiles leaves multiprocessors idle or where the inner dimension is short; never faster than its bytes.
//   The best of a few tile sizes and splits of the inner dimension is taken, as libraries do.
// - attention: its FLOPs at a share of that rate, which grows with the sequence; never faster than its bytes.
//
// A CPU has no tiles, and no ramps: its products take their operations at the rate.
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
  double peak = 0;       // FLOP/s of GEMMs in the type that the step computes in
  double bandwidth = 0;  // bytes/s
  int64_t multiprocessors = 1;
};

// A device, or a share of one where there are more ranks on a node than devices.
Processor processor_of(const Hardware& hardware, ComputeType compute, int ranks_per_node);

// Seconds.
double op_time(const Cost& cost, const Processor& processor, const Hardware& hardware);

}  // namespace megalith
