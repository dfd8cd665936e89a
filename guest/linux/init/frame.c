#include "frame.h"

#include "text.h"

static int channel = -1;

static char incoming[2 * (HEADER + MAX_PAYLOAD)];
/* Bytes here, and those of the frame that was returned last. */
static size_t here, taken;

/* A write found the connection closed. */
static int closed;

static char outgoing[HEADER + MAX_PAYLOAD];

/* Small frames that go with the next one: the driver of a port waits for each write. */
static char held[4096];
static size_t held_bytes;

void connect_to(int fd)
{
    channel = fd;
}

int connection(void)
{
    return channel;
}

int connection_closed(void)
{
    return closed;
}

u32 get_u32(const char *at)
{
    u32 value;
    memcpy(&value, at, sizeof value);
    return value;
}

void put_u32(char *at, u32 value)
{
    memcpy(at, &value, sizeof value);
}

char *get_string(char **at, char *end)
{
    char *begin = *at;
    for (char *byte = begin; byte < end; byte++) {
        if (!*byte) {
            *at = byte + 1;
            return begin;
        }
    }
    return 0;
}

/* Forgets the frame that was returned last. */
static void drop_taken(void)
{
    here -= taken;
    memcpy(incoming, incoming + taken, here);
    taken = 0;
}

static u32 payload_length(void)
{
    return get_u32(incoming + 1);
}

int frame_is_here(void)
{
    drop_taken();
    return here >= HEADER && here - HEADER >= payload_length();
}

int frame_read_some(void)
{
    drop_taken();
    size_t room = sizeof incoming - here;
    if (!room)
        return 1;
    long count = call3(SYS_read, channel, incoming + here, room);
    if (count == -EAGAIN) {
        struct pollfd poll = {channel, POLLIN, 0};
        call3(SYS_poll, &poll, 1, -1);
    }
    if (count == -EINTR || count == -EAGAIN)
        return 1;
    if (count <= 0)
        return 0;
    here += (size_t)count;
    return here < HEADER || payload_length() <= MAX_PAYLOAD;
}

int frame_next(struct frame *frame)
{
    while (!frame_is_here())
        if (!frame_read_some())
            return 0;
    if (payload_length() > MAX_PAYLOAD)
        return 0;
    frame->kind = (u8)incoming[0];
    frame->length = payload_length();
    frame->payload = incoming + HEADER;
    taken = HEADER + frame->length;
    return 1;
}

char *frame_room(void)
{
    return outgoing + HEADER;
}

static void send_bytes(const char *at, size_t left)
{
    while (left && !closed) {
        long count = call3(SYS_write, channel, at, left);
        if (count == -EAGAIN) {
            struct pollfd poll = {channel, POLLOUT, 0};
            call3(SYS_poll, &poll, 1, -1);
            if (poll.revents & (POLLERR | POLLHUP))
                closed = 1;
        } else if (count > 0) {
            at += count;
            left -= (size_t)count;
        } else if (count != -EINTR) {
            closed = 1;
        }
    }
}

/* Adds the frame in `outgoing` to those that are held; 0 if it has no room. */
static int hold(u32 length)
{
    if (HEADER + length > sizeof held - held_bytes)
        return 0;
    memcpy(held + held_bytes, outgoing, HEADER + length);
    held_bytes += HEADER + length;
    return 1;
}

static void send_held(void)
{
    send_bytes(held, held_bytes);
    held_bytes = 0;
}

void frame_hold_room(u8 kind, u32 length)
{
    outgoing[0] = (char)kind;
    put_u32(outgoing + 1, length);
    if (hold(length))
        return;
    send_held();
    if (!hold(length))
        send_bytes(outgoing, HEADER + length);
}

void frame_send_room(u8 kind, u32 length)
{
    frame_hold_room(kind, length);
    send_held();
}

void send_error(long error, const char *operation, const char *path)
{
    char *payload = frame_room();
    size_t first = strlen(operation) + 1, second = strlen(path);
    if (second >= MAX_PATH)
        second = MAX_PATH - 1;
    put_u32(payload, (u32)(error < 0 ? -error : error));
    memcpy(payload + 4, operation, first);
    memcpy(payload + 4 + first, path, second);
    payload[4 + first + second] = 0;
    frame_send_room(ERROR, (u32)(4 + first + second + 1));
}
