/*
 * Swaps files, directories and links as fast as it can, in the directory where it is started, until it is killed.
 *
 * swap TARGET FOLDER: TARGET is a file of the host, FOLDER the directory that it is in. What has the same name a
 * moment later is, in turn: a file of our own, a link to TARGET, a pipe; a directory of our own, a link to FOLDER. A
 * file also grows and is cut short, and one changes and gets its old times back.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

static void write_file(const char *path, const char *content)
{
    int file = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    if (file == -1 || write(file, content, strlen(content)) == -1)
        perror(path);
    close(file);
}

static void exchange(const char *one, const char *other)
{
    if (syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE) == -1)
        perror(one);
}

int main(int count, char **words)
{
    static char block[65536];
    struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    char content[] = "own content 0\n";

    if (count != 3)
        return 2;
    memset(block, 'g', sizeof block);
    mkdir("out", 0755);
    write_file("out/file", "own content\n");
    if (symlink(words[1], "out/link") || mkfifo("out/pipe", 0644))
        perror("out");
    mkdir("dir", 0755);
    write_file("dir/secret", "own content\n");
    if (symlink(words[2], "dir-link"))
        perror("dir-link");
    mkdir("deep", 0755);
    mkdir("deep/dir", 0755);
    write_file("deep/dir/secret", "own content\n");
    if (symlink(words[2], "deep/link"))
        perror("deep/link");
    int growing = open("grows", O_CREAT | O_WRONLY | O_APPEND, 0644);
    write_file("cut", "own content\n");
    write_file("times", content);
    puts("ready");
    fflush(stdout);

    for (unsigned long turn = 0, written = 0;; turn++) {
        exchange("out/file", "out/link");
        exchange("dir", "dir-link");
        exchange("deep/dir", "deep/link");
        if (turn % 3 == 0)
            exchange("out/file", "out/pipe");
        if (turn % 7 == 0) {
            if (write(growing, block, sizeof block) == -1 || (++written % 64 == 0 && ftruncate(growing, 0)))
                perror("grows");
        }
        if (turn % 5 == 0 && (truncate("cut", turn % 2 ? 1 << 20 : 5)))
            perror("cut");
        if (turn % 5 == 1) {
            int file = open("times", O_WRONLY);
            content[12] = '0' + turn % 10;
            if (file == -1 || pwrite(file, content, sizeof content - 1, 0) == -1 || futimens(file, times))
                perror("times");
            close(file);
        }
    }
}
