/*
 * Attacks the seccomp filter from inside the sandbox. One line an attempt: its name, a tab, and "ok", the name of an
 * errno, or that of the signal which ended it. test_seccomp.py says what each has to be.
 *
 * Each attempt is made in a child of its own, so that a deadly one dies alone, and by number, so that no libc checks
 * first or falls back. Where it can be, the arguments are such that the kernel alone would not say EPERM.
 *
 *   probe               every attempt but these:
 *   probe host          reach the host's sockets host.stream, host.seqpacket and host.dgram in the working directory
 *   probe call N...     the calls N, with zero arguments
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* Calls younger than some headers. From 424 on a number is the same on every architecture. */
enum { IO_URING_SETUP = 425, IO_URING_ENTER, IO_URING_REGISTER, PIDFD_OPEN = 434, CLONE3, OPENAT2 = 437, PIDFD_GETFD };
enum { MEMFD_SECRET = 447, FCHMODAT2 = 452 };

enum { SETUID = 04755, SETGID = 02755 };

/* Bits that seccomp sees and the kernel does not: an int has 32, a umode_t 16. */
#define HIGH_BIT (1L << 32)
#define MODE_JUNK (HIGH_BIT | 1L << 16)

#define IN_CWD(call, path, ...) syscall(call, AT_FDCWD, path, __VA_ARGS__)

#define ATTEMPT(name, call)                        \
    do {                                           \
        pid_t child = fork();                      \
        if (child == 0)                            \
            _exit((long)(call) == -1 ? errno : 0); \
        report(name, child);                       \
    } while (0)

static const char *error_name(int error)
{
    switch (error) {
    case 0: return "ok";
    case EPERM: return "EPERM";
    case EINVAL: return "EINVAL";
    case ENOSYS: return "ENOSYS";
    case EOPNOTSUPP: return "EOPNOTSUPP";
    case EISCONN: return "EISCONN";
    default: return strerror(error);
    }
}

static void report(const char *name, pid_t child)
{
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("%s\t%s\n", name, WTERMSIG(status) == SIGSYS ? "SIGSYS" : strsignal(WTERMSIG(status)));
    else
        printf("%s\t%s\n", name, error_name(WEXITSTATUS(status)));
    fflush(stdout); /* or every later child would hold a copy of the line */
}

static void sockets(void)
{
    char name[32];
    int pair[2];

    for (int family = 0; family < 64; family++) {
        snprintf(name, sizeof name, "family %d", family);
        ATTEMPT(name, syscall(SYS_socket, family, SOCK_DGRAM, 0));
    }
    ATTEMPT("alg seqpacket", syscall(SYS_socket, AF_ALG, SOCK_SEQPACKET, 0));
    ATTEMPT("alg, high bit", syscall(SYS_socket, HIGH_BIT | AF_ALG, SOCK_SEQPACKET, 0));
    ATTEMPT("vsock stream", syscall(SYS_socket, AF_VSOCK, SOCK_STREAM, 0));
    ATTEMPT("packet raw", syscall(SYS_socket, AF_PACKET, SOCK_RAW, 0));
    ATTEMPT("unix, high bit", syscall(SYS_socket, HIGH_BIT | AF_UNIX, SOCK_STREAM, 0));

    ATTEMPT("tcp", syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 6));
    ATTEMPT("tcp6", syscall(SYS_socket, AF_INET6, SOCK_STREAM, 0));
    ATTEMPT("udp", syscall(SYS_socket, AF_INET, SOCK_DGRAM, 17));
    ATTEMPT("raw", syscall(SYS_socket, AF_INET, SOCK_RAW, 1));
    ATTEMPT("sctp", syscall(SYS_socket, AF_INET, SOCK_SEQPACKET, 132));
    ATTEMPT("dccp", syscall(SYS_socket, AF_INET6, 6, 33));
    ATTEMPT("mptcp", syscall(SYS_socket, AF_INET, SOCK_STREAM, 262));
    ATTEMPT("l2tp", syscall(SYS_socket, AF_INET, SOCK_DGRAM, 115));
    ATTEMPT("udplite", syscall(SYS_socket, AF_INET, SOCK_DGRAM, 136));
    for (int protocol = 0; protocol < 32; protocol++) {
        snprintf(name, sizeof name, "netlink %d", protocol);
        ATTEMPT(name, syscall(SYS_socket, AF_NETLINK, SOCK_RAW, protocol));
    }

    ATTEMPT("pair stream", syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    ATTEMPT("pair seqpacket", syscall(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET, 0, pair));
    ATTEMPT("pair dgram", syscall(SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0, pair));
    ATTEMPT("pair raw", syscall(SYS_socketpair, AF_UNIX, SOCK_RAW, 0, pair));
    ATTEMPT("pair tipc", syscall(SYS_socketpair, AF_TIPC, SOCK_STREAM, 0, pair));
}

/* Turns one end of a pair to a daemon of the host whose socket lies in the workspace. */
static long turn_to_host(int type, const char *path)
{
    struct sockaddr_un host = {.sun_family = AF_UNIX};
    int pair[2];
    strcpy(host.sun_path, path);
    if (socketpair(AF_UNIX, type, 0, pair) == -1 || connect(pair[0], (struct sockaddr *)&host, sizeof host) == -1)
        return -1;
    return write(pair[0], "escaped", 7);
}

static void host_sockets(void)
{
    ATTEMPT("stream", syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0));
    ATTEMPT("stream pair", turn_to_host(SOCK_STREAM, "host.stream"));
    ATTEMPT("seqpacket pair", turn_to_host(SOCK_SEQPACKET, "host.seqpacket"));
    ATTEMPT("dgram pair", turn_to_host(SOCK_DGRAM, "host.dgram"));
    ATTEMPT("raw pair", turn_to_host(SOCK_RAW, "host.dgram"));
}

static void kernel_surface(void)
{
    static const int namespaces[] = {CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                     CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET};
    char name[32], page[4096] = {0};

    ATTEMPT("io_uring_setup", syscall(IO_URING_SETUP, 1, page));
    ATTEMPT("io_uring_enter", syscall(IO_URING_ENTER, -1, 0, 0, 0, 0, 0));
    ATTEMPT("io_uring_register", syscall(IO_URING_REGISTER, -1, 0, 0, 0));
    ATTEMPT("userfaultfd", syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY, which takes no privilege */));
    ATTEMPT("memfd_secret", syscall(MEMFD_SECRET, 0));
    ATTEMPT("execveat", syscall(SYS_execveat, AT_FDCWD, "/nowhere", 0, 0, 0));
    ATTEMPT("clone3", syscall(CLONE3, page, 0));
    for (size_t i = 0; i < sizeof namespaces / sizeof *namespaces; i++) {
        snprintf(name, sizeof name, "clone %x", (unsigned)namespaces[i]);
        ATTEMPT(name, syscall(SYS_clone, (long)namespaces[i] | CLONE_THREAD, 0, 0, 0, 0)); /* alone an EINVAL */
        snprintf(name, sizeof name, "unshare %x", (unsigned)namespaces[i]);
        ATTEMPT(name, syscall(SYS_unshare, namespaces[i] | 1)); /* the 1 as well */
    }
    ATTEMPT("clone newuser", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
    ATTEMPT("clone newuser, high bit", syscall(SYS_clone, HIGH_BIT | CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
    ATTEMPT("setns", syscall(SYS_setns, open("/proc/self/ns/user", O_RDONLY), 0));
    ATTEMPT("bpf", syscall(SYS_bpf, -1, page, 0));
    ATTEMPT("perf_event_open", syscall(SYS_perf_event_open, 0, 0, -1, -1, 0));
    ATTEMPT("keyctl", syscall(SYS_keyctl, 0, -3, 0));
    ATTEMPT("add_key", syscall(SYS_add_key, "user", "probe", "x", 1, -3));
    ATTEMPT("splice", syscall(SYS_splice, -1, 0, -1, 0, 1, 0));
    ATTEMPT("vmsplice", syscall(SYS_vmsplice, -1, 0, 0, 0));
    ATTEMPT("mount", syscall(SYS_mount, 0, 0, 0, 0, 0));
    ATTEMPT("name_to_handle_at", syscall(SYS_name_to_handle_at, AT_FDCWD, "/", page, page, 0));
    ATTEMPT("shmget", syscall(SYS_shmget, 0, 4096, 0600));
    ATTEMPT("personality query", syscall(SYS_personality, 0xffffffff));
    ATTEMPT("personality linux32", syscall(SYS_personality, 8));
    ATTEMPT("personality no randomize", syscall(SYS_personality, 0x0040000));
    ATTEMPT("personality read implies exec", syscall(SYS_personality, 0x0400000));
    ATTEMPT("personality read implies exec, high bit", syscall(SYS_personality, HIGH_BIT | 0x0400000));
    ATTEMPT("personality mmap page zero", syscall(SYS_personality, 0x0100000));
}

static void other_processes(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    ATTEMPT("ptrace", syscall(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0));
    ATTEMPT("ptrace pid 1", syscall(SYS_ptrace, PTRACE_SEIZE, 1, 0, 0));
    ATTEMPT("process_vm_readv", syscall(SYS_process_vm_readv, getpid(), 0, 0, 0, 0, 0));
    ATTEMPT("process_vm_writev", syscall(SYS_process_vm_writev, getpid(), 0, 0, 0, 0, 0));
    ATTEMPT("kcmp", syscall(SYS_kcmp, getpid(), getpid(), 1 /* KCMP_VM */, 0, 0));
    ATTEMPT("pidfd_open", syscall(PIDFD_OPEN, getpid(), 0));
    ATTEMPT("pidfd_getfd", syscall(PIDFD_GETFD, syscall(PIDFD_OPEN, getpid(), 0), 1, 0));
    ATTEMPT("prlimit set", syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, 0));
    ATTEMPT("prlimit pid 1, read", syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, 0, &limit));
    ATTEMPT("prlimit pid 1, set", syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, &limit, 0));
}

/* Leaves behind whatever the filter lets it; the test then looks for set-id bits in the workspace. */
static void file_modes(void)
{
    int file = open("victim", O_CREAT | O_RDWR, 0644);
    unsigned long how[3] = {O_CREAT | O_RDWR, SETUID, 0}; /* struct open_how: flags, mode, resolve */

    ATTEMPT("fchmod setuid", syscall(SYS_fchmod, file, SETUID));
    ATTEMPT("fchmod setgid", syscall(SYS_fchmod, file, SETGID));
    ATTEMPT("fchmod setuid, junk", syscall(SYS_fchmod, file, MODE_JUNK | SETUID));
    ATTEMPT("fchmodat setuid", IN_CWD(SYS_fchmodat, "victim", SETUID));
    ATTEMPT("fchmodat setgid", IN_CWD(SYS_fchmodat, "victim", SETGID));
    ATTEMPT("fchmodat setuid, junk", IN_CWD(SYS_fchmodat, "victim", MODE_JUNK | SETUID));
    ATTEMPT("fchmodat2 setuid", IN_CWD(FCHMODAT2, "victim", SETUID, 0));
    ATTEMPT("openat setuid", IN_CWD(SYS_openat, "openat.suid", O_CREAT | O_WRONLY, SETUID));
    ATTEMPT("openat setgid", IN_CWD(SYS_openat, "openat.sgid", O_CREAT | O_WRONLY, SETGID));
    ATTEMPT("openat setuid, junk", IN_CWD(SYS_openat, "openat.junk", HIGH_BIT | O_CREAT, MODE_JUNK | SETUID));
    ATTEMPT("openat setuid tmpfile", IN_CWD(SYS_openat, ".", O_TMPFILE | O_RDWR, SETUID));
    ATTEMPT("openat2 setuid", IN_CWD(OPENAT2, "openat2.suid", how, sizeof how));
    ATTEMPT("mkdirat setgid", IN_CWD(SYS_mkdirat, "mkdirat.sgid", SETGID));
    ATTEMPT("mknodat setuid", IN_CWD(SYS_mknodat, "mknodat.suid", S_IFREG | SETUID, 0));
    ATTEMPT("mknodat setuid, no type", IN_CWD(SYS_mknodat, "mknodat.type", SETUID, 0));
    ATTEMPT("mknodat setuid, junk", IN_CWD(SYS_mknodat, "mknodat.junk", MODE_JUNK | S_IFREG | SETUID, 0));
    ATTEMPT("mknodat setgid fifo", IN_CWD(SYS_mknodat, "mknodat.sgid", S_IFIFO | SETGID, 0));
    ATTEMPT("mknodat block device", IN_CWD(SYS_mknodat, "mknodat.block", S_IFBLK | 0600, 0xfe00));
    ATTEMPT("mknodat char device", IN_CWD(SYS_mknodat, "mknodat.char", S_IFCHR | 0600, 0x0103));
    ATTEMPT("mknodat whiteout", IN_CWD(SYS_mknodat, "mknodat.white", S_IFCHR | 0600, 0)); /* 0:0 takes no capability */
    ATTEMPT("mknodat socket", IN_CWD(SYS_mknodat, "mknodat.socket", S_IFSOCK | 0600, 0));

    ATTEMPT("fchmod", syscall(SYS_fchmod, file, 0755));
    ATTEMPT("fchmodat sticky", IN_CWD(SYS_fchmodat, "victim", 01755));
    ATTEMPT("openat", IN_CWD(SYS_openat, "openat", O_CREAT | O_WRONLY, 0755));
    ATTEMPT("openat tmpfile", IN_CWD(SYS_openat, "/tmp", O_TMPFILE | O_RDWR, 0600));
    ATTEMPT("openat, garbage mode", IN_CWD(SYS_openat, "victim", O_RDWR, -1L));
    ATTEMPT("openat directory, garbage mode", IN_CWD(SYS_openat, ".", O_RDONLY | O_DIRECTORY, -1L));
    ATTEMPT("mkdirat", IN_CWD(SYS_mkdirat, "mkdirat", 0755));
    ATTEMPT("mknodat file", IN_CWD(SYS_mknodat, "mknodat.file", S_IFREG | 0644, 0));
    ATTEMPT("mknodat fifo", IN_CWD(SYS_mknodat, "mknodat.fifo", S_IFIFO | 0644, 0));
}

#ifdef __x86_64__
static long by_int80(void)
{
    long answer;
    __asm__ volatile("int $0x80" : "=a"(answer) : "a"(20L /* i386's getpid */) : "memory");
    if (answer >= 0)
        return answer;
    errno = (int)-answer; /* no libc is in between to do it */
    return -1;
}

/* The calls that arm64 never had, and the two other ways into an x86 kernel. */
static void only_x86_64(void)
{
    char page[4096];
    ATTEMPT("chmod setuid", syscall(SYS_chmod, "victim", SETUID));
    ATTEMPT("chmod setgid", syscall(SYS_chmod, "victim", SETGID));
    ATTEMPT("chmod setuid, junk", syscall(SYS_chmod, "victim", MODE_JUNK | SETUID));
    ATTEMPT("open setuid", syscall(SYS_open, "open.suid", O_CREAT | O_WRONLY, SETUID));
    ATTEMPT("open setgid", syscall(SYS_open, "open.sgid", O_CREAT | O_WRONLY, SETGID));
    ATTEMPT("open setuid, junk", syscall(SYS_open, "open.junk", HIGH_BIT | O_CREAT, MODE_JUNK | SETUID));
    ATTEMPT("open setuid tmpfile", syscall(SYS_open, ".", O_TMPFILE | O_RDWR, SETUID));
    ATTEMPT("creat setuid", syscall(SYS_creat, "creat.suid", SETUID));
    ATTEMPT("mkdir setgid", syscall(SYS_mkdir, "mkdir.sgid", SETGID));
    ATTEMPT("mknod setuid", syscall(SYS_mknod, "mknod.suid", S_IFREG | SETUID, 0));
    ATTEMPT("mknod whiteout", syscall(SYS_mknod, "mknod.white", S_IFCHR | 0600, 0));
    ATTEMPT("chmod", syscall(SYS_chmod, "victim", 0755));
    ATTEMPT("open", syscall(SYS_open, "open", O_CREAT | O_WRONLY, 0755));
    ATTEMPT("open, garbage mode", syscall(SYS_open, "victim", O_RDWR, -1L));
    ATTEMPT("creat", syscall(SYS_creat, "creat", 0644));
    ATTEMPT("mkdir", syscall(SYS_mkdir, "mkdir", 0755));
    ATTEMPT("mknod fifo", syscall(SYS_mknod, "mknod.fifo", S_IFIFO | 0644, 0));
    ATTEMPT("modify_ldt", syscall(SYS_modify_ldt, 0, page, sizeof page));
    ATTEMPT("x32", syscall(0x40000000L | SYS_getpid));
    ATTEMPT("int 0x80", by_int80());
}
#else
static void only_x86_64(void) {}
#endif

/* ioctl on a terminal of the caller's own, on which the kernel takes TIOCSTI and TIOCSETD from anybody. */
static long on_own_terminal(unsigned long command)
{
    int unlock = 0, value = 0; /* as a character a NUL, as a line discipline N_TTY */
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    if (master == -1 || ioctl(master, TIOCSPTLCK, &unlock) == -1)
        return -1;
    int terminal = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
    if (terminal == -1 || setsid() == -1 || ioctl(terminal, TIOCSCTTY, 0) == -1)
        return -1;
    return syscall(SYS_ioctl, terminal, command, &value);
}

/* The three are refused whatever the upper 32 bits, and nothing else: no 16-bit command, none of them one bit off. */
static long sweep_commands(void)
{
    static const unsigned forbidden[] = {TIOCSTI, TIOCLINUX, TIOCSETD};
    static const unsigned long upper[] = {0, 1UL << 32, 1UL << 63, 0xdeadbeefUL << 32, 0xffffffffUL << 32};
    int null = open("/dev/null", O_RDWR); /* knows no command, and says EPERM to none */

    for (size_t high = 0; high < sizeof upper / sizeof *upper; high++)
        for (unsigned i = 0; i < 0x10000 + 3 * 32; i++) {
            unsigned low = i < 0x10000 ? i : forbidden[(i - 0x10000) / 32] ^ 1U << i % 32;
            int expected = low == TIOCSTI || low == TIOCLINUX || low == TIOCSETD;
            int refused = syscall(SYS_ioctl, null, upper[high] | low, 0) == -1 && errno == EPERM;
            if (refused != expected) {
                fprintf(stderr, "ioctl %#lx: %s\n", upper[high] | low, refused ? "refused" : "allowed");
                errno = EDOM;
                return -1;
            }
        }
    return 0;
}

static void terminals(void)
{
    ATTEMPT("TIOCGETD", on_own_terminal(TIOCGETD));
    ATTEMPT("TIOCSTI", on_own_terminal(TIOCSTI));
    ATTEMPT("TIOCSTI, bit 32", on_own_terminal(1UL << 32 | TIOCSTI));
    ATTEMPT("TIOCSTI, bit 63", on_own_terminal(1UL << 63 | TIOCSTI));
    ATTEMPT("TIOCSTI, upper bits", on_own_terminal(0xffffffffUL << 32 | TIOCSTI));
    ATTEMPT("TIOCLINUX", on_own_terminal(TIOCLINUX));
    ATTEMPT("TIOCLINUX, bit 32", on_own_terminal(1UL << 32 | TIOCLINUX));
    ATTEMPT("TIOCSETD", on_own_terminal(TIOCSETD));
    ATTEMPT("TIOCSETD, bit 32", on_own_terminal(1UL << 32 | TIOCSETD));
    ATTEMPT("ioctl sweep", sweep_commands());
}

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "host") == 0) {
        host_sockets();
        return 0;
    }
    if (count > 1 && strcmp(words[1], "call") == 0) {
        for (int i = 2; i < count; i++)
            ATTEMPT(words[i], syscall(atol(words[i]), 0, 0, 0, 0, 0, 0));
        return 0;
    }
    umask(0);
    sockets();
    kernel_surface();
    other_processes();
    file_modes();
    only_x86_64();
    terminals();
    return 0;
}
