/*
 * checkpoint.c - state of modules and optimizers into files and back.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <trireme/nn.h>
#include <trireme/optim.h>

#include "base/alloc.h"
#include "base/err.h"
#include "checkpoint/format.h"

#define MODEL_FILE "model.safetensors"
#define OPTIMIZER_FILE "optimizer.safetensors"

/* --- state as entries of a file ----------------------------------------------------------------
 */

/* A module's or an optimizer's list of named tensors. */
typedef struct state_list {
    int64_t (*count)(void *owner);
    tri_state_entry (*get)(void *owner, int64_t index);
    void *owner;
} state_list;

static int64_t module_count(void *owner)
{
    return tri_module_state_count(owner);
}

static tri_state_entry module_get(void *owner, int64_t index)
{
    return tri_module_state(owner, index);
}

static int64_t optimizer_count(void *owner)
{
    return tri_optimizer_state_count(owner);
}

static tri_state_entry optimizer_get(void *owner, int64_t index)
{
    return tri_optimizer_state(owner, index);
}

static state_list list_of_module(tri_module *module)
{
    return (state_list){module_count, module_get, module};
}

static state_list list_of_optimizer(tri_optimizer *optimizer)
{
    return (state_list){optimizer_count, optimizer_get, optimizer};
}

/* Entries with a copy of every tensor's plain contents. */
typedef struct snapshot {
    tri_safetensors_entry *entries;
    int64_t n;
    char *data; /* of all; entries point into it */
} snapshot;

static void snapshot_fini(snapshot *s)
{
    trii_free(s->data);
    trii_free(s->entries);
    *s = (snapshot){0};
}

static void describe(tri_state_entry state, tri_safetensors_entry *entry)
{
    *entry = (tri_safetensors_entry){.name = state.name,
                                     .dtype = tri_tensor_dtype(state.tensor),
                                     .ndim = tri_tensor_ndim(state.tensor)};
    entry->bytes = tri_dtype_size(entry->dtype) * (size_t)tri_tensor_numel(state.tensor);
    for (int d = 0; d < entry->ndim; d++)
        entry->shape[d] = tri_tensor_size(state.tensor, d);
}

static tri_status snapshot_take(state_list list, snapshot *s)
{
    tri_status status = TRI_OK;
    size_t bytes = 0;
    char *at;

    *s = (snapshot){.n = list.count(list.owner)};
    s->entries = trii_alloc((size_t)s->n, sizeof(*s->entries), "state entries");
    if (s->entries == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < s->n; i++) {
        describe(list.get(list.owner, i), &s->entries[i]);
        bytes += s->entries[i].bytes;
    }
    at = s->data = trii_alloc(bytes, 1, "state");
    if (s->data == NULL)
        status = TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < s->n && status == TRI_OK; i++) {
        tri_safetensors_entry *entry = &s->entries[i];

        status = tri_copy_out(list.get(list.owner, i).tensor, at, entry->bytes);
        if (status != TRI_OK)
            status = TRII_FAIL_CTX(status, "state %s", entry->name);
        entry->data = at;
        at += entry->bytes;
    }
    if (status != TRI_OK)
        snapshot_fini(s);
    return status;
}

/* --- modules -------------------------------------------------------------------------------------
 */

static tri_status check_module(tri_module *module)
{
    tri_status status = tri_module_status(module);

    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "state of a failed module");
}

tri_status tri_save(tri_module *module, const char *path)
{
    snapshot s;
    tri_status status = check_module(module);

    if (status == TRI_OK)
        status = snapshot_take(list_of_module(module), &s);
    if (status != TRI_OK)
        return status;
    status = tri_safetensors_write(path, s.entries, s.n, &(tri_metadata){"format", "pt"}, 1);
    snapshot_fini(&s);
    return status;
}

tri_status tri_load(tri_module *module, const char *path)
{
    tri_safetensors *file;
    tri_state_source *sources;
    tri_status status = check_module(module);
    int64_t n;

    if (status == TRI_OK)
        status = tri_safetensors_open(path, &file);
    if (status != TRI_OK)
        return status;
    n = tri_safetensors_count(file);
    sources = trii_alloc((size_t)n, sizeof(*sources), "state sources");
    if (sources == NULL) {
        status = TRI_ERR_NO_MEMORY;
        goto end;
    }
    for (int64_t i = 0; i < n; i++) {
        const tri_safetensors_entry *e = tri_safetensors_get(file, i);

        sources[i] = (tri_state_source){
            .name = e->name, .dtype = e->dtype, .ndim = e->ndim, .data = e->data};
        memcpy(sources[i].shape, e->shape, sizeof(e->shape));
    }
    status = tri_module_load(module, sources, n);
    if (status != TRI_OK) /* what does not fit is the file */
        status = TRII_FAIL_CTX(status == TRI_ERR_INVALID_ARG ? TRI_ERR_FORMAT : status, "%s", path);
    trii_free(sources);
end:
    tri_safetensors_close(file);
    return status;
}

/* --- optimizers ----------------------------------------------------------------------------------
 */

static tri_status check_fits(const char *path, const tri_safetensors_entry *want,
                             const tri_safetensors_entry *have)
{
    if (have == NULL)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: no tensor %s", path, want->name);
    if (have->dtype != want->dtype || have->ndim != want->ndim ||
        memcmp(have->shape, want->shape, sizeof(want->shape)) != 0)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: tensor %s has another shape or dtype (%s, %d "
                         "dimensions) than here (%s, %d)",
                         path, want->name, tri_dtype_name(have->dtype), have->ndim,
                         tri_dtype_name(want->dtype), want->ndim);
    return TRI_OK;
}

/* All is checked before the first tensor is written. */
static tri_status restore_optimizer(tri_optimizer *optimizer, const char *path)
{
    int64_t n = tri_optimizer_state_count(optimizer);
    tri_safetensors *file;
    tri_status status = tri_safetensors_open(path, &file);

    if (status != TRI_OK)
        return status;
    if (tri_safetensors_count(file) != n)
        status = TRII_FAIL(TRI_ERR_FORMAT, "%s: %" PRId64 " tensors, the optimizer has %" PRId64,
                           path, tri_safetensors_count(file), n);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < n && status == TRI_OK; i++) {
            tri_state_entry state = tri_optimizer_state(optimizer, i);
            const tri_safetensors_entry *have = tri_safetensors_find(file, state.name);
            tri_safetensors_entry want;

            describe(state, &want);
            status = pass == 0 ? check_fits(path, &want, have)
                               : tri_copy_in(state.tensor, have->data, have->bytes);
        }
    }
    tri_safetensors_close(file);
    return status;
}

/* --- training checkpoints
 * ------------------------------------------------------------------------- */

struct tri_checkpoint {
    char *dir;
    trii_manifest manifest;
};

tri_status tri_checkpoint_save(const char *folder, tri_module *module, tri_optimizer *optimizer,
                               const tri_checkpoint_info *info, const tri_checkpoint_options *opt)
{
    int keep = opt == NULL || opt->keep == 0 ? 3 : opt->keep;
    snapshot weights = {0}, rest = {0};
    trii_part parts[2];
    int n_parts = 1;
    tri_status status = check_module(module);

    if (status == TRI_OK && keep < 1)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "checkpoint: keep %d", keep);
    if (status == TRI_OK && optimizer != NULL)
        status = tri_optimizer_status(optimizer);
    if (status == TRI_OK)
        status = snapshot_take(list_of_module(module), &weights);
    if (status == TRI_OK && optimizer != NULL)
        status = snapshot_take(list_of_optimizer(optimizer), &rest);
    if (status == TRI_OK) {
        parts[0] = (trii_part){MODEL_FILE, weights.entries, weights.n};
        if (optimizer != NULL)
            parts[n_parts++] = (trii_part){OPTIMIZER_FILE, rest.entries, rest.n};
        status = trii_checkpoint_commit(folder, info, tri_step_number(), parts, n_parts, keep);
    }
    snapshot_fini(&rest);
    snapshot_fini(&weights);
    return status;
}

tri_status tri_checkpoint_open(const char *folder, tri_checkpoint **checkpoint_out)
{
    tri_checkpoint *c = trii_alloc(1, sizeof(*c), "checkpoint");
    tri_status status;

    if (c == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_checkpoint_find(folder, &c->dir, &c->manifest);
    if (status != TRI_OK) {
        trii_free(c);
        return status;
    }
    *checkpoint_out = c;
    return TRI_OK;
}

void tri_checkpoint_close(tri_checkpoint *checkpoint)
{
    if (checkpoint == NULL)
        return;
    trii_manifest_fini(&checkpoint->manifest);
    trii_free(checkpoint->dir);
    trii_free(checkpoint);
}

const tri_checkpoint_info *tri_checkpoint_get_info(const tri_checkpoint *checkpoint)
{
    return &checkpoint->manifest.info;
}

const char *tri_checkpoint_get_path(const tri_checkpoint *checkpoint)
{
    return checkpoint->dir;
}

const char *tri_checkpoint_get_meta(const tri_checkpoint *checkpoint, const char *key)
{
    const tri_checkpoint_info *info = &checkpoint->manifest.info;

    for (int i = 0; i < info->n_meta; i++) {
        if (strcmp(info->meta[i].key, key) == 0)
            return info->meta[i].value;
    }
    return NULL;
}

static tri_status restore_from(const tri_checkpoint *checkpoint, tri_module *module,
                               tri_optimizer *optimizer)
{
    char *model = trii_path_join(checkpoint->dir, MODEL_FILE);
    char *rest = trii_path_join(checkpoint->dir, OPTIMIZER_FILE);
    tri_status status = model != NULL && rest != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK && optimizer != NULL)
        status = tri_optimizer_status(optimizer);
    if (status == TRI_OK)
        status = tri_load(module, model);
    if (status == TRI_OK && optimizer != NULL)
        status = restore_optimizer(optimizer, rest);
    trii_free(rest);
    trii_free(model);
    return status;
}

tri_status tri_checkpoint_restore(const tri_checkpoint *checkpoint, tri_module *module,
                                  tri_optimizer *optimizer)
{
    tri_status status = restore_from(checkpoint, module, optimizer);

    if (status != TRI_OK)
        return status;
    tri_manual_seed(checkpoint->manifest.info.seed);
    tri_step_number_set(checkpoint->manifest.step_number);
    return TRI_OK;
}
