/*
 * Every system call once, by number, with zeros for arguments, each in a child of its own, and what came of it.
 *
 * It prints the number, a tab, and one of: killed (by the filter), EPERM, ENOSYS, EINVAL, EOPNOTSUPP (errors with
 * which a filter refuses; the kernel says them as well), or allowed: it returned, blocked until the alarm, or ended the
 * child in another way. Numbers are given as ranges, FIRST-LAST; with bit 30 set a number is x32's.
 *
 * The call is made inline and its answer leaves by exit status, also inline: behind a vfork or a clone there are two
 * processes on one stack, and whichever comes first must not spoil it for the other.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static __attribute__((noreturn)) void call_and_exit(long number)
{
    __asm__ volatile(
        "xor %%edi, %%edi\n\t"
        "xor %%esi, %%esi\n\t"
        "xor %%edx, %%edx\n\t"
        "xor %%r10d, %%r10d\n\t"
        "xor %%r8d, %%r8d\n\t"
        "xor %%r9d, %%r9d\n\t"
        "syscall\n\t"
        "xor %%edi, %%edi\n\t"
        "cmp $-4095, %%rax\n\t"
        "jb 1f\n\t"
        "neg %%rax\n\t"
        "mov %%eax, %%edi\n"
        "1:\n\t"
        "mov %1, %%eax\n\t"
        "syscall\n\t"
        "hlt"
        :
        : "a"(number), "i"(SYS_exit_group)
        : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory");
    __builtin_unreachable();
}

static const char *verdict(int status)
{
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGSYS ? "killed" : "allowed";
    switch (WEXITSTATUS(status)) {
    case EPERM: return "EPERM";
    case ENOSYS: return "ENOSYS";
    case EINVAL: return "EINVAL";
    case EOPNOTSUPP: return "EOPNOTSUPP";
    default: return "allowed";
    }
}

static void attempt(long number, struct timeval patience)
{
    struct itimerval soon = {.it_value = patience};
    int status = 0;
    pid_t child;

    fflush(stdout); /* or the child would hold a copy of what is in it */
    child = fork();
    if (child == 0) {
        setitimer(ITIMER_REAL, &soon, 0);
        call_and_exit(number);
    }
    if (child == -1 || waitpid(child, &status, 0) != child) {
        printf("%ld\tnot tried\n", number);
        return;
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM && patience.tv_sec == 0) {
        attempt(number, (struct timeval){.tv_sec = 1}); /* it may have blocked, or its turn came late */
        return;
    }
    printf("%ld\t%s\n", number, verdict(status));
}

int main(int count, char **words)
{
    for (int i = 1; i < count; i++) {
        char *end;
        long first = strtol(words[i], &end, 0);
        long last = *end == '-' ? strtol(end + 1, 0, 0) : first;
        for (long number = first; number <= last; number++)
            attempt(number, (struct timeval){.tv_usec = 100000});
    }
    return 0;
}
