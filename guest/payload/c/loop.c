/*
 * What an instruction costs where none exits: FLAG_TIME_LOOP, for calibrations. The mix is that of pmi(): of 16 instructions 4 have an
 * operand in memory and 2 are jumps.
 */
#include "state.h"

#define LOOPS ((LOOP_INSTRUCTIONS - 4) / 16)
_Static_assert(LOOPS * 16 + 4 == LOOP_INSTRUCTIONS, "two moves, the loop's count, and the second RDTSC beside whole loops");

void time_loop(struct cpu *c)
{
	u64 cell[2] = { 1, 1 };
	u64 nmis = c->nmis;
	u32 low, high, end_low, end_high;

	__asm__ volatile(
		"rdtsc\n\t"
		"movl %%eax, %0\n\t"
		"movl %%edx, %1\n\t"
		"movl %5, %%ecx\n"
		"1:\n\t"
		"movq (%4), %%rax\n\t"
		"movl %%eax, %%eax\n\t"
		"shlq $32, %%rdx\n\t"
		"orq %%rax, %%rdx\n\t"
		"subq 8(%4), %%rdx\n\t"
		"movq %%rdx, %%rsi\n\t"
		"andq %%rax, %%rsi\n\t"
		"addq $1, (%4)\n\t"
		"leaq -2(%%rsi), %%rdx\n\t"
		"testq %%rdx, %%rdx\n\t"
		"cmovle %%rsi, %%rdx\n\t"
		"testl %%ecx, %%ecx\n\t"
		"je 2f\n\t"
		"movq %%rdx, 8(%4)\n\t"
		"subl $1, %%ecx\n\t"
		"jne 1b\n"
		"2:\n\t"
		"rdtsc"
		: "=&r"(low), "=&r"(high), "=&a"(end_low), "=&d"(end_high)
		: "r"(cell), "i"(LOOPS)
		: "rcx", "rsi", "cc", "memory");
	if (c->nmis != nmis)
		return;
	c->report->loops++;
	c->report->loop_ticks += ((u64)end_high << 32 | end_low) - ((u64)high << 32 | low);
}
