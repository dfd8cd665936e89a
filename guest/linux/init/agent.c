#include "agent.h"

#include "files.h"
#include "frame.h"
#include "run.h"

int agent(int fd)
{
    struct frame frame;
    connect_to(fd);
    frame_send_room(HELLO, 0);
    while (!connection_closed() && frame_next(&frame)) {
        switch (frame.kind) {
        case RUN:
            run(&frame);
            break;
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
            frame_send_room(DONE, 0);
            return 1;
        default:
            send_error(EPROTO, "request", "");
        }
    }
    return 0;
}
