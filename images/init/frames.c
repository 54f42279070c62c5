/* Bytes to and from the provider, and the small tools that everybody needs. */
#include "init.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Coming in, one at a time. Not part of a run: a late frame for the last command may be half read. */
static unsigned char in[HEADER + PAYLOAD];
static size_t in_len;

/* Going out. Output, lists and endings are put only into an empty buffer; the slack holds small frames. */
unsigned char out[HEADER + PAYLOAD + PAYLOAD];
size_t out_len;
static size_t out_at;

/* Frames of lines. */
static char text[PAYLOAD];
static size_t text_len;

_Noreturn void give_up(const char *what)
{
    /* Pid 1 leaves, so the kernel kills everything else in the namespace. */
    dprintf(2, "sandbox-init: %s\n", what);
    _exit(2);
}

uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* A time that is asked for; one past all time is never. */
uint64_t after(uint64_t now, uint64_t ms)
{
    return ms < UINT64_MAX - now ? now + ms : UINT64_MAX;
}

uint64_t big_endian(const unsigned char *bytes, size_t n)
{
    uint64_t value = 0;
    while (n--)
        value = value << 8 | *bytes++;
    return value;
}

void put_header(unsigned char type, size_t n)
{
    unsigned char *p = out + out_len;
    p[0] = type;
    p[1] = (unsigned char)(n >> 24), p[2] = (unsigned char)(n >> 16), p[3] = (unsigned char)(n >> 8), p[4] = (unsigned char)n;
    out_len += HEADER;
}

void put(unsigned char type, const void *payload, size_t n)
{
    if (n > PAYLOAD || out_len + HEADER + n > sizeof out)
        give_up("output buffer overrun");
    put_header(type, n);
    memcpy(out + out_len, payload, n);
    out_len += n;
}

void put_u32(unsigned char type, uint32_t value)
{
    unsigned char b[4] = {(unsigned char)(value >> 24), (unsigned char)(value >> 16), (unsigned char)(value >> 8), (unsigned char)value};
    put(type, b, sizeof b);
}

void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text + text_len, sizeof text - text_len, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text - text_len)
        give_up("text too long");
    text_len += (size_t)n;
}

/* What a command has named: it could forge lines, or take over a terminal that shows them. */
void say_escaped(const char *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    if (4 * n >= sizeof text - text_len)
        give_up("text too long");
    for (; n--; bytes++) {
        unsigned char byte = (unsigned char)*bytes;
        if (byte >= ' ' && byte <= '~' && byte != '\\')
            text[text_len++] = (char)byte;
        else {
            text[text_len++] = '\\';
            text[text_len++] = 'x';
            text[text_len++] = digits[byte >> 4];
            text[text_len++] = digits[byte & 15];
        }
    }
}

size_t room_to_say(void)
{
    return sizeof text - text_len;
}

void say_seal(void)
{
    if (run.seal == NULL)
        return;
    say("seal=");
    for (size_t i = 0; i < SEAL; i++)
        say("%02x", run.seal[i]);
    say("\n");
}

void put_text(unsigned char type)
{
    put(type, text, text_len);
    text_len = 0;
}

void flush_out(void)
{
    while (out_at < out_len) {
        ssize_t n = write(1, out + out_at, out_len - out_at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            _exit(0); /* the engine's end of the pipe is gone, and with it the provider */
        out_at += (size_t)n;
    }
    out_at = out_len = 0;
}

void read_frames(void take(unsigned char type, const unsigned char *payload, size_t n))
{
    for (;;) {
        /* First the header, then exactly the frame: what follows it may belong to a phase that this frame brings. */
        size_t want = HEADER;
        if (in_len >= HEADER) {
            size_t n = big_endian(in + 1, 4);
            if (n > PAYLOAD)
                give_up("frame too long");
            want = HEADER + n;
            if (in_len == want) {
                in_len = 0;
                take(in[0], in + HEADER, n);
                continue;
            }
        }
        ssize_t got = read(0, in + in_len, want - in_len);
        if (got == 0)
            _exit(0); /* the provider is gone; so is everything here, with us */
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got < 0)
            give_up("stdin");
        in_len += (size_t)got;
    }
}

void not_blocking(int fd)
{
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
        give_up("fcntl");
}

void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* A file of the kernel's, as much as fits, which it hands out a page at a time; nothing if it cannot be read. */
size_t slurp(const char *path, char *into, size_t size)
{
    size_t length = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && length < size - 1 && (n = read(fd, into + length, size - 1 - length)) > 0;)
        length += (size_t)n;
    if (fd >= 0)
        close(fd);
    into[length] = 0;
    return length;
}

/* The first word after `name` at the start of a line of a file; cgroup and /proc files have that form. */
bool fact(const char *path, const char *name, char *value, size_t size)
{
    static char buffer[16384];
    if (!slurp(path, buffer, sizeof buffer))
        return false;
    for (char *line = buffer; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, name, strlen(name)) != 0)
            continue;
        line += strlen(name);
        line += strspn(line, ": \t");
        size_t n = strcspn(line, " \t\n");
        if (n == 0 || n >= size)
            return false;
        memcpy(value, line, n);
        value[n] = 0;
        return true;
    }
    return false;
}
