#include "run.h"

#include "text.h"

/* Bytes that a pipe holds at most: what a program has written before its end. */
#define PIPE_BYTES (1 << 20)

#define MOST_ARGUMENTS 1024
static char *arguments[MOST_ARGUMENTS + 1];

static char *environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TERM=linux", 0};

/* The program that runs. */
static struct {
    long pid;
    int end, out, err;
} program;

static void handle_sigpipe(long handler)
{
    struct {
        long handler, flags, restorer, mask;
    } action = {handler, 0, 0, 0};
    call4(SYS_rt_sigaction, SIGPIPE, &action, 0, 8);
}

/* In a new process: signals as a program expects them, and the program `argv`, searched for in PATH. Returns -errno. */
static long become(char **argv)
{
    handle_sigpipe(0);
    for (const char *at = argv[0]; *at; at++)
        if (*at == '/')
            return call3(SYS_execve, argv[0], argv, environment);
    long error = -ENOENT;
    for (const char *folder = environment[0] + 5; *folder && *argv[0];) {
        static char file[MAX_PATH];
        size_t end = 0;
        while (folder[end] && folder[end] != ':')
            end++;
        memcpy(file, folder, end);
        file[end] = 0;
        if (!append(file, sizeof file, "/") && !append(file, sizeof file, argv[0])) {
            long result = call3(SYS_execve, file, argv, environment);
            if (result != -ENOENT)
                error = result;
        }
        folder += end + (folder[end] != 0);
    }
    return error;
}

static void close_end(int *fd)
{
    if (*fd >= 0)
        call1(SYS_close, *fd);
    *fd = -1;
}

/* The new process: never returns. */
static void child(int in, int out, int err, int report)
{
    call0(SYS_setsid);
    call2(SYS_dup2, in, 0);
    call2(SYS_dup2, out, 1);
    call2(SYS_dup2, err, 2);
    if (call1(SYS_chdir, "/root") < 0)
        call1(SYS_chdir, "/");
    long error = become(arguments);
    call3(SYS_write, report, &error, sizeof error);
    call1(SYS_exit, 127);
}

/* Starts the program; 0, or -errno with the operation that failed. */
static long start(const char **operation)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1}, report[2] = {-1, -1};
    *operation = "pipe";
    long error = call2(SYS_pipe2, out, O_CLOEXEC);
    if (!error)
        error = call2(SYS_pipe2, err, O_CLOEXEC);
    if (!error)
        error = call2(SYS_pipe2, report, O_CLOEXEC);
    int in = (int)call2(SYS_open, "/dev/null", O_RDONLY | O_CLOEXEC);
    if (!error) {
        *operation = "fork";
        error = program.pid = call0(SYS_fork);
        if (!error)
            child(in, out[1], err[1], report[1]);
    }
    close_end(&in);
    close_end(&out[1]);
    close_end(&err[1]);
    close_end(&report[1]);
    program.out = out[0];
    program.err = err[0];
    program.end = -1;
    long count = 0;
    if (error >= 0) {
        do
            count = call3(SYS_read, report[0], &error, sizeof error);
        while (count == -EINTR);
    }
    close_end(&report[0]);
    if (count == sizeof error) {
        *operation = "exec";
        call4(SYS_wait4, program.pid, 0, 0, 0);
    }
    if (error < 0)
        return error;
    *operation = "pidfd_open";
    program.end = (int)call2(SYS_pidfd_open, program.pid, 0);
    if (program.end < 0) {
        call2(SYS_kill, -program.pid, SIGKILL);
        call4(SYS_wait4, program.pid, 0, 0, 0);
        return program.end;
    }
    call3(SYS_fcntl, program.out, F_SETFL, O_NONBLOCK);
    call3(SYS_fcntl, program.err, F_SETFL, O_NONBLOCK);
    return 0;
}

static void finish(void)
{
    close_end(&program.out);
    close_end(&program.err);
    close_end(&program.end);
}

/* Sends what the program has written, one frame of it; the number of bytes. */
static size_t pass_on(int *fd, u8 kind)
{
    if (*fd < 0)
        return 0;
    long count = call3(SYS_read, *fd, frame_room(), MAX_PAYLOAD);
    if (count > 0) {
        frame_send_room(kind, (u32)count);
        return (size_t)count;
    }
    if (count != -EAGAIN && count != -EINTR)
        close_end(fd);
    return 0;
}

/* What is in a pipe, and nothing that others write meanwhile without end. */
static void pass_on_rest(int *fd, u8 kind)
{
    for (size_t left = PIPE_BYTES, count; left && (count = pass_on(fd, kind)); left -= count < left ? count : left)
        ;
}

/* Frames of the client that have come while the program runs; 0 if one does not belong there. */
static int hear_frames(void)
{
    struct frame frame;
    while (frame_is_here()) {
        if (!frame_next(&frame) || frame.kind != KILL || frame.length != 4)
            return 0;
        call2(SYS_kill, -program.pid, get_u32(frame.payload));
    }
    return 1;
}

/* Serves the program until it ends; 0 if the connection ended first. */
static int serve(void)
{
    for (;;) {
        struct pollfd polls[4] = {
            {program.end, POLLIN, 0},
            {connection(), POLLIN, 0},
            {program.out, POLLIN, 0},
            {program.err, POLLIN, 0},
        };
        call3(SYS_poll, polls, 4, -1);
        if (polls[0].revents)
            return 1;
        if (connection_closed() || (polls[1].revents && !(frame_read_some() && hear_frames())))
            return 0;
        if (polls[2].revents)
            pass_on(&program.out, OUT);
        if (polls[3].revents)
            pass_on(&program.err, ERR);
    }
}

void run(struct frame *frame)
{
    char *at = frame->payload, *end = at + frame->length;
    size_t count = 0;
    while (at < end && count < MOST_ARGUMENTS && (arguments[count] = get_string(&at, end)))
        count++;
    if (!count || at < end) {
        send_error(EINVAL, "run", "");
        return;
    }
    arguments[count] = 0;
    handle_sigpipe(1);
    const char *operation;
    u64 begin = nanoseconds(CLOCK_MONOTONIC);
    long error = start(&operation);
    if (error < 0) {
        send_error(error, operation, arguments[0]);
        finish();
        return;
    }
    /* The client may have sent KILL together with the request: no poll would tell of it. */
    if (!hear_frames() || !serve())
        call2(SYS_kill, -program.pid, SIGKILL);
    u32 status = 0;
    u64 wall = nanoseconds(CLOCK_MONOTONIC) - begin;
    while (call4(SYS_wait4, program.pid, &status, 0, 0) == -EINTR)
        ;
    pass_on_rest(&program.out, OUT);
    pass_on_rest(&program.err, ERR);
    char *payload = frame_room();
    put_u32(payload, status);
    memcpy(payload + 4, &wall, sizeof wall);
    frame_send_room(ENDED, 12);
    finish();
}
