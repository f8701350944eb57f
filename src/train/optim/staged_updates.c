/*
 * staged_updates.c - how often parameters were updated, where an optimizer has those of one rank's
 * stages of a pipeline: among those of all stages, in the order in which one process has them,
 * group by group. For checkpoints.
 */
#include "train/optim/staged_updates.h"

#include <assert.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/tensor/elsewhere.h"

tri_status trii_optimizer_check_stages(const tri_optimizer *o, const trii_stages *stages)
{
    if (o == NULL || o->stages == stages)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "%s: the optimizer is not of this pipeline: make it of the model that is "
                     "given",
                     o->ops->name);
}

bool trii_optimizer_counts(const tri_optimizer *o, const tri_tensor *tensor)
{
    return o->stages != NULL && tensor == o->updates;
}

static tri_status check(const tri_optimizer *o)
{
    for (int i = 0; i < o->n_params; i++)
        if (o->params[i].tensor->staged == NULL || o->params[i].tensor->staged->of != o->stages)
            return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                             "%s: %s is in no stage of the pipeline that has others: one "
                             "optimizer of them alone can be saved",
                             o->ops->name, o->params[i].name);
    return TRI_OK;
}

/* Of a parameter among the entries of all groups. */
static int64_t entry_of(const tri_optimizer *o, int i)
{
    return o->params[i].group * o->stages->count + o->params[i].tensor->staged->place;
}

/* places[i]: how many parameters of all stages come before it. there: [entries], which are. */
static void count_before(const tri_optimizer *o, const unsigned char *there, int64_t entries,
                         int64_t *places, int64_t *n_out)
{
    int64_t before = 0;

    for (int64_t e = 0; e < entries; e++) {
        for (int i = 0; i < o->n_params && there[e] != 0; i++)
            if (entry_of(o, i) == e)
                places[i] = before;
        before += there[e];
    }
    *n_out = before;
}

tri_status trii_optimizer_places(const tri_optimizer *o, int64_t **places_out, int64_t *n_out)
{
    int32_t groups = o->n_groups;
    unsigned char *there = NULL;
    int64_t entries = 0;
    tri_status status;

    *places_out = NULL;
    status =
        tri_all_reduce(o->stages->group, &groups, &groups, 1, TRI_DTYPE_I32, TRI_REDOP_MAX, NULL);
    if (status != TRI_OK)
        return status;
    entries = groups * o->stages->count;
    there = trii_alloc((size_t)entries + 1, 1, "parameters of all stages");
    *places_out = trii_alloc((size_t)o->n_params + 1, sizeof(**places_out), "places of parameters");
    status = there != NULL && *places_out != NULL ? check(o) : TRI_ERR_NO_MEMORY;
    status = trii_ranks_agree(o->stages->group, status);
    assert(status != TRI_OK || (there != NULL && *places_out != NULL)); /* as on all ranks */
    for (int i = 0; i < o->n_params && status == TRI_OK; i++)
        there[entry_of(o, i)] = 1;
    if (status == TRI_OK)
        status = tri_all_reduce(o->stages->group, there, there, (size_t)entries, TRI_DTYPE_U8,
                                TRI_REDOP_BOR, NULL);
    if (status == TRI_OK)
        count_before(o, there, entries, *places_out, n_out);
    trii_free(there);
    if (status == TRI_OK)
        return TRI_OK;
    trii_free(*places_out);
    *places_out = NULL;
    return status;
}

tri_status trii_optimizer_gather_counts(const tri_optimizer *o, int64_t **counts_out,
                                        int64_t *n_out)
{
    const int64_t *own = trii_tensor_data(o->updates);
    int64_t *places;
    tri_status status = trii_optimizer_places(o, &places, n_out);

    *counts_out = NULL;
    if (status != TRI_OK)
        return status;
    *counts_out = trii_alloc((size_t)*n_out + 1, sizeof(**counts_out), "numbers of updates");
    status = trii_ranks_agree(o->stages->group, *counts_out != NULL ? TRI_OK : TRI_ERR_NO_MEMORY);
    assert(status != TRI_OK || *counts_out != NULL); /* as on all ranks */
    for (int i = 0; i < o->n_params && status == TRI_OK; i++)
        if (!o->params[i].tensor->staged->is_copy)
            (*counts_out)[places[i]] = own[i];
    if (status == TRI_OK)
        status = tri_all_reduce(o->stages->group, *counts_out, *counts_out, (size_t)*n_out,
                                TRI_DTYPE_I64, TRI_REDOP_SUM, NULL);
    trii_free(places);
    return status;
}
