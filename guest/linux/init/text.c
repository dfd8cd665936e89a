#include "text.h"

#include <stdarg.h>

void *memcpy(void *to, const void *from, size_t length)
{
    void *begin = to;
    size_t words = length / 8, bytes = length % 8;
    __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    return begin;
}

void *memset(void *to, int byte, size_t length)
{
    void *begin = to;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(length) : "a"(byte) : "memory");
    return begin;
}

int memcmp(const void *a, const void *b, size_t length)
{
    const u8 *left = a, *right = b;
    for (size_t at = 0; at < length; at++)
        if (left[at] != right[at])
            return left[at] - right[at];
    return 0;
}

size_t strlen(const char *text)
{
    size_t length = 0;
    while (text[length])
        length++;
    return length;
}

int same(const char *a, const char *b)
{
    size_t length = strlen(a);
    return length == strlen(b) && !memcmp(a, b, length);
}

int append(char *to, size_t room, const char *text)
{
    size_t begin = strlen(to), length = strlen(text);
    if (begin + length >= room)
        return -ENAMETOOLONG;
    memcpy(to + begin, text, length + 1);
    return 0;
}

long read_text(const char *path, char *to, size_t room)
{
    long fd = call2(SYS_open, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fd;
    long length = call3(SYS_read, fd, to, room - 1);
    call1(SYS_close, fd);
    if (length < 0)
        return length;
    if (length && to[length - 1] == '\n')
        length--;
    to[length] = 0;
    return length;
}

u64 nanoseconds(int clock)
{
    struct timespec now = {0, 0};
    call2(SYS_clock_gettime, clock, &now);
    return (u64)now.seconds * 1000000000 + (u64)now.nanoseconds;
}

void pause_ms(long milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    call2(SYS_nanosleep, &time, 0);
}

void say(const char *first, ...)
{
    char line[512] = "init: ";
    va_list words;
    va_start(words, first);
    for (const char *word = first; word; word = va_arg(words, const char *))
        append(line, sizeof line - 1, word);
    va_end(words);
    append(line, sizeof line, "\n");
    call3(SYS_write, 2, line, strlen(line));
}

void complain(const char *what, const char *path, long error)
{
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = 0;
    u64 value = (u64)(error < 0 ? -error : error);
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    say(what, " ", path, ": error ", digits + at, (const char *)0);
}
