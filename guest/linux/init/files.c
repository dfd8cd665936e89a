#include "files.h"

#include "text.h"

/* Deepest folder that is copied. */
#define DEEPEST 64
/* Room that a read needs: a record of /dev/kmsg comes whole. Such pieces, and the pages of a trace, share a frame. */
#define ONE_READ (1 << 14)

/* Sends one entry of a GET. */
static void send_entry(u8 type, u32 mode, const char *name, const char *target)
{
    char *payload = frame_room();
    size_t first = strlen(name) + 1, second = strlen(target) + 1;
    payload[0] = (char)type;
    put_u32(payload + 1, mode & 07777);
    memcpy(payload + 5, name, first);
    memcpy(payload + 5 + first, target, second);
    frame_hold_room(ENTRY, (u32)(5 + first + second));
}

static char path[MAX_PATH];
static char target[MAX_PATH];
/* The part of `path` that the client asked for. */
static size_t top;

/* The name of `path` for the client. */
static const char *name(void)
{
    return path[top] == '/' ? path + top + 1 : path + top;
}

/* Sends a file up to its end; 0, or -errno. Some files of sysfs cannot be read though they can be opened: those of a
 * folder are left out. */
static long send_file(int fd, u32 mode, int in_folder)
{
    static char first[4096];
    long count;
    do
        count = call3(SYS_read, fd, first, sizeof first);
    while (count == -EINTR);
    if (count < 0 && count != -EAGAIN) {
        if (in_folder)
            send_entry(OTHER, mode, name(), "");
        return in_folder ? 0 : count;
    }
    send_entry(FILE, mode, name(), "");
    /* A file without an end, such as trace_pipe, ends where it would wait. */
    if (count <= 0)
        return 0;
    memcpy(frame_room(), first, (size_t)count);
    frame_hold_room(DATA, (u32)count);
    for (size_t held = 0;;) {
        count = call3(SYS_read, fd, frame_room() + held, MAX_PAYLOAD - held);
        if (count == -EINTR)
            continue;
        int over = count <= 0 || connection_closed();
        if (count > 0)
            held += (size_t)count;
        if (held && (over || MAX_PAYLOAD - held < ONE_READ)) {
            frame_send_room(DATA, (u32)held);
            held = 0;
        }
        if (over)
            return count < 0 && count != -EAGAIN ? count : 0;
    }
}

static long send_below(int fd, u32 mode, int depth, const char **operation);

/* Sends what is at `path`, which is in a folder. */
static long send_child(int depth, const char **operation)
{
    struct stat stat;
    *operation = "lstat";
    long error = call2(SYS_lstat, path, &stat);
    if (error == -ENOENT)
        return 0;
    if (error < 0)
        return error;
    u32 type = stat.mode & S_IFMT;
    if (type == S_IFLNK) {
        *operation = "readlink";
        long length = call3(SYS_readlink, path, target, sizeof target - 1);
        if (length < 0)
            return length;
        target[length] = 0;
        send_entry(LINK, stat.mode, name(), target);
        return 0;
    }
    if (type != S_IFDIR && type != S_IFREG) {
        send_entry(OTHER, stat.mode, name(), "");
        return 0;
    }
    *operation = "open";
    long fd = call2(SYS_open, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    /* Some files of sysfs and tracefs can only be written. */
    if (fd == -EACCES || fd == -EPERM || fd == -ENOENT) {
        send_entry(OTHER, stat.mode, name(), "");
        return 0;
    }
    if (fd < 0)
        return fd;
    *operation = "read";
    error = type == S_IFDIR ? send_below((int)fd, stat.mode, depth + 1, operation) : send_file((int)fd, stat.mode, 1);
    call1(SYS_close, fd);
    return error;
}

/* Sends a folder and everything below it. */
static long send_below(int fd, u32 mode, int depth, const char **operation)
{
    char buffer[4096] __attribute__((aligned(8)));
    size_t length = strlen(path);
    if (depth > DEEPEST)
        return -ENAMETOOLONG;
    send_entry(FOLDER, mode, name(), "");
    for (;;) {
        *operation = "getdents64";
        long count = call3(SYS_getdents64, fd, buffer, sizeof buffer);
        if (count <= 0 || connection_closed())
            return count < 0 ? count : 0;
        for (long at = 0; at < count;) {
            struct directory_entry *entry = (struct directory_entry *)(buffer + at);
            at += entry->length;
            if (same(entry->name, ".") || same(entry->name, ".."))
                continue;
            if (append(path, sizeof path, length && path[length - 1] == '/' ? "" : "/") ||
                append(path, sizeof path, entry->name))
                return -ENAMETOOLONG;
            long error = send_child(depth, operation);
            if (error < 0)
                return error;
            path[length] = 0;
        }
    }
}

void get(struct frame *frame)
{
    char *at = frame->payload, *asked = get_string(&at, at + frame->length);
    path[0] = 0;
    if (!asked || append(path, sizeof path, asked)) {
        send_error(EPROTO, "get", "");
        return;
    }
    top = strlen(path);
    struct stat stat;
    const char *operation = "open";
    long fd = call2(SYS_open, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    long error = fd < 0 ? fd : call2(SYS_fstat, fd, &stat);
    if (!error) {
        operation = "read";
        int is_folder = (stat.mode & S_IFMT) == S_IFDIR;
        error = is_folder ? send_below((int)fd, stat.mode, 0, &operation) : send_file((int)fd, stat.mode, 0);
    }
    if (fd >= 0)
        call1(SYS_close, fd);
    if (error < 0)
        send_error(error, operation, path);
    else
        frame_send_room(DONE, 0);
}

void write_value(struct frame *frame)
{
    char *at = frame->payload, *end = at + frame->length, *file = get_string(&at, end);
    const char *operation = "open";
    /* As a shell's > does, but for a file that is not there. */
    long fd = file ? call2(SYS_open, file, O_WRONLY | O_TRUNC | O_CLOEXEC) : -EPROTO, error = fd;
    if (fd >= 0) {
        operation = "write";
        error = call3(SYS_write, fd, at, end - at);
        call1(SYS_close, fd);
        if (error >= 0 && error < end - at)
            error = -EIO;
    }
    if (error < 0)
        send_error(error, operation, file ? file : "");
    else
        frame_send_room(DONE, 0);
}
