/* Who lives in this pid namespace: reaped, listed, signalled, told at the end. */
#include "init.h"
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { LINE = 256 }; /* bytes of a command line that are told */

long oom_kills(void)
{
    char value[32];
    if (fact("/sys/fs/cgroup/memory.events", "oom_kill ", value, sizeof value) ||
        fact("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill ", value, sizeof value))
        return atol(value);
    return 0;
}

static uint64_t microseconds(struct timeval t)
{
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_usec;
}

void reap(void)
{
    for (;;) {
        int status;
        struct rusage used;
        pid_t pid = wait4(-1, &status, WNOHANG, &used);
        if (pid > 0) {
            /* Added up here, not by RUSAGE_CHILDREN: that one has all commands before this in it. */
            run.user_us += microseconds(used.ru_utime);
            run.system_us += microseconds(used.ru_stime);
            run.max_rss_kb = used.ru_maxrss > run.max_rss_kb ? used.ru_maxrss : run.max_rss_kb;
        }
        if (pid > 0 && pid == run.command) {
            run.command = 0;
            run.command_status = status;
        } else if (pid == 0)
            return;
        else if (pid < 0 && errno != EINTR) {
            run.everyone_is_gone = errno == ECHILD;
            return;
        }
    }
}

void signal_everyone(int number)
{
    /* Everyone in this pid namespace but us. */
    kill(-1, number);
}

void signal_group(int number)
{
    pid_t group = run.command;
    if (run.wants_pty && run.output.fd >= 0 && ioctl(run.output.fd, TIOCGPGRP, &group) < 0)
        group = run.command;
    if (run.command > 0 && group > 1)
        kill(-group, number);
}

void signal_one(uint32_t pid, int number)
{
    if (pid == 0)
        signal_everyone(number);
    else if (pid > 1 && pid <= INT_MAX) /* past that it would be a group, or everyone */
        kill((pid_t)pid, number);
}

/* The next process in /proc that is neither us nor a zombie; its kernel name too, of which `name` may hold anything. */
static pid_t next_process(DIR *proc, char *name, size_t size)
{
    struct dirent *entry;
    while (proc && (entry = readdir(proc))) {
        char path[sizeof "/proc//stat" + sizeof entry->d_name], line[512];
        pid_t pid = atoi(entry->d_name);
        if (pid <= 1)
            continue;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        slurp(path, line, sizeof line);
        /* The state follows the last parenthesis. */
        char *start = strchr(line, '('), *end = strrchr(line, ')');
        if (!start || !end || end[1] != ' ' || end[2] == 'Z' || end[2] == 'X')
            continue;
        *end = 0;
        snprintf(name, size, "%s", start + 1);
        return pid;
    }
    return 0;
}

void list_background(void)
{
    char name[LINE];
    pid_t pid;
    if (run.listed)
        return;
    DIR *proc = opendir("/proc");
    while (run.backgrounds < PIDS_LISTED && (pid = next_process(proc, name, sizeof name)))
        run.background[run.backgrounds++] = pid;
    if (proc)
        closedir(proc);
    run.listed = true;
}

/* Zombies too, and those that others put here: whatever has a number besides us. */
size_t count_processes(void)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    size_t n = proc ? 0 : 1; /* not to know is not none */
    while (proc && (entry = readdir(proc)))
        n += atoi(entry->d_name) > 1;
    if (proc)
        closedir(proc);
    return n;
}

void put_processes(void)
{
    enum { LONGEST = sizeof "4294967296=[]\n" + 4 * LINE, LAST = sizeof "more=4294967296\n" };
    char name[LINE], line[LINE + 1], path[64];
    pid_t pid;
    size_t more = 0;
    DIR *proc = opendir("/proc");
    while ((pid = next_process(proc, name, sizeof name))) {
        if (room_to_say() < LONGEST + LAST) {
            more++;
            continue;
        }
        snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
        size_t n = slurp(path, line, sizeof line);
        while (n && line[n - 1] == 0)
            n--;
        for (size_t i = 0; i < n; i++)
            line[i] = line[i] ? line[i] : ' ';
        say("%d=%s", (int)pid, n ? "" : "[");
        say_escaped(n ? line : name, n ? n : strlen(name));
        say("%s\n", n ? "" : "]");
    }
    if (proc)
        closedir(proc);
    if (more)
        say("more=%zu\n", more);
    put_text('P');
}

void put_ending(unsigned char type)
{
    char value[32];

    say("reason=%s\npid=%d\n", run.reason, (int)run.command_pid);
    if (run.spawn_stage)
        say("errno=%d\nstage=%s\n", run.spawn_errno,
            run.spawn_stage == 'p' ? "pty" : run.spawn_stage == 'f' ? "fork" : run.spawn_stage == 'd' ? "cwd" : "exec");
    else if (WIFSIGNALED(run.command_status))
        say("signal=%d\n", WTERMSIG(run.command_status));
    else
        say("exit=%d\n", WEXITSTATUS(run.command_status));
    say("background=");
    for (size_t i = 0; i < run.backgrounds; i++)
        say("%s%d", i ? "," : "", (int)run.background[i]);
    say("\noom=%ld\n", oom_kills() - run.oom_before);
    say("user_us=%" PRIu64 "\nsystem_us=%" PRIu64 "\nmax_rss_kb=%ld\n", run.user_us, run.system_us, run.max_rss_kb);
    /* A high-water mark that cannot be reset: of the second command on, it may be the first one's. */
    if (served == 0 && (fact("/sys/fs/cgroup/memory.peak", "", value, sizeof value) ||
                        fact("/sys/fs/cgroup/memory/memory.max_usage_in_bytes", "", value, sizeof value)))
        say("peak=%s\n", value);
    say_denials();
    say_seal();
    put_text(type);
}
