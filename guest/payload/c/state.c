/* Where state.h's is. */
#include "state.h"

struct cpu cpus[MAX_VCPUS];
