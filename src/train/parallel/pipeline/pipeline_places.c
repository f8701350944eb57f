/*
 * pipeline_places.c - which place each tensor of this rank's stages has in the state of the whole
 * network (train/tensor/pipeline_stages.h).
 */
#include <trireme/group.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/tensor/pipeline_stages.h"
#include "train/nn/module.h"
#include "train/parallel/pipeline/pipeline_internal.h"

/* How many entries a stage of this rank has. */
static int64_t entries_of(const trii_pipeline *p, int local)
{
    int64_t n = 0;

    for (int i = p->first[local]; i < p->first[local + 1]; i++)
        n += tri_module_state_count(p->parts[i]);
    return n;
}

static bool has_wide(tri_module *model)
{
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        tri_state_entry entry = tri_module_state(model, i);

        if (entry.parameter && entry.tensor->dtype == TRI_DTYPE_F64)
            return true;
    }
    return false;
}

/* counts: [stages + 1], of the entries of each stage, of all ranks from now on; and in how many
 * ranks there is an f64. */
static tri_status exchange(tri_module *model, const trii_pipeline *p, int64_t *counts)
{
    for (int k = 0; k < p->n_local; k++)
        counts[trii_pipeline_stage_of(&p->shape, p->rank, k)] = entries_of(p, k);
    counts[p->shape.stages] = has_wide(model);
    return tri_all_reduce(p->group, counts, counts, (size_t)p->shape.stages + 1, TRI_DTYPE_I64,
                          TRI_REDOP_SUM, NULL);
}

static void put_places(tri_module *model, const trii_pipeline *p, const int64_t *counts)
{
    trii_staged *next = p->staged;
    int64_t entry = 0;

    for (int k = 0; k < p->n_local; k++) {
        int stage = trii_pipeline_stage_of(&p->shape, p->rank, k);
        int64_t place = 0;

        for (int s = 0; s < stage; s++)
            place += counts[s];
        for (int64_t i = 0; i < counts[stage]; i++, entry++, place++, next++) {
            tri_tensor *tensor = tri_module_state(model, entry).tensor;

            *next = (trii_staged){.of = model->stages, .place = place};
            model->stages->entries[place] =
                (trii_stages_entry){p->rank, trii_stages_hash(tri_module_state(model, entry).name)};
            if (tensor->staged == NULL || tensor->staged->of != model->stages)
                tensor->staged = next;
        }
    }
}

/* Without memory a state would seem to be empty. */
static tri_status check_states(tri_module *model, const trii_pipeline *p)
{
    tri_status status = trii_module_flatten(model);

    for (int i = 0; i < p->first[p->n_local] && status == TRI_OK; i++)
        status = trii_module_flatten(p->parts[i]);
    return status;
}

static tri_status make(tri_module *model, trii_pipeline *p, int64_t *counts)
{
    trii_stages *stages = trii_alloc(1, sizeof(*stages), "stages");
    tri_status status = stages != NULL ? check_states(model, p) : TRI_ERR_NO_MEMORY;

    if (status != TRI_OK) {
        trii_free(stages);
        return status;
    }
    atomic_init(&stages->refs, 1);
    stages->group = tri_group_ref(p->group);
    stages->given = (trii_stages_given){.max_norm = -1, .rate = -1};
    model->stages = stages;
    p->staged = trii_alloc((size_t)tri_module_state_count(model) + 1, sizeof(*p->staged), "stages");
    if (p->staged == NULL)
        return TRI_ERR_NO_MEMORY;
    status = exchange(model, p, counts);
    if (status != TRI_OK)
        return status;
    for (int s = 0; s < p->shape.stages; s++)
        stages->count += counts[s];
    stages->is_wide = counts[p->shape.stages] > 0;
    stages->entries = trii_alloc((size_t)stages->count + 1, sizeof(*stages->entries), "stages");
    if (stages->entries == NULL)
        return TRI_ERR_NO_MEMORY;
    put_places(model, p, counts); /* zeros where others have something */
    return tri_all_reduce(p->group, stages->entries, stages->entries, 2 * (size_t)stages->count,
                          TRI_DTYPE_I64, TRI_REDOP_SUM, NULL);
}

tri_status trii_pipeline_places_make(tri_module *model)
{
    trii_pipeline *p = model->data;
    int64_t *counts = trii_alloc((size_t)p->shape.stages + 1, sizeof(*counts), "stages");
    tri_status status = counts != NULL ? make(model, p, counts) : TRI_ERR_NO_MEMORY;

    trii_free(counts);
    return status;
}

void trii_pipeline_places_free(tri_module *model)
{
    const trii_pipeline *p = model->data;

    for (int k = 0; p->staged != NULL && k < p->first[p->n_local]; k++)
        for (int64_t i = 0; i < tri_module_state_count(p->parts[k]); i++) {
            tri_tensor *tensor = tri_module_state(p->parts[k], i).tensor;

            if (tensor->staged != NULL && tensor->staged->of == model->stages)
                tensor->staged = NULL;
        }
    trii_free(p->staged);
    trii_stages_unref(model->stages);
    model->stages = NULL;
}
