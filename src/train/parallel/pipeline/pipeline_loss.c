/*
 * pipeline_loss.c - the part of a micro-batch in the loss of its batch: a mean over rows with the
 * share of its rows, or a sum over what the user counts with one count for the whole batch (in
 * training, that of all replicas), so that every target weighs alike wherever it lies.
 */
#include "train/parallel/pipeline/pipeline_loss.h"

#include <trireme/dist.h>
#include <trireme/ops.h>

#include "base/err.h"

static tri_status check_number(const char *name, tri_tensor *x, const char *what)
{
    tri_status status = x != NULL
                            ? tri_tensor_status(x)
                            : TRII_FAIL(TRI_ERR_INVALID_ARG, "the %s function returned NULL", name);

    if (status == TRI_OK && tri_tensor_numel(x) != 1)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "the %s function returned %lld elements: it returns %s, a scalar", name,
                           (long long)tri_tensor_numel(x), what);
    return status;
}

/* Under TRI_NO_GRAD. */
static tri_tensor *mean_of_replicas(tri_group *replicas, tri_tensor *x)
{
    return tri_mul_scalar(tri_dist_all_reduce(x, TRI_REDOP_SUM, replicas),
                          1.0 / tri_group_size(replicas));
}

tri_tensor *trii_pipeline_loss_of_all(const trii_pipeline_loss *l, tri_tensor *loss)
{
    return l->replicas != NULL ? mean_of_replicas(l->replicas, loss) : loss;
}

/* Once for the batch. */
static tri_status count_all(trii_pipeline_loss *l)
{
    tri_tensor *count;
    tri_status status;

    if (l->count == NULL || l->counted != NULL)
        return TRI_OK;
    tri_no_grad_begin();
    count = l->count(l->target, l->arg);
    status = check_number("count", count, "how many targets the loss is over");
    if (status == TRI_OK)
        l->counted = tri_reshape(count, NULL, 0);
    if (status == TRI_OK && l->replicas != NULL)
        l->counted = mean_of_replicas(l->replicas, tri_cast(l->counted, TRI_DTYPE_F64));
    tri_no_grad_end();
    return status == TRI_OK ? tri_tensor_status(l->counted) : status;
}

tri_status trii_pipeline_loss_of(trii_pipeline_loss *l, tri_tensor *output, tri_tensor *target,
                                 double share, tri_tensor **loss_out)
{
    tri_status status = count_all(l);
    tri_tensor *loss;

    if (status != TRI_OK)
        return status;
    loss = l->loss(output, target, l->arg);
    status = check_number("loss", loss,
                          l->count == NULL ? "the mean over the samples that it gets"
                                           : "the sum over those that count");
    if (status != TRI_OK)
        return status;
    loss = tri_reshape(loss, NULL, 0);
    *loss_out = l->count == NULL ? tri_mul_scalar(loss, share)
                                 : tri_div(loss, tri_cast(l->counted, tri_tensor_dtype(loss)));
    return tri_tensor_status(*loss_out);
}
