/* What is mounted over first-level names of the workspace: told in the hello, for the provider to compare with its plan. */
#include "init.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { TOLD = 64, LONGEST = 4 * 255 + 64 };

static const char below[] = "/workspace/";

/* True when it was told. */
static bool tell_mount(const char *line, unsigned number)
{
    static char path[4096];
    char options[256];
    struct stat status;
    if (sscanf(line, "%*s %*s %*s %*s %4095s %255s", path, options) != 2)
        return false;
    unescape(path);
    const char *name = path + sizeof below - 1;
    if (strncmp(path, below, sizeof below - 1) != 0 || strchr(name, '/') || lstat(path, &status) < 0)
        return false;
    say("mount%u=%s %" PRIuMAX " ", number, has_word(options, "ro") ? "ro" : "rw", (uintmax_t)status.st_ino);
    say_escaped(name, strlen(name));
    say("\n");
    return true;
}

/* Of two over one name the later line is the one that is seen; both are told. One that is not told is not there. */
void tell_mounts(void)
{
    static char mounts[PAYLOAD];
    unsigned number = 0;
    slurp("/proc/self/mountinfo", mounts, sizeof mounts);
    for (char *line = mounts, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        if (number < TOLD && room_to_say() > LONGEST && tell_mount(line, number))
            number++;
    }
}
