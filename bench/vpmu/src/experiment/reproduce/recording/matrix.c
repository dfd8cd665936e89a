/*
 * A guest that multiplies matrices, so many times, below so many calls: a sample with its call chain is as large as that is long. Its
 * work is always the same.
 */
typedef unsigned long u64;

#ifndef PRODUCTS
#define PRODUCTS 400
#endif
#ifndef DEPTH
#define DEPTH 0
#endif
#define SIZE 96

static u64 a[SIZE][SIZE], b[SIZE][SIZE], c[SIZE][SIZE];

__attribute__((noipa)) u64 cell(int row, int column)
{
	u64 sum = 0;

	for (int i = 0; i < SIZE; i++)
		sum += a[row][i] * b[i][column];
	return sum;
}

__attribute__((noipa)) void product(void)
{
	for (int row = 0; row < SIZE; row++)
		for (int column = 0; column < SIZE; column++)
			c[row][column] = cell(row, column);
}

__attribute__((noipa)) void products(void)
{
	for (int i = 0; i < PRODUCTS; i++) {
		product();
		a[i % SIZE][0] += c[0][0] | 1;
	}
}

__attribute__((noipa)) void below(int calls)
{
	if (calls > 0)
		below(calls - 1);
	else
		products();
	/* No jump in the place of a call. */
	__asm__ volatile("");
}

__attribute__((noipa, used)) void guest_main(void)
{
	for (int row = 0; row < SIZE; row++) {
		for (int column = 0; column < SIZE; column++) {
			a[row][column] = row * 3 + column;
			b[row][column] = row * 7 - column;
		}
	}
	below(DEPTH);
}

