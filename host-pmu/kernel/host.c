// SPDX-License-Identifier: GPL-2.0
/* Host events behind faces: created, parked, paused and enabled as the guest's strategy says. */

#include <linux/err.h>
#include <linux/ktime.h>
#include <linux/slab.h>

#include "vpmu_kvm.h"

/* More than a guest's counter ever counts to. */
#define FAR (1ULL << 40)

/* Counts an operation and its time. */
static void did(struct vcpu *vcpu, enum operation operation, u64 began)
{
	vcpu->done[operation]++;
	vcpu->done_ns[operation] += ktime_get_ns() - began;
}

/*
 * An overflow, in an NMI: the guest's if its counter is on. An event that goes on behind a counter that is off soon overflows
 * no more.
 */
static void overflow(struct perf_event *event, struct perf_sample_data *data, struct pt_regs *regs)
{
	struct host_event *host = event->overflow_handler_context;
	struct face *face = READ_ONCE(host->face);

	if (!face)
		return;
	face->vcpu->callbacks++;
	WRITE_ONCE(face->ahead, false);
	if (READ_ONCE(face->on)) {
		face->event.overflow_handler(&face->event, data, regs);
		return;
	}
	face->vcpu->dropped++;
	if (face->vcpu->guest->strategy.pause != PAUSE_HOST) {
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
	u64 began = ktime_get_ns();
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
	struct face *face = ((struct host_event *)event->overflow_handler_context)->face;

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
 * A gate. KVM pauses, periods and enables one event at a time: until Linux 6.1 within the guest's access, since then before the
 * entry, for each counter that was touched; nothing says which call is the last. But no counter has to count before the guest
 * is entered, which tracepoint kvm_entry says with interrupts off, and the counts are the guest's alone. So an
 * entry's second pause, which more will follow, reads all events that count in one pass, later ones take these counts, and the
 * entry itself stops and starts what then has to be, in another, with the PMU stopped at most once. A counter that KVM leaves alone is left alone, and no counter waits for
 * another.
 */
static void read_ahead(struct vcpu *vcpu)
{
	u64 began = ktime_get_ns();
	struct face *face;
	unsigned long flags;

	raw_spin_lock_irqsave(&vcpu->faces_lock, flags);
	list_for_each_entry(face, &vcpu->faces, of_vcpu) {
		struct perf_event *event = face->host ? face->host->event : NULL;

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
	vcpu->done_ns[OP_READ] += ktime_get_ns() - began;
}

void host_enter(struct vcpu *vcpu)
{
	u64 began = ktime_get_ns();
	struct pmu *stopped = NULL;
	struct face *face;
	bool held = false, starts = false;

	raw_spin_lock(&vcpu->faces_lock);
	list_for_each_entry(face, &vcpu->faces, of_vcpu) {
		struct perf_event *event = face->host ? face->host->event : NULL;
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
			vcpu->done[OP_STOP]++;
		} else {
			face->due = false;
			act_start(event);
			vcpu->done[OP_START]++;
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
	vcpu->done_ns[starts ? OP_START : OP_STOP] += ktime_get_ns() - began;
}

/* Has a face's event started at the guest's entry, if that is on this thread and the event counts here. */
static bool start_at_entry(struct face *face)
{
	struct vcpu *vcpu = face->vcpu;

	if (vcpu->tid != current->pid || READ_ONCE(face->host->event->state) != PERF_EVENT_STATE_ACTIVE)
		return false;
	face->due = true;
	vcpu->held = true;
	return true;
}

/* Parked events serve the same counting: attributes but for the period, which KVM alone sets. */
static bool serves(const struct perf_event *event, const struct perf_event_attr *attr)
{
	const struct perf_event_attr *had = &event->attr;

	return had->type == attr->type && had->config == attr->config && had->config1 == attr->config1 &&
	       had->config2 == attr->config2 && !had->sample_period == !attr->sample_period &&
	       had->exclude_user == attr->exclude_user && had->exclude_kernel == attr->exclude_kernel &&
	       had->exclude_host == attr->exclude_host && had->exclude_guest == attr->exclude_guest &&
	       had->exclude_hv == attr->exclude_hv && had->pinned == attr->pinned;
}

/* Takes a parked event that can serve a face: the one that was parked last. */
static struct host_event *unpark(struct face *face)
{
	struct vcpu *vcpu = face->vcpu;
	struct host_event *host, *found = NULL;

	mutex_lock(&vcpu->guest->lock);
	list_for_each_entry(host, &vcpu->parked, parked) {
		if (!serves(host->event, &face->event.attr) || host->event->state < PERF_EVENT_STATE_OFF)
			continue;
		if (vcpu->guest->strategy.last && host->counter != face->event.overflow_handler_context)
			continue;
		list_del(&host->parked);
		vcpu->parked_events--;
		vcpu->taken++;
		found = host;
		break;
	}
	mutex_unlock(&vcpu->guest->lock);
	return found;
}

/* Parks an event and returns one that was parked too many, or NULL. */
static struct host_event *park(struct vcpu *vcpu, struct host_event *host)
{
	const struct strategy *strategy = &vcpu->guest->strategy;
	struct host_event *other, *surplus = NULL;

	if (strategy->last) {
		list_for_each_entry(other, &vcpu->parked, parked) {
			if (other->counter == host->counter)
				surplus = other;
		}
	} else if (vcpu->parked_events == strategy->pool) {
		surplus = list_last_entry(&vcpu->parked, struct host_event, parked);
	}
	if (surplus)
		list_del(&surplus->parked);
	else
		vcpu->parked_events++;
	list_add(&host->parked, &vcpu->parked);
	return surplus;
}

static void destroy(struct vcpu *vcpu, struct host_event *host)
{
	u64 began = ktime_get_ns();

	perf_event_release_kernel(host->event);
	did(vcpu, OP_RELEASE, began);
	kfree(host);
}

static void enable(struct vcpu *vcpu, struct host_event *host)
{
	u64 began = ktime_get_ns();

	perf_event_enable(host->event);
	host->paused = false;
	did(vcpu, OP_ENABLE, began);
}

static u64 pause(struct vcpu *vcpu, struct host_event *host)
{
	u64 began = ktime_get_ns();
	u64 count = perf_event_pause(host->event, true);

	host->paused = true;
	did(vcpu, OP_PAUSE, began);
	return count;
}

static int set_period(struct vcpu *vcpu, struct host_event *host, u64 period)
{
	u64 began = ktime_get_ns();
	int error = perf_event_period(host->event, period);

	did(vcpu, OP_PERIOD, began);
	return error;
}

/* Creates an event of a face's attributes, or takes one that is parked. It counts if the face is on. */
struct host_event *host_create(struct face *face)
{
	struct vcpu *vcpu = face->vcpu;
	struct perf_event_attr attr = face->event.attr;
	struct host_event *host = unpark(face);
	u64 began;

	face->base = 0;
	if (host) {
		host->counter = face->event.overflow_handler_context;
		WRITE_ONCE(host->face, face);
		if (!attr.sample_period || !set_period(vcpu, host, attr.sample_period)) {
			if (face->on)
				enable(vcpu, host);
			return host;
		}
		destroy(vcpu, host);
	}
	host = kzalloc(sizeof(*host), GFP_KERNEL_ACCOUNT);
	if (!host) {
		vcpu->failed++;
		return ERR_PTR(-ENOMEM);
	}
	INIT_LIST_HEAD(&host->parked);
	host->counter = face->event.overflow_handler_context;
	host->face = face;
	host->paused = !face->on;
	began = ktime_get_ns();
	host->event = perf_event_create_kernel_counter(&attr, -1, current, overflow, host);
	if (IS_ERR(host->event)) {
		long error = PTR_ERR(host->event);

		vcpu->failed++;
		kfree(host);
		return ERR_PTR(error);
	}
	did(vcpu, OP_CREATE, began);
	if (face->on && attr.disabled)
		enable(vcpu, host);
	return host;
}

/* Parks an event, or gives it back to perf. */
void host_release(struct vcpu *vcpu, struct host_event *host)
{
	struct guest *guest = vcpu->guest;
	struct host_event *surplus = host;

	if ((guest->strategy.pool || guest->strategy.last) && host->event->state >= PERF_EVENT_STATE_OFF) {
		if (!host->paused)
			pause(vcpu, host);
		WRITE_ONCE(host->face, NULL);
		mutex_lock(&guest->lock);
		if (!guest->closed)
			surplus = park(vcpu, host);
		mutex_unlock(&guest->lock);
	}
	if (surplus)
		destroy(vcpu, surplus);
}

/* Returns an event's count; of one that counts on this CPU without perf's core, unless it is paused by that. */
u64 host_count(struct face *face, u64 *enabled, u64 *running)
{
	struct vcpu *vcpu = face->vcpu;
	struct host_event *host = face->host;
	u64 began, count;

	if (!host)
		return face->base;
	if (READ_ONCE(face->ahead))
		return face->count;
	if (vcpu->guest->strategy.pause != PAUSE_HOST && here(vcpu, OP_READ, host->event, act_read))
		return local64_read(&host->event->count);
	began = ktime_get_ns();
	count = perf_event_read_value(host->event, enabled, running);
	did(vcpu, OP_READ, began);
	return count;
}

/* Notes a pause behind a gate on the vCPU's own thread: the next entry stops the event. */
static void pause_at_entry(struct vcpu *vcpu)
{
	if (vcpu->tid != current->pid)
		return;
	vcpu->held = true;
	if (++vcpu->pauses == 2)
		read_ahead(vcpu);
}

/* Stops counting for the guest, and keeps what was counted. */
void host_pause(struct face *face)
{
	struct vcpu *vcpu = face->vcpu;
	const struct strategy *strategy = &vcpu->guest->strategy;
	struct host_event *host = face->host;
	bool was_on = face->on;
	u64 ignored;

	face->due = false;
	if (!was_on && (!host || strategy->skip_paused || strategy->pause != PAUSE_HOST))
		return;
	if (!host) {
		/* It could not be created: nothing was counted. */
		face->on = false;
		return;
	}
	if (strategy->pause == PAUSE_HOST && !strategy->recreate) {
		face->kept += pause(vcpu, host);
	} else {
		/* Without a period nothing would start it again. */
		if (strategy->pause == PAUSE_DIRECT && face->event.attr.sample_period)
			here(vcpu, OP_STOP, host->event, act_stop);
		else if (strategy->pause == PAUSE_GATE)
			pause_at_entry(vcpu);
		face->kept += host_count(face, &ignored, &ignored) - face->base;
	}
	WRITE_ONCE(face->on, false);
	if (strategy->recreate) {
		face->host = NULL;
		destroy(vcpu, host);
	}
}

/* Sets the period of the face's attributes, now, or where nothing counts until it is enabled, then. */
int host_period(struct face *face)
{
	const struct strategy *strategy = &face->vcpu->guest->strategy;

	face->period_due = !face->host || (!face->on && (strategy->skip_period || strategy->pause != PAUSE_HOST));
	return face->period_due ? 0 : set_period(face->vcpu, face->host, face->event.attr.sample_period);
}

/* Has an event that is paused or gone count again for the guest. */
void host_enable(struct face *face)
{
	struct vcpu *vcpu = face->vcpu;
	enum pause how = vcpu->guest->strategy.pause;
	u64 period = face->event.attr.sample_period;
	u64 ignored;

	if (!face->host) {
		struct host_event *host;

		face->on = true;
		host = host_create(face);
		face->host = IS_ERR(host) ? NULL : host;
	} else if (face->on && how != PAUSE_HOST) {
		return;
	} else if (!period || !(how == PAUSE_DIRECT ? here(vcpu, OP_START, face->host->event, act_start) :
					      how == PAUSE_GATE && start_at_entry(face))) {
		if (face->period_due)
			set_period(vcpu, face->host, period);
		if (how != PAUSE_HOST)
			face->base = host_count(face, &ignored, &ignored);
		WRITE_ONCE(face->on, true);
		/* perf leaves a pinned event that lost its counter off until it is enabled. */
		if (how == PAUSE_HOST || READ_ONCE(face->host->event->state) < PERF_EVENT_STATE_INACTIVE)
			enable(vcpu, face->host);
	}
	face->period_due = false;
}
