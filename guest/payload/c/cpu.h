/* The instructions and registers the payload needs. */
#pragma once
#include <stdbool.h>
#include "abi.h"

typedef uint16_t u16;
typedef uint32_t u32;
typedef int64_t s64;

enum {
	MSR_APIC_BASE = 0x1b,
	MSR_PMC0 = 0xc1,
	MSR_PERFEVTSEL0 = 0x186,
	MSR_FIXED_CTR0 = 0x309,
	MSR_FIXED_CTR_CTRL = 0x38d,
	MSR_GLOBAL_STATUS = 0x38e,
	MSR_GLOBAL_CTRL = 0x38f,
	MSR_GLOBAL_OVF_CTRL = 0x390,
	/* AMD */
	MSR_AMD_GLOBAL_STATUS = 0xc0000300,
	MSR_AMD_GLOBAL_CTL = 0xc0000301,
	MSR_AMD_STATUS_CLR = 0xc0000302,
	MSR_AMD_STATUS_SET = 0xc0000303,
	MSR_AMD_LEGACY_CTL0 = 0xc0010000,
	MSR_AMD_LEGACY_CTR0 = 0xc0010004,
	MSR_AMD_CTL0 = 0xc0010200, /* CTLn and CTRn are a pair */
	MSR_AMD_CTR0 = 0xc0010201,
	/* x2APIC */
	MSR_EOI = 0x80b,
	MSR_SVR = 0x80f,
	MSR_LVT_TIMER = 0x832,
	MSR_LVTPC = 0x834,
	MSR_TIMER_COUNT = 0x838,
	MSR_TIMER_DIVIDE = 0x83e,
};

enum {
	APIC_BASE_X2APIC = 1 << 10,
	SVR_ENABLE = 1 << 8,
	LVT_NMI = 4 << 8,
	LVT_MASKED = 1 << 16,
	LVT_ONE_SHOT = 0,
	LVT_PERIODIC = 1 << 17,
	DIVIDE_BY_1 = 0xb,
	EVNTSEL_USR = 1 << 16,
	EVNTSEL_OS = 1 << 17,
	EVNTSEL_INT = 1 << 20,
	EVNTSEL_EN = 1 << 22,
};

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* `x` is not 0. */
static inline u64 lowest_bit(u64 x)
{
	u64 bit;
	__asm__("bsfq %1, %0" : "=r"(bit) : "r"(x) : "cc");
	return bit;
}

/* RCX is given whole: QEMU's nested SVM looks for an MSR's intercept by more than ECX, and the guest reads the emulator's own. */
static inline u64 rdmsr(u64 msr)
{
	u32 lo, hi;
	__asm__ volatile("rdmsr" : "=a"(lo), "=d"(hi) : "c"(msr) : "memory");
	return (u64)hi << 32 | lo;
}

static inline void wrmsr_halves(u64 msr, u32 lo, u32 hi)
{
	__asm__ volatile("wrmsr" : : "c"(msr), "a"(lo), "d"(hi) : "memory");
}

static inline void wrmsr(u64 msr, u64 value)
{
	wrmsr_halves(msr, (u32)value, (u32)(value >> 32));
}

static inline u64 rdtsc(void)
{
	u32 lo, hi;
	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi) : : "memory");
	return (u64)hi << 32 | lo;
}

struct cpuid {
	u32 a, b, c, d;
};

static inline struct cpuid cpuid(u32 leaf)
{
	struct cpuid r = { .a = leaf };

	__asm__ volatile("cpuid" : "+a"(r.a), "=b"(r.b), "+c"(r.c), "=d"(r.d));
	return r;
}

enum pmu_kind { PMU_INTEL, PMU_AMD_CORE, PMU_AMD_V2 };

/* As Linux decides: by the vendor, and AMD's PerfMonV2 by its leaf. */
static inline enum pmu_kind cpuid_pmu(void)
{
	if (cpuid(0).b != 0x68747541) /* "Auth" */
		return PMU_INTEL;
	return cpuid(0x80000000).a >= 0x80000022 && (cpuid(0x80000022).a & 1) ? PMU_AMD_V2 : PMU_AMD_CORE;
}

static inline void ring(u32 code)
{
	__asm__ volatile("outl %0, %w1" : : "a"(code), "d"((u32)PORT_DOORBELL) : "memory");
}

static inline void cli(void)
{
	__asm__ volatile("cli" : : : "memory");
}

/* Interrupts are taken between the two only once HLT has begun. */
static inline void sti_hlt(void)
{
	__asm__ volatile("sti; hlt" : : : "memory");
}

_Noreturn static inline void halt_forever(void)
{
	for (;;)
		__asm__ volatile("cli; hlt" : : : "memory");
}
