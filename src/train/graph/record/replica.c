/*
 * replica.c - see replica.h: which value is the copy of which, and on which device, in a hash table
 * that is empty when a step begins. handle.c asks it for every persistent tensor that is read while
 * a replica is recorded.
 */
#include "train/graph/record/replica.h"

#include "base/alloc.h"
#include "train/graph/record/record.h"
#include "train/graph/step/recorder.h"

/* The copy of a value on another device. */
typedef struct copied {
    uint64_t generation; /* of the step; an entry of another step is free */
    trii_vid of, is;
    tri_device device;
} copied;

/* What this folder keeps for a recorder: the copies, in a hash table. */
typedef struct copies {
    copied *at;
    int32_t n, cap;      /* cap is 0 or a power of two */
    uint64_t generation; /* the step in which n were counted */
} copies;

static void copies_release(void *state)
{
    trii_free(((copies *)state)->at);
}

trii_replica trii_replica_enter(trii_step *step, trii_replica replica)
{
    trii_replica before = trii_recorder_of(step)->scopes.replica;

    trii_recorder_of(step)->scopes.replica = replica;
    return before;
}

void trii_replica_leave(trii_step *step, trii_replica before)
{
    trii_recorder_of(step)->scopes.replica = before;
}

trii_replica trii_replica_now(const trii_step *step)
{
    return step->recorder->scopes.replica;
}

static size_t place_of(const copies *c, trii_vid id, tri_device device)
{
    uint64_t key = (uint64_t)(uint32_t)id << 32 | (uint32_t)device;

    return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (size_t)(c->cap - 1);
}

/* Where the copy's entry is looked for first. */
static copied *find(const copies *c, trii_vid id, tri_device device)
{
    size_t at = place_of(c, id, device);

    while (c->at[at].generation == c->generation &&
           (c->at[at].of != id || c->at[at].device != device))
        at = (at + 1) & (size_t)(c->cap - 1);
    return &c->at[at];
}

/* At most half full. */
static tri_status make_room(copies *c, uint64_t generation)
{
    copied *old = c->at;
    int32_t n = c->cap;

    if (c->generation != generation)
        c->n = 0;
    c->generation = generation;
    if (c->n < n / 2)
        return TRI_OK;
    c->at = trii_alloc((size_t)(n > 0 ? 2 * n : 64), sizeof(*old), "copies of parameters");
    if (c->at == NULL) {
        c->at = old;
        return TRI_ERR_NO_MEMORY;
    }
    c->cap = n > 0 ? 2 * n : 64;
    for (int32_t i = 0; i < n; i++)
        if (old[i].generation == generation)
            *find(c, old[i].of, old[i].device) = old[i];
    trii_free(old);
    return TRI_OK;
}

tri_status trii_replica_value(trii_step *step, trii_vid id, trii_vid *value_out)
{
    trii_recorder *r = trii_recorder_of(step);
    tri_device device = r->scopes.replica.device;
    bool wants_grad = step->values[id].requires_grad && r->scopes.no_grad == 0;
    copies *c;
    copied *copy;
    tri_status status;

    *value_out = id;
    if (step->values[id].type.device != r->scopes.replica.home)
        return TRI_OK;
    c = trii_floor_state_of(r, TRII_FLOOR_RECORD, sizeof(*c), copies_release);
    status = c != NULL ? make_room(c, step->generation) : TRI_ERR_NO_MEMORY;
    if (status != TRI_OK)
        return status;
    copy = find(c, id, device);
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
    c->n += copy->generation != step->generation;
    *copy = (copied){.generation = step->generation, .of = id, .is = *value_out, .device = device};
    return TRI_OK;
}
