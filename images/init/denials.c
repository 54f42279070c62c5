/*
 * Denials: what the sandbox refused to a command, counted. It is evidence for whoever asks why the command failed, from
 * the kernel and from us, where words in its output could be anybody's.
 *
 * The network: the kernel counts what has no route, and what finds nobody listening.
 *
 * Writes: nobody counts what a read-only file system refuses. So a command that is watched gets a seccomp filter, and
 * with it all its descendants: each call that means to write waits until we have looked where it leads, and then goes
 * on (SECCOMP_USER_NOTIF_FLAG_CONTINUE), always. What we saw may have changed before the kernel looks for itself. That
 * is of no concern: nothing is allowed or refused here, a command can only falsify its own count. Nor are the filters of
 * the sandbox weaker for it: what they refuse is refused without our being asked.
 *
 * Whatever is read here was written by the command: paths, links, numbers of descriptors. We look names up, with no more
 * rights than it has itself, and open nothing but its memory.
 */
#include "init.h"
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/* ---- the network ---- */

/* For IPv4 the kernel writes for each protocol a line of names, and below it a line of numbers. */
static bool add_in_columns(const char *text, const char *protocol, const char *name, uint64_t *sum)
{
    const char *names = strstr(text, protocol), *end = names ? strchr(names, '\n') : NULL, *numbers = end;
    size_t n = strlen(name);
    while (numbers && (names = strchr(names, ' ')) && names < end && (numbers = strchr(numbers, ' '))) {
        names++;
        numbers++;
        if (strncmp(names, name, n) == 0 && (names[n] == ' ' || names[n] == '\n')) {
            *sum += strtoull(numbers, NULL, 10);
            return true;
        }
    }
    return false;
}

/* For IPv6, a line for each. */
static void add_in_lines(const char *text, const char *name, uint64_t *sum)
{
    const char *line = strstr(text, name);
    if (line)
        *sum += strtoull(line + strlen(name), NULL, 10);
}

void count_network(struct network *counted)
{
    static char text[16384];
    memset(counted, 0, sizeof *counted);
    slurp("/proc/net/snmp", text, sizeof text);
    counted->is_known = add_in_columns(text, "Ip: ", "OutNoRoutes", &counted->no_route) &&
                        add_in_columns(text, "Udp: ", "NoPorts", &counted->no_port);
    slurp("/proc/net/snmp6", text, sizeof text); /* not there without IPv6 */
    add_in_lines(text, "Ip6OutNoRoutes ", &counted->no_route);
    add_in_lines(text, "Udp6NoPorts ", &counted->no_port);
}

/* ---- writes: the filter ---- */

enum { WRITING = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC };

/*
 * Calls that take a path and mean to write, with a letter for each argument that matters: `d` and `p` a directory's
 * descriptor and a path, `l` a path of which a link at the end is not followed, `n` one that may be missing, `o` flags of
 * open, `f` flags of the others, `D` and `P` where something goes. Not here are calls that take a descriptor alone: one
 * that can be written to is on no read-only file system, and to change a file that is open for reading is rare, while
 * every copy does it to the new one. openat2, fchmodat2 and io_uring are refused in every tier.
 */
static const struct watched {
    int number;
    enum { OPEN, CREATE, CREATE_DIR, LINK, REMOVE, RENAME, TRUNCATE, CHANGE } deed;
    const char *arguments;
} watched[] = {
    {SYS_openat, OPEN, "dpo"},
    {SYS_mkdirat, CREATE_DIR, "dp"},
    {SYS_mknodat, CREATE, "dp"},
    {SYS_symlinkat, CREATE, "-dp"},
    {SYS_linkat, LINK, "dpDP"},
    {SYS_unlinkat, REMOVE, "dp"},
    {SYS_renameat, RENAME, "dpDP"},
    {SYS_renameat2, RENAME, "dpDP"},
    {SYS_truncate, TRUNCATE, "p"},
    {SYS_fchmodat, CHANGE, "dp"},
    {SYS_fchownat, CHANGE, "dp--f"},
    {SYS_utimensat, CHANGE, "dn-f"},
    {SYS_setxattr, CHANGE, "p"},
    {SYS_lsetxattr, CHANGE, "l"},
    {SYS_removexattr, CHANGE, "p"},
    {SYS_lremovexattr, CHANGE, "l"},
#ifdef SYS_open /* newer processors have only the above */
    {SYS_open, OPEN, "po"},
    {SYS_creat, OPEN, "p"},
    {SYS_mkdir, CREATE_DIR, "p"},
    {SYS_mknod, CREATE, "p"},
    {SYS_symlink, CREATE, "-p"},
    {SYS_link, LINK, "pP"},
    {SYS_unlink, REMOVE, "p"},
    {SYS_rmdir, REMOVE, "p"},
    {SYS_rename, RENAME, "pP"},
    {SYS_chmod, CHANGE, "p"},
    {SYS_chown, CHANGE, "p"},
    {SYS_lchown, CHANGE, "l"},
    {SYS_utime, CHANGE, "p"},
    {SYS_utimes, CHANGE, "p"},
    {SYS_futimesat, CHANGE, "dn"},
#endif
};
enum { WATCHED = sizeof watched / sizeof *watched };

#ifdef __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
#else
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5) /* headers before Linux 5.19 */
#endif

static size_t argument(const struct watched *call, char letter)
{
    return strcspn(call->arguments, (char[]){letter, 0});
}

static bool has(const struct watched *call, char letter)
{
    return strchr(call->arguments, letter);
}

/*
 * In the command, before its execve: from here on it is watched, and so is everyone it starts. Gives the descriptor for
 * whoever watches, or -1 where that cannot be had; then nothing has changed.
 */
static int be_watched(void)
{
    enum { NOTIFY = SECCOMP_RET_USER_NOTIF, ALLOW = SECCOMP_RET_ALLOW };
    static struct sock_filter code[5 * WATCHED + 4];
    struct sock_fprog program = {.filter = code};
    struct seccomp_notif_sizes sizes;
#define DO(...) (code[program.len++] = (struct sock_filter)__VA_ARGS__)
#define LOAD(part) DO(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(part)))
#define SKIP_UNLESS(test, value, steps) DO(BPF_JUMP(BPF_JMP | (test) | BPF_K, (uint32_t)(value), 0, steps))
#define ANSWER(what) DO(BPF_STMT(BPF_RET | BPF_K, (uint32_t)(what)))

    /* Of another size they are another kernel's, and we could not answer: the command would wait for ever. */
    if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) < 0 ||
        sizes.seccomp_notif != sizeof(struct seccomp_notif) || sizes.seccomp_notif_resp != sizeof(struct seccomp_notif_resp))
        return -1;
    LOAD(offsetof(struct seccomp_data, arch));
    DO(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
    ANSWER(ALLOW);
    LOAD(offsetof(struct seccomp_data, nr));
    for (const struct watched *call = watched; call < watched + WATCHED; call++) {
        bool is_open = has(call, 'o'), may_miss = has(call, 'n');
        SKIP_UNLESS(BPF_JEQ, call->number, is_open || may_miss ? 4 : 1);
        if (is_open || may_miss) {
            /* The lower half, on processors that store it first, as both of ours do. */
            LOAD(offsetof(struct seccomp_data, args) + 8 * argument(call, is_open ? 'o' : 'n'));
            SKIP_UNLESS(BPF_JSET, is_open ? WRITING : -1, 1);
        }
        ANSWER(NOTIFY);
        if (is_open || may_miss)
            ANSWER(ALLOW);
    }
    ANSWER(ALLOW);
    /*
     * The second flag (Linux 5.19) keeps signals from breaking a call off once we have it: a program would see EINTR from
     * calls that never give it, and Go, which interrupts itself all the time, would make no progress. On an older kernel
     * the command is not watched.
     */
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                        SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &program);
}

/* The listener goes to pid 1 as a message of one byte, before the report on the start, which has none or two. */
union rights {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
};

bool watch_writes(int report)
{
    union rights rights = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
    struct iovec byte = {.iov_base = "w", .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &byte, .msg_iovlen = 1, .msg_control = rights.room, .msg_controllen = sizeof rights.room};
    int listener = be_watched();
    if (listener < 0)
        return true;
    memcpy(CMSG_DATA(&rights.header), &listener, sizeof listener);
    return sendmsg(report, &message, 0) == 1;
}

ssize_t receive_report(unsigned char *report, size_t size)
{
    union rights rights = {0};
    struct iovec bytes = {.iov_base = report, .iov_len = size};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = rights.room, .msg_controllen = sizeof rights.room};
    ssize_t n = recvmsg(run.spawn_fd, &message, MSG_CMSG_CLOEXEC);
    if (n == 1) {
        if (message.msg_controllen < CMSG_LEN(sizeof(int)) || rights.header.cmsg_type != SCM_RIGHTS)
            give_up("no descriptor for the listener");
        memcpy(&run.listener_fd, CMSG_DATA(&rights.header), sizeof run.listener_fd);
        run.is_watched = true;
    }
    return n;
}

/* ---- writes: one call ---- */

enum {
    PREFIX = sizeof "/proc/4294967296/fd/-2147483648/",
    TEXT = PREFIX + PATH_MAX,
    LINKS = 8, /* that we follow by hand; the kernel would 40, each as expensive as the command likes */
};

/*
 * A path that the caller named, as one that leads us to the same place, in `text`; NULL if there is none. (We would fail
 * at one that is not absolute and within some 20 bytes of the longest.)
 */
static char *path_in(char text[TEXT], const struct seccomp_notif *notice, const struct watched *call, char dir, char name)
{
    static const char self[] = "/proc/self/";
    uint64_t address = notice->data.args[argument(call, name)];
    int base = has(call, dir) ? (int)notice->data.args[argument(call, dir)] : AT_FDCWD, pid = (int)notice->pid, length;
    char prefix[PREFIX], *path = text + PREFIX;

    snprintf(prefix, sizeof prefix, "/proc/%d/mem", pid);
    int memory = open(prefix, O_RDONLY | O_CLOEXEC);
    if (memory < 0) {
        /* A program can close its memory to us, and the host can (Yama, SELinux): then we do not know. */
        run.is_blind |= errno == EACCES || errno == EPERM;
        return NULL;
    }
    ssize_t n = pread(memory, path, PATH_MAX, (off_t)address);
    close(memory);
    if (n <= 0 || !memchr(path, 0, (size_t)n) || !*path)
        return NULL;
    if (strncmp(path, self, strlen(self)) == 0) {
        path += strlen(self);
        length = snprintf(prefix, sizeof prefix, "/proc/%d/", pid);
    } else if (*path == '/')
        return path;
    else if (base == AT_FDCWD)
        length = snprintf(prefix, sizeof prefix, "/proc/%d/cwd/", pid);
    else
        length = snprintf(prefix, sizeof prefix, "/proc/%d/fd/%d/", pid, base);
    return memcpy(path - length, prefix, (size_t)length);
}

/* Where its last name is an entry; NULL if that is no name. */
static const char *parent_of(const char *path)
{
    static char parent[TEXT];
    size_t n = strlen(path);
    while (n && path[n - 1] == '/')
        n--;
    size_t end = n;
    while (n && path[n - 1] != '/')
        n--;
    if (end == n || (path[n] == '.' && (end - n == 1 || (end - n == 2 && path[n + 1] == '.'))))
        return NULL;
    memcpy(parent, path, n);
    parent[n] = 0; /* with its slash: what is no directory is no parent */
    return parent;
}

static bool is_read_only(const char *path)
{
    struct statfs found;
    return path && statfs(path, &found) == 0 && found.f_flags & ST_RDONLY;
}

static bool is_there(const char *path)
{
    struct stat found;
    return lstat(path, &found) == 0;
}

static bool has_slash_at_end(const char *path)
{
    return *path && path[strlen(path) - 1] == '/';
}

/*
 * What follows knows in which order the kernel finds fault. To make something where the file system is read-only is EROFS
 * even for those who may not write there anyway; unless it exists, or is to be no directory and has a slash at its end.
 */
static bool refuses_entry(char *path, bool is_dir)
{
    if (!is_read_only(parent_of(path)) || (has_slash_at_end(path) && !is_dir))
        return false;
    for (size_t n = strlen(path); n && path[n - 1] == '/'; n--)
        path[n - 1] = 0;
    return !is_there(path) && errno == ENOENT;
}

static bool refuses_open(char text[TEXT], char *path, int flags)
{
    static char target[PATH_MAX];
    struct statfs place;
    struct stat file;
    if (flags & O_PATH || (flags & O_CREAT && has_slash_at_end(path)))
        return false;
    if (flags & O_CREAT && flags & O_EXCL)
        return refuses_entry(path, false);
    for (int links = 0; statfs(path, &place) < 0; links++) {
        ssize_t n;
        if (errno != ENOENT || !(flags & O_CREAT) || links == LINKS)
            return false;
        /* A link that leads nowhere is a file that will be made at its end. */
        if ((n = readlink(path, target, sizeof target - 1)) < 0)
            return errno == ENOENT && is_read_only(parent_of(path));
        if (flags & O_NOFOLLOW)
            return false;
        target[n] = 0;
        const char *parent = *target == '/' ? "" : parent_of(path);
        if (!parent || strlen(parent) + (size_t)n >= TEXT)
            return false;
        path = text;
        sprintf(path, "%s%s", parent, target);
    }
    if (!(place.f_flags & ST_RDONLY) || fstatat(AT_FDCWD, path, &file, flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0) < 0)
        return false;
    if ((flags & O_TMPFILE) == O_TMPFILE)
        return S_ISDIR(file.st_mode);
    /* Devices and pipes can be written to wherever they are. */
    return S_ISREG(file.st_mode) && (flags & O_TRUNC || (flags & O_ACCMODE && access(path, W_OK) < 0 && errno == EROFS));
}

/* Between two mounts nothing is renamed: that is EXDEV, and mv then copies. Two of one file system look like one to us. */
static bool refuses_rename(const char *from, const char *to)
{
    struct stat source, target;
    const char *parent;
    return is_read_only(parent_of(from)) && is_there(from) && stat(parent_of(from), &source) == 0 &&
           is_read_only(parent = parent_of(to)) && stat(parent, &target) == 0 && source.st_dev == target.st_dev;
}

static bool refuses_change(const char *path, bool follows)
{
    struct stat found;
    if (!follows && lstat(path, &found) == 0 && S_ISLNK(found.st_mode))
        path = parent_of(path);
    return is_read_only(path);
}

/* Whether a call will be refused because it is about a read-only file system. */
static bool is_denied(const struct seccomp_notif *notice)
{
    static char text[TEXT], other[TEXT];
    const struct watched *call = watched;
    while (call < watched + WATCHED && call->number != notice->data.nr)
        call++;
    if (call == watched + WATCHED)
        return false;
    char name = call->arguments[strcspn(call->arguments, "pln")];
    char *path = path_in(text, notice, call, 'd', name), *to = has(call, 'P') ? path_in(other, notice, call, 'D', 'P') : path;
    int open_flags = has(call, 'o') ? (int)notice->data.args[argument(call, 'o')] : O_CREAT | O_WRONLY | O_TRUNC;
    int flags = has(call, 'f') ? (int)notice->data.args[argument(call, 'f')] : name == 'l' ? AT_SYMLINK_NOFOLLOW : 0;
    if (!path || !to)
        return false;
    switch (call->deed) {
    case OPEN:
        return refuses_open(text, path, open_flags);
    case CREATE:
    case CREATE_DIR:
        return refuses_entry(path, call->deed == CREATE_DIR);
    case REMOVE:
        return is_read_only(parent_of(path)) && is_there(path);
    case LINK:
        return is_there(path) && refuses_entry(to, false);
    case RENAME:
        return refuses_rename(path, to);
    case TRUNCATE:
        return refuses_open(text, path, O_WRONLY);
    case CHANGE:
        return refuses_change(path, !(flags & AT_SYMLINK_NOFOLLOW));
    }
    return false;
}

/*
 * Answers those who wait, for a millisecond at most and one call more: the deadline and the output wait as well.
 * To receive does not block after poll has seen somebody: one who died since then is ENOENT.
 */
void answer_writers(short events)
{
    struct pollfd set = {.fd = run.listener_fd, .events = POLLIN};
    for (uint64_t began = now_ms(); events & POLLIN; events = set.revents) {
        struct seccomp_notif notice;
        memset(&notice, 0, sizeof notice); /* the kernel insists */
        if (ioctl(run.listener_fd, SECCOMP_IOCTL_NOTIF_RECV, &notice) == 0) {
            bool denied = is_denied(&notice);
            struct seccomp_notif_resp answer = {.id = notice.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
            /* Whoever can be answered has waited all the time, so that what we read of that pid was his. */
            if (ioctl(run.listener_fd, SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0)
                run.denied_writes += denied;
        }
        if (now_ms() != began || poll(&set, 1, 0) < 0)
            return;
    }
    /* Nobody is watched any more. As long as somebody is, to close it would break every write of his. */
    if (events & POLLHUP)
        close_fd(&run.listener_fd);
}

/* ---- what is told ---- */

void say_denials(void)
{
    struct network now;
    count_network(&now);
    if (now.is_known && run.network_before.is_known)
        say("denied_network=%" PRIu64 "\nrefused_datagrams=%" PRIu64 "\n", now.no_route - run.network_before.no_route,
            now.no_port - run.network_before.no_port);
    /* None, where we could not see all, is not what we know. */
    if (run.is_watched && (run.denied_writes || !run.is_blind))
        say("denied_writes=%" PRIu64 "\n", run.denied_writes);
}
