/*
 * sampler.c - samplers in general, and the two for a loader on one process: in order, and random.
 * Indices are those of torch.utils.data with a generator seeded by seed + epoch.
 */
#include "train/data/sampler.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/mt19937.h"
#include "base/option.h"

tri_status trii_sampler_check(const tri_sampler *sampler, const char *call)
{
    tri_status status = trii_need(sampler, call, "sampler");

    if (status == TRI_OK)
        status = trii_need(sampler->cls, call, "sampler->cls");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_sampler, sampler);
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_sampler_class, sampler->cls);
    if (status != TRI_OK)
        return status;
    if (sampler->cls->draw == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: sampler %s has no draw, which is required", call,
                         sampler->cls->name);
    if (sampler->length < 0 || sampler->length > TRII_MAX_SAMPLES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: sampler %s has a length of %" PRId64, call,
                         sampler->cls->name, sampler->length);
    return TRI_OK;
}

tri_status trii_sampler_draw(tri_sampler *sampler, int64_t epoch, int64_t *indices)
{
    unsigned n_lines = trii_err_lines();
    tri_status status = sampler->cls->draw(sampler, epoch, indices);

    if (status > 0) /* a positive status would hide that the indices were not written */
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "sampler %s: its draw returned %s: it must return TRI_OK or an error",
                         sampler->cls->name, tri_status_name(status));
    if (status < 0 && trii_err_lines() == n_lines)
        return TRII_FAIL(status, "sampler %s: its draw returned %s without a message",
                         sampler->cls->name, tri_status_name(status));
    return status;
}

void tri_sampler_destroy(tri_sampler *sampler)
{
    if (sampler == NULL)
        return;
    trii_free(sampler->indices);
    sampler->indices = NULL;
    if (sampler->cls != NULL && sampler->cls->destroy != NULL)
        sampler->cls->destroy(sampler);
}

tri_status tri_sampler_set_epoch(tri_sampler *sampler, int64_t epoch)
{
    tri_status status = trii_sampler_check(sampler, "tri_sampler_set_epoch");
    int64_t *indices;

    if (status != TRI_OK)
        return status;
    indices = sampler->indices;
    if (indices == NULL)
        indices = trii_alloc((size_t)sampler->length, sizeof(*indices), "sampler's indices");
    if (indices == NULL)
        return TRI_ERR_NO_MEMORY;
    sampler->indices = indices;
    return trii_sampler_draw(sampler, epoch, indices);
}

int64_t tri_sampler_length(const tri_sampler *sampler)
{
    return sampler != NULL ? sampler->length : 0;
}

const int64_t *tri_sampler_indices(const tri_sampler *sampler)
{
    return sampler != NULL ? sampler->indices : NULL;
}

/* --- in order ------------------------------------------------------------- */

static tri_status draw_sequential(tri_sampler *self, int64_t epoch, int64_t *indices)
{
    (void)epoch;
    for (int64_t i = 0; i < self->length; i++)
        indices[i] = i;
    return TRI_OK;
}

static void sampler_free(tri_sampler *self)
{
    trii_free(self);
}

static const tri_sampler_class sequential_class = {
    .name = "sequential",
    .draw = draw_sequential,
    .destroy = sampler_free,
};

tri_status tri_sampler_sequential(int64_t length, tri_sampler **sampler_out)
{
    tri_status status = trii_need(sampler_out, "tri_sampler_sequential", "sampler_out");
    tri_sampler *s;

    if (status != TRI_OK)
        return status;
    if (length < 0 || length > TRII_MAX_SAMPLES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "sampler_sequential: length is %" PRId64 " samples: must not be negative",
                         length);
    s = trii_alloc(1, sizeof(*s), "sampler");
    if (s == NULL)
        return TRI_ERR_NO_MEMORY;
    *s = (tri_sampler){.cls = &sequential_class, .length = length};
    *sampler_out = s;
    return TRI_OK;
}

/* --- at random ------------------------------------------------------------ */

typedef struct random_sampler {
    tri_sampler base;
    int64_t n; /* indices are below this */
    bool replacement;
    uint64_t seed;
    int64_t *order; /* [n] for indices that the epoch's own array has no room for, or NULL */
} random_sampler;

/* torch.randint(n): below 2^28 one draw of 32 bits is enough for it. */
static int64_t random_below(trii_mt19937 *mt, int64_t n)
{
    uint64_t word = n < INT64_C(1) << 28 ? trii_mt_u32(mt) : trii_mt_u64(mt);

    return (int64_t)(word % (uint64_t)n);
}

static tri_status draw_random(tri_sampler *self, int64_t epoch, int64_t *indices)
{
    random_sampler *s = (random_sampler *)self;
    int64_t done = 0;
    trii_mt19937 mt;

    trii_mt_seed(&mt, s->seed + (uint64_t)epoch);
    for (; s->replacement && done < self->length; done++)
        indices[done] = random_below(&mt, s->n);
    for (; self->length - done >= s->n; done += s->n) /* whole permutations, one after the other */
        trii_mt_randperm(&mt, s->n, indices + done);
    if (done < self->length) {
        trii_mt_randperm(&mt, s->n, s->order);
        for (int64_t i = 0; done < self->length; i++)
            indices[done++] = s->order[i];
    }
    return TRI_OK;
}

static void random_destroy(tri_sampler *self)
{
    trii_free(((random_sampler *)self)->order);
    trii_free(self);
}

static const tri_sampler_class random_class = {
    .name = "random",
    .draw = draw_random,
    .destroy = random_destroy,
};

tri_status tri_sampler_random(int64_t length, const tri_sampler_random_options *opt,
                              tri_sampler **sampler_out)
{
    static const tri_sampler_random_options defaults;
    tri_status status = trii_need(sampler_out, "tri_sampler_random", "sampler_out");
    random_sampler *s;

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_sampler_random_options, opt);
    if (status != TRI_OK)
        return status;
    if (opt == NULL)
        opt = &defaults;
    if (length < 1 || length > TRII_MAX_SAMPLES || opt->n_samples < 0 ||
        opt->n_samples > TRII_MAX_SAMPLES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "sampler_random: %" PRId64 " samples (n_samples, 0 = all) of a length of "
                         "%" PRId64 ", at least 1 is needed",
                         opt->n_samples, length);
    s = trii_alloc(1, sizeof(*s), "sampler");
    if (s == NULL)
        return TRI_ERR_NO_MEMORY;
    s->base.cls = &random_class;
    s->base.length = opt->n_samples > 0 ? opt->n_samples : length;
    s->n = length;
    s->replacement = opt->replacement;
    s->seed = opt->seed;
    if (!s->replacement && s->base.length % length != 0) {
        s->order = trii_alloc((size_t)length, sizeof(*s->order), "sampler's permutation");
        if (s->order == NULL) {
            tri_sampler_destroy(&s->base);
            return TRI_ERR_NO_MEMORY;
        }
    }
    *sampler_out = &s->base;
    return TRI_OK;
}
