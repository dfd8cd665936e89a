/* AMD's registers, and when its counters count. */
#include "amd_pmu.h"
#include "cases.h"

#define NEEDS_V2() NEEDS(s.pmu == PMU_AMD_V2, SKIP_NEEDS_PERFMON_V2)

static void reset(void)
{
	for (u32 n = 0; n < AMD_GP; n++) {
		EQ(0, rdmsr(amd_ctl(n)));
		EQ(0, amd_counter(n));
	}
	if (s.pmu == PMU_AMD_V2) {
		EQ(AMD_ALL, rdmsr(MSR_AMD_GLOBAL_CTL));
		EQ(0, rdmsr(MSR_AMD_GLOBAL_STATUS));
	}
}

static void cpuid_leaves(void)
{
	struct cpuid features = cpuid(0x80000001);
	u32 family = (features.a >> 8 & 0xf) + (features.a >> 20 & 0xff);

	/* Of the processors here 19H; KVM shows its host's, and those before 17H have another PMU. */
	YES(family == 0x17 || family == 0x18 || family == 0x19 || family == 0x1a);
	EQ(1, features.c >> 23 & 1);
	EQ(0, features.c >> 24 & 1);
	EQ(0, features.c >> 28 & 1);
	EQ(0, cpuid(1).c >> 15 & 1);
	if (s.pmu == PMU_AMD_V2)
		EQ(AMD_GP, cpuid(0x80000022).b & 0xf);
}

static void absent_counters(void)
{
	static const u32 absent[] = { MSR_AMD_CTL0 + 2 * AMD_GP, MSR_AMD_CTR0 + 2 * AMD_GP };

	for (u32 i = 0; i < sizeof(absent) / sizeof(*absent); i++) {
		EQ(absent[i], faults_read(absent[i]) ? absent[i] : 0);
		EQ(absent[i], faults_write(absent[i], 0) ? absent[i] : 0);
	}
}

static void selector_bits(void)
{
	for (u32 n = 0; n < AMD_GP; n++) {
		u64 off = ~(u64)EVNTSEL_EN;

		EQ(0, faults_write(amd_ctl(n), off));
		EQ(AMD_SELECTOR & off, rdmsr(amd_ctl(n)));
		wrmsr(amd_ctl(n), 0x100001234ull * (n + 1));
	}
	for (u32 n = 0; n < AMD_GP; n++)
		EQ(0x100001234ull * (n + 1), rdmsr(amd_ctl(n)));
}

static void counter_width(void)
{
	for (u32 n = 0; n < AMD_GP; n++) {
		EQ(0, faults_write(amd_ctr(n), ~0ull));
		EQ(COUNTER_MASK, amd_counter(n));
		wrmsr(amd_ctr(n), 0x80000000);
		EQ(0x80000000, amd_counter(n));
	}
}

static void aliases(void)
{
	for (u32 n = 0; n < 4; n++) {
		wrmsr(MSR_AMD_LEGACY_CTL0 + n, 0x1000300c0ull + n);
		wrmsr(MSR_AMD_LEGACY_CTR0 + n, 0x123400000000ull + n);
		EQ(0x1000300c0ull + n, rdmsr(amd_ctl(n)));
		EQ(0x123400000000ull + n, amd_counter(n));
	}
	for (u32 n = 0; n < 4; n++) {
		wrmsr(amd_ctl(n), 0x20076 + n);
		amd_set(n, 77 + n);
		EQ(0x20076 + n, rdmsr(MSR_AMD_LEGACY_CTL0 + n));
		EQ(77 + n, rdmsr(MSR_AMD_LEGACY_CTR0 + n));
	}
	amd_set(0, 0);
	wrmsr(MSR_AMD_LEGACY_CTL0, INSTRUCTIONS | BOTH_RINGS | EVNTSEL_EN);
	spend();
	YES(amd_counter(0));
}

static void global_absent(void)
{
	NEEDS(s.pmu == PMU_AMD_CORE, SKIP_NEEDS_CORE);
	for (u32 msr = MSR_AMD_GLOBAL_STATUS; msr <= MSR_AMD_STATUS_SET; msr++) {
		EQ(msr, faults_read(msr) ? msr : 0);
		EQ(msr, faults_write(msr, 0) ? msr : 0);
	}
}

static void global_ctl_bits(void)
{
	NEEDS_V2();
	EQ(0, faults_write(MSR_AMD_GLOBAL_CTL, ~0ull));
	EQ(AMD_ALL, rdmsr(MSR_AMD_GLOBAL_CTL));
	for (u32 n = 0; n < AMD_GP; n++) {
		wrmsr(MSR_AMD_GLOBAL_CTL, BIT(n));
		EQ(BIT(n), rdmsr(MSR_AMD_GLOBAL_CTL));
	}
}

static void status_read_only(void)
{
	NEEDS_V2();
	/* What StatusSet does is the next case's affair: a PMU that refuses it keeps what its status was. */
	faults_write(MSR_AMD_STATUS_SET, 5);
	u64 before = rdmsr(MSR_AMD_GLOBAL_STATUS);
	EQ(0, faults_write(MSR_AMD_GLOBAL_STATUS, before ^ 2));
	EQ(before, rdmsr(MSR_AMD_GLOBAL_STATUS));
}

static void status_set_clr(void)
{
	NEEDS_V2();
	EQ(0, faults_write(MSR_AMD_STATUS_SET, ~0ull));
	EQ(AMD_ALL, rdmsr(MSR_AMD_GLOBAL_STATUS));
	EQ(0, faults_write(MSR_AMD_STATUS_CLR, ~0x12ull));
	EQ(0x12, rdmsr(MSR_AMD_GLOBAL_STATUS));
	EQ(0, rdmsr(MSR_AMD_STATUS_SET));
	EQ(0, rdmsr(MSR_AMD_STATUS_CLR));
	spend();
	EQ(0, s.pmis);
}

static void own_enable(void)
{
	for (u32 n = 0; n < AMD_GP; n++)
		wrmsr(amd_ctl(n), INSTRUCTIONS | BOTH_RINGS);
	spend();
	for (u32 n = 0; n < AMD_GP; n++)
		EQ(0, amd_counter(n));
}

static void global_enable(void)
{
	NEEDS_V2();
	wrmsr(MSR_AMD_GLOBAL_CTL, 0);
	for (u32 n = 0; n < AMD_GP; n++)
		amd_start(n, INSTRUCTIONS, BOTH_RINGS);
	spend();
	for (u32 n = 0; n < AMD_GP; n++)
		EQ(0, amd_counter(n));
	wrmsr(MSR_AMD_GLOBAL_CTL, BIT(3));
	spend();
	wrmsr(MSR_AMD_GLOBAL_CTL, 0);
	u64 value = amd_counter(3);
	YES(value);
	spend();
	EQ(value, amd_counter(3));
	EQ(0, amd_counter(2));
}

/* Only what its own enable lets run moves, and it never moves back. */
static void growth(void)
{
	for (u32 n = 0; n < AMD_GP; n++) {
		amd_start(n, INSTRUCTIONS, BOTH_RINGS);
		u64 before = amd_counter(n);
		for (u32 i = 0; i < 4; i++) {
			spend();
			u64 now = amd_counter(n);
			YES(now > before);
			before = now;
		}
		amd_stop(n);
		for (u32 other = n + 1; other < AMD_GP; other++)
			EQ(0, amd_counter(other));
	}
}

static void pause(void)
{
	for (u32 i = 0; i < 3; i++) {
		u64 before = amd_counter(5);
		amd_start(5, INSTRUCTIONS, BOTH_RINGS);
		spend();
		amd_stop(5);
		u64 value = amd_counter(5);
		YES(value > before);
		spend();
		EQ(value, amd_counter(5));
	}
}

static void write_while_running(void)
{
	amd_start(0, INSTRUCTIONS, BOTH_RINGS);
	spend();
	amd_set(0, BIT(40));
	u64 value = amd_counter(0);
	YES(value >= BIT(40) && value < BIT(41));
	spend();
	YES(amd_counter(0) > value);
	amd_set(0, 0);
	YES(amd_counter(0) < BIT(40));
}

static void select_12_bits(void)
{
	u64 high = 0xfull << 32 | INSTRUCTIONS;

	for (u32 n = 0; n < AMD_GP; n++) {
		amd_start(n, high, BOTH_RINGS);
		EQ(high | BOTH_RINGS | EVNTSEL_EN, rdmsr(amd_ctl(n)));
	}
	amd_stop_all();
	/* That they select shows in exact counts alone. */
	if (!s.exact)
		return;
	/* Event 0x1c0 is not event 0xc0. */
	amd_start(0, BIT(32) | INSTRUCTIONS, BOTH_RINGS);
	amd_start(1, INSTRUCTIONS, BOTH_RINGS);
	spend();
	amd_stop_all();
	EQ(0, amd_counter(0));
	YES(amd_counter(1));
}

/* The guest has no SVM, so EFER.SVME is 0: each of the bits lets the counter count nothing. */
static void guest_host_only(void)
{
	for (u64 only = 1; only <= 3; only++) {
		amd_start(0, INSTRUCTIONS | only << 40, BOTH_RINGS);
		EQ(only, rdmsr(amd_ctl(0)) >> 40);
		spend();
		EQ(0, amd_counter(0));
	}
	amd_start(0, INSTRUCTIONS, BOTH_RINGS);
	spend();
	YES(amd_counter(0));
}

static void count_instructions(void)
{
	NEEDS_COUNTS();
	for (u32 n = 0; n < AMD_GP; n++) {
		counted_loop_by(INSTRUCTIONS | EVNTSEL_OS | EVNTSEL_EN, 100, amd_ctl(n));
		COUNTED(LOOP_INSTRUCTIONS(100), amd_counter(n));
	}
}

static void count_branches(void)
{
	NEEDS_COUNTS();
	counted_loop_by(AMD_BRANCHES | EVNTSEL_OS | EVNTSEL_EN, 100, amd_ctl(0));
	COUNTED(LOOP_BRANCHES(100), amd_counter(0));
	counted_loop_by(AMD_TAKEN_BRANCHES | EVNTSEL_OS | EVNTSEL_EN, 100, amd_ctl(1));
	COUNTED(LOOP_TAKEN(100), amd_counter(1));
}

static void count_rings(void)
{
	NEEDS_COUNTS();
	counted_loop_by(INSTRUCTIONS | EVNTSEL_USR | EVNTSEL_EN, 50, amd_ctl(0));
	EQ(0, amd_counter(0));
	counted_loop_by(INSTRUCTIONS | BOTH_RINGS | EVNTSEL_EN, 50, amd_ctl(1));
	COUNTED(LOOP_INSTRUCTIONS(50), amd_counter(1));
	counted_loop_by(INSTRUCTIONS | EVNTSEL_EN, 50, amd_ctl(2));
	EQ(0, amd_counter(2));
}

void amd_register_and_counting_cases(void)
{
	static void (*const cases[])(void) = {
		reset, cpuid_leaves, absent_counters, selector_bits, counter_width, aliases, global_absent, global_ctl_bits,
		status_read_only, status_set_clr, rdpmc_of_no_counter, own_enable, global_enable, growth, pause,
		write_while_running, select_12_bits, guest_host_only, count_instructions, count_branches, count_rings,
	};

	run_cases(cases, sizeof(cases) / sizeof(*cases));
}
