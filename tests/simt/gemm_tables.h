// The tables of GEMM choices that the simulated GPU's program has built in: none, until a test has some.
#pragma once

#include <vector>

#include "kernels/linear/gemm_table.h"

namespace megalith::simt {

std::vector<GemmTable>& gemm_tables();

}  // namespace megalith::simt
