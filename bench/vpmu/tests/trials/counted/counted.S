/*
 * Counts known instructions with the PMU and prints the counts, a line a case: "NAME FIXED0 PMC0 PMC1", in hexadecimal.
 * An ELF64 image, entered in 64-bit mode. CASE_* choose the cases.
 * It is linked at 0x100000.
 * An instruction between the WRMSR that starts the counters and the one that stops them counts; these two do not.
 */
#define SP %rsp
#define SI %rsi
#define WORD .quad
#define RETURN iretq                    /* from an event in ring 0 */
#define SAVED_CS 8
#define IDT_BYTES 4096
#define TURNS 1000

	.text
	.globl	_start
_start:
	mov	$stack, SP
	mov	$pml4, %eax
	mov	%rax, %cr3
	lgdt	gdt_pointer
	lidt	idt_pointer
	mov	$0x28, %eax
	ltr	%ax
	mov	$0xfee00000, %esi
	movl	$0x1ff, 0xf0(SI)        /* the LAPIC is on */

	.macro	msr index, low, high=0
	mov	$\index, %ecx
	mov	$\low, %eax
	mov	$\high, %edx
	wrmsr
	.endm

	.macro	begin fixed, first, second
	msr	0x38f, 0
	msr	0x309, 0
	msr	0xc1, 0
	msr	0xc2, 0
	msr	0x38d, \fixed
	msr	0x186, \first
	msr	0x187, \second
	msr	0x38f, 3, 1
	.endm

	/* Three instructions that count, then the stop. */
	.macro	end name
	mov	$0x38f, %ecx
	xor	%eax, %eax
	xor	%edx, %edx
	wrmsr
	mov	$9f, %esi
	call	report
	jmp	8f
9:	.asciz	"\name"
8:
	.endm

	/* Instructions, branches and taken branches of both rings. */
	.macro	both_rings
	begin	3, 0x4300c4, 0x4320c4
	.endm

	both_rings
	mov	$TURNS, %ebx
1:	dec	%ebx
	jnz	1b
	end	loop                    /* 1 + 2 * TURNS + 3 */

#ifdef CASE_EVENTS
	both_rings
	mov	$buffer, %edi
	mov	$64, %ecx
	rep	stosb
	end	rep                     /* 3 + 3: one, however often it repeats */

	both_rings
	mov	%ss, %eax
	mov	%eax, %ss
	nop
	nop
	end	mov-ss                  /* 4 + 3 */

	both_rings
	ud2
	end	fault                   /* TEST, JNZ, ADD, RETURN of the handler + 3; UD2 does not retire */

	both_rings
	mov	$0xfee00000, %esi
	movl	$0x40041, 0x300(SI)     /* to itself, vector 0x41 */
	sti
	nop
	cli
	end	interrupt               /* 5, the handler's 2, 3 */

	both_rings
	mov	$0xfee00000, %esi
	movl	$0x40041, 0x300(SI)
	sti
	hlt
	cli
	end	hlt                     /* the same */

	both_rings
	mov	$0x38d, %ecx
	rdmsr
	out	%al, $0x80
	mov	$0xd0000000, %esi
	mov	(SI), %eax              /* no memory there */
	mov	%eax, (SI)
	end	exits                   /* 6 + 3 */

	both_rings
	mov	$message, %esi
	mov	$2, %ecx
	mov	$0x3f8, %edx
	rep	outsb
	end	rep-outs                /* 4 + 3 */
#endif

#ifdef CASE_INT
	both_rings
	int	$0x42
	end	int                     /* INT, RETURN, 3 */
#endif

#ifdef CASE_RING3
	begin	2, 0x4200c0, 0x4100c4   /* ring 3; instructions of ring 0; branches of ring 3 */
	push	$0x23
	push	$user_stack
	push	$2
	push	$0x1b
	push	$user
	iretq
user:
	mov	$TURNS, %ebx
1:	dec	%ebx
	jnz	1b
	ud2
back:
	mov	$stack, SP
	mov	$0x10, %eax
	mov	%eax, %ds               /* IRET to ring 3 has cleared them in 32-bit mode */
	mov	%eax, %es
	end	ring3                   /* ring 3: 1 + 2 * TURNS; ring 0: 6, TEST, JNZ, JMP of the handler, 4, 3 */
#endif

	mov	$0xf4, %edx
	xor	%eax, %eax
	out	%eax, %dx
1:	hlt
	jmp	1b

/* Prints the name at ESI and the three counts. */
report:
	call	text
	mov	$0x309, %ecx
	call	count
	mov	$0xc1, %ecx
	call	count
	mov	$0xc2, %ecx
	call	count
	mov	$'\n', %al
	call	put
	ret

text:	mov	(SI), %al
	test	%al, %al
	jz	1f
	call	put
	inc	SI
	jmp	text
1:	ret

count:	mov	$' ', %al
	call	put
	rdmsr
	mov	%eax, %ebx
	mov	$8, %ebp
1:	rol	$4, %ebx
	mov	%ebx, %eax
	and	$15, %eax
	add	$'0', %al
	cmp	$'9', %al
	jbe	2f
	add	$('a' - '9' - 1), %al
2:	call	put
	dec	%ebp
	jnz	1b
	ret

put:	mov	$0x3f8, %edx
	out	%al, %dx
	ret

	.org	0x1000                  /* 0x101000: #UD skips UD2 in ring 0, and leaves ring 3 */
	testb	$3, SAVED_CS(SP)
	jnz	1f
	addq	$2, (SP)
	RETURN
1:
#ifdef CASE_RING3
	jmp	back
#endif
	hlt
	.org	0x1040                  /* 0x101040: vector 0x41 */
	movl	$0, 0xb0(SI)            /* EOI */
	RETURN
	.org	0x1080                  /* 0x101080: vector 0x42 */
	RETURN
	.org	0x10c0                  /* 0x1010c0: all others */
	mov	$0xf4, %edx
	mov	$99, %eax
	out	%eax, %dx
	hlt

	.org	0x2000                  /* 0x102000 */
gdt:	.quad	0
	.quad	0x00af9b000000ffff, 0x00cf93000000ffff, 0x00affb000000ffff, 0x00cff3000000ffff
	.quad	0x0000891031000067, 0   /* the TSS */
gdt_pointer:
	.word	55
	WORD	gdt
idt_pointer:
	.word	IDT_BYTES - 1
	WORD	0x104000
message:
	.ascii	"> "

	.org	0x3100                  /* 0x103100: the TSS */
	.long	0
	WORD	stack

	.macro	gate at, dpl
	.word	\at, 8, 0x8e00 | \dpl << 13, 0x10
	.quad	0
	.endm

	.org	0x4000
	.set	vector, 0
	.rept	256
	.if	vector == 6
	gate	0x1000, 0
	.elseif	vector == 0x41
	gate	0x1040, 0
	.elseif	vector == 0x42
	gate	0x1080, 3
	.else
	gate	0x10c0, 0
	.endif
	.set	vector, vector + 1
	.endr

	.org	0x6000
pml4:	.quad	0x107007
	.org	0x7000
	.set	directory, 0x108007
	.rept	4
	.quad	directory
	.set	directory, directory + 0x1000
	.endr
	.org	0x8000
	.set	page, 0x87
	.rept	2048
	.quad	page
	.set	page, page + 0x200000
	.endr
	.org	0xd000
user_stack:
	.org	0xe000
stack:
buffer:	.skip	64
