/* Code of the conformance payload with a known number of instructions, and its visit to ring 3. */
#include "abi.h"

	.text
	.macro	register_on             /* RDI: the value, EDX: the register; leaves ECX = the register, EAX and EDX free */
	mov	%edx, %ecx
	mov	%edi, %eax
	mov	%rdi, %rdx
	shr	$32, %rdx
	wrmsr
	.endm

/* void counted_loop(on, turns, msr): 2 + 4 * turns + 3 instructions between the WRMSRs, two branches a turn, one never taken. */
	.globl	counted_loop
counted_loop:
	register_on
	nop
	nop
1:	test	%rsi, %rsi
	jz	2f
	dec	%rsi
	jnz	1b
2:	xor	%eax, %eax
	xor	%edx, %edx
	nop
	wrmsr
	ret

	.globl	counted_nops, counted_nops_first
counted_nops:
	register_on
counted_nops_first:
	.rept	CONFORMANCE_NOPS
	nop
	.endr
	xor	%eax, %eax
	xor	%edx, %edx
	wrmsr
	ret

/* void visit_ring3(rip, user page, rsp): comes back when the PMI handler returns to ring3_return. */
	.globl	visit_ring3, ring3_return
visit_ring3:
	push	%rbx
	push	%rbp
	push	%r12
	push	%r13
	push	%r14
	push	%r15
	mov	%rsp, ring3_return_rsp
	jmp	enter_ring3
ring3_return:
	pop	%r15
	pop	%r14
	pop	%r13
	pop	%r12
	pop	%rbp
	pop	%rbx
	ret

	.section .note.GNU-stack, "", @progbits
