/* The interface between entry.S and C. */
#pragma once
#include "cpu.h"

/* On the stack when an interrupt handler in C is called; entry.S builds it. */
struct interrupt {
	u64 r11, r10, r9, r8, rdi, rsi, rcx;
	u64 tsc_low, tsc_high;    /* taken by the stub's first instructions, each in 64 bits */
	u64 rdx, rax;
	u64 rip, cs, rflags, rsp, ss;
};

/* Reports an exception without a handler of its own, and ends the vCPU. */
_Noreturn void fail(u64 vector, u64 error, u64 rip, u64 cr2);
