/*
 * step_memory.c - memory of a step: arrays of values, nodes and edges, the plan key, and blocks.
 *
 * Arrays are reused from step to step and grow by half, so that recording allocates nothing once a
 * program has warmed up.
 */

#include "base/alloc.h"
#include "train/graph/step/recorder.h"

tri_status trii_grow(void **array, int32_t *cap, int32_t need, size_t size, const char *what)
{
    int64_t wanted = (int64_t)*cap + *cap / 2;
    void *grown;

    if (need <= *cap)
        return TRI_OK;
    if (wanted < need)
        wanted = need;
    if (wanted < 64)
        wanted = 64;
    if (wanted > INT32_MAX)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: more than %d", what, INT32_MAX);
    grown = trii_realloc(*array, (size_t)wanted, size, what);
    if (grown == NULL)
        return TRI_ERR_NO_MEMORY;
    *array = grown;
    *cap = (int32_t)wanted;
    return TRI_OK;
}

static inline int32_t values_after(const trii_step *step, int32_t n_nodes)
{
    return step->n_values + n_nodes * TRII_RESERVE_VALUES + TRII_MAX_OUTPUTS;
}

static inline int32_t edges_after(const trii_step *step, int32_t n_nodes)
{
    return step->n_in_ids + n_nodes * TRII_RESERVE_VALUES + TRII_MAX_INPUTS;
}

static TRII_NOINLINE tri_status reserve_slow(trii_recorder *r, int32_t n)
{
    trii_step *s = &r->step;
    void *array = s->values;
    tri_status status;

    if (values_after(s, n) > r->max_values) /* handles have no larger numbers */
        return TRII_FAIL(TRI_ERR_STATE,
                         "this step has %d tensors already, of at most %d: call tri_step_end after "
                         "each step",
                         s->n_values, r->max_values);
    status = trii_grow(&array, &r->cap_values, values_after(s, n), sizeof(*s->values),
                       "values of a step");
    if (r->cap_values > r->max_values)
        r->cap_values = r->max_values;
    s->values = array;
    if (status != TRI_OK)
        return status;
    trii_step_grew(s);
    array = s->nodes;
    status = trii_grow(&array, &r->cap_nodes, s->n_nodes + n, sizeof(*s->nodes), "nodes of a step");
    s->nodes = array;
    if (status != TRI_OK)
        return status;
    array = s->in_ids;
    status =
        trii_grow(&array, &r->cap_in_ids, edges_after(s, n), sizeof(*s->in_ids), "edges of a step");
    s->in_ids = array;
    return status;
}

tri_status trii_step_reserve(trii_step *step, int32_t n)
{
    trii_recorder *r = trii_recorder_of(step);

    if (TRII_LIKELY(values_after(step, n) <= r->cap_values && step->n_nodes + n <= r->cap_nodes &&
                    edges_after(step, n) <= r->cap_in_ids))
        return TRI_OK;
    return reserve_slow(r, n);
}

tri_status trii_key_reserve(trii_recorder *r, size_t n)
{
    size_t cap = r->pending.cap_key + r->pending.cap_key / 2;
    uint64_t *key;

    if (TRII_LIKELY(r->pending.n_key + n <= r->pending.cap_key))
        return TRI_OK;
    if (cap < r->pending.n_key + n)
        cap = r->pending.n_key + n + 256;
    key = trii_realloc(r->pending.key, cap, sizeof(*key), "plan key of a step");
    if (key == NULL)
        return TRI_ERR_NO_MEMORY;
    r->pending.key = key;
    r->pending.cap_key = cap;
    return TRI_OK;
}

tri_status trii_block_take(trii_recorder *r, size_t bytes, const char *what, void **data_out)
{
    void *array = r->blocks.list;
    trii_block *block;
    tri_status status =
        trii_grow(&array, &r->blocks.cap, r->blocks.n + 1, sizeof(*r->blocks.list), what);

    r->blocks.list = array;
    if (status != TRI_OK)
        return status;
    block = &r->blocks.list[r->blocks.n];
    if (r->blocks.n == r->blocks.made) {
        *block = (trii_block){NULL, 0};
        r->blocks.made++;
    }
    if (block->bytes < bytes) {
        trii_free(block->data);
        *block = (trii_block){trii_alloc(1, bytes, what), bytes};
        if (block->data == NULL) {
            block->bytes = 0;
            return TRI_ERR_NO_MEMORY;
        }
    }
    r->blocks.n++;
    *data_out = block->data;
    return TRI_OK;
}

void trii_value_release(trii_value *value)
{
    if (value->storage != NULL)
        trii_storage_unref(value->storage);
    if (value->leaf != NULL)
        tri_tensor_unref(value->leaf);
    if (value->bound != NULL)
        tri_tensor_unref(value->bound);
    if (TRII_UNLIKELY(value->owner != NULL))
        tri_tensor_unref(value->owner);
    value->storage = NULL;
    value->leaf = NULL;
    value->bound = NULL;
    value->owner = NULL;
}

void *trii_floor_state_of(trii_recorder *r, trii_floor floor, size_t bytes,
                          void (*release)(void *state))
{
    trii_floor_state *at = &r->floors[floor];

    if (TRII_UNLIKELY(at->state == NULL)) {
        at->state = trii_alloc(1, bytes, "context");
        at->release = release;
    }
    return at->state;
}
