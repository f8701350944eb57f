/*
 * tensor_stream.c - see tensor_stream.h. Called by convert.c and the tool.
 *
 * Elements are read() and not taken from the mapped file: a mapped page stays in this process's
 * memory, and a disk that fails would end it by SIGBUS. Those that no file has in a row are put
 * together first: of a checkpoint of Trireme block by block, of torch.distributed.checkpoint a
 * whole tensor in memory.
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

#define BLOCK ((size_t)1 << 18)  /* it stays in the cache from the read to the write */
#define WINDOW ((size_t)8 << 20) /* what of a storage is read for elements that lie apart, */
#define MOST_PER_ELEMENT 16      /* unless that is so many times what is wanted of it */

/* --- opening -------------------------------------------------------------- */

static tri_status make_room(trii_tensor_stream *s, int64_t n)
{
    s->entries = trii_alloc((size_t)n, sizeof(*s->entries), "tensors of a file");
    s->block = trii_alloc_aligned(64, BLOCK, "a block of a file");
    return s->entries != NULL && s->block != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

static size_t bytes_of(const tri_safetensors_entry *e)
{
    size_t bytes = tri_dtype_size(e->dtype);

    for (int d = 0; d < e->ndim; d++)
        bytes *= (size_t)e->shape[d];
    return bytes;
}

static tri_status list_weights(trii_tensor_stream *s)
{
    tri_status status = make_room(s, s->weights.n);

    for (s->n = 0; status == TRI_OK && s->n < s->weights.n; s->n++) {
        const tri_state_source *source = &s->weights.sources[s->n];
        tri_safetensors_entry *e = &s->entries[s->n];
        trii_weights_run run;

        *e = (tri_safetensors_entry){
            .name = source->name, .dtype = source->dtype, .ndim = source->ndim};
        memcpy(e->shape, source->shape, sizeof(e->shape));
        status = s->weights.kind->run(&s->weights, s->n, 0, &run);
        if (status != TRI_OK)
            break;
        e->type_name = run.type_name;
        e->bytes = e->dtype != TRI_DTYPE_NONE ? bytes_of(e) : (size_t)run.bytes;
    }
    return status;
}

static tri_status list_part(trii_tensor_stream *s)
{
    trii_part_reader *r = &s->part->reader;
    tri_status status = make_room(s, trii_part_count(r));

    for (s->n = 0; status == TRI_OK && s->n < trii_part_count(r); s->n++) {
        tri_safetensors_entry *e = &s->entries[s->n];

        *e = trii_part_at(r, s->n);
        e->bytes = bytes_of(e);
    }
    return status;
}

static tri_status open_checkpoint(trii_tensor_stream *s, const char *path, trii_weights_scope scope)
{
    char *model = NULL;
    int64_t n_pieces;
    tri_status status;

    s->part = trii_alloc(1, sizeof(*s->part), "checkpoint");
    if (s->part == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_checkpoint_find(path, &s->part->dir, &s->part->manifest);
    if (status != TRI_OK) {
        trii_free(s->part);
        s->part = NULL;
        return status;
    }
    (void)trii_stored_part(&s->part->manifest.stored, TRII_MODEL_NAME, &n_pieces);
    if (n_pieces > 0) {
        status =
            trii_part_open(s->part->dir, &s->part->manifest, TRII_MODEL_NAME, &s->part->reader);
        return status == TRI_OK ? list_part(s) : status;
    }
    model = trii_path_join(s->part->dir, TRII_MODEL_FILE);
    status = model != NULL ? trii_weights_open(model, scope, &s->weights) : TRI_ERR_NO_MEMORY;
    trii_free(model);
    return status == TRI_OK ? list_weights(s) : status;
}

tri_status trii_folder_has_checkpoints(const char *folder, bool *has_out)
{
    char *manifest = trii_path_join(folder, TRII_MANIFEST_FILE);
    trii_saved *saved = NULL;
    int n = 0;
    tri_status status = manifest != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    *has_out =
        status == TRI_OK && trii_path_is_file(manifest) && trii_saved_look_at(folder).has_manifest;
    if (status == TRI_OK && !*has_out)
        status = trii_saved_list(folder, &saved, &n);
    trii_free(manifest);
    *has_out = *has_out || n > 0;
    trii_saved_free(saved, n);
    return status;
}

tri_status trii_tensor_stream_open(const char *path, trii_weights_scope scope,
                                   trii_tensor_stream *stream_out)
{
    trii_tensor_stream *s = stream_out;
    bool is_folder = false, has_checkpoints = false;
    tri_status status;

    *s = (trii_tensor_stream){.fd = -1};
    status = trii_path_leads_to_folder(path, &is_folder);
    if (status == TRI_OK && is_folder)
        status = trii_folder_has_checkpoints(path, &has_checkpoints);
    if (status == TRI_OK && has_checkpoints)
        return open_checkpoint(s, path, scope);
    if (status == TRI_OK)
        status = trii_weights_open(path, scope, &s->weights);
    return status == TRI_OK ? list_weights(s) : status;
}

void trii_tensor_stream_close(trii_tensor_stream *stream)
{
    trii_weights_close(&stream->weights);
    if (stream->part != NULL) {
        if (stream->part->reader.path != NULL)
            trii_part_close(&stream->part->reader);
        trii_manifest_fini(&stream->part->manifest);
        trii_free(stream->part->dir);
        trii_free(stream->part);
    }
    trii_fd_close(stream->fd);
    trii_free(stream->path);
    trii_free(stream->window);
    trii_free(stream->block);
    trii_free(stream->entries);
    *stream = (trii_tensor_stream){.fd = -1};
}

/* --- reading -------------------------------------------------------------- */

static tri_status open_file(trii_tensor_stream *s, const char *path)
{
    if (s->path != NULL && strcmp(s->path, path) == 0)
        return TRI_OK;
    trii_fd_close(s->fd);
    s->fd = -1;
    trii_free(s->path);
    s->path = trii_strdup(path, "path");
    return s->path != NULL ? trii_input_open(path, &s->fd) : TRI_ERR_NO_MEMORY;
}

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

static tri_status compare(const trii_tensor_stream *s, const trii_weights_run *run, uint32_t crc,
                          uint32_t told)
{
    if (crc != told)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: offset %" PRIu64 ": the %" PRIu64
                         " bytes of storage %s are damaged: their CRC-32 is not the one that the "
                         "file says",
                         s->path, run->base + run->tensor->file_offset, run->tensor->storage_bytes,
                         run->tensor->storage);
    trii_torch_set_checked(run->torch, run->tensor);
    return TRI_OK;
}

/* Elements far from each other, such as those of a matrix that is transposed: from the mapped file,
 * all of which may be in memory then, though it need not. */
static tri_status give_mapped(trii_tensor_stream *s, const trii_weights_run *run,
                              const trii_sink *to)
{
    const tri_torch_tensor *t = run->tensor;
    const uint64_t most = BLOCK / t->element_bytes, end = (run->at + run->bytes) / t->element_bytes;
    const void *first = NULL;
    tri_status status = trii_torch_data(run->torch, t, &first);

    for (uint64_t i = run->at / t->element_bytes; i < end && status == TRI_OK; i += most) {
        uint64_t now = end - i < most ? end - i : most;

        trii_strided_range(s->block, first, 0, t, i, now);
        status = to->put(to->arg, s->block, (size_t)now * t->element_bytes);
    }
    return status;
}

/* How many elements from this one on a window has, at most `most`; *low_out is where it begins. 0:
 * too few for what is read. */
static uint64_t fit_window(const tri_torch_tensor *t, uint64_t first, uint64_t most,
                           uint64_t *low_out, size_t *bytes_out)
{
    for (uint64_t n = most; n > 0; n /= 2) {
        uint64_t high;

        trii_strided_span(t, first, n, low_out, &high);
        if (high - *low_out >= WINDOW / t->element_bytes)
            continue;
        *bytes_out = (size_t)(high - *low_out + 1) * t->element_bytes;
        return n == most || *bytes_out / MOST_PER_ELEMENT <= (size_t)n * t->element_bytes ? n : 0;
    }
    return 0;
}

/* Elements that lie apart, but near each other: gathered from what is read. storage: where in the
 * file the tensor's first one is. */
static tri_status give_strided(trii_tensor_stream *s, const trii_weights_run *run, uint64_t storage,
                               const trii_sink *to)
{
    const tri_torch_tensor *t = run->tensor;
    const uint64_t end = (run->at + run->bytes) / t->element_bytes;
    tri_status status = TRI_OK;

    if (s->window == NULL)
        s->window = trii_alloc_aligned(64, WINDOW, "a part of a file");
    if (s->window == NULL)
        return TRI_ERR_NO_MEMORY;
    for (uint64_t i = run->at / t->element_bytes, now; i < end && status == TRI_OK; i += now) {
        const uint64_t most = BLOCK / t->element_bytes, left = end - i;
        trii_weights_run rest = *run;
        uint64_t low;
        size_t bytes;

        now = fit_window(t, i, left < most ? left : most, &low, &bytes);
        if (now == 0) {
            rest.at = i * t->element_bytes;
            rest.bytes = left * t->element_bytes;
            return give_mapped(s, &rest, to);
        }
        status =
            trii_input_read(s->fd, s->path, storage + low * t->element_bytes, s->window, bytes);
        if (status != TRI_OK)
            break;
        trii_strided_range(s->block, s->window, low, t, i, now);
        status = to->put(to->arg, s->block, (size_t)now * t->element_bytes);
    }
    return status;
}

static tri_status give_torch(trii_tensor_stream *s, const trii_weights_run *run,
                             const trii_sink *to)
{
    const tri_torch_tensor *t = run->tensor;
    uint32_t told = 0, crc = 0;
    bool check = trii_torch_has_unchecked(run->torch, t, &told);
    uint64_t storage = run->base + t->file_offset,
             at = storage + (uint64_t)t->offset * t->element_bytes + run->at;
    tri_status status = TRI_OK;

    if (trii_is_contiguous(t) && run->bytes == t->storage_bytes) {
        status = copy(s, at, run->bytes, check ? &crc : NULL, to);
        return status == TRI_OK && check ? compare(s, run, crc, told) : status;
    }
    if (check)
        status = copy(s, storage, t->storage_bytes, &crc, NULL);
    if (check && status == TRI_OK)
        status = compare(s, run, crc, told);
    if (status != TRI_OK)
        return status;
    return trii_is_contiguous(t) ? copy(s, at, run->bytes, NULL, to)
                                 : give_strided(s, run, at - run->at, to);
}

static tri_status put_blocks(const char *data, size_t bytes, const trii_sink *to)
{
    tri_status status = TRI_OK;

    for (size_t at = 0; at < bytes && status == TRI_OK; at += BLOCK)
        status = to->put(to->arg, data + at, bytes - at < BLOCK ? bytes - at : BLOCK);
    return status;
}

static tri_status give_run(trii_tensor_stream *s, int64_t index, const trii_weights_run *run,
                           const trii_sink *to)
{
    const void *data = NULL;
    tri_status status;

    if (run->path == NULL) {
        status = s->weights.kind->data(&s->weights, index, &data);
        return status == TRI_OK ? put_blocks(data, run->bytes, to) : status;
    }
    status = open_file(s, run->path);
    if (status != TRI_OK)
        return status;
    return run->torch != NULL ? give_torch(s, run, to) : copy(s, run->at, run->bytes, NULL, to);
}

static tri_status give_part(trii_tensor_stream *s, int64_t index, const trii_sink *to)
{
    const size_t element = tri_dtype_size(s->entries[index].dtype);
    const int64_t n = (int64_t)(s->entries[index].bytes / element),
                  most = (int64_t)(BLOCK / element);
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < n && status == TRI_OK; i += most) {
        int64_t now = n - i < most ? n - i : most;
        const void *data = NULL;

        status = trii_part_range(&s->part->reader, index, i, now, &data);
        if (status == TRI_OK)
            status = to->put(to->arg, data, (size_t)now * element);
    }
    return status;
}

tri_status trii_tensor_stream_give(trii_tensor_stream *stream, int64_t index, const trii_sink *to)
{
    tri_status status = TRI_OK;

    if (stream->entries[index].bytes == 0)
        return TRI_OK;
    if (stream->weights.kind == NULL)
        return give_part(stream, index, to);
    for (int64_t k = 0; status == TRI_OK; k++) {
        trii_weights_run run;

        status = stream->weights.kind->run(&stream->weights, index, k, &run);
        if (status == TRI_OK && run.bytes == 0)
            break;
        if (status == TRI_OK)
            status = give_run(stream, index, &run, to);
    }
    return status;
}
