/*
 * transform.c - data sets whose samples go through a list of transforms.
 *
 * A transform turns one field into another, whose shape is known in advance or depends on the
 * sample. If all final shapes are known in advance, the data set writes straight into batches; else
 * it gives samples.
 *
 * Transforms of images that follow each other are one stage: crops and mirrors move a view
 * (image_view.h), and the pixels that it shows at the end are written once, as they are or, if
 * to_float and normalize come next, as numbers.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "train/data/dataset.h"
#include "train/data/draws.h"
#include "train/data/image_folder.h"
#include "train/data/image_transforms.h"
#include "train/data/sample.h"

/* including those of the data sets below, since they share random numbers */
#define MAX_TRANSFORMS 64

/* What is applied at once: one transform, or several of an image. */
typedef struct stage {
    int first, n; /* of the list */
    int field;
    bool is_view;
    bool to_float; /* the view's bytes become (byte / 255 - mean[c]) / std[c] */
    float mean[TRII_MAX_CHANNELS], std[TRII_MAX_CHANNELS];
} stage;

typedef struct transform_set {
    trii_derived derived;
    int first; /* how many transforms the data sets below have */
    int n, n_stages;
    stage *stages;        /* [n_stages], owned */
    tri_transform list[]; /* [n] */
} transform_set;

/* --- one sample ----------------------------------------------------------- */

/* Replaces the transform's field by its result; `moved` is work memory. */
static tri_status apply_one(const tri_transform *t, int place, const tri_request *request,
                            tri_sample *sample, tri_sample *moved)
{
    tri_draws draws = trii_draws_of(request, place);
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

/* Moves a view of the image as the stage's transforms say. */
static tri_status move_view(const transform_set *set, const stage *s, const tri_request *request,
                            trii_view *view, trii_view_work *work)
{
    tri_status status = TRI_OK;

    for (int k = s->first; k < s->first + s->n && status == TRI_OK; k++) {
        if (trii_transform_moves(&set->list[k])) {
            tri_draws draws = trii_draws_of(request, set->first + k);

            status = trii_transform_move(&set->list[k], view, &draws, work);
        }
    }
    return status;
}

static tri_status write_view(const stage *s, trii_view *view, void *to, trii_view_work *work)
{
    if (s->to_float)
        return trii_view_to_float(view, s->mean, s->std, to, work);
    trii_view_copy(view, to);
    return TRI_OK;
}

/* Work memory of one call. */
typedef struct pass {
    tri_sample sample, moved;
    trii_view_work view;
} pass;

static void pass_fini(pass *p)
{
    tri_sample_clear(&p->sample);
    tri_sample_clear(&p->moved);
    trii_view_work_fini(&p->view);
}

/* Replaces the stage's field by what its transforms make of it. */
static tri_status apply_view(const transform_set *set, const stage *s, const tri_request *request,
                             tri_sample *sample, pass *p)
{
    const tri_field *in = &sample->fields[s->field];
    trii_view view = trii_view_of(in, sample->data[s->field]);
    tri_status status = trii_sample_begin(&p->moved);
    void *to;

    if (status == TRI_OK)
        status = move_view(set, s, request, &view, &p->view);
    if (status != TRI_OK)
        return status;
    to = tri_sample_room(&p->moved, 0, s->to_float ? TRI_DTYPE_F32 : in->dtype,
                         (const int64_t[]){view.channels, view.height, view.width}, 3);
    if (to == NULL)
        return TRI_ERR_NO_MEMORY;
    status = write_view(s, &view, to, &p->view);
    if (status == TRI_OK)
        trii_sample_swap(sample, s->field, &p->moved, 0);
    return status;
}

/* An image in a file, that goes to a slot or becomes field 0 of a sample. */
typedef struct looking {
    const transform_set *set;
    const tri_request *request;
    void *slot; /* NULL: the sample */
    tri_sample *sample;
} looking;

static tri_status look(void *arg, trii_view *view, trii_view_work *work)
{
    const looking *l = arg;
    const stage *s = &l->set->stages[0];
    tri_status status = move_view(l->set, s, l->request, view, work);
    void *to = l->slot;

    if (status == TRI_OK)
        status = trii_view_decode(view, work);
    if (status != TRI_OK)
        return status;
    if (to == NULL)
        to = tri_sample_room(l->sample, 0, s->to_float ? TRI_DTYPE_F32 : TRI_DTYPE_U8,
                             (const int64_t[]){view->channels, view->height, view->width}, 3);
    return to != NULL ? write_view(s, view, to, work) : TRI_ERR_NO_MEMORY;
}

/* The sample after the first stage, if that can look at a file; *done_out: whether it could. */
static tri_status begin_with_file(const transform_set *set, const tri_request *request,
                                  tri_sample *sample, bool *done_out)
{
    looking l = {.set = set, .request = request, .sample = sample};
    int64_t index = request->indices[0], label = 0, *to;
    tri_dataset *folder = set->n_stages > 0 && set->stages[0].is_view
                              ? trii_image_folder_below(set->derived.parent, &index)
                              : NULL;
    tri_status status = TRI_OK;

    *done_out = folder != NULL;
    if (folder == NULL)
        return TRI_OK;
    status = trii_sample_begin(sample);
    if (status == TRI_OK)
        status = trii_image_folder_look(folder, index, look, &l, &label);
    if (status != TRI_OK)
        return status;
    to = tri_sample_room(sample, 1, TRI_DTYPE_I64, NULL, 0);
    if (to == NULL)
        return TRI_ERR_NO_MEMORY;
    *to = label;
    return TRI_OK;
}

static tri_status transform_sample(tri_dataset *self, const tri_request *request,
                                   tri_sample *sample, pass *p)
{
    transform_set *set = (transform_set *)self;
    bool begun = false;
    tri_status status = begin_with_file(set, request, sample, &begun);

    if (status == TRI_OK && !begun)
        status = tri_dataset_sample(set->derived.parent, request, sample);
    for (int k = begun ? 1 : 0; k < set->n_stages && status == TRI_OK; k++) {
        const stage *s = &set->stages[k];

        status = s->is_view ? apply_view(set, s, request, sample, p)
                            : apply_one(&set->list[s->first], set->first + s->first, request,
                                        sample, &p->moved);
    }
    return status;
}

static tri_status get_sample(tri_dataset *self, const tri_request *request, tri_sample *sample_out)
{
    pass p = {.sample = {0}};
    tri_status status = transform_sample(self, request, sample_out, &p);

    pass_fini(&p);
    return status;
}

/* One stage over images that are in memory: they are read where they are. */
static tri_status read_views(transform_set *set, const tri_request *request, void *const *slots)
{
    const stage *s = &set->stages[0];
    const tri_dataset *parent = set->derived.parent;
    size_t bytes = trii_field_bytes(&set->derived.base.fields[s->field]);
    trii_view_work work = {.turn = 0};
    tri_request one = *request;
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < request->n && status == TRI_OK; i++) {
        trii_view view = trii_view_of(&parent->fields[s->field],
                                      parent->cls->peek(parent, request->indices[i], s->field));

        one.indices = request->indices + i;
        status = move_view(set, s, &one, &view, &work);
        if (status == TRI_OK)
            status = write_view(s, &view, (char *)slots[s->field] + (size_t)i * bytes, &work);
    }
    trii_view_work_fini(&work);
    for (int f = 0; f < parent->n_fields && status == TRI_OK; f++) {
        if (f != s->field)
            trii_dataset_copy_field(parent, request, f, slots[f]);
    }
    return status;
}

/* One stage over images in files, which are written where the batch has them. */
static tri_status read_files(transform_set *set, const tri_request *request, void *const *slots)
{
    size_t bytes = trii_field_bytes(&set->derived.base.fields[0]);
    tri_status status = TRI_OK;
    tri_request one = *request;

    one.n = 1;
    for (int64_t i = 0; i < request->n && status == TRI_OK; i++) {
        looking l = {.set = set, .request = &one, .slot = (char *)slots[0] + (size_t)i * bytes};
        int64_t index = request->indices[i];
        tri_dataset *folder = trii_image_folder_below(set->derived.parent, &index);

        one.indices = request->indices + i;
        status = trii_image_folder_look(folder, index, look, &l, (int64_t *)slots[1] + i);
    }
    return status;
}

static tri_status read_samples(tri_dataset *self, const tri_request *request, void *const *slots)
{
    transform_set *set = (transform_set *)self;
    tri_request one = *request;
    tri_status status = TRI_OK;
    pass p = {.sample = {0}};
    int64_t any = 0;

    if (set->n_stages == 1 && set->stages[0].is_view && set->derived.parent->cls->peek != NULL)
        return read_views(set, request, slots);
    if (set->n_stages == 1 && set->stages[0].is_view &&
        trii_image_folder_below(set->derived.parent, &any) != NULL)
        return read_files(set, request, slots);
    one.n = 1;
    for (int64_t i = 0; i < request->n && status == TRI_OK; i++) {
        one.indices = request->indices + i;
        status = transform_sample(self, &one, &p.sample, &p);
        if (status == TRI_OK)
            status = trii_sample_check(self, one.indices[0], &p.sample);
        for (int f = 0; f < self->n_fields && status == TRI_OK; f++) {
            size_t bytes = trii_field_bytes(&self->fields[f]);

            memcpy((char *)slots[f] + (size_t)i * bytes, p.sample.data[f], bytes);
        }
    }
    pass_fini(&p);
    return status;
}

static void free_stages(trii_derived *self)
{
    trii_free(((transform_set *)self)->stages);
}

static const tri_dataset_class known_class = {
    .name = "transformed", .read = read_samples, .destroy = trii_derived_destroy};
static const tri_dataset_class varying_class = {
    .name = "transformed", .sample = get_sample, .destroy = trii_derived_destroy};

/* --- making --------------------------------------------------------------- */

/* Images whose bytes a view can turn into numbers. */
static bool can_convert(const tri_field *field)
{
    return field->dtype == TRI_DTYPE_U8 && field->ndim == 3 && field->shape[0] >= 1 &&
           field->shape[0] <= TRII_MAX_CHANNELS;
}

/* Whether the transform, of a field that is as `in` before it, is done by the view of the stage. */
static bool continues_view(const transform_set *set, const stage *s, const tri_transform *t,
                           const tri_field *in)
{
    if (!s->is_view || s->field != t->field)
        return false;
    if (!s->to_float)
        return (trii_transform_moves(t) && in->ndim == 3) ||
               (trii_transform_is_to_float(t) && can_convert(in));
    return trii_transform_is_normalize(t) &&
           trii_transform_is_to_float(&set->list[s->first + s->n - 1]);
}

/* Transform k, of a field that is as `in` before it, becomes a stage or part of the last one. */
static void add_to_stages(transform_set *set, int k, const tri_field *in)
{
    const tri_transform *t = &set->list[k];
    bool joins = set->n_stages > 0 && continues_view(set, &set->stages[set->n_stages - 1], t, in);
    stage *s;

    set->n_stages += !joins;
    s = &set->stages[set->n_stages - 1];
    if (!joins) {
        *s = (stage){.first = k, .field = t->field, .is_view = true};
        s->is_view = continues_view(set, s, t, in);
    }
    s->n++;
    if (s->is_view && trii_transform_is_to_float(t)) {
        s->to_float = true;
        for (int c = 0; c < TRII_MAX_CHANNELS; c++)
            s->std[c] = 1.0f;
    } else if (s->is_view && trii_transform_is_normalize(t)) {
        trii_normalize_numbers(t, s->mean, s->std);
    }
}

/* The fields of this data set: those of the base after all transforms of the list. */
static tri_status find_shapes(transform_set *set)
{
    for (int k = 0; k < set->n; k++) {
        const tri_transform *t = &set->list[k];
        tri_status status = TRI_OK;
        tri_field in;

        if (t->apply == NULL || t->name == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "dataset_transform: transform %d has no %s, which is required", k,
                             t->apply == NULL ? "apply" : "name");
        if (t->field < 0 || t->field >= set->derived.base.n_fields)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "dataset_transform: transform %s of field %d: the data set has %d",
                             t->name, t->field, set->derived.base.n_fields);
        in = set->derived.base.fields[t->field];
        if (t->shape != NULL) {
            unsigned n_lines = trii_err_lines();

            status = t->shape(t, &set->derived.base.fields[t->field]);
            if (status > 0 || (status < 0 && trii_err_lines() == n_lines))
                return TRII_FAIL(status > 0 ? TRI_ERR_INVALID_ARG : status,
                                 "transform %s: its shape returned %s without a message", t->name,
                                 tri_status_name(status));
        }
        if (status != TRI_OK)
            return status;
        add_to_stages(set, k, &in);
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
    set->stages = trii_alloc((size_t)n + 1, sizeof(*set->stages), "transforms");
    if (set->stages == NULL) {
        status = TRI_ERR_NO_MEMORY;
        goto err_base;
    }
    set->derived.base = *own_base;
    set->derived.parent = own_base;
    set->derived.fini = free_stages;
    set->first = first;
    set->n = n;
    if (n > 0)
        memcpy(set->list, transforms, (size_t)n * sizeof(*transforms));
    status = find_shapes(set);
    set->derived.base.cls = is_known(&set->derived.base) ? &known_class : &varying_class;
    if (status == TRI_OK)
        status = trii_dataset_check(&set->derived.base, "tri_dataset_transform");
    if (status != TRI_OK)
        goto err_base;
    *dataset_out = &set->derived.base;
    return TRI_OK;

err_base:
    if (set != NULL)
        trii_free(set->stages);
    trii_free(set);
    tri_dataset_destroy(own_base);
    return status;
}
