/*
 * 32-bit guests that CASE_* choose: a multiboot image at 1 MiB, entered with interrupts off. Vector 0x40 is the PMI's in fixed mode, #GP skips
 * the two bytes of WRMSR or RDMSR, any other exception ends the run with code 99.
 */
#define EOI 0xfee000b0
#define SPURIOUS 0xfee000f0
#define LVTPC 0xfee00340
#define PMI 0x40

	.code32
	.text
	.globl	_start
_start:	.long	0x1badb002, 1 << 16, -(0x1badb002 + (1 << 16)), _start, _start, 0, 0, entry

	.macro	msr index, low, high=0
	mov	$\index, %ecx
	mov	$\low, %eax
	mov	$\high, %edx
	wrmsr
	.endm

	.macro	global_ctrl_on          /* all counters */
	msr	0x38f, 0xf, 7
	.endm

	.macro	end code
	mov	$0xf4, %edx
	mov	$\code, %eax
	out	%eax, %dx
	.endm

	.macro	period_one              /* every counter at one before its overflow: EN, INT, OS, USR, cycles */
	.irp	n, 0, 1, 2, 3
	msr	0x4c1 + \n, 0xffffffff, 0xffff
	msr	0x186 + \n, 0x53003c
	.endr
	.irp	n, 0, 1, 2
	msr	0x309 + \n, 0xffffffff, 0xffff
	.endr
	msr	0x38d, 0xbbb
	global_ctrl_on
	.endm

	/* Random values to registers from `first` on, some of which get past the reserved bits, and reads of them. */
	.macro	registers first, count
	mov	$\first, %ecx
	mov	$\count, %ebx
1:	imul	$1664525, %esi, %esi
	add	$1013904223, %esi
	mov	%esi, %eax
	mov	%esi, %edx
	ror	$13, %edx
	and	$7, %edx
	wrmsr
	rdmsr
	inc	%ecx
	dec	%ebx
	jnz	1b
	.endm

entry:	lgdt	gdt_pointer
	lidt	idt_pointer
	mov	$0x180000, %esp

#ifdef CASE_GARBAGE
	mov	$0x12345678, %esi
	mov	$60, %edi
again:
RANGES
	dec	%edi
	jnz	again
	end	0
#endif
#ifdef CASE_FLOOD
	period_one
again:	msr	0x38f, 0
	global_ctrl_on
	jmp	again
#endif
#ifdef CASE_MASKED
	movl	$0x10400, LVTPC
	period_one
#endif
#ifdef CASE_PERIOD_ONE
	movl	$0x1ff, SPURIOUS
	movl	$PMI, LVTPC
	period_one
	sti
#endif
#ifdef CASE_TRIPLE_FAULT
	lidt	no_idt
	ud2
#endif
#ifdef CASE_INTERRUPTS_OFF
	cli
#endif
#ifdef CASE_HALTED
	cli
	hlt
#endif
#ifdef CASE_ABSENT
	mov	$200, %ecx
again:	mov	0xd0000000, %eax
	movl	$1, 0xd0000000
	mov	0xfed00000, %eax
	mov	$0xcfc, %edx            /* PCI's data */
	in	%dx, %eax
	mov	$0xbad, %edx
	out	%eax, %dx
	loop	again
	end	0
#endif
#ifdef CASE_NOWHERE
	mov	$0xd0000000, %eax
	jmp	*%eax
#endif
#ifdef CASE_SERIAL
	mov	$0x3f8, %edx
	mov	$'x', %al
again:	out	%al, %dx
	jmp	again
#endif
#ifdef CASE_ENDS
	end	0
#endif
1:	jmp	1b

	/* A KVM that emulates ring 0 cannot do IRET in 32-bit mode: RET 8 drops CS and EFLAGS instead. */
skip:	add	$4, %esp                /* the error code */
	addl	$2, (%esp)
	ret	$8
pmi:	pusha                           /* makes the storm worse: acknowledges, re-arms one counter, unmasks */
	msr	0x390, 0xf, 7
	msr	0xc1, 0xffffffff
	movl	$PMI, LVTPC
	movl	$0, EOI
	global_ctrl_on
	popa
	sti
	ret	$8
stop:	end	99
1:	jmp	1b

gdt:	.quad	0, 0x00cf9b000000ffff, 0x00cf93000000ffff
gdt_pointer:
	.word	23
	.long	gdt
idt_pointer:
	.word	0x7ff
	.long	idt
no_idt:	.word	0
	.long	0

	.macro	gate to
	.word	\to - _start, 8, 0x8e00, 0x10
	.endm
idt:
	.set	vector, 0
	.rept	256
	.if	vector == 13
	gate	skip
	.elseif	vector == PMI
	gate	pmi
	.else
	gate	stop
	.endif
	.set	vector, vector + 1
	.endr
