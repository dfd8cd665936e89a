#include "boot.h"

#include "text.h"

/* Milliseconds that a port may need after its module was loaded. */
#define PORT_PATIENCE 20000

#define PORTS "/sys/class/virtio-ports"

static void mount(const char *type, const char *path, const char *options)
{
    long error = call5(SYS_mount, type, path, type, 0, options);
    /* A kernel without tracing has neither the file system nor the folder. */
    if (error < 0 && error != -EBUSY && error != -ENODEV && error != -ENOENT)
        complain("mount", path, error);
}

static void load_modules(void)
{
    static char list[16384];
    if (read_text("/modules/list", list, sizeof list) <= 0)
        return;
    char *at = list;
    while (*at) {
        char path[256] = "/modules/";
        size_t end = 0;
        /* The parameters follow the file's name. */
        const char *parameters = "";
        while (at[end] && at[end] != '\n') {
            if (at[end] == ' ' && !*parameters) {
                at[end] = 0;
                parameters = at + end + 1;
            }
            end++;
        }
        int last = !at[end];
        at[end] = 0;
        if (end && !append(path, sizeof path, at)) {
            long fd = call2(SYS_open, path, O_RDONLY | O_CLOEXEC);
            long error = fd < 0 ? fd : call3(SYS_finit_module, fd, parameters, 0);
            if (fd >= 0)
                call1(SYS_close, fd);
            if (error < 0 && error != -EEXIST)
                complain("load", path, error);
        }
        at += end + !last;
    }
}

/* SIOCSIFFLAGS with IFF_UP; a kernel without IPv4 has no socket. */
static void bring_up_lo(void)
{
    struct {
        char name[16];
        short flags;
        char rest[22];
    } request = {"lo", 1, ""};
    long fd = call3(SYS_socket, 2, 2 | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    call3(SYS_ioctl, fd, 0x8914, &request);
    call1(SYS_close, fd);
}

static void write_text(const char *path, const char *text)
{
    long fd = call2(SYS_open, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    long error = call3(SYS_write, fd, text, strlen(text));
    call1(SYS_close, fd);
    if (error < 0)
        complain("write", path, error);
}

void boot(void)
{
    call1(SYS_umask, 022);
    mount("proc", "/proc", "");
    mount("sysfs", "/sys", "");
    mount("devtmpfs", "/dev", "mode=0755");
    call2(SYS_mkdir, "/dev/pts", 0755);
    mount("devpts", "/dev/pts", "gid=5,mode=620,ptmxmode=666");
    call2(SYS_mkdir, "/dev/shm", 01777);
    mount("tmpfs", "/dev/shm", "mode=1777");
    mount("tmpfs", "/tmp", "mode=1777");
    mount("tmpfs", "/run", "mode=0755");
    mount("debugfs", "/sys/kernel/debug", "");
    mount("tracefs", "/sys/kernel/tracing", "");
    call2(SYS_symlink, "/proc/self/fd", "/dev/fd");
    call2(SYS_symlink, "/proc/self/fd/0", "/dev/stdin");
    call2(SYS_symlink, "/proc/self/fd/1", "/dev/stdout");
    call2(SYS_symlink, "/proc/self/fd/2", "/dev/stderr");
    call2(SYS_sethostname, "guest", 5);
    load_modules();
    bring_up_lo();
    /* RDPMC of ring 3 would be #GP: the counters are emulated. */
    write_text("/sys/bus/event_source/devices/cpu/rdpmc", "0");
}

static int opened(const char *entry)
{
    char path[512] = PORTS "/", name[64];
    if (append(path, sizeof path, entry) || append(path, sizeof path, "/name") ||
        read_text(path, name, sizeof name) < 0 || !same(name, "vpmu"))
        return -ENODEV;
    char device[512] = "/dev/";
    append(device, sizeof device, entry);
    return (int)call2(SYS_open, device, O_RDWR | O_CLOEXEC);
}

/* Looks through the names of a folder: for `any` of them, 1, or for the port, opened; -ENODEV if there is none. */
static int look(const char *folder, int any)
{
    char buffer[4096] __attribute__((aligned(8)));
    int found = -ENODEV;
    long count, fd = call2(SYS_open, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -ENODEV;
    while (found < 0 && (count = call3(SYS_getdents64, fd, buffer, sizeof buffer)) > 0) {
        for (long at = 0; at < count && found < 0;) {
            struct directory_entry *entry = (struct directory_entry *)(buffer + at);
            at += entry->length;
            if (entry->name[0] != '.')
                found = any ? 1 : opened(entry->name);
        }
    }
    call1(SYS_close, fd);
    return found;
}

int open_port(void)
{
    /* The port comes a little after its device: the driver first asks for its name. */
    for (int waited = 0; waited < PORT_PATIENCE; waited += 10) {
        int fd = look(PORTS, 0);
        if (fd >= 0)
            return fd;
        if (look("/sys/bus/virtio/drivers/virtio_console", 1) < 0 || look("/sys/bus/virtio/devices", 1) < 0)
            return -ENODEV;
        pause_ms(10);
    }
    return -ENODEV;
}
