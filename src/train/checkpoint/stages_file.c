/*
 * stages_file.c - tri_save and tri_torch_save of a pipeline: rank 0 writes one file of the whole
 * network, tensor by tensor, of which the others send it what their stages have, in the order in
 * which the file has them. So no rank holds more than its stages and one tensor.
 */
#include <assert.h>
#include <stdlib.h>
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
    const trii_file_kind *kind;
    int rank;
    bool is_written; /* by this pipeline; others, which have the same parts, only take part */
    bool leads;      /* this rank writes it */
    /* [n], of the whole network where this rank leads, else of what it has */
    int64_t n;
    told *tolds;
    tri_safetensors_entry *entries;      /* without data */
    const tri_safetensors_entry **order; /* of the file */
    int64_t *own;                        /* which of this rank's state it is; -1: another's */
    void *room;                          /* for one tensor */
    size_t bytes;
    trii_opened opened;
    tri_status status; /* of what has been collected here */
    int64_t next;      /* leads: what it has is before this one of `order` */
    bool peer_failed;  /* leads: and says itself why */
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
    size_t n = (size_t)(f->leads ? f->stages->count : tri_module_state_count(f->module));

    f->tolds = trii_alloc(n + 1, sizeof(*f->tolds), "state entries");
    f->entries = trii_alloc(n + 1, sizeof(*f->entries), "state entries");
    f->order = trii_alloc(n + 1, sizeof(*f->order), "state entries");
    f->own = trii_alloc(n + 1, sizeof(*f->own), "state entries");
    return f->tolds != NULL && f->entries != NULL && f->order != NULL && f->own != NULL
               ? TRI_OK
               : TRI_ERR_NO_MEMORY;
}

static void put(stages_file *f, const told *t, int64_t own)
{
    tri_safetensors_entry *entry = &f->entries[f->n];

    f->tolds[f->n] = *t;
    *entry = (tri_safetensors_entry){.name = f->tolds[f->n].name,
                                     .dtype = (tri_dtype)t->dtype,
                                     .ndim = t->ndim,
                                     .bytes = bytes_of(t)};
    memcpy(entry->shape, t->shape, sizeof(entry->shape));
    f->order[f->n] = entry;
    f->own[f->n++] = own;
    f->bytes = entry->bytes > f->bytes ? entry->bytes : f->bytes;
}

/* What the file will have, and room for the largest tensor. */
static tri_status list(stages_file *f)
{
    int64_t next = 0;
    tri_status status = TRI_OK;

    assert(f->tolds != NULL && f->order != NULL); /* all ranks have their lists */
    for (int64_t i = 0; i < f->stages->count && status == TRI_OK; i++) {
        int from = (int)f->stages->entries[i].rank;
        bool is_own = from == f->rank;
        told t;

        if (is_own)
            t = tell(tri_module_state(f->module, next));
        if (!is_own && f->leads)
            status = tri_recv(f->stages->group, &t, sizeof(t), TRI_DTYPE_U8, from, TAG, NULL);
        else if (is_own && f->is_written && !f->leads)
            status = tri_send(f->stages->group, &t, sizeof(t), TRI_DTYPE_U8, 0, TAG, NULL);
        if (status == TRI_OK && (is_own || f->leads))
            put(f, &t, is_own ? next : -1);
        next += is_own;
    }
    if (f->kind->compare != NULL)
        qsort(f->order, (size_t)f->n, sizeof(*f->order), f->kind->compare);
    return status == TRI_OK ? trii_pages_alloc(f->bytes, &f->room) : status;
}

/* This rank's entry, whole; all ranks with parts of it come here, also after a failure. */
static void collect(stages_file *f, int64_t own)
{
    tri_tensor *tensor = tri_module_state(f->module, own).tensor;
    void *to = f->is_written ? f->room : NULL;

    f->status = trii_opened_next(&f->opened, tensor, f->status);
    if (trii_tensor_is_cut(tensor))
        f->status = trii_whole_collect(tensor, to, f->status);
    else if (f->status == TRI_OK && trii_held_of(tensor) != NULL)
        f->status = trii_refuse_pieces("tri_save", "tri_checkpoint_save saves");
    else if (f->status == TRI_OK && to != NULL)
        f->status = tri_tensor_copy_out(tensor, to, trii_whole_bytes(tensor));
}

/* --- ranks that do not write ---------------------------------------------- */

/* One that has failed says so, for rank 0 waits. */
static tri_status send_on(const stages_file *f, size_t bytes)
{
    int32_t failed = f->status != TRI_OK;
    tri_status status = tri_send(f->stages->group, &failed, 1, TRI_DTYPE_I32, 0, TAG, NULL);

    return status == TRI_OK && failed == 0
               ? tri_send(f->stages->group, f->room, bytes, TRI_DTYPE_U8, 0, TAG, NULL)
               : status;
}

static tri_status send_all(stages_file *f)
{
    for (int64_t k = 0; k < f->n; k++) {
        tri_status sent = TRI_OK;

        if (f->order[k]->bytes == 0)
            continue;
        collect(f, f->own[f->order[k] - f->entries]);
        if (f->is_written)
            sent = send_on(f, f->order[k]->bytes);
        f->status = f->status == TRI_OK ? sent : f->status;
    }
    return f->status;
}

/* --- the one that writes -------------------------------------------------- */

static tri_status fetch(stages_file *f, int64_t index)
{
    int from = (int)f->stages->entries[index].rank;
    int32_t failed = 0;
    tri_status status;

    if (f->own[index] >= 0) {
        collect(f, f->own[index]);
        return f->status;
    }
    status = tri_recv(f->stages->group, &failed, 1, TRI_DTYPE_I32, from, TAG, NULL);
    if (status != TRI_OK)
        return status;
    f->peer_failed |= failed != 0;
    if (failed != 0)
        return TRII_FAIL(TRI_ERR_ABORTED, "rank %d has failed", from);
    return tri_recv(f->stages->group, f->room, f->entries[index].bytes, TRI_DTYPE_U8, from, TAG,
                    NULL);
}

static tri_status give(void *arg, int64_t index, const trii_sink *to)
{
    stages_file *f = arg;
    tri_status status;

    while (f->order[f->next++] != &f->entries[index])
        ;
    status = fetch(f, index);
    return status == TRI_OK ? to->put(to->arg, f->room, f->entries[index].bytes) : status;
}

/* Where writing has failed, takes what the others still send. */
static tri_status write_all(stages_file *f, const char *path)
{
    tri_status status = f->kind->write(path, f->entries, f->n, &(trii_feed){give, f});
    char line[TRII_ERR_BYTES];

    if (status == TRI_OK)
        return TRI_OK;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    for (; f->next < f->n && tri_group_status(f->stages->group) == TRI_OK; f->next++)
        if (f->order[f->next]->bytes > 0)
            (void)fetch(f, f->order[f->next] - f->entries);
    trii_err_set("%s", line);
    return f->peer_failed ? TRI_OK : status;
}

/* --- all of it ------------------------------------------------------------ */

tri_status trii_stages_save(tri_module *module, const char *path, const char *call,
                            const trii_file_kind *kind, tri_status status)
{
    stages_file f = {
        .stages = tri_module_unwrapped(module)->stages, .module = module, .kind = kind};
    tri_group *sharers = trii_sharers(module);

    f.rank = tri_group_rank(f.stages->group);
    status = trii_ranks_meet(f.stages->group, call, status);
    status = trii_stages_agree(module, sharers, status);
    if (status == TRI_OK) /* what pends, on all ranks alike */
        status = trii_stages_agree(module, sharers, tri_run());
    if (status == TRI_OK)
        status = choose(&f);
    f.leads = f.is_written && f.rank == 0;
    if (status == TRI_OK)
        status = take_lists(&f);
    status = trii_ranks_agree(f.stages->group, status);
    if (status == TRI_OK)
        status = list(&f);
    status = trii_stages_agree(module, sharers, status);
    if (status == TRI_OK) {
        status = f.leads ? write_all(&f, path) : send_all(&f);
        status = trii_opened_end(&f.opened, status);
    }
    trii_pages_free(f.room, f.bytes);
    trii_free(f.tolds);
    trii_free(f.entries);
    trii_free(f.order);
    trii_free(f.own);
    return trii_stages_agree(module, sharers, status);
}
