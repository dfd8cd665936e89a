/* The registers of an AMD's PMU, for the conformance cases. */
#pragma once
#include "cpu.h"

#define AMD_GP 6u
#define AMD_ALL ((1ull << AMD_GP) - 1)
#define AMD_TOP_BIT (1ull << 47)
#define AMD_COUNTER_MASK ((1ull << 48) - 1)
/* Bits of a selector that are kept. */
#define AMD_SELECTOR 0x30fffd7ffffull
#define AMD_BRANCHES 0xc2u
#define AMD_TAKEN_BRANCHES 0xc4u

static inline u32 amd_ctl(u32 n)
{
	return MSR_AMD_CTL0 + 2 * n;
}

static inline u32 amd_ctr(u32 n)
{
	return MSR_AMD_CTR0 + 2 * n;
}

static inline u64 amd_counter(u32 n)
{
	return rdmsr(amd_ctr(n));
}

static inline void amd_set(u32 n, u64 value)
{
	wrmsr(amd_ctr(n), value & AMD_COUNTER_MASK);
}

/* Starts counter n, by its own enable. */
static inline void amd_start(u32 n, u64 event, u64 flags)
{
	wrmsr(amd_ctl(n), event | flags | EVNTSEL_EN);
}

static inline void amd_stop(u32 n)
{
	wrmsr(amd_ctl(n), 0);
}

static inline void amd_stop_all(void)
{
	for (u32 n = 0; n < AMD_GP; n++)
		amd_stop(n);
}

/* Counter n has passed 0. */
static inline bool amd_passed(u32 n)
{
	return !(amd_counter(n) & AMD_TOP_BIT);
}

/* 0 where there is no such register. */
static inline u64 amd_status(enum pmu_kind pmu)
{
	return pmu == PMU_AMD_V2 ? rdmsr(MSR_AMD_GLOBAL_STATUS) : 0;
}

/* All counters off and 0. */
static inline void amd_reset(enum pmu_kind pmu)
{
	amd_stop_all();
	for (u32 n = 0; n < AMD_GP; n++)
		amd_set(n, 0);
	if (pmu == PMU_AMD_V2) {
		wrmsr(MSR_AMD_GLOBAL_CTL, AMD_ALL);
		wrmsr(MSR_AMD_STATUS_CLR, ~0ull);
	}
}
