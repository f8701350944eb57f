/*
 * elsewhere.c - see elsewhere.h.
 */
#include "train/tensor/elsewhere.h"

#include <stdio.h>

#include "base/err.h"
#include "train/tensor/persistent.h"

/* Of two failures the first. */
static tri_status close_last(trii_opened *opened, tri_status status)
{
    char line[TRII_ERR_BYTES];
    tri_status closed;

    if (opened->tensor == NULL)
        return status;
    if (status != TRI_OK)
        snprintf(line, sizeof(line), "%s", tri_last_error());
    closed = opened->by->close(opened->tensor);
    opened->tensor = NULL;
    if (status == TRI_OK)
        return closed;
    trii_err_set("%s", line);
    return status;
}

tri_status trii_opened_end(trii_opened *opened, tri_status status)
{
    return trii_ranks_agree(opened->group, close_last(opened, status));
}

tri_status trii_opened_next(trii_opened *opened, tri_tensor *tensor, tri_status status)
{
    const trii_elsewhere *by = tensor->elsewhere;
    char line[TRII_ERR_BYTES];
    tri_status done;

    if (TRII_LIKELY(by == NULL) || by->open == NULL) /* or what is open has it, too */
        return status;
    status = close_last(opened, status);
    opened->group = by->ranks(tensor);
    if (status != TRI_OK)
        snprintf(line, sizeof(line), "%s", tri_last_error());
    done = by->open(tensor);
    if (done == TRI_OK)
        *opened = (trii_opened){tensor, by, opened->group};
    if (status == TRI_OK)
        return done;
    trii_err_set("%s", line);
    return status;
}
