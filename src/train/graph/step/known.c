/*
 * known.c - what each tensor of the program is to a step: which value holds its contents now, and
 * which value will become its gradient. A hash table by address: entries of earlier steps count as
 * free, so that a new step finds the table empty without clearing it. Its lookups are inline in
 * recorder.h.
 */
#include "base/alloc.h"
#include "train/graph/step/recorder.h"

#define FIRST_BITS 6

/* At most half full, so that searches are short. */
static trii_known *free_place(const trii_recorder *r, const tri_tensor *tensor)
{
    size_t at = trii_known_hash(tensor) >> r->known.shift;

    while (r->known.at[at].generation == r->step.generation)
        at = (at + 1) & r->known.mask;
    return &r->known.at[at];
}

static tri_status grow(trii_recorder *r)
{
    trii_known *old = r->known.at;
    size_t n_old = r->known.at != NULL ? r->known.mask + 1 : 0;
    size_t n = n_old > 0 ? 2 * n_old : (size_t)1 << FIRST_BITS;
    trii_known *table = trii_alloc(n, sizeof(*table), "tensors of a step");

    if (table == NULL)
        return TRI_ERR_NO_MEMORY;
    r->known.shift = n_old > 0 ? r->known.shift - 1 : 64 - FIRST_BITS;
    r->known.at = table;
    r->known.mask = n - 1;
    r->known.room = (int32_t)(n / 2);
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].generation == r->step.generation)
            *free_place(r, old[i].tensor) = old[i];
    }
    trii_free(old);
    return TRI_OK;
}

tri_status trii_known_add(trii_step *step, const tri_tensor *tensor, trii_vid value,
                          trii_vid *before_out)
{
    tri_status status = grow(trii_recorder_of(step));

    return status == TRI_OK ? trii_known_set(step, tensor, value, before_out) : status;
}
