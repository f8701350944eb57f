/*
 * step.c - the recorder: takes memory for nodes and values, and records operations. Public
 * functions of operations call trii_record, gradient rules trii_record_values; append.c writes the
 * node, segment.c runs it later.
 *
 * Arrays are reused from step to step and grow by half, so that recording allocates nothing once a
 * program has warmed up. Structures are filled field by field: clearing them would cost more than
 * all the rest.
 *
 * This is the top of a true recursion: recording an operation on 16 bits records casts
 * (precision.c), a cast is an operation, and its gradient rule records operations, as do the rules
 * of all others. See scripts/check_circles.
 */
#include "train/graph/step.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "train/graph/ops/table.h"
#include "train/graph/recorder.h"

/* --- memory --------------------------------------------------------------- */

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
    size_t cap = r->cap_key + r->cap_key / 2;
    uint64_t *key;

    if (TRII_LIKELY(r->n_key + n <= r->cap_key))
        return TRI_OK;
    if (cap < r->n_key + n)
        cap = r->n_key + n + 256;
    key = trii_realloc(r->key, cap, sizeof(*key), "plan key of a step");
    if (key == NULL)
        return TRI_ERR_NO_MEMORY;
    r->key = key;
    r->cap_key = cap;
    return TRI_OK;
}

tri_status trii_block_take(trii_recorder *r, size_t bytes, const char *what, void **data_out)
{
    void *array = r->blocks;
    trii_block *block;
    tri_status status =
        trii_grow(&array, &r->cap_blocks, r->n_blocks + 1, sizeof(*r->blocks), what);

    r->blocks = array;
    if (status != TRI_OK)
        return status;
    block = &r->blocks[r->n_blocks];
    if (r->n_blocks == r->made_blocks) {
        *block = (trii_block){NULL, 0};
        r->made_blocks++;
    }
    if (block->bytes < bytes) {
        trii_free(block->data);
        *block = (trii_block){trii_alloc(1, bytes, what), bytes};
        if (block->data == NULL) {
            block->bytes = 0;
            return TRI_ERR_NO_MEMORY;
        }
    }
    r->n_blocks++;
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
    value->storage = NULL;
    value->leaf = NULL;
    value->bound = NULL;
}

/* --- recording ------------------------------------------------------------ */

static tri_status check_operands(trii_step *step, const trii_graph_op *op, const trii_vid *in,
                                 int n_in, const trii_type **types, tri_device *device_out)
{
    tri_device device = 0;
    int first = -1;

    if (step->n_nodes >= TRII_STEP_MAX_NODES)
        return TRII_FAIL(TRI_ERR_STATE,
                         "this step has %d operations already: call tri_step_end after each step",
                         step->n_nodes);
    for (int i = 0; i < n_in; i++) {
        const trii_value *value;
        char text[TRII_VALUE_TEXT];

        types[i] = NULL;
        if (in[i] == TRII_NO_VALUE) {
            if (i >= 8 || (op->optional >> i & 1) == 0)
                return TRII_FAIL(TRI_ERR_INVALID_ARG, "argument %d is NULL" TRII_WHENCE_NULL, i);
            continue;
        }
        value = &step->values[in[i]];
        if (TRII_UNLIKELY(value->state >= TRII_VALUE_DROPPED)) {
            if (value->state == TRII_VALUE_FAILED)
                return trii_failure_get(trii_recorder_of(step), value);
            return TRII_FAIL(TRI_ERR_STATE,
                             "argument %d (%s) was not kept when the step ran (tri_keep keeps a "
                             "value), or was overwritten since",
                             i, trii_value_text(step, in[i], text));
        }
        types[i] = &value->type;
        if (TRII_UNLIKELY(first >= 0 && value->type.device != device))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "argument %d lies on %s, argument %d on %s: tri_to copies a tensor "
                             "to another device",
                             first, tri_device_text(device), i,
                             tri_device_text(value->type.device));
        if (first < 0) {
            device = value->type.device;
            first = i;
        }
    }
    *device_out = device;
    return TRI_OK;
}

tri_status trii_record_values(trii_step *step, const trii_graph_op *op, const trii_vid *in,
                              int n_in, const trii_attrs *attrs, trii_vid *first_out)
{
    static const trii_attrs no_attrs;
    const trii_type *types[TRII_MAX_INPUTS];
    trii_type out[TRII_MAX_OUTPUTS], wide[TRII_MAX_INPUTS];
    trii_vid fitted[TRII_MAX_INPUTS];
    tri_device device = 0;
    tri_dtype narrow = TRI_DTYPE_NONE;
    int n_out = 0;
    tri_status status;

    if (TRII_UNLIKELY(n_in > TRII_MAX_INPUTS))
        return TRII_FAIL(TRI_ERR_INTERNAL, "%s: %d inputs", op->name, n_in);
    if (TRII_UNLIKELY(attrs != NULL &&
                      (attrs->n_i > TRII_MAX_IATTRS || attrs->n_f > TRII_MAX_FATTRS)))
        return TRII_FAIL(TRI_ERR_INTERNAL, "%s: %d integer and %d real attributes", op->name,
                         attrs->n_i, attrs->n_f);
    if (TRII_LIKELY(trii_node_repeats(step, op, in, n_in, attrs)))
        return trii_node_repeat(step, attrs, first_out);
    status = trii_step_reserve(step, 1);
    if (status == TRI_OK)
        status = check_operands(step, op, in, n_in, types, &device);
    if (TRII_UNLIKELY(status == TRI_OK && trii_precision_matters(step, op, types, n_in))) {
        status = trii_precision_fit(step, op, in, n_in, fitted, &narrow);
        in = fitted;
        for (int i = 0; i < n_in && status == TRI_OK; i++) {
            if (in[i] == TRII_NO_VALUE)
                continue;
            trii_type_copy(&wide[i], &step->values[in[i]].type);
            if (trii_dtype_is_half(wide[i].dtype))
                wide[i].dtype = TRI_DTYPE_F32;
            types[i] = &wide[i];
        }
    }
    if (status == TRI_OK)
        status = op->shape(types, n_in, attrs != NULL ? attrs : &no_attrs, out, &n_out);
    for (int o = 0; o < n_out && status == TRI_OK; o++)
        status = trii_type_check(&out[o]);
    if (TRII_UNLIKELY(status != TRI_OK))
        return status;
    for (int o = 0; o < n_out && n_in > 0 && op->op_class != TRII_CLASS_TRANSFER; o++)
        out[o].device = device;
    for (int o = 0; o < n_out && narrow != TRI_DTYPE_NONE; o++) {
        if ((op->activations_out >> o & 1) != 0)
            out[o].dtype = narrow;
    }
    status = trii_node_append(step, op, in, n_in, attrs, NULL, out, n_out);
    if (TRII_LIKELY(status == TRI_OK))
        *first_out = step->n_values - n_out;
    return status;
}

tri_tensor *trii_record(const trii_graph_op *op, tri_tensor *const *in, int n_in,
                        const trii_attrs *attrs)
{
    trii_step *step = trii_step_current();
    trii_vid ids[TRII_MAX_INPUTS];
    trii_vid first = TRII_NO_VALUE;
    tri_status status = TRI_OK;

    if (TRII_UNLIKELY(step == NULL))
        return trii_tensor_no_memory();
    if (TRII_UNLIKELY(n_in > TRII_MAX_INPUTS))
        status = TRII_FAIL(TRI_ERR_INTERNAL, "%d inputs", n_in);
    for (int i = 0; i < n_in && status == TRI_OK; i++) {
        ids[i] = TRII_NO_VALUE;
        if (in[i] != NULL)
            status = trii_resolve(step, in[i], &ids[i]);
    }
    if (TRII_LIKELY(status == TRI_OK))
        status = trii_record_values(step, op, ids, n_in, attrs, &first);
    if (TRII_UNLIKELY(status != TRI_OK))
        return trii_handle_refused(step, op->name, in, n_in, status);
    return trii_handle_recorded(step, first);
}

tri_tensor *trii_handle_recorded(trii_step *step, trii_vid id)
{
    if (TRII_UNLIKELY(trii_recorder_of(step)->eager)) {
        tri_status status = trii_step_eager(step);

        if (status != TRI_OK && step->values[id].state != TRII_VALUE_FAILED)
            return trii_handle_failed(step, status); /* an earlier failure of the step */
    }
    return trii_handle(step, id);
}

tri_status trii_step_eager(trii_step *step)
{
    trii_recorder *r = trii_recorder_of(step);

    if (!r->eager || r->deferred > 0)
        return TRI_OK;
    return trii_step_catch_up(step);
}

void trii_step_only_record(trii_step *step)
{
    trii_recorder_of(step)->deferred++;
}

tri_status trii_bind(trii_step *step, trii_vid id, tri_tensor *tensor)
{
    trii_value *value = &step->values[id];
    trii_vid before;
    tri_status status;

    if (tensor->dtype != value->type.dtype || tensor->ndim != value->type.ndim ||
        memcmp(tensor->shape, value->type.shape, (size_t)tensor->ndim * sizeof(int64_t)) != 0)
        return TRII_FAIL(TRI_ERR_INTERNAL, "bind: a value of another shape or dtype");
    if (TRII_UNLIKELY(trii_in_replica(step)) && tensor->device == step->recorder->replica.home)
        return TRI_OK; /* only the replica at home writes there */
    if (tensor->device != value->type.device)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "a value on %s cannot be left in a tensor on %s: tri_to copies between "
                         "devices",
                         tri_device_text(value->type.device), tri_device_text(tensor->device));
    if (value->state != TRII_VALUE_PENDING || value->leaf != NULL || value->bound != NULL) {
        if (value->bound == tensor)
            return TRI_OK;
        status = trii_record_values(step, &trii_op_copy, &id, 1, NULL, &id);
        if (status != TRI_OK)
            return status;
        value = &step->values[id];
    }
    before = trii_known_value(step, tensor);
    status = trii_known_set(step, tensor, id);
    if (status != TRI_OK)
        return status;
    if (before != TRII_NO_VALUE) {
        trii_value *old = &step->values[before];

        if (old->bound == tensor && old->state == TRII_VALUE_PENDING) {
            before = old->replaces;
            old->replaces = TRII_NO_VALUE;
            old->bound = NULL; /* the reference moves */
            tri_tensor_unref(tensor);
        }
    }
    value->bound = tri_tensor_ref(tensor);
    value->replaces = before;
    value->requires_grad = tensor->requires_grad;
    return trii_step_eager(step);
}
