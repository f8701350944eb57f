/*
 * weighted_sampler.c - indices by their weights: torch.utils.data.WeightedRandomSampler.
 *
 * With replacement it does what torch.multinomial does, number for number: a uniform number is
 * looked up in the cumulative sums of the weights. Without replacement PyTorch's numbers depend on
 * the library that it was built with; here each index is drawn from a tree of sums, in which a
 * drawn index has weight 0 from then on.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/mt19937.h"
#include "base/option.h"
#include "train/data/sampler.h"

typedef struct weighted_sampler {
    tri_sampler base;
    int64_t n;
    bool no_replacement;
    uint64_t seed;
    int64_t leaves; /* without replacement: a power of two, n or more */
    /* with replacement: [n] cumulative sums over the total; without: the tree, [2 leaves], 1 =
     * the root */
    double *sums;
    double *left; /* the tree of an epoch, from which drawn indices are removed */
} weighted_sampler;

static int64_t look_up(const weighted_sampler *s, double uniform)
{
    int64_t first = 0, end = s->n;

    while (end > first) {
        int64_t middle = first + (end - first) / 2;

        if (s->sums[middle] < uniform)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

/* Draws a leaf with a positive weight, and sets its weight to 0. */
static int64_t take_one(weighted_sampler *s, double uniform)
{
    double *tree = s->left, mass = uniform * tree[1];
    int64_t at = 1;

    while (at < s->leaves) {
        at *= 2;
        /* Rounding may choose a subtree of weight 0: never descend into it. */
        if ((mass >= tree[at] && tree[at + 1] > 0) || !(tree[at] > 0)) {
            mass -= tree[at];
            at++;
        }
    }
    tree[at] = 0;
    for (int64_t up = at / 2; up > 0; up /= 2)
        tree[up] = tree[2 * up] + tree[2 * up + 1];
    return at - s->leaves;
}

static tri_status draw_weighted(tri_sampler *self, int64_t epoch, int64_t *indices)
{
    weighted_sampler *s = (weighted_sampler *)self;
    trii_mt19937 mt;

    trii_mt_seed(&mt, s->seed + (uint64_t)epoch);
    if (s->no_replacement)
        memcpy(s->left, s->sums, 2 * (size_t)s->leaves * sizeof(*s->sums));
    for (int64_t i = 0; i < self->length; i++) {
        double uniform = trii_mt_f64(&mt);

        indices[i] = s->no_replacement ? take_one(s, uniform) : look_up(s, uniform);
    }
    return TRI_OK;
}

static void weighted_destroy(tri_sampler *self)
{
    weighted_sampler *s = (weighted_sampler *)self;

    trii_free(s->sums);
    trii_free(s->left);
    trii_free(s);
}

static const tri_sampler_class weighted_class = {
    .name = "weighted",
    .draw = draw_weighted,
    .destroy = weighted_destroy,
};

static tri_status check_weights(const double *weights, int64_t n,
                                const tri_sampler_weighted_options *opt)
{
    int64_t n_positive = 0, wanted = opt->n_samples > 0 ? opt->n_samples : n;
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        if (!(weights[i] >= 0) || isinf(weights[i]))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "sampler_weighted: weight %" PRId64
                             " is %g, must be finite and not negative",
                             i, weights[i]);
        n_positive += weights[i] > 0;
        sum += weights[i];
    }
    if (n_positive == 0 || isinf(sum))
        return TRII_FAIL(
            TRI_ERR_INVALID_ARG,
            "sampler_weighted: the weights add up to %g: their sum must be positive and finite",
            sum);
    if (opt->no_replacement && wanted > n_positive)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "sampler_weighted: %" PRId64 " samples without replacement, but %" PRId64
                         " weights are above 0 (n_samples)",
                         wanted, n_positive);
    return TRI_OK;
}

static tri_status take_weights(weighted_sampler *s, const double *weights)
{
    double sum = 0;

    if (!s->no_replacement) {
        s->sums = trii_alloc((size_t)s->n, sizeof(*s->sums), "sampler's weights");
        if (s->sums == NULL)
            return TRI_ERR_NO_MEMORY;
        for (int64_t i = 0; i < s->n; i++)
            s->sums[i] = sum += weights[i];
        for (int64_t i = 0; i < s->n; i++)
            s->sums[i] /= sum;
        return TRI_OK;
    }
    for (s->leaves = 1; s->leaves < s->n;)
        s->leaves *= 2;
    s->sums = trii_alloc(2 * (size_t)s->leaves, sizeof(*s->sums), "sampler's weights");
    s->left = trii_alloc(2 * (size_t)s->leaves, sizeof(*s->left), "sampler's weights");
    if (s->sums == NULL || s->left == NULL)
        return TRI_ERR_NO_MEMORY;
    memcpy(s->sums + s->leaves, weights, (size_t)s->n * sizeof(*weights));
    for (int64_t at = s->leaves - 1; at > 0; at--)
        s->sums[at] = s->sums[2 * at] + s->sums[2 * at + 1];
    return TRI_OK;
}

tri_status tri_sampler_weighted(const double *weights, int64_t n,
                                const tri_sampler_weighted_options *opt, tri_sampler **sampler_out)
{
    static const tri_sampler_weighted_options defaults;
    tri_status status = trii_need(weights, "tri_sampler_weighted", "weights");
    weighted_sampler *s;

    if (status == TRI_OK)
        status = trii_need(sampler_out, "tri_sampler_weighted", "sampler_out");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_sampler_weighted_options, opt);
    if (status != TRI_OK)
        return status;
    if (opt == NULL)
        opt = &defaults;
    if (n < 1 || n > TRII_MAX_SAMPLES || opt->n_samples < 0 || opt->n_samples > TRII_MAX_SAMPLES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "sampler_weighted: %" PRId64 " samples (n_samples, 0 = one per weight) of "
                         "%" PRId64 " weights, at least 1 is needed",
                         opt->n_samples, n);
    status = check_weights(weights, n, opt);
    if (status != TRI_OK)
        return status;
    s = trii_alloc(1, sizeof(*s), "sampler");
    if (s == NULL)
        return TRI_ERR_NO_MEMORY;
    s->base.cls = &weighted_class;
    s->base.length = opt->n_samples > 0 ? opt->n_samples : n;
    s->n = n;
    s->no_replacement = opt->no_replacement;
    s->seed = opt->seed;
    status = take_weights(s, weights);
    if (status != TRI_OK) {
        tri_sampler_destroy(&s->base);
        return status;
    }
    *sampler_out = &s->base;
    return TRI_OK;
}
