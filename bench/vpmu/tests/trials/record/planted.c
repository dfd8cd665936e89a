/*
 * A guest that spends 50, 30 and 20 % of its time in three functions. Each unit of work is the same chain of multiplications.
 *
 * The work is done in ring 3, which runs at the processor's speed also where a nested host interprets ring 0. With EXITS each
 * function makes exits in the same proportion, of which a recording has exactly as many.
 */
#define NOINLINE __attribute__((noipa))
#ifndef ROUNDS
#define ROUNDS 2000
#endif

static volatile u64 sink;

static inline __attribute__((always_inline)) void units(int count)
{
	u64 value = sink | 1;

	/* Compilers leave out the frame of a function that calls none, and with it the caller's place in the chain. */
	__asm__ volatile("" : : "r"(__builtin_frame_address(0)));

	for (int i = 0; i < count * 1000; i++)
		__asm__ volatile("imul %0, %0" : "+r"(value));
#ifdef EXITS
	/* As many exits as work: a port that nobody has. */
	for (int i = 0; i < count / 10; i++)
		__asm__ volatile("outb %b0, $0x80" : : "a"(value));
#endif
	sink = value;
}

NOINLINE void half(void) { units(50); }
NOINLINE void three_tenths(void) { units(30); }
NOINLINE void fifth(void) { units(20); }

NOINLINE void round_of_work(void)
{
	half();
	three_tenths();
	fifth();
	__asm__ volatile("");
}

NOINLINE __attribute__((used)) void guest_main(void)
{
	for (int i = 0; i < ROUNDS; i++)
		round_of_work();
}

