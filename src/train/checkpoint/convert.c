/*
 * convert.c - see convert.h. Called by the tool.
 */
#include "train/checkpoint/convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/file.h"
#include "train/checkpoint/float_convert.h"
#include "train/checkpoint/hub_write.h"
#include "train/checkpoint/tensor_stream.h"
#include "train/checkpoint/weights.h"
#include "train/torch/torch_write.h"

typedef struct converter {
    const trii_conversion *what;
    trii_converted *told;
    trii_tensor_stream from;
    tri_safetensors_entry *entries; /* [told->n]: those that are written, under their new names */
    int64_t *index_of;              /* [told->n]: in `from` */
    char **own_names;               /* [told->n]; NULL: of `from` */
    int64_t now;                    /* the entry that is given */
    const trii_sink *to;
    uint64_t done;
    char *block; /* what of it is converted */
} converter;

#define BLOCK ((size_t)1 << 18)

static tri_status put(converter *c, const void *data, size_t bytes)
{
    tri_status status = c->to->put(c->to->arg, data, bytes);

    c->done += bytes;
    if (status == TRI_OK && c->what->go_on != NULL &&
        !c->what->go_on(c->what->arg, c->done, c->told->bytes))
        status = TRII_FAIL(TRI_ERR_ABORTED, "stopped; %s is as it was", c->what->to);
    return status;
}

/* Whole elements, as all blocks of a stream. */
static tri_status pass(void *arg, const void *data, size_t bytes)
{
    converter *c = arg;
    const tri_dtype from = c->from.entries[c->index_of[c->now]].dtype,
                    to = c->entries[c->now].dtype;
    const size_t element = tri_dtype_size(from), most = BLOCK / tri_dtype_size(to);
    tri_status status = TRI_OK;

    if (from == to)
        return put(c, data, bytes);
    for (size_t i = 0, n = bytes / element; i < n && status == TRI_OK; i += most) {
        size_t now = n - i < most ? n - i : most;

        trii_float_convert(from, (const char *)data + i * element, to, c->block, now);
        status = put(c, c->block, now * tri_dtype_size(to));
    }
    return status;
}

static tri_status give(void *arg, int64_t index, const trii_sink *to)
{
    converter *c = arg;

    c->to = to;
    c->now = index;
    return trii_tensor_stream_give(&c->from, c->index_of[index], &(trii_sink){pass, c});
}

static bool has_prefix(const trii_tensor_stream *from, const char *prefix)
{
    for (int64_t i = 0; i < from->n; i++)
        if (strncmp(from->entries[i].name, prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

/* A prefix is one of all names or, as in tri_load, of those of the module's state. */
static tri_status open_from(converter *c)
{
    const trii_conversion *what = c->what;
    tri_status status = TRI_OK;

    if (what->prefix != NULL) {
        status = trii_tensor_stream_open(what->from, TRII_WEIGHTS_ALL, &c->from);
        if (status != TRI_OK || has_prefix(&c->from, what->prefix))
            return status;
        trii_tensor_stream_close(&c->from);
    }
    status = trii_tensor_stream_open(what->from, TRII_WEIGHTS_STATE, &c->from);
    if (status != TRI_ERR_FORMAT)
        return status;
    /* Perhaps there is only no usual key: all of it. */
    trii_tensor_stream_close(&c->from);
    return trii_tensor_stream_open(what->from, TRII_WEIGHTS_ALL, &c->from);
}

static tri_status rename_entry(converter *c, tri_safetensors_entry *e)
{
    for (int k = 0; k < c->what->n_renamings; k++) {
        const trii_renaming *r = &c->what->renamings[k];
        const size_t skip = strlen(r->old), room = strlen(r->by) + strlen(e->name) + 1;
        char *name;

        if (strncmp(e->name, r->old, skip) != 0)
            continue;
        name = trii_alloc(room, 1, "tensor's name");
        if (name == NULL)
            return TRI_ERR_NO_MEMORY;
        snprintf(name, room, "%s%s", r->by, e->name + skip);
        e->name = c->own_names[c->told->n] = name;
        break;
    }
    return TRI_OK;
}

/* What is read must not be replaced by some of it. */
static tri_status check_target(converter *c)
{
    tri_status status = TRI_OK;
    const trii_conversion *what = c->what;

    if (!trii_path_exists(what->to))
        return TRI_OK;
    for (int64_t i = 0; i < c->from.weights.n && status == TRI_OK; i++) {
        trii_weights_run run = {.bytes = 1};

        for (int64_t k = 0; status == TRI_OK && run.bytes > 0; k++) {
            status = c->from.weights.kind->run(&c->from.weights, i, k, &run);
            if (status == TRI_OK && run.path != NULL && trii_path_is_same_file(what->to, run.path))
                status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                                   "write %s: that is %s, which is read: name another file",
                                   what->to, run.path);
        }
    }
    return status;
}

static tri_status choose(converter *c)
{
    const char *prefix = c->what->prefix != NULL ? c->what->prefix : "";
    const size_t skip = strlen(prefix);
    tri_status status = TRI_OK;

    c->told->n_left_out = c->from.weights.n_left_out;
    memcpy(c->told->prefix, c->from.weights.prefix, sizeof(c->told->prefix));
    for (int64_t i = 0; i < c->from.n; i++) {
        tri_safetensors_entry e = c->from.entries[i];

        if (strncmp(e.name, prefix, skip) != 0) {
            c->told->n_left_out++;
            continue;
        }
        if (e.dtype == TRI_DTYPE_NONE)
            return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                             "%s: tensor %s is of %s, which Trireme has not; a prefix can choose "
                             "others",
                             c->what->from, e.name, e.type_name);
        if (c->what->dtype != TRI_DTYPE_NONE && trii_float_is_converted(e.dtype)) {
            e.bytes = e.bytes / tri_dtype_size(e.dtype) * tri_dtype_size(c->what->dtype);
            e.dtype = c->what->dtype;
        }
        e.name += skip;
        status = rename_entry(c, &e);
        if (status != TRI_OK)
            return status;
        c->index_of[c->told->n] = i;
        c->entries[c->told->n++] = e;
        c->told->bytes += e.bytes;
    }
    if (c->told->n == 0 && skip > 0)
        return TRII_FAIL(TRI_ERR_NOT_FOUND, "%s: no tensor's name begins with %s", c->what->from,
                         prefix);
    return TRI_OK;
}

static tri_status write_to(converter *c)
{
    static const tri_metadata format = {"format", "pt"}; /* transformers asks for it */
    const trii_conversion *what = c->what;
    const trii_feed feed = {give, c};
    const int64_t n = c->told->n;
    int64_t n_meta = 1;
    const tri_metadata *meta = trii_weights_texts(&c->from.weights, &n_meta);

    if (what->kind == TRII_CONVERT_HUB && n_meta == 0) {
        n_meta = 1;
        meta = NULL;
    }
    if (meta == NULL)
        meta = &format;
    switch (what->kind) {
    case TRII_CONVERT_TORCH:
        return trii_torch_write(what->to, c->entries, n, &feed);
    case TRII_CONVERT_HUB:
        return trii_hub_write(&(trii_hub){.path = what->to,
                                          .entries = c->entries,
                                          .n = n,
                                          .meta = meta,
                                          .n_meta = (int)n_meta,
                                          .shard_bytes = what->shard_bytes},
                              &feed);
    case TRII_CONVERT_SAFETENSORS:
        break;
    }
    return trii_safetensors_write_fed(what->to, c->entries, n, meta, (int)n_meta, &feed);
}

static tri_status convert(converter *c)
{
    tri_status status = open_from(c);

    if (status != TRI_OK)
        return status;
    c->entries = trii_alloc((size_t)c->from.n, sizeof(*c->entries), "tensors");
    c->index_of = trii_alloc((size_t)c->from.n, sizeof(*c->index_of), "tensors");
    c->own_names = trii_alloc((size_t)c->from.n, sizeof(*c->own_names), "names of tensors");
    c->block = trii_alloc_aligned(64, BLOCK, "a block of a file");
    if (c->entries == NULL || c->index_of == NULL || c->own_names == NULL || c->block == NULL)
        return TRI_ERR_NO_MEMORY;
    status = check_target(c);
    if (status == TRI_OK)
        status = choose(c);
    return status == TRI_OK ? write_to(c) : status;
}

tri_status trii_convert(const trii_conversion *what, trii_converted *told_out)
{
    converter c = {.what = what, .told = told_out, .from.fd = -1};
    tri_status status;

    *told_out = (trii_converted){.n = 0};
    status = convert(&c);
    trii_tensor_stream_close(&c.from);
    for (int64_t i = 0; c.own_names != NULL && i < told_out->n; i++)
        trii_free(c.own_names[i]);
    trii_free(c.own_names);
    trii_free(c.block);
    trii_free(c.entries);
    trii_free(c.index_of);
    return status;
}
