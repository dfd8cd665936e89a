// SPDX-License-Identifier: GPL-2.0
/* Host events behind faces: created, paused and enabled as the guest's strategy says. */

#include <linux/err.h>
#include <linux/ktime.h>

#include "vpmu_kvm.h"

/* More than a guest's counter ever counts to. */
#define FAR (1ULL << 40)

/* The time at which an operation begins; 0 where none is taken. */
static u64 begin(const struct vcpu *vcpu)
{
	return vcpu->guest->timed ? ktime_get_ns() : 0;
}

static void took(struct vcpu *vcpu, enum operation operation, u64 began)
{
	if (began)
		vcpu->done_ns[operation] += ktime_get_ns() - began;
}

/* Counts an operation and its time. */
static void did(struct vcpu *vcpu, enum operation operation, u64 began)
{
	vcpu->done[operation]++;
	took(vcpu, operation, began);
}

/* Whether a paused event goes on. */
static bool goes_on(const struct face *face)
{
	return face->vcpu->guest->strategy >= VIRTUAL;
}

/*
 * An overflow, in an NMI: the guest's if its counter is on. An event that goes on behind a counter that is off soon overflows
 * no more.
 */
static void overflow(struct perf_event *event, struct perf_sample_data *data, struct pt_regs *regs)
{
	struct face *face = event->overflow_handler_context;

	face->vcpu->callbacks++;
	WRITE_ONCE(face->ahead, false);
	if (READ_ONCE(face->on)) {
		face->event.overflow_handler(&face->event, data, regs);
		return;
	}
	face->vcpu->dropped++;
	if (goes_on(face)) {
		event->hw.sample_period = FAR;
		local64_set(&event->hw.period_left, FAR);
	}
}

/* Whether an event counts on this CPU, whose interrupts are off. */
static bool is_here(struct perf_event *event)
{
	return READ_ONCE(event->state) == PERF_EVENT_STATE_ACTIVE && READ_ONCE(event->oncpu) == smp_processor_id();
}

/* Whether Intel's fixed counters, and which counters run for a guest alone, change only when the PMU is enabled again. */
static bool is_whole(void)
{
	return boot_cpu_data.x86_vendor == X86_VENDOR_INTEL;
}

/*
 * Does an operation on an event that counts on this CPU, with its interrupts off: what perf's core does to an event on another
 * CPU it does by an interrupt there, so that nothing else touches it. Returns whether it counts here.
 */
static bool here(struct vcpu *vcpu, enum operation operation, struct perf_event *event, void (*act)(struct perf_event *event))
{
	u64 began = begin(vcpu);
	bool whole = operation != OP_READ && is_whole();
	unsigned long flags;
	bool found;

	local_irq_save(flags);
	found = is_here(event);
	if (found) {
		if (whole)
			event->pmu->pmu_disable(event->pmu);
		act(event);
		if (whole)
			event->pmu->pmu_enable(event->pmu);
	}
	local_irq_restore(flags);
	if (found)
		did(vcpu, operation, began);
	return found;
}

static void act_read(struct perf_event *event)
{
	event->pmu->read(event);
}

static void act_stop(struct perf_event *event)
{
	event->pmu->stop(event, PERF_EF_UPDATE);
}

static void act_start(struct perf_event *event)
{
	struct face *face = event->overflow_handler_context;

	/* perf starts what it schedules in, whatever its guest's counter is. */
	act_stop(event);
	event->attr.sample_period = face->event.attr.sample_period;
	event->hw.sample_period = event->attr.sample_period;
	local64_set(&event->hw.period_left, 0);
	face->base = local64_read(&event->count);
	WRITE_ONCE(face->on, true);
	/* If it was throttled, the tick is not to start it again. */
	event->hw.interrupts = 0;
	event->pmu->start(event, PERF_EF_RELOAD);
}

/*
 * A gate. KVM pauses, periods and enables one event at a time: until Linux 6.1 within the guest's access, since then
 * before the entry, for each counter that was touched; nothing says which call is the last. But no counter has to count
 * before the guest is entered, which tracepoint kvm_entry says with interrupts off, and the counts are the guest's
 * alone. So an entry's second pause, which more will follow, reads all events that count in one pass, later ones take
 * these counts, and the entry itself stops and starts what then has to be, in another, with the PMU stopped at most
 * once. A counter that KVM leaves alone is left alone, and no counter waits for another.
 */
static void read_ahead(struct vcpu *vcpu)
{
	u64 began = begin(vcpu);
	struct face *face;
	unsigned long flags;

	raw_spin_lock_irqsave(&vcpu->faces_lock, flags);
	list_for_each_entry(face, &vcpu->faces, of_vcpu) {
		struct perf_event *event = face->host;

		if (!face->on || !event || !is_here(event))
			continue;
		/* If it overflows from here on, KVM is told, and takes a later count. */
		WRITE_ONCE(face->ahead, true);
		act_read(event);
		face->count = local64_read(&event->count);
		vcpu->done[OP_READ]++;
	}
	raw_spin_unlock_irqrestore(&vcpu->faces_lock, flags);
	vcpu->passes++;
	took(vcpu, OP_READ, began);
}

void host_enter(struct vcpu *vcpu)
{
	u64 began = begin(vcpu);
	struct pmu *stopped = NULL;
	struct face *face;
	bool held = false, starts = false;

	raw_spin_lock(&vcpu->faces_lock);
	list_for_each_entry(face, &vcpu->faces, of_vcpu) {
		struct perf_event *event = face->host;
		/* Without a period nothing would start it again. */
		bool stop = event && !face->on && !face->due && face->event.attr.sample_period;

		WRITE_ONCE(face->ahead, false);
		if (!event || !is_here(event)) {
			/* perf has it scheduled out: at a later entry. */
			held |= face->due;
			continue;
		}
		if (!face->due && (!stop || event->hw.state & PERF_HES_STOPPED))
			continue;
		if (is_whole() && !stopped) {
			stopped = event->pmu;
			stopped->pmu_disable(stopped);
		}
		/* The guest's count was taken at the pause; what came since is left out, unread. */
		event->hw.state |= PERF_HES_UPTODATE;
		if (stop) {
			act_stop(event);
			vcpu->done[OP_PAUSE]++;
		} else {
			face->due = false;
			act_start(event);
			vcpu->done[OP_ENABLE]++;
			starts = true;
		}
	}
	if (stopped)
		stopped->pmu_enable(stopped);
	raw_spin_unlock(&vcpu->faces_lock);
	vcpu->held = held;
	vcpu->pauses = 0;
	vcpu->passes++;
	/* The time of a pass that does both is the starts'. */
	took(vcpu, starts ? OP_ENABLE : OP_PAUSE, began);
}

/* Has a face's event started at the guest's entry, if that is on this thread and the event counts here. */
static bool start_at_entry(struct face *face)
{
	struct vcpu *vcpu = face->vcpu;

	if (vcpu->pid != task_pid(current) || READ_ONCE(face->host->state) != PERF_EVENT_STATE_ACTIVE)
		return false;
	face->due = true;
	vcpu->held = true;
	return true;
}

static void enable(struct face *face)
{
	u64 began = begin(face->vcpu);

	perf_event_enable(face->host);
	did(face->vcpu, OP_ENABLE, began);
}

/* Creates an event of a face's attributes. It counts if the face is on. */
int host_create(struct face *face)
{
	struct vcpu *vcpu = face->vcpu;
	struct perf_event_attr attr = face->event.attr;
	u64 began = begin(face->vcpu);
	struct perf_event *host = perf_event_create_kernel_counter(&attr, -1, current, overflow, face);

	face->base = 0;
	if (IS_ERR(host)) {
		vcpu->failed++;
		return PTR_ERR(host);
	}
	did(vcpu, OP_CREATE, began);
	face->host = host;
	if (face->on && attr.disabled)
		enable(face);
	return 0;
}

void host_release(struct face *face)
{
	u64 began = begin(face->vcpu);

	perf_event_release_kernel(face->host);
	face->host = NULL;
	did(face->vcpu, OP_RELEASE, began);
}

/* Returns an event's count; of one that counts on this CPU without perf's core, unless it is paused by that. */
u64 host_count(struct face *face, u64 *enabled, u64 *running)
{
	u64 began, count;

	if (!face->host)
		return face->base;
	if (READ_ONCE(face->ahead))
		return face->count;
	if (goes_on(face) && here(face->vcpu, OP_READ, face->host, act_read))
		return local64_read(&face->host->count);
	began = begin(face->vcpu);
	count = perf_event_read_value(face->host, enabled, running);
	did(face->vcpu, OP_READ, began);
	return count;
}

/* Notes a pause behind a gate on the vCPU's own thread: the next entry stops the event. */
static void pause_at_entry(struct vcpu *vcpu)
{
	if (vcpu->pid != task_pid(current))
		return;
	vcpu->held = true;
	if (++vcpu->pauses == 2)
		read_ahead(vcpu);
}

/* Stops counting for the guest, and keeps what was counted. */
void host_pause(struct face *face)
{
	struct vcpu *vcpu = face->vcpu;
	enum strategy strategy = vcpu->guest->strategy;
	u64 began, ignored;

	face->due = false;
	/* Of an event that could not be created nothing was counted. */
	if (!face->host || (!face->on && goes_on(face))) {
		face->on = false;
		return;
	}
	if (strategy == STOCK) {
		began = begin(face->vcpu);
		face->kept += perf_event_pause(face->host, true);
		did(vcpu, OP_PAUSE, began);
	} else {
		/* Without a period nothing would start it again. */
		if (strategy == DIRECT && face->event.attr.sample_period)
			here(vcpu, OP_PAUSE, face->host, act_stop);
		else if (strategy == GATE)
			pause_at_entry(vcpu);
		face->kept += host_count(face, &ignored, &ignored) - face->base;
	}
	WRITE_ONCE(face->on, false);
	if (strategy == RECREATE)
		host_release(face);
}

static int set_period(struct face *face)
{
	u64 began = begin(face->vcpu);
	int error = perf_event_period(face->host, face->event.attr.sample_period);

	did(face->vcpu, OP_PERIOD, began);
	return error;
}

/* Sets the period of the face's attributes, now, or where nothing counts until it is enabled, then. */
int host_period(struct face *face)
{
	face->period_due = !face->host || (!face->on && goes_on(face));
	return face->period_due ? 0 : set_period(face);
}

/* Has an event that is paused or gone count again for the guest. */
void host_enable(struct face *face)
{
	enum strategy strategy = face->vcpu->guest->strategy;
	u64 ignored;

	if (!face->host) {
		face->on = true;
		host_create(face);
	} else if (face->on && goes_on(face)) {
		return;
	} else if (!face->event.attr.sample_period ||
		   !(strategy == DIRECT ? here(face->vcpu, OP_ENABLE, face->host, act_start)
					: strategy == GATE && start_at_entry(face))) {
		if (face->period_due)
			set_period(face);
		if (goes_on(face))
			face->base = host_count(face, &ignored, &ignored);
		WRITE_ONCE(face->on, true);
		/* perf leaves a pinned event that lost its counter off until it is enabled. */
		if (!goes_on(face) || READ_ONCE(face->host->state) < PERF_EVENT_STATE_INACTIVE)
			enable(face);
	}
	face->period_due = false;
}
