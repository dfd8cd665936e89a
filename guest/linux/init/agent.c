#include "agent.h"

#include "files.h"
#include "frame.h"
#include "run.h"
#include "text.h"

/* Six names of 65 bytes: struct new_utsname. */
struct names {
    char system[65], node[65], release[65], version[65], machine[65], domain[65];
};

static void hello(void)
{
    struct names names;
    char *payload = frame_room();
    memset(&names, 0, sizeof names);
    call1(SYS_uname, &names);
    put_u32(payload, VERSION);
    put_u64(payload + 4, nanoseconds(CLOCK_BOOTTIME));
    memcpy(payload + 12, names.release, strlen(names.release) + 1);
    frame_send_room(HELLO, (u32)(12 + strlen(names.release) + 1));
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
        case ENTRY:
            put_entry(&frame);
            break;
        case DATA:
            put_data(&frame);
            break;
        case COMMIT:
            put_commit();
            break;
        case GET:
            get(&frame);
            break;
        case WRITE:
            write_value(&frame);
            break;
        case POWER_OFF:
            send_done(0);
            return 1;
        default:
            send_error(EPROTO, "request", "");
        }
    }
    return 0;
}
