/*
 * transform.c - data sets whose samples go through a list of transforms, and the transforms' random
 * numbers.
 *
 * A transform turns one field into another, whose shape is known in advance or depends on the
 * sample. If all final shapes are known in advance, the data set writes straight into batches; else
 * it gives samples.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "base/philox.h"
#include "data/dataset.h"
#include "data/sample.h"

/* including those of the data sets below, since they share random numbers */
#define MAX_TRANSFORMS 64

typedef struct transform_set {
    tri_dataset base;
    tri_dataset *parent; /* owned */
    int first;           /* how many transforms the data sets below have */
    int n;
    tri_transform list[]; /* [n] */
} transform_set;

/* --- random numbers ------------------------------------------------------- */

struct tri_draws {
    uint64_t seed;
    uint32_t counter[4]; /* index (two words), epoch, transform << 24 | blocks so far */
    uint32_t words[4];
    int left;
};

static uint32_t next_word(tri_draws *draws)
{
    if (draws->left == 0) {
        trii_philox(draws->counter, draws->seed, draws->words);
        draws->counter[3]++;
        draws->left = 4;
    }
    return draws->words[--draws->left];
}

double tri_draws_uniform(tri_draws *draws)
{
    uint64_t high, low;

    if (draws == NULL)
        return 0;
    high = next_word(draws);
    low = next_word(draws);
    return (double)((high << 32 | low) >> 11) * 0x1p-53;
}

int64_t tri_draws_below(tri_draws *draws, int64_t n)
{
    int64_t drawn = n > 0 ? (int64_t)(tri_draws_uniform(draws) * (double)n) : 0;

    /* with a large n the product may be rounded up to n */
    return drawn < n ? drawn : n > 0 ? n - 1 : 0;
}

/* --- one sample ----------------------------------------------------------- */

/* Replaces the transform's field by its result; `moved` is work memory. */
static tri_status apply_one(const tri_transform *t, int place, const tri_request *request,
                            tri_sample *sample, tri_sample *moved)
{
    uint64_t index = (uint64_t)request->indices[0];
    tri_draws draws = {.seed = request->seed,
                       .counter = {(uint32_t)index, (uint32_t)(index >> 32),
                                   (uint32_t)request->epoch, (uint32_t)(place + 1) << 24}};
    tri_status status = trii_sample_begin(moved);
    unsigned n_lines = trii_err_lines();

    if (status == TRI_OK)
        status = t->apply(t, &sample->fields[t->field], sample->data[t->field], &draws, moved);
    if (moved->memory == NULL)
        return status;
    status = trii_sample_end(moved, status, "transform ", t->name, n_lines);
    if (status == TRI_OK)
        trii_sample_swap(sample, t->field, moved, 0);
    return status;
}

static tri_status transform_sample(tri_dataset *self, const tri_request *request,
                                   tri_sample *sample, tri_sample *moved)
{
    transform_set *set = (transform_set *)self;
    tri_status status = tri_dataset_sample(set->parent, request, sample);

    for (int k = 0; k < set->n && status == TRI_OK; k++)
        status = apply_one(&set->list[k], set->first + k, request, sample, moved);
    return status;
}

static tri_status get_sample(tri_dataset *self, const tri_request *request, tri_sample *sample_out)
{
    tri_sample moved = {0};
    tri_status status = transform_sample(self, request, sample_out, &moved);

    tri_sample_clear(&moved);
    return status;
}

static tri_status read_samples(tri_dataset *self, const tri_request *request, void *const *slots)
{
    tri_sample sample = {0}, moved = {0};
    tri_request one = *request;
    tri_status status = TRI_OK;

    one.n = 1;
    for (int64_t i = 0; i < request->n && status == TRI_OK; i++) {
        one.indices = request->indices + i;
        status = transform_sample(self, &one, &sample, &moved);
        if (status == TRI_OK)
            status = trii_sample_check(self, one.indices[0], &sample);
        for (int f = 0; f < self->n_fields && status == TRI_OK; f++) {
            size_t bytes = trii_field_bytes(&self->fields[f]);

            memcpy((char *)slots[f] + (size_t)i * bytes, sample.data[f], bytes);
        }
    }
    tri_sample_clear(&moved);
    tri_sample_clear(&sample);
    return status;
}

static void transform_destroy(tri_dataset *self)
{
    tri_dataset_destroy(((transform_set *)self)->parent);
    trii_free(self);
}

static const tri_dataset_class known_class = {
    .name = "transformed", .read = read_samples, .destroy = transform_destroy};
static const tri_dataset_class varying_class = {
    .name = "transformed", .sample = get_sample, .destroy = transform_destroy};

/* --- making --------------------------------------------------------------- */

/* The fields of this data set: those of the base after all transforms of the list. */
static tri_status find_shapes(transform_set *set)
{
    for (int k = 0; k < set->n; k++) {
        const tri_transform *t = &set->list[k];
        tri_status status = TRI_OK;

        if (t->apply == NULL || t->name == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "dataset_transform: transform %d has no %s, which is required", k,
                             t->apply == NULL ? "apply" : "name");
        if (t->field < 0 || t->field >= set->base.n_fields)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "dataset_transform: transform %s of field %d: the data set has %d",
                             t->name, t->field, set->base.n_fields);
        if (t->shape != NULL) {
            unsigned n_lines = trii_err_lines();

            status = t->shape(t, &set->base.fields[t->field]);
            if (status > 0 || (status < 0 && trii_err_lines() == n_lines))
                return TRII_FAIL(status > 0 ? TRI_ERR_INVALID_ARG : status,
                                 "transform %s: its shape returned %s without a message", t->name,
                                 tri_status_name(status));
        }
        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

static bool is_known(const tri_dataset *set)
{
    for (int f = 0; f < set->n_fields; f++) {
        for (int d = 0; d < set->fields[f].ndim && d < TRI_MAX_DIMS; d++) {
            if (set->fields[f].shape[d] == -1)
                return false;
        }
    }
    return true;
}

static tri_status check_list(tri_dataset *own_base, const tri_transform *transforms, int n,
                             tri_dataset **dataset_out)
{
    tri_status status = trii_dataset_check(own_base, "tri_dataset_transform");

    if (status == TRI_OK && n > 0)
        status = trii_need(transforms, "tri_dataset_transform", "transforms");
    if (status == TRI_OK)
        status = trii_need(dataset_out, "tri_dataset_transform", "dataset_out");
    return status;
}

tri_status tri_dataset_transform(tri_dataset *own_base, const tri_transform *transforms, int n,
                                 tri_dataset **dataset_out)
{
    tri_status status = check_list(own_base, transforms, n, dataset_out);
    transform_set *set = NULL;
    int first = 0;

    if (status != TRI_OK)
        goto err_base;
    if (own_base->cls == &known_class || own_base->cls == &varying_class)
        first = ((transform_set *)own_base)->first + ((transform_set *)own_base)->n;
    if (n < 0 || n > MAX_TRANSFORMS - first) {
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG,
                      "dataset_transform: %d transforms over %d: at most %d are allowed together",
                      n, first, MAX_TRANSFORMS);
        goto err_base;
    }
    for (int i = 0; status == TRI_OK && i < n; i++)
        status = TRII_CHECK_RESERVED(tri_transform, &transforms[i]);
    if (status != TRI_OK)
        goto err_base;
    set = trii_alloc(1, sizeof(*set) + (size_t)n * sizeof(*transforms), "transforms");
    if (set == NULL) {
        status = TRI_ERR_NO_MEMORY;
        goto err_base;
    }
    set->base = *own_base;
    set->parent = own_base;
    set->first = first;
    set->n = n;
    if (n > 0)
        memcpy(set->list, transforms, (size_t)n * sizeof(*transforms));
    status = find_shapes(set);
    set->base.cls = is_known(&set->base) ? &known_class : &varying_class;
    if (status == TRI_OK)
        status = trii_dataset_check(&set->base, "tri_dataset_transform");
    if (status != TRI_OK)
        goto err_base;
    *dataset_out = &set->base;
    return TRI_OK;

err_base:
    trii_free(set);
    tri_dataset_destroy(own_base);
    return status;
}
