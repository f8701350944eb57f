/*
 * meter.c - means over steps, summed inside the steps themselves.
 *
 * "sum = sum + x * scale" is recorded with its result bound to the sum's tensor, like a parameter's
 * update: it is a part of the step's plan and costs no run of its own. So is the weight: a step
 * that fails counts with neither.
 */
#include <math.h>

#include <trireme/ops.h>
#include <trireme/trainer.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/graph/step/step.h"

struct tri_meter {
    tri_tensor *sum;    /* f64 [] */
    tri_tensor *weight; /* f64 [] */
};

tri_status tri_meter_create(tri_meter **meter_out)
{
    tri_status status = trii_need(meter_out, "tri_meter_create", "meter_out");
    tri_meter *m;

    if (status != TRI_OK)
        return status;
    m = trii_alloc(1, sizeof(*m), "meter");
    if (m == NULL)
        return TRI_ERR_NO_MEMORY;
    m->sum = tri_tensor_create(NULL, 0, TRI_DTYPE_F64);
    m->weight = tri_tensor_create(NULL, 0, TRI_DTYPE_F64);
    status = tri_tensor_status(m->sum);
    if (status == TRI_OK)
        status = tri_tensor_status(m->weight);
    if (status != TRI_OK) {
        tri_meter_destroy(m);
        return status;
    }
    *meter_out = m;
    return TRI_OK;
}

void tri_meter_destroy(tri_meter *meter)
{
    if (meter == NULL)
        return;
    tri_tensor_unref(meter->sum);
    tri_tensor_unref(meter->weight);
    trii_free(meter);
}

static tri_status bind(trii_step *step, tri_tensor *next, tri_tensor *to)
{
    trii_vid value = TRII_NO_VALUE;
    tri_status status = tri_tensor_status(next);

    if (status == TRI_OK)
        status = trii_resolve(step, next, &value);
    return status == TRI_OK ? trii_bind(step, value, to) : status;
}

static tri_status add(tri_meter *meter, tri_tensor *x, double scale, int64_t weight)
{
    trii_step *step = trii_step_current();
    tri_tensor *sum, *total;
    tri_status status;

    if (step == NULL)
        return TRI_ERR_NO_MEMORY;
    if (meter == NULL || weight < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "meter: %s %lld",
                         meter == NULL ? "it is NULL, weight" : "weight", (long long)weight);
    status = tri_tensor_status(x);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "meter");
    if (tri_tensor_numel(x) != 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "meter: a tensor of %lld elements",
                         (long long)tri_tensor_numel(x));
    tri_no_grad_begin();
    if (tri_tensor_dtype(x) != TRI_DTYPE_F64)
        x = tri_cast(x, TRI_DTYPE_F64);
    if (tri_tensor_ndim(x) != 0)
        x = tri_reshape(x, NULL, 0);
    sum = tri_add(meter->sum, tri_mul_scalar(x, scale));
    total = tri_add_scalar(meter->weight, (double)weight);
    tri_no_grad_end();
    status = tri_tensor_status(total);
    if (status == TRI_OK)
        status = bind(step, sum, meter->sum);
    return status == TRI_OK ? bind(step, total, meter->weight) : status;
}

tri_status tri_meter_add_mean(tri_meter *meter, tri_tensor *mean, int64_t weight)
{
    return add(meter, mean, (double)weight, weight);
}

tri_status tri_meter_add_count(tri_meter *meter, tri_tensor *count, int64_t weight)
{
    return add(meter, count, 1.0, weight);
}

double tri_meter_sum(tri_meter *meter)
{
    return meter != NULL ? tri_item(meter->sum) : (double)NAN;
}

double tri_meter_value(tri_meter *meter)
{
    double weight;

    if (meter == NULL)
        return (double)NAN;
    weight = tri_item(meter->weight);
    return weight > 0 ? tri_item(meter->sum) / weight : (double)NAN;
}

int64_t tri_meter_weight(tri_meter *meter)
{
    double weight = meter != NULL ? tri_item(meter->weight) : 0;

    return isnan(weight) ? 0 : (int64_t)weight;
}

tri_status tri_meter_reset(tri_meter *meter)
{
    tri_status status;

    if (meter == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "meter_reset: the meter is NULL");
    status = tri_tensor_copy_in(meter->sum, &(double){0.0}, sizeof(double));
    return status == TRI_OK ? tri_tensor_copy_in(meter->weight, &(double){0.0}, sizeof(double))
                            : status;
}
