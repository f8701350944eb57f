/*
 * gzip.c - see gzip.h. zlib passes plain files through unchanged.
 */
#include "data/gzip.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/err.h"

struct trii_gzip {
    gzFile file;
    char *path;
};

tri_status trii_gzip_open(const char *path, trii_gzip **gzip_out)
{
    trii_gzip *g = trii_alloc(1, sizeof(*g), "compressed file");
    int cause;

    if (g == NULL)
        return TRI_ERR_NO_MEMORY;
    g->path = trii_strdup(path, "path");
    if (g->path == NULL) {
        trii_free(g);
        return TRI_ERR_NO_MEMORY;
    }
    errno = 0;
    g->file = gzopen(path, "rbe");
    cause = errno;
    if (g->file == NULL) {
        trii_gzip_close(g);
        if (cause == 0)
            return TRII_FAIL(TRI_ERR_NO_MEMORY, "open %s: out of memory", path);
        return TRII_FAIL(cause == ENOENT ? TRI_ERR_NOT_FOUND : TRI_ERR_IO, "open %s: %s", path,
                         strerror(cause));
    }
    (void)gzbuffer(g->file, 1u << 17);
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

/* OK at the proper end of the file. */
static tri_status why_short(trii_gzip *gzip)
{
    int code = Z_OK;
    const char *text = gzerror(gzip->file, &code);

    if (code == Z_OK || code == Z_STREAM_END)
        return TRI_OK;
    if (code == Z_ERRNO)
        return TRII_FAIL(TRI_ERR_IO, "read %s: %s", gzip->path, strerror(errno));
    if (code == Z_BUF_ERROR)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: truncated: the compressed data end too early",
                         gzip->path);
    return TRII_FAIL(TRI_ERR_FORMAT, "%s: damaged compressed data: %s", gzip->path, text);
}

tri_status trii_gzip_read(trii_gzip *gzip, void *data, size_t bytes, size_t *n_out)
{
    size_t done = 0;

    while (done < bytes) {
        size_t want = bytes - done < (1u << 30) ? bytes - done : (1u << 30);
        int n = gzread(gzip->file, (char *)data + done, (unsigned)want);

        if (n < (int)want) {
            tri_status status = why_short(gzip);

            if (status != TRI_OK)
                return status;
        }
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    *n_out = done;
    return TRI_OK;
}
