/*
 * elsewhere.c - see elsewhere.h.
 */
#include "train/tensor/elsewhere.h"

#include <stdio.h>

#include "base/err.h"
#include "train/tensor/persistent.h"

tri_status trii_opened_end(trii_opened *opened, tri_status status)
{
    char line[TRII_ERR_BYTES];
    tri_status closed;

    if (opened->tensor == NULL)
        return status;
    if (status != TRI_OK)
        snprintf(line, sizeof(line), "%s", tri_last_error());
    closed = opened->by->close(opened->tensor);
    opened->tensor = NULL;
    if (status != TRI_OK)
        trii_err_set("%s", line);
    return status != TRI_OK ? status : closed;
}

tri_status trii_opened_next(trii_opened *opened, tri_tensor *tensor)
{
    const trii_elsewhere *by = tensor->elsewhere;
    tri_status status;

    if (TRII_LIKELY(by == NULL)) /* or what is open has it, too */
        return TRI_OK;
    status = trii_opened_end(opened, TRI_OK);
    if (status == TRI_OK)
        status = by->open(tensor);
    if (status == TRI_OK)
        *opened = (trii_opened){tensor, by};
    return status;
}
