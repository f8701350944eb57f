/*
 * subset.c - some of a data set's samples: tri_dataset_subset.
 */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/data/dataset.h"
#include "train/data/image_folder.h"

typedef trii_derived subset;

static const void *subset_peek(const tri_dataset *self, int64_t index, int field)
{
    const subset *s = (const subset *)self;

    return s->parent->cls->peek(s->parent, s->first + index, field);
}

/* Draws are keyed by the index in the parent: the same sample changes in the same way. */
static tri_status subset_read(tri_dataset *self, const tri_request *request, void *const *slots)
{
    subset *s = (subset *)self;
    void *at[TRI_MAX_FIELDS];

    for (int64_t done = 0; done < request->n;) {
        int64_t indices[64];
        tri_request part = {.indices = indices, .seed = request->seed, .epoch = request->epoch};
        tri_status status;

        while (part.n < (int64_t)TRII_COUNT_OF(indices) && done + part.n < request->n) {
            indices[part.n] = s->first + request->indices[done + part.n];
            part.n++;
        }
        for (int f = 0; f < s->parent->n_fields; f++)
            at[f] = (char *)slots[f] + (size_t)done * trii_field_bytes(&s->parent->fields[f]);
        status = tri_dataset_read(s->parent, &part, at);
        if (status != TRI_OK)
            return status;
        done += part.n;
    }
    return TRI_OK;
}

static tri_status subset_sample(tri_dataset *self, const tri_request *request,
                                tri_sample *sample_out)
{
    subset *s = (subset *)self;
    int64_t index = s->first + request->indices[0];
    tri_request part = *request;

    part.indices = &index;
    return tri_dataset_sample(s->parent, &part, sample_out);
}

static const tri_dataset_class subset_class = {
    .name = "subset",
    .read = subset_read,
    .destroy = trii_derived_destroy,
};
static const tri_dataset_class subset_memory_class = {
    .name = "subset",
    .peek = subset_peek,
    .destroy = trii_derived_destroy,
};

static const tri_dataset_class subset_varying_class = {
    .name = "subset",
    .sample = subset_sample,
    .destroy = trii_derived_destroy,
};

static const tri_dataset_class *subset_class_of(const tri_dataset *base)
{
    if (base->cls->sample != NULL)
        return &subset_varying_class;
    return base->cls->peek != NULL ? &subset_memory_class : &subset_class;
}

tri_status tri_dataset_subset(tri_dataset *own_base, int64_t first, int64_t count,
                              tri_dataset **dataset_out)
{
    tri_status status = trii_dataset_check(own_base, "tri_dataset_subset");
    subset *s;

    if (status == TRI_OK)
        status = trii_need(dataset_out, "tri_dataset_subset", "dataset_out");
    if (status != TRI_OK)
        goto err_base;
    if (first < 0 || count < 0 || first > own_base->length || count > own_base->length - first) {
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "dataset_subset: %" PRId64 " samples from %" PRId64 " on, of %" PRId64,
                           count, first, own_base->length);
        goto err_base;
    }
    s = trii_alloc(1, sizeof(*s), "subset");
    if (s == NULL) {
        status = TRI_ERR_NO_MEMORY;
        goto err_base;
    }
    s->base = *own_base;
    s->base.cls = subset_class_of(own_base);
    s->base.length = count;
    s->parent = own_base;
    s->first = first;
    s->unchanged = true;
    trii_image_folder_narrow(own_base, first, count);
    *dataset_out = &s->base;
    return TRI_OK;

err_base:
    tri_dataset_destroy(own_base);
    return status;
}
