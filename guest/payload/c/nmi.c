/*
 * The PMI handler: intel_pmu_handle_irq with perf_v4_pmi=n. GLOBAL_CTRL off; STATUS; then, as long as there is any: acknowledge, per
 * counter read and re-arm, STATUS again; LVTPC; GLOBAL_CTRL on. LVTPC is unmasked before the counters run again (Linux's "mid ack"),
 * so that no overflow meets a masked entry.
 *
 * Straight code: where ring 0 is emulated, each instruction costs as much as a thousand elsewhere.
 */
#include "state.h"

/* x86_perf_event_update and _set_period in one, of a counter with this value. */
static inline __attribute__((always_inline)) void restart_from(struct event *e, u64 value)
{
	u64 delta = (value - e->prev) << COUNTER_SHIFT >> COUNTER_SHIFT;
	s64 left = e->left - (s64)delta;

	e->count += delta;
	e->overflows++;
	if (left <= 0) {
		left += e->period;
		if (unlikely(left <= 0))
			left = e->period;
	}
	e->left = left;
	if (unlikely((u64)(left - 2) > (u64)(MAX_PERIOD - 2)))
		left = left < 2 ? 2 : MAX_PERIOD;
	left = -left;
	e->prev = (u64)left;
	wrmsr_halves(e->counter_msr, (u32)left, 0xffff);
}

/* intel_pmu_save_and_restart */
static inline void restart(struct event *e)
{
	restart_from(e, rdmsr(e->counter_msr));
}

void pmi_restart(struct event *e, u64 value)
{
	restart_from(e, value);
}

/* Rare calls out of the straight path keep all registers, so that the path itself needs not save any. */
#define RARE __attribute__((noinline, cold, no_caller_saved_registers))

/* Frequency mode. In Linux this is part of each event's overflow; here it follows all of them. */
RARE static void adjust_periods(struct cpu *c, u64 rearmed)
{
	u64 now = rdtsc();

	for (; rearmed; rearmed &= rearmed - 1) {
		struct event *e = c->map[lowest_bit(rearmed)];

		if (e->freq)
			pmu_adjust_overflow(e, now, c->tick_tsc, c->boot);
	}
}

static inline u64 handle_overflows(struct cpu *c, u64 status)
{
	u64 rearmed = 0;
	u32 loops = 100;

	do {
		wrmsr(MSR_GLOBAL_OVF_CTRL, status);
		rearmed |= status;
		do {
			u64 bit = lowest_bit(status);
			struct event *e = c->map[bit];

			status &= status - 1;
			if (likely(e))
				restart(e);
			else /* not in perf's active_mask */
				rearmed &= ~(1ull << bit);
		} while (status);
		status = rdmsr(MSR_GLOBAL_STATUS);
	} while (unlikely(status) && --loops);
	if (unlikely(c->freq))
		adjust_periods(c, rearmed);
	return rearmed;
}

/* The driver has the counters off and is about to read or has read them: the counts are its business. */
RARE static void count_late(struct cpu *c, u64 status)
{
	wrmsr(MSR_GLOBAL_OVF_CTRL, status);
	for (; status; status &= status - 1) {
		struct event *e = c->map[lowest_bit(status)];

		if (e)
			e->overflows++;
	}
}

/* What needs not be done before the counters run again. */
__attribute__((noinline)) void pmi_account(struct cpu *c, const struct interrupt *frame, u64 exit, u64 status, u64 rearmed)
{
	c->nmis++;
	if (!status)
		c->nmis_without_status++;
	log_entry(c, LOG_NMI, frame, exit, status, rearmed);
	if (unlikely(c->target_met) && c->enabled) {
		/* Nothing more is to be sampled; the next tick ends the phase. */
		pmu_disable(c);
		c->report->measure_end = rdtsc();
		c->report->measure_units = c->user->units - c->units_at_start;
		if (c->turns)
			tick_soon(c);
	}
}

void pmi(const struct interrupt *frame)
{
	struct cpu *c = this_cpu();
	u64 rearmed = 0;

	wrmsr(MSR_GLOBAL_CTRL, 0);
	u64 status = rdmsr(MSR_GLOBAL_STATUS);

	if (likely(c->enabled)) {
		if (likely(status))
			rearmed = handle_overflows(c, status);
		wrmsr_halves(MSR_LVTPC, c->lvtpc, 0);
		wrmsr(MSR_GLOBAL_CTRL, c->global_ctrl);
	} else {
		if (status)
			count_late(c, status);
		wrmsr_halves(MSR_LVTPC, c->lvtpc, 0);
	}
	pmi_account(c, frame, rdtsc(), status, rearmed);
}
