/* Linux's system calls on x86-64, without a C library. A result below 0 is -errno. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

enum {
    SYS_read = 0,
    SYS_write = 1,
    SYS_open = 2,
    SYS_close = 3,
    SYS_fstat = 5,
    SYS_lstat = 6,
    SYS_poll = 7,
    SYS_rt_sigaction = 13,
    SYS_ioctl = 16,
    SYS_dup2 = 33,
    SYS_nanosleep = 35,
    SYS_getpid = 39,
    SYS_socket = 41,
    SYS_fork = 57,
    SYS_execve = 59,
    SYS_exit = 60,
    SYS_wait4 = 61,
    SYS_kill = 62,
    SYS_fcntl = 72,
    SYS_chdir = 80,
    SYS_mkdir = 83,
    SYS_symlink = 88,
    SYS_readlink = 89,
    SYS_umask = 95,
    SYS_setsid = 112,
    SYS_sync = 162,
    SYS_mount = 165,
    SYS_reboot = 169,
    SYS_sethostname = 170,
    SYS_getdents64 = 217,
    SYS_clock_gettime = 228,
    SYS_pipe2 = 293,
    SYS_finit_module = 313,
    SYS_pidfd_open = 434,
};

enum {
    EPERM = 1,
    ENOENT = 2,
    EINTR = 4,
    EIO = 5,
    EAGAIN = 11,
    EACCES = 13,
    EBUSY = 16,
    EEXIST = 17,
    ENODEV = 19,
    EISDIR = 21,
    EINVAL = 22,
    ENAMETOOLONG = 36,
    EPROTO = 71,
};

enum {
    O_RDONLY = 0,
    O_WRONLY = 1,
    O_RDWR = 2,
    O_TRUNC = 01000,
    O_NONBLOCK = 04000,
    O_DIRECTORY = 0200000,
    O_CLOEXEC = 02000000,
};

enum { POLLIN = 1, POLLOUT = 4, POLLERR = 8, POLLHUP = 16 };
enum { CLOCK_MONOTONIC = 1 };
enum { F_SETFL = 4, SIGKILL = 9, SIGPIPE = 13 };
enum { S_IFMT = 0170000, S_IFDIR = 0040000, S_IFREG = 0100000, S_IFLNK = 0120000 };

struct pollfd {
    int fd;
    short events;
    short revents;
};

struct timespec {
    long seconds;
    long nanoseconds;
};

struct stat {
    u64 device, inode, links;
    u32 mode, user, group, pad;
    u64 rdevice;
    long size, block_size, blocks;
    struct timespec accessed, modified, changed;
    long unused[3];
};

struct directory_entry {
    u64 inode;
    long offset;
    unsigned short length;
    u8 type;
    char name[];
};

static inline long call(long number, long a, long b, long c, long d, long e)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}

#define call0(n) call(n, 0, 0, 0, 0, 0)
#define call1(n, a) call(n, (long)(a), 0, 0, 0, 0)
#define call2(n, a, b) call(n, (long)(a), (long)(b), 0, 0, 0)
#define call3(n, a, b, c) call(n, (long)(a), (long)(b), (long)(c), 0, 0)
#define call4(n, a, b, c, d) call(n, (long)(a), (long)(b), (long)(c), (long)(d), 0)
#define call5(n, a, b, c, d, e) call(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e))
