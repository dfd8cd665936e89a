// SPDX-License-Identifier: GPL-2.0
/* /dev/vpmu_kvm: a process writes its strategy there before its guest runs, and reads what was asked and done. */

#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "vpmu_kvm.h"

/* A time takes two readings of the clock, which would favour strategies of few operations. */
static bool timed;
module_param(timed, bool, 0644);
MODULE_PARM_DESC(timed, "take the time of each operation of guests from now on");

static LIST_HEAD(guests);
static DEFINE_MUTEX(guests_lock);

/* Returns the guest of the current thread, or of the whole process, as `thread` says. */
static struct guest *find_current(bool thread)
{
	struct pid *pid = thread ? task_pid(current) : task_tgid(current);
	struct guest *guest;

	list_for_each_entry(guest, &guests, node) {
		if (guest->thread == thread && guest->pid == pid)
			return guest;
	}
	return NULL;
}

struct guest *guest_get_current(void)
{
	struct guest *guest;

	mutex_lock(&guests_lock);
	guest = find_current(true) ?: find_current(false);
	if (guest)
		kref_get(&guest->ref);
	mutex_unlock(&guests_lock);
	return guest;
}

static void guest_free(struct kref *ref)
{
	struct guest *guest = container_of(ref, struct guest, ref);
	struct vcpu *vcpu, *next;

	if (guest->strategy == GATE)
		gate_close(guest);
	list_for_each_entry_safe(vcpu, next, &guest->vcpus, node) {
		put_pid(vcpu->pid);
		kfree(vcpu);
	}
	put_pid(guest->pid);
	kfree(guest);
}

void guest_put(struct guest *guest)
{
	kref_put(&guest->ref, guest_free);
}

/* Returns the vCPU of the current thread. */
struct vcpu *guest_vcpu(struct guest *guest)
{
	struct vcpu *vcpu, *spare = NULL;

	mutex_lock(&guest->lock);
	list_for_each_entry(vcpu, &guest->vcpus, node) {
		if (vcpu->pid == task_pid(current))
			goto found;
		if (list_empty(&vcpu->faces) && !atomic_read(&vcpu->releasing) && !pid_has_task(vcpu->pid, PIDTYPE_PID))
			spare = vcpu;
	}
	vcpu = spare ?: kzalloc(sizeof(*vcpu), GFP_KERNEL_ACCOUNT);
	if (vcpu) {
		if (vcpu != spare) {
			vcpu->guest = guest;
			INIT_LIST_HEAD(&vcpu->faces);
			raw_spin_lock_init(&vcpu->faces_lock);
			list_add_tail(&vcpu->node, &guest->vcpus);
		}
		if (guest->strategy == GATE)
			gate_remove(vcpu);
		put_pid(vcpu->pid);
		vcpu->pid = get_pid(task_pid(current));
		vcpu->held = false;
		vcpu->pauses = 0;
		if (guest->strategy == GATE)
			gate_add(vcpu);
	}
found:
	mutex_unlock(&guest->lock);
	return vcpu;
}

/* As vpmu's documents name them. */
static const char * const names[OPERATIONS] = { "open", "resume", "pause", "period", "read", "release" };

static int show(struct seq_file *file, void *unused)
{
	struct guest *guest = file->private;
	struct vcpu *vcpu;
	int i;

	mutex_lock(&guest->lock);
	list_for_each_entry(vcpu, &guest->vcpus, node) {
		seq_printf(file, "tid=%d", pid_nr(vcpu->pid));
		for (i = 0; i < OPERATIONS; i++)
			seq_printf(file, " %s=%lu/%lu/%llu", names[i], READ_ONCE(vcpu->asked[i]),
				   READ_ONCE(vcpu->done[i]), READ_ONCE(vcpu->done_ns[i]));
		seq_printf(file, " failed=%lu passes=%lu callbacks=%lu dropped=%lu\n", READ_ONCE(vcpu->failed),
			   READ_ONCE(vcpu->passes), READ_ONCE(vcpu->callbacks), READ_ONCE(vcpu->dropped));
	}
	mutex_unlock(&guest->lock);
	return 0;
}

static const char * const words[STRATEGIES] = { "stock", "recreate", "virtual", "direct", "gate" };

static int parse(char *text, enum strategy *strategy, bool *thread)
{
	char *word;
	int i;

	while ((word = strsep(&text, " \n"))) {
		if (!strcmp(word, "thread")) {
			*thread = true;
		} else if (*word) {
			for (i = 0; i < STRATEGIES && strcmp(word, words[i]); i++)
				;
			if (i == STRATEGIES)
				return -EINVAL;
			*strategy = i;
		}
	}
	return 0;
}

/* Takes the strategy, once, in one write. */
static ssize_t file_write(struct file *file, const char __user *from, size_t size, loff_t *at)
{
	struct guest *guest = ((struct seq_file *)file->private_data)->private;
	enum strategy strategy = STOCK;
	bool thread = false;
	char text[128];
	int error;

	if (size >= sizeof(text))
		return -E2BIG;
	if (copy_from_user(text, from, size))
		return -EFAULT;
	text[size] = '\0';
	if (strlen(text) != size)
		return -EINVAL;
	error = parse(text, &strategy, &thread);
	if (!error && strategy == GATE)
		error = gate_open();
	if (error)
		return error;
	mutex_lock(&guests_lock);
	if (guest->pid || find_current(thread)) {
		error = -EBUSY;
	} else {
		guest->strategy = strategy;
		guest->timed = READ_ONCE(timed);
		guest->thread = thread;
		guest->pid = get_pid(thread ? task_pid(current) : task_tgid(current));
		list_add_tail(&guest->node, &guests);
	}
	mutex_unlock(&guests_lock);
	if (error && strategy == GATE)
		gate_close(NULL);
	return error ?: size;
}

static int file_open(struct inode *inode, struct file *file)
{
	struct guest *guest = kzalloc(sizeof(*guest), GFP_KERNEL_ACCOUNT);
	int error;

	if (!guest)
		return -ENOMEM;
	kref_init(&guest->ref);
	INIT_LIST_HEAD(&guest->node);
	INIT_LIST_HEAD(&guest->vcpus);
	mutex_init(&guest->lock);
	/* It is the device's until here, and must be nobody's. */
	file->private_data = NULL;
	error = single_open(file, show, guest);
	if (error)
		kfree(guest);
	return error;
}

/* Closes a guest: what KVM still holds goes on. */
static int file_release(struct inode *inode, struct file *file)
{
	struct guest *guest = ((struct seq_file *)file->private_data)->private;

	mutex_lock(&guests_lock);
	list_del_init(&guest->node);
	mutex_unlock(&guests_lock);
	single_release(inode, file);
	guest_put(guest);
	return 0;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = file_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.write = file_write,
	.release = file_release,
};

struct miscdevice guests_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = KBUILD_MODNAME,
	.fops = &operations,
	.mode = 0600,
};
