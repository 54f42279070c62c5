/*
 * What the files of sandbox-init share.
 *
 *   sandbox-init.c  the loop, the phases, what a frame does in which phase
 *   frames.c        bytes to and from the provider
 *   command.c       the command: read, started, forgotten
 *   streams.c       its stdin and its output
 *   processors.c    how many processors it finds
 *   mounts.c        what covers names of the workspace
 *   processes.c     who lives: reaped, listed, signalled, told at the end
 *   denials.c       what the sandbox refused to it, counted
 *   places.c        directories that a command may write to, as they were at the start
 *   scrub.c         everything else that a command can leave behind
 */
#ifndef INIT_H
#define INIT_H

#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/types.h>

enum {
    HEADER = 5,
    PAYLOAD = 65536,
    OUTPUT = PAYLOAD - HEADER, /* with its header two whole reads of the engine's, which takes 32 KiB at a time */
    SPEC_MAX = 4 << 20,
    STDIN_WINDOW = 4 * PAYLOAD, /* PROTOCOL.md: free credit for stdin */
    PIPE_SIZE = 4 * PAYLOAD,    /* fewer wake-ups than with the kernel's 64 KiB */
    PIDS_LISTED = 4096,
    SEAL = 16,
};

enum phase {
    WAITING,  /* for the command */
    RUNNING,  /* the command lives */
    LINGER,   /* it has ended; what it left behind has a moment to end too */
    SETTLING, /* what it left behind may stay; first goes out what it had written itself */
    LEASED,   /* its ending is told; the rest lives on, for a time */
    KILLING,  /* KILL is sent; waiting until nobody is left */
    DRAINING, /* nobody is left; what is still in the pipes goes out */
    ENDED,    /* the ending is queued; when it is written, leave or scrub */
    SCRUBBED, /* the word on that is queued; when it is written, wait again or leave */
};

/* A pipe or terminal that the command writes to. */
struct stream {
    int fd;
    size_t owed; /* while SETTLING: bytes that were there when the command's time was over */
};

/* What the kernel has counted in this network namespace. */
struct network {
    uint64_t no_route, no_port;
    bool is_known;
};

/* All that belongs to one command, in one piece, so that nothing of it is left when it is forgotten. */
struct run {
    /* As it was sent. */
    unsigned char *spec;
    size_t spec_len;
    char **argv, **envp, *strings;
    const char *cwd;
    const unsigned char *seal; /* of SEAL bytes; said with every ending, for nobody else in the sandbox knows it */
    uint64_t timeout_ms, lease_ms;
    uint32_t grace_ms, linger_ms, credit;
    bool wants_stdin, wants_pty, wants_lease, wants_reuse, wants_watch;
    struct winsize window;
    const unsigned char *processors; /* in the spec: how many, and places among our own to take them from; two bytes each */
    size_t processors_len;

    /* As it runs. */
    pid_t command;     /* 0 before it is started and after it was reaped */
    pid_t command_pid; /* what we report; not reset */
    int command_status, spawn_errno;
    char spawn_stage;  /* 'p', 'f', 'd' or 'x' when it could not be started */
    int stdin_fd, spawn_fd;
    int listener_fd;   /* who is watched and means to write waits here for an answer */
    struct stream output, errors;
    const char *reason;
    bool everyone_is_gone; /* no child is left to wait for */
    bool term_sent;
    bool deserted;         /* the terminal is open nowhere but here; somebody may open it again */
    bool list_wanted;
    uint64_t deadline, kill_at, linger_until;
    uint64_t output_at;    /* when output last went out */

    /* What it used, what it was refused, and whom it left. */
    uint64_t user_us, system_us;
    long max_rss_kb, oom_before;
    struct network network_before;
    uint64_t denied_writes;
    bool is_watched;
    bool is_blind; /* at least once we could not see what somebody meant to write */
    bool listed;
    pid_t background[PIDS_LISTED];
    size_t backgrounds;

    /* Bytes on their way to its stdin, a ring that credit keeps from overflowing. */
    unsigned char ring[STDIN_WINDOW];
    size_t ring_at, ring_len;
    bool stdin_closing, line_is_open;
    uint32_t stdin_used; /* written to the command, credit not yet returned */
};

extern enum phase phase;
extern struct run run;
extern unsigned served; /* commands before this one */

/* frames.c */
extern unsigned char out[HEADER + PAYLOAD + PAYLOAD];
extern size_t out_len;
_Noreturn void give_up(const char *what);
uint64_t now_ms(void);
uint64_t after(uint64_t now, uint64_t ms);
uint64_t big_endian(const unsigned char *bytes, size_t n);
void put_header(unsigned char type, size_t n);
void put(unsigned char type, const void *payload, size_t n);
void put_u32(unsigned char type, uint32_t value);
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
void say_escaped(const char *bytes, size_t n);
size_t room_to_say(void);
void put_text(unsigned char type);
void say_seal(void);
void flush_out(void);
void read_frames(void take(unsigned char type, const unsigned char *payload, size_t n));
void not_blocking(int fd);
void close_fd(int *fd);
size_t slurp(const char *path, char *into, size_t size);
bool fact(const char *path, const char *name, char *value, size_t size);

/* command.c */
void take_spec(const unsigned char *piece, size_t n);
void start(void);
void read_spawn_report(void);
void forget(void);

/* streams.c */
void feed_stdin(void);
void take_stdin(const unsigned char *bytes, size_t n);
void read_output(struct stream *stream, unsigned char type);
void note_owed(void);
bool is_settled(void);
void close_if_empty(struct stream *stream);
bool better_wait(uint64_t now);

/* processors.c */
int count_processors(void);
void keep_to_processors(void);
size_t processors_of_command(unsigned char *places, size_t size);

/* mounts.c */
void tell_mounts(void);

/* processes.c */
long oom_kills(void);
void reap(void);
void signal_everyone(int number);
void signal_group(int number);
void signal_one(uint32_t pid, int number);
void list_background(void);
size_t count_processes(void);
void put_processes(void);
void put_ending(unsigned char type);

/* denials.c */
void count_network(struct network *counted);
bool watch_writes(int report);
ssize_t receive_report(unsigned char *report, size_t size);
void answer_writers(short events);
void say_denials(void);

/* places.c and scrub.c */
struct scrubbing {
    bool unclean;
    char left[512]; /* the first thing that could not be scrubbed */
    size_t files, removed, steps;
    uint64_t until;
};
__attribute__((format(printf, 2, 3))) void leave_unclean(struct scrubbing *s, const char *format, ...);
bool spend(struct scrubbing *s);
bool has_word(const char *list, const char *word);
void unescape(char *path);
void remember_places(void);
void tidy_places(struct scrubbing *s);
void remember(void);
bool scrub(void);

#endif
