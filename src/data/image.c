/*
 * image.c - images to tensors: crop, mirror, convert and normalise in one pass.
 *
 * The draws of a sample are one Philox block: key = seed, counter = (index, epoch). So they
 * depend on nothing else, and a sample costs a few hundred nanoseconds.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "base/philox.h"
#include "data/dataset.h"

#define MAX_CHANNELS 4
#define MAX_PIXELS (1 << 20) /* along a side */

typedef struct image_set {
    tri_dataset base;
    tri_dataset *parent; /* owned */
    int pad;
    bool flip;
    int channels, height, width;
    float scale[MAX_CHANNELS], shift[MAX_CHANNELS]; /* value = byte * scale + shift */
} image_set;

/* What the random numbers of one sample decide. */
typedef struct placement {
    int dy, dx; /* the cut starts here in the image, -pad .. pad */
    bool mirror;
} placement;

static placement draw(const image_set *set, const tri_request *request, int64_t index)
{
    uint32_t span = (uint32_t)(2 * set->pad + 1);
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)((uint64_t)index >> 32),
                           (uint32_t)request->epoch, (uint32_t)((uint64_t)request->epoch >> 32)};
    uint32_t r[4];

    if (set->pad == 0 && !set->flip)
        return (placement){0};
    trii_philox(counter, request->seed, r);
    return (placement){
        .dy = (int)trii_philox_below(r[0], span) - set->pad,
        .dx = (int)trii_philox_below(r[1], span) - set->pad,
        .mirror = set->flip && (r[2] & 1u) != 0,
    };
}

/* n bytes to floats; backwards if mirrored (src is then the last byte). Plain loops that the
 * compiler vectorises. */
static void convert(const uint8_t *src, bool mirror, int n, float scale, float shift, float *dst)
{
    if (mirror) {
        for (int i = 0; i < n; i++)
            dst[i] = (float)src[-i] * scale + shift;
    } else {
        for (int i = 0; i < n; i++)
            dst[i] = (float)src[i] * scale + shift;
    }
}

static void fill(float *dst, int n, float value)
{
    for (int i = 0; i < n; i++)
        dst[i] = value;
}

/* One channel: src u8 [H, W] -> dst f32 [H, W]. Output column x shows column x + dx of the image,
 * or of its mirror image; outside the image is byte 0. */
static void place_plane(const image_set *set, const placement *p, const uint8_t *src, float scale,
                        float shift, float *dst)
{
    int height = set->height, width = set->width;
    int first = p->dx < 0 ? -p->dx : 0;
    int end = p->dx > 0 ? width - p->dx : width;
    int column = first + p->dx;

    if (end <= first)
        first = end = column = 0; /* nothing of the image is left */
    else if (p->mirror)
        column = width - 1 - column;
    for (int y = 0; y < height; y++, dst += width) {
        int row = y + p->dy;

        if (row < 0 || row >= height) {
            fill(dst, width, shift);
            continue;
        }
        fill(dst, first, shift);
        convert(src + (ptrdiff_t)row * width + column, p->mirror, end - first, scale, shift,
                dst + first);
        fill(dst + end, width - end, shift);
    }
}

static void place_sample(const image_set *set, const tri_request *request, int64_t index,
                         const uint8_t *src, float *dst)
{
    placement p = draw(set, request, index);
    ptrdiff_t plane = (ptrdiff_t)set->height * set->width;

    for (int c = 0; c < set->channels; c++)
        place_plane(set, &p, src + c * plane, set->scale[c], set->shift[c], dst + c * plane);
}

/* The base has its samples in memory: converts them without a copy in between. */
static tri_status read_from_memory(tri_dataset *self, const tri_request *request,
                                   void *const *slots)
{
    const image_set *set = (const image_set *)self;
    const tri_dataset *parent = set->parent;
    size_t elems = (size_t)set->channels * (size_t)set->height * (size_t)set->width;

    for (int64_t i = 0; i < request->n; i++) {
        int64_t index = request->indices[i];

        place_sample(set, request, index, parent->cls->peek(parent, index, 0),
                     (float *)slots[0] + (size_t)i * elems);
    }
    for (int f = 1; f < self->n_fields; f++)
        trii_dataset_copy_field(parent, request, f, slots[f]);
    return TRI_OK;
}

/* The base makes its samples: gets them as bytes, then converts. */
static tri_status read_made(tri_dataset *self, const tri_request *request, void *const *slots)
{
    image_set *set = (image_set *)self;
    size_t elems = (size_t)set->channels * (size_t)set->height * (size_t)set->width;
    uint8_t *bytes = trii_alloc((size_t)request->n, elems, "images of a batch");
    void *parent_slots[TRI_MAX_FIELDS];
    tri_status status;

    if (bytes == NULL)
        return TRI_ERR_NO_MEMORY;
    memcpy(parent_slots, slots, (size_t)self->n_fields * sizeof(*slots));
    parent_slots[0] = bytes;
    status = tri_dataset_read(set->parent, request, parent_slots);
    for (int64_t i = 0; i < request->n && status == TRI_OK; i++)
        place_sample(set, request, request->indices[i], bytes + (size_t)i * elems,
                     (float *)slots[0] + (size_t)i * elems);
    trii_free(bytes);
    return status;
}

static void image_destroy(tri_dataset *self)
{
    image_set *set = (image_set *)self;

    tri_dataset_destroy(set->parent);
    trii_free(set);
}

static const tri_dataset_class image_memory_class = {
    .name = "images", .read = read_from_memory, .destroy = image_destroy};
static const tri_dataset_class image_made_class = {
    .name = "images", .read = read_made, .destroy = image_destroy};

static tri_status check_images(const tri_dataset *base, const tri_dataset_images_options *opt)
{
    const tri_field *field = &base->fields[0];

    if (base->cls->sample != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "image data set: the images of data set %s vary in size", base->cls->name);
    if (field->dtype != TRI_DTYPE_U8 || field->ndim != 3 || field->shape[0] < 1 ||
        field->shape[0] > MAX_CHANNELS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "image data set: field 0 is %s with %d dimensions, not u8 [C, H, W] with "
                         "1 to %d channels",
                         tri_dtype_name(field->dtype), field->ndim, MAX_CHANNELS);
    if (field->shape[1] < 1 || field->shape[1] > MAX_PIXELS || field->shape[2] < 1 ||
        field->shape[2] > MAX_PIXELS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "image data set: images of %" PRId64 " x %" PRId64
                         " pixels: each side must be 1 to %d",
                         field->shape[1], field->shape[2], (int)MAX_PIXELS);
    if (opt->pad < 0 || opt->pad > MAX_PIXELS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "image data set: a padding of %d pixels: must be 0 to %d", opt->pad,
                         (int)MAX_PIXELS);
    for (int c = 0; c < MAX_CHANNELS; c++) {
        if (!(opt->std[c] >= 0.0f))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "image data set: std[%d] is %g: must not be negative", c,
                             (double)opt->std[c]);
    }
    return TRI_OK;
}

tri_status tri_dataset_images(tri_dataset *own_base, const tri_dataset_images_options *opt,
                              tri_dataset **dataset_out)
{
    static const tri_dataset_images_options defaults;
    tri_status status;
    image_set *set;

    if (opt == NULL)
        opt = &defaults;
    status = trii_dataset_check(own_base, "tri_dataset_images");
    if (status == TRI_OK)
        status = trii_need(dataset_out, "tri_dataset_images", "dataset_out");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_dataset_images_options, opt);
    if (status == TRI_OK)
        status = check_images(own_base, opt);
    if (status != TRI_OK)
        goto err_base;
    set = trii_alloc(1, sizeof(*set), "image data set");
    if (set == NULL) {
        status = TRI_ERR_NO_MEMORY;
        goto err_base;
    }
    set->base = *own_base;
    set->base.cls = own_base->cls->peek != NULL ? &image_memory_class : &image_made_class;
    set->base.fields[0].dtype = TRI_DTYPE_F32;
    set->parent = own_base;
    set->pad = opt->pad;
    set->flip = opt->flip;
    set->channels = (int)own_base->fields[0].shape[0];
    set->height = (int)own_base->fields[0].shape[1];
    set->width = (int)own_base->fields[0].shape[2];
    for (int c = 0; c < set->channels; c++) {
        double std = opt->std[c] > 0.0f ? (double)opt->std[c] : 1.0;

        set->scale[c] = (float)(1.0 / (255.0 * std));
        set->shift[c] = (float)(-(double)opt->mean[c] / std);
    }
    *dataset_out = &set->base;
    return TRI_OK;

err_base:
    tri_dataset_destroy(own_base);
    return status;
}
