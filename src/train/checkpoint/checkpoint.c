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
#include "train/checkpoint/part_read.h"
#include "train/checkpoint/snapshot.h"
#include "train/checkpoint/transfer.h"
#include "train/checkpoint/weights.h"
#include "train/nn/module.h"
#include "train/optim/staged_updates.h"
#include "train/tensor/elsewhere.h"
#include "train/tensor/persistent.h"

/* --- modules -------------------------------------------------------------- */

static tri_status read_source(void *arg, int64_t source, const void **data_out)
{
    trii_weights *weights = arg;

    return weights->kind->data(weights, source, data_out);
}

static const char *type_of_source(void *arg, int64_t source)
{
    trii_weights *weights = arg;
    trii_weights_run run = {.type_name = NULL};
    tri_status status = weights->kind->run(weights, source, 0, &run);

    if (status == TRI_OK && run.tensor != NULL && run.tensor->refused != NULL)
        return run.tensor->refused;
    return run.type_name != NULL ? run.type_name : "of no type that is known";
}

static tri_status load(tri_module *module, const char *path, trii_weights *weights,
                       const tri_load_options *opt)
{
    tri_status status =
        trii_module_load(module, weights->sources, weights->n, opt,
                         &(trii_state_reader){read_source, type_of_source, weights});

    if (status != TRI_OK) /* the file is at fault */
        status = TRII_FAIL_CTX(status == TRI_ERR_INVALID_ARG ? TRI_ERR_FORMAT : status, "%s", path);
    return status;
}

static bool has_prefix(const trii_weights *weights, const char *prefix)
{
    for (int64_t i = 0; i < weights->n; i++)
        if (strncmp(weights->sources[i].name, prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

/* A prefix is one of all names or, where none begins with it, of those of the module's state: a
 * user of Lightning says "model." and means what is below "state_dict". */
static tri_status open_weights(const char *path, const char *prefix, trii_weights *weights)
{
    tri_status status =
        trii_weights_open(path, prefix != NULL ? TRII_WEIGHTS_ALL : TRII_WEIGHTS_STATE, weights);

    if (status != TRI_OK || prefix == NULL || has_prefix(weights, prefix))
        return status;
    trii_weights_close(weights);
    return trii_weights_open(path, TRII_WEIGHTS_STATE, weights);
}

tri_status(tri_load)(tri_module *module, const char *path, const tri_load_options *opt)
{
    trii_weights weights = {.kind = NULL};
    tri_status status = trii_need_text(path, "tri_load", "path");
    const char *prefix;

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_load_options, opt);
    prefix = status == TRI_OK && opt != NULL ? opt->prefix : NULL;
    if (status == TRI_OK)
        status = trii_check_module(module, "tri_load");
    for (int64_t i = 0; status == TRI_OK && i < tri_module_state_count(module); i++) {
        const tri_tensor *tensor = tri_module_state(module, i).tensor;

        if (trii_held_of(tensor) != NULL && tensor->elsewhere == NULL &&
            !trii_tensor_is_cut(tensor))
            status = trii_refuse_pieces("tri_load", "tri_checkpoint_restore loads");
    }
    if (status == TRI_OK)
        status = open_weights(path, prefix, &weights);
    if (status == TRI_OK)
        status = trii_weights_check(&weights, prefix);
    /* Ranks that have pieces of the module make it whole together, a part at a time. */
    if (module != NULL && tri_module_status(module) == TRI_OK)
        status = trii_module_agree(
            module, trii_ranks_meet(trii_group_of_state(module, NULL, NULL), "tri_load", status));
    if (status == TRI_OK)
        status = load(module, path, &weights, opt);
    trii_weights_close(&weights);
    return status;
}

/* --- parts of checkpoints ------------------------------------------------- */

static const char *shape_text(const tri_safetensors_entry *e, char text[TRII_PIECE_TEXT])
{
    size_t used = (size_t)snprintf(text, TRII_PIECE_TEXT, "%s [", tri_dtype_name(e->dtype));

    for (int d = 0; d < e->ndim && used < TRII_PIECE_TEXT; d++)
        used += (size_t)snprintf(text + used, TRII_PIECE_TEXT - used, d > 0 ? ", %lld" : "%lld",
                                 (long long)e->shape[d]);
    if (used < TRII_PIECE_TEXT)
        snprintf(text + used, TRII_PIECE_TEXT - used, "]");
    return text;
}

static tri_status check_fits(const char *path, const tri_safetensors_entry *want,
                             const tri_safetensors_entry *have)
{
    char there[TRII_PIECE_TEXT], here[TRII_PIECE_TEXT];

    if (have->dtype != want->dtype || have->ndim != want->ndim ||
        memcmp(have->shape, want->shape, sizeof(want->shape)) != 0)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: tensor %s has another shape or dtype (%s) than here (%s)", path,
                         want->name, shape_text(have, there), shape_text(want, here));
    return TRI_OK;
}

/* Whether what this rank is said to have of a tensor can be filled. */
static tri_status check_held(const char *path, const char *name, const tri_tensor *tensor)
{
    const trii_held *held = trii_held_of(tensor);
    const tri_tensor *target = held != NULL && held->tensor != NULL ? held->tensor : tensor;
    int64_t here = tri_tensor_numel(target), n = held != NULL ? trii_piece_count(&held->piece) : 0;
    char text[TRII_PIECE_TEXT];

    if (held == NULL || (trii_piece_fits(&held->piece, held->shape, held->ndim) &&
                         (held->shared_by != NULL ? here <= n - held->from : here == n) &&
                         tri_tensor_dtype(target) == tri_tensor_dtype(tensor)))
        return TRI_OK;
    return TRII_FAIL(
        TRI_ERR_FORMAT,
        "%s: tensor %s: piece %s lies outside of the whole, or is not what the %" PRId64
        " elements here can hold",
        path, name, trii_piece_text(&held->piece, text), tri_tensor_numel(target));
}

/* Whether the part's tensor of this index can be loaded into that of the state. */
static tri_status check_state(const trii_part_reader *part, int64_t index, tri_state_entry state)
{
    const trii_held *held = trii_held_of(state.tensor);
    tri_safetensors_entry want, have = trii_part_at(part, index);
    tri_status status;

    trii_state_describe(state, &want);
    if (held != NULL) {
        want.ndim = held->ndim;
        memcpy(want.shape, held->shape, sizeof(want.shape));
    }
    status = check_fits(part->path, &want, &have);
    return status == TRI_OK ? check_held(part->path, have.name, state.tensor) : status;
}

/* Whether the module has exactly the tensors of the part. Writes nothing. */
static tri_status check_module(tri_module *module, const trii_part_reader *part)
{
    int64_t n = trii_part_count(part);
    tri_state_source *sources = trii_alloc((size_t)n, sizeof(*sources), "state sources");
    const trii_stages *stages = tri_module_unwrapped(module)->stages;
    int64_t n_here = 0;
    tri_status status = TRI_OK;

    if (sources == NULL)
        return TRI_ERR_NO_MEMORY;
    if (stages != NULL && n != stages->count)
        status =
            TRII_FAIL(TRI_ERR_FORMAT, "%s: %" PRId64 " tensors, all stages together have %" PRId64,
                      part->path, n, stages->count);
    for (int64_t i = 0; i < n && status == TRI_OK; i++) {
        tri_safetensors_entry e = trii_part_at(part, i);
        int64_t at = trii_module_entry(module, e.name);
        tri_state_entry state = {.name = NULL};
        const trii_held *held;

        if (at < 0 && stages != NULL) /* another rank's */
            continue;
        if (at >= 0)
            state = tri_module_state(module, at);
        held = trii_held_of(state.tensor);
        if (held != NULL)
            status = check_state(part, i, state);
        if (held != NULL && state.tensor != NULL && !trii_tensor_is_cut(state.tensor)) {
            /* A piece of the same whole is as good as the whole. */
            e.ndim = tri_tensor_ndim(state.tensor);
            for (int d = 0; d < e.ndim; d++)
                e.shape[d] = tri_tensor_size(state.tensor, d);
        }
        /* No data is read. */
        sources[n_here] =
            (tri_state_source){.name = e.name, .dtype = e.dtype, .ndim = e.ndim, .data = ""};
        memcpy(sources[n_here++].shape, e.shape, sizeof(e.shape));
    }
    if (status == TRI_OK) {
        status = trii_module_fits(module, sources, n_here, NULL);
        if (status != TRI_OK) /* the file is at fault */
            status = TRII_FAIL_CTX(status == TRI_ERR_INVALID_ARG ? TRI_ERR_FORMAT : status, "%s",
                                   part->path);
    }
    trii_free(sources);
    return status;
}

static tri_status load_module(tri_module *module, trii_part_reader *part)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < trii_part_count(part) && status == TRI_OK; i++) {
        int64_t at = trii_module_entry(module, trii_part_at(part, i).name);

        if (at >= 0) /* else it is in a stage of another rank */
            status = trii_part_load(part, i, tri_module_state(module, at).tensor);
    }
    return status == TRI_OK ? status : TRII_FAIL_CTX(status, "%s", part->path);
}

/* The numbers of updates of this rank's parameters, among those of all stages. */
typedef struct updates {
    const tri_optimizer *of; /* NULL: the optimizer has all parameters */
    int64_t *places;         /* [parameters]; owned */
    int64_t n;               /* of all stages */
} updates;

static tri_status check_updates(const updates *u, const trii_part_reader *part, int64_t index)
{
    const tri_safetensors_entry e = trii_part_at(part, index);

    return e.dtype == TRI_DTYPE_I64 && e.ndim == 1 && e.shape[0] == u->n
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_FORMAT,
                           "%s: tensor %s is of another number of parameters than the %" PRId64
                           " of all stages",
                           part->path, e.name, u->n);
}

static tri_status load_updates(const updates *u, trii_part_reader *part, int64_t index,
                               tri_tensor *tensor)
{
    int64_t *here = trii_tensor_data(tensor);
    const void *data;
    tri_status status = trii_part_range(part, index, 0, u->n, &data);

    for (int64_t i = 0; i < tri_tensor_numel(tensor) && status == TRI_OK; i++)
        memcpy(&here[i], (const char *)data + (size_t)u->places[i] * sizeof(*here), sizeof(*here));
    return status;
}

static bool is_updates(const updates *u, const tri_tensor *tensor)
{
    return u != NULL && u->of != NULL && trii_optimizer_counts(u->of, tensor);
}

/* Of a pipeline: this rank's part of what is saved. */
static bool is_of_stages(const trii_state_list *list, const updates *u)
{
    if (u != NULL && u->of != NULL)
        return true;
    for (int64_t i = 0; i < list->count(list); i++) {
        const tri_tensor *tensor = list->at(list, i).tensor;

        if (!trii_is_handle(tensor) && tensor->staged != NULL)
            return true;
    }
    return false;
}

/* What is missing here of the program's own tensors each one rank alone has saved, as ranks of a
 * pipeline do: others list them. */
static bool others_have_rest(const trii_state_list *list, const trii_part_reader *part)
{
    int64_t n = list->count(list), found = 0;

    for (int64_t i = 0; i < trii_part_count(part); i++) {
        const char *name = trii_part_at(part, i).name;
        int64_t k = 0;

        while (k < n && strcmp(list->at(list, k).name, name) != 0)
            k++;
        if (k == n && !trii_part_is_one_piece(part, i))
            return false;
        found += k < n;
    }
    return found == n;
}

/* updates: NULL: the list is of no optimizer. */
static tri_status check_list(const trii_state_list *list, const char *whose,
                             const trii_part_reader *part, const updates *u)
{
    int64_t n = list->count(list);
    tri_status status = TRI_OK;

    if (trii_part_count(part) != n && !is_of_stages(list, u) &&
        (u != NULL || !others_have_rest(list, part)))
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: %" PRId64 " tensors, the %s has %" PRId64
                         ": made with other options?",
                         part->path, trii_part_count(part), whose, n);
    for (int64_t i = 0; i < n && status == TRI_OK; i++) {
        tri_state_entry state = list->at(list, i);
        int64_t at = trii_part_find(part, state.name);

        if (at < 0)
            return TRII_FAIL(TRI_ERR_FORMAT, "%s: no tensor %s", part->path, state.name);
        status =
            is_updates(u, state.tensor) ? check_updates(u, part, at) : check_state(part, at, state);
    }
    return status;
}

static tri_status load_list(const trii_state_list *list, trii_part_reader *part, const updates *u)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < list->count(list) && status == TRI_OK; i++) {
        tri_state_entry state = list->at(list, i);

        int64_t at = trii_part_find(part, state.name);

        status = is_updates(u, state.tensor) ? load_updates(u, part, at, state.tensor)
                                             : trii_part_load(part, at, state.tensor);
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
    return index < checkpoint->manifest.n_files ? checkpoint->manifest.files[index].name
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

tri_status(tri_checkpoint_restore)(const tri_checkpoint *checkpoint, tri_module *module,
                                   tri_optimizer *optimizer)
{
    const trii_state_list rest = trii_state_of_optimizer(optimizer);
    const trii_stages *stages = NULL;
    trii_part_reader model = {.path = NULL}, others = {.path = NULL};
    updates all = {.of = NULL};
    const char *call = "tri_checkpoint_restore";
    tri_status status = trii_need(checkpoint, call, "checkpoint");

    if (tri_module_status(module) == TRI_OK)
        stages = tri_module_unwrapped(module)->stages;

    if (status == TRI_OK)
        status = trii_check_module(module, call);
    if (status == TRI_OK && optimizer != NULL)
        status = tri_optimizer_status(optimizer);
    if (status == TRI_OK)
        status = trii_part_open(checkpoint->dir, &checkpoint->manifest, TRII_MODEL_NAME, &model);
    if (status == TRI_OK && optimizer != NULL && !tri_checkpoint_has(checkpoint, "optimizer"))
        status =
            TRII_FAIL(TRI_ERR_FORMAT, "checkpoint %s holds no optimizer: restore it without one",
                      checkpoint->dir);
    if (status == TRI_OK && optimizer != NULL)
        status =
            trii_part_open(checkpoint->dir, &checkpoint->manifest, TRII_OPTIMIZER_NAME, &others);
    if (status == TRI_OK)
        status = check_module(module, &model);
    if (stages != NULL) /* the others wait for this one */
        status = trii_stages_optimize(module, NULL, optimizer,
                                      trii_ranks_meet(stages->group, call, status));
    if (status == TRI_OK && stages != NULL && optimizer != NULL) {
        all.of = optimizer;
        status = trii_optimizer_places(optimizer, &all.places, &all.n);
    }
    if (status == TRI_OK && optimizer != NULL)
        status = check_list(&rest, TRII_OPTIMIZER_NAME, &others, &all);
    if (stages != NULL) /* and those of other pipelines that have parts of the same layers */
        status = trii_stages_agree(module, NULL, status);
    /* Everything fits: nothing was written before this line. */
    if (status == TRI_OK)
        status = load_module(module, &model);
    if (status == TRI_OK && optimizer != NULL)
        status = load_list(&rest, &others, &all);
    if (stages != NULL)
        status = trii_stages_agree(module, NULL, status);
    if (status == TRI_OK)
        trii_random_state_set(&checkpoint->manifest.random);
    trii_free(all.places);
    trii_part_close(&others);
    trii_part_close(&model);
    return status;
}

tri_status tri_checkpoint_restore_extra(const tri_checkpoint *checkpoint, const char *name,
                                        const tri_state_entry *entries, int64_t n)
{
    const char *call = "tri_checkpoint_restore_extra";
    const tri_checkpoint_extra extra = {.name = name, .entries = entries, .n = n};
    const trii_state_list list = trii_state_of_extra(&extra);
    trii_part_reader part = {.path = NULL};
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
    status = trii_part_open(checkpoint->dir, &checkpoint->manifest, name, &part);
    if (status == TRI_OK)
        status = check_list(&list, name, &part, NULL);
    if (status == TRI_OK)
        status = load_list(&list, &part, NULL);
    if (status != TRI_OK)
        status = TRII_FAIL_CTX(status, "%s", call);
    trii_part_close(&part);
    return status;
}
