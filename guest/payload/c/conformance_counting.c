/* When a counter counts and when it does not; how much, where the backend counts the event that the guest selected. */
#include "check.h"

static void own_enable(void)
{
	for (u32 n = 0; n < GP; n++)
		wrmsr(MSR_PERFEVTSEL0 + n, INSTRUCTIONS | BOTH_RINGS);
	run(GLOBAL_MASK);
	spend();
	stop();
	for (u32 n = 0; n < GP; n++)
		EQ(0, counter(n));
	for (u32 n = 0; n < FIXED_COUNT; n++)
		EQ(0, rdmsr(MSR_FIXED_CTR0 + n));
}

static void global_enable(void)
{
	for (u32 n = 0; n < GP; n++)
		select(n, INSTRUCTIONS, BOTH_RINGS);
	wrmsr(MSR_FIXED_CTR_CTRL, 0x333);
	spend();
	for (u32 n = 0; n < GP; n++)
		EQ(0, counter(n));
	for (u32 n = 0; n < FIXED_COUNT; n++)
		EQ(0, rdmsr(MSR_FIXED_CTR0 + n));
	EQ(0, status());
}

/* Only what GLOBAL_CTRL lets run moves, and it never moves back. */
static void growth(void)
{
	for (u32 n = 0; n < GP; n++)
		select(n, INSTRUCTIONS, BOTH_RINGS);
	for (u32 n = 0; n < GP; n++) {
		run(BIT(n));
		u64 before = counter(n);
		for (u32 i = 0; i < 4; i++) {
			spend();
			u64 now = counter(n);
			YES(now > before);
			before = now;
		}
		stop();
		for (u32 other = n + 1; other < GP; other++)
			EQ(0, counter(other));
	}
}

static bool fixed_grows(u32 n)
{
	wrmsr(MSR_FIXED_CTR_CTRL, 3ull << 4 * n);
	run(BIT(32 + n));
	u64 before = rdmsr(MSR_FIXED_CTR0 + n);
	spend();
	u64 now = rdmsr(MSR_FIXED_CTR0 + n);
	stop();
	return now > before;
}

static void fixed_instructions(void)
{
	YES(fixed_grows(0));
	EQ(0, rdmsr(MSR_FIXED_CTR0 + 1));
	EQ(0, rdmsr(MSR_FIXED_CTR0 + 2));
}

static void fixed_cycles(void)
{
	NEEDS(!s.exact, SKIP_STEP_CYCLES);
	YES(fixed_grows(1));
	YES(fixed_grows(2));
	EQ(0, rdmsr(MSR_FIXED_CTR0));
}

static void pause_by_own_enable(void)
{
	select(0, INSTRUCTIONS, BOTH_RINGS);
	run(1);
	spend();
	wrmsr(MSR_PERFEVTSEL0, INSTRUCTIONS | BOTH_RINGS);
	u64 value = counter(0);
	YES(value);
	spend();
	EQ(value, counter(0));
	select(0, INSTRUCTIONS, BOTH_RINGS);
	spend();
	YES(counter(0) > value);
}

static void pause_by_global(void)
{
	select(0, INSTRUCTIONS, BOTH_RINGS);
	for (u32 i = 0; i < 3; i++) {
		u64 before = counter(0);
		run(1);
		spend();
		stop();
		u64 value = counter(0);
		YES(value > before);
		spend();
		EQ(value, counter(0));
	}
}

static void pause_fixed(void)
{
	wrmsr(MSR_FIXED_CTR_CTRL, 0x003);
	run(BIT(32));
	spend();
	wrmsr(MSR_FIXED_CTR_CTRL, 0);
	u64 value = rdmsr(MSR_FIXED_CTR0);
	YES(value);
	spend();
	EQ(value, rdmsr(MSR_FIXED_CTR0));
	wrmsr(MSR_FIXED_CTR_CTRL, 0x003);
	spend();
	YES(rdmsr(MSR_FIXED_CTR0) > value);
}

static void fixed_nibbles(void)
{
	wrmsr(MSR_FIXED_CTR_CTRL, 0x003);
	run(BIT(32));
	spend();
	wrmsr(MSR_FIXED_CTR_CTRL, 0x333);
	u64 value = rdmsr(MSR_FIXED_CTR0);
	spend();
	YES(rdmsr(MSR_FIXED_CTR0) > value);
	EQ(0, rdmsr(MSR_FIXED_CTR0 + 1));
	EQ(0, rdmsr(MSR_FIXED_CTR0 + 2));
	wrmsr(MSR_FIXED_CTR_CTRL, 0x330);
	value = rdmsr(MSR_FIXED_CTR0);
	spend();
	EQ(value, rdmsr(MSR_FIXED_CTR0));
}

static void unchanged_writes(void)
{
	select(0, INSTRUCTIONS, BOTH_RINGS);
	wrmsr(MSR_FIXED_CTR_CTRL, 0x003);
	run(BIT(32) | 1);
	for (u32 i = 0; i < 4; i++) {
		spend();
		u64 gp = counter(0), fixed = rdmsr(MSR_FIXED_CTR0);
		select(0, INSTRUCTIONS, BOTH_RINGS);
		wrmsr(MSR_FIXED_CTR_CTRL, 0x003);
		run(BIT(32) | 1);
		YES(counter(0) >= gp);
		YES(rdmsr(MSR_FIXED_CTR0) >= fixed);
		spend();
		YES(counter(0) > gp);
		YES(rdmsr(MSR_FIXED_CTR0) > fixed);
	}
	EQ(0, status());
}

static void write_while_off(void)
{
	select(1, INSTRUCTIONS, BOTH_RINGS);
	run(2);
	spend();
	stop();
	set_counter(1, BIT(40));
	EQ(BIT(40), counter(1));
	run(2);
	spend();
	stop();
	YES(counter(1) > BIT(40) && counter(1) < BIT(41));
}

static void write_while_running(void)
{
	select(0, INSTRUCTIONS, BOTH_RINGS);
	run(1);
	spend();
	set_counter(0, BIT(40));
	u64 value = counter(0);
	YES(value >= BIT(40) && value < BIT(41));
	spend();
	YES(counter(0) > value);
	wrmsr(MSR_PMC0, 0);
	YES(counter(0) < BIT(40));
	EQ(0, status());
}

static void selector_change(void)
{
	select(0, INSTRUCTIONS, BOTH_RINGS);
	run(1);
	spend();
	select(0, BRANCHES, BOTH_RINGS);
	stop();
	u64 value = counter(0);
	YES(value);
	run(1);
	spend();
	stop();
	YES(counter(0) > value);
}

/* Reads of IA32_A_PMCx are the same register's. */
static void aliases(void)
{
	select(3, INSTRUCTIONS, BOTH_RINGS);
	run(8);
	spend();
	u64 first = counter(3), second = rdmsr(MSR_A_PMC0 + 3), third = counter(3);
	YES(first <= second && second <= third && first);
}

static void count_instructions(void)
{
	NEEDS_COUNTS();
	select(0, INSTRUCTIONS, EVNTSEL_OS);
	counted_loop(1, 100);
	COUNTED(LOOP_INSTRUCTIONS(100), counter(0));
	set_counter(0, 0);
	counted_loop(1, 1);
	COUNTED(LOOP_INSTRUCTIONS(1), counter(0));
}

static void count_fixed(void)
{
	NEEDS_COUNTS();
	wrmsr(MSR_FIXED_CTR_CTRL, 1);
	counted_loop(BIT(32), 100);
	COUNTED(LOOP_INSTRUCTIONS(100), rdmsr(MSR_FIXED_CTR0));
}

static void count_branches(void)
{
	NEEDS_COUNTS();
	select(1, BRANCHES, EVNTSEL_OS);
	counted_loop(2, 100);
	COUNTED(LOOP_BRANCHES(100), counter(1));
}

static void count_taken_branches(void)
{
	NEEDS_COUNTS();
	select(2, TAKEN_BRANCHES, EVNTSEL_OS);
	counted_loop(4, 100);
	COUNTED(LOOP_TAKEN(100), counter(2));
}

static void counters_agree(void)
{
	NEEDS_COUNTS();
	for (u32 n = 0; n < GP; n++)
		select(n, n == 3 ? BRANCHES : INSTRUCTIONS, EVNTSEL_OS);
	wrmsr(MSR_FIXED_CTR_CTRL, 1);
	counted_loop(BIT(32) | 0xf, 50);
	for (u32 n = 0; n < 3; n++)
		COUNTED(LOOP_INSTRUCTIONS(50), counter(n));
	COUNTED(LOOP_BRANCHES(50), counter(3));
	COUNTED(LOOP_INSTRUCTIONS(50), rdmsr(MSR_FIXED_CTR0));
}

static void windows_add_up(void)
{
	NEEDS_EXACT();
	select(0, INSTRUCTIONS, EVNTSEL_OS);
	for (u32 i = 0; i < 5; i++) {
		counted_loop(1, 10);
		EQ((i + 1) * LOOP_INSTRUCTIONS(10), counter(0));
	}
	/* By the counter's own enable, GLOBAL_CTRL as before: what runs between is not counted. */
	wrmsr(MSR_PERFEVTSEL0, INSTRUCTIONS | EVNTSEL_OS);
	counted_loop(1, 10);
	EQ(5 * LOOP_INSTRUCTIONS(10), counter(0));
}

static void count_rings(void)
{
	NEEDS_COUNTS();
	select(0, INSTRUCTIONS, EVNTSEL_OS);
	select(1, INSTRUCTIONS, EVNTSEL_USR);
	select(2, INSTRUCTIONS, BOTH_RINGS);
	select(3, INSTRUCTIONS, 0);
	counted_loop(0xf, 50);
	COUNTED(LOOP_INSTRUCTIONS(50), counter(0));
	EQ(0, counter(1));
	COUNTED(LOOP_INSTRUCTIONS(50), counter(2));
	EQ(0, counter(3));
}

static void count_fixed_rings(void)
{
	NEEDS_COUNTS();
	wrmsr(MSR_FIXED_CTR_CTRL, 2);
	counted_loop(BIT(32), 50);
	EQ(0, rdmsr(MSR_FIXED_CTR0));
	wrmsr(MSR_FIXED_CTR_CTRL, 1);
	counted_loop(BIT(32), 50);
	COUNTED(LOOP_INSTRUCTIONS(50), rdmsr(MSR_FIXED_CTR0));
}

void counting_cases(void)
{
	static void (*const cases[])(void) = {
		own_enable, global_enable, growth, fixed_instructions, fixed_cycles, pause_by_own_enable, pause_by_global,
		pause_fixed, fixed_nibbles, unchanged_writes, write_while_off, write_while_running, selector_change, aliases,
		count_instructions, count_fixed, count_branches, count_taken_branches, counters_agree, windows_add_up,
		count_rings, count_fixed_rings,
	};

	run_cases(cases, sizeof(cases) / sizeof(*cases));
}
