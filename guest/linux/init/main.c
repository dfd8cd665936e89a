/* The init of a guest: process 1. With `--agent` it is the agent alone, on descriptor 0. */

#include "agent.h"
#include "boot.h"
#include "text.h"

/* The stack has the count of arguments, the arguments, a null pointer, the environment. */
__asm__(".globl _start\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rsp, %rdi\n"
        "    and $-16, %rsp\n"
        "    call begin\n");

/* Waits until the console has sent what was written to it (TIOCOUTQ), at most a second. */
static void drain_console(void)
{
    int left = 0;
    for (int waited = 0; waited < 1000 && call3(SYS_ioctl, 2, 0x5411, &left) >= 0 && left > 0; waited += 5)
        pause_ms(5);
}

/* Ends the guest: never returns. */
static void power_off(void)
{
    call0(SYS_sync);
    drain_console();
    /* A kernel without ACPI would halt and never return. It can reset. */
    long acpi = call2(SYS_open, "/sys/firmware/acpi", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (acpi >= 0)
        call4(SYS_reboot, 0xfee1dead, 672274793, 0x4321fedc, 0);
    call4(SYS_reboot, 0xfee1dead, 672274793, 0x01234567, 0);
    for (;;)
        pause_ms(1000);
}

static void process_one(void)
{
    boot();
    int port = open_port();
    if (port < 0) {
        say("no virtio port named vpmu, so no agent: switching off", (const char *)0);
        power_off();
    }
    long served = call0(SYS_fork);
    if (!served)
        call1(SYS_exit, agent(port));
    call1(SYS_close, port);
    /* Reaps the children of all others, too. */
    for (;;) {
        long pid = call4(SYS_wait4, -1, 0, 0, 0);
        if (pid != -EINTR && (pid < 0 || pid == served))
            power_off();
    }
}

__attribute__((used)) void begin(long *stack)
{
    char **arguments = (char **)(stack + 1);
    if (call0(SYS_getpid) == 1)
        process_one();
    if (stack[0] == 2 && same(arguments[1], "--agent")) {
        agent(0);
        call1(SYS_exit, 0);
    }
    say("process 1 of a guest of vpmu; otherwise: init --agent", (const char *)0);
    call1(SYS_exit, 2);
}
