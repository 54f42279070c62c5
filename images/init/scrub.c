/* Scrubbing: a container that served one command is made what it was before, or is found not to be. */
#include "init.h"
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { REMOVED_MAX = 100000, SCRUB_MS = 250 };

/* The first thing counts: the rest is often its consequence. */
void leave_unclean(struct scrubbing *s, const char *format, ...)
{
    va_list args;
    if (s->unclean)
        return;
    s->unclean = true;
    va_start(args, format);
    vsnprintf(s->left, sizeof s->left, format, args);
    va_end(args);
}

/* Whether one step more may be taken. A command decides how much there is to do; it shall not decide for how long. */
bool spend(struct scrubbing *s)
{
    if (s->until && (s->removed >= REMOVED_MAX || (s->steps++ % 64 == 0 && now_ms() >= s->until))) {
        leave_unclean(s, "too much to remove");
        s->until = 0;
    }
    return s->until != 0;
}

/* ---- pid 1 itself ---- */

/* What a process of the same uid can change of another one, and what children inherit from it. */
struct self {
    int nice, io_priority, timer_slack;
    cpu_set_t cpus;
    unsigned char scheduling[128];
    char oom_score_adj[16], coredump_filter[16], autogroup[64], limits[2048];
};

static struct self before;

static const struct {
    const char *name, *path;
    size_t at, size;
} facets[] = {
#define FACET(part, path) {#part, path, offsetof(struct self, part), sizeof(((struct self *)0)->part)}
    FACET(nice, NULL),
    FACET(io_priority, NULL),
    FACET(timer_slack, NULL),
    FACET(cpus, NULL),
    FACET(scheduling, NULL),
    /* Not dumpable, our files in /proc are root's. But a command may be root, if one without capabilities. */
    FACET(oom_score_adj, "/proc/self/oom_score_adj"),
    FACET(coredump_filter, "/proc/self/coredump_filter"),
    FACET(autogroup, "/proc/self/autogroup"),
    FACET(limits, "/proc/self/limits"),
};

static void look_at(struct self *self)
{
    memset(self, 0, sizeof *self);
    self->nice = getpriority(PRIO_PROCESS, 0);
    self->io_priority = (int)syscall(SYS_ioprio_get, 1, 0); /* IOPRIO_WHO_PROCESS; every tier allows it */
    self->timer_slack = prctl(PR_GET_TIMERSLACK);
    sched_getaffinity(0, sizeof self->cpus, &self->cpus);
    /* Policy, flags, clamps of utilization, slice: whatever this kernel has. */
    syscall(SYS_sched_getattr, 0, self->scheduling, sizeof self->scheduling, 0);
    for (size_t i = 0; i < sizeof facets / sizeof *facets; i++)
        if (facets[i].path)
            slurp(facets[i].path, (char *)self + facets[i].at, facets[i].size);
}

static void compare_self(struct scrubbing *s)
{
    static struct self now;
    look_at(&now);
    for (size_t i = 0; i < sizeof facets / sizeof *facets; i++)
        if (memcmp((char *)&now + facets[i].at, (char *)&before + facets[i].at, facets[i].size) != 0)
            leave_unclean(s, "pid 1: %s", facets[i].name);
}

/*
 * All signals are blocked here, so those that a command sends us wait for ever, and each counts against what its uid
 * may have waiting: the next command could queue none.
 */
static void drop_signals(struct scrubbing *s)
{
    static const struct timespec at_once;
    sigset_t all;
    sigfillset(&all);
    while (spend(s) && (sigtimedwait(&all, NULL, &at_once) > 0 || errno == EINTR))
        ;
}

/* ---- System V IPC ---- */

static int remove_shm(int id) { return shmctl(id, IPC_RMID, NULL); }
static int remove_msg(int id) { return msgctl(id, IPC_RMID, NULL); }
static int remove_sem(int id) { return semctl(id, 0, IPC_RMID); }

/*
 * Removes what a list of /proc/sysvipc names, and tells how many are left. Where the filter refuses these calls it
 * refuses them to the command too, and the lists are empty.
 */
static size_t remove_ipc(struct scrubbing *s, const char *path, int remove(int id))
{
    static char list[16384];
    for (;;) {
        size_t left = 0, removed = s->removed;
        int id;
        if (!slurp(path, list, sizeof list))
            return remove(-1) < 0 && errno == EINVAL; /* the calls are there, and nobody tells what they made */
        /* Below its heading a line for each, the key first and the id second. The last may be cut. */
        for (char *line = list; (line = strchr(line, '\n')) && strchr(++line, '\n');)
            if (sscanf(line, "%*d %d", &id) == 1 && spend(s) && remove(id) == 0)
                s->removed++;
            else
                left++;
        if (s->removed == removed)
            return left;
    }
}

/* ---- sockets ---- */

static size_t lines_in(const char *path)
{
    static char list[16384];
    size_t lines = 0;
    slurp(path, list, sizeof list);
    for (const char *at = list; (at = strchr(at, '\n')); at++)
        lines++;
    return lines ? lines - 1 : 0; /* without the heading */
}

/*
 * TCP keeps an address for a minute after its last process. By the counters of this network namespace: to read
 * /proc/net/tcp walks the table of the whole host (measured: 4.4 ms, and as much for tcp6). gVisor has only the lists.
 */
static size_t count_sockets(void)
{
    static const char *const counters[] = {"/proc/net/sockstat", "/proc/net/sockstat6"};
    static const char *const lists[] = {"/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6", "/proc/net/raw"};
    static char text[4096];
    size_t n = lines_in("/proc/net/unix");
    bool is_counted = false;
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        is_counted |= slurp(counters[i], text, sizeof text) > 0;
        for (const char *at = text; (at = strstr(at, " inuse ")); at++)
            n += (size_t)atol(at + strlen(" inuse "));
        const char *waiting = strstr(text, " tw ");
        n += waiting ? (size_t)atol(waiting + strlen(" tw ")) : 0;
    }
    for (size_t i = 0; !is_counted && i < sizeof lists / sizeof *lists; i++)
        n += lines_in(lists[i]);
    return n;
}

/* ---- all of it ---- */

void remember(void)
{
    look_at(&before);
    remember_places();
}

bool scrub(void)
{
    static struct scrubbing s;
    memset(&s, 0, sizeof s);
    s.until = now_ms() + SCRUB_MS;

    drop_signals(&s);
    tidy_places(&s);
    size_t ipc = remove_ipc(&s, "/proc/sysvipc/shm", remove_shm) + remove_ipc(&s, "/proc/sysvipc/msg", remove_msg) +
                 remove_ipc(&s, "/proc/sysvipc/sem", remove_sem);
    size_t processes = count_processes(), sockets = count_sockets();
    if (ipc)
        leave_unclean(&s, "System V IPC");
    if (processes)
        leave_unclean(&s, "processes");
    if (sockets)
        leave_unclean(&s, "sockets");
    compare_self(&s);

    say("clean=%d\n", !s.unclean);
    if (s.unclean) {
        say("left=");
        say_escaped(s.left, strlen(s.left));
        say("\n");
    }
    say("processes=%zu\nfiles=%zu\nipc=%zu\nsockets=%zu\nscrubbed=%zu\n", processes, s.files, ipc, sockets, s.removed);
    say_seal();
    put_text('R');
    return !s.unclean;
}
