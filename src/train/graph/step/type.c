/*
 * type.c - see type.h.
 */
#include "train/graph/step/type.h"

#include <inttypes.h>

#include "base/err.h"

tri_status trii_type_refuse_large(const trii_type *type)
{
    char text[TRII_TYPE_TEXT];
    bool none = false;

    for (int d = 0; d < type->ndim; d++)
        none = none || type->shape[d] == 0;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "the result %s has more than 2^48 elements%s",
                     trii_type_text(type, text), none ? ", counted without its sizes of 0" : "");
}

static const char *add_shape(const trii_type *type, int n, char text[TRII_TYPE_TEXT])
{
    for (int d = 0; d < type->ndim && n < TRII_TYPE_TEXT; d++)
        n += snprintf(text + n, (size_t)(TRII_TYPE_TEXT - n), "%s%" PRId64, d > 0 ? ", " : "",
                      type->shape[d]);
    if (n < TRII_TYPE_TEXT)
        snprintf(text + n, (size_t)(TRII_TYPE_TEXT - n), "]");
    return text;
}

const char *trii_shape_text(const trii_type *type, char text[TRII_TYPE_TEXT])
{
    return add_shape(type, snprintf(text, TRII_TYPE_TEXT, "["), text);
}

const char *trii_type_text(const trii_type *type, char text[TRII_TYPE_TEXT])
{
    return add_shape(type, snprintf(text, TRII_TYPE_TEXT, "%s [", tri_dtype_name(type->dtype)),
                     text);
}
