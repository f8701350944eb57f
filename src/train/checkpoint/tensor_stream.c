/*
 * tensor_stream.c - see tensor_stream.h. Called by convert.c and the tool.
 *
 * Elements are read() and not taken from the mapped file: a mapped page stays in this process's
 * memory, and a disk that fails would end it by SIGBUS.
 */
#include "train/checkpoint/tensor_stream.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/descriptor.h"
#include "os/file.h"
#include "train/torch/crc32.h"
#include "train/torch/strided.h"
#include "train/torch/torch_storages.h"

#define BLOCK ((size_t)1 << 18) /* it stays in the cache from the read to the write */

/* --- opening -------------------------------------------------------------- */

static tri_status make_room(trii_tensor_stream *s, int64_t n)
{
    s->entries = trii_alloc((size_t)n, sizeof(*s->entries), "tensors of a file");
    s->block = trii_alloc_aligned(64, BLOCK, "a block of a file");
    return s->entries != NULL && s->block != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

static tri_status open_torch(trii_tensor_stream *s)
{
    tri_status status = tri_torch_open(s->path, &s->torch);

    if (status == TRI_OK)
        status = make_room(s, tri_torch_count(s->torch));
    if (status != TRI_OK)
        return status;
    for (s->n = 0; s->n < tri_torch_count(s->torch); s->n++) {
        const tri_torch_tensor *t = tri_torch_at(s->torch, s->n);
        tri_safetensors_entry *e = &s->entries[s->n];

        *e = (tri_safetensors_entry){.name = t->name,
                                     .dtype = t->dtype,
                                     .type_name = t->type_name,
                                     .ndim = t->ndim,
                                     .bytes = (size_t)t->bytes};
        memcpy(e->shape, t->shape, sizeof(e->shape));
    }
    return trii_input_open(s->path, &s->fd);
}

static tri_status open_safetensors(trii_tensor_stream *s)
{
    tri_status status = tri_safetensors_open(s->path, &s->safetensors);

    if (status == TRI_OK)
        status = make_room(s, tri_safetensors_count(s->safetensors));
    if (status != TRI_OK)
        return status;
    for (s->n = 0; s->n < tri_safetensors_count(s->safetensors); s->n++) {
        s->entries[s->n] = *tri_safetensors_at(s->safetensors, s->n);
        s->entries[s->n].data = NULL;
    }
    return trii_input_open(s->path, &s->fd);
}

static tri_status open_pieces(trii_tensor_stream *s)
{
    trii_part_reader *r = &s->part->reader;
    tri_status status = trii_part_open(s->part->dir, &s->part->manifest, TRII_MODEL_NAME, r);

    if (status == TRI_OK)
        status = make_room(s, trii_part_count(r));
    for (s->n = 0; status == TRI_OK && s->n < trii_part_count(r); s->n++) {
        tri_safetensors_entry *e = &s->entries[s->n];

        *e = trii_part_at(r, s->n);
        e->bytes = tri_dtype_size(e->dtype);
        for (int d = 0; d < e->ndim; d++)
            e->bytes *= (size_t)e->shape[d];
    }
    return status;
}

static tri_status open_checkpoint(trii_tensor_stream *s)
{
    int64_t n_pieces;
    tri_status status;

    s->part = trii_alloc(1, sizeof(*s->part), "checkpoint");
    if (s->part == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_checkpoint_find(s->path, &s->part->dir, &s->part->manifest);
    if (status != TRI_OK) {
        trii_free(s->part);
        s->part = NULL;
        return status;
    }
    (void)trii_stored_part(&s->part->manifest.stored, TRII_MODEL_NAME, &n_pieces);
    trii_free(s->path);
    s->path = trii_path_join(s->part->dir, TRII_MODEL_FILE);
    if (s->path == NULL)
        return TRI_ERR_NO_MEMORY;
    return n_pieces > 0 ? open_pieces(s) : open_safetensors(s);
}

static tri_status open_file(trii_tensor_stream *s)
{
    trii_mapping map = {.data = NULL};
    tri_status status = trii_mapping_open(s->path, &map);
    bool is_torch;

    if (status != TRI_OK)
        return status;
    is_torch = trii_torch_is_file(&map);
    s->is_legacy = is_torch && trii_torch_is_legacy(&map);
    trii_mapping_close(&map);
    return is_torch ? open_torch(s) : open_safetensors(s);
}

tri_status trii_tensor_stream_open(const char *path, trii_tensor_stream *stream_out)
{
    bool is_folder = false;
    tri_status status;

    *stream_out = (trii_tensor_stream){.fd = -1, .path = trii_strdup(path, "path")};
    status =
        stream_out->path != NULL ? trii_path_leads_to_folder(path, &is_folder) : TRI_ERR_NO_MEMORY;
    if (status != TRI_OK)
        return status;
    return is_folder ? open_checkpoint(stream_out) : open_file(stream_out);
}

const char *trii_tensor_stream_kind(const trii_tensor_stream *stream)
{
    if (stream->torch != NULL)
        return stream->is_legacy ? "torch.save, as torch before 1.6 writes it" : "torch.save (ZIP)";
    return "safetensors";
}

void trii_tensor_stream_close(trii_tensor_stream *stream)
{
    if (stream->part != NULL) {
        trii_part_close(&stream->part->reader);
        trii_manifest_fini(&stream->part->manifest);
        trii_free(stream->part->dir);
        trii_free(stream->part);
    }
    tri_torch_close(stream->torch);
    tri_safetensors_close(stream->safetensors);
    trii_fd_close(stream->fd);
    trii_free(stream->block);
    trii_free(stream->entries);
    trii_free(stream->path);
    *stream = (trii_tensor_stream){.fd = -1};
}

/* --- reading -------------------------------------------------------------- */

/* to: NULL: they are only summed. crc_io: NULL: nothing is. */
static tri_status copy(trii_tensor_stream *s, uint64_t at, uint64_t bytes, uint32_t *crc_io,
                       const trii_sink *to)
{
    tri_status status = TRI_OK;

    while (bytes > 0 && status == TRI_OK) {
        size_t now = bytes < BLOCK ? (size_t)bytes : BLOCK;

        status = trii_input_read(s->fd, s->path, at, s->block, now);
        if (status == TRI_OK && crc_io != NULL)
            *crc_io = trii_crc32(*crc_io, s->block, now);
        if (status == TRI_OK && to != NULL)
            status = to->put(to->arg, s->block, now);
        at += now;
        bytes -= now;
    }
    return status;
}

static tri_status compare(const trii_tensor_stream *s, const tri_torch_tensor *t, uint32_t crc,
                          uint32_t told)
{
    if (crc != told)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: offset %" PRIu64 ": the %" PRIu64
                         " bytes of storage %s are damaged: their CRC-32 is not the one that the "
                         "file says",
                         s->path, t->file_offset, t->storage_bytes, t->storage);
    trii_torch_set_checked(s->torch, t);
    return TRI_OK;
}

/* Elements that lie apart: gathered from the mapped file, block by block. */
static tri_status give_strided(trii_tensor_stream *s, const tri_torch_tensor *t,
                               const trii_sink *to)
{
    const uint64_t most = BLOCK / t->element_bytes, n = t->bytes / t->element_bytes;
    const void *first = NULL;
    tri_status status = trii_torch_data(s->torch, t, &first);

    for (uint64_t i = 0; i < n && status == TRI_OK; i += most) {
        uint64_t now = n - i < most ? n - i : most;

        trii_strided_range(s->block, first, t, i, now);
        status = to->put(to->arg, s->block, (size_t)now * t->element_bytes);
    }
    return status;
}

static tri_status give_torch(trii_tensor_stream *s, const tri_torch_tensor *t, const trii_sink *to)
{
    uint32_t told = 0, crc = 0;
    bool check = trii_torch_has_unchecked(s->torch, t, &told);
    uint64_t at = t->file_offset + (uint64_t)t->offset * t->element_bytes;
    tri_status status = TRI_OK;

    if (trii_is_contiguous(t) && t->bytes == t->storage_bytes) {
        status = copy(s, at, t->bytes, check ? &crc : NULL, to);
        return status == TRI_OK && check ? compare(s, t, crc, told) : status;
    }
    if (check)
        status = copy(s, t->file_offset, t->storage_bytes, &crc, NULL);
    if (check && status == TRI_OK)
        status = compare(s, t, crc, told);
    if (status != TRI_OK)
        return status;
    return trii_is_contiguous(t) ? copy(s, at, t->bytes, NULL, to) : give_strided(s, t, to);
}

tri_status trii_tensor_stream_give(trii_tensor_stream *stream, int64_t index, const trii_sink *to)
{
    const tri_safetensors_entry *e = &stream->entries[index];
    const void *data;
    tri_status status;

    if (e->bytes == 0)
        return TRI_OK;
    if (stream->torch != NULL)
        return give_torch(stream, tri_torch_at(stream->torch, index), to);
    if (stream->safetensors != NULL)
        return copy(stream,
                    trii_safetensors_offset(stream->safetensors,
                                            tri_safetensors_at(stream->safetensors, index)),
                    e->bytes, NULL, to);
    status = trii_part_data(&stream->part->reader, index, &data);
    for (size_t at = 0; at < e->bytes && status == TRI_OK; at += BLOCK)
        status = to->put(to->arg, (const char *)data + at,
                         e->bytes - at < BLOCK ? e->bytes - at : BLOCK);
    return status;
}
