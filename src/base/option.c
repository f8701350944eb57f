/*
 * option.c - see option.h.
 */
/* build: leaf */
#include "base/option.h"

#include "base/err.h"

tri_status trii_option_whole(tri_opt option, const char *name, int64_t fallback, int64_t *value_out)
{
    const double x = option.value, most = 9007199254740992.0;

    *value_out = fallback;
    if (option.given == NULL)
        return TRI_OK;
    if (!(x >= -most && x <= most) || (double)(int64_t)x != x)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is %g: must be a whole number", name, x);
    *value_out = (int64_t)x;
    return TRI_OK;
}

tri_status trii_reserved(const uint64_t *reserved, size_t n, const char *type)
{
    for (size_t i = 0; i < n; i++) {
        if (reserved[i] != 0)
            return TRII_FAIL(
                TRI_ERR_INVALID_ARG,
                "%s: reserved[%zu] is not 0: zero the struct before you set fields; or "
                "this library is older than the program",
                type, i);
    }
    return TRI_OK;
}
