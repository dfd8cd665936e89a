/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A module between KVM's vPMU and perf. KVM is given a *face* in place of each perf event that it creates; behind the face
 * a *host event* of perf is kept, or not kept, by the guest's strategy.
 */
#ifndef VPMU_KVM_H
#define VPMU_KVM_H

/* Raised with each change of the module: vpmu takes a module of this version alone. vpmu, dkms.conf and check read this line. */
#define VPMU_KVM_VERSION "1"

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/perf_event.h>
#include <linux/spinlock.h>
#include <linux/types.h>

/* What is done to events: the six calls by which KVM's vPMU reaches perf, and two past perf's core. */
enum operation {
	OP_CREATE,
	OP_ENABLE,
	OP_PAUSE,
	OP_PERIOD,
	OP_READ,
	OP_RELEASE,
	CALLS,
	OP_STOP = CALLS,
	OP_START,
	OPERATIONS,
};

/* How an event stops counting for its guest. */
enum pause {
	/* perf_event_pause. */
	PAUSE_HOST,
	/* It is read and goes on; what it counts until it is enabled is left out. */
	PAUSE_VIRTUAL,
	/* Its PMU is stopped on this CPU, without the context's lock. */
	PAUSE_DIRECT,
	/* So are all events of the vCPU that have to be, at the guest's entry, in one pass. */
	PAUSE_GATE,
};

/* What a guest's events are kept by; the words of a write to /dev/vpmu_kvm. */
struct strategy {
	/* A paused event is released, an enabled one created. */
	bool recreate;
	/* Released events that are kept for each vCPU, for any counter that counts the same. */
	unsigned int pool;
	/* The event that each counter released last is kept for that counter. */
	bool last;
	enum pause pause;
	/* A paused event is not paused. */
	bool skip_paused;
	/* The period of a paused event is set once, when it is enabled. */
	bool skip_period;
};

/* A thread or a process that wrote to /dev/vpmu_kvm: the events that KVM creates there are kept by its strategy. */
struct guest {
	struct kref ref;
	struct list_head node;
	/* Its thread, or its process, which no later one can be taken for; NULL before the write. */
	struct pid *pid;
	bool thread;
	struct strategy strategy;
	/* Protects everything below but counts, and what its vCPUs have parked. */
	struct mutex lock;
	/* The file is closed: nothing is parked any more. */
	bool closed;
	struct list_head vcpus;
};

/* What KVM asked for on one vCPU's thread, and what was done. Written by that thread, but for what the end of a VM releases. */
struct vcpu {
	struct list_head node;
	struct guest *guest;
	pid_t tid;
	struct list_head parked;
	unsigned int parked_events;
	/* Its faces; the lock also orders their events' passes. */
	struct list_head faces;
	raw_spinlock_t faces_lock;
	/* Of a gate: its node among those that the entry looks for; the next entry has work; pauses since the last. */
	struct list_head gated;
	bool held;
	unsigned int pauses;
	unsigned long asked[CALLS];
	unsigned long done[OPERATIONS];
	u64 done_ns[OPERATIONS];
	/* Creations served by a parked event; creations that perf refused. */
	unsigned long taken;
	unsigned long failed;
	/* Passes of a gate over the vCPU's events. */
	unsigned long passes;
	/* Overflows, and those of them that came while the guest's counter was off. */
	unsigned long callbacks;
	unsigned long dropped;
};

/* An event of perf's. */
struct host_event {
	struct perf_event *event;
	struct list_head parked;
	/* The counter that it served last, as KVM names it. */
	void *counter;
	/* The face that it serves; read in NMIs. */
	struct face *face;
	bool paused;
};

/* What KVM holds. Its attributes and its context are KVM's; nothing of perf's ever sees it. */
struct face {
	struct perf_event event;
	struct vcpu *vcpu;
	struct list_head of_vcpu;
	struct host_event *host;
	/* The guest's counter is on; read in NMIs. */
	bool on;
	/* It is to be on from the guest's entry. */
	bool due;
	/* The host event was read ahead since the last entry, as count, and has not overflowed since; cleared in NMIs. */
	bool ahead;
	u64 count;
	/* The host event does not have the period of the attributes yet. */
	bool period_due;
	/* Host counts that are not the guest's, or that KVM has taken. */
	u64 base;
	/* Counts from before the last pause that KVM has not taken. */
	u64 kept;
};

/* The calls, with perf's signatures. */
struct perf_event *call_create(struct perf_event_attr *attr, int cpu, struct task_struct *task,
			       perf_overflow_handler_t handler, void *context);
void call_enable(struct perf_event *event);
u64 call_pause(struct perf_event *event, bool reset);
int call_period(struct perf_event *event, u64 period);
u64 call_read(struct perf_event *event, u64 *enabled, u64 *running);
int call_release(struct perf_event *event);
/* Whether an event is a face; whether one of these attributes may stand behind one. */
bool is_face(const struct perf_event *event);
bool fits(const struct perf_event_attr *attr, int cpu, struct task_struct *task);

struct host_event *host_create(struct face *face);
void host_release(struct vcpu *vcpu, struct host_event *host);
void host_enable(struct face *face);
void host_pause(struct face *face);
int host_period(struct face *face);
u64 host_count(struct face *face, u64 *enabled, u64 *running);
/* What a gate holds back until the guest's entry. Interrupts are off. */
void host_enter(struct vcpu *vcpu);

/* Calls host_enter for each vCPU that is added, until its guest is closed. */
int gate_open(void);
void gate_add(struct vcpu *vcpu);
void gate_close(struct guest *guest);

/* The guest of the current process, with a reference, or NULL. */
struct guest *guest_get_current(void);
void guest_put(struct guest *guest);
struct vcpu *guest_vcpu(struct guest *guest);
int guests_register(void);
void guests_unregister(void);

int hook_register(void);
void hook_unregister(void);
/* Ends a call that was redirected. */
void hook_leave(void);

#endif
