/*
 * A guest that multiplies matrices, so many times. Its work is always the same.
 */
typedef unsigned long u64;

#ifndef PRODUCTS
#define PRODUCTS 400
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

__attribute__((noipa, used)) void guest_main(void)
{
	for (int row = 0; row < SIZE; row++) {
		for (int column = 0; column < SIZE; column++) {
			a[row][column] = row * 3 + column;
			b[row][column] = row * 7 - column;
		}
	}
	for (int i = 0; i < PRODUCTS; i++) {
		product();
		a[i % SIZE][0] += c[0][0] | 1;
	}
}

