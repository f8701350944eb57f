/*
 * weights_safetensors.c - the tensors of a safetensors file, as weights.h lists them.
 */
#include <string.h>

#include <trireme/checkpoint.h>

#include "train/checkpoint/weights.h"

static tri_status data(trii_weights *weights, int64_t index, const void **data_out)
{
    *data_out = tri_safetensors_at(weights->file, index)->data;
    return TRI_OK;
}

static void close_file(trii_weights *weights)
{
    tri_safetensors_close(weights->file);
}

static const trii_weights_kind kind = {"safetensors", data, NULL, close_file};

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
