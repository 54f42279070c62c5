/*
 * Places: the directories that a command can write to, besides the workspace. They are found and remembered before any
 * command; afterwards what was there must be as it was, and all else goes.
 *
 * Everything here is done while nobody else lives, so that no name changes its meaning between two calls. What a
 * command has left can still be hostile by its form: deep, wide, closed, or a link to elsewhere.
 */
#include "init.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { PLACES = 32, ENTRIES = 512, XATTRS = 256 };

struct place {
    char *path;
    int fd;        /* held from the start: no path leads us astray, and a mode taken away can be given back */
    bool is_fixed; /* nothing can be removed from it by name: devpts */
    struct stat root;
    long flags;    /* of chattr; an owner can set some on a tmpfs */
    char xattrs[XATTRS];
    ssize_t xattrs_len;
    size_t first, count;
    unsigned moved, done; /* directories moved up, and those of them dealt with */
};

struct entry {
    char *name;
    struct stat status;
    bool is_place, seen;
};

static struct place places[PLACES];
static struct entry entries[ENTRIES];
static size_t place_count, entry_count;
static char mounts[PAYLOAD];
static char obstacle[512]; /* why this container can never be scrubbed */

static void never_clean(const char *path, const char *why)
{
    if (!*obstacle)
        snprintf(obstacle, sizeof obstacle, "%.400s: %s", path, why);
}

/* ---- before any command ---- */

static long flags_of(int fd)
{
    int flags = 0;
    return ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 ? flags : -1;
}

static ssize_t xattrs_of(int fd, char *names)
{
    memset(names, 0, XATTRS);
    ssize_t n = flistxattr(fd, names, XATTRS);
    return n < 0 && errno == EOPNOTSUPP ? 0 : n;
}

static char *joined(const char *path, const char *name)
{
    size_t size = strlen(path) + strlen(name) + 2;
    char *whole = malloc(size);
    if (!whole)
        give_up("out of memory");
    snprintf(whole, size, "%s%s%s", path, *name ? "/" : "", name);
    return whole;
}

static void add_place(char *path, int fd, bool is_fixed)
{
    struct place *p = &places[place_count];
    if (place_count == PLACES || fstat(fd, &p->root) < 0) {
        never_clean(path, "too many places");
        close(fd);
        free(path);
        return;
    }
    *p = (struct place){.path = path, .fd = fd, .is_fixed = is_fixed, .root = p->root, .flags = flags_of(fd)};
    p->xattrs_len = xattrs_of(fd, p->xattrs);
    /* The kernel's own labels are no command's to change; of any other attribute we would have to know the value. */
    for (ssize_t at = 0; at < p->xattrs_len; at += (ssize_t)strlen(p->xattrs + at) + 1)
        if (strncmp(p->xattrs + at, "security.", 9) != 0)
            never_clean(path, "extended attributes");
    if (p->xattrs_len < 0)
        never_clean(path, "extended attributes");
    place_count++;
}

/* Sets errno when a listing broke off, for that is not its end. */
static struct dirent *next_in(DIR *listing)
{
    struct dirent *found;
    do {
        errno = 0;
        found = readdir(listing);
    } while (found && (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0));
    return found;
}

/* What is in a place. A directory there is a place too, and comes after it in the list. */
static void remember_entries(struct place *p)
{
    struct dirent *found;
    int fd = openat(p->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    p->first = entry_count;
    if (!listing) {
        never_clean(p->path, "cannot be listed");
        close_fd(&fd);
        return;
    }
    while ((found = next_in(listing))) {
        struct entry *e = &entries[entry_count];
        if (entry_count == ENTRIES || fstatat(p->fd, found->d_name, &e->status, AT_SYMLINK_NOFOLLOW) < 0) {
            never_clean(p->path, "too much to remember");
            break;
        }
        e->name = joined(found->d_name, "");
        bool is_mount = e->status.st_dev != p->root.st_dev;
        if (S_ISREG(e->status.st_mode) && !is_mount && !p->is_fixed)
            never_clean(p->path, "holds a file"); /* that can be changed through a mapping, which leaves no trace */
        if (S_ISDIR(e->status.st_mode) && !is_mount) {
            int inner = openat(p->fd, e->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            e->is_place = inner >= 0; /* one that cannot be listed may still be written to; then its time tells */
            if (e->is_place)
                add_place(joined(p->path, e->name), inner, p->is_fixed);
        }
        entry_count++;
    }
    p->count = entry_count - p->first;
    closedir(listing);
}

bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
        if (strncmp(list, word, n) == 0 && (list[n] == ',' || list[n] == 0))
            return true;
    return false;
}

/* The kernel writes blanks and backslashes in paths as \ooo. */
void unescape(char *path)
{
    char *to = path;
    for (; *path; path++)
        if (path[0] == '\\' && path[1] && path[2] && path[3]) {
            *to++ = (char)((path[1] - '0') * 64 + (path[2] - '0') * 8 + (path[3] - '0'));
            path += 3;
        } else
            *to++ = *path;
    *to = 0;
}

/* One line of mountinfo. A writable mount that we know nothing of could keep anything. */
static void consider_mount(const char *line)
{
    static char path[4096];
    char options[256], type[32];
    unsigned device_major, device_minor;
    struct stat status;
    const char *rest = strstr(line, " - ");
    if (!rest || sscanf(line, "%*s %*s %u:%u %*s %4095s %255s", &device_major, &device_minor, path, options) != 4 ||
        sscanf(rest, " - %31s", type) != 1) {
        never_clean("/proc/self/mountinfo", "a line that cannot be read");
        return;
    }
    unescape(path);
    if (has_word(options, "ro") || strcmp(type, "proc") == 0)
        return;
    if (strcmp(path, "/workspace") == 0 || strncmp(path, "/workspace/", 11) == 0)
        return; /* what a command leaves there is what it is for */
    int reached = lstat(path, &status);
    if (reached == 0 && S_ISCHR(status.st_mode))
        return; /* it keeps nothing; the engine hides files of /proc behind /dev/null */
    bool is_terminals = strcmp(type, "devpts") == 0;
    if (!is_terminals && strcmp(type, "tmpfs") != 0 && strcmp(type, "mqueue") != 0) {
        never_clean(path, "a writable mount");
        return;
    }
    if ((reached < 0 && errno == ENOENT) || (reached == 0 && status.st_dev != makedev(device_major, device_minor)))
        return; /* covered by another mount, which has a line of its own */
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        never_clean(path, "cannot be opened");
    else
        add_place(joined(path, ""), fd, is_terminals);
}

void remember_places(void)
{
    if (slurp("/proc/self/mountinfo", mounts, sizeof mounts) >= sizeof mounts - 1)
        never_clean("/proc/self/mountinfo", "too long");
    else if (!*mounts)
        never_clean("/proc/self/mountinfo", "cannot be read");
    for (char *line = mounts, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        consider_mount(line);
        *end = '\n';
    }
    for (size_t i = 0; i < place_count; i++)
        remember_entries(&places[i]);
}

/* ---- after a command ---- */

static void up_name(char *name, size_t size, unsigned number)
{
    snprintf(name, size, ".scrub-%u", number);
}

/*
 * Moves a directory up into the place itself, where it is dealt with in turn. So no depth costs us descriptors or
 * stack, and each directory is listed once.
 */
static bool move_up(struct scrubbing *s, struct place *p, int from, const char *name)
{
    char up[32];
    for (bool opened = false; spend(s);) { /* each step has its price, for a command may have taken the names */
        up_name(up, sizeof up, p->moved);
        if (syscall(SYS_renameat2, from, name, p->fd, up, RENAME_NOREPLACE) == 0) {
            p->moved++;
            return true;
        }
        if (errno == EEXIST)
            p->moved++;
        else if (errno != EACCES || opened || fchmodat(from, name, 0700, 0) < 0)
            return false;
        else
            opened = true; /* to move a directory is to write to it; and it is no link, nobody is left to change that */
    }
    return false;
}

static bool is_directory(int at, const struct dirent *found)
{
    struct stat status;
    if (found->d_type != DT_UNKNOWN)
        return found->d_type == DT_DIR;
    return fstatat(at, found->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
}

static int open_directory(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == EACCES && fchmodat(at, name, 0700, 0) == 0)
        fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd;
}

/* Removes a directory of the command's with all that is in it; what it holds of directories is left to the caller. */
static bool remove_directory(struct scrubbing *s, struct place *p, const char *name)
{
    struct stat status;
    struct dirent *found;
    bool gone = false;
    int fd = open_directory(p->fd, name);
    if (fd < 0)
        return false;
    DIR *listing = NULL;
    if (fstat(fd, &status) == 0 && status.st_dev == p->root.st_dev) /* a mount is not crossed */
        listing = fdopendir(fd);
    if (!listing) {
        close(fd);
        return false;
    }
    if ((status.st_mode & 0700) != 0700)
        (void)fchmod(fd, 0700);
    for (bool progress = true; progress && !gone; rewinddir(listing)) {
        progress = false;
        while (spend(s) && (found = next_in(listing))) {
            if (is_directory(fd, found))
                progress |= move_up(s, p, fd, found->d_name);
            else if (unlinkat(fd, found->d_name, 0) == 0) {
                s->removed++;
                progress = true;
            }
        }
        gone = unlinkat(p->fd, name, AT_REMOVEDIR) == 0;
    }
    closedir(listing);
    s->removed += gone;
    return gone;
}

static bool remove_entry(struct scrubbing *s, struct place *p, const struct dirent *found)
{
    if (p->is_fixed || !spend(s))
        return false;
    if (is_directory(p->fd, found))
        return remove_directory(s, p, found->d_name);
    if (unlinkat(p->fd, found->d_name, 0) < 0)
        return false;
    s->removed++;
    return true;
}

static struct entry *remembered(const struct place *p, const char *name)
{
    for (size_t i = p->first; i < p->first + p->count; i++)
        if (strcmp(entries[i].name, name) == 0)
            return &entries[i];
    return NULL;
}

static bool is_unchanged(const struct place *p, const struct entry *e)
{
    struct stat now;
    const struct stat *then = &e->status;
    if (fstatat(p->fd, e->name, &now, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    if (now.st_dev != then->st_dev || now.st_ino != then->st_ino)
        return false;
    if (then->st_dev != p->root.st_dev)
        return true; /* a mount: a place of its own, or not writable */
    if (now.st_mode != then->st_mode || now.st_uid != then->st_uid || now.st_gid != then->st_gid)
        return false;
    /* The one time that nobody can set: it tells of links, attributes and all else. In directories it may move. */
    return e->is_place || (now.st_rdev == then->st_rdev && now.st_ctim.tv_sec == then->st_ctim.tv_sec &&
                           now.st_ctim.tv_nsec == then->st_ctim.tv_nsec);
}

/* One look through a place. Tells whether anything was removed, for then one look more is needed. */
static bool look_through(struct scrubbing *s, struct place *p, DIR *listing)
{
    struct dirent *found;
    size_t removed = s->removed, files = 0;
    char name[32], stuck[512];

    for (size_t i = p->first; i < p->first + p->count; i++)
        entries[i].seen = false;
    while ((found = next_in(listing)) && files < ENTRIES) {
        struct entry *e = remembered(p, found->d_name);
        if (e)
            e->seen = true;
        else if (!remove_entry(s, p, found)) {
            files++;
            snprintf(stuck, sizeof stuck, "%.200s/%s", p->path, found->d_name);
        }
    }
    if (!found && errno)
        leave_unclean(s, "%s: %s", p->path, strerror(errno));
    for (; p->done < p->moved && spend(s); p->done++) {
        up_name(name, sizeof name, p->done);
        remove_directory(s, p, name); /* if it fails the next look finds it */
    }
    if (s->removed > removed)
        return true;
    s->files += files;
    if (files)
        leave_unclean(s, "%s", stuck);
    return false;
}

static void tidy(struct scrubbing *s, struct place *p)
{
    struct stat now;
    char xattrs[XATTRS];

    if (fstat(p->fd, &now) == 0 && now.st_mode != p->root.st_mode)
        (void)fchmod(p->fd, p->root.st_mode & 07777);
    int fd = openat(p->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (!listing) {
        close_fd(&fd);
        leave_unclean(s, "%s: cannot be listed", p->path);
        return;
    }
    p->moved = p->done = 0;
    while (look_through(s, p, listing))
        rewinddir(listing);
    closedir(listing);
    for (size_t i = p->first; i < p->first + p->count; i++)
        if (!entries[i].seen || !is_unchanged(p, &entries[i]))
            leave_unclean(s, "%s/%s: changed", p->path, entries[i].name);
    if (fstat(p->fd, &now) < 0 || now.st_mode != p->root.st_mode || now.st_uid != p->root.st_uid ||
        now.st_gid != p->root.st_gid || flags_of(p->fd) != p->flags || xattrs_of(p->fd, xattrs) != p->xattrs_len ||
        memcmp(xattrs, p->xattrs, XATTRS) != 0)
        leave_unclean(s, "%s: changed", p->path);
}

void tidy_places(struct scrubbing *s)
{
    static char now[sizeof mounts];
    if (*obstacle) {
        /* Nothing is touched: outside a container these are the host's directories. */
        leave_unclean(s, "%s", obstacle);
        s->until = 0;
        return;
    }
    slurp("/proc/self/mountinfo", now, sizeof now);
    if (strcmp(now, mounts) != 0)
        leave_unclean(s, "mounts: changed");
    for (size_t i = 0; i < place_count; i++)
        tidy(s, &places[i]);
}
