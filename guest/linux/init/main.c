/* The init of a guest: process 1. With `--agent` it is the agent alone, on descriptor 0. */

#include "agent.h"
#include "boot.h"
#include "run.h"
#include "text.h"

/* The stack has the count of arguments, the arguments, a null pointer, the environment. */
__asm__(".globl _start\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rsp, %rdi\n"
        "    and $-16, %rsp\n"
        "    call begin\n");

static char *shells[][3] = {{"/bin/bash", "-i", 0}, {"/bin/sh", "-i", 0}, {"/bin/dash", "-i", 0}, {"/bin/busybox", "sh", 0}};

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

/* A shell on the serial port, with job control: its process, or -1 if there is none. */
static long start_shell(void)
{
    for (size_t n = 0; n < sizeof shells / sizeof *shells; n++) {
        long fd = call2(SYS_open, shells[n][0], O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        call1(SYS_close, fd);
        long pid = call0(SYS_fork);
        if (pid)
            return pid;
        call0(SYS_setsid);
        long tty = call2(SYS_open, "/dev/ttyS0", O_RDWR);
        if (tty >= 0) {
            call3(SYS_ioctl, tty, 0x540e, 0);
            for (int fd = 0; fd < 3; fd++)
                call2(SYS_dup2, tty, fd);
            if (tty > 2)
                call1(SYS_close, tty);
        }
        if (call1(SYS_chdir, "/root") < 0)
            call1(SYS_chdir, "/");
        complain("start", shells[n][0], become(shells[n]));
        call1(SYS_exit, 127);
    }
    return -1;
}

static void process_one(void)
{
    static char words[4096];
    boot();
    read_text("/proc/cmdline", words, sizeof words);
    int port = open_port(), wanted = has_word(words, "vpmu.shell");
    long served = -1, shell = -1;
    if (port >= 0) {
        served = call0(SYS_fork);
        if (!served)
            call1(SYS_exit, agent(port));
        call1(SYS_close, port);
    } else if (!wanted) {
        say("no virtio port named vpmu, so no agent, and no vpmu.shell on the command line: switching off",
            (const char *)0);
    }
    if (wanted) {
        shell = start_shell();
        if (shell < 0)
            say("no shell in the initramfs", (const char *)0);
    }
    /* Reaps the children of all others, too. */
    while (served > 0 || shell > 0) {
        u32 status = 0;
        long pid = call4(SYS_wait4, -1, &status, 0, 0);
        if (pid == -EINTR)
            continue;
        /* A user at the shell goes on without a client. */
        if (pid == served && !status && shell > 0)
            served = -1;
        else if (pid < 0 || pid == served || pid == shell)
            break;
    }
    power_off();
}

__attribute__((used)) void begin(long *stack)
{
    char **arguments = (char **)(stack + 1);
    set_term(arguments + stack[0] + 1);
    if (call0(SYS_getpid) == 1)
        process_one();
    if (stack[0] == 2 && same(arguments[1], "--agent")) {
        agent(0);
        call1(SYS_exit, 0);
    }
    say("process 1 of a guest of vpmu; otherwise: init --agent", (const char *)0);
    call1(SYS_exit, 2);
}
