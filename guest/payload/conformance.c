/*
 * The conformance payload: checks the vPMU from inside, register by register. Each case begins with the PMU as reset_pmu() leaves
 * it and writes one ConformanceResult; the tool's table has each case's name and section of the SDM.
 *
 * Ring 0 may be emulated or single-stepped: the code is plain and the windows short.
 */
#include "cases.h"

_Noreturn void payload_main(BootPage *boot);

/* Exits are dear on some hosts: what is called near must not be over before the next instruction. */
static void calibrate(void)
{
	u64 longest = 0;

	for (u32 i = 0; i < 8; i++) {
		u64 before = rdtsc();
		rdmsr(MSR_GLOBAL_STATUS);
		u64 took = rdtsc() - before;
		if (i && took > longest)
			longest = took;
	}
	s.near = s.exact ? 64 : 400000;
	if (!s.exact && s.near < 8 * longest)
		s.near = 8 * longest;
	if (s.near > BIT(30))
		s.near = BIT(30);
	s.window = 6 * s.near;
}

_Noreturn void payload_main(BootPage *boot)
{
	if (boot->magic != MAGIC || boot->version != VERSION || boot->gp_counters != GP || boot->fixed_counters != FIXED_COUNT)
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

	register_cases();
	counting_cases();
	overflow_cases();
	delivery_cases();
	s.report->running = 0;
	s.report->complete = 1;
	ring(DB_DONE);
	halt_forever();
}
