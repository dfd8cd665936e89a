/*
 * The conformance payload: checks the vPMU from inside by playing the steps of cases.txt, which the VMM hands over. A case ends at its
 * first difference, and is one ConformanceResult.
 *
 * Ring 0 may be emulated or single-stepped: the code is plain and the windows short.
 */
#include "interrupt.h"

enum { MSR_A_PMC0 = 0x4c1 };

#define COUNTER_MASK ((1ull << 48) - 1)
#define EXITS 15
/* Windows of a hundred milliseconds: a run with longer ones does not end within its time limit. */
#define FARTHEST_NEAR (1ull << 25)

static struct {
	const BootPage *boot;
	ConformanceReport *report;
	ConformanceResult *now;   /* of the case that runs */
	bool exact;               /* the backend counts instructions and branches exactly */
	u64 near;                 /* a period that is soon over, in counts */
	u64 window;               /* TSC ticks in which `near` is over several times */
	u64 patience;             /* TSC ticks after which what is waited for counts as missing; only a failure takes that long */

	/* The PMI handler's orders. */
	const Step *pmi;          /* the first of the steps that it plays */
	u64 pmi_steps;            /* their number */
	u64 pmi_left;             /* PMIs that are still to play them */
	bool leave_ring3;
} s;
static volatile CaseState found;
volatile u64 gp_faults;           /* counted and skipped by entry.S */
u64 ring3_return_rsp;

_Noreturn void payload_main(BootPage *boot);
void pmi(struct interrupt *frame);
void pmi_with_eoi(struct interrupt *frame);
void tick(struct interrupt *frame);

/* conformance_entry.S: WRMSR `on`, a known number of instructions, WRMSR 0. */
void counted_loop(u64 on, u64 turns, u32 msr);
/* The same, but a row of NOPs; PMIs tell by their RIP after which one they came. */
void counted_nops(u64 on, u64 turns, u32 msr);
extern const char counted_nops_first[];
void visit_ring3(const void *rip, volatile UserPage *user, u64 rsp);
extern const char ring3_return[], ring3_ftest[];

static u64 get(u32 place)
{
	return place >= PLAY_STATE ? ((volatile u64 *)&found)[place - PLAY_STATE] : rdmsr(place);
}

static void set(u32 place, u64 value)
{
	if (place >= PLAY_STATE)
		((volatile u64 *)&found)[place - PLAY_STATE] = value;
	else
		wrmsr(place, value);
}

/* Lets enough happen for `near` to pass several times. */
static void spend(void)
{
	if (s.exact) {
		for (volatile u64 i = 0; i < s.near; i++)
			;
		return;
	}
	for (u64 end = rdtsc() + s.window; rdtsc() < end;)
		;
}

static u64 value_of(const Step *step)
{
	u64 value = step->value;

	if (step->what & PLAY_NEAR)
		value = (value + step->think * s.near) & COUNTER_MASK;
	return step->what & PLAY_KEPT ? value ^ found.kept : value;
}

static bool holds(const Step *step, u64 got)
{
	u64 value = value_of(step);

	switch (step->what & PLAY_COMPARISON) {
	case PLAY_EQUAL:
		return got == value;
	case PLAY_BELOW:
		return got < value;
	case PLAY_ABOVE:
		return got > value;
	case PLAY_AT_MOST:
		return got <= value;
	case PLAY_AT_LEAST:
		return got >= value;
	case PLAY_HAS:
		return (got & value) == value;
	default:
		return true;
	}
}

static bool differs(const Step *step, u64 expected, u64 got)
{
	s.now->outcome = CONFORMANCE_FAIL;
	s.now->step = step->what >> PLAY_TEXT_SHIFT;
	s.now->expected = expected;
	s.now->got = got;
	return false;
}

static u64 look(const Step *step)
{
	return get((u32)step->what) & ~step->think;
}

/* Waits, but not for ever. */
static bool wait(const Step *step)
{
	for (u64 end = rdtsc() + s.patience; rdtsc() < end;) {
		if ((u32)step->what < PLAY_STATE)
			spend();
		if (holds(step, look(step)))
			return true;
	}
	return false;
}

static void fresh(void)
{
	s.pmi_left = 0;
	for (u32 place = PLAY_STATE; place < PLAY_STATE + sizeof(found) / sizeof(u64); place++)
		set(place, 0);
}

/* Starts a counter to be moved before its overflow, which is due long after: unless the host is busy elsewhere for that long. */
static void move_away(void)
{
	u64 far = 64 * s.near;

	for (u32 tries = 0; tries < 8; tries++) {
		wrmsr(MSR_A_PMC0, -far & COUNTER_MASK);
		u64 before = rdtsc();
		wrmsr(MSR_GLOBAL_CTRL, 1);
		wrmsr(MSR_A_PMC0, 0);
		if (s.exact || rdtsc() - before < far / 4)
			return;
		wrmsr(MSR_GLOBAL_CTRL, 0);
		wrmsr(MSR_GLOBAL_OVF_CTRL, 1);
		found.pmis = 0;
		wrmsr(MSR_LVTPC, LVT_NMI);
	}
}

/* With exact counts HLT is itself the event that overflows: nothing but its PMI can end it. */
static void halt(u64 msr, u64 on)
{
	if (s.exact) {
		__asm__ volatile("wrmsr; nop; nop; hlt" : : "c"(msr), "a"((u32)on), "d"((u32)(on >> 32)) : "memory");
		return;
	}
	/* A stand-in stops with its thread, so the timer wakes in between; the vCPU does nothing but halt. */
	wrmsr(MSR_LVT_TIMER, LVT_PERIODIC | VECTOR_TIMER);
	wrmsr(MSR_TIMER_COUNT, 200000);
	wrmsr(msr, on);
	for (u32 i = 0; i < 5000 && !found.pmis; i++)
		sti_hlt();
	wrmsr(MSR_TIMER_COUNT, 0);
	wrmsr(MSR_LVT_TIMER, LVT_MASKED | VECTOR_TIMER);
	cli();
}

static void visit(void)
{
	wrmsr(MSR_LVT_TIMER, LVT_PERIODIC | VECTOR_TIMER);
	/* A stand-in counts ring 0 as well: a PMI that comes too early leaves ring 3 to the timer, and is tried again. */
	for (u32 i = 2; i < 8 && !(found.pmis && (found.pmi_cs & 3)); i++) {
		found.pmis = 0;
		wrmsr(MSR_LVTPC, LVT_NMI);
		wrmsr(MSR_GLOBAL_OVF_CTRL, 1);
		s.leave_ring3 = true;
		wrmsr(MSR_A_PMC0, -(s.near << i) & COUNTER_MASK);
		/* Exact counts need no second try, and steps may be slower than the timer. */
		wrmsr(MSR_TIMER_COUNT, s.exact ? 0 : 300000000);
		wrmsr(MSR_GLOBAL_CTRL, 1);
		visit_ring3(ring3_ftest, (volatile UserPage *)s.boot->user_addr, s.boot->user_stack);
		wrmsr(MSR_GLOBAL_CTRL, 0);
		wrmsr(MSR_TIMER_COUNT, 0);
	}
	wrmsr(MSR_LVT_TIMER, LVT_MASKED | VECTOR_TIMER);
}

/* Plays a step. Returns false if what it finds differs from what it asks for. */
static bool done(const Step *step)
{
	u32 place = (u32)step->what;
	u64 got, faults = gp_faults, value = value_of(step);
	struct cpuid leaf;

	switch (step->what & PLAY_OPERATION) {
	case PLAY_CASE:
		s.report->running = place + 1;
		s.now = &s.report->results[place];
		s.now->outcome = step->value;
		s.now->got = step->think;
		return true;
	case PLAY_WRITE:
		set(place, value);
		break;
	case PLAY_RDPMC:
		__asm__ volatile("rdpmc" : : "c"(place) : "eax", "edx", "memory");
		break;
	case PLAY_TRY:
		found.came = wait(step);
		break;
	case PLAY_WAIT:
		wait(step); /* fall through */
	case PLAY_READ:
	case PLAY_KEEP:
		got = look(step);
		if (!holds(step, got))
			return differs(step, value, got);
		if ((step->what & PLAY_OPERATION) == PLAY_KEEP)
			found.kept = got;
		break;
	case PLAY_CPUID:
		leaf = cpuid(place);
		found.eax = leaf.a;
		found.ebx = leaf.b;
		found.ecx = leaf.c;
		found.edx = leaf.d;
		break;
	case PLAY_PMI:
		s.pmi = step + 1;
		s.pmi_steps = step->think;
		s.pmi_left = place;
		break;
	case PLAY_LOOP:
		counted_loop(value, step->think, place);
		break;
	case PLAY_NOPS:
		counted_nops(value, 0, place);
		break;
	case PLAY_HALT:
		halt(place, value);
		break;
	case PLAY_STI:
		__asm__ volatile("sti" : : : "memory");
		break;
	case PLAY_CLI:
		cli();
		break;
	case PLAY_HLT:
		sti_hlt();
		break;
	case PLAY_SPEND:
		spend();
		break;
	case PLAY_FRESH:
		fresh();
		break;
	case PLAY_AWAY:
		move_away();
		break;
	case PLAY_RING3:
		visit();
	}
	if (step->what & PLAY_FAULTS && gp_faults == faults)
		return differs(step, (step->what & PLAY_OPERATION) == PLAY_WRITE ? value : place, ~0ull);
	return !(step->what & PLAY_TAKEN && gp_faults != faults) || differs(step, 0, 1);
}

static void play(const Step *step, u64 count)
{
	for (const Step *end = step + count; step < end; step++)
		if (!done(step))
			while (step + 1 < end && (step[1].what & PLAY_OPERATION) != PLAY_CASE)
				step++;
		else if ((step->what & PLAY_OPERATION) == PLAY_PMI)
			step += step->think;
}

static void note(struct interrupt *frame, u64 vector)
{
	bool amd = s.boot->flags & FLAG_PMU_AMD, v2 = s.boot->flags & FLAG_PERFMON_V2;

	found.pmi_vector = vector;
	found.pmi_nops = frame->rip - (u64)counted_nops_first;
	found.pmi_cs = frame->cs;
	found.pmi_status = !amd ? rdmsr(MSR_GLOBAL_STATUS) : v2 ? rdmsr(MSR_AMD_GLOBAL_STATUS) : 0;
	found.pmi_lvtpc = rdmsr(MSR_LVTPC);
	if (!amd)
		found.pmi_ctrl = rdmsr(MSR_GLOBAL_CTRL);
	if (s.pmi_left) {
		s.pmi_left--;
		play(s.pmi, s.pmi_steps);
	}
	found.pmis++;
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

/* The timer's handler: its interrupt wakes a halted vCPU, or ends a visit to ring 3. */
void tick(struct interrupt *frame)
{
	leave_ring3(frame);
	wrmsr(MSR_EOI, 0);
}

/* The median: a host that is busy elsewhere for a while makes single exits hundreds of times longer. */
static u64 usual_exit(void)
{
	u64 took[EXITS];

	for (u32 i = 0; i < EXITS; i++) {
		u64 before = rdtsc();
		rdmsr(s.boot->flags & FLAG_PMU_AMD ? MSR_AMD_CTL0 : MSR_GLOBAL_STATUS);
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
	if (boot->magic != MAGIC || boot->version != VERSION)
		fail(FAULT_BOOT_PAGE, 0, (u64)payload_main, 0);
	s.boot = boot;
	s.report = (ConformanceReport *)boot->report_addr;
	s.report->magic = CONFORMANCE_MAGIC;
	s.exact = boot->flags & FLAG_COUNTS_EXACT;
	wrmsr(MSR_APIC_BASE, rdmsr(MSR_APIC_BASE) | APIC_BASE_X2APIC);
	wrmsr(MSR_SVR, SVR_ENABLE | VECTOR_SPURIOUS);
	wrmsr(MSR_TIMER_DIVIDE, DIVIDE_BY_1);
	wrmsr(MSR_LVT_TIMER, LVT_MASKED | VECTOR_TIMER);
	calibrate();
	play((const Step *)boot->steps, boot->step_count);
	s.report->running = 0;
	s.report->complete = 1;
	ring(DB_DONE);
	halt_forever();
}
