/* The processors that the command may use: as many as its limit is worth, so that whoever counts them finds the truth. */
#include "init.h"
#include <sched.h>
#include <stdio.h>

/* The kernel's own most; it refuses to fill a mask that is smaller than its own. */
enum { PROCESSORS = 8192 };

static cpu_set_t ours[PROCESSORS / CPU_SETSIZE];

/* 0 where the kernel does not tell. */
int count_processors(void)
{
    return sched_getaffinity(0, sizeof ours, ours) < 0 ? 0 : CPU_COUNT_S(sizeof ours, ours);
}

/* Called by the child that becomes the command: we ourselves stay where we may, to be there when it has all of its own. */
void keep_to_processors(void)
{
    static cpu_set_t kept[PROCESSORS / CPU_SETSIZE];
    int place = 0, places = run.processors_len ? count_processors() : 0;
    if (places == 0)
        return;
    CPU_ZERO_S(sizeof kept, kept);
    for (size_t cpu = 0; place < places; cpu++) {
        if (!CPU_ISSET_S(cpu, sizeof ours, ours))
            continue;
        for (size_t at = 0; at < run.processors_len; at += 2)
            if (big_endian(run.processors + at, 2) == (uint64_t)place)
                CPU_SET_S(cpu, sizeof kept, kept);
        place++;
    }
    /* It limits nothing, the cgroup's quota does: where the kernel will not (none of these is left), all may be used. */
    (void)sched_setaffinity(0, sizeof kept, kept);
}
