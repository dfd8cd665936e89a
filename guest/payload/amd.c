/*
 * AMD's driver, where it differs from Intel's: the register accesses of Linux's arch/x86/events/amd/core.c, 5.10 to 6.x.
 *
 * PERFCTR_CORE has no global control: all counters are stopped one by one, and its handler finds an overflow by the top bit of each
 * counter (x86_pmu_handle_irq). PerfMonV2 has both, and its handler never writes LVTPC: a delivery does not mask it.
 */
#include "state.h"

#define TOP_BIT (1ull << 47)
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
	return !(rdmsr(e->counter_msr) & TOP_BIT);
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

/* x86_pmu_stop, once the counter is disabled. */
void amd_stopped(struct cpu *c, struct event *e)
{
	c->amd_active &= ~(1ull << e->index);
	wait_on_overflow(c, e);
}

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

		if (value & TOP_BIT)
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

void pmi_amd_with_eoi(const struct interrupt *frame)
{
	pmi_amd(frame);
	wrmsr(MSR_EOI, 0);
}

void pmi_amd_v2_with_eoi(const struct interrupt *frame)
{
	pmi_amd_v2(frame);
	wrmsr(MSR_EOI, 0);
}
