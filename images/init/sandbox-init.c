/*
 * sandbox-init: pid 1 of a sandbox. Waits on stdin for a command, runs it, tells exactly how it ended.
 * The protocol and its promises: PROTOCOL.md. What is where: init.h.
 *
 * Theory of operation. One loop around poll. It never blocks anywhere else: stdin, stdout and all pipes are
 * non-blocking, so that a deadline is met whatever the provider, the engine or the command do. (Scrubbing takes its
 * time, but nobody lives then, and the time is bounded.) A run goes through the phases of init.h, in this order, and
 * each change of phase happens in one place, step(), but for the start and for a kill during a lease.
 *
 * Trusted code in untrusted surroundings: the command runs with the same uid. What keeps it off us is that pid 1 is
 * not dumpable and that signals from inside a pid namespace do not reach its pid 1.
 */
#include "init.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOOK_AGAIN_MS = 1 };

enum phase phase = WAITING;
unsigned served;
static bool is_clean;

/* Their names, of which no kernel takes one with a space or a comma. */
static void tell_interfaces(void)
{
    char text[4096], *rest = text, *line, *comma = "";

    if (slurp("/proc/net/dev", text, sizeof text) == 0)
        return;
    say("interfaces=");
    while ((line = strsep(&rest, "\n"))) {
        char *colon = strchr(line, ':');
        if (colon == NULL)
            continue;
        *colon = 0;
        say("%s%s", comma, line + strspn(line, " "));
        comma = ",";
    }
    say("\n");
}

static void hello(void)
{
    static const char *const facts[][2] = {{"seccomp", "Seccomp:"}, {"cap_eff", "CapEff:"}, {"cap_bnd", "CapBnd:"}};
    char value[64];
    struct stat workspace;

    say("protocol=2\nuid=%u\ngid=%u\n", (unsigned)getuid(), (unsigned)getgid());
    say("no_new_privs=%d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)); /* gVisor has no such line in its status */
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (fact("/proc/self/status", facts[i][1], value, sizeof value))
            say("%s=%s\n", facts[i][0], value);
    if (stat("/workspace", &workspace) == 0)
        say("inode=%" PRIuMAX "\n", (uintmax_t)workspace.st_ino);
    tell_interfaces();
    int processors = count_processors();
    if (processors > 0)
        say("cpus=%d\n", processors);
    tell_mounts();
    put_text('H');
}

/* A command that has exited has exited. Only with a lease is there somebody left whom a kill concerns. */
static void begin_kill(const char *why)
{
    bool is_leased = run.wants_lease && (phase == LINGER || phase == SETTLING || phase == LEASED);
    if (run.term_sent || !(phase == RUNNING || is_leased))
        return;
    run.reason = why;
    run.term_sent = true;
    run.kill_at = after(now_ms(), run.grace_ms);
    if (is_leased) {
        list_background();
        run.linger_until = run.kill_at;
        phase = LINGER;
    }
    signal_everyone(SIGTERM);
    if (run.wants_pty)
        signal_everyone(SIGHUP); /* interactive shells ignore TERM */
    signal_everyone(SIGCONT);    /* a stopped process would never see either */
}

static void grant(uint32_t more)
{
    run.credit = more < UINT32_MAX - run.credit ? run.credit + more : UINT32_MAX;
}

static const char *reason(unsigned char letter)
{
    switch (letter) {
    case 'o': return "output_limit";
    case 't': return "timed_out";
    case 'w': return "workspace_quota";
    default: return "canceled";
    }
}

static void take_frame(unsigned char type, const unsigned char *payload, size_t n)
{
    bool is_over = phase == ENDED || phase == SCRUBBED || (phase == WAITING && served && run.spec_len == 0);
    if (is_over && strchr("CIKWTQ", type) && type)
        return; /* for the last command, sent before its ending was seen */
    if (type == 'S' && phase == WAITING)
        take_spec(payload, n);
    else if (type == 'X' && n == 0 && phase == WAITING)
        start();
    else if (phase == WAITING || is_over)
        give_up("a frame before its time");
    else if (type == 'C' && n == 4)
        grant((uint32_t)big_endian(payload, 4));
    else if (type == 'I')
        take_stdin(payload, n);
    else if (type == 'K' && n == 1 && payload[0] < NSIG)
        signal_group(payload[0]);
    else if (type == 'K' && n == 5 && payload[0] < NSIG)
        signal_one((uint32_t)big_endian(payload + 1, 4), payload[0]);
    else if (type == 'Q' && n == 0)
        run.list_wanted = true;
    else if (type == 'W' && n == 4) {
        run.window.ws_row = (unsigned short)big_endian(payload, 2);
        run.window.ws_col = (unsigned short)big_endian(payload + 2, 2);
        if (run.wants_pty && run.output.fd >= 0)
            (void)ioctl(run.output.fd, TIOCSWINSZ, &run.window);
    } else if (type == 'T' && n == 1)
        begin_kill(reason(payload[0]));
    else
        give_up("unknown frame");
}

static void step(uint64_t now)
{
    if (run.deadline && now >= run.deadline)
        begin_kill("timed_out");
    if (phase == RUNNING && run.term_sent && now >= run.kill_at)
        signal_everyone(SIGKILL);
    if (phase == RUNNING && run.command == 0 && run.spawn_fd < 0) {
        phase = LINGER;
        run.linger_until = run.term_sent ? run.kill_at : after(now, run.linger_ms);
        run.deadline = 0;
    }
    if (phase == LINGER && (run.everyone_is_gone || now >= run.linger_until)) {
        if (!run.everyone_is_gone)
            list_background();
        phase = KILLING;
        if (run.wants_lease && !run.term_sent && !run.spawn_stage && run.backgrounds) {
            /* The lease counts from here, not from the frame that tells it: that one may have to wait for credit. */
            run.deadline = after(now, run.lease_ms);
            note_owed();
            phase = SETTLING;
        }
    }
    if ((phase == SETTLING || phase == LEASED) && run.everyone_is_gone)
        phase = KILLING;
    if (phase == SETTLING && is_settled() && out_len == 0) {
        put_ending('L');
        phase = LEASED;
    }
    if (phase == KILLING) {
        if (!run.everyone_is_gone) {
            signal_everyone(SIGKILL);
            reap();
        }
        if (run.everyone_is_gone)
            phase = DRAINING;
    }
    if (phase == DRAINING) {
        close_if_empty(&run.output);
        close_if_empty(&run.errors);
    }
    if (phase == DRAINING && run.output.fd < 0 && run.errors.fd < 0 && out_len == 0 && !run.list_wanted) {
        put_ending('Z');
        phase = ENDED;
    }
}

/* When what was queued last is written. Tells whether there is more to come. */
static bool go_on(void)
{
    if (phase == ENDED && run.wants_reuse) {
        close_fd(&run.stdin_fd); /* of a terminal, it would keep the terminal */
        is_clean = scrub();
        phase = SCRUBBED;
        flush_out();
    }
    if (phase == SCRUBBED && is_clean && out_len == 0) {
        forget();
        served++;
        phase = WAITING;
    }
    return out_len > 0 || !(phase == ENDED || phase == SCRUBBED);
}

static int time_to_wait(uint64_t now)
{
    uint64_t next = UINT64_MAX;
    if (phase == RUNNING && run.term_sent)
        next = run.kill_at > now ? run.kill_at : now + 20; /* KILL was sent; look again until it is done */
    else if ((phase == RUNNING || phase == SETTLING || phase == LEASED) && run.deadline)
        next = run.deadline;
    else if (phase == LINGER)
        next = run.linger_until;
    else if (phase == KILLING)
        next = now + 5; /* a process between fork and its first instruction; tell it again */
    if (next == UINT64_MAX)
        return -1;
    uint64_t wait = next > now ? next - now : 0;
    return wait > 60000 ? 60000 : (int)wait;
}

static void watch(struct pollfd *set, int fd, bool wanted, short events)
{
    set->fd = wanted ? fd : -1;
    set->events = events;
    set->revents = 0;
}

int main(void)
{
    sigset_t all;
    int child_fd;

    if (getpid() != 1) {
        /* kill(-1) would reach every process of the user. */
        dprintf(2, "sandbox-init: runs only as pid 1 of a container\n");
        return 2;
    }
    if (prctl(PR_SET_DUMPABLE, 0) < 0)
        give_up("prctl");
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&all);
    sigaddset(&all, SIGCHLD);
    if ((child_fd = signalfd(-1, &all, SFD_NONBLOCK | SFD_CLOEXEC)) < 0)
        give_up("signalfd");
    not_blocking(0);
    not_blocking(1);
    (void)fcntl(1, F_SETPIPE_SZ, PIPE_SIZE);
    forget();
    hello();

    for (bool stderr_first = false;; stderr_first = !stderr_first) {
        struct pollfd set[8];
        struct signalfd_siginfo ignored;

        if (run.stdin_used && out_len == 0) {
            put_u32('c', run.stdin_used);
            run.stdin_used = 0;
        }
        flush_out();
        if (run.list_wanted && out_len == 0 && phase < ENDED) {
            put_processes();
            run.list_wanted = false;
            flush_out();
        }
        if (out_len == 0 && !go_on())
            return 0;
        bool has_room = out_len == 0 && run.credit > 0 && (run.output.fd >= 0 || run.errors.fd >= 0);
        uint64_t now = now_ms();
        bool gather = has_room && better_wait(now);
        bool may_read = has_room && !gather;
        bool draining = phase == DRAINING || phase == SETTLING; /* until it is empty, not until there is more */
        bool drained = out_len == 0 && ((phase == DRAINING && run.output.fd < 0 && run.errors.fd < 0) ||
                                        (phase == SETTLING && is_settled()));
        int timeout = drained || (draining && may_read) ? 0 : time_to_wait(now);
        /* No event tells that a pipe has been emptied, or that a terminal was opened again. */
        if ((gather || run.deserted) && (timeout < 0 || timeout > LOOK_AGAIN_MS))
            timeout = LOOK_AGAIN_MS;
        watch(&set[0], 0, true, POLLIN);
        watch(&set[1], 1, out_len > 0, POLLOUT);
        watch(&set[2], child_fd, true, POLLIN);
        watch(&set[3], run.spawn_fd, run.spawn_fd >= 0, POLLIN);
        watch(&set[4], run.stdin_fd, run.ring_len > 0, POLLOUT);
        watch(&set[5], run.output.fd, may_read && !run.deserted, POLLIN);
        watch(&set[6], run.errors.fd, may_read, POLLIN);
        watch(&set[7], run.listener_fd, run.listener_fd >= 0, POLLIN);
        if (poll(set, sizeof set / sizeof *set, timeout) < 0 && errno != EINTR)
            give_up("poll");

        run.deserted = false;
        if (set[3].revents)
            read_spawn_report();
        if (set[0].revents)
            read_frames(take_frame);
        if (set[2].revents) {
            while (read(child_fd, &ignored, sizeof ignored) > 0)
                ;
            reap();
        }
        if (set[4].revents)
            feed_stdin();
        if (set[7].revents)
            answer_writers(set[7].revents);
        bool read_all = draining && !gather;
        if (stderr_first && (set[6].revents || read_all))
            read_output(&run.errors, 'E');
        if (set[5].revents || read_all)
            read_output(&run.output, 'O');
        if (!stderr_first && (set[6].revents || read_all))
            read_output(&run.errors, 'E');
        step(now_ms());
    }
}
