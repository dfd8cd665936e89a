/* Running a program for the client: RUN and what follows it. */
#pragma once

#include "frame.h"

/* Runs the program of a frame until it ends. */
void run(struct frame *frame);
