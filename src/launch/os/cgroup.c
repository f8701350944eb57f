/*
 * cgroup.c - see cgroup.h. agent.c makes the group, shutdown.c and guard.c end what is in it. A
 * worker that leaves its session and its parent and clears its environment outlives a killed agent
 * otherwise.
 */
#include "launch/os/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/err.h"
#include "os/clock.h"
#include "os/folder.h"
#include "os/read_whole.h"

/* What is killed ends in microseconds on an idle machine, but has to get a processor to do so; what
 * is stuck in the kernel does not end. A job that begins does not wait long for another's ruins. */
enum { END_MS = 2000, SWEEP_MS = 100 };

/* --- where ---------------------------------------------------------------- */

/* The path after "0::", as the kernel numbers the hierarchy of version 2; "" is its root. */
static bool read_own(const char *root, char *path, size_t bytes)
{
    char file[TRII_CGROUP_BYTES], text[4096], *line;
    size_t length;

    snprintf(file, sizeof(file), "%s/proc/self/cgroup", root);
    (void)trii_read_whole(file, text, sizeof(text));
    line = strncmp(text, "0::/", 4) == 0 ? text : strstr(text, "\n0::/");
    if (line == NULL)
        return false;
    line = strchr(line, '/');
    length = strcspn(line, "\n");
    if (length >= bytes)
        return false;
    snprintf(path, bytes, "%.*s", length > 1 ? (int)length : 0, line);
    /* "/.." lies outside of our cgroup namespace: no mount shows it. */
    return strcmp(path, "/..") != 0 && strncmp(path, "/../", 4) != 0;
}

/* Whether it is the folder of a group of version 2. */
static bool is_group(const char *path)
{
    char file[TRII_CGROUP_BYTES + 32];

    snprintf(file, sizeof(file), "%s/cgroup.controllers", path);
    return access(file, F_OK) == 0;
}

tri_status trii_cgroup_own(const char *root, char path_out[TRII_CGROUP_BYTES])
{
    /* Where version 2 is mounted alone, and where beside version 1. */
    static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    char own[TRII_CGROUP_BYTES], path[TRII_CGROUP_BYTES];
    /* A container without a namespace of groups sees its own as the root of the mount. */
    const char *const inside[] = {own, ""};
    bool known = read_own(root, own, sizeof(own));

    for (size_t i = 0; known && i < 2 * TRII_COUNT_OF(mounts); i++) {
        int length = snprintf(path, sizeof(path), "%s%s%s", root, mounts[i / 2], inside[i % 2]);

        if ((size_t)length < sizeof(path) && is_group(path)) {
            memcpy(path_out, path, sizeof(path));
            return TRI_OK;
        }
    }
    return TRII_FAIL(TRI_ERR_UNSUPPORTED, "no control groups of version 2 are mounted");
}

/* Whether trirun gave it its name, "trireme-PID-N". */
static bool is_our_name(const char *name)
{
    int end = 0;

    (void)sscanf(name, TRII_CGROUP_PREFIX "%*[0-9]-%*[0-9]%n", &end);
    return end > 0 && name[end] == '\0';
}

void trii_cgroup_outside(char *path)
{
    char *last = strrchr(path, '/');

    while (last != NULL && is_our_name(last + 1)) {
        *last = '\0';
        last = strrchr(path, '/');
    }
}

/* --- one of them ---------------------------------------------------------- */

static bool is_populated(int folder_fd, int deadline_ms)
{
    static const char name[] = "populated 1";
    const int64_t deadline_ns = trii_deadline_ms(deadline_ms);
    int fd = openat(folder_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
    bool populated = fd < 0 && errno != ENOENT && errno != ENODEV; /* these: it is removed */

    while (fd >= 0) {
        char text[256];
        ssize_t got = pread(fd, text, sizeof(text) - 1, 0);
        struct pollfd changed = {.fd = fd, .events = POLLPRI};
        int left_ms = trii_deadline_left_ms(deadline_ns);

        text[got > 0 ? got : 0] = '\0';
        populated = strstr(text, name) != NULL;
        if (!populated || left_ms == 0)
            break;
        poll(&changed, 1, left_ms);
    }
    if (fd >= 0)
        close(fd);
    return populated;
}

static void write_kill(int folder_fd)
{
    int fd = openat(folder_fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
    ssize_t put = fd >= 0 ? write(fd, "1", 1) : 0;

    (void)put; /* another process has removed it: then nothing is in it */
    if (fd >= 0)
        close(fd);
}

/* True: nothing is in it any more. */
static bool clear(const trii_cgroup *group, int deadline_ms)
{
    if (!is_populated(group->fd, 0))
        return true;
    write_kill(group->fd);
    return !is_populated(group->fd, deadline_ms);
}

void trii_cgroup_kill(const trii_cgroup *group)
{
    if (group->fd >= 0)
        write_kill(group->fd);
}

void trii_cgroup_clear(const trii_cgroup *group)
{
    if (group->fd >= 0)
        clear(group, END_MS);
}

static void clear_and_remove(trii_cgroup *group, int deadline_ms)
{
    tri_status status;

    if (clear(group, deadline_ms)) {
        status = trii_folder_remove(group->path);
        (void)status; /* as one that is not clear: the next job of this user tries again */
    }
    close(group->fd);
    group->fd = -1;
}

void trii_cgroup_remove(trii_cgroup *group)
{
    if (group->fd >= 0)
        clear_and_remove(group, END_MS);
}

/* --- making one ----------------------------------------------------------- */

/* Locks the folder. False: it is no group that can be killed, or another process has it. */
static bool take(trii_cgroup *group)
{
    if (trii_folder_lock(group->path, &group->fd) != TRI_OK)
        return false;
    if (faccessat(group->fd, "cgroup.kill", W_OK, 0) == 0)
        return true;
    close(group->fd);
    return false;
}

/* Removes a group that no process has locked. */
static void sweep_one(trii_cgroup *group)
{
    struct stat st;

    if (!take(group))
        return; /* of a job that runs */
    if (fstat(group->fd, &st) == 0 && st.st_uid == geteuid())
        clear_and_remove(group, SWEEP_MS);
    else
        close(group->fd);
}

static void sweep(const char *parent)
{
    DIR *dir = opendir(parent);
    const struct dirent *entry;
    trii_cgroup group;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (is_our_name(entry->d_name) &&
            (size_t)snprintf(group.path, sizeof(group.path), "%s/%s", parent, entry->d_name) <
                sizeof(group.path))
            sweep_one(&group);
    }
    if (dir != NULL)
        closedir(dir);
}

tri_status trii_cgroup_create(const char *parent, trii_cgroup *group_out)
{
    enum { TRIES = 4 };
    trii_cgroup group = TRII_CGROUP_NONE;

    sweep(parent);
    for (int i = 0; i < TRIES; i++) {
        int length = snprintf(group.path, sizeof(group.path), "%s/" TRII_CGROUP_PREFIX "%d-%d",
                              parent, getpid(), i);

        if (length < 0 || (size_t)length >= sizeof(group.path))
            return TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s: too long a path", parent);
        if (mkdir(group.path, 0755) == 0) {
            if (take(&group)) {
                *group_out = group;
                return TRI_OK;
            }
            rmdir(group.path);        /* unless it was swept away before it was locked */
        } else if (errno != EEXIST) { /* of a process with our number that is not seen from here */
            return TRII_FAIL(TRI_ERR_UNSUPPORTED, "cannot create %s: %s", group.path,
                             strerror(errno));
        }
    }
    return TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s: no control groups with cgroup.kill", parent);
}
