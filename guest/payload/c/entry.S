/* Entry point, interrupt stubs and their table. */
#include "abi.h"

	.macro	saved register
	push	\register
	.cfi_adjust_cfa_offset 8
	.endm
	.macro	restored register
	pop	\register
	.cfi_adjust_cfa_offset -8
	.endm

	.section .text.entry, "ax"
	.globl _start
_start:
	.cfi_startproc
	.cfi_undefined rip
	mov	$PORT_DOORBELL, %edx
	mov	$DB_BOOTED, %eax
	outl	%eax, %dx
	xor	%ebp, %ebp
#ifdef CONFORMANCE
	sub	$8192, %rsp             /* Interrupts from ring 3 begin at RSP0, the top, while C is in a visit there. */
#endif
	call	payload_main            /* RDI: the boot page */
	.cfi_endproc

	.text
/*
 * void enter_ring3(rip, user page, rsp): the workload starts with RDI = user page, interrupts on, IOPL 0.
 * The kernel stack is left as it is: interrupts from ring 3 begin at the TSS's RSP0.
 */
	.globl	enter_ring3
enter_ring3:
	pushq	$0x23
	pushq	%rdx
	pushq	$0x202
	pushq	$0x1b
	pushq	%rdi
	mov	%rsi, %rdi
	iretq

/*
 * Interrupts with a C handler. The TSC is read before anything else is done; only what C may clobber is saved. No CLD: the text
 * holds no STD (tests/text.rs). Builds struct interrupt.
 */
	.macro	timed_interrupt name, handler
\name:
	.cfi_startproc simple
	.cfi_signal_frame
	.cfi_def_cfa rsp, 40         /* behind RIP, CS, RFLAGS, RSP, SS */
	.cfi_offset rip, -40
	.cfi_offset rsp, -16
	saved	%rax
	saved	%rdx
	rdtsc
	saved	%rdx
	saved	%rax
	saved	%rcx
	saved	%rsi
	saved	%rdi
	saved	%r8
	saved	%r9
	saved	%r10
	saved	%r11
	mov	%rsp, %rdi
	call	\handler
	restored	%r11
	restored	%r10
	restored	%r9
	restored	%r8
	restored	%rdi
	restored	%rsi
	restored	%rcx
	add	$16, %rsp
	.cfi_adjust_cfa_offset -16
	restored	%rdx
	restored	%rax
	iretq
	.cfi_endproc
	.endm

#ifdef CONFORMANCE
	timed_interrupt nmi, pmi
	timed_interrupt pmi_fixed, pmi_with_eoi
#else
	timed_interrupt nmi, *pmi_handler
#endif
	timed_interrupt timer, tick

spurious:
	iretq

#ifdef CONFORMANCE
/* #GP by RDMSR, WRMSR or RDPMC is what the cases look for: count it and skip the two bytes. Anything else is a fault. */
gp:
	push	%rax
	mov	16(%rsp), %rax
	movzwl	(%rax), %eax
	cmp	$0x300f, %eax
	je	1f
	cmp	$0x320f, %eax
	je	1f
	cmp	$0x330f, %eax
	jne	2f
1:	incq	gp_faults
	addq	$2, 16(%rsp)
	pop	%rax
	add	$8, %rsp
	iretq
2:	pop	%rax
	jmp	fault_stubs + 16 * 13
#endif

/* Vectors nobody asked for: fail(vector, error code, RIP, CR2). Each stub is 16 bytes long. */
	.balign	16
fault_stubs:
	.set	vector, 0
	.rept	ISR_COUNT
	.balign	16
	.if	!(vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 || vector == 30)
	pushq	$0
	.endif
	mov	$vector, %edi
	jmp	fault
	.set	vector, vector + 1
	.endr
fault:
	mov	(%rsp), %rsi
	mov	8(%rsp), %rdx
	mov	%cr2, %rcx
	and	$-16, %rsp
	call	fail

	.section .rodata
	.balign	8
	.globl	isr_table
isr_table:
	.set	vector, 0
	.rept	ISR_COUNT
	.if	vector == 2
	.quad	nmi
	.elseif	vector == VECTOR_TIMER
	.quad	timer
	.elseif	vector == VECTOR_SPURIOUS
	.quad	spurious
#ifdef CONFORMANCE
	.elseif	vector == VECTOR_PMI
	.quad	pmi_fixed
	.elseif	vector == 13
	.quad	gp
#endif
	.else
	.quad	fault_stubs + 16 * vector
	.endif
	.set	vector, vector + 1
	.endr
	.type	isr_table, @object
	.size	isr_table, . - isr_table

	.section .note.GNU-stack, "", @progbits
