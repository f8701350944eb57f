/*
 * pairs.c - see pairs.h.
 */
#include "train/nn/pairs.h"

#include "base/err.h"

tri_status trii_pair_get(const char *call, const trii_pair_option *option, int pair_out[2])
{
    const int *hw = option->hw;
    bool apart = hw[0] != 0 || hw[1] != 0;

    if (apart && option->both != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: %s is %d, and %s_hw {%d, %d}: give only one (0 = unset)", call,
                         option->name, option->both, option->name, hw[0], hw[1]);
    for (int d = 0; d < 2; d++) {
        int value = apart ? hw[d] : option->both;

        pair_out[d] = value != 0 ? value : option->unset;
        if (pair_out[d] < option->least)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s %d: it must be at least %d", call,
                             option->name, value, option->least);
    }
    return TRI_OK;
}
