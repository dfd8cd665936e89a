/*
 * The conformance payload: checks the vPMU from inside, register by register. Each case begins with the PMU as reset_pmu() leaves
 * it and writes one ConformanceResult; the tool's table has each case's name and the source of its rule.
 *
 * Ring 0 may be emulated or single-stepped: the code is plain and the windows short.
 */
#include "amd_pmu.h"
#include "cases.h"

_Noreturn void payload_main(BootPage *boot);

#define EXITS 15
/* Windows of a hundred milliseconds: a run with longer ones does not end within its time limit. */
#define FARTHEST_NEAR BIT(25)

/* The median: a host that is busy elsewhere for a while makes single exits hundreds of times longer. */
static u64 usual_exit(void)
{
	u64 took[EXITS];

	for (u32 i = 0; i < EXITS; i++) {
		u64 before = rdtsc();
		rdmsr(s.pmu == PMU_INTEL ? MSR_GLOBAL_STATUS : MSR_AMD_CTL0);
		u64 time = rdtsc() - before;
		u32 at = i;
		for (; at > 0 && took[at - 1] > time; at--)
			took[at] = took[at - 1];
		took[at] = time;
	}
	return took[EXITS / 2];
}

/* Exits are dear on some hosts: what is called near must not be over before the next instruction. */
static void calibrate(void)
{
	s.near = s.exact ? 64 : 400000;
	if (!s.exact) {
		u64 several = 8 * usual_exit();
		if (s.near < several)
			s.near = several < FARTHEST_NEAR ? several : FARTHEST_NEAR;
	}
	s.window = 6 * s.near;
	s.patience = s.boot->limit_us * (s.boot->tsc_hz / 1000000);
}

_Noreturn void payload_main(BootPage *boot)
{
	s.pmu = cpuid_pmu();
	bool intel = s.pmu == PMU_INTEL;

	if (boot->magic != MAGIC || boot->version != VERSION || boot->gp_counters != (intel ? GP : AMD_GP) ||
	    boot->fixed_counters != (intel ? FIXED_COUNT : 0))
		fail(FAULT_BOOT_PAGE, 0, (u64)payload_main, 0);
	s.boot = boot;
	s.report = (ConformanceReport *)boot->report_addr;
	s.report->magic = CONFORMANCE_MAGIC;
	s.v4 = boot->flags & FLAG_PMU_V4;
	s.exact = boot->flags & FLAG_COUNTS_EXACT;
	s.events = boot->flags & FLAG_COUNTS_EVENTS;
	wrmsr(MSR_APIC_BASE, rdmsr(MSR_APIC_BASE) | APIC_BASE_X2APIC);
	wrmsr(MSR_SVR, SVR_ENABLE | VECTOR_SPURIOUS);
	wrmsr(MSR_TIMER_DIVIDE, DIVIDE_BY_1);
	wrmsr(MSR_LVT_TIMER, LVT_MASKED | VECTOR_TIMER);
	calibrate();

	if (intel) {
		register_cases();
		counting_cases();
		overflow_cases();
		delivery_cases();
	} else {
		s.cases = AMD_CASES_FROM;
		amd_register_and_counting_cases();
		amd_overflow_and_delivery_cases();
	}
	s.report->running = 0;
	/* As many as the tool has names for. */
	s.report->complete = s.cases == (intel ? AMD_CASES_FROM : CONFORMANCE_CASES);
	ring(DB_DONE);
	halt_forever();
}
