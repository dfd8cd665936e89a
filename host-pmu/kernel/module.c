// SPDX-License-Identifier: GPL-2.0

#include <linux/module.h>

#include "vpmu_kvm.h"

static int __init vpmu_kvm_init(void)
{
	int error = hook_register();

	if (error)
		return error;
	/* Last: from here on there may be faces, which all calls must know, and a file, whose code must stay. */
	error = guests_register();
	if (error)
		hook_unregister();
	return error;
}

static void __exit vpmu_kvm_exit(void)
{
	guests_unregister();
	hook_unregister();
}

module_init(vpmu_kvm_init);
module_exit(vpmu_kvm_exit);
MODULE_DESCRIPTION("Keeps the perf events of KVM's vPMU by a chosen strategy");
MODULE_LICENSE("GPL");
MODULE_VERSION(VPMU_KVM_VERSION);
