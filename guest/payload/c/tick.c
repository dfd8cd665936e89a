/* The LAPIC timer drives the run: warm-up (to the first tick), baseline, measured phase with rotation, tail. */
#include "state.h"

void tick(const struct interrupt *frame);

/* Set-ups may take longer than a tick, and must not eat into the time in which events count: their timer is armed again and again. */
static void arm_timer(const struct cpu *c)
{
	if (c->stat_setup)
		wrmsr(MSR_TIMER_COUNT, (u32)c->boot->tick_count);
}

/* The report's figures. */
static void publish(struct cpu *c)
{
	Report *report = c->report;

	for (u64 i = 0; i < c->opened; i++) {
		const struct event *e = &c->events[i];

		report->overflows[e->spec] = e->overflows;
		report->counts[e->spec] = e->count;
		report->enabled[e->spec] = e->enabled;
		report->running[e->spec] = e->running;
		report->periods[e->spec] = (u64)e->period;
	}
	report->ticks = c->ticks;
	report->rotations = c->rotations;
	report->cycles = c->cycles;
	report->nmis = c->nmis;
	report->nmis_without_status = c->nmis_without_status;

	u64 wanted = (c->log_next - c->boot->log_addr) / sizeof(LogEntry), room = c->boot->log_capacity;
	report->logged = wanted < room ? wanted : room;
	report->dropped = wanted - report->logged;
}

/*
 * Between two turns the vCPU is in the doorbell's exit, as if a task switch had taken all events and the timer from it: TSC ticks gone by are
 * nobody's. A tick that is pending by then is taken as the next turn begins, and then none for a whole interval. False if no turn follows.
 */
static bool wait_for_turn(struct cpu *c)
{
	wrmsr(MSR_TIMER_COUNT, 0);
	/* An NMI that became pending in the last handler is taken here at the latest: some KVMs look for it at the next entry only. */
	ring(DB_MEASURE_END);
	publish(c);
	/* What an NMI of the next turn's first entry adds is that turn's. */
	c->nmis = c->nmis_without_status = c->ticks = c->rotations = c->phase_ticks = 0;
	c->log_next = c->boot->log_addr;
	c->target_met = false;
	for (u64 i = 0; i < c->opened; i++) {
		struct event *e = &c->events[i];

		e->overflows = e->count = e->running = e->enabled = e->freq_count = 0;
	}

	u64 stopped = rdtsc();
	ring(DB_TURN_OVER);
	u64 now = rdtsc();

	c->until_target = c->boot->sample_target;
	c->sched_in = c->last_tick = now;
	for (u64 i = 0; i < c->opened; i++)
		c->events[i].freq_tsc += now - stopped;
	wrmsr(MSR_TIMER_COUNT, (u32)c->boot->tick_count);
	return c->boot->flags & FLAG_TURNS;
}

/* The events' periods go on where they were stopped. */
static void next_turn(struct cpu *c)
{
	c->units_at_start = c->user->units;
	c->report->measure_begin = rdtsc();
	pmu_start_active(c);
	pmu_enable(c);
}

static void end_turn(struct cpu *c)
{
	Report *report = c->report;

	if (c->enabled) {
		pmu_disable(c);
		report->measure_end = rdtsc();
		report->measure_units = c->user->units - c->units_at_start;
	}
	for (u64 i = 0; i < c->event_count; i++)
		c->events[i].enabled = report->measure_end - report->measure_begin;
	/* An overflow that was found as the counters were switched off is acknowledged, and its counter not armed again: a start is due. */
	pmu_stop_active(c, report->measure_end);
}

static void begin_measuring(struct cpu *c)
{
	Report *report = c->report;

	ring(DB_MEASURE_BEGIN);
	c->phase = MEASURE;
	c->phase_ticks = 0;
	c->units_at_start = c->user->units;
	wrmsr(MSR_LVTPC, c->lvtpc);
	/* RESET leaves the general-purpose counters' bits set: a counter must not run before all of them are armed. */
	if (pmu_kind == PMU_INTEL)
		wrmsr(MSR_GLOBAL_CTRL, 0);
	else
		amd_off_at_reset();
	report->measure_begin = rdtsc();
	if (c->stat_setup) {
		stat_begin(c);
		return;
	}
	if (c->replays) {
		tick_soon(c);
		return;
	}
	sched_in(c);
	pmu_start_active(c);
	pmu_enable(c);
}

static void end_measuring(struct cpu *c)
{
	end_turn(c);
	/* A late NMI writes the same. */
	c->lvtpc |= LVT_MASKED;
	wrmsr(MSR_LVTPC, c->lvtpc);
	ring(DB_MEASURE_END);
}

_Noreturn static void tail(struct cpu *c)
{
	Report *report = c->report;

	c->phase = TAIL;
	c->phase_ticks = 0;
	arm_timer(c);
	wrmsr(MSR_EOI, 0);
	while (c->boot->tail_ticks > c->phase_ticks) {
		sti_hlt();
		cli();
	}
	wrmsr(MSR_TIMER_COUNT, 0);

	publish(c);
	ring(DB_DONE);
	halt_forever();
}

/*
 * perf_rotate_context, or the task's sched-out and sched-in: all events are stopped, the list turned, and what fits started.
 * An unmoved event is restarted too, as in Linux, where all flexible events are scheduled out first.
 */
static void reschedule(struct cpu *c, const struct interrupt *frame, bool rotate)
{
	pmu_disable(c);
	pmu_stop_active(c, rdtsc());
	if (rotate) {
		sched_rotate(c);
		sched_in(c);
	}
	u64 started = pmu_start_active(c);
	pmu_enable(c);
	c->rotations++;
	log_entry(c, LOG_ROTATION, frame, rdtsc(), 0, started);
}

static void measure_tick(struct cpu *c, const struct interrupt *frame)
{
	Report *report = c->report;

	if (c->stat_setup) {
		if (stat_tick(c, frame))
			return;
	} else if (c->replays) {
		replay_turn(c);
	} else if (!c->target_met && c->phase_ticks < c->boot->max_ticks) {
		if (c->freq)
			pmu_adjust_tick(c);
		if (sched_rotation_needed(c))
			reschedule(c, frame, true);
		else if (c->boot->flags & FLAG_TASK_SWITCH)
			reschedule(c, frame, false);
		if (!c->target_met)
			return;
	}
	if (c->turns) {
		end_turn(c);
		if (wait_for_turn(c)) {
			if (c->replays)
				tick_soon(c);
			else
				next_turn(c);
			return;
		}
		report->measure_begin = report->measure_end = c->sched_in;
	}
	end_measuring(c);
	tail(c);
}

static void baseline_tick(struct cpu *c, u64 now)
{
	Report *report = c->report;

	if (c->phase == WARM_UP) {
		c->phase = BASELINE;
		c->phase_ticks = 0;
		c->units_at_start = c->user->units;
		report->baseline_begin = now;
	}
	if (c->phase_ticks >= c->boot->baseline_ticks) {
		report->baseline_end = now;
		report->baseline_units = c->user->units - c->units_at_start;
		if (c->turns && !wait_for_turn(c))
			tail(c);
		begin_measuring(c);
	}
}

void tick(const struct interrupt *frame)
{
	struct cpu *c = this_cpu();
	u64 now = entry_tsc(frame);

	c->tick_tsc = now - c->last_tick;
	c->last_tick = now;
	c->ticks++;
	c->phase_ticks++;
	if (c->phase == MEASURE)
		measure_tick(c, frame);
	else if (c->phase == TAIL)
		ring(DB_TAIL_TICK);
	else
		baseline_tick(c, now);
	if (c->phase == MEASURE && c->boot->flags & FLAG_TIME_LOOP)
		time_loop(c);
	arm_timer(c);
	wrmsr(MSR_EOI, 0);
}
