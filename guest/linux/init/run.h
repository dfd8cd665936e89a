/* Running a program for the client: RUN and what follows it. */
#pragma once

#include "frame.h"

/* The environment of programs: PATH and HOME, and TERM as the init has it. */
extern char *base_environment[];

/* Takes TERM from the environment of this process. */
void set_environment(char **from);

/* In a new process: signals as a program expects them, and the program `argv`, searched for in PATH. Returns -errno. */
long become(char **argv, char **environment);

/* Runs the program of a frame until it ends. */
void run(struct frame *frame);
