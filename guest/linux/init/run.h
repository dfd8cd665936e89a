/* Running a program for the client: RUN and what follows it. */
#pragma once

#include "frame.h"

/* Gives the programs TERM as the environment of this process has it. */
void set_term(char **from);

/* In a new process: signals as a program expects them, and the program `argv`, searched for in PATH. Returns -errno. */
long become(char **argv);

/* Runs the program of a frame until it ends. */
void run(struct frame *frame);
