/*
 * The payload's workload as a Linux program: static, freestanding, one process for each CPU.
 *
 *   ftest NMIS MS [PROCESSES]
 *
 * Each process binds itself to a CPU and makes units of 1024 steps until the guest's CPUs have together taken NMIS × PROCESSES more NMIs
 * (by /proc/interrupts; 0 = they are not counted), or for MS milliseconds. It then prints how many units took how long. Without
 * arguments it does nothing, as true(1).
 */
typedef unsigned long u64;
typedef unsigned int u32;

#include "steps.h"

enum {
	SYS_READ = 0,
	SYS_WRITE = 1,
	SYS_OPEN = 2,
	SYS_CLOSE = 3,
	SYS_FORK = 57,
	SYS_EXIT = 60,
	SYS_WAIT4 = 61,
	SYS_SCHED_SETAFFINITY = 203,
	SYS_CLOCK_GETTIME = 228,
	CLOCK_MONOTONIC = 1,
};

/* Between two looks at /proc/interrupts. */
#define LOOK_NS 10000000ul

static long call(long number, long a, long b, long c, long d)
{
	register long fourth __asm__("r10") = d;
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
	return result;
}

static u64 now(void)
{
	u64 time[2] = { 0, 0 };

	call(SYS_CLOCK_GETTIME, CLOCK_MONOTONIC, (long)time, 0, 0);
	return time[0] * 1000000000ul + time[1];
}

static u64 number(const char *text)
{
	u64 value = 0;

	for (; *text >= '0' && *text <= '9'; text++)
		value = value * 10 + (u64)(*text - '0');
	return value;
}

/* The sum of the line "NMI:" of /proc/interrupts. */
static u64 nmis(void)
{
	static char text[1 << 16];
	long file = call(SYS_OPEN, (long)"/proc/interrupts", 0, 0, 0);
	u64 length = 0, sum = 0;

	for (long got = 1; got > 0 && length < sizeof text - 1; length += (u64)(got > 0 ? got : 0))
		got = call(SYS_READ, file, (long)(text + length), (long)(sizeof text - 1 - length), 0);
	call(SYS_CLOSE, file, 0, 0, 0);
	text[length] = 0;
	for (u64 at = 0; at + 4 < length; at++) {
		if (text[at] != 'N' || text[at + 1] != 'M' || text[at + 2] != 'I' || text[at + 3] != ':')
			continue;
		for (at += 4; text[at] == ' ' || (text[at] >= '0' && text[at] <= '9');) {
			if (text[at] == ' ') {
				at++;
				continue;
			}
			sum += number(text + at);
			while (text[at] >= '0' && text[at] <= '9')
				at++;
		}
		break;
	}
	return sum;
}

static char *put(char *to, const char *text)
{
	while (*text)
		*to++ = *text++;
	return to;
}

static char *put_number(char *to, u64 value)
{
	char digits[20];
	u32 count = 0;

	do
		digits[count++] = (char)('0' + value % 10);
	while (value /= 10);
	while (count)
		*to++ = digits[--count];
	return to;
}

static volatile u64 checksum;

static void work(u64 wanted, u64 limit_ns)
{
	u64 before = wanted ? nmis() : 0;
	u64 begin = now(), end = begin, look = begin + LOOK_NS, units = 0;
	struct walk w = start;
	char line[96], *to = line;

	while (end - begin < limit_ns) {
		steps(&w, 1024);
		units++;
		if (units % 4)
			continue;
		end = now();
		if (wanted && end >= look) {
			if (nmis() - before >= wanted)
				break;
			look = now() + LOOK_NS;
		}
	}
	checksum = w.sum;
	to = put(put_number(put(to, "ftest: "), units), " units in ");
	to = put(put_number(to, end - begin), " ns\n");
	call(SYS_WRITE, 1, (long)line, to - line, 0);
}

/* `stack`: argc, then the arguments. */
__attribute__((used)) void ftest(const long *stack)
{
	long argc = stack[0];
	char *const *argv = (char *const *)(stack + 1);
	u64 processes = argc > 3 ? number(argv[3]) : 1;

	if (argc > 2) {
		for (u64 n = 1; n < processes; n++)
			if (call(SYS_FORK, 0, 0, 0, 0) == 0) {
				u64 cpus[4] = { 0, 0, 0, 0 };

				cpus[n / 64 % 4] = 1ul << n % 64;
				call(SYS_SCHED_SETAFFINITY, 0, sizeof cpus, (long)cpus, 0);
				work(number(argv[1]) * processes, number(argv[2]) * 1000000);
				call(SYS_EXIT, 0, 0, 0, 0);
			}
		if (processes > 1) {
			u64 first = 1;

			call(SYS_SCHED_SETAFFINITY, 0, sizeof first, (long)&first, 0);
		}
		work(number(argv[1]) * processes, number(argv[2]) * 1000000);
		while (call(SYS_WAIT4, -1, 0, 0, 0) > 0)
			;
	}
	call(SYS_EXIT, 0, 0, 0, 0);
}

__asm__(".globl _start\n_start: mov %rsp, %rdi; and $-16, %rsp; call ftest; hlt");
