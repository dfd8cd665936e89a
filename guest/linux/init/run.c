#include "run.h"

#include "text.h"

/* Bytes that a pipe holds at most: what a program has written before its end. */
#define PIPE_BYTES (1 << 20)

static char term[64] = "TERM=linux";
static char *path_variable = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
char *base_environment[] = {0, "HOME=/root", term, 0};

static char *arguments[MAX_STRINGS + 1];
static char *variables[MAX_STRINGS + 8];

/* The program that runs. */
static struct {
    long pid;
    int end, out, err, in;
    char input[STDIN_WINDOW];
    size_t pending;
    int input_ends;
} program;

void set_environment(char **from)
{
    base_environment[0] = path_variable;
    for (; *from; from++)
        if (!memcmp(*from, "TERM=", 5) && strlen(*from) < sizeof term)
            memcpy(term, *from, strlen(*from) + 1);
}

static void handle_sigpipe(long handler)
{
    struct {
        long handler, flags, restorer, mask;
    } action = {handler, 0, 0, 0};
    call4(SYS_rt_sigaction, SIGPIPE, &action, 0, 8);
}

static const char *value_of(char **environment, const char *name)
{
    size_t length = strlen(name);
    for (; *environment; environment++)
        if (strlen(*environment) > length && !memcmp(*environment, name, length) && (*environment)[length] == '=')
            return *environment + length + 1;
    return 0;
}

long become(char **argv, char **environment)
{
    handle_sigpipe(0);
    const char *path = value_of(environment, "PATH");
    for (const char *at = argv[0]; *at; at++)
        if (*at == '/')
            return call3(SYS_execve, argv[0], argv, environment);
    long error = -ENOENT;
    while (path && *path && *argv[0]) {
        static char file[MAX_PATH];
        size_t end = 0;
        while (path[end] && path[end] != ':')
            end++;
        if (end < sizeof file - 1) {
            memcpy(file, path, end);
            file[end] = 0;
            if (!append(file, sizeof file, "/") && !append(file, sizeof file, argv[0])) {
                long result = call3(SYS_execve, file, argv, environment);
                if (result != -ENOENT)
                    error = result;
            }
        }
        path += end + (path[end] != 0);
    }
    return error;
}

/* The strings of a frame, `count` of them, as an array that ends with a null pointer. */
static int take_strings(char **to, size_t count, char **at, char *end)
{
    for (size_t n = 0; n < count; n++)
        if (!(to[n] = get_string(at, end)))
            return 0;
    to[count] = 0;
    return 1;
}

static int has_name(char **environment, const char *variable)
{
    char name[64] = "";
    size_t length = 0;
    while (variable[length] != '=')
        length++;
    memcpy(name, variable, length);
    return value_of(environment, name) != 0;
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
    long error = become(arguments, variables);
    call3(SYS_write, report, &error, sizeof error);
    call1(SYS_exit, 127);
}

/* Starts the program; 0, or -errno with the operation that failed. */
static long start(int with_input, const char **operation, const char **path)
{
    int in[2] = {-1, -1}, out[2], err[2], report[2];
    *operation = "pipe";
    *path = arguments[0];
    long error = call2(SYS_pipe2, out, O_CLOEXEC);
    if (!error)
        error = call2(SYS_pipe2, err, O_CLOEXEC);
    if (!error)
        error = call2(SYS_pipe2, report, O_CLOEXEC);
    if (!error && with_input)
        error = call2(SYS_pipe2, in, O_CLOEXEC);
    if (error)
        return error;
    if (!with_input) {
        *operation = "open";
        in[0] = (int)call2(SYS_open, "/dev/null", O_RDONLY | O_CLOEXEC);
        if (in[0] < 0) {
            *path = "/dev/null";
            return in[0];
        }
    }
    *operation = "fork";
    program.pid = call0(SYS_fork);
    if (!program.pid)
        child(in[0], out[1], err[1], report[1]);
    close_end(&in[0]);
    close_end(&out[1]);
    close_end(&err[1]);
    close_end(&report[1]);
    program.in = in[1];
    program.out = out[0];
    program.err = err[0];
    program.pending = 0;
    program.input_ends = 0;
    program.end = -1;
    if (program.pid < 0) {
        close_end(&report[0]);
        return program.pid;
    }
    long count;
    do
        count = call3(SYS_read, report[0], &error, sizeof error);
    while (count == -EINTR);
    close_end(&report[0]);
    if (count == sizeof error) {
        *operation = "exec";
        call4(SYS_wait4, program.pid, 0, 0, 0);
        return error;
    }
    *operation = "pidfd_open";
    program.end = (int)call2(SYS_pidfd_open, program.pid, 0);
    if (program.end < 0) {
        call2(SYS_kill, -program.pid, SIGKILL);
        call4(SYS_wait4, program.pid, 0, 0, 0);
        return program.end;
    }
    call3(SYS_fcntl, program.out, F_SETFL, O_NONBLOCK);
    call3(SYS_fcntl, program.err, F_SETFL, O_NONBLOCK);
    if (program.in >= 0)
        call3(SYS_fcntl, program.in, F_SETFL, O_NONBLOCK);
    return 0;
}

static void finish(void)
{
    close_end(&program.in);
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

static void taken(size_t bytes)
{
    char payload[4];
    put_u32(payload, (u32)bytes);
    frame_send(TAKEN, payload, sizeof payload);
}

/* Gives the program its input. One that reads no more loses the rest. */
static void give_input(void)
{
    while (program.pending && program.in >= 0) {
        long count = call3(SYS_write, program.in, program.input, program.pending);
        if (count == -EINTR)
            continue;
        if (count == -EAGAIN)
            return;
        if (count < 0) {
            close_end(&program.in);
            break;
        }
        program.pending -= (size_t)count;
        memcpy(program.input, program.input + count, program.pending);
        taken((size_t)count);
    }
    if (program.in < 0 && program.pending) {
        taken(program.pending);
        program.pending = 0;
    }
    if (program.input_ends && !program.pending)
        close_end(&program.in);
}

/* Frames of the client that have come while the program runs; 0 if one does not belong there. */
static int hear_frames(void)
{
    struct frame frame;
    while (frame_is_here()) {
        if (!frame_next(&frame))
            return 0;
        if (frame.kind == KILL && frame.length == 4) {
            call2(SYS_kill, -program.pid, get_u32(frame.payload));
        } else if (frame.kind == STDIN && !frame.length) {
            program.input_ends = 1;
        } else if (frame.kind == STDIN && frame.length <= sizeof program.input - program.pending) {
            memcpy(program.input + program.pending, frame.payload, frame.length);
            program.pending += frame.length;
        } else {
            return 0;
        }
    }
    return 1;
}

/* Serves the program until it ends; 0 if the connection ended first. */
static int serve(void)
{
    /* The first input may have been read together with the request: no poll would tell of it. */
    if (!hear_frames())
        return 0;
    give_input();
    for (;;) {
        struct pollfd polls[5] = {
            {program.end, POLLIN, 0},
            {connection(), POLLIN, 0},
            {program.out, POLLIN, 0},
            {program.err, POLLIN, 0},
            {program.pending ? program.in : -1, POLLOUT, 0},
        };
        call3(SYS_poll, polls, 5, -1);
        if (polls[0].revents)
            return 1;
        if (connection_closed() || (polls[1].revents && !(frame_read_some() && hear_frames())))
            return 0;
        if (polls[2].revents)
            pass_on(&program.out, OUT);
        if (polls[3].revents)
            pass_on(&program.err, ERR);
        give_input();
    }
}

void run(struct frame *frame)
{
    char *at = frame->payload + 12, *end = frame->payload + frame->length;
    if (frame->length < 12) {
        send_error(EPROTO, "run", "");
        return;
    }
    u32 flags = get_u32(frame->payload), count = get_u32(frame->payload + 4), own = get_u32(frame->payload + 8);
    if (!count || count > MAX_STRINGS || own > MAX_STRINGS ||
        !take_strings(arguments, count, &at, end) || !take_strings(variables, own, &at, end)) {
        send_error(EINVAL, "run", "");
        return;
    }
    for (char **base = base_environment; *base; base++) {
        if (!has_name(variables, *base)) {
            variables[own++] = *base;
            variables[own] = 0;
        }
    }
    handle_sigpipe(1);
    const char *operation, *path;
    u64 begin = nanoseconds(CLOCK_MONOTONIC);
    long error = start((flags & RUN_STDIN) != 0, &operation, &path);
    if (error < 0) {
        send_error(error, operation, path);
        finish();
        return;
    }
    int connected = serve();
    if (!connected)
        call2(SYS_kill, -program.pid, SIGKILL);
    u32 status = 0;
    u64 wall = nanoseconds(CLOCK_MONOTONIC) - begin;
    while (call4(SYS_wait4, program.pid, &status, 0, 0) == -EINTR)
        ;
    /* What is in the pipes, and nothing that others write meanwhile without end. */
    for (size_t left = PIPE_BYTES, count; left && (count = pass_on(&program.out, OUT)); left -= count < left ? count : left)
        ;
    for (size_t left = PIPE_BYTES, count; left && (count = pass_on(&program.err, ERR)); left -= count < left ? count : left)
        ;
    char payload[12];
    put_u32(payload, status);
    put_u64(payload + 4, wall);
    frame_send(ENDED, payload, sizeof payload);
    finish();
}
