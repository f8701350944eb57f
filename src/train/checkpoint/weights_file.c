/*
 * weights_file.c - what all kinds of weights.h share: one file by its first bytes, the checksums,
 * the end.
 */
#include <string.h>

#include "base/err.h"
#include "os/file.h"
#include "train/checkpoint/weights.h"
#include "train/torch/torch_storages.h"

/* Eight bytes of a length, then JSON: what does not begin so is no damaged file, but another one.
 */
static bool may_be_safetensors(const trii_mapping *map)
{
    const unsigned char *bytes = map->data;

    return map->bytes > 8 && bytes[8] == '{' && bytes[7] == 0 && bytes[6] == 0;
}

static tri_status refuse(const char *path, const trii_mapping *map)
{
    const char *what = trii_weights_foreign(map);

    return TRII_FAIL(TRI_ERR_FORMAT, "%s: %s", path,
                     what != NULL ? what : "neither a safetensors file nor one of torch.save");
}

tri_status trii_weights_open_file(const char *path, trii_weights_scope scope,
                                  trii_weights *weights_out)
{
    trii_mapping map = {.data = NULL};
    tri_status status = trii_mapping_open(path, &map);
    bool is_torch = status == TRI_OK && trii_torch_is_file(&map);

    if (status == TRI_OK && !is_torch && !may_be_safetensors(&map))
        status = refuse(path, &map);
    trii_mapping_close(&map);
    *weights_out = (trii_weights){.kind = NULL};
    if (status != TRI_OK)
        return status;
    return is_torch ? trii_weights_torch(path, scope, weights_out)
                    : trii_weights_safetensors(path, weights_out);
}

tri_status trii_weights_check(trii_weights *weights, const char *prefix)
{
    size_t skip = prefix != NULL ? strlen(prefix) : 0;
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < weights->n && weights->kind->check != NULL && status == TRI_OK; i++)
        if (skip == 0 || strncmp(weights->sources[i].name, prefix, skip) == 0)
            status = weights->kind->check(weights, i);
    return status;
}

void trii_weights_close(trii_weights *weights)
{
    if (weights->kind != NULL)
        weights->kind->close(weights);
    trii_free(weights->sources);
    *weights = (trii_weights){.kind = NULL};
}
