/*
 * One `perf stat` after the other: N counting events are set up, count while ring 3 works, are read and torn down again. Each phase runs
 * in one tick with interrupts off, as the calls of perf's event_function do, and each of its N calls is timed.
 *
 *   program  Each event gets its counter (sched_in) and, if one is left, selector and value are written. Linux since 5.5 touches no
 *            register when a disabled event is opened; this is what a register written while nothing counts costs.
 *   enable   __perf_event_enable and ctx_resched: all that counts is stopped and, with the event, scheduled and started again. So
 *            N events take some N * N / 2 stops and starts, until no counter is left.
 *   read     x86_pmu_read of an event that has a counter; others have nothing to be read.
 *   disable  __perf_event_disable: counters off, the event stopped if it counts, counters on.
 *
 * Closing a disabled event touches no register. Each vCPU does all of this for itself, as perf pinned to it would.
 */
#include "state.h"

/* The VMM keeps accounts of exits and host operations by phase. */
static void begin_phase(u64 phase)
{
	ring(DB_PHASE + (u32)phase);
}

/* What the calls of a phase took, once it is over. */
static void log_phase(struct cpu *c, u64 phase, u64 calls, const struct interrupt *frame)
{
	struct interrupt call = *frame;

	for (u64 i = 0; i < calls; i++) {
		call.tsc_low = (u32)c->stamps[i];
		call.tsc_high = c->stamps[i] >> 32;
		log_entry(c, LOG_PHASE + phase, &call, c->stamps[i + 1], c->cycles * CALLS + i, 0);
	}
}

/* Where an event is among the active ones; their number if it is not. */
static u64 place_of(const struct cpu *c, const struct event *e)
{
	u64 n = 0;

	while (n < c->active_count && c->active[n] != e)
		n++;
	return n;
}

/*
 * ctx_resched, or perf_rotate_context. Running time is taken while counters can count: where ring 0 is slow, starting and stopping them
 * takes a good part of a tick.
 */
static void reschedule(struct cpu *c, bool rotate)
{
	u64 now = rdtsc();

	pmu_disable(c);
	pmu_stop_active(c, now);
	if (rotate)
		sched_rotate(c);
	sched_in(c);
	pmu_start_active(c);
	c->sched_in = rdtsc();
	pmu_enable(c);
}

static void program(struct cpu *c, u64 i)
{
	c->event_count = i + 1;
	sched_in(c);
	if (c->active_count == c->event_count)
		pmu_program(&c->events[i]);
}

static void enable(struct cpu *c, u64 i)
{
	c->events[i].enabled_at = rdtsc();
	c->event_count = i + 1;
	reschedule(c, false);
}

/* enable_on_exec: all of them, and one ctx_resched. */
static void enable_all(struct cpu *c)
{
	u64 now = rdtsc();

	for (u64 i = 0; i < c->opened; i++)
		c->events[i].enabled_at = now;
	c->event_count = c->opened;
	reschedule(c, false);
}

static void read(struct cpu *c, u64 i)
{
	struct event *e = &c->events[i];

	if (place_of(c, e) < c->active_count)
		pmu_update(e);
}

static void disable(struct cpu *c, u64 i)
{
	struct event *e = &c->events[i];
	u64 n = place_of(c, e), now = rdtsc();

	pmu_disable(c);
	if (n < c->active_count) {
		pmu_stop(e);
		e->running += now - c->sched_in;
		/* x86_pmu_del */
		for (c->active_count--; n < c->active_count; n++)
			c->active[n] = c->active[n + 1];
	}
	e->enabled += now - e->enabled_at;
	pmu_enable(c);
}

static void each(struct cpu *c, u64 phase, void (*call)(struct cpu *c, u64 i))
{
	begin_phase(phase);
	c->stamps[0] = rdtsc();
	for (u64 i = 0; i < c->opened; i++) {
		call(c, i);
		c->stamps[i + 1] = rdtsc();
	}
}

static void set_up(struct cpu *c, const struct interrupt *frame)
{
	u64 enables = c->opened;

	c->head = 0;
	for (u64 i = 0; i < c->opened; i++) {
		c->events[i].index = -1;
		c->events[i].left = c->events[i].period;
	}
	each(c, PHASE_PROGRAM, program);
	begin_phase(PHASE_NONE);
	log_phase(c, PHASE_PROGRAM, c->opened, frame);

	c->active_count = 0;
	if (c->boot->flags & FLAG_ENABLE_ONCE) {
		enables = 1;
		begin_phase(PHASE_ENABLE);
		c->stamps[0] = rdtsc();
		enable_all(c);
		c->stamps[1] = rdtsc();
	} else {
		each(c, PHASE_ENABLE, enable);
	}
	begin_phase(PHASE_NONE);
	log_phase(c, PHASE_ENABLE, enables, frame);
	c->counting = true;
}

static void tear_down(struct cpu *c, const struct interrupt *frame)
{
	each(c, PHASE_READ, read);
	begin_phase(PHASE_NONE);
	log_phase(c, PHASE_READ, c->opened, frame);
	each(c, PHASE_DISABLE, disable);
	begin_phase(PHASE_NONE);
	log_phase(c, PHASE_DISABLE, c->opened, frame);
	c->event_count = 0;
	c->counting = false;
	c->cycles++;
}

static void rotate(struct cpu *c, const struct interrupt *frame)
{
	begin_phase(PHASE_ROTATE);
	c->stamps[0] = rdtsc();
	reschedule(c, true);
	c->stamps[1] = rdtsc();
	begin_phase(PHASE_NONE);
	log_phase(c, PHASE_ROTATE, 1, frame);
	c->rotations++;
}

/* As Linux leaves an idle PMU: GLOBAL_CTRL on, no selector enabled. */
void stat_begin(struct cpu *c)
{
	c->limit_tsc = c->boot->limit_us * (c->boot->tsc_hz / 1000000);
	c->event_count = 0;
	c->active_count = 0;
	pmu_enable(c);
}

/* False once the last cycle is over. */
bool stat_tick(struct cpu *c, const struct interrupt *frame)
{
	const BootPage *boot = c->boot;

	c->ticks_waited++;
	if (!c->counting) {
		if (c->ticks_waited < boot->gap_ticks)
			return true;
		set_up(c, frame);
	} else if (c->ticks_waited < boot->window_ticks) {
		if (sched_rotation_needed(c))
			rotate(c, frame);
		return true;
	} else {
		tear_down(c, frame);
		if (c->cycles == boot->sample_target || rdtsc() - c->report->measure_begin >= c->limit_tsc)
			return false;
	}
	c->ticks_waited = 0;
	return true;
}
