/* The conformance cases, by the file that holds them. */
#pragma once
#include "check.h"

void register_cases(void);
void counting_cases(void);
void overflow_cases(void);
void delivery_cases(void);
