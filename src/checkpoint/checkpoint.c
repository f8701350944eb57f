/*
 * checkpoint.c - state of modules and optimizers into files and back: tri_save, tri_load,
 * tri_checkpoint_*. Files are written by commit.c and safetensors_write.c, found and verified by
 * manifest.c, read by safetensors.c.
 *
 * A save copies the whole state first, so it needs twice its memory, and training could go on while
 * the copy is written.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <trireme/nn.h>
#include <trireme/optim.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "checkpoint/format.h"
#include "nn/module.h"
#include "os/file.h"

/* --- state as entries of a file ------------------------------------------- */

/* A module's or an optimizer's list of named tensors. */
typedef struct state_list {
    int64_t (*count)(void *owner);
    tri_state_entry (*at)(void *owner, int64_t index);
    void *owner;
} state_list;

static int64_t module_count(void *owner)
{
    return tri_module_state_count(owner);
}

static tri_state_entry module_at(void *owner, int64_t index)
{
    return tri_module_state(owner, index);
}

static int64_t optimizer_count(void *owner)
{
    return tri_optimizer_state_count(owner);
}

static tri_state_entry optimizer_at(void *owner, int64_t index)
{
    return tri_optimizer_state(owner, index);
}

static state_list list_of_module(tri_module *module)
{
    return (state_list){module_count, module_at, module};
}

static state_list list_of_optimizer(tri_optimizer *optimizer)
{
    return (state_list){optimizer_count, optimizer_at, optimizer};
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
        describe(list.at(list.owner, i), &s->entries[i]);
        bytes += s->entries[i].bytes;
    }
    at = s->data = trii_alloc(bytes, 1, "state");
    if (s->data == NULL)
        status = TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < s->n && status == TRI_OK; i++) {
        tri_safetensors_entry *entry = &s->entries[i];

        status = tri_tensor_copy_out(list.at(list.owner, i).tensor, at, entry->bytes);
        if (status != TRI_OK)
            status = TRII_FAIL_CTX(status, "state %s", entry->name);
        entry->data = at;
        at += entry->bytes;
    }
    if (status != TRI_OK)
        snapshot_fini(s);
    return status;
}

/* --- modules -------------------------------------------------------------- */

/* Its state can be listed. */
static tri_status check_module(tri_module *module, const char *call)
{
    tri_status status = trii_module_flatten(module);

    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "%s", call);
}

tri_status tri_save(tri_module *module, const char *path)
{
    snapshot s;
    tri_status status = trii_need_text(path, "tri_save", "path");

    if (status == TRI_OK)
        status = check_module(module, "tri_save");
    if (status == TRI_OK)
        status = snapshot_take(list_of_module(module), &s);
    if (status != TRI_OK)
        return status;
    status = tri_safetensors_write(path, s.entries, s.n, &(tri_metadata){"format", "pt"}, 1);
    snapshot_fini(&s);
    return status;
}

/* Writes the tensors of a file into a module (after checking that all fit), or only checks. */
typedef tri_status (*load_fn)(tri_module *module, const tri_state_source *sources, int64_t n,
                              const tri_load_options *opt);

static tri_status load(tri_module *module, const char *path, const tri_safetensors *file,
                       load_fn how, const tri_load_options *opt)
{
    int64_t n = tri_safetensors_count(file);
    tri_state_source *sources = trii_alloc((size_t)n, sizeof(*sources), "state sources");
    tri_status status;

    if (sources == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        const tri_safetensors_entry *e = tri_safetensors_at(file, i);

        sources[i] = (tri_state_source){
            .name = e->name, .dtype = e->dtype, .ndim = e->ndim, .data = e->data};
        memcpy(sources[i].shape, e->shape, sizeof(e->shape));
    }
    status = how(module, sources, n, opt);
    if (status != TRI_OK) /* the file is at fault */
        status = TRII_FAIL_CTX(status == TRI_ERR_INVALID_ARG ? TRI_ERR_FORMAT : status, "%s", path);
    trii_free(sources);
    return status;
}

tri_status tri_load(tri_module *module, const char *path, const tri_load_options *opt)
{
    tri_safetensors *file = NULL;
    tri_status status = trii_need_text(path, "tri_load", "path");

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_load_options, opt);
    if (status == TRI_OK)
        status = check_module(module, "tri_load");
    if (status == TRI_OK)
        status = tri_safetensors_open(path, &file);
    if (status == TRI_OK)
        status = load(module, path, file, tri_module_load, opt);
    tri_safetensors_close(file);
    return status;
}

/* --- optimizers ----------------------------------------------------------- */

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

static tri_status check_optimizer(tri_optimizer *optimizer, const char *path,
                                  const tri_safetensors *file)
{
    int64_t n = tri_optimizer_state_count(optimizer);
    tri_status status = TRI_OK;

    if (tri_safetensors_count(file) != n)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: %" PRId64 " tensors, the optimizer has %" PRId64
                         ": made with other options?",
                         path, tri_safetensors_count(file), n);
    for (int64_t i = 0; i < n && status == TRI_OK; i++) {
        tri_state_entry state = tri_optimizer_state(optimizer, i);
        tri_safetensors_entry want;

        describe(state, &want);
        status = check_fits(path, &want, tri_safetensors_find(file, state.name));
    }
    return status;
}

static tri_status load_optimizer(tri_optimizer *optimizer, const tri_safetensors *file)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < tri_optimizer_state_count(optimizer) && status == TRI_OK; i++) {
        tri_state_entry state = tri_optimizer_state(optimizer, i);
        const tri_safetensors_entry *have = tri_safetensors_find(file, state.name);

        status = tri_tensor_copy_in(state.tensor, have->data, have->bytes);
    }
    return status;
}

/* --- training checkpoints ------------------------------------------------- */

struct tri_checkpoint {
    char *dir;
    trii_manifest manifest;
};

static tri_status check_info(const tri_checkpoint_info *info)
{
    tri_status status = trii_need(info, "tri_checkpoint_save", "info");

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_checkpoint_info, info);
    if (status != TRI_OK)
        return status;
    if (info->n_meta < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_checkpoint_save: info has %d texts",
                         info->n_meta);
    if (info->n_meta > 0)
        status = trii_need(info->meta, "tri_checkpoint_save", "info->meta");
    for (int i = 0; i < info->n_meta && status == TRI_OK; i++) {
        if (info->meta[i].key == NULL || info->meta[i].value == NULL)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                               "tri_checkpoint_save: metadata %d has no key or no value", i);
    }
    return status;
}

tri_status tri_checkpoint_save(const char *folder, tri_module *module, tri_optimizer *optimizer,
                               const tri_checkpoint_info *info,
                               const tri_checkpoint_save_options *opt)
{
    int keep = opt == NULL || opt->keep == 0 ? 3 : opt->keep;
    snapshot weights = {0}, rest = {0};
    trii_random_state random;
    trii_part parts[2];
    int n_parts = 1;
    tri_status status = trii_need_text(folder, "tri_checkpoint_save", "folder");

    if (status == TRI_OK)
        status = check_info(info);
    if (status == TRI_OK)
        status = check_module(module, "tri_checkpoint_save");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_checkpoint_save_options, opt);
    if (status == TRI_OK && keep < 1)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_checkpoint_save: keep %d: must be at least 1",
                           keep);
    if (status == TRI_OK && optimizer != NULL)
        status = tri_optimizer_status(optimizer);
    if (status == TRI_OK)
        status = snapshot_take(list_of_module(module), &weights);
    if (status == TRI_OK && optimizer != NULL)
        status = snapshot_take(list_of_optimizer(optimizer), &rest);
    if (status == TRI_OK) {
        parts[0] = (trii_part){TRII_MODEL_FILE, weights.entries, weights.n};
        if (optimizer != NULL)
            parts[n_parts++] = (trii_part){TRII_OPTIMIZER_FILE, rest.entries, rest.n};
        trii_random_state_get(&random);
        status = trii_checkpoint_commit(folder, info, &random, parts, n_parts, keep);
    }
    snapshot_fini(&rest);
    snapshot_fini(&weights);
    return status;
}

tri_status tri_checkpoint_open(const char *folder, tri_checkpoint **checkpoint_out)
{
    tri_status status = trii_need_text(folder, "tri_checkpoint_open", "folder");
    tri_checkpoint *c;

    if (status == TRI_OK)
        status = trii_need(checkpoint_out, "tri_checkpoint_open", "checkpoint_out");
    if (status != TRI_OK)
        return status;
    c = trii_alloc(1, sizeof(*c), "checkpoint");
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

int64_t tri_checkpoint_step(const tri_checkpoint *checkpoint)
{
    return checkpoint != NULL ? checkpoint->manifest.info.step : -1;
}

int64_t tri_checkpoint_epoch(const tri_checkpoint *checkpoint)
{
    return checkpoint != NULL ? checkpoint->manifest.info.epoch : -1;
}

const char *tri_checkpoint_path(const tri_checkpoint *checkpoint)
{
    return checkpoint != NULL ? checkpoint->dir : NULL;
}

const char *tri_checkpoint_metadata(const tri_checkpoint *checkpoint, const char *key)
{
    const tri_checkpoint_info *info = checkpoint != NULL ? &checkpoint->manifest.info : NULL;

    for (int i = 0; info != NULL && key != NULL && i < info->n_meta; i++) {
        if (strcmp(info->meta[i].key, key) == 0)
            return info->meta[i].value;
    }
    return NULL;
}

/* The files of a checkpoint, open while its state is checked and written. */
typedef struct sources {
    char *model_path, *rest_path;
    tri_safetensors *model, *rest; /* the others NULL without an optimizer */
} sources;

static tri_status sources_open(const tri_checkpoint *checkpoint, bool with_optimizer, sources *s)
{
    tri_status status;

    *s = (sources){.model_path = trii_path_join(checkpoint->dir, TRII_MODEL_FILE),
                   .rest_path = trii_path_join(checkpoint->dir, TRII_OPTIMIZER_FILE)};
    if (s->model_path == NULL || s->rest_path == NULL)
        return TRI_ERR_NO_MEMORY;
    status = tri_safetensors_open(s->model_path, &s->model);
    if (status != TRI_OK || !with_optimizer)
        return status;
    if (!trii_path_exists(s->rest_path))
        return TRII_FAIL(TRI_ERR_FORMAT, "checkpoint %s holds no optimizer: restore it without one",
                         checkpoint->dir);
    return tri_safetensors_open(s->rest_path, &s->rest);
}

static void sources_close(sources *s)
{
    tri_safetensors_close(s->rest);
    tri_safetensors_close(s->model);
    trii_free(s->rest_path);
    trii_free(s->model_path);
}

tri_status tri_checkpoint_restore(const tri_checkpoint *checkpoint, tri_module *module,
                                  tri_optimizer *optimizer)
{
    sources from = {0};
    tri_status status = trii_need(checkpoint, "tri_checkpoint_restore", "checkpoint");

    if (status == TRI_OK)
        status = check_module(module, "tri_checkpoint_restore");
    if (status == TRI_OK && optimizer != NULL)
        status = tri_optimizer_status(optimizer);
    if (status == TRI_OK)
        status = sources_open(checkpoint, optimizer != NULL, &from);
    if (status == TRI_OK)
        status = load(module, from.model_path, from.model, trii_module_fits, NULL);
    if (status == TRI_OK && optimizer != NULL)
        status = check_optimizer(optimizer, from.rest_path, from.rest);
    /* Everything fits: nothing was written before this line. */
    if (status == TRI_OK)
        status = load(module, from.model_path, from.model, tri_module_load, NULL);
    if (status == TRI_OK && optimizer != NULL)
        status = load_optimizer(optimizer, from.rest);
    if (status == TRI_OK)
        trii_random_state_set(&checkpoint->manifest.random);
    sources_close(&from);
    return status;
}
