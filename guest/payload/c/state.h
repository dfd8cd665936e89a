/* What each vCPU keeps. Nothing is shared: the array is indexed by the vCPU's number. */
#pragma once
#include "interrupt.h"

/* As Linux without full-width writes: the largest period whose negative survives the sign extension of WRMSR to 0xC1 + n. */
#define MAX_PERIOD ((s64)0x7fffffff)
/* Counters are 48 bits wide. */
#define COUNTER_SHIFT 16
/* Index of fixed counter 0, as in GLOBAL_STATUS. */
#define FIXED 32

struct event {
	u64 count;
	s64 left;         /* of the period, as perf's period_left */
	u64 prev;         /* counter at the last update, sign-extended */
	s64 period;
	u64 overflows;
	u32 counter_msr;  /* these three belong to `index` */
	u32 config_msr;
	u64 fixed_shift;
	u64 config;       /* PERFEVTSELx with EN */
	u64 fixed_bits;   /* this event's nibble of FIXED_CTR_CTRL */
	u64 fixed_mask;   /* bit of its fixed counter in GLOBAL_CTRL, 0 = none */
	bool takes_gp;
	bool freq;
	s64 index;        /* counter last used, -1 = none yet */
	u64 enabled;      /* TSC ticks it was wanted, and was on a counter */
	u64 running;
	u64 enabled_at;
	u64 freq_tsc;     /* last overflow */
	u64 freq_count;   /* count at the last tick */
	u64 spec;         /* index in BootPage.events */
};

enum phase { WARM_UP, BASELINE, MEASURE, TAIL };

struct cpu {
	BootPage *boot;
	volatile bool enabled;    /* the driver counts: perf's cpuc->enabled */
	volatile bool target_met;
	bool freq;                /* an event is in frequency mode */
	u32 lvtpc;
	u64 global_ctrl;
	struct event **map;       /* event by counter, for the overflow handlers; one of `maps` */
	u64 until_target;
	u64 log_kind;             /* the kind that counts towards the target */
	u64 log_next;             /* addresses */
	u64 log_end;
	u64 nmis;
	u64 nmis_without_status;
	u64 ticks;
	u64 rotations;

	u64 gp_mask;
	u64 amd_active;           /* counters that were started: perf's active_mask */
	struct event *amd_events[MAX_GP_COUNTERS];
	bool amd_in_nmi;
	u64 opened;               /* events there are a counter for, */
	u64 event_count;          /* of which the first so many are enabled */
	u64 head;                 /* the event list begins here: perf's rotation moves the first event to the end */
	u64 active_count;
	struct event *active[MAX_EVENTS];
	u64 sched_in;             /* TSC since which the active events run */
	u64 last_tick;
	u64 tick_tsc;             /* TSC ticks between the last two timer ticks */
	enum phase phase;
	u64 phase_ticks;
	u64 units_at_start;
	volatile UserPage *user;
	Report *report;
	bool turns;               /* FLAG_TURNS at the start */
	bool stat_setup;
	bool counting;            /* between a set-up and its tear-down */
	u64 ticks_waited;         /* since either */
	u64 cycles;
	u64 limit_tsc;
	u64 stamps[MAX_EVENTS + 1]; /* TSC before and after each call of a phase */
	bool replays;             /* FLAG_REPLAY */
	volatile bool pmi_came;   /* an NMI that no step has used */
	volatile u64 waits_for;   /* address of the PMI's step, 0 = none */
	u64 step;                 /* the next one */
	u64 last_step;            /* TSC when it was done */
	u64 replayed;             /* ticks of the steps in this turn */
	struct enable {
		u64 msr, value;
	} enables[MAX_ENABLES];   /* registers by which counters may run, as last written */
	struct event events[MAX_EVENTS];
	struct event *maps[2][64];
} __attribute__((aligned(16384))); /* a power of two that its size is, too: finding it is a shift */

extern struct cpu cpus[MAX_VCPUS];

static inline struct cpu *this_cpu(void)
{
	u64 cpu;
	__asm__("movq %%gs:%c1, %0" : "=r"(cpu) : "i"(offsetof(BootPage, cpu)));
	struct cpu *c = &cpus[cpu];
	/* Else the compiler computes the address again and again. */
	__asm__("" : "+r"(c));
	return c;
}

static inline u64 entry_tsc(const struct interrupt *frame)
{
	return frame->tsc_high << 32 | frame->tsc_low;
}

/*
 * A full log stops logging, not the guest: log_next goes on, which gives the number of dropped entries. An NMI may come while a tick logs, so the
 * place is taken by one instruction; other CPUs have their own logs, so it needs no LOCK.
 */
static inline void log_entry(struct cpu *c, u64 kind, const struct interrupt *frame, u64 exit, u64 status, u64 rearmed)
{
	u64 taken = sizeof(LogEntry);

	__asm__("xaddq %0, %1" : "+r"(taken), "+m"(c->log_next) : : "cc");
	if (likely(taken < c->log_end)) {
		LogEntry *entry = (LogEntry *)taken;

		entry->kind = kind;
		entry->tsc_entry = entry_tsc(frame);
		entry->tsc_exit = exit;
		entry->status = status;
		entry->rearmed = rearmed;
		entry->rip = frame->rip;
	}
	if (kind == c->log_kind && --c->until_target == 0)
		c->target_met = true;
}

/* loop.c */
void time_loop(struct cpu *c);

/* timer.c */
void tick_soon(const struct cpu *c);

/* pmu.c */
void pmu_setup(struct cpu *c);
void pmu_disable(struct cpu *c);
void pmu_enable(struct cpu *c);
void pmu_stop_active(struct cpu *c, u64 now);
u64 pmu_start_active(struct cpu *c);
void pmu_program(struct event *e);
void pmu_update(struct event *e);
void pmu_stop(struct event *e);
void pmu_adjust_overflow(struct event *e, u64 now, u64 tick, const BootPage *boot);
void pmu_adjust_tick(struct cpu *c);

/* amd.c: what AMD's driver does where Intel's does something else */
#define AMD_TOP_BIT (1ull << 47)
extern enum pmu_kind pmu_kind;
void amd_off_at_reset(void);
void amd_disable_all(struct cpu *c);
void amd_enable_all(struct cpu *c);
void amd_start(struct cpu *c, struct event *e);
void amd_stopped(struct cpu *c, struct event *e);

/* nmi.c, amd_nmi.c */
void pmi(const struct interrupt *frame);
void pmi_amd(const struct interrupt *frame);
void pmi_amd_v2(const struct interrupt *frame);
void pmi_account(struct cpu *c, const struct interrupt *frame, u64 exit, u64 status, u64 rearmed);
void pmi_restart(struct event *e, u64 value);

/* sched.c */
bool sched_rotation_needed(const struct cpu *c);
void sched_rotate(struct cpu *c);
void sched_in(struct cpu *c);

/* stat.c */
void stat_begin(struct cpu *c);
bool stat_tick(struct cpu *c, const struct interrupt *frame);

/* replay.c */
void pmi_replay(const struct interrupt *frame);
void replay_turn(struct cpu *c);

/* workload.c, ring 3 */
extern const char ring3_ftest[], ring3_io[];
