/*
 * The steps of a branchy CPU-bound integer loop. One step advances an xorshift generator, branches on bits of it (one branch taken
 * half of the time and so unpredictable, one taken one time in eight, one always predictable), walks a table of 256 words by data,
 * and multiplies. A few instructions per branch, nearly all in L1.
 */
#pragma once

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
