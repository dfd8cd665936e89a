/* What the conformance cases share. */
#pragma once
#include "interrupt.h"

enum {
	MSR_MISC_ENABLE = 0x1a0,
	MSR_DEBUGCTL = 0x1d9,
	MSR_PERF_CAPABILITIES = 0x345,
	MSR_STATUS_SET = 0x391,
	MSR_INUSE = 0x392,
	MSR_PEBS_ENABLE = 0x3f1,
	MSR_A_PMC0 = 0x4c1,
	MSR_DS_AREA = 0x600,
};

#define BIT(n) (1ull << (n))
#define GP 4u
#define FIXED_COUNT 3u
#define COUNTER_MASK (BIT(48) - 1)
#define GLOBAL_MASK (BIT(GP) - 1 | (BIT(FIXED_COUNT) - 1) << 32)
#define EMON_AVAILABLE BIT(7)
#define APIC_BASE_ENABLE BIT(11)
#define FREEZE_LBRS BIT(11)
#define FREEZE_COUNTERS BIT(12)
#define LBR_FRZ BIT(58)
#define CTR_FRZ BIT(59)
#define V4_STATUS (LBR_FRZ | CTR_FRZ | BIT(60) | BIT(61))

/* Instructions retired: step and hardware count them, a stand-in counts whatever it counts. */
#define INSTRUCTIONS 0xc0u
#define BRANCHES 0xc4u
#define TAKEN_BRANCHES 0x20c4u
#define BOTH_RINGS (EVNTSEL_USR | EVNTSEL_OS)

struct state {
	BootPage *boot;
	ConformanceReport *report;
	ConformanceResult *now;   /* of the case that runs */
	u64 cases;                /* that were begun; the number of the next one */
	enum pmu_kind pmu;
	bool v4, exact, events;
	u64 near;                 /* a period that is soon over, in counts */
	u64 window;               /* TSC ticks in which `near` is over several times */
	u64 patience;             /* TSC ticks after which what is waited for counts as missing; only a failure takes that long */

	/* Of the PMI handler: what it found, and its orders. */
	volatile u64 pmis;
	volatile u64 vector;      /* 2, or VECTOR_PMI */
	volatile u64 rip, cs, status, lvtpc, global_ctrl;
	u32 unmask;               /* LVTPC to write, 0 = leave it masked */
	u64 rearm;                /* re-arm PMC0 at -rearm so often */
	u64 rearm_left;
	bool late;                /* before it writes LVTPC, wait for an overflow of the re-armed PMC0 */
	bool late_acknowledged;   /* and acknowledge it */
	bool late_overflowed;     /* it came */
	bool leave_ring3;
};
extern struct state s;
extern volatile u64 gp_faults;

/* A case of both vendors. */
void rdpmc_of_no_counter(void);

/* Ends a case at the first difference. */
bool differs(u64 line, u64 expected, u64 got);
bool skip(u64 reason);
#define EQ(expected, got) do { if (differs(__LINE__, expected, got)) return; } while (0)
#define YES(condition) EQ(1, !!(condition))
#define NEEDS(condition, reason) do { if (!(condition) && skip(reason)) return; } while (0)
/* What only real counts can show. */
#define NEEDS_COUNTS() NEEDS(s.exact || s.events, SKIP_STAND_IN)
#define NEEDS_EXACT() NEEDS(s.exact, SKIP_NEEDS_STEP)
#define COUNTED(expected, got) do { if (miscounted(__LINE__, expected, got)) return; } while (0)
bool miscounted(u64 line, u64 expected, u64 got);

/* The accesses of the checks: a fault is counted and skipped (entry.S). */
static inline bool faults_write(u32 msr, u64 value)
{
	u64 before = gp_faults;

	wrmsr(msr, value);
	return gp_faults != before;
}

static inline bool faults_read(u32 msr)
{
	u64 before = gp_faults;

	rdmsr(msr);
	return gp_faults != before;
}

void run(u64 counters);
void stop(void);
/* Lets enough happen for `near` to pass several times. */
void spend(void);
/* Waits for a PMI, or for STATUS, but not for ever. */
bool wait_pmi(u64 count);
bool wait_status(u64 bits);
void select(u32 counter, u64 event, u64 flags);
void set_counter(u32 counter, u64 value);

static inline u64 counter(u32 n)
{
	return rdmsr(MSR_PMC0 + n);
}

static inline u64 status(void)
{
	return rdmsr(MSR_GLOBAL_STATUS);
}

/* conformance_entry.S: WRMSR GLOBAL_CTRL, a known number of instructions, WRMSR GLOBAL_CTRL 0. */
#define LOOP_INSTRUCTIONS(turns) (5 + 4 * (u64)(turns))
#define LOOP_BRANCHES(turns) (2 * (u64)(turns))
#define LOOP_TAKEN(turns) ((u64)(turns) - 1)
void counted_loop(u64 global_ctrl, u64 turns);
/* The same, but a row of NOPs; PMIs tell by their RIP after which one they came. */
void counted_nops(u64 global_ctrl);
extern const char counted_nops_first[], counted_nops_end[];
void visit_ring3(const void *rip, volatile UserPage *user, u64 rsp);
extern u64 ring3_return_rsp;
extern const char ring3_return[];
extern const char ring3_ftest[];

/* The same loops with another register: `on` starts the counter, 0 stops it. */
void counted_loop_by(u64 on, u64 turns, u32 msr);
void counted_nops_by(u64 on, u64 turns, u32 msr);
extern const char counted_nops_by_first[];

/* Runs cases in their order, each from a reset PMU but the first of all. */
void run_cases(void (*const cases[])(void), u32 count);
