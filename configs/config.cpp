#include "configs/config.h"
