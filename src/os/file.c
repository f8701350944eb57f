/*
 * file.c - see file.h.
 */
/* build: train trirun */
#include "os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/descriptor.h"
#include "os/folder.h"

static tri_status fail_path(const char *what, const char *path)
{
    tri_status status = errno == ENOENT ? TRI_ERR_NOT_FOUND : TRI_ERR_IO;

    return TRII_FAIL(status, "%s %s: %s", what, path, strerror(errno));
}

/* --- mappings ------------------------------------------------------------- */

static tri_status open_input(const char *path, int *fd_out, struct stat *info)
{
    /* a FIFO would wait for a writer */
    int fd = trii_fd_above_standard(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    tri_status status = TRI_OK;

    if (fd < 0)
        return fail_path("open", path);
    if (fstat(fd, info) != 0)
        status = fail_path("stat", path);
    else if (!S_ISREG(info->st_mode))
        status = TRII_FAIL(TRI_ERR_IO, "open %s: not a file", path);
    if (status != TRI_OK)
        close(fd);
    else
        *fd_out = fd;
    return status;
}

tri_status trii_input_open(const char *path, int *fd_out)
{
    struct stat info;

    return open_input(path, fd_out, &info);
}

tri_status trii_mapping_open(const char *path, trii_mapping *mapping_out)
{
    struct stat info;
    void *data = NULL;
    int fd = -1;
    tri_status status = open_input(path, &fd, &info);

    if (status != TRI_OK)
        return status;
    if (info.st_size > 0) {
        data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = fail_path("map", path);
    }
    close(fd);
    if (status != TRI_OK)
        return status;
    mapping_out->data = data != NULL ? data : "";
    mapping_out->bytes = (size_t)info.st_size;
    return TRI_OK;
}

void trii_mapping_close(trii_mapping *mapping)
{
    void *data;

    if (mapping->bytes > 0) {
        memcpy(&data, &mapping->data, sizeof(data)); /* munmap takes no const */
        munmap(data, mapping->bytes);
    }
    *mapping = (trii_mapping){0};
}

/* --- reading -------------------------------------------------------------- */

tri_status trii_input_read(int fd, const char *path, uint64_t at, void *data, size_t bytes)
{
    for (size_t have = 0; have < bytes;) {
        ssize_t n = pread(fd, (char *)data + have, bytes - have, (off_t)(at + have));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_path("read", path);
        if (n == 0)
            return TRII_FAIL(TRI_ERR_FORMAT, "read %s: it ends at offset %llu", path,
                             (unsigned long long)(at + have));
        have += (size_t)n;
    }
    return TRI_OK;
}

static tri_status make_room(size_t bytes, void **memory, size_t *room)
{
    void *grown;

    if (bytes <= *room)
        return TRI_OK;
    grown = trii_realloc(*memory, bytes, 1, "contents of a file");
    if (grown == NULL)
        return TRI_ERR_NO_MEMORY;
    *memory = grown;
    *room = bytes;
    return TRI_OK;
}

/* To its end, wherever its size said that this is. */
static tri_status load_rest(int fd, const char *path, size_t most, void **memory, size_t *room,
                            size_t *bytes_out)
{
    size_t have = 0;

    for (;;) {
        tri_status status = have < *room ? TRI_OK : make_room(have + have / 2 + 1, memory, room);
        ssize_t n;

        if (status != TRI_OK)
            return status;
        n = read(fd, (char *)*memory + have, *room - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_path("read", path);
        have += (size_t)n;
        if (have > most)
            return TRII_FAIL(TRI_ERR_FORMAT, "read %s: more than %zu bytes", path, most);
        if (n == 0)
            break;
    }
    *bytes_out = have;
    return TRI_OK;
}

tri_status trii_file_load(const char *path, size_t most, void **own_memory_inout,
                          size_t *room_inout, size_t *bytes_out)
{
    struct stat info;
    int fd = -1;
    tri_status status = open_input(path, &fd, &info);

    if (status != TRI_OK)
        return status;
    if ((uint64_t)info.st_size > most)
        status = TRII_FAIL(TRI_ERR_FORMAT, "read %s: %lld bytes, more than %zu", path,
                           (long long)info.st_size, most);
    else /* and one more, so that the end is seen without growing */
        status = make_room((size_t)info.st_size + 1, own_memory_inout, room_inout);
    if (status == TRI_OK)
        status = load_rest(fd, path, most, own_memory_inout, room_inout, bytes_out);
    trii_fd_close(fd);
    return status;
}

/* --- writing -------------------------------------------------------------- */

/* *written_out: bytes that were, also after a failure. */
static tri_status write_some(int fd, const char *path, const void *data, size_t bytes,
                             size_t *written_out)
{
    const char *at = data;

    for (*written_out = 0; *written_out < bytes;) {
        size_t left = bytes - *written_out;
        ssize_t n = write(fd, at + *written_out, left < (1u << 30) ? left : (1u << 30));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_path("write", path);
        *written_out += (size_t)n;
    }
    return TRI_OK;
}

static tri_status write_all(int fd, const char *path, const void *data, size_t bytes)
{
    size_t written;

    return write_some(fd, path, data, bytes, &written);
}

static tri_status not_a_file(const char *path, const char *target)
{
    return TRII_FAIL(TRI_ERR_IO, "write %s: %s%snot a file, and only files are replaced", path,
                     strcmp(path, target) == 0 ? "" : target,
                     strcmp(path, target) == 0 ? "" : " is ");
}

/* The first of our standard descriptors, from this one on, that is this file; -1 = none. */
static int standard_of(const struct stat *file, int from)
{
    struct stat own;

    for (int fd = from; fd <= 2; fd++) {
        if (fstat(fd, &own) == 0 && own.st_dev == file->st_dev && own.st_ino == file->st_ino)
            return fd;
    }
    return -1;
}

/* What a rename would take the place of: nothing, for which *info_out has no link, or a file. */
static tri_status check_replaceable(const char *path, const char *target, struct stat *info_out)
{
    *info_out = (struct stat){0};
    if (lstat(target, info_out) != 0)
        return errno == ENOENT ? TRI_OK : fail_path("write", path);
    if (!S_ISREG(info_out->st_mode))
        return not_a_file(path, target);
    if (standard_of(info_out, 0) >= 0)
        return TRII_FAIL(TRI_ERR_IO, "write %s: is this program's own output; name another file",
                         path);
    return TRI_OK;
}

/* Of one that is not there: its folder and what it will be called. */
static bool split_path(const char *path, char *folder, size_t bytes, const char **name_out)
{
    const char *slash = strrchr(path, '/');

    *name_out = slash != NULL ? slash + 1 : path;
    if (slash == NULL || slash == path)
        snprintf(folder, bytes, slash == NULL ? "." : "/");
    else
        return (size_t)snprintf(folder, bytes, "%.*s", (int)(slash - path), path) < bytes;
    return true;
}

/* The name that opening `path` would create: a link may lead to one where nothing is yet. */
static bool follow_links(const char *path, char target[PATH_MAX])
{
    enum { MOST = 40 }; /* as the kernel */
    ssize_t n = 0;

    if ((size_t)snprintf(target, PATH_MAX, "%s", path) >= PATH_MAX)
        return false;
    for (int i = 0; i < MOST; i++) {
        char link[PATH_MAX], *slash = strrchr(target, '/');
        size_t keep = slash != NULL ? (size_t)(slash + 1 - target) : 0;

        n = readlink(target, link, sizeof(link));
        if (n < 0)
            return true;
        keep = link[0] == '/' ? 0 : keep;
        if (keep + (size_t)n >= PATH_MAX)
            return false;
        memcpy(target + keep, link, (size_t)n);
        target[keep + (size_t)n] = '\0';
    }
    return false;
}

/* Where the link leads, perhaps to what is not there yet in a folder that is. */
static tri_status follow_to(const char *path, char target[PATH_MAX])
{
    char folder[PATH_MAX];
    struct stat info;
    const char *name;
    int why;

    if (realpath(path, target) != NULL)
        return TRI_OK;
    why = errno;
    if (stat(path, &info) == 0) /* a pipe below /proc */
        return not_a_file(path, path);
    if (why == ENOENT && follow_links(path, target) &&
        split_path(target, folder, sizeof(folder), &name) && stat(folder, &info) == 0)
        return TRI_OK;
    errno = why;
    return fail_path("follow link", path);
}

/* The name that a rename shall go to: a link stays, and the file that it leads to is replaced. */
static tri_status find_target(const char *path, char **target_out, struct stat *info_out)
{
    char target[PATH_MAX];
    struct stat info;
    tri_status status = TRI_OK;

    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode)) {
        status = follow_to(path, target);
        path = target;
    }
    if (status == TRI_OK)
        status = check_replaceable(path, path, info_out);
    if (status != TRI_OK)
        return status;
    *target_out = trii_strdup(path, "path");
    return *target_out != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

/* The new file gets owner, group and rights of the one that it replaces, as far as we may give
 * them. A group that it cannot get was among the others before. */
static void take_rights(int fd, const struct stat *old)
{
    mode_t mode = old->st_mode & 07777;
    struct stat own;

    if (fchown(fd, old->st_uid, old->st_gid) != 0 && fchown(fd, (uid_t)-1, old->st_gid) != 0 &&
        fstat(fd, &own) == 0 && own.st_gid != old->st_gid)
        mode &= ~(mode_t)070 | (mode << 3 & 070);
    (void)!fchmod(fd, mode); /* else it stays ours alone */
}

/* A file beside `path` that nobody else writes: on a shared disk other hosts have processes of our
 * number. It is nobody else's to read, either, if a file is there that may be private. */
static tri_status create_temporary(trii_writer *w, const struct stat *old)
{
    enum { MARK = 40, TRIES = 10000 };
    static atomic_uint counter;
    const char *slash = strrchr(w->path, '/'), *name = slash != NULL ? slash + 1 : w->path;
    const size_t room = strlen(w->path) + MARK, above = (size_t)(name - w->path);

    w->temporary = trii_alloc(room, 1, "path");
    if (w->temporary == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < TRIES && w->fd < 0; i++) {
        snprintf(w->temporary, room, "%.*s%.*s" TRII_WRITER_MARK "%d-%u", (int)above, w->path,
                 NAME_MAX - MARK, name, (int)getpid(), atomic_fetch_add(&counter, 1));
        w->fd = trii_fd_above_standard(open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                                            old->st_nlink > 0 ? 0600 : 0666));
        if (w->fd < 0 && errno != EEXIST)
            break;
    }
    if (w->fd < 0) /* the file itself might be written, and half of it lost */
        return fail_path(old->st_nlink > 0 ? "create a file beside" : "create", w->path);
    if (old->st_nlink > 0)
        take_rights(w->fd, old);
    return TRI_OK;
}

tri_status trii_writer_open(const char *path, trii_writer *writer_out)
{
    trii_writer w = {.fd = -1};
    struct stat old;
    tri_status status = find_target(path, &w.path, &old);

    if (status == TRI_OK)
        status = create_temporary(&w, &old);
    if (status != TRI_OK) {
        trii_free(w.temporary);
        trii_free(w.path);
        w = (trii_writer){.fd = -1};
    }
    *writer_out = w;
    return status;
}

tri_status trii_writer_put(trii_writer *writer, const void *data, size_t bytes)
{
    tri_status status = write_all(writer->fd, writer->path, data, bytes);

    if (status == TRI_OK)
        writer->bytes += bytes;
    return status;
}

static void writer_release(trii_writer *writer)
{
    trii_free(writer->temporary);
    trii_free(writer->path);
    *writer = (trii_writer){.fd = -1};
}

/* Of a name, which is cut: after the rename nothing may fail for want of memory. */
static tri_status sync_parent(char *name)
{
    char *slash = strrchr(name, '/');

    if (slash == NULL)
        return trii_folder_sync(".");
    if (slash == name)
        return trii_folder_sync("/");
    *slash = '\0';
    return trii_folder_sync(name);
}

static tri_status writer_end(trii_writer *writer, bool sync)
{
    tri_status status = TRI_OK;
    int fd = writer->fd;
    struct stat old;

    if (sync && fsync(fd) != 0)
        status = fail_path("sync", writer->path);
    writer->fd = -1;
    if (close(fd) != 0 && status == TRI_OK)
        status = fail_path("close", writer->path);
    if (status == TRI_OK) /* something else may have taken the name meanwhile */
        status = check_replaceable(writer->path, writer->path, &old);
    if (status == TRI_OK && rename(writer->temporary, writer->path) != 0)
        status = fail_path("rename to", writer->path);
    if (status != TRI_OK)
        unlink(writer->temporary);
    else if (sync)
        status = sync_parent(writer->temporary);
    writer_release(writer);
    return status;
}

tri_status trii_writer_commit(trii_writer *writer)
{
    return writer_end(writer, true);
}

tri_status trii_writer_publish(trii_writer *writer)
{
    return writer_end(writer, false);
}

tri_status trii_file_replace(const char *path, const void *data, size_t bytes)
{
    trii_writer writer;
    tri_status status = trii_writer_open(path, &writer);

    if (status != TRI_OK)
        return status;
    status = trii_writer_put(&writer, data, bytes);
    if (status == TRI_OK)
        return trii_writer_publish(&writer);
    trii_writer_abort(&writer);
    return status;
}

void trii_writer_abort(trii_writer *writer)
{
    if (writer->path == NULL)
        return;
    close(writer->fd);
    unlink(writer->temporary);
    writer_release(writer);
}

/* --- names ---------------------------------------------------------------- */

tri_status trii_path_rename(const char *src, const char *dst)
{
    if (rename(src, dst) == 0)
        return TRI_OK;
    if (errno != EEXIST && errno != ENOTEMPTY)
        return fail_path("rename to", dst);
    if (renameat2(AT_FDCWD, src, AT_FDCWD, dst, RENAME_EXCHANGE) == 0)
        return TRI_OK;
    return fail_path("exchange with", dst);
}

tri_status trii_path_remove(const char *path)
{
    return unlink(path) == 0 || errno == ENOENT ? TRI_OK : fail_path("remove", path);
}

tri_status trii_path_absolute(const char *path, char *path_out, size_t bytes)
{
    char folder[PATH_MAX] = "";

    if (*path != '/' && getcwd(folder, sizeof(folder)) == NULL)
        return fail_path("find the current folder for", path);
    if ((size_t)snprintf(path_out, bytes, "%s%s%s", folder, *path != '/' ? "/" : "", path) >= bytes)
        return TRII_FAIL(TRI_ERR_IO, "%.40s...: the name is too long (at most %zu bytes)", path_out,
                         bytes - 1);
    return TRI_OK;
}

bool trii_path_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool trii_path_is_folder(const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

tri_status trii_path_leads_to_folder(const char *path, bool *leads_out)
{
    struct stat info;

    *leads_out = false;
    if (stat(path, &info) == 0)
        *leads_out = S_ISDIR(info.st_mode);
    else if (errno != ENOENT && errno != ENOTDIR)
        return fail_path("look into", path);
    return TRI_OK;
}

bool trii_path_is_file(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool trii_path_is_no_file(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 ? !S_ISREG(info.st_mode) : errno == ELOOP;
}

/* The folder of a file that is not there, and what it will be called in it. */
static bool find_place(const char *path, struct stat *folder_out, char name_out[PATH_MAX])
{
    char target[PATH_MAX], folder[PATH_MAX];
    const char *name;

    if (!follow_links(path, target) || !split_path(target, folder, sizeof(folder), &name))
        return false;
    snprintf(name_out, PATH_MAX, "%s", name);
    return stat(folder, folder_out) == 0;
}

bool trii_path_is_same_file(const char *a, const char *b)
{
    char name_a[PATH_MAX], name_b[PATH_MAX];
    struct stat info_a, info_b;
    bool has_a = stat(a, &info_a) == 0, has_b = stat(b, &info_b) == 0;

    if (has_a != has_b)
        return false;
    if (!has_a && (!find_place(a, &info_a, name_a) || !find_place(b, &info_b, name_b) ||
                   strcmp(name_a, name_b) != 0))
        return false;
    return info_a.st_dev == info_b.st_dev && info_a.st_ino == info_b.st_ino &&
           (!has_a || S_ISREG(info_a.st_mode));
}

bool trii_path_is_full(const char *path)
{
    struct statvfs room;

    return statvfs(path, &room) == 0 && room.f_blocks > 0 && room.f_bavail == 0;
}

/* --- lines ---------------------------------------------------------------- */

tri_status trii_append_open(const char *path, int *fd_out)
{
    /* A FIFO would wait for a reader, a modem for its line. */
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    struct stat info;
    int own = -1;

    if (fd < 0 && errno == ENXIO && stat(path, &info) == 0 && S_ISFIFO(info.st_mode))
        return TRII_FAIL(TRI_ERR_IO, "open %s: nobody reads this FIFO; start its reader first",
                         path);
    fd = trii_fd_above_standard(fd); /* first: else it is found as one of them below */
    if (fd < 0)
        return fail_path("open", path);
    /* `>file` writes where the last write ended, not at the end: two descriptors with places of
     * their own would write over each other. */
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
        own = standard_of(&info, 1);
    if (own > 0) {
        close(fd);
        fd = fcntl(own, F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
            return fail_path("open", path);
        *fd_out = fd;
        return TRI_OK;
    }
    if (fcntl(fd, F_SETFL, O_APPEND) != 0) {
        close(fd);
        return fail_path("open", path);
    }
    *fd_out = fd;
    return TRI_OK;
}

tri_status trii_append(int fd, const char *path, const void *data, size_t bytes)
{
    return write_all(fd, path, data, bytes);
}

tri_status trii_append_whole(int fd, const char *path, const void *data, size_t bytes)
{
    struct stat info;
    size_t written;
    tri_status status = write_some(fd, path, data, bytes, &written);

    /* Unless another process has written after it. A descriptor that does not append, `>file` of
     * this program, would leave a hole where it goes on. */
    if (status != TRI_OK && written > 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
        lseek(fd, 0, SEEK_CUR) == info.st_size && ftruncate(fd, info.st_size - (off_t)written) == 0)
        (void)!lseek(fd, info.st_size - (off_t)written, SEEK_SET);
    return status;
}
