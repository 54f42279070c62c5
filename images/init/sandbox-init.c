/*
 * sandbox-init: pid 1 of a sandbox. Waits on stdin for one command, runs it, tells exactly how it ended.
 * The protocol and its promises: PROTOCOL.md.
 *
 * Theory of operation. One loop around ppoll. It never blocks anywhere else: stdin, stdout and all pipes are
 * non-blocking, so that a deadline is met whatever the provider, the engine or the command do. A run goes through
 * the phases below, in this order, and each change of phase happens in one place, step().
 *
 * Trusted code in untrusted surroundings: the command runs with the same uid. What keeps it off us is that pid 1 is
 * not dumpable and that signals from inside a pid namespace do not reach its pid 1.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    HEADER = 5,
    PAYLOAD = 65536,
    OUTPUT = PAYLOAD - HEADER, /* with its header two whole reads of the engine's, which takes 32 KiB at a time */
    SPEC_MAX = 4 << 20,
    STDIN_WINDOW = 4 * PAYLOAD, /* PROTOCOL.md: free credit for stdin */
    PIPE_SIZE = 4 * PAYLOAD,    /* fewer wake-ups than with the kernel's 64 KiB */
    PIDS_LISTED = 4096,
    LOOK_AGAIN_MS = 1,
};

enum phase {
    WAITING,  /* for the command */
    RUNNING,  /* the command lives */
    LINGER,   /* it has ended; what it left behind has a moment to end too */
    KILLING,  /* KILL is sent; waiting until nobody is left */
    DRAINING, /* nobody is left; what is still in the pipes goes out */
    ENDED,    /* the ending is queued; leave when it is written */
};

static enum phase phase = WAITING;
static const char *reason = "exited";

/* The command, as it was sent. */
static unsigned char *spec;
static size_t spec_len;
static char **argv, **envp;
static const char *cwd = "/";
static uint64_t timeout_ms;
static uint32_t grace_ms = 500, linger_ms = 50, credit;
static bool wants_stdin, wants_pty;
static struct winsize window;

/* The command, as it runs. */
static pid_t command;          /* 0 before it is started and after it was reaped */
static pid_t command_pid;      /* what we report; not reset */
static int command_status, spawn_errno;
static char spawn_stage;       /* 'p', 'f', 'd' or 'x' when it could not be started */
static int stdin_fd = -1, stdout_fd = -1, stderr_fd = -1, spawn_fd = -1, child_fd = -1;
static bool everyone_is_gone;  /* no child is left to wait for */
static bool term_sent;
static bool deserted;          /* the terminal is open nowhere but here; somebody may open it again */
static uint64_t deadline, kill_at, linger_until;
static long oom_before;
static pid_t background[PIDS_LISTED];
static size_t backgrounds;

/* Frames coming in, one at a time. */
static unsigned char in[HEADER + PAYLOAD];
static size_t in_len;

/* Bytes on their way to the command's stdin, a ring that credit keeps from overflowing. */
static unsigned char ring[STDIN_WINDOW];
static size_t ring_at, ring_len;
static bool stdin_closing, line_is_open;
static uint32_t stdin_used; /* written to the command, credit not yet returned */

/* Frames going out. Output is read only into an empty buffer; the slack holds control frames. */
static unsigned char out[HEADER + PAYLOAD + PAYLOAD];
static size_t out_at, out_len;
static uint64_t output_at; /* when output last went out */

static void give_up(const char *what)
{
    /* Pid 1 leaves, so the kernel kills everything else in the namespace. */
    dprintf(2, "sandbox-init: %s\n", what);
    _exit(2);
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t big_endian(const unsigned char *bytes, size_t n)
{
    uint64_t value = 0;
    while (n--)
        value = value << 8 | *bytes++;
    return value;
}

/* ---- frames to the provider ---- */

static void put_header(unsigned char type, size_t n)
{
    unsigned char *p = out + out_len;
    p[0] = type;
    p[1] = (unsigned char)(n >> 24), p[2] = (unsigned char)(n >> 16), p[3] = (unsigned char)(n >> 8), p[4] = (unsigned char)n;
    out_len += HEADER;
}

static void put(unsigned char type, const void *payload, size_t n)
{
    if (n > PAYLOAD || out_len + HEADER + n > sizeof out)
        give_up("output buffer overrun");
    put_header(type, n);
    memcpy(out + out_len, payload, n);
    out_len += n;
}

static void put_u32(unsigned char type, uint32_t value)
{
    unsigned char b[4] = {(unsigned char)(value >> 24), (unsigned char)(value >> 16), (unsigned char)(value >> 8), (unsigned char)value};
    put(type, b, sizeof b);
}

/* Text of H and Z frames. */
static char text[PAYLOAD];
static size_t text_len;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text + text_len, sizeof text - text_len, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text - text_len)
        give_up("text too long");
    text_len += (size_t)n;
}

static void put_text(unsigned char type)
{
    put(type, text, text_len);
    text_len = 0;
}

static void flush_out(void)
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

/* ---- what the kernel tells ---- */

static size_t slurp(const char *path, char *into, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, into, size - 1);
    if (fd >= 0)
        close(fd);
    into[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

/* The first word after `name` at the start of a line of a file; cgroup and /proc files have that form. */
static bool fact(const char *path, const char *name, char *value, size_t size)
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

static long oom_kills(void)
{
    char value[32];
    if (fact("/sys/fs/cgroup/memory.events", "oom_kill ", value, sizeof value) ||
        fact("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill ", value, sizeof value))
        return atol(value);
    return 0;
}

static void hello(void)
{
    static const char *const facts[][2] = {
        {"no_new_privs", "NoNewPrivs:"}, {"seccomp", "Seccomp:"}, {"cap_eff", "CapEff:"}, {"cap_bnd", "CapBnd:"}};
    char value[64];
    struct stat workspace;

    say("protocol=1\nuid=%u\ngid=%u\n", (unsigned)getuid(), (unsigned)getgid());
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (fact("/proc/self/status", facts[i][1], value, sizeof value))
            say("%s=%s\n", facts[i][0], value);
    if (stat("/workspace", &workspace) == 0)
        say("inode=%" PRIuMAX "\n", (uintmax_t)workspace.st_ino);
    put_text('H');
}

static void list_background(void)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc && (entry = readdir(proc)) && backgrounds < PIDS_LISTED) {
        char path[sizeof "/proc//stat" + sizeof entry->d_name], stat_line[512];
        pid_t pid = atoi(entry->d_name);
        if (pid <= 1)
            continue;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        slurp(path, stat_line, sizeof stat_line);
        /* The state follows the last parenthesis; the name before it may hold anything. */
        char *state = strrchr(stat_line, ')');
        if (state && state[1] == ' ' && state[2] != 'Z' && state[2] != 'X')
            background[backgrounds++] = pid;
    }
    if (proc)
        closedir(proc);
}

static void put_ending(void)
{
    struct rusage used;
    char value[32];

    say("reason=%s\npid=%d\n", reason, (int)command_pid);
    if (spawn_stage)
        say("errno=%d\nstage=%s\n", spawn_errno,
            spawn_stage == 'p' ? "pty" : spawn_stage == 'f' ? "fork" : spawn_stage == 'd' ? "cwd" : "exec");
    else if (WIFSIGNALED(command_status))
        say("signal=%d\n", WTERMSIG(command_status));
    else
        say("exit=%d\n", WEXITSTATUS(command_status));
    say("background=");
    for (size_t i = 0; i < backgrounds; i++)
        say("%s%d", i ? "," : "", (int)background[i]);
    getrusage(RUSAGE_CHILDREN, &used);
    say("\noom=%ld\n", oom_kills() - oom_before);
    say("user_us=%" PRIu64 "\nsystem_us=%" PRIu64 "\nmax_rss_kb=%ld\n",
        (uint64_t)used.ru_utime.tv_sec * 1000000 + (uint64_t)used.ru_utime.tv_usec,
        (uint64_t)used.ru_stime.tv_sec * 1000000 + (uint64_t)used.ru_stime.tv_usec, used.ru_maxrss);
    if (fact("/sys/fs/cgroup/memory.peak", "", value, sizeof value) ||
        fact("/sys/fs/cgroup/memory/memory.max_usage_in_bytes", "", value, sizeof value))
        say("peak=%s\n", value);
    put_text('Z');
}

/* ---- the command ---- */

static void parse_spec(void)
{
    size_t args = 0, vars = 0;
    /* A record is at least five bytes, so this many pointers are enough for either list. */
    argv = calloc(spec_len / HEADER + 1, sizeof *argv);
    envp = calloc(spec_len / HEADER + 1, sizeof *envp);
    /* Every value is copied with a NUL behind it; together they are no longer than the spec with one byte a record. */
    char *strings = malloc(spec_len + 1);
    if (!argv || !envp || !strings)
        give_up("out of memory");

    for (size_t at = 0; at < spec_len;) {
        if (spec_len - at < HEADER)
            give_up("command: cut record");
        unsigned char tag = spec[at];
        size_t n = big_endian(spec + at + 1, 4);
        at += HEADER;
        if (n > spec_len - at)
            give_up("command: record past its end");
        const unsigned char *value = spec + at;
        at += n;
        if (tag == 'a' || tag == 'e' || tag == 'd') {
            if (memchr(value, 0, n))
                give_up("command: NUL byte");
            memcpy(strings, value, n);
            strings[n] = 0;
            if (tag == 'a')
                argv[args++] = strings;
            else if (tag == 'e')
                envp[vars++] = strings;
            else
                cwd = strings;
            strings += n + 1;
        } else if (tag == 't' && n == 8)
            timeout_ms = big_endian(value, 8);
        else if (tag == 'g' && n == 4)
            grace_ms = (uint32_t)big_endian(value, 4);
        else if (tag == 'l' && n == 4)
            linger_ms = (uint32_t)big_endian(value, 4);
        else if (tag == 'c' && n == 4)
            credit = (uint32_t)big_endian(value, 4);
        else if (tag == 'i' && n == 0)
            wants_stdin = true;
        else if (tag == 'p' && n == 4) {
            wants_pty = true;
            window.ws_row = (unsigned short)big_endian(value, 2);
            window.ws_col = (unsigned short)big_endian(value + 2, 2);
        } else
            give_up("command: unknown record");
    }
    if (args == 0)
        give_up("command: no program");
}

/* Like execvpe, but with the command's own PATH and without the detour through a shell for scripts without `#!`. */
static int execute(void)
{
    const char *path = "/usr/local/bin:/usr/bin:/bin";
    int found = ENOENT;
    if (argv[0][0] == 0)
        return ENOENT;
    if (strchr(argv[0], '/')) {
        execve(argv[0], argv, envp);
        return errno;
    }
    for (char **variable = envp; *variable; variable++)
        if (strncmp(*variable, "PATH=", 5) == 0)
            path = *variable + 5;
    for (;;) {
        static char candidate[8192];
        size_t n = strcspn(path, ":");
        int length = snprintf(candidate, sizeof candidate, "%.*s%s%s", (int)n, path, n ? "/" : "./", argv[0]);
        if (length > 0 && (size_t)length < sizeof candidate) {
            execve(candidate, argv, envp);
            if (errno != ENOENT && errno != ENOTDIR)
                found = errno;
        }
        if (path[n] == 0)
            return found;
        path += n + 1;
    }
}

static _Noreturn void refuse_to_start(int to, char stage, int error)
{
    unsigned char report[2] = {(unsigned char)stage, (unsigned char)error};
    if (write(to, report, sizeof report) < 0)
        _exit(126);
    _exit(127);
}

/* Ignored signals outlive an execve. By the kernel's own call: libc keeps two of them back for itself. */
static void reset_signals(void)
{
    static const unsigned char by_default[64];
    for (int number = 1; number < NSIG; number++)
        syscall(SYS_rt_sigaction, number, by_default, NULL, (NSIG - 1) / 8);
}

static _Noreturn void become_command(int in_fd, int out_fd, int err_fd, int report)
{
    sigset_t none;
    sigemptyset(&none);
    setsid();
    if (dup2(in_fd, 0) < 0 || dup2(out_fd, 1) < 0 || dup2(err_fd, 2) < 0)
        refuse_to_start(report, 'f', errno);
    if (wants_pty && ioctl(0, TIOCSCTTY, 0) < 0)
        refuse_to_start(report, 'p', errno);
    /* When memory runs out the kernel shall take the command, not us. /proc/self is ours only while dumpable. */
    prctl(PR_SET_DUMPABLE, 1);
    int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0 && write(score, "1000", 4) < 0)
        score = -1; /* a kernel that refuses this leaves the command as likely a victim as we are */
    reset_signals();
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (chdir(cwd) < 0)
        refuse_to_start(report, 'd', errno);
    refuse_to_start(report, 'x', execute());
}

static void pipe_for(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) < 0)
        give_up("pipe2");
    (void)fcntl(ends[0], F_SETPIPE_SZ, PIPE_SIZE); /* past the user's soft limit the kernel says no; fine */
}

static void not_blocking(int fd)
{
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
        give_up("fcntl");
}

static int open_terminal(int *slave)
{
    int unlock = 0, master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0)
        return -1;
    /* By ioctl, not by name: /dev/pts of an odd image cannot mislead it. */
    if (ioctl(master, TIOCSPTLCK, &unlock) < 0 || (*slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0)
        return -1;
    (void)ioctl(master, TIOCSWINSZ, &window);
    return master;
}

static void fail_to_start(char stage, int error)
{
    spawn_stage = stage;
    spawn_errno = error;
    command = 0;
    linger_until = 0;
    phase = LINGER;
}

static void start(void)
{
    int to_command[2] = {-1, -1}, from_stdout[2] = {-1, -1}, from_stderr[2] = {-1, -1}, report[2];

    parse_spec();
    oom_before = oom_kills();
    phase = RUNNING;
    if (timeout_ms)
        deadline = now_ms() + timeout_ms;
    if (wants_pty) {
        int slave;
        if ((stdout_fd = open_terminal(&slave)) < 0) {
            fail_to_start('p', errno);
            return;
        }
        stdin_fd = fcntl(stdout_fd, F_DUPFD_CLOEXEC, 3);
        to_command[0] = from_stdout[1] = from_stderr[1] = slave;
    } else {
        pipe_for(from_stdout);
        pipe_for(from_stderr);
        stdout_fd = from_stdout[0];
        stderr_fd = from_stderr[0];
        not_blocking(stderr_fd);
        if (wants_stdin) {
            pipe_for(to_command);
            stdin_fd = to_command[1];
        } else if ((to_command[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
            give_up("/dev/null");
    }
    not_blocking(stdout_fd);
    if (stdin_fd >= 0)
        not_blocking(stdin_fd);
    if (pipe2(report, O_CLOEXEC) < 0)
        give_up("pipe2");

    command = command_pid = fork();
    if (command == 0)
        become_command(to_command[0], from_stdout[1], from_stderr[1], report[1]);
    int fork_error = errno;
    close(report[1]);
    close(to_command[0]);
    if (!wants_pty) {
        close(from_stdout[1]);
        close(from_stderr[1]);
    }
    if (command_pid < 0) {
        command_pid = 0;
        close(report[0]);
        fail_to_start('f', fork_error);
        return;
    }
    spawn_fd = report[0];
}

/* The report pipe ends empty when execve succeeded, for it is close-on-exec. */
static void read_spawn_report(void)
{
    unsigned char report[2];
    ssize_t n = read(spawn_fd, report, sizeof report);
    close(spawn_fd);
    spawn_fd = -1;
    if (n == sizeof report) {
        spawn_stage = (char)report[0];
        spawn_errno = report[1];
    } else
        put_u32('B', (uint32_t)command_pid);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void reap(void)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid > 0 && pid == command) {
            command = 0;
            command_status = status;
        } else if (pid == 0)
            return;
        else if (pid < 0 && errno != EINTR) {
            everyone_is_gone = errno == ECHILD;
            return;
        }
    }
}

static void signal_everyone(int number)
{
    /* Everyone in this pid namespace but us. */
    kill(-1, number);
}

static void begin_kill(const char *why)
{
    if (phase != RUNNING || term_sent)
        return;
    reason = why;
    term_sent = true;
    kill_at = now_ms() + grace_ms;
    signal_everyone(SIGTERM);
    if (wants_pty)
        signal_everyone(SIGHUP); /* interactive shells ignore TERM */
    signal_everyone(SIGCONT);    /* a stopped process would never see either */
}

/* ---- stdin, signals and the rest of what the provider says ---- */

static void feed_stdin(void)
{
    while (ring_len && stdin_fd >= 0) {
        size_t piece = ring_len < sizeof ring - ring_at ? ring_len : sizeof ring - ring_at;
        ssize_t n = write(stdin_fd, ring + ring_at, piece);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0)
            close_fd(&stdin_fd); /* nobody reads it any more; the rest is dropped below */
        else {
            line_is_open = ring[(ring_at + (size_t)n - 1) % sizeof ring] != '\n';
            ring_at = (ring_at + (size_t)n) % sizeof ring;
            ring_len -= (size_t)n;
            stdin_used += (uint32_t)n;
        }
    }
    if (stdin_fd < 0) {
        stdin_used += (uint32_t)ring_len;
        ring_len = 0;
    } else if (ring_len == 0 && stdin_closing) {
        if (wants_pty) {
            /* The terminal's own end of input. In the middle of a line it only ends the line. */
            ssize_t ignored = write(stdin_fd, "\004\004", line_is_open ? 2 : 1);
            (void)ignored;
        }
        close_fd(&stdin_fd);
    }
}

static void take_stdin(const unsigned char *bytes, size_t n)
{
    if (n == 0)
        stdin_closing = true;
    if (n > sizeof ring - ring_len)
        give_up("stdin past its credit");
    for (size_t i = 0; i < n; i++)
        ring[(ring_at + ring_len + i) % sizeof ring] = bytes[i];
    ring_len += n;
    feed_stdin();
}

static void forward_signal(int number)
{
    pid_t group = command;
    if (wants_pty && stdout_fd >= 0 && ioctl(stdout_fd, TIOCGPGRP, &group) < 0)
        group = command;
    if (command > 0 && group > 1)
        kill(-group, number);
}

static void take_frame(unsigned char type, const unsigned char *payload, size_t n)
{
    if (type == 'S' && phase == WAITING) {
        if (n > SPEC_MAX - spec_len)
            give_up("command too long");
        unsigned char *longer = realloc(spec, spec_len + n + 1);
        if (!longer)
            give_up("out of memory");
        spec = longer;
        memcpy(spec + spec_len, payload, n);
        spec_len += n;
    } else if (type == 'X' && n == 0 && phase == WAITING)
        start();
    else if (phase == WAITING)
        give_up("a frame before its time");
    else if (type == 'C' && n == 4) {
        uint64_t sum = (uint64_t)credit + big_endian(payload, 4);
        credit = sum > UINT32_MAX ? UINT32_MAX : (uint32_t)sum;
    } else if (type == 'I')
        take_stdin(payload, n);
    else if (type == 'K' && n == 1 && payload[0] < NSIG)
        forward_signal(payload[0]);
    else if (type == 'W' && n == 4) {
        window.ws_row = (unsigned short)big_endian(payload, 2);
        window.ws_col = (unsigned short)big_endian(payload + 2, 2);
        if (wants_pty && stdout_fd >= 0)
            (void)ioctl(stdout_fd, TIOCSWINSZ, &window);
    } else if (type == 'T' && n == 1)
        begin_kill(payload[0] == 'o' ? "output_limit" : payload[0] == 't' ? "timed_out" : "canceled");
    else
        give_up("unknown frame");
}

static void read_frames(void)
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
                take_frame(in[0], in + HEADER, n);
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

/* ---- output ---- */

static void read_output(int *fd, unsigned char type)
{
    size_t room = credit < OUTPUT ? credit : OUTPUT;
    if (*fd < 0 || out_len || room == 0)
        return;
    ssize_t n = read(*fd, out + HEADER, room);
    if (n > 0) {
        put_header(type, (size_t)n);
        out_len += (size_t)n;
        credit -= (uint32_t)n;
        output_at = now_ms();
        flush_out();
    } else if (n < 0 && errno == EIO && wants_pty)
        /* Nobody has the terminal open. It stays: to close our side would hang up on a command that is just leaving. */
        deserted = true;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        close_fd(fd);
}

/* With nobody left to write, empty is the end. Seen without reading, for there may be no credit to read with. */
static void close_if_empty(int *fd)
{
    struct pollfd set = {.fd = *fd, .events = POLLIN};
    if (*fd >= 0 && poll(&set, 1, 0) >= 0 && !(set.revents & POLLIN))
        close_fd(fd);
}

static int unread(int fd)
{
    int n = 0;
    return fd >= 0 && ioctl(fd, FIONREAD, &n) == 0 ? n : 0;
}

/*
 * Whether to let small pieces of output gather: there is less than a whole frame to send, and the engine has not taken
 * our last one yet, or it left within this millisecond. Every frame costs each hop on the way the same, whatever its size.
 */
static bool better_wait(uint64_t now)
{
    return unread(stdout_fd) + unread(stderr_fd) < OUTPUT && (now == output_at || unread(1) > 0);
}

/* ---- the loop ---- */

static void step(uint64_t now)
{
    if (phase == RUNNING && deadline && now >= deadline)
        begin_kill("timed_out");
    if (phase == RUNNING && term_sent && now >= kill_at)
        signal_everyone(SIGKILL);
    if (phase == RUNNING && command == 0 && spawn_fd < 0) {
        phase = LINGER;
        linger_until = term_sent ? kill_at : now + linger_ms;
    }
    if (phase == LINGER && (everyone_is_gone || now >= linger_until)) {
        if (!everyone_is_gone)
            list_background();
        phase = KILLING;
    }
    if (phase == KILLING) {
        if (!everyone_is_gone) {
            signal_everyone(SIGKILL);
            reap();
        }
        if (everyone_is_gone)
            phase = DRAINING;
    }
    if (phase == DRAINING) {
        close_if_empty(&stdout_fd);
        close_if_empty(&stderr_fd);
    }
    if (phase == DRAINING && stdout_fd < 0 && stderr_fd < 0 && out_len == 0) {
        put_ending();
        phase = ENDED;
    }
}

static int time_to_wait(uint64_t now)
{
    uint64_t next = UINT64_MAX;
    if (phase == RUNNING && term_sent)
        next = kill_at > now ? kill_at : now + 20; /* KILL was sent; look again until it is done */
    else if (phase == RUNNING && deadline)
        next = deadline;
    else if (phase == LINGER)
        next = linger_until;
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
    hello();

    for (bool stderr_first = false;; stderr_first = !stderr_first) {
        struct pollfd set[7];
        struct signalfd_siginfo ignored;

        if (stdin_used && out_len == 0) {
            put_u32('c', stdin_used);
            stdin_used = 0;
        }
        flush_out();
        if (phase == ENDED && out_len == 0)
            return 0;
        bool has_room = out_len == 0 && credit > 0 && (stdout_fd >= 0 || stderr_fd >= 0);
        uint64_t now = now_ms();
        bool gather = has_room && better_wait(now);
        bool may_read = has_room && !gather;
        bool drained = phase == DRAINING && stdout_fd < 0 && stderr_fd < 0 && out_len == 0;
        int timeout = drained || (phase == DRAINING && may_read) ? 0 : time_to_wait(now);
        /* No event tells that a pipe has been emptied, or that a terminal was opened again. */
        if ((gather || deserted) && (timeout < 0 || timeout > LOOK_AGAIN_MS))
            timeout = LOOK_AGAIN_MS;
        watch(&set[0], 0, true, POLLIN);
        watch(&set[1], 1, out_len > 0, POLLOUT);
        watch(&set[2], child_fd, true, POLLIN);
        watch(&set[3], spawn_fd, spawn_fd >= 0, POLLIN);
        watch(&set[4], stdin_fd, ring_len > 0, POLLOUT);
        watch(&set[5], stdout_fd, may_read && !deserted, POLLIN);
        watch(&set[6], stderr_fd, may_read, POLLIN);
        if (poll(set, sizeof set / sizeof *set, timeout) < 0 && errno != EINTR)
            give_up("poll");

        deserted = false;
        if (set[3].revents)
            read_spawn_report();
        if (set[0].revents)
            read_frames();
        if (set[2].revents) {
            while (read(child_fd, &ignored, sizeof ignored) > 0)
                ;
            reap();
        }
        if (set[4].revents)
            feed_stdin();
        bool draining = phase == DRAINING && !gather;
        if (stderr_first && (set[6].revents || draining))
            read_output(&stderr_fd, 'E');
        if (set[5].revents || draining)
            read_output(&stdout_fd, 'O');
        if (!stderr_first && (set[6].revents || draining))
            read_output(&stderr_fd, 'E');
        step(now_ms());
    }
}
