/* The driver's library, of a driver for CUDA 11.4: enough of it to be asked how old it is. */
int cuInit(unsigned flags);
int cuDriverGetVersion(int* version);

int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int* version) {
  *version = 11040;
  return 0;
}
