/*
 * Entry of an ELF64 image by PVH: 64-bit mode with the first 4 GiB at their own addresses, in tables at 0x300000, then _start.
 */
	.section .note.Xen, "a", @note
	.long	4, 4, 18                /* XEN_ELFNOTE_PHYS32_ENTRY */
	.asciz	"Xen"
	.long	long_mode

	.section .long_mode, "ax"
	.code32
long_mode:
	movl	$0x301003, 0x300000
	mov	$0x302003, %eax
	mov	$0x301000, %edi
	mov	$4, %ecx
1:	mov	%eax, (%edi)
	add	$0x1000, %eax
	add	$8, %edi
	loop	1b
	mov	$0x83, %eax
	mov	$0x302000, %edi
	mov	$2048, %ecx
2:	mov	%eax, (%edi)
	add	$0x200000, %eax
	add	$8, %edi
	loop	2b
	mov	$0x20, %eax
	mov	%eax, %cr4
	mov	$0x300000, %eax
	mov	%eax, %cr3
	mov	$0xc0000080, %ecx
	mov	$0x100, %eax
	xor	%edx, %edx
	wrmsr
	mov	$0x80000011, %eax
	mov	%eax, %cr0
	lgdt	long_mode_pointer
	ljmp	$8, $_start
long_mode_gdt:
	.quad	0, 0x00af9b000000ffff, 0x00cf93000000ffff
long_mode_pointer:
	.word	23
	.long	long_mode_gdt
	.code64
	.text
