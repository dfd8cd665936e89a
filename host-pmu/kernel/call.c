// SPDX-License-Identifier: GPL-2.0
/* The six calls as KVM makes them: on a face by its guest's strategy, on any other event as perf does. */

#include <linux/err.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "vpmu_kvm.h"

/* A KVM that is linked to the module calls these itself. */
#ifdef VPMU_RELINK
EXPORT_SYMBOL_GPL(vpmu_event_create_kernel_counter);
EXPORT_SYMBOL_GPL(vpmu_event_enable);
EXPORT_SYMBOL_GPL(vpmu_event_pause);
EXPORT_SYMBOL_GPL(vpmu_event_period);
EXPORT_SYMBOL_GPL(vpmu_event_read_value);
EXPORT_SYMBOL_GPL(vpmu_event_release_kernel);
#endif

/* The PMU of faces: no event of perf's has it. */
static struct pmu face_pmu;

bool is_face(const struct perf_event *event)
{
	return event->pmu == &face_pmu;
}

static struct face *face_of(struct perf_event *event)
{
	struct face *face = container_of(event, struct face, event);

	return is_face(event) ? face : NULL;
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

struct perf_event *vpmu_event_create_kernel_counter(struct perf_event_attr *attr, int cpu, struct task_struct *task,
						    perf_overflow_handler_t handler, void *context)
{
	struct guest *guest = fits(attr, cpu, task) ? guest_get_current() : NULL;
	struct vcpu *vcpu = guest ? guest_vcpu(guest) : NULL;
	struct face *face = NULL;
	unsigned long flags;
	int error = -ENOMEM;

	if (!guest)
		return perf_event_create_kernel_counter(attr, cpu, task, handler, context);
	/* Until KVM has given the face back this code is needed, and the guest. */
	if (!try_module_get(THIS_MODULE)) {
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
	face->host = host_create(face);
	error = PTR_ERR_OR_ZERO(face->host);
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

void vpmu_event_enable(struct perf_event *event)
{
	struct face *face = face_of(event);

	if (!face) {
		perf_event_enable(event);
		return;
	}
	face->vcpu->asked[OP_ENABLE]++;
	host_enable(face);
}

u64 vpmu_event_pause(struct perf_event *event, bool reset)
{
	struct face *face = face_of(event);
	u64 count;

	if (!face)
		return perf_event_pause(event, reset);
	face->vcpu->asked[OP_PAUSE]++;
	host_pause(face);
	count = face->kept;
	if (reset)
		face->kept = 0;
	return count;
}

int vpmu_event_period(struct perf_event *event, u64 period)
{
	struct face *face = face_of(event);

	if (!face)
		return perf_event_period(event, period);
	face->vcpu->asked[OP_PERIOD]++;
	/* perf's own refusals. */
	if (!event->attr.sample_period || !period || (s64)period < 0)
		return -EINVAL;
	event->attr.sample_period = period;
	return host_period(face);
}

u64 vpmu_event_read_value(struct perf_event *event, u64 *enabled, u64 *running)
{
	struct face *face = face_of(event);

	if (!face)
		return perf_event_read_value(event, enabled, running);
	face->vcpu->asked[OP_READ]++;
	*enabled = 0;
	*running = 0;
	return face->kept + (face->on ? host_count(face, enabled, running) - face->base : 0);
}

int vpmu_event_release_kernel(struct perf_event *event)
{
	struct face *face = face_of(event);
	unsigned long flags;
	struct guest *guest;

	if (!face)
		return perf_event_release_kernel(event);
	guest = face->vcpu->guest;
	face->vcpu->asked[OP_RELEASE]++;
	raw_spin_lock_irqsave(&face->vcpu->faces_lock, flags);
	list_del(&face->of_vcpu);
	raw_spin_unlock_irqrestore(&face->vcpu->faces_lock, flags);
	WRITE_ONCE(face->on, false);
	if (face->host)
		host_release(face->vcpu, face->host);
	kfree(face);
	guest_put(guest);
	module_put(THIS_MODULE);
	return 0;
}
