/*
 * secret.c - see secret.h.
 */
/* build: leaf */
#include "os/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "os/descriptor.h"

static tri_status check_owner(int fd, const char *path, size_t room)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return TRII_FAIL(TRI_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return TRII_FAIL(TRI_ERR_IO, "%s is not a plain file", path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return TRII_FAIL(TRI_ERR_IO, "%s belongs to user %d, neither to us nor to root", path,
                         (int)st.st_uid);
    if ((st.st_mode & 077) != 0)
        return TRII_FAIL(TRI_ERR_IO, "%s has mode %o, others may use it: chmod 600 it", path,
                         st.st_mode & 0777u);
    if ((uint64_t)st.st_size > room)
        return TRII_FAIL(TRI_ERR_IO, "%s has %lld bytes, at most %zu", path, (long long)st.st_size,
                         room);
    return TRI_OK;
}

tri_status trii_secret_read(const char *path, void *data, size_t room, size_t *bytes_out)
{
    int fd = trii_fd_above_standard(
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)); /* a FIFO would wait */
    size_t used = 0;
    ssize_t n = 1;
    tri_status status;

    if (fd < 0)
        return TRII_FAIL(errno == ENOENT ? TRI_ERR_NOT_FOUND : TRI_ERR_IO, "cannot read %s: %s",
                         path, strerror(errno));
    status = check_owner(fd, path, room);
    while (status == TRI_OK && used < room && n != 0) {
        n = read(fd, (char *)data + used, room - used);
        if (n < 0 && errno != EINTR)
            status = TRII_FAIL(TRI_ERR_IO, "cannot read %s: %s", path, strerror(errno));
        used += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    if (status == TRI_OK)
        *bytes_out = used;
    return status;
}

void trii_secret_wipe(void *data, size_t bytes)
{
    explicit_bzero(data, bytes);
}
