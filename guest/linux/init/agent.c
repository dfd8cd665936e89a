#include "agent.h"

#include "files.h"
#include "frame.h"
#include "run.h"

static void hello(void)
{
    char payload[4];
    put_u32(payload, VERSION);
    frame_send(HELLO, payload, sizeof payload);
}

int agent(int fd)
{
    struct frame frame;
    connect_to(fd);
    hello();
    while (!connection_closed() && frame_next(&frame)) {
        switch (frame.kind) {
        case RUN:
            run(&frame);
            break;
        case STDIN:
        case KILL:
            /* For a program that has just ended. */
            break;
        case GET:
            get(&frame);
            break;
        case WRITE:
            write_value(&frame);
            break;
        case POWER_OFF:
            send_done();
            return 1;
        default:
            send_error(EPROTO, "request", "");
        }
    }
    return 0;
}
