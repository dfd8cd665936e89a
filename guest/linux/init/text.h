/* Strings, memory, time, and words for the console. */
#pragma once

#include "sys.h"

/* The compiler makes calls of these out of copies and initialisations. memcpy begins at the lowest byte, so it can move bytes down. */
void *memcpy(void *to, const void *from, size_t length);
void *memset(void *to, int byte, size_t length);
int memcmp(const void *a, const void *b, size_t length);
size_t strlen(const char *text);

int same(const char *a, const char *b);

/* Appends to a string of `room` bytes, its zero byte included; returns 0, or -ENAMETOOLONG. */
int append(char *to, size_t room, const char *text);

/* A short file as a string without its last line feed: its length, or -errno. */
long read_text(const char *path, char *to, size_t room);

u64 nanoseconds(int clock);

void pause_ms(long milliseconds);

/* "init: " and these words, up to a null pointer, on the console. */
void say(const char *first, ...);

/* "init: what path: error N" on the console. */
void complain(const char *what, const char *path, long error);
