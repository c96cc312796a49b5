#include "tests/simt/gemm_tables.h"

namespace megalith {

std::vector<GemmTable>& simt::gemm_tables() {
  static std::vector<GemmTable> the_tables;
  return the_tables;
}
const std::vector<GemmTable>& built_in_gemm_tables() { return simt::gemm_tables(); }

}  // namespace megalith
