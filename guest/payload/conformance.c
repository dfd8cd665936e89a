/*
 * The conformance payload: checks the vPMU from inside, register by register. Each case begins with the PMU as reset_pmu() leaves
 * it and writes one ConformanceResult; which case is what, and by which section of the SDM, stands in the tool's table.
 *
 * Ring 0 may be emulated or single-stepped: the code is plain and the windows short.
 */
#include "conformance.h"

struct state s;
volatile u64 gp_faults;
u64 ring3_return_rsp;

_Noreturn void payload_main(BootPage *boot);
_Noreturn void fail(u64 vector, u64 error, u64 rip, u64 cr2);
void pmi(void *frame);
void pmi_with_eoi(void *frame);
void tick(void *frame);

/* As entry.S leaves it on the stack. */
struct interrupt {
	u64 r11, r10, r9, r8, rdi, rsi, rcx, tsc_low, tsc_high, rdx, rax, rip, cs, rflags, rsp, ss;
};

_Noreturn void fail(u64 vector, u64 error, u64 rip, u64 cr2)
{
	BootPage *boot;
	__asm__("movq %%gs:%c1, %0" : "=r"(boot) : "i"(offsetof(BootPage, self_addr)));
	ConformanceReport *report = (ConformanceReport *)boot->report_addr;

	report->fault_vector = vector + 1;
	report->fault_error = error;
	report->fault_rip = rip;
	report->fault_cr2 = cr2;
	ring(DB_FAILED);
	halt_forever();
}

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

static void note(const struct interrupt *frame, u64 vector)
{
	s.vector = vector;
	s.rip = frame->rip;
	s.cs = frame->cs;
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

void pmi(void *frame)
{
	note(frame, 2);
	leave_ring3(frame);
}

void pmi_with_eoi(void *frame)
{
	note(frame, VECTOR_PMI);
	leave_ring3(frame);
	wrmsr(MSR_EOI, 0);
}

/* Only wakes. */
void tick(void *frame)
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
	for (u64 end = rdtsc() + 4 * s.boot->tsc_hz; rdtsc() < end;)
		if (s.pmis >= count)
			return true;
	return false;
}

bool wait_status(u64 bits)
{
	for (u64 end = rdtsc() + 4 * s.boot->tsc_hz; rdtsc() < end;) {
		spend();
		if ((status() & bits) == bits)
			return true;
	}
	return false;
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
	wrmsr(MSR_LVTPC, LVT_NMI);
	s.unmask = 0;
	s.rearm_left = 0;
	s.leave_ring3 = false;
	s.pmis = 0;
	s.status = 0;
	s.vector = 0;
}

void run_case(u64 id, void (*body)(void))
{
	s.report->running = id + 1;
	s.now = &s.report->results[id];
	s.now->outcome = CONFORMANCE_PASS;
	if (id != CASE_RESET)
		reset_pmu();
	body();
	stop();
}

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
