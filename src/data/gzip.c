/*
 * gzip.c - see gzip.h. The only user of zlib.
 */
#include "data/gzip.h"

#include <string.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/file.h"

#define GZIP_WINDOW (15 + 16) /* the largest window, in gzip's wrapping */
#define MAX_AT_ONCE (1u << 30)

struct trii_gzip {
    char *path;
    trii_mapping map;
    size_t at; /* bytes of the file that were used */
    bool compressed, open, ended;
    z_stream stream; /* of the current member, if it is open */
};

static bool is_member(const trii_gzip *g)
{
    const unsigned char *bytes = g->map.data;

    return g->map.bytes - g->at >= 2 && bytes[g->at] == 0x1f && bytes[g->at + 1] == 0x8b;
}

tri_status trii_gzip_open(const char *path, trii_gzip **gzip_out)
{
    trii_gzip *g = trii_alloc(1, sizeof(*g), "compressed file");
    tri_status status;

    if (g == NULL)
        return TRI_ERR_NO_MEMORY;
    g->path = trii_strdup(path, "path");
    status = g->path != NULL ? trii_mapping_open(path, &g->map) : TRI_ERR_NO_MEMORY;
    if (status != TRI_OK) {
        trii_gzip_close(g);
        return status;
    }
    g->compressed = is_member(g);
    *gzip_out = g;
    return TRI_OK;
}

void trii_gzip_close(trii_gzip *gzip)
{
    if (gzip == NULL)
        return;
    if (gzip->open)
        (void)inflateEnd(&gzip->stream);
    trii_mapping_close(&gzip->map);
    trii_free(gzip->path);
    trii_free(gzip);
}

/* What may follow a member: another one, zeros that fill a tape's block, or nothing. */
static tri_status next_member(trii_gzip *g)
{
    const unsigned char *bytes = g->map.data;
    size_t end = g->at;

    if (g->open)
        (void)inflateEnd(&g->stream);
    g->open = false;
    if (is_member(g)) {
        g->stream = (z_stream){0};
        if (inflateInit2(&g->stream, GZIP_WINDOW) != Z_OK)
            return TRII_FAIL(TRI_ERR_NO_MEMORY, "read %s: out of memory", g->path);
        g->open = true;
        return TRI_OK;
    }
    while (end < g->map.bytes && bytes[end] == 0)
        end++;
    if (end < g->map.bytes)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: %zu bytes that are not gzip data follow the compressed data", g->path,
                         g->map.bytes - g->at);
    g->ended = true;
    return TRI_OK;
}

/* Reads more compressed bytes, at least one unless the file ends. */
static tri_status inflate_some(trii_gzip *g, char *data, size_t bytes, size_t *n_out)
{
    size_t have = g->map.bytes - g->at;
    void *in;
    int code;

    if (!g->open) {
        tri_status status = next_member(g);

        if (status != TRI_OK || g->ended)
            return status;
    }
    /* zlib's input pointer is not const, but zlib does not write to it */
    memcpy(&in, &g->map.data, sizeof(in));
    g->stream.next_in = (unsigned char *)in + g->at;
    g->stream.avail_in = (unsigned)(have < MAX_AT_ONCE ? have : MAX_AT_ONCE);
    have = g->stream.avail_in;
    g->stream.next_out = (unsigned char *)data;
    g->stream.avail_out = (unsigned)(bytes < MAX_AT_ONCE ? bytes : MAX_AT_ONCE);
    bytes = g->stream.avail_out;
    code = inflate(&g->stream, Z_NO_FLUSH);
    g->at += have - g->stream.avail_in;
    *n_out = bytes - g->stream.avail_out;
    if (code == Z_STREAM_END)
        return next_member(g);
    if (code == Z_MEM_ERROR)
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "read %s: out of memory", g->path);
    if (code != Z_OK && code != Z_BUF_ERROR)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: damaged compressed data: %s", g->path,
                         g->stream.msg != NULL ? g->stream.msg : "a dictionary is needed");
    if (*n_out == 0 && g->at == g->map.bytes)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: truncated: the compressed data end too early",
                         g->path);
    return TRI_OK;
}

tri_status trii_gzip_read(trii_gzip *gzip, void *data, size_t bytes, size_t *n_out)
{
    size_t done = 0;

    if (!gzip->compressed) {
        done = gzip->map.bytes - gzip->at;
        done = done < bytes ? done : bytes;
        memcpy(data, (const char *)gzip->map.data + gzip->at, done);
        gzip->at += done;
        *n_out = done;
        return TRI_OK;
    }
    while (done < bytes && !gzip->ended) {
        size_t n = 0;
        tri_status status = inflate_some(gzip, (char *)data + done, bytes - done, &n);

        if (status != TRI_OK)
            return status;
        done += n;
    }
    *n_out = done;
    return TRI_OK;
}
