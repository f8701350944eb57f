/*
 * pipeline_shared.h - stages of a pipeline that have a parameter in common. Tests only.
 */
#ifndef PIPELINE_SHARED_H
#define PIPELINE_SHARED_H

#include "testing/pipeline_ranks.h"

static inline tri_tensor *pipeline_by_shared(tri_module *self, tri_tensor *x)
{
    return tri_tanh(tri_linear(x, tri_module_find(self, "shared"), NULL));
}

/* A layer whose weight is also that of others. */
static inline tri_module *pipeline_sharer(tri_tensor *weight)
{
    tri_module *self = tri_module_simple("Sharer", 1, pipeline_by_shared);

    tri_module_add_parameter(self, "shared", tri_tensor_ref(weight));
    return self;
}

/* The first and the last stage share one weight, all but the last another. */
static inline void pipeline_share(tri_module **stages, int n)
{
    tri_tensor *ends = tri_tensor_create(TRI_SHAPE(PIPELINE_WIDTH, PIPELINE_WIDTH), TRI_DTYPE_F64);
    tri_tensor *most = tri_tensor_create(TRI_SHAPE(PIPELINE_WIDTH, PIPELINE_WIDTH), TRI_DTYPE_F64);

    CHECK_OK(tri_init_normal(ends, 0, 0.5));
    CHECK_OK(tri_init_normal(most, 0, 0.5));
    for (int s = 0; s < n; s++)
        stages[s] = s == 0 ? tri_nn_sequential(pipeline_sharer(ends), pipeline_sharer(most))
                    : s == n - 1
                        ? tri_nn_sequential(pipeline_sharer(ends),
                                            tri_nn_linear(PIPELINE_WIDTH, PIPELINE_OUT, NULL))
                        : tri_nn_sequential(tri_nn_linear(PIPELINE_WIDTH, PIPELINE_WIDTH, NULL),
                                            pipeline_sharer(most));
    tri_tensor_unref(ends);
    tri_tensor_unref(most);
}

#endif
