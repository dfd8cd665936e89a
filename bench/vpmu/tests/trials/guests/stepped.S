/*
 * 64-bit images with paging, whose exit code says what backend `step` made of the case that -DCASE_* chooses.
 * Counter 0 counts instructions; with PMI its overflow is an NMI.
 */
	.globl	_start
	.text

	.macro	gate vector, handler
	mov	$\handler, %rax
	mov	$(0x160000 + 16 * \vector), %edi
	mov	%ax, (%rdi)
	movw	$8, 2(%rdi)
	movw	$0x8e00, 4(%rdi)
	shr	$16, %rax
	mov	%ax, 6(%rdi)
	movq	$0, 8(%rdi)
	.endm

	.macro	msr index, low, high=0
	mov	$\index, %ecx
	mov	$\low, %eax
	mov	$\high, %edx
	wrmsr
	.endm

	.macro	start bits, from=0
	.if	\from
	msr	0xc1, \from, -1
	.endif
	msr	0x186, \bits
	.endm

	.macro	finish              /* with EAX as the exit code */
	mov	$0xf4, %edx
	out	%eax, %dx
1:	jmp	1b
	.endm

	.macro	count               /* counter 0 is the exit code */
	mov	$0xc1, %ecx
	rdmsr
	finish
	.endm

	.macro	saved_tf            /* RFLAGS by PUSHF: code 2, 3 with TF */
	pushfq
	pop	%rax
	shr	$8, %eax
	and	$1, %eax
	add	$2, %eax
	finish
	.endm

	.macro	ring3 flags
	pushq	$0x23
	pushq	$0x187000
	pushq	$\flags
	pushq	$0x1b
	pushq	$user
	iretq
	.endm

_start:
	mov	$0x180000, %rsp
	movq	$0x191007, 0x190000
	movq	$0x192007, 0x191000
	movq	$0x87, 0x192000
	movq	$0x200087, 0x192008
	mov	$0x190000, %eax
	mov	%rax, %cr3
	lgdt	gdtp
	pushq	$8
	lea	9f(%rip), %rax
	push	%rax
	lretq
9:	mov	$16, %ecx
	mov	%ecx, %ds
	mov	%ecx, %ss
	mov	%ecx, %es
	movq	$0x188000, tss + 4
	mov	$tss, %rax
	mov	%ax, gdt + 40 + 2
	shr	$16, %rax
	mov	%al, gdt + 40 + 4
	mov	$40, %eax
	ltr	%ax
	gate	1, debug
#ifndef CASE_TRIPLE
	gate	6, undefined
#endif
	gate	2, nmi
	gate	13, protection
	lidt	idtp
	/* x2APIC, LVTPC: NMI. */
	mov	$0x1b, %ecx
	rdmsr
	or	$0xc00, %eax
	wrmsr
	msr	0x80f, 0x1ff
	msr	0x834, 0x400

#if defined(CASE_HLT)
	/* The second NOP overflows: the NMI comes before HLT. */
	start	0x5200c0, -2
	nop
	nop
place:	hlt
	hlt
	hlt
	mov	$9, %eax
	finish
nmi:	mov	(%rsp), %rax
	sub	$place, %rax
	add	$16, %rax
	finish

#elif defined(CASE_PUSHF)
	start	0x4300c0
	nop
	saved_tf

#elif defined(CASE_PUSHF_RING3)
	start	0x4300c0
	ring3	0x3002
user:	nop
	saved_tf

#elif defined(CASE_POPF)
	/* Flags that were saved in a step are loaded without one. */
	start	0x4300c0
	pushfq
	msr	0x186, 0
	popfq
	nop
	mov	$4, %eax
	finish

#elif defined(CASE_OWN_TF)
	start	0x4300c0
	pushq	$0x102
	popfq
	nop
	count

#elif defined(CASE_IRET_NMI)
	/* The NOP overflows: the NMI comes before IRET, and its handler stops the counter. */
	pushq	$0x23
	pushq	$0x187000
	pushq	$0x3002
	pushq	$0x1b
	pushq	$user
	start	0x5300c0, -1
	nop
	iretq
user:	nop
	nop
	mov	$3, %eax
	finish
nmi:	msr	0x186, 0
	iretq

#elif defined(CASE_IRET_INTO_HANDLER)
	/* NOP, NOP, 5 PUSHes, IRET, NOP and 3 up to RDMSR count. */
	start	0x4200c0
	nop
	nop
	pushq	$16
	pushq	$0x180000
	pushq	$2
	pushq	$8
	pushq	$into
	iretq
	.balign	16
#ifdef AT_START
into:
#endif
undefined:
	nop
#ifndef AT_START
into:
#endif
	nop
	count

#elif defined(CASE_REWRITE)
	/* The handler of #GP gets its first two bytes again while its trap is placed. */
	start	0x4300c0
	mov	$0x9090, %eax
	mov	%ax, WHERE
	mov	$0xdead, %ecx
	rdmsr
	count
	.balign	16
protection:
	nop
	nop
	.fill	40, 1, 0x90
	addq	$2, 8(%rsp)
	add	$8, %rsp
	iretq
scratch: .quad	0

#elif defined(CASE_TRIPLE)
	start	0x4300c0
	ring3	2
user:	nop
	ud2
#endif

	.balign	16
#ifndef CASE_IRET_INTO_HANDLER
undefined:
#endif
	mov	$7, %eax
	finish
	.balign	16
debug:	mov	$5, %eax
	nop
	finish
#if !defined(CASE_HLT) && !defined(CASE_IRET_NMI)
	.balign	16
nmi:	mov	$6, %eax
	finish
#endif
#ifndef CASE_REWRITE
	.balign	16
protection:
	mov	$8, %eax
	finish
#endif
	.balign	8
idtp:	.word	0xfff
	.quad	0x160000

	.data
	.balign	8
gdt:	.quad	0, 0x00af9b000000ffff, 0x00cf93000000ffff, 0x00affb000000ffff, 0x00cff3000000ffff
	.quad	0x0000890000000067, 0
gdtp:	.word	55
	.quad	gdt
	.balign	16
tss:	.fill	104
