/*
 * first_update.c - what the ranks of a tensor group (tri_parallelize) compute with alike, and
 * nothing sends: the batch, random numbers and an optimizer's settings. Ranks that differ in them
 * train on without a word, each with other values of what it has whole. An optimizer's first update
 * compares them; later ones cost nothing.
 *
 * The comparison is recorded as any collective of the step, so ranks need not run in one rhythm,
 * and a rank that fails before leaves nobody waiting.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/hash.h"
#include "train/graph/step/cut_features.h"
#include "train/graph/step/type.h"
#include "train/optim/optimizer.h"
#include "train/tensor/device_memory.h"
#include "train/tensor/rank_text.h"
#include "train/traffic/comparison.h"

/* Of one rank. */
typedef struct facts {
    uint64_t batch; /* hash; 0: nothing is known of it */
    uint64_t draws; /* whether the step draws random numbers, from: */
    tri_rng random;
    uint64_t kind;             /* hash: which optimizer, and how many groups of parameters */
    uint64_t settings;         /* hash of those of all groups */
    double hyper[TRII_HYPERS]; /* of the first */
} facts;

/* --- the batch ------------------------------------------------------------ */

/* Contents of a tensor that was there before the step. 0: none of those that all ranks have. */
static tri_status hash_leaf(const trii_value *value, uint64_t *hash_io)
{
    const trii_type *type = &value->type;
    size_t bytes = trii_type_bytes(type);
    void *copy = NULL;
    tri_status status = TRI_OK;

    if (value->leaf == NULL || value->requires_grad || value->state != TRII_VALUE_READY ||
        value->leaf->held != NULL || value->leaf->placed != NULL ||
        trii_value_layout(value) != NULL || bytes == 0)
        return TRI_OK;
    *hash_io = trii_hash(*hash_io, type->shape, (size_t)type->ndim * sizeof(type->shape[0]));
    if (trii_device_kind_of(type->device) == TRI_DEVICE_CPU) {
        *hash_io = trii_hash(*hash_io, trii_value_data(value), bytes);
        return TRI_OK;
    }
    copy = trii_alloc(1, bytes, "a batch");
    status = copy != NULL
                 ? trii_memory_copy(TRI_CPU(0), copy, type->device, trii_value_data(value), bytes)
                 : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK)
        *hash_io = trii_hash(*hash_io, copy, bytes);
    trii_free(copy);
    return status;
}

/* Of the tensors from which this rank alone has computed the value: what ranks sent each other on
 * the way has other sources. */
static tri_status hash_sources(const trii_step *step, trii_vid of, uint64_t *hash_io)
{
    bool *wanted = trii_alloc((size_t)of + 1, sizeof(*wanted), "values of a batch");
    tri_status status = wanted != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK)
        wanted[of] = true;
    for (trii_vid v = of; v >= 0 && status == TRI_OK; v--) { /* operands come before results */
        const trii_value *value = &step->values[v];
        const trii_node *node = value->node >= 0 ? &step->nodes[value->node] : NULL;

        if (!wanted[v])
            continue;
        if (node == NULL)
            status = hash_leaf(value, hash_io);
        for (int i = 0; node != NULL && node->host == NULL && i < node->n_in; i++) {
            trii_vid in = trii_node_in(step, node, i);

            if (in != TRII_NO_VALUE && in < v)
                wanted[in] = true;
        }
    }
    trii_free(wanted);
    return status;
}

static tri_status find_facts(const tri_optimizer *o, const trii_step *step, facts *f)
{
    uint64_t hash = TRII_HASH_SEED;
    trii_vid input = trii_cut_input_now();
    tri_status status = input != TRII_NO_VALUE ? hash_sources(step, input, &hash) : TRI_OK;

    f->batch = hash != TRII_HASH_SEED ? hash : 0;
    f->draws = step->random_count > 0;
    if (f->draws)
        f->random = step->random;
    f->kind = trii_hash_text(TRII_HASH_SEED + (uint64_t)o->n_groups, o->ops->name);
    f->settings = TRII_HASH_SEED;
    for (int g = 0; g < o->n_groups; g++)
        f->settings = trii_hash(f->settings, o->groups[g].hyper, sizeof(o->groups[g].hyper));
    memcpy(f->hyper, o->groups[0].hyper, sizeof(f->hyper));
    return status;
}

/* --- what differs --------------------------------------------------------- */

static bool other_batch(const facts *a, const facts *b)
{
    return a->batch != 0 && b->batch != 0 && a->batch != b->batch;
}

static bool other_random(const facts *a, const facts *b)
{
    return a->draws && b->draws &&
           (a->random.seed != b->random.seed || a->random.stream != b->random.stream ||
            a->random.step != b->random.step);
}

static bool other_settings(const facts *a, const facts *b)
{
    return a->kind != b->kind || a->settings != b->settings;
}

static void say_batch(const facts *a, const facts *b, char *text, size_t bytes)
{
    (void)a, (void)b;
    snprintf(
        text, bytes,
        "another batch than rank 0: give each rank the samples of its coordinate along the data "
        "axis");
}

static void say_random(const facts *a, const facts *b, char *text, size_t bytes)
{
    snprintf(text, bytes,
             "random numbers of seed %" PRIu64 ", stream %" PRIu64 ", step %" PRId64
             ", and rank 0 of seed %" PRIu64 ", stream %" PRIu64 ", step %" PRId64
             ": call tri_manual_seed with one seed on all of them",
             a->random.seed, a->random.stream, a->random.step, b->random.seed, b->random.stream,
             b->random.step);
}

static void say_settings(const facts *a, const facts *b, char *text, size_t bytes)
{
    for (int h = 0; h < TRII_HYPERS && a->kind == b->kind; h++) {
        if (a->hyper[h] == b->hyper[h])
            continue;
        snprintf(text, bytes, "%s %g in its optimizer, and rank 0 has %g: give all ranks the same",
                 trii_hyper_name((tri_hyper)h), a->hyper[h], b->hyper[h]);
        return;
    }
    snprintf(text, bytes,
             a->kind != b->kind
                 ? "another kind of optimizer than rank 0, or another number of groups"
                 : "other settings of a group of parameters than rank 0");
}

static const struct {
    bool (*differs)(const facts *a, const facts *b);
    void (*say)(const facts *a, const facts *b, char *text, size_t bytes);
} checks[] = {{other_batch, say_batch}, {other_random, say_random}, {other_settings, say_settings}};

static tri_status compare_all(const tri_group *group, const void *of_ranks)
{
    const facts *all = of_ranks;
    int ranks = tri_group_size(group);

    for (size_t k = 0; k < sizeof(checks) / sizeof(checks[0]); k++) {
        char others[TRII_ERR_BYTES / 4] = "", what[TRII_ERR_BYTES / 2];
        size_t used = 0;
        int first = 0;

        for (int r = 1; r < ranks; r++) {
            if (!checks[k].differs(&all[r], &all[0]))
                continue;
            if (first == 0)
                checks[k].say(&all[r], &all[0], what, sizeof(what));
            else if (used < sizeof(others))
                used += (size_t)snprintf(others + used, sizeof(others) - used, "%s%d",
                                         used == 0 ? "; other ranks that differ: " : ", ", r);
            first = first == 0 ? r : first;
        }
        if (first > 0)
            return TRII_FAIL(TRI_ERR_MISMATCH,
                             "all ranks of a tensor group (tri_parallelize) compute one batch "
                             "alike, but %s has %s%s",
                             trii_rank_text_of(group, first).text, what, others);
    }
    return TRI_OK;
}

/* --- the call ------------------------------------------------------------- */

static tri_status record(const tri_optimizer *o, trii_step *step, tri_group *group)
{
    facts own = {0};
    tri_status status = find_facts(o, step, &own);

    return status == TRI_OK ? trii_record_comparison(step, group, &own, sizeof(own), compare_all)
                            : status;
}

tri_status trii_optimizer_compare_ranks(tri_optimizer *o, trii_step *step)
{
    for (int i = 0; i < o->n_params; i++) {
        const tri_tensor *tensor = o->params[i].tensor;

        if (trii_tensor_is_cut(tensor))
            return record(o, step, tensor->held->group);
    }
    return TRI_OK;
}
