/*
 * gzip.c - see gzip.h. The only user of zlib.
 */
#include "train/data/gzip.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/descriptor.h"
#include "os/file.h"

#define BUFFER (128u << 10)
#define MAX_AT_ONCE ((size_t)1 << 30)

struct trii_gzip {
    char *path;
    gzFile file;
};

tri_status trii_gzip_open(const char *path, trii_gzip **gzip_out)
{
    trii_gzip *g = trii_alloc(1, sizeof(*g), "compressed file");
    tri_status status = TRI_ERR_NO_MEMORY;
    int fd = -1;

    if (g == NULL)
        return TRI_ERR_NO_MEMORY;
    g->path = trii_strdup(path, "path");
    if (g->path != NULL)
        status = trii_input_open(path, &fd);
    if (status == TRI_OK) {
        g->file = gzdopen(fd, "rb"); /* which closes it in the end */
        if (g->file == NULL) {
            trii_fd_close(fd);
            status = TRII_FAIL(TRI_ERR_NO_MEMORY, "open %s: out of memory", path);
        }
    }
    if (status != TRI_OK) {
        trii_gzip_close(g);
        return status;
    }
    (void)gzbuffer(g->file, BUFFER);
    *gzip_out = g;
    return TRI_OK;
}

void trii_gzip_close(trii_gzip *gzip)
{
    if (gzip == NULL)
        return;
    if (gzip->file != NULL)
        (void)gzclose_r(gzip->file);
    trii_free(gzip->path);
    trii_free(gzip);
}

static tri_status fail(const trii_gzip *g, int code, const char *what)
{
    const char *reason = strstr(what, ": "); /* after zlib's name for the file, its descriptor */

    if (code == Z_MEM_ERROR)
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "read %s: out of memory", g->path);
    if (code == Z_ERRNO)
        return TRII_FAIL(TRI_ERR_IO, "read %s: %s", g->path, strerror(errno));
    if (code == Z_BUF_ERROR)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: truncated: the compressed data end too early",
                         g->path);
    return TRII_FAIL(TRI_ERR_FORMAT, "%s: damaged compressed data: %s", g->path,
                     reason != NULL ? reason + 2 : what);
}

tri_status trii_gzip_read(trii_gzip *gzip, void *data, size_t bytes, size_t *n_out)
{
    size_t done = 0;

    while (done < bytes) {
        size_t want = bytes - done < MAX_AT_ONCE ? bytes - done : MAX_AT_ONCE;
        int n = gzread(gzip->file, (char *)data + done, (unsigned)want), code;
        const char *what = gzerror(gzip->file, &code);

        if (n < 0 || (code != Z_OK && code != Z_STREAM_END))
            return fail(gzip, code, what);
        if (n == 0)
            break;
        done += (size_t)n;
    }
    *n_out = done;
    return TRI_OK;
}
