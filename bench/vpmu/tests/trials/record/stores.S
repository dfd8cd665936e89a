/* A guest that stores to a place without memory: the store is alone in its symbol. */
	.text
	.globl	guest_main
guest_main:
	mov	$0x3f000000, %ebx
	mov	$ROUNDS, %ecx
	.type	store, @function
store:	mov	%eax, (%rbx)
	.size	store, . - store
	.type	rest, @function
rest:	sub	$1, %ecx
	jnz	store
	ret
	.size	rest, . - rest
	.section .note.GNU-stack, "", @progbits
