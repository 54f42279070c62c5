/* The processors that the command may use: as many as its limit is worth, so that whoever counts them finds the truth. */
#include "init.h"
#include <sched.h>

/* The kernel's own most; it refuses to fill a mask that is smaller than its own. */
enum { PROCESSORS = 8192 };
typedef cpu_set_t mask[PROCESSORS / CPU_SETSIZE];

static mask ours;

/* 0 where the kernel does not tell. */
int count_processors(void)
{
    return sched_getaffinity(0, sizeof ours, ours) < 0 ? 0 : CPU_COUNT_S(sizeof ours, ours);
}

static size_t wanted(void)
{
    return run.processors_len ? big_endian(run.processors, 2) : 0;
}

static size_t offered(void)
{
    return run.processors_len ? run.processors_len / 2 - 1 : 0;
}

static size_t place_offered(size_t at)
{
    return big_endian(run.processors + 2 + 2 * at, 2);
}

/* A place is a number among ours; past the last of them this is no processor either. */
static size_t processor_at(size_t place)
{
    size_t cpu = 0;
    while (cpu < PROCESSORS && (!CPU_ISSET_S(cpu, sizeof ours, ours) || place-- > 0))
        cpu++;
    return cpu;
}

/*
 * Called by the child that becomes the command: we ourselves stay where we may, to be there when it has all of its own.
 * It stays where the kernel has just put it, if it may: that was idle, and to be moved takes 150 us.
 */
void keep_to_processors(void)
{
    static mask kept;
    int here = sched_getcpu();
    size_t place = 0;
    if (wanted() == 0 || count_processors() == 0)
        return;
    CPU_ZERO_S(sizeof kept, kept);
    for (int cpu = 0; cpu < here; cpu++)
        place += CPU_ISSET_S((size_t)cpu, sizeof ours, ours) != 0;
    for (size_t at = 0; at < offered() && here >= 0; at++)
        if (place_offered(at) == place)
            CPU_SET_S((size_t)here, sizeof kept, kept);
    for (size_t at = 0; at < offered() && (size_t)CPU_COUNT_S(sizeof kept, kept) < wanted(); at++)
        CPU_SET_S(processor_at(place_offered(at)), sizeof kept, kept); /* the macro leaves out what is past the last */
    /* It limits nothing, the cgroup's quota does: where the kernel will not (none of these is left), all may be used. */
    (void)sched_setaffinity(0, sizeof kept, kept);
}

/* The places that the command has, two bytes each, if they are as many as it should have; it may have changed them. */
size_t processors_of_command(unsigned char *places, size_t size)
{
    static mask theirs;
    size_t n = 0, place = 0;
    if (wanted() == 0 || 2 * wanted() > size || count_processors() == 0 ||
        sched_getaffinity(run.command_pid, sizeof theirs, theirs) < 0 ||
        (size_t)CPU_COUNT_S(sizeof theirs, theirs) != wanted())
        return 0;
    for (size_t cpu = 0; cpu < PROCESSORS; cpu++) {
        if (CPU_ISSET_S(cpu, sizeof theirs, theirs)) {
            places[n++] = (unsigned char)(place >> 8);
            places[n++] = (unsigned char)place;
        }
        place += CPU_ISSET_S(cpu, sizeof ours, ours) != 0;
    }
    return n;
}
