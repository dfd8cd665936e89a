/* The conformance cases, by the file that holds them. */
#pragma once
#include "check.h"

void register_cases(void);
void counting_cases(void);
void overflow_cases(void);
void delivery_cases(void);

/* The AMD's cases. */
void amd_register_and_counting_cases(void);
void amd_overflow_and_delivery_cases(void);
