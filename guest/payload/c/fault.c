/* An exception without a handler of its own. */
#include "interrupt.h"

#ifdef CONFORMANCE
typedef ConformanceReport FaultReport;
#else
typedef Report FaultReport;
#endif

_Noreturn void fail(u64 vector, u64 error, u64 rip, u64 cr2)
{
	BootPage *boot;
	__asm__("movq %%gs:%c1, %0" : "=r"(boot) : "i"(offsetof(BootPage, self_addr)));
	FaultReport *report = (FaultReport *)boot->report_addr;

	report->fault_vector = vector + 1;
	report->fault_error = error;
	report->fault_rip = rip;
	report->fault_cr2 = cr2;
	ring(DB_FAILED);
	halt_forever();
}
