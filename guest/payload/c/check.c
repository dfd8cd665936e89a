/*
 * What the conformance cases stand on: checks that end a case at the first difference, the counters, the PMI handlers, and one
 * case from a reset PMU.
 */
#include "amd_pmu.h"
#include "check.h"

struct state s;
volatile u64 gp_faults;
u64 ring3_return_rsp;

void pmi(struct interrupt *frame);
void pmi_with_eoi(struct interrupt *frame);
void tick(struct interrupt *frame);

bool differs(u64 line, u64 expected, u64 got)
{
	if (expected == got)
		return false;
	s.now->outcome = CONFORMANCE_FAIL;
	s.now->line = line;
	s.now->expected = expected;
	s.now->got = got;
	return true;
}

/* Hardware starts and stops with the exits around the WRMSRs, so a few instructions of slack. */
bool miscounted(u64 line, u64 expected, u64 got)
{
	if (s.exact)
		return differs(line, expected, got);
	return (got < expected || got > expected + expected / 50 + 50) && differs(line, expected, got);
}

bool skip(u64 reason)
{
	s.now->outcome = CONFORMANCE_SKIP;
	s.now->got = reason;
	return true;
}

/* Linux's late_ack: the counters run again before LVTPC is unmasked. */
static void overflow_before_unmask(void)
{
	wrmsr(MSR_GLOBAL_CTRL, 0);
	wrmsr(MSR_GLOBAL_OVF_CTRL, 1);
	set_counter(0, -s.near);
	wrmsr(MSR_GLOBAL_CTRL, 1);
	s.late_overflowed = wait_status(1);
	if (s.late_acknowledged)
		wrmsr(MSR_GLOBAL_OVF_CTRL, 1);
	wrmsr(MSR_LVTPC, LVT_NMI);
}

/* On an AMD counter 0 is armed again as often as was ordered, and LVTPC left alone. */
static void note_amd(void)
{
	s.status = amd_status(s.pmu);
	s.lvtpc = rdmsr(MSR_LVTPC);
	if (s.rearm_left) {
		s.rearm_left--;
		if (s.pmu == PMU_AMD_V2)
			wrmsr(MSR_AMD_STATUS_CLR, 1);
		amd_set(0, -s.rearm);
	}
}

static void note(const struct interrupt *frame, u64 vector)
{
	s.vector = vector;
	s.rip = frame->rip;
	s.cs = frame->cs;
	if (s.pmu != PMU_INTEL) {
		note_amd();
		s.pmis++;
		return;
	}
	s.status = status();
	s.lvtpc = rdmsr(MSR_LVTPC);
	s.global_ctrl = rdmsr(MSR_GLOBAL_CTRL);
	if (s.rearm_left) {
		s.rearm_left--;
		wrmsr(MSR_GLOBAL_CTRL, 0);
		wrmsr(MSR_GLOBAL_OVF_CTRL, 1);
		wrmsr(MSR_A_PMC0, -s.rearm & COUNTER_MASK);
		wrmsr(MSR_LVTPC, s.unmask);
		wrmsr(MSR_GLOBAL_CTRL, 1);
	} else if (s.late) {
		s.late = false;
		overflow_before_unmask();
	} else if (s.unmask) {
		wrmsr(MSR_LVTPC, s.unmask);
	}
	s.pmis++;
}

static void leave_ring3(struct interrupt *frame)
{
	if (s.leave_ring3 && (frame->cs & 3)) {
		s.leave_ring3 = false;
		frame->rip = (u64)ring3_return;
		frame->cs = 0x08;
		frame->ss = 0x10;
		frame->rflags = 2;
		frame->rsp = ring3_return_rsp;
	}
}

void pmi(struct interrupt *frame)
{
	note(frame, 2);
	leave_ring3(frame);
}

void pmi_with_eoi(struct interrupt *frame)
{
	note(frame, VECTOR_PMI);
	leave_ring3(frame);
	wrmsr(MSR_EOI, 0);
}

/* Only wakes. */
void tick(struct interrupt *frame)
{
	leave_ring3(frame);
	wrmsr(MSR_EOI, 0);
}

void stop(void)
{
	wrmsr(MSR_GLOBAL_CTRL, 0);
}

void run(u64 counters)
{
	wrmsr(MSR_GLOBAL_CTRL, counters);
}

/* EN is part of every selector. */
void select(u32 counter, u64 event, u64 flags)
{
	wrmsr(MSR_PERFEVTSEL0 + counter, event | flags | EVNTSEL_EN);
}

void set_counter(u32 counter, u64 value)
{
	wrmsr(MSR_A_PMC0 + counter, value & COUNTER_MASK);
}

void spend(void)
{
	if (s.exact) {
		for (volatile u64 i = 0; i < s.near; i++)
			;
		return;
	}
	for (u64 end = rdtsc() + s.window; rdtsc() < end;)
		;
}

bool wait_pmi(u64 count)
{
	for (u64 end = rdtsc() + s.patience; rdtsc() < end;)
		if (s.pmis >= count)
			return true;
	return false;
}

bool wait_status(u64 bits)
{
	for (u64 end = rdtsc() + s.patience; rdtsc() < end;) {
		spend();
		if ((status() & bits) == bits)
			return true;
	}
	return false;
}

static void reset_handler(void)
{
	wrmsr(MSR_LVTPC, LVT_NMI);
	s.unmask = 0;
	s.rearm_left = 0;
	s.leave_ring3 = false;
	s.late = false;
	s.late_acknowledged = false;
	s.pmis = 0;
	s.status = 0;
	s.vector = 0;
}

static void reset_pmu(void)
{
	stop();
	for (u32 i = 0; i < GP; i++) {
		wrmsr(MSR_PERFEVTSEL0 + i, 0);
		wrmsr(MSR_A_PMC0 + i, 0);
	}
	wrmsr(MSR_FIXED_CTR_CTRL, 0);
	for (u32 i = 0; i < FIXED_COUNT; i++)
		wrmsr(MSR_FIXED_CTR0 + i, 0);
	wrmsr(MSR_DEBUGCTL, 0);
	wrmsr(MSR_GLOBAL_OVF_CTRL, GLOBAL_MASK | BIT(62) | BIT(63) | (s.v4 ? V4_STATUS : 0));
}

void run_cases(void (*const cases[])(void), u32 count)
{
	bool intel = s.pmu == PMU_INTEL;

	for (u32 i = 0; i < count; i++) {
		u64 id = s.cases++;

		s.report->running = id + 1;
		s.now = &s.report->results[id];
		s.now->outcome = CONFORMANCE_PASS;
		/* The first case looks at what RESET leaves. */
		if (id != 0 && id != AMD_CASES_FROM) {
			if (intel)
				reset_pmu();
			else
				amd_reset(s.pmu);
			reset_handler();
		}
		cases[i]();
		if (intel)
			stop();
		else
			amd_stop_all();
	}
}

static bool rdpmc_faults(u32 index)
{
	u64 before = gp_faults;

	__asm__ volatile("rdpmc" : : "c"(index) : "eax", "edx", "memory");
	return gp_faults != before;
}

/*
 * KVM itself answers RDPMC: by #GP where it has no vPMU, but kvm-amd of Linux 6.1 reads 0 at 0-3 even with its vPMU off, and ignores
 * bits 31:30. Indices that are no counter on any of them have to fault.
 */
void rdpmc_of_no_counter(void)
{
	static const u32 indices[] = { 64, 0x1000, 0x20000000 };

	for (u32 i = 0; i < sizeof(indices) / sizeof(*indices); i++)
		EQ(indices[i], rdpmc_faults(indices[i]) ? indices[i] : ~0ull);
}
