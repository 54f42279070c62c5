/* The command: read from its records, started, forgotten. */
#include "init.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

struct run run;

void take_spec(const unsigned char *piece, size_t n)
{
    if (n > SPEC_MAX - run.spec_len)
        give_up("command too long");
    unsigned char *longer = realloc(run.spec, run.spec_len + n + 1);
    if (!longer)
        give_up("out of memory");
    run.spec = longer;
    memcpy(run.spec + run.spec_len, piece, n);
    run.spec_len += n;
}

static void parse_spec(void)
{
    size_t args = 0, vars = 0;
    /* A record is at least five bytes, so this many pointers are enough for either list. */
    run.argv = calloc(run.spec_len / HEADER + 1, sizeof *run.argv);
    run.envp = calloc(run.spec_len / HEADER + 1, sizeof *run.envp);
    /* Every value is copied with a NUL behind it; together they are no longer than the spec with one byte a record. */
    char *strings = run.strings = malloc(run.spec_len + 1);
    if (!run.argv || !run.envp || !strings)
        give_up("out of memory");

    for (size_t at = 0; at < run.spec_len;) {
        if (run.spec_len - at < HEADER)
            give_up("command: cut record");
        unsigned char tag = run.spec[at];
        size_t n = big_endian(run.spec + at + 1, 4);
        at += HEADER;
        if (n > run.spec_len - at)
            give_up("command: record past its end");
        const unsigned char *value = run.spec + at;
        at += n;
        if (tag == 'a' || tag == 'e' || tag == 'd') {
            if (memchr(value, 0, n))
                give_up("command: NUL byte");
            memcpy(strings, value, n);
            strings[n] = 0;
            if (tag == 'a')
                run.argv[args++] = strings;
            else if (tag == 'e')
                run.envp[vars++] = strings;
            else
                run.cwd = strings;
            strings += n + 1;
        } else if (tag == 't' && n == 8)
            run.timeout_ms = big_endian(value, 8);
        else if (tag == 'k' && n == 8) {
            run.wants_lease = true;
            run.lease_ms = big_endian(value, 8);
        } else if (tag == 'r' && n == 0)
            run.wants_reuse = true;
        else if (tag == 'w' && n == 0)
            run.wants_watch = true;
        else if (tag == 'g' && n == 4)
            run.grace_ms = (uint32_t)big_endian(value, 4);
        else if (tag == 'l' && n == 4)
            run.linger_ms = (uint32_t)big_endian(value, 4);
        else if (tag == 'c' && n == 4)
            run.credit = (uint32_t)big_endian(value, 4);
        else if (tag == 'n' && n > 0 && n % 2 == 0) {
            run.processors = value;
            run.processors_len = n;
        } else if (tag == 's' && n == SEAL)
            run.seal = value;
        else if (tag == 'i' && n == 0)
            run.wants_stdin = true;
        else if (tag == 'p' && n == 4) {
            run.wants_pty = true;
            run.window.ws_row = (unsigned short)big_endian(value, 2);
            run.window.ws_col = (unsigned short)big_endian(value + 2, 2);
        } else
            give_up("command: unknown record");
    }
    if (args == 0)
        give_up("command: no program");
    if (run.wants_lease && run.wants_reuse)
        give_up("command: both kept and scrubbed");
}

/* Like execvpe, but with the command's own PATH and without the detour through a shell for scripts without `#!`. */
static int execute(void)
{
    const char *path = "/usr/local/bin:/usr/bin:/bin", *program = run.argv[0];
    int found = ENOENT;
    if (program[0] == 0)
        return ENOENT;
    if (strchr(program, '/')) {
        execve(program, run.argv, run.envp);
        return errno;
    }
    for (char **variable = run.envp; *variable; variable++)
        if (strncmp(*variable, "PATH=", 5) == 0)
            path = *variable + 5;
    for (;;) {
        static char candidate[8192];
        size_t n = strcspn(path, ":");
        int length = snprintf(candidate, sizeof candidate, "%.*s%s%s", (int)n, path, n ? "/" : "./", program);
        if (length > 0 && (size_t)length < sizeof candidate) {
            execve(candidate, run.argv, run.envp);
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
    if (run.wants_pty && ioctl(0, TIOCSCTTY, 0) < 0)
        refuse_to_start(report, 'p', errno);
    /* When memory runs out the kernel shall take the command, not us. /proc/self is ours only while dumpable. */
    prctl(PR_SET_DUMPABLE, 1);
    int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0 && write(score, "1000", 4) < 0)
        score = -1; /* a kernel that refuses this leaves the command as likely a victim as we are */
    keep_to_processors();
    reset_signals();
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (chdir(run.cwd) < 0)
        refuse_to_start(report, 'd', errno);
    if (run.wants_watch && !watch_writes(report))
        refuse_to_start(report, 'f', errno);
    refuse_to_start(report, 'x', execute());
}

static void pipe_for(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) < 0)
        give_up("pipe2");
    (void)fcntl(ends[0], F_SETPIPE_SZ, PIPE_SIZE); /* past the user's soft limit the kernel says no; fine */
}

/* By descriptor, or in gVisor, which has no such call, by its number in the devpts that nobody else can write to. */
static int open_slave(int master)
{
    const int flags = O_RDWR | O_NOCTTY | O_CLOEXEC;
    char path[32];
    unsigned number;
    int slave = ioctl(master, TIOCGPTPEER, flags);
    if (slave >= 0 || errno != ENOTTY || ioctl(master, TIOCGPTN, &number) < 0)
        return slave;
    snprintf(path, sizeof path, "/dev/pts/%u", number);
    return open(path, flags);
}

static int open_terminal(int *slave)
{
    int unlock = 0, master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0)
        return -1;
    /* By ioctl, not by name: /dev/pts of an odd image cannot mislead it. */
    if (ioctl(master, TIOCSPTLCK, &unlock) < 0 || (*slave = open_slave(master)) < 0) {
        int error = errno;
        close(master);
        errno = error;
        return -1;
    }
    (void)ioctl(master, TIOCSWINSZ, &run.window);
    return master;
}

static void fail_to_start(char stage, int error)
{
    run.spawn_stage = stage;
    run.spawn_errno = error;
    run.command = 0;
    run.linger_until = 0;
    phase = LINGER;
}

void start(void)
{
    int to_command[2] = {-1, -1}, from_stdout[2] = {-1, -1}, from_stderr[2] = {-1, -1}, report[2];

    parse_spec();
    if (run.wants_reuse && served == 0)
        remember();
    run.oom_before = oom_kills();
    phase = RUNNING;
    if (run.timeout_ms)
        run.deadline = after(now_ms(), run.timeout_ms);
    if (run.wants_pty) {
        int slave;
        if ((run.output.fd = open_terminal(&slave)) < 0) {
            fail_to_start('p', errno);
            return;
        }
        run.stdin_fd = fcntl(run.output.fd, F_DUPFD_CLOEXEC, 3);
        to_command[0] = from_stdout[1] = from_stderr[1] = slave;
    } else {
        pipe_for(from_stdout);
        pipe_for(from_stderr);
        run.output.fd = from_stdout[0];
        run.errors.fd = from_stderr[0];
        not_blocking(run.errors.fd);
        if (run.wants_stdin) {
            pipe_for(to_command);
            run.stdin_fd = to_command[1];
        } else if ((to_command[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
            give_up("/dev/null");
    }
    not_blocking(run.output.fd);
    if (run.stdin_fd >= 0)
        not_blocking(run.stdin_fd);
    if (run.wants_watch && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, report) < 0)
        run.wants_watch = false; /* it runs all the same */
    if (!run.wants_watch && pipe2(report, O_CLOEXEC) < 0)
        give_up("pipe2");

    run.command = run.command_pid = fork();
    if (run.command == 0)
        become_command(to_command[0], from_stdout[1], from_stderr[1], report[1]);
    int fork_error = errno;
    close(report[1]);
    close(to_command[0]);
    if (!run.wants_pty) {
        close(from_stdout[1]);
        close(from_stderr[1]);
    }
    if (run.command_pid < 0) {
        run.command_pid = 0;
        close(report[0]);
        fail_to_start('f', fork_error);
        return;
    }
    run.spawn_fd = report[0];
}

/* The report ends empty when execve succeeded, for it is close-on-exec. */
void read_spawn_report(void)
{
    unsigned char report[2];
    ssize_t n = run.wants_watch ? receive_report(report, sizeof report) : read(run.spawn_fd, report, sizeof report);
    if (n == 1)
        return; /* the listener; the report itself is still to come */
    close_fd(&run.spawn_fd);
    if (n == sizeof report) {
        run.spawn_stage = (char)report[0];
        run.spawn_errno = report[1];
    } else {
        static unsigned char begun[PAYLOAD / 2];
        for (int i = 0; i < 4; i++)
            begun[i] = (unsigned char)((uint32_t)run.command_pid >> (24 - 8 * i));
        put('B', begun, 4 + processors_of_command(begun + 4, sizeof begun - 4));
    }
}

/* The state before any command. Arguments and environment may hold secrets: they are overwritten, not only freed. */
void forget(void)
{
    if (run.spec) {
        explicit_bzero(run.spec, run.spec_len);
        free(run.spec);
    }
    if (run.strings) {
        explicit_bzero(run.strings, run.spec_len + 1);
        free(run.strings);
        free(run.argv);
        free(run.envp);
        close_fd(&run.stdin_fd);
        close_fd(&run.spawn_fd);
        close_fd(&run.output.fd);
        close_fd(&run.errors.fd);
        close_fd(&run.listener_fd);
    }
    memset(&run, 0, sizeof run);
    memset(out, 0, sizeof out);
    run.stdin_fd = run.spawn_fd = run.output.fd = run.errors.fd = run.listener_fd = -1;
    run.cwd = "/";
    run.reason = "exited";
    run.grace_ms = 500;
    run.linger_ms = 50;
    count_network(&run.network_before); /* nobody lives who could change it, and nobody waits for us: it takes 70 us */
}
