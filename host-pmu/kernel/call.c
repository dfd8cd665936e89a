// SPDX-License-Identifier: GPL-2.0
/* The six calls as KVM makes them, by the strategy of the face's guest. A call that began ends with leave(). */

#include <linux/delay.h>
#include <linux/err.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "vpmu_kvm.h"

/* The PMU of faces: no event of perf's has it. */
static struct pmu face_pmu;

/* Calls begun less those ended; one may end on another CPU than it began on. */
static DEFINE_PER_CPU(long, inside);

void notrace call_begin(void)
{
	this_cpu_inc(inside);
}

static void leave(void)
{
	this_cpu_dec(inside);
}

void calls_wait(void)
{
	long sum;
	int cpu;

	do {
		sum = 0;
		for_each_possible_cpu(cpu)
			sum += per_cpu(inside, cpu);
		if (sum)
			msleep(20);
	} while (sum);
	/* The last instructions of a call come after its end. */
	synchronize_rcu_tasks();
}

bool is_face(const struct perf_event *event)
{
	return event->pmu == &face_pmu;
}

static struct face *face_of(struct perf_event *event)
{
	return container_of(event, struct face, event);
}

/*
 * KVM's counters are those of a guest's own thread that leave the host out. Of an event with precise_ip, or of an LBR's, KVM
 * reads what a face does not have.
 */
bool fits(const struct perf_event_attr *attr, int cpu, struct task_struct *task)
{
	return (attr->type == PERF_TYPE_RAW || attr->type == PERF_TYPE_HARDWARE) && attr->exclude_host && attr->pinned &&
	       !attr->precise_ip && !attr->branch_sample_type && cpu == -1 && task == current;
}

static struct perf_event *create(struct perf_event_attr *attr, int cpu, struct task_struct *task,
				 perf_overflow_handler_t handler, void *context)
{
	struct guest *guest = guest_get_current();
	struct vcpu *vcpu = guest ? guest_vcpu(guest) : NULL;
	struct face *face = NULL;
	unsigned long flags;
	int error = -ENOMEM;

	/* Until KVM has given the face back this code is needed, and the guest. */
	if (!guest || !try_module_get(THIS_MODULE)) {
		if (guest)
			guest_put(guest);
		return perf_event_create_kernel_counter(attr, cpu, task, handler, context);
	}
	if (!vcpu)
		goto put;
	vcpu->asked[OP_CREATE]++;
	face = kzalloc(sizeof(*face), GFP_KERNEL_ACCOUNT);
	if (!face) {
		vcpu->failed++;
		goto put;
	}
	face->event.pmu = &face_pmu;
	face->event.attr = *attr;
	face->event.hw.idx = -1;
	face->event.overflow_handler = handler;
	face->event.overflow_handler_context = context;
	face->vcpu = vcpu;
	face->on = !attr->disabled;
	error = host_create(face);
	if (error)
		goto put;
	raw_spin_lock_irqsave(&vcpu->faces_lock, flags);
	list_add_tail(&face->of_vcpu, &vcpu->faces);
	raw_spin_unlock_irqrestore(&vcpu->faces_lock, flags);
	return &face->event;
put:
	kfree(face);
	guest_put(guest);
	module_put(THIS_MODULE);
	return ERR_PTR(error);
}

struct perf_event *call_create(struct perf_event_attr *attr, int cpu, struct task_struct *task,
			       perf_overflow_handler_t handler, void *context)
{
	struct perf_event *event = create(attr, cpu, task, handler, context);

	leave();
	return event;
}

void call_enable(struct perf_event *event)
{
	struct face *face = face_of(event);

	face->vcpu->asked[OP_ENABLE]++;
	host_enable(face);
	leave();
}

u64 call_pause(struct perf_event *event, bool reset)
{
	struct face *face = face_of(event);
	u64 count;

	face->vcpu->asked[OP_PAUSE]++;
	host_pause(face);
	count = face->kept;
	if (reset)
		face->kept = 0;
	leave();
	return count;
}

int call_period(struct perf_event *event, u64 period)
{
	struct face *face = face_of(event);
	int error = -EINVAL;

	face->vcpu->asked[OP_PERIOD]++;
	/* perf's own refusals. */
	if (event->attr.sample_period && (s64)period > 0) {
		event->attr.sample_period = period;
		error = host_period(face);
	}
	leave();
	return error;
}

u64 call_read(struct perf_event *event, u64 *enabled, u64 *running)
{
	struct face *face = face_of(event);
	u64 count;

	face->vcpu->asked[OP_READ]++;
	*enabled = 0;
	*running = 0;
	count = face->kept + (face->on ? host_count(face, enabled, running) - face->base : 0);
	leave();
	return count;
}

int call_release(struct perf_event *event)
{
	struct face *face = face_of(event);
	struct guest *guest = face->vcpu->guest;
	unsigned long flags;

	face->vcpu->asked[OP_RELEASE]++;
	atomic_inc(&face->vcpu->releasing);
	raw_spin_lock_irqsave(&face->vcpu->faces_lock, flags);
	list_del(&face->of_vcpu);
	raw_spin_unlock_irqrestore(&face->vcpu->faces_lock, flags);
	WRITE_ONCE(face->on, false);
	if (face->host)
		host_release(face);
	atomic_dec(&face->vcpu->releasing);
	kfree(face);
	guest_put(guest);
	module_put(THIS_MODULE);
	leave();
	return 0;
}
