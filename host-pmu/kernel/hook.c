// SPDX-License-Identifier: GPL-2.0
/* By ftrace KVM's calls of perf's functions become calls of this module's, while KVM stays as it is. */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/ftrace.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/version.h>

#include "vpmu_kvm.h"

static const struct {
	void *from;
	void *to;
} calls[OPERATIONS] = {
	[OP_CREATE] = { perf_event_create_kernel_counter, call_create },
	[OP_ENABLE] = { perf_event_enable, call_enable },
	[OP_PAUSE] = { perf_event_pause, call_pause },
	[OP_PERIOD] = { perf_event_period, call_period },
	[OP_READ] = { perf_event_read_value, call_read },
	[OP_RELEASE] = { perf_event_release_kernel, call_release },
};

/* At the entry of one of the functions, with preemption off. */
static void notrace entered(unsigned long ip, unsigned long caller, struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	struct pt_regs *regs = ftrace_get_regs(fregs);
	int call = ops - (struct ftrace_ops *)ops->private;

	if (call == OP_CREATE ? within_module(caller, THIS_MODULE) || !fits((void *)regs->di, regs->si, (void *)regs->dx)
			   : !is_face((struct perf_event *)regs->di))
		return;
	call_begin();
	regs->ip = (unsigned long)calls[call].to;
}

static struct ftrace_ops ops[OPERATIONS];

/* Unhooks the first calls, and waits for those that were redirected: they may sleep in this code. */
static void unhook(int calls_hooked)
{
	while (calls_hooked--) {
		/* As long as perf's function leads here, this code has to stay. */
		while (unregister_ftrace_function(&ops[calls_hooked])) {
			pr_err("%ps cannot be unhooked: the module stays until the next boot\n", calls[calls_hooked].from);
			msleep(60 * MSEC_PER_SEC);
		}
		ftrace_free_filter(&ops[calls_hooked]);
	}
	calls_wait();
}

static int hook(void)
{
	int call, error = 0;

	for (call = 0; call < OPERATIONS; call++) {
		/* Permanent: with tracing switched off KVM would hand faces to perf. */
		ops[call].func = entered;
		ops[call].private = ops;
		ops[call].flags = FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_RECURSION |
				  FTRACE_OPS_FL_PERMANENT;
		error = ftrace_set_filter_ip(&ops[call], (unsigned long)calls[call].from, 0, 0);
		if (!error)
			error = register_ftrace_function(&ops[call]);
		if (error) {
			pr_err("%ps cannot be hooked (%d): it is traced by another user, built without tracing, or kernel.ftrace_enabled is 0\n",
			       calls[call].from, error);
			ftrace_free_filter(&ops[call]);
			unhook(call);
			break;
		}
	}
	return error;
}

static int __init vpmu_kvm_init(void)
{
	int error = hook();

	if (error)
		return error;
	/* Last: from here on there may be faces, which all calls must know, and a file, whose code must stay. */
	error = misc_register(&guests_device);
	if (error)
		unhook(OPERATIONS);
	return error;
}

static void __exit vpmu_kvm_exit(void)
{
	misc_deregister(&guests_device);
	unhook(OPERATIONS);
}

module_init(vpmu_kvm_init);
module_exit(vpmu_kvm_exit);
MODULE_DESCRIPTION("Keeps the perf events of KVM's vPMU by a chosen strategy");
MODULE_LICENSE("GPL");
MODULE_VERSION(VPMU_KVM_VERSION);
