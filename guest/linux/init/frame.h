/* Frames on the agent's connection: src/protocol.rs. */
#pragma once

#include "protocol.h"
#include "sys.h"

/* A frame of the client. Its payload is whole until the next call. */
struct frame {
    u8 kind;
    u32 length;
    char *payload;
};

/* The connection, a file descriptor, for this process. */
void connect_to(int fd);
int connection(void);

/* Whether a frame could not be sent. */
int connection_closed(void);

/* Whether a whole frame is here already. */
int frame_is_here(void);

/* Reads what has come, or waits for the next bytes; 0 at the end of the connection. */
int frame_read_some(void);

/* The next frame; waits for it. 0 at the end of the connection. */
int frame_next(struct frame *frame);

/* The payload of a frame to be filled in place, and sending it. If the connection is closed, nothing happens: its end is
 * seen by the next read. */
char *frame_room(void);
void frame_send_room(u8 kind, u32 length);

/* The same for a frame that may go with the next one, which follows soon. */
void frame_hold_room(u8 kind, u32 length);

void send_error(long error, const char *operation, const char *path);

/* Numbers of a payload. */
u32 get_u32(const char *at);
void put_u32(char *at, u32 value);

/* The string at *at, of a payload that ends at `end`; moves *at behind it. A null pointer if it does not end in time. */
char *get_string(char **at, char *end);
