/*
 * reference.c - the interpreter: node by node in recorded order, through the reference kernels. It
 * is the truth for plans and devices, what TRI_EAGER=1 runs, and what nan_check.c repeats a segment
 * with. An executor, called by segment.c.
 *
 * Every result has memory of its own until its last reader has run. Bound results are copied to
 * their tensors after the last node, when nothing reads the old contents any more; only a host
 * operation's bound result lies in its tensor from the start (buckets) if nothing reads those.
 *
 * A dry run looks for the first NaN after the segment has run. It must not communicate again, so it
 * skips host operations: their results are what the run left of them, or their operands.
 */
#include "base/alloc.h"
#include "train/graph/run/kernel.h"
#include "train/graph/run/run.h"
#include "train/graph/step/recorder.h"
#include "train/tensor/device_memory.h"

typedef struct slot {
    void *data; /* plain contents of the value during the run */
    trii_storage *storage;
    int32_t last_use; /* node; INT32_MAX = kept to the end */
    bool converted;   /* data is a plain copy of an input in another layout, ours to free */
} slot;

typedef struct run {
    trii_step *step;
    const trii_segment *segment;
    slot *slots; /* of the inputs, then of the values from `base` on */
    int32_t base;
    int32_t n_slots;
    bool dry;
} run;

/* Inputs that existed before the segment's first value are among the first slots. */
static slot *slot_of(run *r, trii_vid id)
{
    if (id >= r->base)
        return &r->slots[r->segment->n_inputs + (id - r->base)];
    return &r->slots[r->step->values[id].slot];
}

static tri_status make_input(run *r, trii_vid id)
{
    const trii_value *value = &r->step->values[id];
    const trii_layout *layout = trii_value_layout(value);
    slot *s = slot_of(r, id);

    s->last_use = INT32_MAX;
    if (layout == NULL && trii_is_host(value->type.device)) {
        s->data = trii_value_data(value);
        return TRI_OK;
    }
    s->data = trii_alloc_aligned(TRII_CACHE_LINE, trii_type_bytes(&value->type), "plain copy");
    if (s->data == NULL)
        return TRI_ERR_NO_MEMORY;
    s->converted = true;
    return trii_memory_read(value->type.device, layout, trii_value_data(value), s->data,
                            trii_type_bytes(&value->type));
}

/* When each result is last read. */
static void find_last_uses(run *r)
{
    const trii_step *step = r->step;

    for (int32_t n = r->segment->first_node; n < r->segment->end_node; n++) {
        const trii_node *node = &step->nodes[n];

        for (int i = 0; i < node->n_in; i++) {
            trii_vid in = step->in_ids[node->first_in + i];

            /* One that was retired counts as dropped, but is computed here all the same. */
            if (in != TRII_NO_VALUE && step->values[in].node >= r->segment->first_node)
                slot_of(r, in)->last_use = n;
        }
        for (int o = 0; o < node->n_out; o++)
            slot_of(r, node->first_out + o)->last_use = n;
    }
    for (int32_t o = 0; o < r->segment->n_outputs; o++)
        slot_of(r, r->segment->outputs[o])->last_use = INT32_MAX;
}

static void release_slot(slot *s)
{
    if (s->converted)
        trii_free(s->data);
    trii_storage_unref(s->storage);
    *s = (slot){.last_use = -1};
}

/* Whether a host operation may leave the result in its tensor while the segment runs: nobody reads
 * the old contents. */
static bool lies_in_tensor(const trii_step *step, const trii_value *value)
{
    const tri_tensor *tensor = value->bound;

    return tensor != NULL && tensor->layout == NULL && !tensor->shares &&
           trii_is_host(value->type.device) &&
           (value->replaces == TRII_NO_VALUE ||
            step->values[value->replaces].state != TRII_VALUE_READY);
}

static tri_status make_output(run *r, const trii_node *node, int o)
{
    trii_vid id = node->first_out + o;
    trii_value *value = &r->step->values[id];
    slot *s = slot_of(r, id);
    tri_status status;

    if (node->host != NULL && !r->dry && lies_in_tensor(r->step, value)) {
        value->torn = true; /* until the run has succeeded */
        s->storage = trii_storage_ref(value->bound->storage);
        s->data = trii_tensor_data(value->bound);
        return TRI_OK;
    }
    status = trii_storage_create(NULL, NULL, trii_type_bytes(&value->type), &s->storage);
    if (status == TRI_OK)
        s->data = s->storage->data;
    return status;
}

static tri_status run_host(const run *r, int32_t n, void **in, void **out)
{
    trii_host_op *op = r->step->nodes[n].host;
    static const trii_layout *const plain[TRII_MAX_INPUTS];
    const trii_host_buffers buffers = {
        .in = in, .out = out, .in_layout = plain, .out_layout = plain};
    tri_status status = trii_host_check(r->step, n);

    if (status == TRI_OK)
        status = op->kind->start(op, &buffers);
    return status == TRI_OK ? op->kind->wait(op, INT64_MAX) : status;
}

/* In place of a host operation's output in a dry run. An output of the segment still has what the
 * operation really gave; for any other the best guess is the operand, if there is one of its type,
 * or zeros. */
static tri_status stand_in(run *r, const trii_node *node, int o, const void *operand)
{
    trii_vid id = node->first_out + o;
    const trii_value *value = &r->step->values[id];
    slot *s = slot_of(r, id);

    if (s->last_use == INT32_MAX)
        return trii_memory_read(value->type.device, trii_value_layout(value),
                                trii_value_data(value), s->data, trii_type_bytes(&value->type));
    if (operand != NULL)
        memcpy(s->data, operand, trii_type_bytes(&value->type));
    else
        memset(s->data, 0, trii_type_bytes(&value->type));
    return TRI_OK;
}

static bool is_passed_on(const trii_step *step, const trii_node *node, int o)
{
    return o < node->n_in && node->host->kind->in_place &&
           trii_type_equal(&step->values[step->in_ids[node->first_in + o]].type,
                           &step->values[node->first_out + o].type);
}

static tri_status pass_over(run *r, const trii_node *node, void **in)
{
    tri_status status = TRI_OK;

    for (int o = 0; o < node->n_out && status == TRI_OK; o++)
        status = stand_in(r, node, o, is_passed_on(r->step, node, o) ? in[o] : NULL);
    return status;
}

static tri_status run_node(run *r, int32_t n)
{
    static const trii_type absent;
    const trii_step *step = r->step;
    const trii_node *node = &step->nodes[n];
    trii_array in[TRII_MAX_INPUTS], out[TRII_MAX_OUTPUTS];
    void *in_data[TRII_MAX_INPUTS] = {NULL}, *out_data[TRII_MAX_OUTPUTS] = {NULL};
    tri_status status = TRI_OK;

    for (int i = 0; i < node->n_in; i++) {
        trii_vid id = step->in_ids[node->first_in + i];

        in[i] = (trii_array){.type = &absent};
        if (id != TRII_NO_VALUE)
            in[i] = (trii_array){slot_of(r, id)->data, &step->values[id].type};
        in_data[i] = in[i].data;
    }
    for (int o = 0; o < node->n_out && status == TRI_OK; o++) {
        status = make_output(r, node, o);
        out[o] = (trii_array){slot_of(r, node->first_out + o)->data,
                              &step->values[node->first_out + o].type};
        out_data[o] = out[o].data;
    }
    if (status == TRI_OK && node->host != NULL) {
        status = r->dry ? pass_over(r, node, in_data) : run_host(r, n, in_data, out_data);
    } else if (status == TRI_OK) {
        const trii_kernel_args args = {
            .n_in = node->n_in,
            .n_out = node->n_out,
            .in = in,
            .out = out,
            .iattr = node->attrs.i,
            .fattr = node->attrs.f,
            .random = trii_step_random(step, node),
        };

        status = trii_reference_kernel(node->op, &args);
    }
    if (status != TRI_OK)
        return trii_node_failed(step, n, status);
    for (int o = 0; o < node->n_out && r->dry && status == TRI_OK; o++)
        status = trii_nan_check_output(step, n, o, out_data[o]);
    for (int i = 0; i < node->n_in; i++) {
        trii_vid id = step->in_ids[node->first_in + i];

        if (id != TRII_NO_VALUE && slot_of(r, id)->last_use == n)
            release_slot(slot_of(r, id));
    }
    for (int o = 0; o < node->n_out; o++) {
        if (slot_of(r, node->first_out + o)->last_use == n)
            release_slot(slot_of(r, node->first_out + o));
    }
    return status;
}

/* The result was made in memory of the host: moves it to the device. */
static tri_status send_there(const trii_type *type, trii_storage **storage)
{
    trii_storage *there = NULL;
    size_t bytes = trii_type_bytes(type);
    tri_status status = trii_storage_create_on(type->device, bytes, &there);

    if (status == TRI_OK)
        status = trii_memory_write(type->device, NULL, (*storage)->data, there->data, bytes);
    if (status != TRI_OK) {
        trii_storage_unref(there);
        return status;
    }
    trii_storage_unref(*storage);
    *storage = there;
    return TRI_OK;
}

/* Hands over the results: copies them to their tensors, or gives their storage to their values. */
static tri_status deliver(run *r)
{
    for (int32_t o = 0; o < r->segment->n_outputs; o++) {
        trii_value *value = &r->step->values[r->segment->outputs[o]];
        slot *s = slot_of(r, r->segment->outputs[o]);
        tri_tensor *tensor = value->bound;

        if (tensor == NULL && !trii_is_host(value->type.device)) {
            tri_status status = send_there(&value->type, &s->storage);

            if (status != TRI_OK)
                return status;
        }
        if (tensor == NULL) {
            value->storage = s->storage;
            value->offset = 0;
            value->layout = NULL;
            s->storage = NULL;
            continue;
        }
        value->torn = true;
        if (s->data != trii_tensor_data(tensor)) {
            tri_status status =
                trii_memory_write(tensor->device, tensor->layout, s->data, trii_tensor_data(tensor),
                                  trii_tensor_bytes(tensor));

            if (status != TRI_OK)
                return status;
        }
    }
    return TRI_OK;
}

tri_status trii_reference_run(trii_step *step, const trii_segment *segment, bool dry)
{
    run r = {.step = step, .segment = segment, .dry = dry};
    tri_status status = TRI_OK;

    r.base = segment->end_node > segment->first_node ? step->nodes[segment->first_node].first_out
                                                     : step->n_values;
    r.n_slots = segment->n_inputs + step->n_values - r.base;
    r.slots = trii_alloc((size_t)r.n_slots, sizeof(*r.slots), "interpreter");
    if (r.slots == NULL)
        return TRI_ERR_NO_MEMORY;
    find_last_uses(&r);
    for (int32_t i = 0; i < segment->n_inputs && status == TRI_OK; i++)
        status = make_input(&r, segment->inputs[i]);
    for (int32_t n = segment->first_node; n < segment->end_node && status == TRI_OK; n++)
        status = run_node(&r, n);
    if (status == TRI_OK && !dry)
        status = deliver(&r);
    for (int32_t i = 0; i < r.n_slots; i++)
        release_slot(&r.slots[i]);
    trii_free(r.slots);
    return status;
}

static tri_status reference_run(trii_step *step, const trii_segment *segment)
{
    return trii_reference_run(step, segment, false);
}

const trii_executor trii_executor_reference = {.name = "reference", .run = reference_run};
