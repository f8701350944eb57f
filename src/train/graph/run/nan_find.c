/*
 * nan_find.c - whether contents hold a NaN, and the error that names the operation that made it.
 */
#include "base/nan_words.h"
#include "train/graph/run/run.h"

bool trii_has_nan(tri_dtype dtype, const void *data, size_t bytes)
{
    size_t n = tri_dtype_size(dtype) > 0 ? bytes / tri_dtype_size(dtype) : 0;
    bool found = false;

    if (dtype == TRI_DTYPE_F32) {
        const float *x = data;

        for (size_t i = 0; i < n; i++)
            found |= x[i] != x[i];
    } else if (dtype == TRI_DTYPE_F64) {
        const double *x = data;

        for (size_t i = 0; i < n; i++)
            found |= x[i] != x[i];
    } else if (dtype == TRI_DTYPE_BF16) {
        const uint16_t *x = data;

        for (size_t i = 0; i < n; i++)
            found |= (x[i] & 0x7fffu) > 0x7f80u;
    } else if (dtype == TRI_DTYPE_F16) {
        const uint16_t *x = data;

        for (size_t i = 0; i < n; i++)
            found |= (x[i] & 0x7fffu) > 0x7c00u;
    }
    return found;
}

tri_status trii_nan_blame(const trii_step *step, int32_t n)
{
    const trii_node *node = &step->nodes[n];
    const char *name = node->op->name;
    char operands[TRII_ERR_BYTES / 2];
    size_t used = 0;

    operands[0] = '\0';
    for (int i = 0; i < node->n_in && used < sizeof(operands); i++) {
        trii_vid in = step->in_ids[node->first_in + i];
        char text[TRII_TYPE_TEXT];

        used += (size_t)snprintf(
            operands + used, sizeof(operands) - used, "%s%s", i > 0 ? ", " : "",
            in == TRII_NO_VALUE ? "NULL" : trii_type_text(&step->values[in].type, text));
    }
    if (node->host != NULL) { /* its operands were checked before */
        char host[TRII_OP_TEXT];

        return TRII_FAIL(TRI_ERR_NAN,
                         TRII_NAN_RECEIVED "%s(%s) from another rank: the input of this rank "
                                           "holds no NaN",
                         trii_host_text(node->host, host), operands);
    }
    if (node->site.file != NULL)
        return TRII_FAIL(TRI_ERR_NAN, TRII_NAN_MADE "%s(%s), recorded at %s:%d", name, operands,
                         node->site.file, node->site.line);
    return TRII_FAIL(TRI_ERR_NAN, TRII_NAN_MADE "%s(%s)", name, operands);
}

tri_status trii_nan_check_output(const trii_step *step, int32_t node, int output, const void *data)
{
    const trii_type *type = &step->values[step->nodes[node].first_out + output].type;

    return trii_has_nan(type->dtype, data, trii_type_bytes(type)) ? trii_nan_blame(step, node)
                                                                  : TRI_OK;
}
