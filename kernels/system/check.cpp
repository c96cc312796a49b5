#include "kernels/system/check.h"

namespace megalith {

void throw_error(const char* file, int line, fmt::string_view format, fmt::format_args values) {
  throw Error(file, line, fmt::vformat(format, values));
}

}  // namespace megalith
