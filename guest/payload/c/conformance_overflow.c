/* Overflows: where they fall, what they leave in GLOBAL_STATUS, which of them ask for a PMI. */
#include "check.h"

static void without_int(void)
{
	for (u32 n = 0; n < GP; n++) {
		select(n, INSTRUCTIONS, BOTH_RINGS);
		set_counter(n, -s.near);
		run(BIT(n));
		YES(wait_status(BIT(n)));
		stop();
		EQ(BIT(n), status());
		YES(counter(n) < BIT(47));
		wrmsr(MSR_GLOBAL_OVF_CTRL, BIT(n));
		EQ(0, status());
	}
	EQ(0, s.pmis);
}

static void with_int(void)
{
	for (u32 n = 0; n < GP; n++) {
		s.pmis = 0;
		wrmsr(MSR_LVTPC, LVT_NMI);
		select(n, INSTRUCTIONS, BOTH_RINGS | EVNTSEL_INT);
		set_counter(n, -s.near);
		run(BIT(n));
		YES(wait_pmi(1));
		stop();
		EQ(1, s.pmis);
		EQ(2, s.vector);
		EQ(BIT(n), s.status);
		YES(counter(n) < BIT(47));
		wrmsr(MSR_GLOBAL_OVF_CTRL, BIT(n));
		EQ(0, status());
	}
}

static void fixed_without_pmi(void)
{
	wrmsr(MSR_FIXED_CTR0, -s.near & COUNTER_MASK);
	wrmsr(MSR_FIXED_CTR_CTRL, 0x003);
	run(BIT(32));
	YES(wait_status(BIT(32)));
	stop();
	EQ(BIT(32), status());
	YES(rdmsr(MSR_FIXED_CTR0) < BIT(47));
	EQ(0, s.pmis);
}

static void fixed_with_pmi(void)
{
	wrmsr(MSR_FIXED_CTR0, -s.near & COUNTER_MASK);
	wrmsr(MSR_FIXED_CTR_CTRL, 0x00b);
	run(BIT(32));
	YES(wait_pmi(1));
	stop();
	EQ(1, s.pmis);
	EQ(BIT(32), s.status);
}

static void fixed_cycles_pmi(void)
{
	NEEDS(!s.exact, SKIP_STEP_CYCLES);
	for (u32 n = 1; n < FIXED_COUNT; n++) {
		s.pmis = 0;
		wrmsr(MSR_LVTPC, LVT_NMI);
		wrmsr(MSR_FIXED_CTR0 + n, -s.near & COUNTER_MASK);
		wrmsr(MSR_FIXED_CTR_CTRL, 0xbull << 4 * n);
		run(BIT(32 + n));
		YES(wait_pmi(1));
		stop();
		EQ(BIT(32 + n), s.status);
		wrmsr(MSR_GLOBAL_OVF_CTRL, BIT(32 + n));
	}
}

static void zero_has_its_width(void)
{
	select(0, INSTRUCTIONS, BOTH_RINGS | EVNTSEL_INT);
	wrmsr(MSR_FIXED_CTR_CTRL, 0x00b);
	run(BIT(32) | 1);
	spend();
	stop();
	EQ(0, status());
	EQ(0, s.pmis);
	YES(counter(0) && counter(0) < BIT(47));
}

/* Bit 31 of a legacy write goes up to bit 47: -N is N below the overflow, not 2^31 below 2^32. */
static void legacy_preset(void)
{
	select(0, INSTRUCTIONS, BOTH_RINGS | EVNTSEL_INT);
	wrmsr(MSR_PMC0, (u32)-s.near);
	run(1);
	YES(wait_pmi(1));
	stop();
	EQ(1, s.status);
}

static void ovf_ctrl_clears_what_is_written(void)
{
	for (u32 n = 0; n < 2; n++) {
		select(n, INSTRUCTIONS, BOTH_RINGS);
		set_counter(n, -s.near);
	}
	wrmsr(MSR_FIXED_CTR0, -s.near & COUNTER_MASK);
	wrmsr(MSR_FIXED_CTR_CTRL, 0x003);
	run(BIT(32) | 3);
	YES(wait_status(BIT(32) | 3));
	stop();
	wrmsr(MSR_GLOBAL_OVF_CTRL, 0);
	EQ(BIT(32) | 3, status());
	wrmsr(MSR_GLOBAL_OVF_CTRL, 2);
	EQ(BIT(32) | 1, status());
	wrmsr(MSR_GLOBAL_OVF_CTRL, BIT(32));
	EQ(1, status());
	wrmsr(MSR_GLOBAL_OVF_CTRL, GLOBAL_MASK);
	EQ(0, status());
}

static void status_is_sticky(void)
{
	select(0, INSTRUCTIONS, BOTH_RINGS);
	set_counter(0, -s.near);
	run(1);
	YES(wait_status(1));
	wrmsr(MSR_PERFEVTSEL0, 0);
	EQ(1, status());
	set_counter(0, 0);
	EQ(1, status());
	run(0);
	EQ(1, status());
	/* INT that comes after the overflow asks for nothing. */
	select(0, INSTRUCTIONS, BOTH_RINGS | EVNTSEL_INT);
	run(1);
	spend();
	stop();
	EQ(0, s.pmis);
	EQ(1, status());
}

static void write_moves_overflow_near(void)
{
	select(0, INSTRUCTIONS, BOTH_RINGS | EVNTSEL_INT);
	run(1);
	spend();
	EQ(0, s.pmis);
	set_counter(0, -s.near);
	YES(wait_pmi(1));
	stop();
	EQ(1, s.pmis);
	EQ(1, s.status);
	wrmsr(MSR_GLOBAL_OVF_CTRL, 1);
	/* The same for a fixed counter. */
	s.pmis = 0;
	wrmsr(MSR_LVTPC, LVT_NMI);
	wrmsr(MSR_FIXED_CTR_CTRL, 0x00b);
	run(BIT(32));
	spend();
	wrmsr(MSR_FIXED_CTR0, -s.near & COUNTER_MASK);
	YES(wait_pmi(1));
	stop();
	EQ(BIT(32), s.status);
}

static void write_moves_overflow_away(void)
{
	/* Far enough that it cannot be over before the write that moves it. */
	u64 far = s.exact ? 1000 : 64 * s.near;

	for (u32 tries = 0; tries < 8; tries++) {
		select(0, INSTRUCTIONS, BOTH_RINGS | EVNTSEL_INT);
		set_counter(0, -far);
		u64 before = rdtsc();
		run(1);
		set_counter(0, 0);
		if (s.exact || rdtsc() - before < far / 4)
			break;
		/* A host that is busy elsewhere for that long: the overflow was due before the write. */
		stop();
		wrmsr(MSR_GLOBAL_OVF_CTRL, 1);
		s.pmis = 0;
		wrmsr(MSR_LVTPC, LVT_NMI);
	}
	EQ(0, status());
	for (u64 spent = 0; spent < 2 * far; spent += 4 * s.near)
		spend();
	stop();
	EQ(0, status());
	EQ(0, s.pmis);
}

static void gating_delays_the_overflow(void)
{
	select(0, INSTRUCTIONS, BOTH_RINGS | EVNTSEL_INT);
	set_counter(0, -1);
	spend();
	EQ(0, status());
	EQ(0, s.pmis);
	EQ(COUNTER_MASK, counter(0));
	run(1);
	YES(wait_pmi(1));
	stop();
	EQ(1, s.status);
}

static void one_overflow_one_pmi(void)
{
	s.unmask = LVT_NMI;
	select(0, INSTRUCTIONS, BOTH_RINGS | EVNTSEL_INT);
	set_counter(0, -s.near);
	run(1);
	YES(wait_pmi(1));
	/* Nothing masks, STATUS is not cleared, the counter runs on: no second one. */
	for (u32 i = 0; i < 4; i++) {
		spend();
		wrmsr(MSR_LVTPC, LVT_NMI);
	}
	stop();
	EQ(1, s.pmis);
	EQ(1, status());
}

static void sampling(void)
{
	s.unmask = LVT_NMI;
	s.rearm = s.near;
	s.rearm_left = 7;
	select(0, INSTRUCTIONS, BOTH_RINGS | EVNTSEL_INT);
	set_counter(0, -s.near);
	run(1);
	YES(wait_pmi(8));
	spend();
	stop();
	EQ(8, s.pmis);
	EQ(1, status());
}

static void together(void)
{
	s.unmask = LVT_NMI;
	for (u32 n = 0; n < GP; n++) {
		select(n, INSTRUCTIONS, BOTH_RINGS | EVNTSEL_INT);
		set_counter(n, -s.near);
	}
	run(BIT(GP) - 1);
	YES(wait_status(BIT(GP) - 1));
	stop();
	/* Between one PMI for all and one each; how many merge is the host's affair. */
	YES(s.pmis >= 1 && s.pmis <= GP);
	EQ(BIT(GP) - 1, status());
}

/* Kept last: what a selector leaves enabled must not raise anything once it is cleared. */
static void cleared_selector(void)
{
	select(0, INSTRUCTIONS, BOTH_RINGS | EVNTSEL_INT);
	set_counter(0, -(s.exact ? 1000 : 64 * s.near));
	run(1);
	wrmsr(MSR_PERFEVTSEL0, 0);
	u64 value = counter(0);
	for (u32 i = 0; i < 24; i++)
		spend();
	EQ(value, counter(0));
	EQ(0, s.pmis);
	EQ(0, status());
}

/* A window of exactly 5 + 4 * 10 instructions, with the counter as far below its overflow as `preset` says. */
static void exact_window(u64 preset)
{
	select(0, INSTRUCTIONS, EVNTSEL_OS);
	set_counter(0, -preset);
	counted_loop(1, 10);
}

static void preset_is_exact(void)
{
	NEEDS_EXACT();
	u64 n = LOOP_INSTRUCTIONS(10);

	exact_window(n + 1);
	EQ(COUNTER_MASK, counter(0));
	EQ(0, status());
	exact_window(n);
	EQ(0, counter(0));
	EQ(1, status());
	wrmsr(MSR_GLOBAL_OVF_CTRL, 1);
	exact_window(1);
	EQ(n - 1, counter(0));
	EQ(1, status());
}

static void preset_one_less_count(void)
{
	NEEDS_EXACT();
	exact_window(LOOP_INSTRUCTIONS(10) - 1);
	EQ(1, counter(0));
	EQ(1, status());
	wrmsr(MSR_GLOBAL_OVF_CTRL, 1);
	wrmsr(MSR_FIXED_CTR0, (1 - LOOP_INSTRUCTIONS(10)) & COUNTER_MASK);
	wrmsr(MSR_FIXED_CTR_CTRL, 1);
	counted_loop(BIT(32), 10);
	EQ(1, rdmsr(MSR_FIXED_CTR0));
	EQ(BIT(32), status());
}

static void pmi_is_exact(void)
{
	NEEDS_EXACT();
	for (u64 n = 1; n <= CONFORMANCE_NOPS; n += 7) {
		s.pmis = 0;
		wrmsr(MSR_LVTPC, LVT_NMI);
		select(0, INSTRUCTIONS, EVNTSEL_OS | EVNTSEL_INT);
		set_counter(0, -n);
		counted_nops(1);
		EQ(1, s.pmis);
		EQ((u64)counted_nops_first + n, s.rip);
		EQ(1, s.status);
		wrmsr(MSR_GLOBAL_OVF_CTRL, 1);
	}
}

static void branch_overflow_is_exact(void)
{
	NEEDS_EXACT();
	for (u64 n = 1; n <= 20; n += 3) {
		select(0, BRANCHES, EVNTSEL_OS);
		set_counter(0, -n);
		counted_loop(1, 10);
		EQ(LOOP_BRANCHES(10) - n, counter(0));
		EQ(1, status());
		wrmsr(MSR_GLOBAL_OVF_CTRL, 1);
	}
	set_counter(0, -(LOOP_BRANCHES(10) + 1));
	counted_loop(1, 10);
	EQ(0, status());
}

void overflow_cases(void)
{
	static void (*const cases[])(void) = {
		without_int, with_int, fixed_without_pmi, fixed_with_pmi, fixed_cycles_pmi, zero_has_its_width, legacy_preset,
		ovf_ctrl_clears_what_is_written, status_is_sticky, write_moves_overflow_near, write_moves_overflow_away,
		gating_delays_the_overflow, one_overflow_one_pmi, sampling, together, cleared_selector, preset_is_exact,
		preset_one_less_count, pmi_is_exact, branch_overflow_is_exact,
	};

	run_cases(cases, sizeof(cases) / sizeof(*cases));
}
