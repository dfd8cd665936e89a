/*
 * AMD's driver, where it differs from Intel's: the register accesses of Linux's arch/x86/events/amd/core.c, 5.10 to 6.x.
 *
 * PERFCTR_CORE has no global control: all counters are stopped one by one, and an overflow shows by a counter's top bit.
 */
#include "state.h"

/* OVERFLOW_WAIT_COUNT */
#define LOOKS 50

enum pmu_kind pmu_kind;

/* amd_pmu_cpu_reset */
void amd_off_at_reset(void)
{
	if (pmu_kind == PMU_AMD_V2)
		wrmsr(MSR_AMD_GLOBAL_CTL, 0);
}

static bool overflowed(const struct event *e)
{
	if (pmu_kind == PMU_AMD_V2)
		return rdmsr(MSR_AMD_GLOBAL_STATUS) >> e->index & 1;
	return !(rdmsr(e->counter_msr) & AMD_TOP_BIT);
}

/* amd_pmu_wait_on_overflow: the NMI of an overflow comes first, and starts the counter anew. */
static void wait_on_overflow(const struct cpu *c, const struct event *e)
{
	if (c->amd_in_nmi)
		return;
	for (u32 looks = LOOKS; looks && overflowed(e); looks--)
		;
}

/* amd_pmu_disable_all and amd_pmu_v2_disable_all */
void amd_disable_all(struct cpu *c)
{
	if (pmu_kind == PMU_AMD_V2) {
		wrmsr(MSR_AMD_GLOBAL_CTL, 0);
	} else {
		for (u64 left = c->amd_active; left; left &= left - 1) {
			const struct event *e = c->amd_events[lowest_bit(left)];
			u64 config = rdmsr(e->config_msr);

			if (config & EVNTSEL_EN)
				wrmsr(e->config_msr, config & ~(u64)EVNTSEL_EN);
		}
	}
	for (u64 left = c->amd_active; left; left &= left - 1)
		wait_on_overflow(c, c->amd_events[lowest_bit(left)]);
}

/* amd_pmu_enable_all and amd_pmu_v2_enable_all */
void amd_enable_all(struct cpu *c)
{
	if (pmu_kind == PMU_AMD_V2) {
		wrmsr(MSR_AMD_GLOBAL_CTL, c->gp_mask);
		return;
	}
	for (u64 left = c->amd_active; left; left &= left - 1) {
		const struct event *e = c->amd_events[lowest_bit(left)];

		wrmsr(e->config_msr, e->config);
	}
}

/* x86_pmu_start of an event with its period set. Without a global control the counter is enabled with all others. */
void amd_start(struct cpu *c, struct event *e)
{
	c->amd_events[e->index] = e;
	c->amd_active |= 1ull << e->index;
	if (pmu_kind == PMU_AMD_V2)
		wrmsr(e->config_msr, e->config);
}

/* x86_pmu_stop, once the counter is disabled: an NMI that comes in the wait still finds it active. */
void amd_stopped(struct cpu *c, struct event *e)
{
	wait_on_overflow(c, e);
	c->amd_active &= ~(1ull << e->index);
}
