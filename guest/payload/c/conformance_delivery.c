/* From the PMI to the guest: LVTPC, vectors, HLT, rings, freezing. */
#include "check.h"

static void arm(u64 count)
{
	select(0, INSTRUCTIONS, BOTH_RINGS | EVNTSEL_INT);
	set_counter(0, -count);
	run(1);
}

static void masked_on_delivery(void)
{
	arm(s.near);
	YES(wait_pmi(1));
	stop();
	EQ(LVT_NMI | LVT_MASKED, s.lvtpc);
	EQ(LVT_NMI | LVT_MASKED, rdmsr(MSR_LVTPC));
}

static void masked_gives_status_alone(void)
{
	wrmsr(MSR_LVTPC, LVT_NMI | LVT_MASKED);
	arm(s.near);
	YES(wait_status(1));
	stop();
	EQ(0, s.pmis);
	/* What was masked is gone: unmasking brings nothing. */
	wrmsr(MSR_LVTPC, LVT_NMI);
	spend();
	EQ(0, s.pmis);
	EQ(1, status());
}

/* The next overflow's PMI is an NMI, and the `pmis`th of the case. */
static void expect_nmi(u64 pmis)
{
	wrmsr(MSR_GLOBAL_OVF_CTRL, 1);
	wrmsr(MSR_LVTPC, LVT_NMI);
	arm(s.near);
	YES(wait_pmi(pmis));
	stop();
}

static void unmasked_again(void)
{
	arm(s.near);
	YES(wait_pmi(1));
	stop();
	wrmsr(MSR_GLOBAL_OVF_CTRL, 1);
	/* Still masked: the next overflow stays without a PMI. */
	arm(s.near);
	YES(wait_status(1));
	stop();
	EQ(1, s.pmis);
	expect_nmi(2);
	EQ(2, s.pmis);
}

static void sti(void)
{
	__asm__ volatile("sti" : : : "memory");
}

static void fixed_vector(void)
{
	wrmsr(MSR_LVTPC, VECTOR_PMI);
	arm(s.near);
	sti();
	bool came = wait_pmi(1);
	cli();
	stop();
	YES(came);
	EQ(1, s.pmis);
	EQ(VECTOR_PMI, s.vector);
	EQ(1, s.status);
	EQ(VECTOR_PMI | LVT_MASKED, s.lvtpc);
}

/* A fixed interrupt waits for IF; an NMI does not (every other case runs with IF clear). */
static void fixed_vector_waits(void)
{
	wrmsr(MSR_LVTPC, VECTOR_PMI);
	arm(s.near);
	YES(wait_status(1));
	stop();
	EQ(0, s.pmis);
	sti();
	bool came = wait_pmi(1);
	cli();
	YES(came);
	EQ(VECTOR_PMI, s.vector);
}

static void pending_wakes_hlt(void)
{
	wrmsr(MSR_LVTPC, VECTOR_PMI);
	arm(s.near);
	YES(wait_status(1));
	stop();
	/* Would it not wake, the run's time limit ends this case. */
	sti_hlt();
	cli();
	EQ(1, s.pmis);
	EQ(VECTOR_PMI, s.vector);
}

static void hlt_is_woken(void)
{
	if (s.exact) {
		/* HLT is itself the event that overflows: nothing but its PMI can end it. */
		select(0, INSTRUCTIONS, EVNTSEL_OS | EVNTSEL_INT);
		set_counter(0, -3);
		__asm__ volatile("wrmsr; nop; nop; hlt" : : "c"(MSR_GLOBAL_CTRL), "a"(1), "d"(0) : "memory");
		stop();
		EQ(1, s.pmis);
		return;
	}
	/* A stand-in stops with its thread, so the timer wakes in between; the vCPU does nothing but halt. */
	wrmsr(MSR_LVT_TIMER, LVT_PERIODIC | VECTOR_TIMER);
	wrmsr(MSR_TIMER_COUNT, 200000);
	arm(s.near);
	for (u32 i = 0; i < 5000 && !s.pmis; i++)
		sti_hlt();
	wrmsr(MSR_TIMER_COUNT, 0);
	wrmsr(MSR_LVT_TIMER, LVT_MASKED | VECTOR_TIMER);
	cli();
	stop();
	EQ(1, s.pmis);
	EQ(1, s.status);
}

static void interrupts_ring3(void)
{
	volatile UserPage *user = (volatile UserPage *)s.boot->user_addr;

	select(0, INSTRUCTIONS, EVNTSEL_USR | EVNTSEL_INT);
	wrmsr(MSR_LVT_TIMER, LVT_PERIODIC | VECTOR_TIMER);
	/* A stand-in counts ring 0 as well: a PMI that comes too early leaves ring 3 to the timer, and is tried again. */
	for (u32 i = 2; i < 8; i++) {
		s.pmis = 0;
		wrmsr(MSR_LVTPC, LVT_NMI);
		wrmsr(MSR_GLOBAL_OVF_CTRL, 1);
		s.leave_ring3 = true;
		set_counter(0, -(s.near << i));
		/* Exact counts need no second try, and steps may be slower than the timer. */
		wrmsr(MSR_TIMER_COUNT, s.exact ? 0 : 300000000);
		run(1);
		visit_ring3(ring3_ftest, user, s.boot->user_stack);
		stop();
		wrmsr(MSR_TIMER_COUNT, 0);
		if (s.pmis && (s.cs & 3))
			break;
	}
	wrmsr(MSR_LVT_TIMER, LVT_MASKED | VECTOR_TIMER);
	EQ(1, s.pmis);
	EQ(0x1b, s.cs);
	EQ(1, s.status);
}

static void no_freeze_unasked(void)
{
	arm(s.near);
	YES(wait_pmi(1));
	EQ(1, s.global_ctrl);
	u64 value = counter(0);
	spend();
	YES(counter(0) > value);
	EQ(1, status());
}

static void v2_freeze(void)
{
	NEEDS(!s.v4, SKIP_NEEDS_V2);
	wrmsr(MSR_DEBUGCTL, FREEZE_COUNTERS);
	arm(s.near);
	YES(wait_pmi(1));
	EQ(0, s.global_ctrl);
	EQ(0, rdmsr(MSR_GLOBAL_CTRL));
	EQ(1, status());
	u64 value = counter(0);
	spend();
	EQ(value, counter(0));
	run(1);
	spend();
	YES(counter(0) > value);
}

static void v4_freeze(void)
{
	NEEDS(s.v4, SKIP_NEEDS_V4);
	wrmsr(MSR_DEBUGCTL, FREEZE_COUNTERS);
	arm(s.near);
	YES(wait_pmi(1));
	EQ(1, s.global_ctrl);
	EQ(CTR_FRZ | 1, s.status);
	u64 value = counter(0);
	spend();
	EQ(value, counter(0));
	wrmsr(MSR_GLOBAL_OVF_CTRL, 1);
	EQ(CTR_FRZ, status());
	spend();
	EQ(value, counter(0));
	wrmsr(MSR_GLOBAL_OVF_CTRL, CTR_FRZ);
	spend();
	YES(counter(0) > value);
}

static void v4_freeze_lbrs(void)
{
	NEEDS(s.v4, SKIP_NEEDS_V4);
	wrmsr(MSR_DEBUGCTL, FREEZE_LBRS);
	arm(s.near);
	YES(wait_pmi(1));
	EQ(LBR_FRZ | 1, s.status);
	u64 value = counter(0);
	spend();
	YES(counter(0) > value);
}

static void v4_frozen_by_software(void)
{
	NEEDS(s.v4, SKIP_NEEDS_V4);
	select(0, INSTRUCTIONS, BOTH_RINGS);
	run(1);
	spend();
	wrmsr(MSR_STATUS_SET, CTR_FRZ);
	u64 value = counter(0);
	YES(value);
	spend();
	EQ(value, counter(0));
	wrmsr(MSR_GLOBAL_OVF_CTRL, CTR_FRZ);
	spend();
	YES(counter(0) > value);
}

static void masked_does_not_freeze(void)
{
	wrmsr(MSR_LVTPC, LVT_NMI | LVT_MASKED);
	select(0, INSTRUCTIONS, BOTH_RINGS);
	wrmsr(MSR_DEBUGCTL, FREEZE_COUNTERS);
	set_counter(0, -s.near);
	run(1);
	YES(wait_status(1));
	/* Without INT there is no PMI, and without a PMI no freeze. */
	EQ(1, rdmsr(MSR_GLOBAL_CTRL));
	EQ(1, status());
	u64 value = counter(0);
	spend();
	YES(counter(0) > value);
}

static void misc_enable(void)
{
	u64 value = rdmsr(MSR_MISC_ENABLE);

	EQ(EMON_AVAILABLE, value & EMON_AVAILABLE);
	YES(!faults_write(MSR_MISC_ENABLE, value & ~EMON_AVAILABLE));
	EQ(value, rdmsr(MSR_MISC_ENABLE));
}

static void apic_off(void)
{
	u64 base = rdmsr(MSR_APIC_BASE);

	select(0, INSTRUCTIONS, BOTH_RINGS | EVNTSEL_INT);
	wrmsr(MSR_APIC_BASE, base & ~(APIC_BASE_ENABLE | APIC_BASE_X2APIC));
	set_counter(0, -s.near);
	run(1);
	bool overflowed = wait_status(1);
	stop();
	u64 pmis = s.pmis;
	/* It comes back as after RESET, and in two steps. */
	wrmsr(MSR_APIC_BASE, base & ~APIC_BASE_X2APIC);
	wrmsr(MSR_APIC_BASE, base);
	wrmsr(MSR_SVR, SVR_ENABLE | VECTOR_SPURIOUS);
	wrmsr(MSR_TIMER_DIVIDE, DIVIDE_BY_1);
	wrmsr(MSR_LVT_TIMER, LVT_MASKED | VECTOR_TIMER);
	YES(overflowed);
	EQ(0, pmis);
	spend();
	EQ(0, s.pmis);
	expect_nmi(1);
}

static void late_unmask(void)
{
	s.late = true;
	arm(s.near);
	/* The second comes without an exit of this loop. */
	YES(wait_pmi(2));
	YES(s.late_overflowed);
	EQ(1, s.status);
	wrmsr(MSR_GLOBAL_OVF_CTRL, 1);
	wrmsr(MSR_LVTPC, LVT_NMI);
	spend();
	stop();
	EQ(2, s.pmis);
}

static void late_unmask_acknowledged(void)
{
	s.late = true;
	s.late_acknowledged = true;
	arm(s.near);
	YES(wait_pmi(1));
	YES(s.late_overflowed);
	spend();
	EQ(0, status());
	spend();
	stop();
	EQ(1, s.pmis);
}

void delivery_cases(void)
{
	static void (*const cases[])(void) = {
		masked_on_delivery, masked_gives_status_alone, unmasked_again, fixed_vector, fixed_vector_waits,
		pending_wakes_hlt, hlt_is_woken, interrupts_ring3, no_freeze_unasked, v2_freeze, v4_freeze, v4_freeze_lbrs,
		v4_frozen_by_software, masked_does_not_freeze, misc_enable, apic_off, late_unmask, late_unmask_acknowledged,
	};

	run_cases(cases, sizeof(cases) / sizeof(*cases));
}
