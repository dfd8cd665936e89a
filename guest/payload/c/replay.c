/*
 * A guest that was traced, played back step by step: its accesses in their order, each after the guest's own time. What comes at times of
 * this run are the PMIs. The steps of a handler are made in the NMI, if it comes while it is waited for; one that comes before other steps
 * are done only says so, and the handler's steps are made when they are due.
 */
#include "state.h"

static const Step *next_step(struct cpu *c)
{
	const BootPage *boot = c->boot;
	const Step *s = (const Step *)boot->steps + c->step;

	if (++c->step == boot->step_count)
		c->step = 0;
	c->replayed += s->think;
	return s;
}

static void differs(struct cpu *c, const Step *s)
{
	c->report->otherwise[s->what & STEP_COUNTER ? 0 : 1]++;
}

/* A global control is switched off as a whole, a selector by its enable. */
static u64 switched_off(u32 msr, u64 value)
{
	return msr == MSR_GLOBAL_CTRL || msr == MSR_AMD_GLOBAL_CTL ? 0 : value & ~(u64)EVNTSEL_EN;
}

static void note_enable(struct cpu *c, u32 msr, u64 value)
{
	struct enable *e = c->enables;

	while (e < c->enables + MAX_ENABLES - 1 && e->msr && e->msr != msr)
		e++;
	e->msr = msr;
	e->value = value;
}

/* Between two turns no counter runs. */
static void switch_enables(const struct cpu *c, bool on)
{
	for (const struct enable *e = c->enables; e < c->enables + MAX_ENABLES && e->msr; e++) {
		u64 off = switched_off((u32)e->msr, e->value);

		if (off != e->value)
			wrmsr((u32)e->msr, on ? e->value : off);
	}
}

static void access(struct cpu *c, const Step *s)
{
	u32 msr = (u32)s->what;

	while (rdtsc() - c->last_step < s->think)
		;
	if (s->what & STEP_WRITE) {
		wrmsr(msr, s->value);
		if (s->what & STEP_ENABLE)
			note_enable(c, msr, s->value);
	} else {
		u64 found = rdmsr(msr);

		if (unlikely(found != s->value))
			differs(c, s);
	}
	c->report->played += msr != MSR_LVTPC;
	c->last_step = rdtsc();
}

static void play_handler(struct cpu *c, const Step *s)
{
	while (!(s->what & STEP_LAST)) {
		s = next_step(c);
		access(c, s);
	}
}

/* Taken by the NMI or by the one who waits for it, never by both. */
static bool take_wait(struct cpu *c)
{
	u64 waits = 0;

	__asm__ volatile("xchgq %0, %1" : "+r"(waits), "+m"(c->waits_for));
	return waits;
}

static void await_pmi(struct cpu *c, const Step *s)
{
	u64 most = s->think + PMI_WAIT_US * (c->boot->tsc_hz / 1000000);

	if (!c->pmi_came) {
		c->waits_for = (u64)s;
		while (c->waits_for && !c->pmi_came && rdtsc() - c->last_step < most)
			;
		if (!take_wait(c))
			return; /* the NMI made the handler's steps */
	}
	if (!c->pmi_came)
		c->report->absent++;
	c->pmi_came = false;
	c->last_step = rdtsc();
	play_handler(c, s);
}

void pmi_replay(const struct interrupt *frame)
{
	struct cpu *c = this_cpu();
	const Step *s = (const Step *)c->waits_for;
	bool waited = take_wait(c);

	if (waited) {
		c->last_step = entry_tsc(frame);
		play_handler(c, s);
	} else {
		c->pmi_came = true;
	}
	/* What STATUS says is the steps' affair. */
	pmi_account(c, frame, rdtsc(), ~0ull, waited);
}

/* Until enough PMIs were handled or the time of the steps, not of this run, is over: all arms play the same steps in a turn. */
void replay_turn(struct cpu *c)
{
	Report *report = c->report;
	u64 pmis = c->boot->sample_target, limit = c->boot->limit_us * (c->boot->tsc_hz / 1000000);

	report->measure_begin = c->last_step = rdtsc();
	c->replayed = 0;
	switch_enables(c, true);
	do {
		const Step *s = next_step(c);

		if (!(s->what & STEP_PMI))
			access(c, s);
		else if (await_pmi(c, s), --pmis == 0)
			break;
	} while (c->replayed < limit);
	switch_enables(c, false);
	report->measure_end = rdtsc();
}
