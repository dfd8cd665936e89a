/*
 * A guest that multiplies matrices, so many times, below so many calls: a sample with its call chain is as large as that is long. Its
 * work is always the same.
 */
typedef unsigned long u64;

#define SIZE 96
/* Some ms each. */
#define PRODUCTS 1000
/* Longest chains that the recorder takes have some more entries. */
#define DEPTH 100

/* Or a compiler knows what a product of zeros is. */
static volatile u64 a[SIZE][SIZE], b[SIZE][SIZE], c[SIZE][SIZE];

__attribute__((noinline)) u64 cell(int row, int column)
{
	u64 sum = 0;

	for (int i = 0; i < SIZE; i++)
		sum += a[row][i] * b[i][column];
	return sum;
}

__attribute__((noinline)) void products(void)
{
	for (int i = 0; i < PRODUCTS * SIZE * SIZE; i++)
		c[i / SIZE % SIZE][i % SIZE] = cell(i / SIZE % SIZE, i % SIZE);
}

__attribute__((noinline)) void below(int calls)
{
	if (calls > 0)
		below(calls - 1);
	else
		products();
	/* No jump in the place of a call. */
	__asm__ volatile("");
}

__attribute__((noinline, used)) void guest_main(void)
{
	below(DEPTH);
}

#include "ring_3.c"
