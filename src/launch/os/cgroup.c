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

#include "base/alloc.h"
#include "base/err.h"
#include "os/clock.h"
#include "os/folder.h"
#include "os/proc.h"

/* What is killed ends in microseconds on an idle machine, but has to get a processor to do so; what
 * is stuck in the kernel does not end. A job that begins does not wait long for another's ruins. */
enum { END_MS = 2000, SWEEP_MS = 100 };

/* --- where ---------------------------------------------------------------- */

/* Copies a field of mountinfo, in which the kernel writes spaces, tabs, ends of lines and
 * backslashes as \ooo. */
static bool copy_field(const char *field, size_t length, char *out, size_t bytes)
{
    size_t used = 0;

    for (size_t i = 0; i < length; i++) {
        char c = field[i];

        if (c == '\\') {
            int value = 0;

            if (length - i < 4)
                return false;
            for (size_t k = 1; k < 4; k++) {
                if (field[i + k] < '0' || field[i + k] > '7')
                    return false;
                value = 8 * value + (field[i + k] - '0');
            }
            if (value == 0 || value > 255)
                return false;
            c = (char)value;
            i += 3;
        }
        if (used + 1 >= bytes)
            return false;
        out[used++] = c;
    }
    out[used] = '\0';
    return used > 0 && out[0] == '/';
}

/* From a line of mountinfo, "ID PARENT DEVICE ROOT POINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS":
 * ROOT and POINT. False: not of version 2 of control groups, or malformed. */
static bool read_mount(const char *line, size_t length, char *root, char *point, size_t bytes)
{
    static const char type[] = " - cgroup2 ";
    const char *end = line + length, *field[6];
    const char *at = line;

    for (int i = 0; i < 6; i++) {
        field[i] = at;
        at = memchr(at, ' ', (size_t)(end - at));
        if (at == NULL)
            return false;
        at++;
    }
    at--; /* the tags, if there are some, begin behind this space */
    return memmem(at, (size_t)(end - at), type, strlen(type)) != NULL &&
           copy_field(field[3], (size_t)(field[4] - field[3] - 1), root, bytes) &&
           copy_field(field[4], (size_t)(field[5] - field[4] - 1), point, bytes);
}

/* What of `path` lies below `root`: "" or "/..."; NULL if it does not. */
static const char *below(const char *path, const char *root)
{
    size_t length = strlen(root);

    if (strcmp(root, "/") == 0)
        return strcmp(path, "/") == 0 ? "" : path;
    if (strncmp(path, root, length) != 0 || (path[length] != '/' && path[length] != '\0'))
        return NULL;
    return path + length;
}

/* The path behind "0::", as the kernel numbers the hierarchy of version 2. */
static bool read_own(const char *groups, char *path, size_t bytes)
{
    for (; *groups != '\0'; groups += *groups == '\n') {
        size_t length = strcspn(groups, "\n");

        if (strncmp(groups, "0::/", 4) == 0 && length - 3 < bytes) {
            memcpy(path, groups + 3, length - 3);
            path[length - 3] = '\0';
            /* "/.." lies outside of our cgroup namespace: no mount shows it. */
            return strcmp(path, "/..") != 0 && strncmp(path, "/../", 4) != 0;
        }
        groups += length;
    }
    return false;
}

bool trii_cgroup_find(const char *groups, const char *mounts, char *path_out, size_t bytes)
{
    char own[TRII_CGROUP_BYTES], root[TRII_CGROUP_BYTES], point[TRII_CGROUP_BYTES];

    if (!read_own(groups, own, sizeof(own)))
        return false;
    for (; *mounts != '\0'; mounts += *mounts == '\n') {
        size_t length = strcspn(mounts, "\n");

        if (read_mount(mounts, length, root, point, sizeof(root))) {
            const char *rest = below(own, root);

            if (rest != NULL && strlen(point) + strlen(rest) < bytes) {
                snprintf(path_out, bytes, "%s%s", point, rest);
                return true;
            }
        }
        mounts += length;
    }
    return false;
}

/* Whether it is a name of ours, "trireme-PID-N". */
static bool is_our_name(const char *name)
{
    static const size_t length = sizeof(TRII_CGROUP_PREFIX) - 1;

    static const char digits[] = "0123456789";
    size_t pid, number;

    if (strncmp(name, TRII_CGROUP_PREFIX, length) != 0)
        return false;
    name += length;
    pid = strspn(name, digits);
    if (pid == 0 || name[pid] != '-')
        return false;
    number = strspn(name + pid + 1, digits);
    return number > 0 && name[pid + 1 + number] == '\0';
}

void trii_cgroup_outside(char *path)
{
    char *last = strrchr(path, '/');

    while (last != NULL && is_our_name(last + 1)) {
        *last = '\0';
        last = strrchr(path, '/');
    }
}

tri_status trii_cgroup_own(char path_out[TRII_CGROUP_BYTES])
{
    enum { MAX_MOUNTS = 1 << 20 };
    char groups[4096], *mounts = trii_alloc_aligned(4096, MAX_MOUNTS, "mount points");
    bool found;

    if (mounts == NULL)
        return TRI_ERR_NO_MEMORY;
    found = trii_proc_read("self", "cgroup", groups, sizeof(groups)) > 0 &&
            trii_proc_read("self", "mountinfo", mounts, MAX_MOUNTS) > 0 &&
            trii_cgroup_find(groups, mounts, path_out, TRII_CGROUP_BYTES);
    trii_free(mounts);
    return found ? TRI_OK
                 : TRII_FAIL(TRI_ERR_UNSUPPORTED, "no control groups of version 2 are mounted");
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

static void write_kill(int kill_fd)
{
    ssize_t put = write(kill_fd, "1", 1);

    (void)put; /* removed by somebody else: then nothing is in it */
}

/* True: nothing is in it any more. */
static bool clear(const trii_cgroup *group, int deadline_ms)
{
    if (!is_populated(group->fd, 0))
        return true;
    write_kill(group->kill_fd);
    return !is_populated(group->fd, deadline_ms);
}

void trii_cgroup_kill(const trii_cgroup *group)
{
    if (group->fd >= 0)
        write_kill(group->kill_fd);
}

bool trii_cgroup_is_populated(const trii_cgroup *group)
{
    return group->fd >= 0 && is_populated(group->fd, 0);
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
    close(group->kill_fd);
    close(group->fd);
    group->fd = group->kill_fd = -1;
}

void trii_cgroup_remove(trii_cgroup *group)
{
    if (group->fd >= 0)
        clear_and_remove(group, END_MS);
}

/* --- making one ----------------------------------------------------------- */

/* Takes away a group that nobody has locked. */
static void sweep_one(const char *path)
{
    int fd, kill_fd;
    struct stat st;

    if (trii_folder_lock(path, &fd) != TRI_OK)
        return; /* of a job that runs */
    kill_fd = openat(fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
    if (kill_fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid()) {
        trii_cgroup group = {.fd = fd, .kill_fd = kill_fd};

        snprintf(group.path, sizeof(group.path), "%s", path);
        clear_and_remove(&group, SWEEP_MS);
        return;
    }
    if (kill_fd >= 0)
        close(kill_fd);
    close(fd);
}

static void sweep(const char *parent)
{
    DIR *dir = opendir(parent);
    const struct dirent *entry;
    char path[TRII_CGROUP_BYTES];

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (is_our_name(entry->d_name) &&
            strlen(parent) + strlen(entry->d_name) + 1 < sizeof(path)) {
            snprintf(path, sizeof(path), "%s/%s", parent, entry->d_name);
            sweep_one(path);
        }
    }
    if (dir != NULL)
        closedir(dir);
}

/* Locks the new folder. False: it is no control group, or somebody swept it away before we had
 * locked it. */
static bool take(trii_cgroup *group)
{
    if (trii_folder_lock(group->path, &group->fd) != TRI_OK)
        return false;
    group->kill_fd = openat(group->fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
    if (group->kill_fd >= 0)
        return true;
    rmdir(group->path);
    close(group->fd);
    return false;
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
        } else if (errno != EEXIST) { /* of a process with our number that is not seen from here */
            return TRII_FAIL(TRI_ERR_UNSUPPORTED, "cannot create %s: %s", group.path,
                             strerror(errno));
        }
    }
    return TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s: no control groups with cgroup.kill", parent);
}
