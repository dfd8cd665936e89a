/*
 * AMD's PMI handlers. PERFCTR_CORE's finds overflows by the top bit of each counter and writes LVTPC, as Linux's does. PerfMonV2's reads
 * STATUS and leaves LVTPC alone. No delivery masks LVTPC on an AMD. An NMI whose overflow an earlier handler took finds nothing, as on
 * hardware.
 */
#include "state.h"

/* Frequency mode; see nmi.c. */
static void adjust_periods(struct cpu *c, u64 rearmed)
{
	u64 now = rdtsc();

	for (; rearmed; rearmed &= rearmed - 1) {
		struct event *e = c->amd_events[lowest_bit(rearmed)];

		if (e->freq)
			pmu_adjust_overflow(e, now, c->tick_tsc, c->boot);
	}
}

static void done(struct cpu *c, const struct interrupt *frame, u64 rearmed)
{
	c->amd_in_nmi = true;
	pmi_account(c, frame, rdtsc(), rearmed, rearmed);
	c->amd_in_nmi = false;
}

/* amd_pmu_handle_irq: LVTPC, then each counter's top bit. The counters run on. */
void pmi_amd(const struct interrupt *frame)
{
	struct cpu *c = this_cpu();
	u64 rearmed = 0;

	wrmsr_halves(MSR_LVTPC, c->lvtpc, 0);
	for (u64 left = c->amd_active; left; left &= left - 1) {
		u64 bit = lowest_bit(left);
		struct event *e = c->amd_events[bit];
		u64 value = rdmsr(e->counter_msr);

		if (value & AMD_TOP_BIT)
			continue;
		pmi_restart(e, value);
		rearmed |= 1ull << bit;
	}
	if (unlikely(c->freq))
		adjust_periods(c, rearmed);
	done(c, frame, rearmed);
}

/* amd_pmu_v2_handle_irq: counters off; STATUS; each active counter read, those with their bit started anew; acknowledge; counters on. */
void pmi_amd_v2(const struct interrupt *frame)
{
	struct cpu *c = this_cpu();
	u64 rearmed = 0;

	wrmsr(MSR_AMD_GLOBAL_CTL, 0);
	u64 status = rdmsr(MSR_AMD_GLOBAL_STATUS);

	if (likely(status)) {
		for (u64 left = c->amd_active; left; left &= left - 1) {
			u64 bit = lowest_bit(left);
			struct event *e = c->amd_events[bit];
			u64 value = rdmsr(e->counter_msr);

			if (!(status >> bit & 1))
				continue;
			pmi_restart(e, value);
			rearmed |= 1ull << bit;
		}
		wrmsr(MSR_AMD_STATUS_CLR, ~(status & ~rearmed));
		if (unlikely(c->freq))
			adjust_periods(c, rearmed);
	}
	if (likely(c->enabled))
		wrmsr(MSR_AMD_GLOBAL_CTL, c->gp_mask);
	done(c, frame, rearmed);
}
