/*
 * Prints the command line that its boot protocol gave it, and ends with code 0. PVH; else a multiboot 1 header with these FLAGS,
 * AT bytes behind the start; MULTIBOOT_2, NONE: what is not spoken.
 */
	.code32
	.text
#if defined(PVH)
	.section .note.Xen, "a", @note
	.long	4, 4, 18                /* XEN_ELFNOTE_PHYS32_ENTRY */
	.asciz	"Xen"
	.long	_start
	.text
#elif defined(MULTIBOOT_2)
	.balign	8
	.long	0xe85250d6, 0, 24, -(0xe85250d6 + 24), 0, 8
#elif !defined(NONE)
	.skip	AT
	.balign	4
	.long	0x1badb002, FLAGS, -(0x1badb002 + FLAGS)
#endif
	.globl	_start
_start:
	mov	$0x3f8, %edx
#ifdef PVH
	cmpl	$0x336ec578, (%ebx)
	jne	wrong
	mov	24(%ebx), %esi
#else
	cmp	$0x2badb002, %eax
	jne	wrong
	mov	16(%ebx), %esi
#endif
1:	lodsb
	test	%al, %al
	jz	2f
	out	%al, %dx
	jmp	1b
2:	mov	$'\n', %al
	out	%al, %dx
	xor	%eax, %eax
	jmp	finish
wrong:
	mov	$1, %eax
finish:
	mov	$0xf4, %edx
	out	%eax, %dx
3:	jmp	3b
