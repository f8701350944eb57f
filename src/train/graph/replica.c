/*
 * replica.c - see replica.h: which value is the copy of which, and on which device, in a hash table
 * that is empty when a step begins. handle.c asks it for every persistent tensor that is read while
 * a replica is recorded.
 */
#include "train/graph/replica.h"

#include "base/alloc.h"
#include "train/graph/ops/rules.h"
#include "train/graph/recorder.h"

trii_replica trii_replica_enter(trii_step *step, trii_replica replica)
{
    trii_replica before = trii_recorder_of(step)->replica;

    trii_recorder_of(step)->replica = replica;
    return before;
}

void trii_replica_leave(trii_step *step, trii_replica before)
{
    trii_recorder_of(step)->replica = before;
}

trii_replica trii_replica_now(const trii_step *step)
{
    return step->recorder->replica;
}

static size_t place_of(const trii_recorder *r, trii_vid id, tri_device device)
{
    uint64_t key = (uint64_t)(uint32_t)id << 32 | (uint32_t)device;

    return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (size_t)(r->cap_copies - 1);
}

/* Where the copy's entry is looked for first. */
static trii_copy *find(const trii_recorder *r, trii_vid id, tri_device device)
{
    size_t at = place_of(r, id, device);

    while (r->copies[at].generation == r->step.generation &&
           (r->copies[at].of != id || r->copies[at].device != device))
        at = (at + 1) & (size_t)(r->cap_copies - 1);
    return &r->copies[at];
}

/* At most half full. */
static tri_status make_room(trii_recorder *r)
{
    trii_copy *old = r->copies;
    int32_t n = r->cap_copies;

    if (r->copies_generation != r->step.generation)
        r->n_copies = 0;
    r->copies_generation = r->step.generation;
    if (r->n_copies < n / 2)
        return TRI_OK;
    r->copies = trii_alloc((size_t)(n > 0 ? 2 * n : 64), sizeof(*old), "copies of parameters");
    if (r->copies == NULL) {
        r->copies = old;
        return TRI_ERR_NO_MEMORY;
    }
    r->cap_copies = n > 0 ? 2 * n : 64;
    for (int32_t i = 0; i < n; i++)
        if (old[i].generation == r->step.generation)
            *find(r, old[i].of, old[i].device) = old[i];
    trii_free(old);
    return TRI_OK;
}

tri_status trii_replica_value(trii_step *step, trii_vid id, trii_vid *value_out)
{
    trii_recorder *r = trii_recorder_of(step);
    tri_device device = r->replica.device;
    bool wants_grad = step->values[id].requires_grad && r->no_grad == 0;
    trii_copy *copy;
    tri_status status;

    *value_out = id;
    if (step->values[id].type.device != r->replica.home)
        return TRI_OK;
    status = make_room(r);
    if (status != TRI_OK)
        return status;
    copy = find(r, id, device);
    /* A copy that was made without gradients serves those who need none; a run may have dropped
     * it. */
    if (copy->generation == step->generation && step->values[copy->is].state < TRII_VALUE_DROPPED &&
        (!wants_grad || step->values[copy->is].requires_grad)) {
        *value_out = copy->is;
        return TRI_OK;
    }
    status = trii_record_to(step, id, device, value_out);
    if (status != TRI_OK)
        return status;
    r->n_copies += copy->generation != step->generation;
    *copy =
        (trii_copy){.generation = step->generation, .of = id, .is = *value_out, .device = device};
    return TRI_OK;
}
