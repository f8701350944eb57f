/*
 * pipeline_ties.c - see pipeline_ties.h.
 *
 * The gradients that the micro-batches of one pass add up to are summed over the ranks once, after
 * the last backward; what a parameter had before is the sum of earlier passes, and is put aside.
 *
 * With replicas (tri_ddp, tri_zero) the sum over the stages comes first, so that each copy gives
 * its replicas the whole gradient; copies then get the same average, since sums over ranks have the
 * same bits wherever in a bucket, or in a part of it, an element lies.
 */
#include "train/parallel/pipeline/pipeline_ties.h"

#include <stdlib.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/hash.h"
#include "train/dist/unit.h"
#include "train/tensor/pipeline_stages.h"
#include "train/graph/ops/rules.h"
#include "train/graph/ops/table.h"
#include "train/graph/record/record.h"
#include "train/graph/step/recorder.h"
#include "train/nn/module.h"
#include "train/traffic/traffic.h"

/* --- which there are ------------------------------------------------------ */

typedef struct entry {
    tri_tensor *tensor;
    int64_t place;
    int rank;
    int stage, module; /* of the recipe */
    const char *name;  /* in the module's state */
} entry;

static int by_tensor(const void *a, const void *b)
{
    const entry *one = a, *other = b;
    uintptr_t x = (uintptr_t)one->tensor, y = (uintptr_t)other->tensor;

    if (x != y)
        return x < y ? -1 : 1;
    return one->place < other->place ? -1 : one->place > other->place;
}

static int by_place(const void *a, const void *b)
{
    const trii_pipeline_tie *one = a, *other = b;

    return one->place < other->place ? -1 : one->place > other->place;
}

/* Without memory a state would seem to be empty. */
static tri_status check_states(const trii_pipeline_recipe *r)
{
    tri_status status = TRI_OK;

    for (int k = 0; k < trii_pipeline_first_of(r, r->stages) && status == TRI_OK; k++)
        if (r->modules[k] != NULL && tri_module_status(r->modules[k]) == TRI_OK)
            status = trii_module_flatten(r->modules[k]);
    return status;
}

/* All parameters of the recipe's modules; entries NULL: counts them. */
static int64_t list_entries(const trii_pipeline *p, const trii_pipeline_recipe *r, entry *entries)
{
    int64_t n = 0, place = 0;

    for (int s = 0; s < r->stages; s++)
        for (int k = trii_pipeline_first_of(r, s); k < trii_pipeline_first_of(r, s + 1); k++)
            for (int64_t i = 0; r->modules[k] != NULL && i < tri_module_state_count(r->modules[k]);
                 i++, place++) {
                tri_state_entry e = tri_module_state(r->modules[k], i);

                if (e.parameter && entries != NULL)
                    entries[n] =
                        (entry){e.tensor, place, trii_pipeline_rank_of(&p->shape, s), s, k, e.name};
                n += e.parameter;
            }
    return n;
}

/* As the pipeline's state has it. */
static char *name_of(const trii_pipeline_recipe *r, const entry *e)
{
    char name[2 * TRI_STATE_NAME_MAX], number[16];

    snprintf(number, sizeof(number), "%d", e->stage);
    snprintf(name, sizeof(name), "%s.%s", r->names != NULL ? r->names[e->module] : number, e->name);
    return trii_strdup(name, "shared parameters");
}

static tri_status add_tie(trii_pipeline *p, const trii_pipeline_recipe *r, const entry *from,
                          const entry *end)
{
    trii_pipeline_tie *tie = &p->ties[p->n_ties];

    *tie = (trii_pipeline_tie){.place = from->place, .first = from->rank};
    tie->has = trii_alloc((size_t)p->shape.ranks, sizeof(*tie->has), "shared parameters");
    tie->name = name_of(r, from);
    p->n_ties++;
    if (tie->has == NULL || tie->name == NULL)
        return TRI_ERR_NO_MEMORY;
    if (trii_tensor_is_cut(from->tensor))
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s, which stages of several ranks share, is cut over ranks "
                         "(tri_parallelize): leave its layer whole, or have all layers that read "
                         "it in one stage",
                         tie->name);
    for (const entry *e = from; e < end; e++)
        tie->has[e->rank] = true;
    tie->tensor = tie->has[p->rank] ? from->tensor : NULL;
    return TRI_OK;
}

static tri_status find(trii_pipeline *p, const trii_pipeline_recipe *r, const entry *entries,
                       int64_t n)
{
    tri_status status = TRI_OK;

    for (const entry *from = entries, *to; from < entries + n && status == TRI_OK; from = to) {
        bool shared = false;

        for (to = from; to < entries + n && to->tensor == from->tensor; to++)
            shared |= to->rank != from->rank;
        if (shared)
            status = add_tie(p, r, from, to);
    }
    qsort(p->ties, (size_t)p->n_ties, sizeof(*p->ties), by_place);
    return status;
}

tri_status trii_pipeline_ties_find(trii_pipeline *p, const trii_pipeline_recipe *r)
{
    tri_status status = check_states(r);
    int64_t n = status == TRI_OK ? list_entries(p, r, NULL) : 0;
    entry *entries;

    if (status != TRI_OK)
        return status;
    status = TRI_ERR_NO_MEMORY;
    entries = trii_alloc((size_t)n + 1, sizeof(*entries), "parameters");
    p->ties = trii_alloc((size_t)n + 1, sizeof(*p->ties), "shared parameters");
    if (entries != NULL && p->ties != NULL) {
        (void)list_entries(p, r, entries);
        qsort(entries, (size_t)n, sizeof(*entries), by_tensor);
        status = find(p, r, entries, n);
    }
    trii_free(entries);
    return status;
}

uint64_t trii_pipeline_ties_hash(const trii_pipeline *p, uint64_t hash)
{
    for (int i = 0; i < p->n_ties; i++) {
        hash = trii_hash(hash, &p->ties[i].place, sizeof(p->ties[i].place));
        hash = trii_hash(hash, p->ties[i].has, (size_t)p->shape.ranks * sizeof(bool));
    }
    return hash;
}

/* --- their groups --------------------------------------------------------- */

static tri_status make_group(trii_pipeline *p, int i)
{
    trii_pipeline_tie *tie = &p->ties[i];
    size_t bytes = (size_t)p->shape.ranks * sizeof(bool);

    for (int k = 0; k < i; k++)
        if (memcmp(p->ties[k].has, tie->has, bytes) == 0) {
            tie->group = tri_group_ref(p->ties[k].group);
            return TRI_OK;
        }
    return tri_group_split(p->group, tie->has[p->rank] ? 0 : -1, p->rank, NULL, &tie->group);
}

/* All copies get the values of the first one. */
static tri_status equal_values(const trii_pipeline_tie *tie)
{
    size_t bytes = trii_tensor_bytes(tie->tensor);
    void *values = trii_alloc_aligned(64, bytes, "shared parameters");
    tri_status status =
        values != NULL ? tri_tensor_copy_out(tie->tensor, values, bytes) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK)
        status = tri_broadcast(tie->group, values, bytes, TRI_DTYPE_U8, 0, NULL);
    if (status == TRI_OK)
        status = tri_tensor_copy_in(tie->tensor, values, bytes);
    trii_free(values);
    return status;
}

tri_status trii_pipeline_ties_make(trii_pipeline *p)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < p->n_ties && status == TRI_OK; i++) {
        trii_pipeline_tie *tie = &p->ties[i];

        status = make_group(p, i);
        if (status == TRI_OK && tie->tensor != NULL)
            status = equal_values(tie);
        if (status == TRI_OK && tie->tensor != NULL && tie->tensor->staged != NULL &&
            p->rank != tie->first)
            *(trii_staged *)(uintptr_t)tie->tensor->staged =
                (trii_staged){tie->tensor->staged->of, tie->place, true, tie->name};
    }
    return status;
}

void trii_pipeline_ties_free(trii_pipeline *p)
{
    for (int i = 0; i < p->n_ties; i++) {
        tri_group_unref(p->ties[i].group);
        trii_free(p->ties[i].has);
        trii_free(p->ties[i].name);
    }
    trii_free(p->ties);
}

/* --- a pass --------------------------------------------------------------- */

/* In eager mode the first backward writes over it. */
static tri_status put_aside(trii_pipeline_tie *tie, trii_step *step)
{
    const trii_unit *unit = trii_unit_of(tie->tensor);
    tri_status status;

    tie->before = TRII_NO_VALUE;
    if (unit != NULL && unit->averager.hook == tri_bucket_hook_power_sgd)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: %s is a parameter of stages of several ranks, and PowerSGD would not "
                         "give their copies the same average: use another hook, or give each stage "
                         "a parameter of its own",
                         unit->call, tie->name);
    status = trii_grad_consume(step, tie->tensor, &tie->before);
    if (status != TRI_OK || tie->before == TRII_NO_VALUE || !trii_recorder_of(step)->eager)
        return status;
    status = trii_rec_scaled(step, tie->before, 1, &tie->before);
    if (status == TRI_OK)
        (void)trii_handle_recorded(step, tie->before);
    return status;
}

tri_status trii_pipeline_ties_begin(trii_pipeline *p, trii_step *step)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < p->n_ties && status == TRI_OK; i++)
        if (p->ties[i].tensor != NULL)
            status = put_aside(&p->ties[i], step);
    return status;
}

/* This rank's part of the sum: zeros if its stages have not used the parameter. */
static tri_status own_part(trii_step *step, tri_tensor *tensor, trii_vid *grad_out)
{
    trii_attrs attrs;
    trii_type type;
    tri_status status = trii_grad_consume(step, tensor, grad_out);

    if (status != TRI_OK || *grad_out != TRII_NO_VALUE)
        return status;
    type = (trii_type){.dtype = tensor->dtype, .device = tensor->device, .ndim = tensor->ndim};
    for (int d = 0; d < tensor->ndim; d++)
        type.shape[d] = tensor->shape[d];
    trii_fill_attrs(&type, 0, &attrs);
    return trii_record_values(step, &trii_op_fill, NULL, 0, &attrs, grad_out);
}

static tri_status sum(const trii_pipeline_tie *tie, trii_step *step)
{
    trii_vid terms[2] = {tie->before, TRII_NO_VALUE}, total;
    tri_status status = own_part(step, tie->tensor, &terms[1]);

    if (status == TRI_OK)
        status = trii_record_all_reduce(step, tie->group, terms[1], TRI_REDOP_SUM, &total);
    if (status != TRI_OK)
        return status;
    trii_traffic_is_for(step, total, "tri_pipeline (gradients of a shared parameter)");
    terms[1] = total;
    if (terms[0] != TRII_NO_VALUE)
        status = trii_record_values(step, &trii_op_add, terms, 2, NULL, &total);
    if (status != TRI_OK || !tie->tensor->requires_grad)
        return status;
    status = trii_grad_prepare(tie->tensor);
    return status == TRI_OK ? trii_grad_bind(step, total, tie->tensor) : status;
}

tri_status trii_pipeline_ties_end(trii_pipeline *p, trii_step *step)
{
    tri_status status = TRI_OK;

    tri_no_grad_begin();
    for (int i = 0; i < p->n_ties && status == TRI_OK; i++)
        if (p->ties[i].tensor != NULL)
            status = sum(&p->ties[i], step);
    tri_no_grad_end();
    return status;
}

void trii_pipeline_abort(const trii_pipeline *p, const char *why)
{
    if (p->group != NULL)
        tri_group_abort(p->group, why);
    for (int i = 0; i < p->n_ties; i++)
        if (p->ties[i].group != NULL)
            tri_group_abort(p->ties[i].group, why);
}
