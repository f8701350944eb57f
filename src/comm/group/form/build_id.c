/*
 * build_id.c - whether the ranks run one build of the library (trii_group_begin). What they share
 * in memory or send each other is laid out by the compiler, and no version of it reads another's.
 */
/* build: leaf */
#include <stdio.h>
#include <string.h>

#include <trireme/export.h>

#include "base/err.h"
#include "comm/group/group_internal.h"

/* "VERSION/ABI-SIZE-SIZE" */
void trii_build_text(const trii_engine_id *id, char text_out[TRII_BUILD_TEXT])
{
    size_t used = (size_t)snprintf(text_out, TRII_BUILD_TEXT, "%d.%d.%d/%u", TRI_VERSION_MAJOR,
                                   TRI_VERSION_MINOR, TRI_VERSION_PATCH, TRII_ENGINE_ABI);

    for (int i = 0; i < id->n_sizes && used < TRII_BUILD_TEXT; i++)
        used += (size_t)snprintf(text_out + used, TRII_BUILD_TEXT - used, "-%zx", id->sizes[i]);
}

tri_status trii_build_check(const trii_group_args *args, int rank, const char *theirs,
                            const char *ours)
{
    const char *slash = strchr(theirs, '/'), *own = strchr(ours, '/');

    if (strcmp(theirs, ours) == 0)
        return TRI_OK;
    if (slash == NULL || own == NULL)
        return TRII_FAIL(TRI_ERR_STATE,
                         "rank %d runs another Trireme than this rank (%s): start all ranks with "
                         "one build of the library",
                         trii_rank_name(args->names, rank), ours);
    return TRII_FAIL(TRI_ERR_STATE,
                     "rank %d runs Trireme %.*s (layout %s), this rank %.*s (layout %s): start all "
                     "ranks with one build of the library",
                     trii_rank_name(args->names, rank), (int)(slash - theirs), theirs, slash + 1,
                     (int)(own - ours), ours, own + 1);
}
