/*
 * parts.h - what the models of this folder share.
 */
#ifndef EXAMPLES_PARTS_H
#define EXAMPLES_PARTS_H

#include <stdio.h>

#include <trireme/nn.h>

/* A parameter of zeros, of the default dtype. */
static inline tri_tensor *parameter(tri_module *self, const char *name, const int64_t *shape,
                                    int ndim)
{
    return tri_module_parameter(self, name, tri_tensor_create(tri_default_dtype(), shape, ndim));
}

/* A child "PREFIX0", "PREFIX1", ... */
static inline tri_module *numbered_child(tri_module *self, const char *prefix, int64_t number,
                                         tri_module *own_child)
{
    char name[40];

    snprintf(name, sizeof(name), "%s%lld", prefix, (long long)number);
    return tri_module_child(self, name, own_child);
}

/* Attention. qkv [N, T, 3 C]: queries, keys and values, each of `heads` heads of C / heads ->
 * [N, T, C]. Causal: each looks at none behind it. */
static inline tri_tensor *attend(tri_tensor *qkv, int64_t heads, bool causal)
{
    int64_t n = tri_tensor_size(qkv, 0), t = tri_tensor_size(qkv, 1);
    int64_t c = tri_tensor_size(qkv, 2) / 3;
    tri_tensor *part[3], *y;

    tri_split(qkv, TRI_SHAPE(c, c, c), -1, part);
    for (int i = 0; i < 3; i++) /* [N, T, C] -> [N, heads, T, C / heads] */
        part[i] = tri_transpose(tri_reshape(part[i], TRI_SHAPE(n, t, heads, c / heads)), 1, 2);
    y = tri_attention(part[0], part[1], part[2], &(tri_attention_options){.is_causal = causal});
    return tri_reshape(tri_transpose(y, 1, 2), TRI_SHAPE(n, t, c));
}

#endif
