
/*
 * The begin, by PVH, and the end of a guest without an operating system: guest_main() runs in ring 3, at the processor's speed also where a
 * nested host interprets ring 0. Behind it the guest ends with code 0; a fault, which nothing handles, ends it, too.
 */
/* The first GiB at its own address, open to ring 3. */
static u64 tables[3][512] __attribute__((aligned(4096), used));
/* Code and data of ring 0, and of ring 3. */
static u64 gdt[5] __attribute__((used)) = {
	0, 0x00af9b000000ffff, 0x00cf93000000ffff, 0x00affb000000ffff, 0x00cff3000000ffff,
};
static char stack[16384] __attribute__((aligned(16), used));

__asm__(".section .note.Xen, \"a\", @note\n"
	/* XEN_ELFNOTE_PHYS32_ENTRY */
	"	.long 4, 4, 18\n"
	"	.asciz \"Xen\"\n"
	"	.long long_mode\n"
	".text\n.code32\n.type long_mode, @function\nlong_mode:\n"
	"	mov $tables, %edi\n"
	"	lea 0x1007(%edi), %eax\n"
	"	mov %eax, (%edi)\n"
	"	lea 0x2007(%edi), %eax\n"
	"	mov %eax, 0x1000(%edi)\n"
	"	mov $0x87, %eax\n"
	"	xor %ecx, %ecx\n"
	"1:	mov %eax, 0x2000(%edi,%ecx,8)\n"
	"	add $0x200000, %eax\n"
	"	inc %ecx\n"
	"	cmp $512, %ecx\n"
	"	jne 1b\n"
	"	mov $0x20, %eax\n"
	"	mov %eax, %cr4\n"
	"	mov %edi, %cr3\n"
	"	mov $0xc0000080, %ecx\n"
	"	mov $0x100, %eax\n"
	"	xor %edx, %edx\n"
	"	wrmsr\n"
	"	mov $0x80000011, %eax\n"
	"	mov %eax, %cr0\n"
	"	lgdt 2f\n"
	"	ljmp $8, $_start\n"
	"2:	.word 39\n"
	"	.long gdt\n"
	".size long_mode, . - long_mode\n"
	".code64\n.globl _start\n.type _start, @function\n_start:\n"
	"	lea stack+16384(%rip), %rsp\n"
	"	mov %rsp, %rax\n"
	"	push $0x23\n"
	"	push %rax\n"
	/* IOPL 3: ports are open. */
	"	push $0x3002\n"
	"	push $0x1b\n"
	"	lea ring_3(%rip), %rax\n"
	"	push %rax\n"
	"	iretq\n"
	".size _start, . - _start\n"
	".type ring_3, @function\nring_3:\n"
	"	xor %ebp, %ebp\n"
	"	call guest_main\n"
	"	xor %eax, %eax\n"
	"	mov $0xf4, %edx\n"
	"	out %eax, %dx\n"
	"	jmp .\n"
	".size ring_3, . - ring_3\n");
