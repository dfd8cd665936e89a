/* What each register takes, refuses and gives back. No counter runs. */
#include "check.h"

static void reset(void)
{
	EQ(BIT(GP) - 1, rdmsr(MSR_GLOBAL_CTRL));
	EQ(0, status());
	EQ(0, rdmsr(MSR_FIXED_CTR_CTRL));
	EQ(0, rdmsr(MSR_DEBUGCTL));
	for (u32 i = 0; i < GP; i++) {
		EQ(0, rdmsr(MSR_PERFEVTSEL0 + i));
		EQ(0, counter(i));
	}
	for (u32 i = 0; i < FIXED_COUNT; i++)
		EQ(0, rdmsr(MSR_FIXED_CTR0 + i));
}

static void cpuid_leaf(void)
{
	u32 a = 0xa, b, c = 0, d;

	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	EQ(s.v4 ? 4 : 2, a & 0xff);
	EQ(GP, a >> 8 & 0xff);
	EQ(48, a >> 16 & 0xff);
	EQ(7, a >> 24);
	EQ(0, b & 0x7f);
	EQ(FIXED_COUNT, d & 0x1f);
	EQ(48, d >> 5 & 0xff);
	a = 1, c = 0;
	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	EQ(1, c >> 15 & 1); /* PDCM: IA32_PERF_CAPABILITIES exists */
}

static void perf_capabilities(void)
{
	u64 value = rdmsr(MSR_PERF_CAPABILITIES);

	EQ(1, value >> 13 & 1);
	YES(faults_write(MSR_PERF_CAPABILITIES, value));
	YES(faults_write(MSR_PERF_CAPABILITIES, 0));
	EQ(value, rdmsr(MSR_PERF_CAPABILITIES));
}

static void absent_counters(void)
{
	static const u32 absent[] = {
		MSR_PMC0 + GP, MSR_PMC0 + 7, MSR_PERFEVTSEL0 + GP, MSR_PERFEVTSEL0 + 7, MSR_FIXED_CTR0 + FIXED_COUNT,
		MSR_A_PMC0 + GP, MSR_A_PMC0 + 7,
	};

	for (u32 i = 0; i < sizeof(absent) / sizeof(*absent); i++) {
		EQ(absent[i], faults_read(absent[i]) ? absent[i] : 0);
		EQ(absent[i], faults_write(absent[i], 0) ? absent[i] : 0);
	}
}

static void absent_debug_store(void)
{
	YES(faults_read(MSR_DS_AREA));
	YES(faults_write(MSR_DS_AREA, 0));
	YES(faults_read(MSR_PEBS_ENABLE));
	YES(faults_write(MSR_PEBS_ENABLE, 0));
}

static void selector_bits(void)
{
	for (u32 i = 0; i < GP; i++) {
		wrmsr(MSR_PERFEVTSEL0 + i, 0xffdfffff);
		EQ(0xffdfffff, rdmsr(MSR_PERFEVTSEL0 + i));
		wrmsr(MSR_PERFEVTSEL0 + i, 0x1234 * (i + 1));
	}
	for (u32 i = 0; i < GP; i++)
		EQ(0x1234 * (i + 1), rdmsr(MSR_PERFEVTSEL0 + i));
}

static void selector_any(void)
{
	for (u32 i = 0; i < GP; i++) {
		wrmsr(MSR_PERFEVTSEL0 + i, 0x3c);
		YES(faults_write(MSR_PERFEVTSEL0 + i, 0x3c | BIT(21)));
		EQ(0x3c, rdmsr(MSR_PERFEVTSEL0 + i));
	}
}

/* The masks are probed bit by bit; a refused write leaves the register as it was. */
#define ONE_BY_ONE(msr, writable)                                                                                      \
	do {                                                                                                           \
		u64 before = rdmsr(msr);                                                                               \
		for (u32 bit = 0; bit < 64; bit++) {                                                                   \
			if ((writable)>>bit & 1)                                                                       \
				continue;                                                                              \
			EQ(bit, faults_write(msr, before | BIT(bit)) ? bit : ~0ull);                                   \
		}                                                                                                      \
		EQ(before, rdmsr(msr));                                                                                \
	} while (0)

static void selector_reserved(void)
{
	wrmsr(MSR_PERFEVTSEL0 + 1, 0xc4);
	ONE_BY_ONE(MSR_PERFEVTSEL0 + 1, 0x3ffdfffffull);
}

/* The guest has neither RTM nor HLE. */
static void selector_transactions(void)
{
	for (u32 i = 0; i < GP; i++) {
		YES(faults_write(MSR_PERFEVTSEL0 + i, 0x3c | BIT(32)));
		YES(faults_write(MSR_PERFEVTSEL0 + i, 0x3c | BIT(33)));
		EQ(0, rdmsr(MSR_PERFEVTSEL0 + i));
	}
}

static void fixed_ctrl_bits(void)
{
	wrmsr(MSR_FIXED_CTR_CTRL, 0xbbb);
	EQ(0xbbb, rdmsr(MSR_FIXED_CTR_CTRL));
	wrmsr(MSR_FIXED_CTR_CTRL, 0x182);
	EQ(0x182, rdmsr(MSR_FIXED_CTR_CTRL));
	ONE_BY_ONE(MSR_FIXED_CTR_CTRL, 0xfff);
}

static void fixed_ctrl_any(void)
{
	for (u32 i = 0; i < FIXED_COUNT; i++)
		YES(faults_write(MSR_FIXED_CTR_CTRL, BIT(4 * i + 2)));
	EQ(0, rdmsr(MSR_FIXED_CTR_CTRL));
}

static void global_ctrl_bits(void)
{
	wrmsr(MSR_GLOBAL_CTRL, GLOBAL_MASK);
	EQ(GLOBAL_MASK, rdmsr(MSR_GLOBAL_CTRL));
	wrmsr(MSR_GLOBAL_CTRL, BIT(33) | BIT(2));
	EQ(BIT(33) | BIT(2), rdmsr(MSR_GLOBAL_CTRL));
	ONE_BY_ONE(MSR_GLOBAL_CTRL, GLOBAL_MASK);
}

static void status_read_only(void)
{
	YES(faults_write(MSR_GLOBAL_STATUS, 0));
	YES(faults_write(MSR_GLOBAL_STATUS, 1));
	YES(faults_write(MSR_GLOBAL_STATUS, ~0ull));
	EQ(0, status());
}

static void ovf_ctrl(void)
{
	u64 mask = GLOBAL_MASK | BIT(62) | BIT(63) | (s.v4 ? V4_STATUS : 0);

	EQ(0, faults_write(MSR_GLOBAL_OVF_CTRL, mask));
	EQ(0, rdmsr(MSR_GLOBAL_OVF_CTRL));
	ONE_BY_ONE(MSR_GLOBAL_OVF_CTRL, mask);
}

static void v4_registers_absent(void)
{
	NEEDS(!s.v4, SKIP_NEEDS_V2);
	YES(faults_read(MSR_STATUS_SET));
	YES(faults_write(MSR_STATUS_SET, 1));
	YES(faults_read(MSR_INUSE));
	YES(faults_write(MSR_INUSE, 0));
}

static void v4_status_set(void)
{
	NEEDS(s.v4, SKIP_NEEDS_V4);
	wrmsr(MSR_STATUS_SET, BIT(1) | BIT(34) | BIT(62) | LBR_FRZ);
	EQ(BIT(1) | BIT(34) | BIT(62) | LBR_FRZ, status());
	wrmsr(MSR_STATUS_SET, BIT(0));
	EQ(BIT(0) | BIT(1) | BIT(34) | BIT(62) | LBR_FRZ, status());
	wrmsr(MSR_GLOBAL_OVF_CTRL, BIT(1) | BIT(62));
	EQ(BIT(0) | BIT(34) | LBR_FRZ, status());
	wrmsr(MSR_GLOBAL_OVF_CTRL, status());
	EQ(0, status());
	ONE_BY_ONE(MSR_STATUS_SET, GLOBAL_MASK | BIT(62) | V4_STATUS);
	EQ(0, s.pmis);
}

static void v4_inuse(void)
{
	NEEDS(s.v4, SKIP_NEEDS_V4);
	EQ(0, rdmsr(MSR_INUSE));
	wrmsr(MSR_PERFEVTSEL0 + 2, 0xc0);
	EQ(BIT(2), rdmsr(MSR_INUSE));
	wrmsr(MSR_FIXED_CTR_CTRL, 0x020);
	EQ(BIT(2) | BIT(33), rdmsr(MSR_INUSE));
	wrmsr(MSR_PERFEVTSEL0 + 2, 0xc0 | EVNTSEL_INT);
	EQ(BIT(2) | BIT(33) | BIT(63), rdmsr(MSR_INUSE));
	YES(faults_write(MSR_INUSE, 0));
}

static void counter_sign_extension(void)
{
	static const u64 pairs[][2] = {
		{ 0, 0 },
		{ 1, 1 },
		{ 0x7fffffff, 0x7fffffff },
		{ 0x80000000, 0xffff80000000 },
		{ 0xffffffff, 0xffffffffffff },
		{ 0xfffffff0, 0xfffffffffff0 },
	};

	for (u32 n = 0; n < GP; n++)
		for (u32 i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
			wrmsr(MSR_PMC0 + n, pairs[i][0]);
			EQ(pairs[i][1], counter(n));
		}
}

static void counter_upper_half(void)
{
	for (u32 n = 0; n < GP; n++) {
		EQ(0, faults_write(MSR_PMC0 + n, 0xdeadbeef00000005));
		EQ(5, counter(n));
		EQ(0, faults_write(MSR_PMC0 + n, 0x00000001ffffffff));
		EQ(COUNTER_MASK, counter(n));
	}
	EQ(0, status());
}

static void full_width(void)
{
	for (u32 n = 0; n < GP; n++) {
		wrmsr(MSR_A_PMC0 + n, 0x123456789abc + n);
		EQ(0x123456789abc + n, counter(n));
		EQ(0x123456789abc + n, rdmsr(MSR_A_PMC0 + n));
		wrmsr(MSR_A_PMC0 + n, 0x80000000);
		EQ(0x80000000, counter(n));
	}
}

static void full_width_reserved(void)
{
	for (u32 n = 0; n < GP; n++) {
		set_counter(n, 77);
		YES(faults_write(MSR_A_PMC0 + n, BIT(48)));
		YES(faults_write(MSR_A_PMC0 + n, ~0ull));
		EQ(77, counter(n));
	}
	wrmsr(MSR_A_PMC0, 0);
	ONE_BY_ONE(MSR_A_PMC0, COUNTER_MASK);
}

static void fixed_width(void)
{
	for (u32 n = 0; n < FIXED_COUNT; n++) {
		wrmsr(MSR_FIXED_CTR0 + n, 0x923456789abc + n);
		EQ(0x923456789abc + n, rdmsr(MSR_FIXED_CTR0 + n));
		wrmsr(MSR_FIXED_CTR0 + n, 0x80000000);
		EQ(0x80000000, rdmsr(MSR_FIXED_CTR0 + n));
		wrmsr(MSR_FIXED_CTR0 + n, ~0ull);
		EQ(COUNTER_MASK, rdmsr(MSR_FIXED_CTR0 + n));
	}
	EQ(0, status());
}

static void debugctl(void)
{
	wrmsr(MSR_DEBUGCTL, FREEZE_LBRS | FREEZE_COUNTERS);
	EQ(FREEZE_LBRS | FREEZE_COUNTERS, rdmsr(MSR_DEBUGCTL));
	wrmsr(MSR_DEBUGCTL, 0);
	ONE_BY_ONE(MSR_DEBUGCTL, 0x1fc3);
}

void register_cases(void)
{
	static void (*const cases[])(void) = {
		reset, cpuid_leaf, perf_capabilities, absent_counters, absent_debug_store, selector_bits, selector_any,
		selector_reserved, selector_transactions, fixed_ctrl_bits, fixed_ctrl_any, global_ctrl_bits, status_read_only,
		ovf_ctrl, v4_registers_absent, v4_status_set, v4_inuse, counter_sign_extension, counter_upper_half, full_width,
		full_width_reserved, fixed_width, debugctl, rdpmc_of_no_counter,
	};

	run_cases(cases, sizeof(cases) / sizeof(*cases));
}
