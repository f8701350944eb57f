/*
 * stages_file.c - tri_save and tri_torch_save of a pipeline: rank 0 writes one file of the whole
 * network, of which the others send it what their stages have, in the order of its state.
 */
#include <string.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/pages.h"
#include "train/checkpoint/snapshot.h"
#include "train/dist/unit.h"
#include "train/nn/module.h"
#include "train/tensor/elsewhere.h"
#include "train/tensor/pipeline_stages.h"

/* What a rank says of an entry. */
typedef struct told {
    int32_t dtype, ndim;
    int64_t shape[TRI_MAX_DIMS];
    char name[TRI_STATE_NAME_MAX];
} told;

typedef struct stages_file {
    const trii_stages *stages;
    tri_module *module;
    int rank;
    bool is_written; /* by this pipeline; others, which have the same parts, only take part */
    /* rank 0: of the whole network */
    told *tolds;                    /* [count] */
    tri_safetensors_entry *entries; /* [count] */
    void *data;
    size_t bytes; /* of the data; on other ranks of the largest entry */
} stages_file;

enum { TAG = 1 };

/* Of pipelines that are cut and that have replicas the first one writes. All ranks of one know,
 * though a stage may have nothing that says so. */
static tri_status choose(stages_file *f)
{
    tri_group *cut = trii_group_of_cuts(f->module);
    int32_t later = cut != NULL && tri_group_rank(cut) > 0;
    tri_status status;

    for (int64_t i = 0; i < tri_module_state_count(f->module); i++) {
        const trii_unit *unit = trii_unit_of(tri_module_state(f->module, i).tensor);

        if (unit != NULL && unit->rank > 0)
            later = 1;
    }
    status =
        tri_all_reduce(f->stages->group, &later, &later, 1, TRI_DTYPE_I32, TRI_REDOP_MAX, NULL);
    f->is_written = later == 0;
    return status;
}

static told tell(tri_state_entry state)
{
    told t = {.dtype = (int32_t)tri_tensor_dtype(state.tensor),
              .ndim = tri_tensor_ndim(state.tensor)};

    memcpy(t.shape, trii_whole_shape(state.tensor), (size_t)t.ndim * sizeof(*t.shape));
    snprintf(t.name, sizeof(t.name), "%s", state.name);
    return t;
}

static size_t bytes_of(const told *t)
{
    size_t bytes = tri_dtype_size((tri_dtype)t->dtype);

    for (int d = 0; d < t->ndim; d++)
        bytes *= (size_t)t->shape[d];
    return bytes;
}

static tri_status take_lists(stages_file *f)
{
    size_t count = (size_t)f->stages->count;

    if (f->rank > 0)
        return TRI_OK;
    f->tolds = trii_alloc(count + 1, sizeof(*f->tolds), "state entries");
    f->entries = trii_alloc(count + 1, sizeof(*f->entries), "state entries");
    return f->tolds != NULL && f->entries != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

/* What the file will have, and room for it. */
static tri_status list(stages_file *f)
{
    int64_t next = 0;
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < f->stages->count && status == TRI_OK; i++) {
        int from = (int)f->stages->entries[i].rank;
        told t;

        if (from == f->rank)
            t = tell(tri_module_state(f->module, next++));
        if (from != f->rank && f->rank == 0)
            status = tri_recv(f->stages->group, &t, sizeof(t), TRI_DTYPE_U8, from, TAG, NULL);
        else if (from == f->rank && f->rank > 0)
            status = tri_send(f->stages->group, &t, sizeof(t), TRI_DTYPE_U8, 0, TAG, NULL);
        if (status == TRI_OK && f->tolds != NULL) {
            f->tolds[i] = t;
            f->bytes += bytes_of(&t);
        } else if (from == f->rank && bytes_of(&t) > f->bytes) {
            f->bytes = bytes_of(&t);
        }
    }
    return status == TRI_OK ? trii_pages_alloc(f->bytes, &f->data) : status;
}

/* This rank's entry, whole; to: NULL if the pipeline writes nothing. */
static tri_status collect(const stages_file *f, tri_tensor *tensor, trii_opened *opened, void *to,
                          tri_status status)
{
    status = trii_opened_next(opened, tensor, status);
    if (trii_tensor_is_cut(tensor))
        return trii_whole_collect(tensor, to, status);
    if (status == TRI_OK && trii_held_of(tensor) != NULL)
        return trii_refuse_pieces("tri_save", "tri_checkpoint_save saves");
    return status == TRI_OK && f->is_written
               ? tri_tensor_copy_out(tensor, to, trii_whole_bytes(tensor))
               : status;
}

/* A rank that has failed sends all the same, for rank 0 waits. */
static tri_status pass(const stages_file *f, int from, char *at, size_t bytes, tri_status status)
{
    tri_status passed = TRI_OK;

    if (f->rank == 0 && from > 0)
        passed = tri_recv(f->stages->group, at, bytes, TRI_DTYPE_U8, from, TAG, NULL);
    else if (f->rank > 0 && from == f->rank)
        passed = tri_send(f->stages->group, at, bytes, TRI_DTYPE_U8, 0, TAG, NULL);
    return status == TRI_OK ? passed : status;
}

static tri_status fill(stages_file *f)
{
    trii_opened opened = {NULL, NULL, NULL};
    char *at = f->data;
    int64_t next = 0;
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < f->stages->count; i++) {
        int from = (int)f->stages->entries[i].rank;
        size_t bytes = f->tolds != NULL ? bytes_of(&f->tolds[i]) : 0;

        if (from == f->rank) {
            tri_tensor *tensor = tri_module_state(f->module, next++).tensor;

            bytes = trii_whole_bytes(tensor);
            status = collect(f, tensor, &opened, f->is_written ? at : NULL, status);
        }
        if (f->is_written && bytes > 0)
            status = pass(f, from, at, bytes, status);
        if (f->tolds == NULL)
            continue;
        f->entries[i] = (tri_safetensors_entry){.name = f->tolds[i].name,
                                                .dtype = (tri_dtype)f->tolds[i].dtype,
                                                .ndim = f->tolds[i].ndim,
                                                .data = at,
                                                .bytes = bytes};
        memcpy(f->entries[i].shape, f->tolds[i].shape, sizeof(f->entries[i].shape));
        at += bytes;
    }
    return trii_opened_end(&opened, status);
}

tri_status trii_stages_save(tri_module *module, const char *path, const char *call,
                            trii_file_write write, tri_status status)
{
    stages_file f = {.stages = tri_module_unwrapped(module)->stages, .module = module};
    tri_group *sharers = trii_sharers(module);

    f.rank = tri_group_rank(f.stages->group);
    status = trii_ranks_meet(f.stages->group, call, status);
    status = trii_stages_agree(module, sharers, status);
    if (status == TRI_OK) /* what pends, on all ranks alike */
        status = trii_stages_agree(module, sharers, tri_run());
    if (status == TRI_OK)
        status = choose(&f);
    if (status == TRI_OK && f.is_written)
        status = take_lists(&f);
    status = trii_ranks_agree(f.stages->group, status);
    if (status == TRI_OK && f.is_written)
        status = list(&f);
    status = trii_stages_agree(module, sharers, status);
    if (status == TRI_OK)
        status = fill(&f);
    status = trii_ranks_agree(f.stages->group, status);
    if (status == TRI_OK && f.entries != NULL)
        status = write(path, f.entries, f.stages->count);
    trii_pages_free(f.data, f.bytes);
    trii_free(f.tolds);
    trii_free(f.entries);
    return trii_stages_agree(module, sharers, status);
}
