/* The command's stdin and its output. */
#include "init.h"
#include <poll.h>
#include <unistd.h>

enum { TERMINAL_HOLDS = 16384 }; /* more than a terminal of the kernel's keeps for its reader: 8 KiB and 4 KiB */

void feed_stdin(void)
{
    while (run.ring_len && run.stdin_fd >= 0) {
        size_t piece = run.ring_len < sizeof run.ring - run.ring_at ? run.ring_len : sizeof run.ring - run.ring_at;
        ssize_t n = write(run.stdin_fd, run.ring + run.ring_at, piece);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0)
            close_fd(&run.stdin_fd); /* nobody reads it any more; the rest is dropped below */
        else {
            run.line_is_open = run.ring[(run.ring_at + (size_t)n - 1) % sizeof run.ring] != '\n';
            run.ring_at = (run.ring_at + (size_t)n) % sizeof run.ring;
            run.ring_len -= (size_t)n;
            run.stdin_used += (uint32_t)n;
        }
    }
    if (run.stdin_fd < 0) {
        run.stdin_used += (uint32_t)run.ring_len;
        run.ring_len = 0;
    } else if (run.ring_len == 0 && run.stdin_closing) {
        if (run.wants_pty) {
            /* The terminal's own end of input. In the middle of a line it only ends the line. */
            ssize_t ignored = write(run.stdin_fd, "\004\004", run.line_is_open ? 2 : 1);
            (void)ignored;
        }
        close_fd(&run.stdin_fd);
    }
}

void take_stdin(const unsigned char *bytes, size_t n)
{
    if (n == 0)
        run.stdin_closing = true;
    if (n > sizeof run.ring - run.ring_len)
        give_up("stdin past its credit");
    for (size_t i = 0; i < n; i++)
        run.ring[(run.ring_at + run.ring_len + i) % sizeof run.ring] = bytes[i];
    run.ring_len += n;
    feed_stdin();
}

void read_output(struct stream *stream, unsigned char type)
{
    size_t room = run.credit < OUTPUT ? run.credit : OUTPUT;
    if (phase == SETTLING && stream->owed < room)
        room = stream->owed; /* what others write belongs after the command's ending */
    if (stream->fd < 0 || out_len || room == 0)
        return;
    ssize_t n = read(stream->fd, out + HEADER, room);
    if (n > 0) {
        put_header(type, (size_t)n);
        out_len += (size_t)n;
        run.credit -= (uint32_t)n;
        stream->owed -= phase == SETTLING ? (size_t)n : 0;
        run.output_at = now_ms();
        flush_out();
    } else if (n < 0 && errno == EIO && run.wants_pty)
        /* Nobody has the terminal open. It stays: to close our side would hang up on a command that is just leaving. */
        run.deserted = true;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        close_fd(&stream->fd);
}

/* Seen without reading, for there may be no credit to read with. */
static bool is_empty(const struct stream *stream)
{
    struct pollfd set = {.fd = stream->fd, .events = POLLIN};
    return stream->fd < 0 || (poll(&set, 1, 0) >= 0 && !(set.revents & POLLIN));
}

/* With nobody left to write, empty is the end. */
void close_if_empty(struct stream *stream)
{
    if (is_empty(stream))
        close_fd(&stream->fd);
}

static size_t unread(int fd)
{
    int n = 0;
    return fd >= 0 && ioctl(fd, FIONREAD, &n) == 0 && n > 0 ? (size_t)n : 0;
}

/* The command's time is over: what it wrote is now in its pipes. A terminal cannot count what is in its first buffer. */
void note_owed(void)
{
    run.output.owed = run.wants_pty ? TERMINAL_HOLDS : unread(run.output.fd);
    run.errors.owed = unread(run.errors.fd);
}

/* Empty counts too: whoever is left can open the pipe by /proc and take those bytes for himself. */
bool is_settled(void)
{
    return (run.output.owed == 0 || is_empty(&run.output)) && (run.errors.owed == 0 || is_empty(&run.errors));
}

/*
 * Whether to let small pieces of output gather: there is less than a whole frame to send, and the engine has not taken
 * our last one yet, or it left within this millisecond. Every frame costs each hop on the way the same, whatever its size.
 */
bool better_wait(uint64_t now)
{
    return unread(run.output.fd) + unread(run.errors.fd) < OUTPUT && (now == run.output_at || unread(1) > 0);
}
