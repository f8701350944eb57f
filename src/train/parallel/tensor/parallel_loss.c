/*
 * parallel_loss.c - tri_dist_cross_entropy: cross entropy of scores that are cut along their
 * classes. With m the maximum of a row, s the sum of e^(x - m) and t the score of its target less
 * m, its loss is log s - t; s and t are sums over ranks, which travel as one value, with the sum of
 * x - m where labels are smoothed. What averages rows is nll_loss of one class, which knows about
 * ignored targets, and by which tri_ddp counts samples.
 */
#include <trireme/dist.h>
#include <trireme/ops.h>

#include "base/dtype.h"
#include "base/err.h"
#include "base/option.h"
#include "comm/group/join/world.h"
#include "train/nn/module.h"
#include "train/parallel/tensor/tensor_parallel.h"

/* Of the labels that nll_loss gets: all targets are class 0, or this. */
#define IGNORED (-1)

typedef struct call {
    tri_tensor *logits, *target;
    trii_share share; /* of the classes */
    tri_cross_entropy_options opt;
} call;

static tri_status check(call *c, int64_t classes, const tri_cross_entropy_options *opt)
{
    tri_status status = TRII_CHECK_RESERVED(tri_cross_entropy_options, opt);

    c->opt = opt != NULL ? *opt : (tri_cross_entropy_options){0};
    if (status == TRI_OK)
        status = c->logits != NULL && c->target != NULL
                     ? TRI_OK
                     : TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is NULL",
                                 c->logits == NULL ? "logits" : "target");
    if (status == TRI_OK)
        status = tri_tensor_status(c->logits);
    if (status == TRI_OK)
        status = tri_tensor_status(c->target);
    if (status != TRI_OK)
        return status;
    if (!(c->opt.label_smoothing >= 0.0 && c->opt.label_smoothing <= 1.0))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "label_smoothing is %g, not in [0, 1]",
                         c->opt.label_smoothing);
    if (c->opt.weight != NULL && tri_tensor_status(c->opt.weight) != TRI_OK)
        return tri_tensor_status(c->opt.weight);
    if (c->opt.weight != NULL &&
        (tri_tensor_ndim(c->opt.weight) != 1 || tri_tensor_size(c->opt.weight, 0) != classes))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "weight %s: it must be [%lld], of all classes",
                         tri_tensor_shape_text(c->opt.weight), (long long)classes);
    if (classes < tri_group_size(c->share.group))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%lld classes are fewer than %d ranks",
                         (long long)classes, tri_group_size(c->share.group));
    c->share = trii_share_of(c->share.group, classes, 1, 1);
    if (tri_tensor_ndim(c->logits) != 2 || tri_tensor_size(c->logits, 1) != c->share.n)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "logits %s: they must be [N, %lld], this rank's part of %lld classes",
                         tri_tensor_shape_text(c->logits), (long long)c->share.n,
                         (long long)classes);
    status = trii_share_check_order(c->logits);
    if (status != TRI_OK)
        return status;
    if (tri_tensor_ndim(c->target) != 1 || tri_tensor_dtype(c->target) != TRI_DTYPE_I64 ||
        tri_tensor_size(c->target, 0) != tri_tensor_size(c->logits, 0))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "target %s: it must be i64 [N], of the same N",
                         tri_tensor_shape_text(c->target));
    return TRI_OK;
}

/* Of each row over all ranks, without a gradient: the loss does not depend on it. */
static tri_tensor *maximum(const call *c)
{
    tri_tensor *m;

    tri_no_grad_begin();
    m = tri_dist_all_reduce(tri_amax(c->logits, (const int64_t[]){1}, 1, true), TRI_REDOP_MAX,
                            c->share.group);
    tri_no_grad_end();
    return m;
}

/* The target's number among this rank's classes, of a row x of scores less the maximum: sum of e^x,
 * x of the target, and, where labels are smoothed, the weighted sum of x; each over all ranks. */
static tri_tensor *sums_of(const call *c, tri_tensor *x, tri_tensor *index)
{
    tri_tensor *outside, *sums[3];

    index = tri_unsqueeze(trii_share_find(&c->share, index, &outside), 1);
    sums[0] = tri_sum(tri_exp(x), (const int64_t[]){1}, 1, false);
    sums[1] = tri_squeeze(tri_gather_along(x, 1, index), (const int64_t[]){1}, 1);
    sums[1] = tri_masked_fill(sums[1], outside, 0.0);
    if (c->opt.label_smoothing > 0.0) {
        sums[2] = x;
        if (c->opt.weight != NULL)
            sums[2] = tri_mul(x, tri_narrow(c->opt.weight, 0, c->share.start, c->share.n));
        sums[2] = tri_sum(sums[2], (const int64_t[]){1}, 1, false);
    }
    return tri_dist_reduce_from(tri_stack(sums, c->opt.label_smoothing > 0.0 ? 3 : 2, 0),
                                c->share.group);
}

/* The logarithm of a row's likelihood, weighted. wanted: the weight of its target; NULL: 1. */
static tri_tensor *likelihood(const call *c, tri_tensor *sums, tri_tensor *wanted)
{
    const double classes = (double)c->share.whole, smoothing = c->opt.label_smoothing;
    tri_tensor *log_sum = tri_log(tri_select(sums, 0, 0)), *y, *others;

    y = tri_sub(tri_select(sums, 0, 1), log_sum);
    if (wanted != NULL)
        y = tri_mul(y, wanted);
    if (smoothing == 0.0)
        return y;
    others = c->opt.weight != NULL ? tri_mul(log_sum, tri_sum(c->opt.weight, NULL, 0, false))
                                   : tri_mul_scalar(log_sum, classes);
    others = tri_sub(tri_select(sums, 0, 2), others);
    return tri_add(tri_mul_scalar(y, 1.0 - smoothing), tri_mul_scalar(others, smoothing / classes));
}

static tri_tensor *record(call *c)
{
    tri_tensor *labels = tri_full(NULL, 0, 0, TRI_DTYPE_I64), *index = c->target, *wanted = NULL;
    tri_tensor *x, *y;
    int64_t n = tri_tensor_size(c->target, 0);
    tri_nll_loss_options nll = {.ignore_index = TRI_SET(IGNORED), .reduction = c->opt.reduction};

    if (trii_dtype_is_float(tri_tensor_dtype(c->logits)) &&
        tri_dtype_size(tri_tensor_dtype(c->logits)) == 2)
        c->logits = tri_cast(c->logits, TRI_DTYPE_F32);
    labels = tri_expand(labels, TRI_SHAPE(n));
    if (c->opt.ignore_index.given != NULL) {
        tri_tensor *ignored =
            tri_eq(c->target, tri_full(NULL, 0, c->opt.ignore_index.value, TRI_DTYPE_I64));

        index = tri_masked_fill(index, ignored, 0.0);
        labels = tri_masked_fill(labels, ignored, IGNORED);
    }
    if (c->opt.weight != NULL) {
        c->opt.weight = tri_cast(c->opt.weight, tri_tensor_dtype(c->logits));
        wanted = tri_index_select(c->opt.weight, 0, index);
        nll.reduction = TRI_REDUCTION_NONE;
    }
    x = tri_sub(c->logits, maximum(c));
    y = likelihood(c, sums_of(c, x, index), wanted);
    y = tri_nll_loss(tri_unsqueeze(y, 1), labels, &nll);
    if (c->opt.weight == NULL || c->opt.reduction == TRI_REDUCTION_NONE)
        return y;
    y = tri_sum(y, NULL, 0, false);
    if (c->opt.reduction == TRI_REDUCTION_SUM)
        return y;
    wanted = tri_masked_fill(wanted, tri_lt(labels, tri_full(NULL, 0, 0, TRI_DTYPE_I64)), 0.0);
    return tri_div(y, tri_sum(wanted, NULL, 0, false));
}

tri_tensor *tri_dist_cross_entropy(tri_tensor *logits, tri_tensor *target, int64_t classes,
                                   tri_group *group, const tri_cross_entropy_options *opt)
{
    call c = {.logits = logits, .target = target};
    char line[TRII_ERR_BYTES];
    tri_status status = trii_group_resolve(&group, "dist_cross_entropy");

    if (status != TRI_OK)
        return trii_forward_failed(status);
    c.share.group = group;
    status = check(&c, classes, opt);
    if (status == TRI_OK)
        return record(&c);
    /* peers may be waiting in the maximum, which will never be run here */
    status = TRII_FAIL_CTX(status, "dist_cross_entropy");
    snprintf(line, sizeof(line), "%s", tri_last_error());
    if (tri_group_size(group) > 1)
        tri_group_abort(group, line);
    trii_err_set("%s", line);
    return trii_forward_failed(status);
}
