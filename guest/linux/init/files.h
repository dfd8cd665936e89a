/* Files for the client. */
#pragma once

#include "frame.h"

/* GET and WRITE. */
void get(struct frame *frame);
void write_value(struct frame *frame);
