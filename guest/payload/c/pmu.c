/*
 * The PMU driver: the register accesses of Linux's x86 perf driver (arch/x86/events/core.c and intel/core.c, 5.4 to 6.x), with
 * RDMSR for RDPMC; where AMD's differ, amd.c has them. One difference: FIXED_CTR_CTRL is read back each time, as kernels before 6.2 do.
 */
#include "state.h"

void pmu_setup(struct cpu *c)
{
	const BootPage *boot = c->boot;
	u64 n = 0;

	c->gp_mask = (1ull << boot->gp_counters) - 1;
	c->global_ctrl = c->gp_mask | ((1ull << boot->fixed_counters) - 1) << FIXED;
	c->map = c->maps[0];
	c->lvtpc = LVT_NMI;
	c->log_kind = LOG_ROTATION;
	for (u64 i = 0; i < boot->event_count; i++) {
		const EventSpec *spec = &boot->events[i];
		struct event *e = &c->events[n];

		e->spec = i;
		e->config = (spec->selector & ~(u64)EVNTSEL_EN) | EVNTSEL_EN;
		e->fixed_bits = (spec->selector & EVNTSEL_OS ? 1 : 0) | (spec->selector & EVNTSEL_USR ? 2 : 0) |
				(spec->selector & EVNTSEL_INT ? 8 : 0);
		if (spec->fixed && spec->fixed <= boot->fixed_counters)
			e->fixed_mask = 1ull << (FIXED + spec->fixed - 1);
		e->takes_gp = boot->gp_counters && (!spec->fixed || (spec->selector & 0xff));
		if (!e->fixed_mask && !e->takes_gp)
			continue; /* no counter for it: Linux would refuse to open it */
		e->period = spec->period ? (s64)spec->period : MAX_PERIOD;
		e->left = e->period;
		e->freq = spec->period && boot->freq_hz;
		if (e->freq)
			c->freq = true;
		e->index = -1;
		if (spec->period)
			c->log_kind = LOG_NMI;
		n++;
	}
	c->opened = c->event_count = n;
}

/* x86_pmu_disable. An NMI between the two lines finds the driver off and leaves it so. */
void pmu_disable(struct cpu *c)
{
	if (!c->enabled)
		return;
	c->enabled = false;
	if (unlikely(pmu_kind != PMU_INTEL)) {
		amd_disable_all(c);
		return;
	}
	wrmsr(MSR_GLOBAL_CTRL, 0);
}

/*
 * x86_pmu_enable. Until here overflow handlers see the map of what counted before: whatever is reported while the counters are
 * off, those events caused.
 */
void pmu_enable(struct cpu *c)
{
	struct event **map = c->map == c->maps[0] ? c->maps[1] : c->maps[0];

	if (unlikely(pmu_kind != PMU_INTEL)) {
		c->enabled = true;
		amd_enable_all(c);
		return;
	}
	for (u64 i = 0; i < 64; i = i == MAX_GP_COUNTERS - 1 ? FIXED : i == FIXED + MAX_FIXED_COUNTERS - 1 ? 64 : i + 1)
		map[i] = 0;
	for (u64 i = 0; i < c->active_count; i++)
		map[c->active[i]->index] = c->active[i];
	c->map = map;
	c->enabled = true;
	wrmsr(MSR_GLOBAL_CTRL, c->global_ctrl);
}

/* x86_perf_event_update */
void pmu_update(struct event *e)
{
	u64 now = rdmsr(e->counter_msr);
	u64 delta = (now - e->prev) << COUNTER_SHIFT >> COUNTER_SHIFT;

	e->prev = now;
	e->count += delta;
	e->left -= (s64)delta;
}

/* x86_perf_event_set_period */
static void set_period(struct event *e)
{
	s64 left = e->left;

	if (left <= 0) {
		left += e->period;
		if (left <= 0)
			left = e->period;
		e->left = left;
	}
	if (left < 2)
		left = 2;
	if (left > MAX_PERIOD)
		left = MAX_PERIOD;
	e->prev = (u64)-left;
	wrmsr_halves(e->counter_msr, (u32)-left, 0xffff);
}

/* intel_pmu_enable_fixed and _disable_fixed */
static void set_fixed(const struct event *e, u64 bits)
{
	u64 ctrl = rdmsr(MSR_FIXED_CTR_CTRL);

	wrmsr(MSR_FIXED_CTR_CTRL, (ctrl & ~(0xfull << e->fixed_shift)) | bits << e->fixed_shift);
}

/* x86_pmu_stop with PERF_EF_UPDATE */
void pmu_stop(struct event *e)
{
	if (e->index >= FIXED)
		set_fixed(e, 0);
	else
		wrmsr(e->config_msr, e->config & ~(u64)EVNTSEL_EN);
	if (unlikely(pmu_kind != PMU_INTEL))
		amd_stopped(this_cpu(), e);
	pmu_update(e);
}

/*
 * An event that was just opened gets its counter ready: selector without EN, its period. Linux leaves both to the first enable; see
 * stat.c.
 */
void pmu_program(struct event *e)
{
	if (e->index >= FIXED)
		set_fixed(e, 0);
	else
		wrmsr(e->config_msr, e->config & ~(u64)EVNTSEL_EN);
	set_period(e);
}

/* x86_pmu_start with PERF_EF_RELOAD */
static void start(struct event *e)
{
	set_period(e);
	if (e->index >= FIXED)
		set_fixed(e, e->fixed_bits);
	else if (unlikely(pmu_kind != PMU_INTEL))
		amd_start(this_cpu(), e);
	else
		wrmsr(e->config_msr, e->config);
}

void pmu_stop_active(struct cpu *c, u64 now)
{
	u64 ran = now - c->sched_in;

	for (u64 i = 0; i < c->active_count; i++) {
		struct event *e = c->active[i];

		pmu_stop(e);
		e->running += ran;
	}
}

/* The bits of the counters started. */
u64 pmu_start_active(struct cpu *c)
{
	u64 started = 0;

	c->sched_in = rdtsc();
	for (u64 i = 0; i < c->active_count; i++) {
		start(c->active[i]);
		started |= 1ull << c->active[i]->index;
	}
	return started;
}

/* perf_adjust_period: towards `freq_hz` overflows per second, by an eighth of the distance. */
static void adjust_period(struct event *e, u64 elapsed, u64 count, const BootPage *boot)
{
	u64 low, high, divisor = elapsed * boot->freq_hz, period = MAX_PERIOD, rest;

	__asm__("mulq %3" : "=a"(low), "=d"(high) : "0"(count), "rm"(boot->tsc_hz) : "cc");
	if (high < divisor) /* else the quotient has more than 64 bits, or there is no divisor */
		__asm__("divq %4" : "=a"(period), "=d"(rest) : "0"(low), "1"(high), "rm"(divisor) : "cc");
	if (period > MAX_PERIOD)
		period = MAX_PERIOD;

	s64 delta = (s64)period - e->period;
	e->period += (delta >= 0 ? delta + 7 : delta - 7) / 8;
	if (e->period < 1)
		e->period = 1;
}

/* The frequency part of __perf_event_overflow. */
void pmu_adjust_overflow(struct event *e, u64 now, u64 tick, const BootPage *boot)
{
	u64 elapsed = now - e->freq_tsc;

	e->freq_tsc = now;
	if (elapsed < 2 * tick) {
		adjust_period(e, elapsed, (u64)e->period, boot);
		if (e->left > 8 * e->period) {
			/* Linux stops and restarts the event here: the period just written is far too long. */
			e->left = 0;
			set_period(e);
		}
	}
}

/* perf_adjust_freq_unthr_context, at each timer tick. */
void pmu_adjust_tick(struct cpu *c)
{
	pmu_disable(c);
	for (u64 i = 0; i < c->active_count; i++) {
		struct event *e = c->active[i];

		if (!e->freq)
			continue;
		pmu_stop(e);
		u64 count = e->count - e->freq_count;
		e->freq_count = e->count;
		if (count) {
			adjust_period(e, c->tick_tsc, count, c->boot);
			if (e->left > 8 * e->period)
				e->left = 0;
		}
		start(e);
	}
	pmu_enable(c);
}
