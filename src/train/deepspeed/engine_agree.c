/*
 * engine_agree.c - what fails on one rank of an engine fails on all, so that none waits for ever.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/group.h>

#include "train/deepspeed/engine_internal.h"

/* That of the first rank that failed. */
static tri_status hear(const tri_engine *e, tri_status mine, int failed)
{
    char text[TRII_ERR_BYTES + 16];
    void *data = NULL;
    size_t bytes = 0;
    char *line;
    tri_status status;

    snprintf(text, sizeof(text), "%d %s", (int)mine, mine != TRI_OK ? tri_last_error() : "");
    status = tri_broadcast_object(e->group, text, strlen(text) + 1, failed, &data, &bytes);
    if (status == TRI_OK) {
        snprintf(text, sizeof(text), "%s", (const char *)data);
        status = (tri_status)strtol(text, &line, 10);
        status = failed == e->rank ? TRII_FAIL(status, "%s", line + 1)
                                   : TRII_FAIL(status, "rank %d:%s", failed, line);
    }
    tri_object_free(data);
    return status;
}

tri_status trii_engine_agree(const tri_engine *e, tri_status mine)
{
    char line[TRII_ERR_BYTES];
    double first = mine != TRI_OK ? e->rank : e->size;
    tri_status status;

    if (e->size == 1)
        return mine;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    status = tri_all_reduce(e->group, &first, &first, 1, TRI_DTYPE_F64, TRI_REDOP_MIN, NULL);
    if (status != TRI_OK || (int)first == e->size)
        return status;
    if (mine != TRI_OK)
        mine = TRII_FAIL(mine, "%s", line);
    return hear(e, mine, (int)first);
}
