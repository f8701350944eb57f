/* pipeline_stages.c - the life of what all stages of a pipeline have in common. */
#include "train/dist/pipeline_stages.h"

#include <trireme/group.h>

#include "base/alloc.h"

void trii_stages_unref(trii_stages *stages)
{
    if (stages == NULL || atomic_fetch_sub_explicit(&stages->refs, 1, memory_order_acq_rel) > 1)
        return;
    tri_group_unref(stages->group);
    trii_free(stages);
}
