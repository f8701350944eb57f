/* pipeline_stages.c - the life of what all stages of a pipeline have in common. */
#include "train/tensor/pipeline_stages.h"

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/hash.h"

void trii_stages_unref(trii_stages *stages)
{
    if (stages == NULL || atomic_fetch_sub_explicit(&stages->refs, 1, memory_order_acq_rel) > 1)
        return;
    tri_group_unref(stages->group);
    trii_free(stages->entries);
    trii_free(stages);
}

int64_t trii_stages_hash(const char *name)
{
    return (int64_t)trii_hash_text(TRII_HASH_SEED, name);
}

bool trii_stages_has(const trii_stages *stages, const char *name)
{
    int64_t hash = trii_stages_hash(name);

    for (int64_t i = 0; i < stages->count; i++)
        if (stages->entries[i].name == hash)
            return true;
    return false;
}
