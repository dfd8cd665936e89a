/*
 * The begin, by PVH, and the end of a guest without an operating system: guest_main() runs in ring 3, at the processor's speed also where a
 * nested host interprets ring 0. Behind it the guest ends with code 0; after a fault, with 9.
 */
/* The first GiB at its own address, open to ring 3. */
static u64 tables[3][512] __attribute__((aligned(4096), used));
/* Code and data of ring 0, of ring 3, and the TSS. */
static u64 gdt[7] __attribute__((used)) = {
	0, 0x00af9b000000ffff, 0x00cf93000000ffff, 0x00affb000000ffff, 0x00cff3000000ffff,
};
static u64 idt[32][2] __attribute__((used));
static struct __attribute__((packed)) { unsigned short limit; u64 base; } gdt_at __attribute__((used)),
	idt_at __attribute__((used));
/* Its only field in use, the stack of ring 0, is at byte 4. */
static unsigned tss[26] __attribute__((aligned(16), used));
static char stack[16384] __attribute__((aligned(16), used));
static char stack_0[4096] __attribute__((aligned(16), used));

void done(void);
void fault(void);

__attribute__((noipa, used)) void set_up(void)
{
	u64 at = (u64)tss, top = (u64)stack_0 + sizeof(stack_0);

	gdt[5] = 0x0000890000000067 | (at & 0xffffff) << 16 | (at >> 24 & 0xff) << 56;
	tss[1] = top;
	for (u64 i = 0; i < 32; i++) {
		u64 handler = i == 6 ? (u64)done : (u64)fault;

		idt[i][0] = (handler & 0xffff) | 8 << 16 | 0x8e00UL << 32 | (handler >> 16 & 0xffff) << 48;
	}
	gdt_at.limit = sizeof(gdt) - 1;
	gdt_at.base = (u64)gdt;
	idt_at.limit = sizeof(idt) - 1;
	idt_at.base = (u64)idt;
}

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
	"2:	.word 23\n"
	"	.long gdt\n"
	".size long_mode, . - long_mode\n"
	".code64\n.globl _start\n.type _start, @function\n_start:\n"
	"	lea stack_0+4096(%rip), %rsp\n"
	"	xor %ebp, %ebp\n"
	"	call set_up\n"
	"	lgdt gdt_at(%rip)\n"
	"	lidt idt_at(%rip)\n"
	"	mov $0x28, %eax\n"
	"	ltr %ax\n"
	"	push $0x23\n"
	"	lea stack+16384(%rip), %rax\n"
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
	/* The way out: #UD. */
	"	ud2\n"
	".size ring_3, . - ring_3\n"
	".type done, @function\ndone:\n"
	"	xor %eax, %eax\n"
	"	jmp 1f\n"
	".size done, . - done\n"
	".type fault, @function\nfault:\n"
	"	mov $9, %eax\n"
	"1:	mov $0xf4, %edx\n"
	"	out %eax, %dx\n"
	"	hlt\n"
	".size fault, . - fault\n");
