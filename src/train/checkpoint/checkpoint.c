/*
 * checkpoint.c - state from files into modules, optimizers and other tensors: tri_load,
 * tri_checkpoint_open and what follows it. Files are found and verified by manifest.c and read by
 * safetensors.c; checkpoint_save.c and checkpoint_writer.c write them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <trireme/optim.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/snapshot.h"
#include "train/checkpoint/transfer.h"
#include "train/nn/module.h"

/* --- modules -------------------------------------------------------------- */

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
        status = trii_check_module(module, "tri_load");
    if (status == TRI_OK)
        status = tri_safetensors_open(path, &file);
    if (status == TRI_OK)
        status = load(module, path, file, tri_module_load, opt);
    tri_safetensors_close(file);
    return status;
}

/* --- lists of tensors ----------------------------------------------------- */

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

static tri_status check_list(const trii_state_list *list, const char *whose, const char *path,
                             const tri_safetensors *file)
{
    int64_t n = list->count(list);
    tri_status status = TRI_OK;

    if (tri_safetensors_count(file) != n)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: %" PRId64 " tensors, the %s has %" PRId64
                         ": made with other options?",
                         path, tri_safetensors_count(file), whose, n);
    for (int64_t i = 0; i < n && status == TRI_OK; i++) {
        tri_state_entry state = list->at(list, i);
        tri_safetensors_entry want;

        trii_state_describe(state, &want);
        status = check_fits(path, &want, tri_safetensors_find(file, state.name));
    }
    return status;
}

static tri_status load_list(const trii_state_list *list, const tri_safetensors *file)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < list->count(list) && status == TRI_OK; i++) {
        tri_state_entry state = list->at(list, i);
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

trii_checkpoint_id trii_checkpoint_identify(const tri_checkpoint *checkpoint)
{
    const trii_manifest *m = &checkpoint->manifest;

    return (trii_checkpoint_id){m->sequence, m->info.step, m->checksum};
}

int trii_checkpoint_file_count(const tri_checkpoint *checkpoint)
{
    return checkpoint->manifest.n_files + 1;
}

const char *trii_checkpoint_file(const tri_checkpoint *checkpoint, int index)
{
    return index < checkpoint->manifest.n_files ? checkpoint->manifest.files[index]
                                                : TRII_MANIFEST_FILE;
}

static const char *find_text(const tri_metadata *texts, int n, const char *key)
{
    for (int i = 0; key != NULL && i < n; i++) {
        if (strcmp(texts[i].key, key) == 0)
            return texts[i].value;
    }
    return NULL;
}

const char *tri_checkpoint_metadata(const tri_checkpoint *checkpoint, const char *key)
{
    const tri_checkpoint_info *info = checkpoint != NULL ? &checkpoint->manifest.info : NULL;

    return info != NULL ? find_text(info->meta, info->n_meta, key) : NULL;
}

const char *tri_checkpoint_text(const tri_checkpoint *checkpoint, const char *name)
{
    const trii_manifest *m = checkpoint != NULL ? &checkpoint->manifest : NULL;

    return m != NULL ? find_text(m->texts, m->n_texts, name) : NULL;
}

/* What the file of an extra, the module or the optimizer is called. False: nothing can be. */
static bool file_of(const char *name, char *file, size_t bytes)
{
    return name != NULL && (size_t)snprintf(file, bytes, "%s" TRII_TENSORS_SUFFIX, name) < bytes;
}

bool tri_checkpoint_has(const tri_checkpoint *checkpoint, const char *name)
{
    char file[TRII_FILE_NAME];

    return checkpoint != NULL && file_of(name, file, sizeof(file)) &&
           trii_manifest_has(&checkpoint->manifest, file);
}

/* The files of a checkpoint, open while its state is checked and written. */
typedef struct sources {
    char *model_path, *rest_path;
    tri_safetensors *model, *rest; /* the others NULL without an optimizer */
} sources;

/* It was there when the checkpoint was opened. */
static tri_status open_part(const char *path, tri_safetensors **file_out)
{
    tri_status status = tri_safetensors_open(path, file_out);

    return status == TRI_ERR_NOT_FOUND ? TRI_ERR_FORMAT : status;
}

static tri_status sources_open(const tri_checkpoint *checkpoint, bool with_optimizer, sources *s)
{
    tri_status status;

    *s = (sources){.model_path = trii_path_join(checkpoint->dir, TRII_MODEL_FILE),
                   .rest_path = trii_path_join(checkpoint->dir, TRII_OPTIMIZER_FILE)};
    if (s->model_path == NULL || s->rest_path == NULL)
        return TRI_ERR_NO_MEMORY;
    status = open_part(s->model_path, &s->model);
    if (status != TRI_OK || !with_optimizer)
        return status;
    if (!trii_manifest_has(&checkpoint->manifest, TRII_OPTIMIZER_FILE))
        return TRII_FAIL(TRI_ERR_FORMAT, "checkpoint %s holds no optimizer: restore it without one",
                         checkpoint->dir);
    return open_part(s->rest_path, &s->rest);
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
    const trii_state_list rest = trii_state_of_optimizer(optimizer);
    sources from = {0};
    tri_status status = trii_need(checkpoint, "tri_checkpoint_restore", "checkpoint");

    if (status == TRI_OK)
        status = trii_check_module(module, "tri_checkpoint_restore");
    if (status == TRI_OK && optimizer != NULL)
        status = tri_optimizer_status(optimizer);
    if (status == TRI_OK)
        status = sources_open(checkpoint, optimizer != NULL, &from);
    if (status == TRI_OK)
        status = load(module, from.model_path, from.model, trii_module_fits, NULL);
    if (status == TRI_OK && optimizer != NULL)
        status = check_list(&rest, TRII_OPTIMIZER_NAME, from.rest_path, from.rest);
    /* Everything fits: nothing was written before this line. */
    if (status == TRI_OK)
        status = load(module, from.model_path, from.model, tri_module_load, NULL);
    if (status == TRI_OK && optimizer != NULL)
        status = load_list(&rest, from.rest);
    if (status == TRI_OK)
        trii_random_state_set(&checkpoint->manifest.random);
    sources_close(&from);
    return status;
}

tri_status tri_checkpoint_restore_extra(const tri_checkpoint *checkpoint, const char *name,
                                        const tri_state_entry *entries, int64_t n)
{
    const char *call = "tri_checkpoint_restore_extra";
    const tri_checkpoint_extra extra = {.name = name, .entries = entries, .n = n};
    const trii_state_list list = trii_state_of_extra(&extra);
    char file_name[TRII_FILE_NAME], *path;
    tri_safetensors *file = NULL;
    tri_status status = trii_need(checkpoint, call, "checkpoint");

    if (status == TRI_OK)
        status = trii_need_text(name, call, "name");
    if (status == TRI_OK)
        status = trii_check_extra(call, &extra);
    if (status == TRI_OK && !tri_checkpoint_has(checkpoint, name))
        status = TRII_FAIL(TRI_ERR_NOT_FOUND, "checkpoint %s has no %s" TRII_TENSORS_SUFFIX,
                           checkpoint->dir, name);
    if (status != TRI_OK)
        return status;
    (void)file_of(name, file_name, sizeof(file_name));
    path = trii_path_join(checkpoint->dir, file_name);
    status = path != NULL ? open_part(path, &file) : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK)
        status = check_list(&list, name, path, file);
    if (status == TRI_OK)
        status = load_list(&list, file);
    if (status != TRI_OK)
        status = TRII_FAIL_CTX(status, "%s", call);
    tri_safetensors_close(file);
    trii_free(path);
    return status;
}
