/*
 * folder.c - see folder.h.
 */
/* build: train trirun */
#include "os/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/grow.h"
#include "os/clock.h"
#include "os/descriptor.h"

/* The kernel's ENOTSUPP, which is not meant for programs: some network file systems return it. */
#define KERNEL_ENOTSUPP 524

static tri_status fail_path(const char *what, const char *path)
{
    tri_status status = errno == ENOENT ? TRI_ERR_NOT_FOUND : TRI_ERR_IO;

    return TRII_FAIL(status, "%s %s: %s", what, path, strerror(errno));
}

tri_status trii_folder_create(const char *path)
{
    struct stat info;

    if (mkdir(path, 0777) == 0)
        return TRI_OK;
    if (errno == EEXIST && stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode))
            return TRI_OK;
        return TRII_FAIL(TRI_ERR_IO, "create folder %s: a file of that name exists", path);
    }
    return fail_path("create folder", path);
}

tri_status trii_folder_create_new(const char *path, unsigned mode, bool *made_out)
{
    *made_out = mkdir(path, mode) == 0;
    return *made_out || errno == EEXIST ? TRI_OK : fail_path("create folder", path);
}

bool trii_folder_remove_empty(const char *path)
{
    return rmdir(path) == 0;
}

int64_t trii_folder_changed_ns(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? st.st_mtim.tv_sec * TRII_NS_PER_S + st.st_mtim.tv_nsec : 0;
}

tri_status trii_folder_create_unique(char *template_inout)
{
    return mkdtemp(template_inout) != NULL ? TRI_OK : fail_path("create folder", template_inout);
}

tri_status trii_folder_create_above(const char *path)
{
    tri_status status = TRI_OK;
    char *prefix = trii_strdup(path, "path");

    if (prefix == NULL)
        return TRI_ERR_NO_MEMORY;
    for (char *at = prefix; *at != '\0' && status == TRI_OK; at++) {
        if (*at != '/' || at == prefix || at[-1] == '/')
            continue;
        *at = '\0';
        status = trii_folder_create(prefix);
        *at = '/';
    }
    trii_free(prefix);
    return status;
}

tri_status trii_folder_sync(const char *path)
{
    int fd = trii_fd_above_standard(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    tri_status status = TRI_OK;

    if (fd < 0)
        return fail_path("open folder", path);
    /* Some file systems know no sync of folders and say EINVAL. */
    if (fsync(fd) != 0 && errno != EINVAL)
        status = fail_path("sync folder", path);
    close(fd);
    return status;
}

tri_status trii_folder_create_private(const char *path)
{
    struct stat st;

    if (mkdir(path, 0700) == 0)
        return TRI_OK;
    if (errno != EEXIST)
        return TRII_FAIL(TRI_ERR_IO, "cannot create folder %s: %s", path, strerror(errno));
    /* Somebody else may have made it first, in a place where all may write. */
    if (lstat(path, &st) != 0)
        return TRII_FAIL(TRI_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return TRII_FAIL(TRI_ERR_IO, "%s is in the way: no folder", path);
    if (st.st_uid != getuid() || (st.st_mode & 022) != 0)
        return TRII_FAIL(TRI_ERR_IO, "%s belongs to user %d with mode %o, not to us alone", path,
                         (int)st.st_uid, st.st_mode & 0777u);
    return TRI_OK;
}

bool trii_folder_is_private(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == getuid() &&
           (st.st_mode & 022) == 0;
}

bool trii_folder_is_writable(const char *path, bool ours)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) && (!ours || st.st_uid == getuid()) &&
           access(path, W_OK | X_OK) == 0;
}

bool trii_folder_find_private(const char *parent, const char *prefix, char *path_out, size_t bytes)
{
    DIR *dir = opendir(parent);
    const struct dirent *entry;
    bool found = false;

    while (dir != NULL && !found && (entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        found = (size_t)snprintf(path_out, bytes, "%s/%s", parent, entry->d_name) < bytes &&
                trii_folder_is_private(path_out);
    }
    if (dir != NULL)
        closedir(dir);
    return found;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Removes what is in the folder, links never followed. Errors of single entries show when the
 * folder itself cannot be removed. */
static void empty_folder(int parent_fd, const char *name)
{
    int fd = trii_fd_above_standard(
        openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;

    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (is_dots(entry->d_name) || unlinkat(fd, entry->d_name, 0) == 0)
            continue;
        if (errno == EISDIR || errno == EPERM) {
            empty_folder(fd, entry->d_name);
            unlinkat(fd, entry->d_name, AT_REMOVEDIR);
        }
    }
    closedir(dir);
}

tri_status trii_folder_remove(const char *path)
{
    if (rmdir(path) == 0 || errno == ENOENT)
        return TRI_OK;
    empty_folder(AT_FDCWD, path);
    if (rmdir(path) == 0 || errno == ENOENT)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_IO, "cannot remove folder %s: %s", path, strerror(errno));
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static tri_status add_name(const char *name, char ***names, int *room, int *n)
{
    tri_status status = trii_array_grow(names, room, *n, 16, sizeof(**names), "names of a folder");

    if (status != TRI_OK)
        return status;
    (*names)[*n] = trii_strdup(name, "name in a folder");
    if ((*names)[*n] == NULL)
        return TRI_ERR_NO_MEMORY;
    ++*n;
    return TRI_OK;
}

/* The next entry; NULL at the end, and where the folder cannot be read on. */
static const struct dirent *read_entry(DIR *dir, const char *path, tri_status *status_out)
{
    const struct dirent *entry;

    errno = 0; /* which alone tells these two apart */
    entry = readdir(dir);
    if (entry == NULL && errno != 0)
        *status_out = TRII_FAIL(TRI_ERR_IO, "cannot read folder %s: %s", path, strerror(errno));
    return entry;
}

tri_status trii_folder_list(const char *path, int max, char ***names_out, int *n_out)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    char **names = NULL;
    int n = 0, room = 0;
    tri_status status = TRI_OK;

    if (dir == NULL && errno != ENOENT)
        return TRII_FAIL(TRI_ERR_IO, "cannot read folder %s: %s", path, strerror(errno));
    while (dir != NULL && n < max && status == TRI_OK &&
           (entry = read_entry(dir, path, &status)) != NULL) {
        if (!is_dots(entry->d_name))
            status = add_name(entry->d_name, &names, &room, &n);
    }
    if (dir != NULL)
        closedir(dir);
    if (status != TRI_OK) {
        trii_folder_free_names(names, n);
        return status;
    }
    if (n > 1)
        qsort(names, (size_t)n, sizeof(*names), compare_names);
    *names_out = names;
    *n_out = n;
    return TRI_OK;
}

void trii_folder_free_names(char **names, int n)
{
    for (int i = 0; i < n; i++)
        trii_free(names[i]);
    trii_free(names);
}

tri_status trii_folder_lock(const char *path, int *fd_out)
{
    int fd = trii_fd_above_standard(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    tri_status status;

    if (fd < 0)
        return TRII_FAIL(TRI_ERR_IO, "%s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            status = TRII_FAIL(TRI_ERR_STATE, "%s is in use", path);
        else
            status = TRII_FAIL(errno == EOPNOTSUPP || errno == ENOLCK || errno == ENOSYS ||
                                       errno == KERNEL_ENOTSUPP
                                   ? TRI_ERR_UNSUPPORTED
                                   : TRI_ERR_IO,
                               "cannot lock %s: %s", path, strerror(errno));
        close(fd);
        return status;
    }
    *fd_out = fd;
    return TRI_OK;
}

void trii_folder_unlock(int fd)
{
    if (fd < 0)
        return;
    flock(fd, LOCK_UN);
    close(fd);
}
