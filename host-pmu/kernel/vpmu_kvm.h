/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A module between KVM's vPMU and perf. KVM is given a *face* in place of each perf event that it creates; behind the face
 * a *host event* of perf is kept, or not kept, by the guest's strategy.
 */
#ifndef VPMU_KVM_H
#define VPMU_KVM_H

/* Raised with each change of the module: vpmu takes a module of this version alone. vpmu, dkms.conf and check read this line. */
#define VPMU_KVM_VERSION "5"

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/perf_event.h>
#include <linux/spinlock.h>
#include <linux/types.h>

/* What is done to events: the six calls by which KVM's vPMU reaches perf. DIRECT and GATE enable, pause and read past perf's core. */
enum operation {
	OP_CREATE,
	OP_ENABLE,
	OP_PAUSE,
	OP_PERIOD,
	OP_READ,
	OP_RELEASE,
	OPERATIONS,
};

/* What a guest's events are kept by; its name is the word of a write to /dev/vpmu_kvm. */
enum strategy {
	/* perf_event_pause, as KVM asks. */
	STOCK,
	/* A paused event is released, an enabled one created. */
	RECREATE,
	/* A paused event is read and goes on, as with all that follow; what it counts until it is enabled is left out. */
	VIRTUAL,
	/* Its PMU is stopped on this CPU, without the context's lock. */
	DIRECT,
	/* So are all events of the vCPU that have to be, at the guest's entry, in one pass. */
	GATE,
	STRATEGIES,
};

/* A thread or a process that wrote to /dev/vpmu_kvm: the events that KVM creates there are kept by its strategy. */
struct guest {
	struct kref ref;
	struct list_head node;
	/* Its thread, or its process, which no later one can be taken for; NULL before the write. */
	struct pid *pid;
	bool thread;
	enum strategy strategy;
	/* Whether the time of each operation is taken: module parameter timed at the write. */
	bool timed;
	/* Protects the list, but not the counts. */
	struct mutex lock;
	struct list_head vcpus;
};

/* What KVM asked for on one vCPU's thread, and what was done. Written by that thread, but for what the end of a VM releases. */
struct vcpu {
	struct list_head node;
	struct guest *guest;
	/* Its thread. Once that has ended and its events are gone, a further thread's: there are as many as threads at once. */
	struct pid *pid;
	/* Faces that are being released: their operations are still to be counted. */
	atomic_t releasing;
	/* Its faces; the lock also orders their events' passes. */
	struct list_head faces;
	raw_spinlock_t faces_lock;
	/* Of a gate: its node in the entry's table; the next entry has work; pauses since the last. */
	struct hlist_node gated;
	bool held;
	unsigned int pauses;
	unsigned long asked[OPERATIONS];
	unsigned long done[OPERATIONS];
	u64 done_ns[OPERATIONS];
	/* Creations that perf refused. */
	unsigned long failed;
	/* Passes of a gate over the vCPU's events. */
	unsigned long passes;
	/* Overflows, and those of them that came while the guest's counter was off. */
	unsigned long callbacks;
	unsigned long dropped;
};

/* What KVM holds. Its attributes and its context are KVM's; nothing of perf's ever sees it. */
struct face {
	struct perf_event event;
	struct vcpu *vcpu;
	struct list_head of_vcpu;
	/* Perf's event; NULL where there is none now. */
	struct perf_event *host;
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
/* A call begins, with preemption off; waits until all that began have ended. */
void call_begin(void);
void calls_wait(void);
/* Whether an event is a face; whether one of these attributes may stand behind one. */
bool is_face(const struct perf_event *event);
bool fits(const struct perf_event_attr *attr, int cpu, struct task_struct *task);

int host_create(struct face *face);
void host_release(struct face *face);
void host_enable(struct face *face);
void host_pause(struct face *face);
int host_period(struct face *face);
u64 host_count(struct face *face, u64 *enabled, u64 *running);
/* What a gate holds back until the guest's entry. Interrupts are off. */
void host_enter(struct vcpu *vcpu);

/* Calls host_enter for each vCPU that is added, until its guest is closed. */
int gate_open(void);
void gate_add(struct vcpu *vcpu);
void gate_remove(struct vcpu *vcpu);
void gate_close(struct guest *guest);

/* The guest of the current process, with a reference, or NULL. */
struct guest *guest_get_current(void);
void guest_put(struct guest *guest);
struct vcpu *guest_vcpu(struct guest *guest);
extern struct miscdevice guests_device;

#endif
