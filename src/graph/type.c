/*
 * type.c - see type.h.
 */
#include "graph/type.h"

#include <inttypes.h>

const char *trii_type_text(const trii_type *type, char text[TRII_TYPE_TEXT])
{
    int n = snprintf(text, TRII_TYPE_TEXT, "%s [", tri_dtype_name(type->dtype));

    for (int d = 0; d < type->ndim && n < TRII_TYPE_TEXT; d++)
        n += snprintf(text + n, (size_t)(TRII_TYPE_TEXT - n), "%s%" PRId64, d > 0 ? ", " : "",
                      type->shape[d]);
    if (n < TRII_TYPE_TEXT)
        snprintf(text + n, (size_t)(TRII_TYPE_TEXT - n), "]");
    return text;
}
