/* The LAPIC's timer, when its next tick is not waited for. */
#include "state.h"

/* Shorter periods of its timer KVM would not keep (min_timer_period_us). */
#define SOON 250000

/* Nothing is left to be sampled in this turn. */
void tick_soon(const struct cpu *c)
{
	if (c->boot->tick_count > SOON)
		wrmsr(MSR_TIMER_COUNT, SOON);
}
