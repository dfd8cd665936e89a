/*
 * The workloads, in ring 3. Everything of this object is linked between user_start and user_end.
 *
 * ftest  A branchy CPU-bound integer loop. One unit is 1024 of the steps in steps.h.
 * io     A burst of 256 steps of the same, then one byte to PORT_WORKLOAD. One unit is one such write, and so a VM exit. The port
 *        is allowed by the TSS's I/O bitmap: IOPL 3 does not outlive an IRETQ on every KVM.
 *
 * `idle` has no ring-3 part: see main.c. A step is never optimised away, since its result goes to UserPage.checksum.
 */
#include "cpu.h"
#include "steps.h"

/* Nothing called it: a chain ends here. */
#define OUTERMOST __asm__ volatile(".cfi_undefined rip")

_Noreturn void ring3_ftest(volatile UserPage *user)
{
	struct walk w = start;

	OUTERMOST;
	for (;;) {
		steps(&w, 1024);
		user->checksum = w.sum;
		user->units++;
	}
}

_Noreturn void ring3_io(volatile UserPage *user)
{
	struct walk w = start;

	OUTERMOST;
	for (;;) {
		steps(&w, 256);
		user->checksum = w.sum;
		__asm__ volatile("outb %b0, %w1" : : "a"(0), "d"((u32)PORT_WORKLOAD) : "memory");
		user->units++;
	}
}
