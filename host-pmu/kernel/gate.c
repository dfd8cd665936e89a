// SPDX-License-Identifier: GPL-2.0
/* Where a gate's passes come from: KVM's tracepoint just before a guest's entry, with interrupts off, while a guest has a gate. */

#include <linux/hashtable.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/tracepoint.h>

#include "vpmu_kvm.h"

/* KVM's; taken by its name, so that the module also loads without KVM. */
extern struct tracepoint __tracepoint_kvm_entry;

/* Protects what follows but for the readers of the table, in which vCPUs are by their threads. */
static DEFINE_MUTEX(gate_lock);
static DEFINE_HASHTABLE(gated, 8);
static struct tracepoint *kvm_entry;
static unsigned int gates;

/* Of the tracepoint's arguments, which differ by release, none is needed. */
static void entering(void *unused)
{
	struct vcpu *vcpu;

	hash_for_each_possible_rcu(gated, vcpu, gated, (unsigned long)task_pid(current)) {
		if (vcpu->pid == task_pid(current) && READ_ONCE(vcpu->held))
			host_enter(vcpu);
	}
}

int gate_open(void)
{
	int error = 0;

	mutex_lock(&gate_lock);
	if (!gates) {
		kvm_entry = symbol_get(__tracepoint_kvm_entry);
		error = kvm_entry ? tracepoint_probe_register(kvm_entry, entering, NULL) : -ENOENT;
		if (error && kvm_entry)
			symbol_put(__tracepoint_kvm_entry);
	}
	if (!error)
		gates++;
	mutex_unlock(&gate_lock);
	return error;
}

void gate_add(struct vcpu *vcpu)
{
	mutex_lock(&gate_lock);
	hash_add_rcu(gated, &vcpu->gated, (unsigned long)vcpu->pid);
	mutex_unlock(&gate_lock);
}

void gate_remove(struct vcpu *vcpu)
{
	if (hlist_unhashed(&vcpu->gated))
		return;
	mutex_lock(&gate_lock);
	hash_del_rcu(&vcpu->gated);
	mutex_unlock(&gate_lock);
	/* An entry that goes through the table must not be led into another row. */
	tracepoint_synchronize_unregister();
}

void gate_close(struct guest *guest)
{
	struct vcpu *vcpu;

	mutex_lock(&gate_lock);
	if (guest) {
		list_for_each_entry(vcpu, &guest->vcpus, node)
			hash_del_rcu(&vcpu->gated);
	}
	if (!--gates) {
		tracepoint_probe_unregister(kvm_entry, entering, NULL);
		symbol_put(__tracepoint_kvm_entry);
	}
	mutex_unlock(&gate_lock);
	/* No entry looks at its vCPUs any more. */
	tracepoint_synchronize_unregister();
}
