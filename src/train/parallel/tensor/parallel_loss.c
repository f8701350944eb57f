/*
 * parallel_loss.c - tri_dist_cross_entropy: cross entropy of scores that are cut along their
 * classes. With m the maximum of a row, s the sum of e^(x - m) and t the score of its target less
 * m, its loss is log s - t; s and t are sums over ranks, which travel as one value. What averages
 * rows is nll_loss of one class, which knows about ignored targets, and by which tri_ddp counts
 * samples.
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
    if (c->opt.weight != NULL || c->opt.label_smoothing != 0.0)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "weight and label_smoothing are not there for scores that are cut: make "
                         "them whole (.output = TRI_WHOLE) and use tri_cross_entropy");
    if (classes < tri_group_size(c->share.group))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%lld classes are fewer than %d ranks",
                         (long long)classes, tri_group_size(c->share.group));
    c->share = trii_share_of(c->share.group, classes, 1, 1);
    if (tri_tensor_ndim(c->logits) != 2 || tri_tensor_size(c->logits, 1) != c->share.n)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "logits %s: they must be [N, %lld], this rank's part of %lld classes",
                         tri_tensor_shape_text(c->logits), (long long)c->share.n,
                         (long long)classes);
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

static tri_tensor *record(call *c)
{
    tri_tensor *labels = tri_full(NULL, 0, 0, TRI_DTYPE_I64), *index = c->target, *outside, *x;
    tri_tensor *both[2];
    int64_t n = tri_tensor_size(c->target, 0);

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
    x = tri_sub(c->logits, maximum(c));
    index = tri_unsqueeze(trii_share_find(&c->share, index, &outside), 1);
    both[0] = tri_sum(tri_exp(x), (const int64_t[]){1}, 1, false);
    both[1] = tri_squeeze(tri_gather_along(x, 1, index), (const int64_t[]){1}, 1);
    both[1] = tri_masked_fill(both[1], outside, 0.0);
    x = tri_dist_reduce_from(tri_stack(both, 2, 0), c->share.group);
    x = tri_sub(tri_select(x, 0, 1), tri_log(tri_select(x, 0, 0)));
    return tri_nll_loss(
        tri_unsqueeze(x, 1), labels,
        &(tri_nll_loss_options){.ignore_index = TRI_SET(IGNORED), .reduction = c->opt.reduction});
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
