/*
 * Which events count, and where: perf's flexible events of one context.
 *
 * ctx_flexible_sched_in adds events in list order until the first that does not fit. x86_schedule_events gives each its last counter if
 * all of them can have theirs, else assigns anew: events with fewer possible counters first, fixed counters before general ones.
 * Adding one by one and assigning once at the end gives the same result, because only the last assignment is applied.
 */
#include "state.h"

bool sched_rotation_needed(const struct cpu *c)
{
	return c->active_count < c->event_count;
}

/* rotate_ctx: the first active event, which is the first of the list, goes to its end. */
void sched_rotate(struct cpu *c)
{
	c->head = c->head + 1 == c->event_count ? 0 : c->head + 1;
}

/* The longest beginning of the list that fits. */
static void collect(struct cpu *c)
{
	u64 gp_free = c->boot->gp_counters, fixed_used = 0, fixed_movable = 0, n = 0;

	for (u64 i = c->head; n < c->event_count; i = i + 1 == c->event_count ? 0 : i + 1) {
		struct event *e = &c->events[i];

		if (e->fixed_mask & ~fixed_used) {
			fixed_used |= e->fixed_mask;
			if (e->takes_gp)
				fixed_movable |= e->fixed_mask;
		} else if (gp_free && (e->takes_gp || (e->fixed_mask & fixed_movable))) {
			/* Either this event takes it, or the one it drives from its fixed counter. */
			if (!e->takes_gp)
				fixed_movable &= ~e->fixed_mask;
			gp_free--;
		} else {
			break;
		}
		c->active[n++] = e;
	}
	c->active_count = n;
}

static bool assign_as_before(const struct cpu *c)
{
	u64 used = 0;

	for (u64 i = 0; i < c->active_count; i++) {
		s64 index = c->active[i]->index;

		if (index < 0 || (used >> index & 1))
			return false;
		used |= 1ull << index;
	}
	return true;
}

/* x86_assign_hw_event */
static void assign(struct event *e, u32 index)
{
	e->index = index;
	if (index >= FIXED) {
		e->counter_msr = MSR_FIXED_CTR0 + index - FIXED;
		e->fixed_shift = (index - FIXED) * 4;
	} else if (unlikely(pmu_kind != PMU_INTEL)) {
		e->counter_msr = MSR_AMD_CTR0 + 2 * index;
		e->config_msr = MSR_AMD_CTL0 + 2 * index;
	} else {
		e->counter_msr = MSR_PMC0 + index;
		e->config_msr = MSR_PERFEVTSEL0 + index;
	}
}

static void assign_anew(struct cpu *c)
{
	u64 fixed_used = 0;
	u32 gp = 0;

	for (u64 i = 0; i < c->active_count; i++) {
		struct event *e = c->active[i];

		if (!e->takes_gp) {
			fixed_used |= e->fixed_mask;
			assign(e, (u32)__builtin_ctzll(e->fixed_mask));
		}
	}
	for (u64 i = 0; i < c->active_count; i++)
		if (!c->active[i]->fixed_mask)
			assign(c->active[i], gp++);
	for (u64 i = 0; i < c->active_count; i++) {
		struct event *e = c->active[i];

		if (!e->takes_gp || !e->fixed_mask)
			continue;
		if (e->fixed_mask & ~fixed_used) {
			fixed_used |= e->fixed_mask;
			assign(e, (u32)__builtin_ctzll(e->fixed_mask));
		} else {
			assign(e, gp++);
		}
	}
}

void sched_in(struct cpu *c)
{
	collect(c);
	if (!assign_as_before(c))
		assign_anew(c);
}
