/*
 * model_parts.h - what the models share.
 */
#ifndef TRII_MODEL_PARTS_H
#define TRII_MODEL_PARTS_H

#include <trireme/nn.h>

#include <stdio.h>

/* Larger sizes do not fit any memory; products of two do not overflow. */
#define TRII_MODEL_SIZE (INT64_C(1) << 20)

/* A size that a model was asked for. */
typedef struct trii_model_size {
    const char *name;
    int64_t value;
} trii_model_size;

/* NULL if the reserved words of an options struct are 0; else a failed module. */
static inline tri_module *trii_model_reserved(const char *type, const uint64_t *reserved, int n)
{
    for (int i = 0; i < n; i++)
        if (reserved[i] != 0)
            return tri_module_fail(NULL, TRI_ERR_INVALID_ARG,
                                   "%s: reserved[%d] is not 0: zero the struct before you set "
                                   "fields; or this library is older than the program",
                                   type, i);
    return NULL;
}

/* NULL if all sizes are from 1 to TRII_MODEL_SIZE; else a failed module, which names the first that
 * is not. */
static inline tri_module *trii_model_check(const char *call, const trii_model_size *sizes, int n)
{
    for (int i = 0; i < n; i++)
        if (sizes[i].value < 1 || sizes[i].value > TRII_MODEL_SIZE)
            return tri_module_fail(NULL, TRI_ERR_INVALID_ARG, "%s: %s %lld: must be 1 to %lld",
                                   call, sizes[i].name, (long long)sizes[i].value,
                                   (long long)TRII_MODEL_SIZE);
    return NULL;
}

/* What a forward gives for an input that it cannot take; own_wrong is a failed module that says
 * why. */
static inline tri_tensor *trii_model_refused(tri_module *own_wrong, tri_tensor *x)
{
    tri_tensor *failed = tri_forward(own_wrong, x);

    tri_module_destroy(own_wrong);
    return failed;
}

/* A parameter of zeros, of the default dtype. */
static inline tri_tensor *trii_model_parameter(tri_module *self, const char *name,
                                               const int64_t *shape, int ndim)
{
    return tri_module_add_parameter(self, name,
                                    tri_tensor_create(shape, ndim, tri_default_dtype()));
}

/* A child "PREFIX0", "PREFIX1", ... */
static inline tri_module *trii_model_child(tri_module *self, const char *prefix, int64_t number,
                                           tri_module *own_child)
{
    char name[40];

    snprintf(name, sizeof(name), "%s%lld", prefix, (long long)number);
    return tri_module_add_child(self, name, own_child);
}

#endif
