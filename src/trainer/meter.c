/*
 * meter.c - means over steps, summed inside the steps themselves.
 *
 * "sum = sum + x * scale" is recorded with its result bound to the sum's tensor, like a parameter's
 * update: it is a part of the step's plan and costs no run of its own.
 */
#include <math.h>

#include <trireme/ops.h>
#include <trireme/trainer.h>

#include "base/alloc.h"
#include "base/err.h"
#include "graph/step.h"

struct tri_meter {
    tri_tensor *sum; /* f32 [] */
    int64_t weight;
};

tri_status tri_meter_create(tri_meter **meter_out)
{
    tri_meter *m = trii_alloc(1, sizeof(*m), "meter");
    tri_status status;

    if (m == NULL)
        return TRI_ERR_NO_MEMORY;
    m->sum = tri_tensor_create(TRI_DTYPE_F32, NULL, 0);
    status = tri_tensor_status(m->sum);
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
    trii_free(meter);
}

static tri_status add(tri_meter *meter, tri_tensor *x, double scale, int64_t weight)
{
    trii_step *step = trii_step_current();
    tri_tensor *sum;
    trii_vid value;
    tri_status status;

    if (step == NULL)
        return TRI_ERR_NO_MEMORY;
    if (tri_tensor_numel(x) != 1 && tri_tensor_status(x) == TRI_OK)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "meter: a tensor of %lld elements",
                         (long long)tri_tensor_numel(x));
    tri_no_grad_begin();
    if (tri_tensor_dtype(x) != TRI_DTYPE_F32)
        x = tri_cast(x, TRI_DTYPE_F32);
    if (tri_tensor_ndim(x) != 0)
        x = tri_reshape(x, NULL, 0);
    sum = tri_add(meter->sum, tri_mul_scalar(x, scale));
    tri_no_grad_end();
    status = tri_tensor_status(sum);
    if (status == TRI_OK)
        status = trii_resolve(step, sum, &value);
    if (status == TRI_OK)
        status = trii_bind(step, value, meter->sum);
    if (status == TRI_OK)
        meter->weight += weight;
    return status;
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
    return tri_item(meter->sum);
}

double tri_meter_value(tri_meter *meter)
{
    return meter->weight > 0 ? tri_item(meter->sum) / (double)meter->weight : NAN;
}

int64_t tri_meter_weight(const tri_meter *meter)
{
    return meter->weight;
}

tri_status tri_meter_reset(tri_meter *meter)
{
    meter->weight = 0;
    return tri_copy_in(meter->sum, &(float){0.0f}, sizeof(float));
}
