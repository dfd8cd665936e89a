/* AMD's overflows, and the way of a PMI: LVTPC stays as the guest wrote it. */
#include "amd_pmu.h"
#include "cases.h"

static bool wait_passed(u32 n)
{
	for (u64 end = rdtsc() + s.patience; rdtsc() < end;) {
		spend();
		if (amd_passed(n))
			return true;
	}
	return false;
}

static void arm(u32 n, u64 count, u64 flags)
{
	amd_set(n, -count);
	amd_start(n, INSTRUCTIONS, BOTH_RINGS | flags);
}

static u64 v2_status(void)
{
	return amd_status(s.pmu);
}

static u64 expected_status(u64 bits)
{
	return s.pmu == PMU_AMD_V2 ? bits : 0;
}

static void without_int(void)
{
	for (u32 n = 0; n < AMD_GP; n++) {
		arm(n, s.near, 0);
		YES(wait_passed(n));
		amd_stop(n);
		EQ(expected_status(BIT(n + 1) - 1), v2_status());
	}
	EQ(0, s.pmis);
}

static void with_int(void)
{
	for (u32 n = 0; n < AMD_GP; n++) {
		s.pmis = 0;
		arm(n, s.near, EVNTSEL_INT);
		YES(wait_pmi(1));
		amd_stop(n);
		EQ(1, s.pmis);
		EQ(2, s.vector);
		EQ(expected_status(BIT(n + 1) - 1), s.status);
		YES(amd_passed(n));
	}
}

static void zero_has_its_width(void)
{
	amd_start(0, INSTRUCTIONS, BOTH_RINGS | EVNTSEL_INT);
	spend();
	amd_stop(0);
	YES(amd_counter(0) && amd_passed(0));
	EQ(0, v2_status());
	EQ(0, s.pmis);
}

static void write_moves(void)
{
	amd_start(0, INSTRUCTIONS, BOTH_RINGS | EVNTSEL_INT);
	spend();
	EQ(0, s.pmis);
	amd_set(0, -s.near);
	YES(wait_pmi(1));
	amd_stop(0);
	EQ(1, s.pmis);
}

static void status_is_sticky(void)
{
	NEEDS(s.pmu == PMU_AMD_V2, SKIP_NEEDS_PERFMON_V2);
	arm(0, s.near, 0);
	YES(wait_passed(0));
	amd_stop(0);
	amd_set(0, 0);
	EQ(1, v2_status());
	/* INT that comes after the overflow asks for nothing. */
	amd_start(0, INSTRUCTIONS, BOTH_RINGS | EVNTSEL_INT);
	spend();
	amd_stop(0);
	EQ(0, s.pmis);
	EQ(1, v2_status());
	wrmsr(MSR_AMD_STATUS_CLR, 1);
	EQ(0, v2_status());
}

static void sampling(void)
{
	s.rearm = s.near;
	s.rearm_left = 7;
	arm(0, s.near, EVNTSEL_INT);
	YES(wait_pmi(8));
	spend();
	amd_stop(0);
	EQ(8, s.pmis);
	EQ(LVT_NMI, rdmsr(MSR_LVTPC));
}

static void together(void)
{
	for (u32 n = 0; n < AMD_GP; n++)
		arm(n, s.near, EVNTSEL_INT);
	for (u32 n = 0; n < AMD_GP; n++)
		YES(wait_passed(n));
	amd_stop_all();
	/* Between one PMI for all and one each; how many merge is the host's affair. */
	YES(s.pmis >= 1 && s.pmis <= AMD_GP);
	EQ(expected_status(AMD_ALL), v2_status());
}

static void preset_is_exact(void)
{
	NEEDS_EXACT();
	u64 n = LOOP_INSTRUCTIONS(10), on = INSTRUCTIONS | EVNTSEL_OS | EVNTSEL_EN;

	amd_set(0, -(n + 1));
	counted_loop_by(on, 10, amd_ctl(0));
	EQ(COUNTER_MASK, amd_counter(0));
	EQ(0, v2_status());
	amd_set(0, -n);
	counted_loop_by(on, 10, amd_ctl(0));
	EQ(0, amd_counter(0));
	EQ(expected_status(1), v2_status());
}

static void pmi_is_exact(void)
{
	NEEDS_EXACT();
	for (u64 n = 1; n <= CONFORMANCE_NOPS; n += 7) {
		s.pmis = 0;
		amd_set(0, -n);
		counted_nops_by(INSTRUCTIONS | EVNTSEL_OS | EVNTSEL_INT | EVNTSEL_EN, 0, amd_ctl(0));
		EQ(1, s.pmis);
		EQ((u64)counted_nops_by_first + n, s.rip);
	}
}

static void not_masked(void)
{
	arm(0, s.near, EVNTSEL_INT);
	YES(wait_pmi(1));
	amd_stop(0);
	EQ(LVT_NMI, s.lvtpc);
	EQ(LVT_NMI, rdmsr(MSR_LVTPC));
}

static void next_without_unmask(void)
{
	for (u64 pmis = 1; pmis <= 4; pmis++) {
		arm(pmis, s.near, EVNTSEL_INT);
		YES(wait_pmi(pmis));
		amd_stop(pmis);
		EQ(pmis, s.pmis);
	}
}

static void masked(void)
{
	wrmsr(MSR_LVTPC, LVT_NMI | LVT_MASKED);
	arm(0, s.near, EVNTSEL_INT);
	YES(wait_passed(0));
	amd_stop(0);
	EQ(0, s.pmis);
	EQ(expected_status(1), v2_status());
	/* What was masked is gone: unmasking brings nothing. */
	wrmsr(MSR_LVTPC, LVT_NMI);
	spend();
	EQ(0, s.pmis);
}

static void fixed_vector(void)
{
	wrmsr(MSR_LVTPC, VECTOR_PMI);
	arm(0, s.near, EVNTSEL_INT);
	__asm__ volatile("sti" : : : "memory");
	bool came = wait_pmi(1);
	cli();
	amd_stop(0);
	YES(came);
	EQ(1, s.pmis);
	EQ(VECTOR_PMI, s.vector);
	EQ(VECTOR_PMI, s.lvtpc);
}

static void hlt_is_woken(void)
{
	/* A stand-in stops with its thread, so the timer wakes in between; with exact counts nothing but the PMI does. */
	if (s.exact) {
		amd_set(0, -3);
		__asm__ volatile("wrmsr; nop; nop; hlt" : : "c"(amd_ctl(0)),
				 "a"(INSTRUCTIONS | EVNTSEL_OS | EVNTSEL_INT | EVNTSEL_EN), "d"(0) : "memory");
		amd_stop(0);
		EQ(1, s.pmis);
		return;
	}
	wrmsr(MSR_LVT_TIMER, LVT_PERIODIC | VECTOR_TIMER);
	wrmsr(MSR_TIMER_COUNT, 200000);
	arm(0, s.near, EVNTSEL_INT);
	for (u32 i = 0; i < 5000 && !s.pmis; i++)
		sti_hlt();
	wrmsr(MSR_TIMER_COUNT, 0);
	wrmsr(MSR_LVT_TIMER, LVT_MASKED | VECTOR_TIMER);
	cli();
	amd_stop(0);
	EQ(1, s.pmis);
}

static void not_frozen(void)
{
	arm(0, s.near, EVNTSEL_INT);
	YES(wait_pmi(1));
	u64 value = amd_counter(0);
	spend();
	YES(amd_counter(0) > value);
	EQ(1, s.pmis);
}

void amd_overflow_and_delivery_cases(void)
{
	static void (*const cases[])(void) = {
		without_int, with_int, zero_has_its_width, write_moves, status_is_sticky, sampling, together, preset_is_exact,
		pmi_is_exact, not_masked, next_without_unmask, masked, fixed_vector, hlt_is_woken, not_frozen,
	};

	run_cases(cases, sizeof(cases) / sizeof(*cases));
}
