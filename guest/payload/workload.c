/*
 * The workloads, in ring 3. Everything of this object is linked between user_start and user_end.
 *
 * ftest  A branchy CPU-bound integer loop. One unit is 1024 steps. A step advances an xorshift generator, branches on bits of it
 *        (one branch taken half of the time and so unpredictable, one taken one time in eight, one always predictable), walks a
 *        table of 256 words by data, and multiplies. A few instructions per branch, nearly all in L1.
 * io     A burst of 256 steps of the same, then one byte to PORT_WORKLOAD. One unit is one such write, and so a VM exit. The port
 *        is allowed by the TSS's I/O bitmap: IOPL 3 does not outlive an IRETQ on every KVM.
 *
 * `idle` has no ring-3 part: see main.c. A step is never optimised away, since its result goes to UserPage.checksum.
 */
#include "cpu.h"

#define S4(n) (n) * 0x9e3779b1u, ((n) + 1) * 0x9e3779b1u, ((n) + 2) * 0x9e3779b1u, ((n) + 3) * 0x9e3779b1u
#define S16(n) S4(n), S4((n) + 4), S4((n) + 8), S4((n) + 12)
#define S64(n) S16(n), S16((n) + 16), S16((n) + 32), S16((n) + 48)

/* Multiples of the golden ratio: a walk by their low bits has no short cycle. */
static const u32 table[256] = { S64(1u), S64(65u), S64(129u), S64(193u) };

struct walk {
	u64 random;
	u64 sum;
	u32 at;
};

static inline __attribute__((always_inline)) void steps(struct walk *w, u32 count)
{
	u64 random = w->random, sum = w->sum;
	u32 at = w->at;

	for (u32 i = 0; i < count; i++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		/* The empty statements keep the branches from becoming conditional moves. */
		if (random & 1) {
			__asm__ volatile("");
			sum += table[at & 255];
		} else {
			__asm__ volatile("");
			sum ^= random;
		}
		if ((random & 0x70) == 0) {
			__asm__ volatile("");
			sum *= 0x5851f42d4c957f2dull;
		}
		at = (u32)(table[(at ^ (u32)random) & 255] >> 24) + i;
	}
	w->random = random;
	w->sum = sum;
	w->at = at;
}

static const struct walk start = { 0x2545f4914f6cdd1dull, 0, 1 };

_Noreturn void ring3_ftest(volatile UserPage *user)
{
	struct walk w = start;

	for (;;) {
		steps(&w, 1024);
		user->checksum = w.sum;
		user->units++;
	}
}

_Noreturn void ring3_io(volatile UserPage *user)
{
	struct walk w = start;

	for (;;) {
		steps(&w, 256);
		user->checksum = w.sum;
		__asm__ volatile("outb %b0, %w1" : : "a"(0), "d"((u32)PORT_WORKLOAD) : "memory");
		user->units++;
	}
}
