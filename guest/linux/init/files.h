/* Files for the client, in both directions. */
#pragma once

#include "frame.h"

/* ENTRY, DATA and COMMIT. */
void put_entry(struct frame *frame);
void put_data(struct frame *frame);
void put_commit(void);

/* GET and WRITE. */
void get(struct frame *frame);
void write_value(struct frame *frame);
