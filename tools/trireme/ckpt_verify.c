/*
 * ckpt_verify.c - `trireme ckpt verify PATH`: reads all of a file, or of every checkpoint of a
 * folder, compares checksums, and counts NaN and Inf.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "ckpt.h"
#include "os/file.h"
#include "os/folder.h"
#include "train/checkpoint/tensor_stream.h"

/* --- NaN and Inf ---------------------------------------------------------- */

typedef struct odd_count {
    tri_dtype dtype;
    uint64_t nan, inf;
} odd_count;

/* How the bits of a type are those of a NaN or an Inf: all of the exponent is set. */
typedef struct float_bits {
    uint64_t exponent, mantissa;
} float_bits;

static bool bits_of(tri_dtype dtype, float_bits *bits_out)
{
    switch (dtype) {
    case TRI_DTYPE_F64:
        *bits_out = (float_bits){UINT64_C(0x7ff) << 52, (UINT64_C(1) << 52) - 1};
        return true;
    case TRI_DTYPE_F32:
        *bits_out = (float_bits){0x7f800000, 0x007fffff};
        return true;
    case TRI_DTYPE_F16:
        *bits_out = (float_bits){0x7c00, 0x03ff};
        return true;
    case TRI_DTYPE_BF16:
        *bits_out = (float_bits){0x7f80, 0x007f};
        return true;
    case TRI_DTYPE_F8_E5M2:
        *bits_out = (float_bits){0x7c, 0x03};
        return true;
    default:
        return false;
    }
}

static void count_bits(odd_count *c, uint64_t value, const float_bits *bits)
{
    if ((value & bits->exponent) != bits->exponent)
        return;
    c->nan += (value & bits->mantissa) != 0;
    c->inf += (value & bits->mantissa) == 0;
}

/* Blocks end between elements: they are a power of two, and a piece of a tensor is whole elements.
 */
static tri_status count(void *arg, const void *data, size_t bytes)
{
    odd_count *c = arg;
    const unsigned char *at = data, *end = at + bytes;
    const size_t size = tri_dtype_size(c->dtype);
    float_bits bits;

    if (c->dtype == TRI_DTYPE_F8_E4M3) { /* no Inf, and a NaN is 0x7f or 0xff */
        for (; at < end; at++)
            c->nan += (*at & 0x7f) == 0x7f;
        return TRI_OK;
    }
    if (!bits_of(c->dtype, &bits))
        return TRI_OK;
    for (; at < end; at += size) {
        uint64_t value = 0;

        memcpy(&value, at, size);
        count_bits(c, value, &bits);
    }
    return TRI_OK;
}

/* --- a file --------------------------------------------------------------- */

typedef struct verdict {
    int64_t n, damaged, odd; /* tensors */
    uint64_t bytes;
} verdict;

/* A failure of the machine ends it; damage is told and counted. */
static bool is_damage(tri_status status)
{
    return status == TRI_ERR_FORMAT || status == TRI_ERR_UNSUPPORTED;
}

static void tell(const char *text)
{
    ckpt_print_text(text, 0);
    putchar('\n');
}

static tri_status verify_tensors(trii_tensor_stream *stream, verdict *v)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < stream->n && status == TRI_OK; i++) {
        const tri_safetensors_entry *e = &stream->entries[i];
        odd_count c = {.dtype = e->dtype};

        status = trii_tensor_stream_give(stream, i, &(trii_sink){count, &c});
        v->n++;
        v->bytes += e->bytes;
        if (is_damage(status)) {
            printf("tensor ");
            ckpt_print_text(e->name, 0);
            printf(": ");
            tell(tri_last_error());
            v->damaged++;
            status = TRI_OK;
        } else if (status == TRI_OK && (c.nan > 0 || c.inf > 0)) {
            printf("tensor ");
            ckpt_print_text(e->name, 0);
            printf(": %" PRIu64 " NaN, %" PRIu64 " Inf\n", c.nan, c.inf);
            v->odd++;
        }
    }
    return status;
}

/* One of the files; NULL: they are not DeepSpeed's. */
static tri_status file_of_states(trii_tensor_stream *stream, char **own_path_out)
{
    trii_weights *weights = &stream->weights;
    trii_weights_run run = {.path = NULL};
    tri_status status = TRI_OK;

    *own_path_out = NULL;
    if (strcmp(weights->kind->name, "DeepSpeed") != 0)
        return TRI_OK;
    for (int64_t i = 0; i < weights->n && run.path == NULL && status == TRI_OK; i++)
        status = weights->kind->run(weights, i, 0, &run);
    if (status != TRI_OK || run.path == NULL)
        return status;
    *own_path_out = trii_strdup(run.path, "path");
    return *own_path_out != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

/* summed: something else has a checksum of all of it. whole_io: stays as it is unless something is
 * damaged. */
static tri_status verify_weights(const char *path, bool summed, bool *whole_io,
                                 char **own_states_out)
{
    trii_tensor_stream stream;
    verdict v = {.n = 0};
    ckpt_kind kind;
    tri_status status = trii_tensor_stream_open(path, TRII_WEIGHTS_ALL, &stream);

    if (is_damage(status)) {
        tell(tri_last_error());
        *whole_io = false;
        trii_tensor_stream_close(&stream);
        return TRI_OK;
    }
    if (status == TRI_OK) {
        kind = ckpt_kind_of(&stream);
        status = verify_tensors(&stream, &v);
    }
    *whole_io = *whole_io && v.damaged == 0;
    if (status == TRI_OK && v.n > 0) {
        ckpt_print_text(path, 0);
        printf(": %" PRId64 " tensor%s, ", v.n, v.n == 1 ? "" : "s");
        ckpt_print_bytes(v.bytes);
        printf(", %" PRId64 " damaged, %" PRId64 " with NaN or Inf%s\n", v.damaged, v.odd,
               summed || kind.has_checksums ? "" : "; it has no checksums to compare");
    }
    if (status == TRI_OK && own_states_out != NULL)
        status = file_of_states(&stream, own_states_out);
    trii_tensor_stream_close(&stream);
    return status;
}

static tri_status verify_file(const char *path, bool summed, bool *whole_io)
{
    return verify_weights(path, summed, whole_io, NULL);
}

/* The files of all ranks of DeepSpeed beside this one: more is in them than the weights. */
static tri_status verify_states(const char *first, bool *whole_io)
{
    static const char suffix[] = "_states.pt";
    char *folder = trii_path_beside(first, ""), **names = NULL;
    int n = 0;
    tri_status status =
        folder != NULL ? trii_folder_list(folder[0] != '\0' ? folder : ".", INT_MAX, &names, &n)
                       : TRI_ERR_NO_MEMORY;

    for (int i = 0; i < n && status == TRI_OK; i++) {
        const size_t bytes = strlen(names[i]), end = sizeof(suffix) - 1;
        char *path;

        if (bytes < end || strcmp(names[i] + bytes - end, suffix) != 0)
            continue;
        path = trii_path_beside(first, names[i]);
        status = path != NULL ? verify_file(path, false, whole_io) : TRI_ERR_NO_MEMORY;
        trii_free(path);
    }
    trii_folder_free_names(names, n);
    trii_free(folder);
    return status;
}

/* --- checkpoints ---------------------------------------------------------- */

/* The manifest has a checksum of every file; after that there are NaN and Inf to be found. */
static tri_status verify_checkpoint(const char *dir, bool *whole_io)
{
    trii_manifest manifest;
    size_t suffix = strlen(TRII_TENSORS_SUFFIX);
    tri_status status = trii_manifest_read(dir, &manifest);

    if (is_damage(status) || status == TRI_ERR_NOT_FOUND) {
        tell(tri_last_error());
        *whole_io = false;
        return TRI_OK;
    }
    for (int i = 0; status == TRI_OK && i < manifest.n_files; i++) {
        const char *file = manifest.files[i].name;
        size_t n = strlen(file);
        char *path;

        if (n <= suffix || strcmp(file + n - suffix, TRII_TENSORS_SUFFIX) != 0)
            continue;
        path = trii_path_join(dir, file);
        status = path != NULL ? verify_file(path, true, whole_io) : TRI_ERR_NO_MEMORY;
        trii_free(path);
    }
    if (status == TRI_OK) {
        ckpt_print_text(dir, 0);
        printf(": whole, step %" PRId64 "\n", manifest.info.step);
    }
    trii_manifest_fini(&manifest);
    return status;
}

static tri_status verify_folder(const char *folder, bool *whole_io)
{
    trii_saved *saved = NULL;
    int n = 0;
    tri_status status = TRI_OK;

    if (trii_saved_look_at(folder).has_manifest)
        return verify_checkpoint(folder, whole_io);
    status = trii_saved_list(folder, &saved, &n);
    for (int i = 0; i < n && status == TRI_OK; i++) {
        char *dir = trii_path_join(folder, saved[i].name);

        status = dir != NULL ? verify_checkpoint(dir, whole_io) : TRI_ERR_NO_MEMORY;
        trii_free(dir);
    }
    trii_saved_free(saved, n);
    return status;
}

tri_status ckpt_verify(const char *path, bool *whole_out)
{
    ckpt_place place;
    char *states = NULL;
    tri_status status = ckpt_place_of(path, &place);

    *whole_out = true;
    if (status == TRI_OK && place.has_checkpoints)
        status = verify_folder(place.own_path, whole_out);
    else if (status == TRI_OK)
        status = verify_weights(place.own_path, false, whole_out, &states);
    if (status == TRI_OK && states != NULL)
        status = verify_states(states, whole_out);
    trii_free(states);
    trii_free(place.own_path);
    return status;
}
