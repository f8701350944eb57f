/*
 * weights_safetensors.c - the tensors of a safetensors file, as weights.h lists them.
 */
#include <string.h>

#include <trireme/checkpoint.h>

#include "train/checkpoint/format.h"
#include "train/checkpoint/weights.h"

static tri_status data(trii_weights *weights, int64_t index, const void **data_out)
{
    *data_out = tri_safetensors_at(weights->file, index)->data;
    return TRI_OK;
}

static tri_status run(trii_weights *weights, int64_t index, int64_t k, trii_weights_run *run_out)
{
    const tri_safetensors_entry *e = tri_safetensors_at(weights->file, index);

    *run_out = (trii_weights_run){.type_name = e->type_name,
                                  .path = trii_safetensors_path(weights->file),
                                  .at = trii_safetensors_offset(weights->file, e),
                                  .bytes = k == 0 ? e->bytes : 0};
    return TRI_OK;
}

static void close_file(trii_weights *weights)
{
    tri_safetensors_close(weights->file);
}

static const trii_weights_kind kind = {"safetensors", data, NULL, run, close_file};

const tri_metadata *trii_weights_texts(const trii_weights *weights, int64_t *n_out)
{
    return weights->kind == &kind ? trii_safetensors_texts(weights->file, n_out) : NULL;
}

tri_status trii_weights_safetensors(const char *path, trii_weights *weights)
{
    tri_safetensors *file = NULL;
    tri_status status = tri_safetensors_open(path, &file);

    if (status != TRI_OK)
        return status;
    weights->kind = &kind;
    weights->file = file;
    status = trii_weights_room(weights, tri_safetensors_count(file));
    for (; status == TRI_OK && weights->n < tri_safetensors_count(file); weights->n++) {
        const tri_safetensors_entry *e = tri_safetensors_at(file, weights->n);
        tri_state_source *source = &weights->sources[weights->n];

        *source = (tri_state_source){.name = e->name, .dtype = e->dtype, .ndim = e->ndim};
        memcpy(source->shape, e->shape, sizeof(e->shape));
    }
    return status;
}
