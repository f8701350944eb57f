/*
 * entries.c - see entries.h.
 */
/* build: train */
#include "os/entries.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "os/descriptor.h"

static tri_status fail_folder(const char *path)
{
    tri_status status = errno == ENOENT ? TRI_ERR_NOT_FOUND : TRI_ERR_IO;

    return TRII_FAIL(status, "cannot read folder %s: %s", path, strerror(errno));
}

/* Most file systems tell the kind with the name, and only links cost a call each. */
static bool is_folder(DIR *dir, const struct dirent *entry)
{
    struct stat st;

    if (entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    return fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode);
}

static tri_status visit_entries(const char *path, DIR *dir, trii_entry_visit visit, void *arg)
{
    tri_status status = TRI_OK;

    while (status == TRI_OK) {
        const struct dirent *entry;

        errno = 0; /* which alone tells the end from a failure */
        entry = readdir(dir);
        if (entry == NULL)
            return errno == 0 ? TRI_OK : fail_folder(path);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = visit(arg, entry->d_name, is_folder(dir, entry));
    }
    return status;
}

tri_status trii_folder_visit(const char *path, trii_entry_visit visit, void *arg,
                             trii_folder_id *id_out)
{
    int fd = trii_fd_above_standard(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct stat st;
    tri_status status;

    if (dir == NULL || fstat(fd, &st) != 0) {
        status = fail_folder(path);
        if (dir != NULL)
            closedir(dir);
        else
            trii_fd_close(fd);
        return status;
    }
    *id_out = (trii_folder_id){.device = (uint64_t)st.st_dev, .inode = (uint64_t)st.st_ino};
    status = visit_entries(path, dir, visit, arg);
    closedir(dir);
    return status;
}
