/* Boot: the doorbell rang already (entry.S). Exchange TSCs, set up the APIC, start the workload; from then on the timer drives (tick.c). */
#include "state.h"

/* Called by the interrupt stubs. */
void (*pmi_handler)(const struct interrupt *frame);

_Noreturn void payload_main(BootPage *boot);
_Noreturn void enter_ring3(const void *rip, volatile UserPage *user, u64 rsp);

/* The VMM takes its own TSC at each doorbell, so it lies between the two taken here. */
static void exchange_tsc(Report *report)
{
	for (u64 i = 0; i < SYNC_ROUNDS; i++) {
		u64 before = rdtsc();
		ring(DB_SYNC);
		report->sync_after[i] = rdtsc();
		report->sync_before[i] = before;
		report->syncs = i + 1;
	}
}

static void apic_setup(u64 tick_count, u32 timer_mode)
{
	wrmsr(MSR_APIC_BASE, rdmsr(MSR_APIC_BASE) | APIC_BASE_X2APIC);
	wrmsr(MSR_SVR, SVR_ENABLE | VECTOR_SPURIOUS);
	wrmsr(MSR_TIMER_DIVIDE, DIVIDE_BY_1);
	wrmsr(MSR_LVT_TIMER, timer_mode | VECTOR_TIMER);
	wrmsr(MSR_TIMER_COUNT, (u32)tick_count);
}

/* By CPUID: every vCPU writes the same. */
static void choose_driver(void)
{
	switch (pmu_kind = cpuid_pmu()) {
	case PMU_AMD_CORE:
		pmi_handler = pmi_amd;
		break;
	case PMU_AMD_V2:
		pmi_handler = pmi_amd_v2;
		break;
	default:
		pmi_handler = pmi;
	}
}

_Noreturn void payload_main(BootPage *boot)
{
	if (boot->magic != MAGIC || boot->version != VERSION || boot->cpu >= MAX_VCPUS || boot->event_count > MAX_EVENTS ||
	    boot->gp_counters > MAX_GP_COUNTERS || boot->fixed_counters > MAX_FIXED_COUNTERS || boot->workload > WORKLOAD_IDLE ||
	    (boot->flags & FLAG_REPLAY && !boot->step_count))
		fail(FAULT_BOOT_PAGE, 0, (u64)payload_main, 0);

	struct cpu *c = &cpus[boot->cpu];
	c->boot = boot;
	c->report = (Report *)boot->report_addr;
	c->user = (volatile UserPage *)boot->user_addr;
	c->log_next = boot->log_addr;
	c->log_end = boot->log_addr + boot->log_capacity * sizeof(LogEntry);
	c->until_target = boot->sample_target;
	c->report->magic = MAGIC;

	exchange_tsc(c->report);
	choose_driver();
	pmu_setup(c);
	c->replays = boot->flags & FLAG_REPLAY;
	if (c->replays)
		pmi_handler = pmi_replay;
	c->stat_setup = boot->flags & FLAG_STAT_SETUP;
	c->turns = boot->flags & FLAG_TURNS;
	apic_setup(boot->tick_count, c->stat_setup ? LVT_ONE_SHOT : LVT_PERIODIC);

	if (boot->workload == WORKLOAD_IDLE) {
		for (;;) {
			sti_hlt();
			c->user->units++;
		}
	}
	enter_ring3(boot->workload == WORKLOAD_IO ? ring3_io : ring3_ftest, c->user, boot->user_stack);
}
