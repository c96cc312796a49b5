/* The driver's library, enough of it to be asked for its version and to fail: that of a driver for CUDA 11.4 or, where
 * MEGALITH_PRETENDED_ERROR is set, of a new one that cannot begin, with this number of CUDA's. */
#include <stdlib.h>

int cuInit(unsigned flags);
int cuDriverGetVersion(int* version);

static const char* error(void) { return getenv("MEGALITH_PRETENDED_ERROR"); }

int cuInit(unsigned flags) { return error() ? atoi(error()) : (int)flags; }
int cuDriverGetVersion(int* version) {
  *version = error() ? 99000 : 11040;
  return 0;
}
