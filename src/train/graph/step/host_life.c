/*
 * host_life.c - host operations of a step (host_op.h): who owns them, and what they are told when
 * it runs, fails and ends. record/host_op.c records them; plan/host_run.c and run/reference.c run
 * them.
 */
#include "train/graph/step/host_op.h"

#include "train/graph/step/recorder.h"

static tri_status host_shape(const trii_type *const *in, int n_in, const trii_attrs *attrs,
                             trii_type *out, int *n_out)
{
    (void)in;
    (void)n_in;
    (void)attrs;
    (void)out;
    (void)n_out;
    return TRII_FAIL(TRI_ERR_INTERNAL, "host operations are recorded by trii_record_host");
}

const trii_graph_op trii_op_host = {
    .name = "host",
    .op_class = TRII_CLASS_HOST,
    .shape = host_shape,
};

static void own(trii_recorder *r, trii_host_op *op)
{
    op->next_owned = r->owned_hosts;
    r->owned_hosts = op;
}

tri_status trii_host_op_new(trii_step *step, const trii_host_kind *kind, size_t bytes,
                            trii_host_op **op_out)
{
    trii_recorder *r = trii_recorder_of(step);
    void *memory = NULL;
    tri_status status = trii_block_take(r, bytes, kind->name, &memory);

    if (status != TRI_OK)
        return status;
    memset(memory, 0, bytes);
    *op_out = memory;
    (*op_out)->kind = kind;
    own(r, *op_out);
    return TRI_OK;
}

void trii_host_op_give(trii_step *step, trii_host_op *op)
{
    own(trii_recorder_of(step), op);
}

void trii_hosts_release(trii_recorder *r)
{
    while (r->owned_hosts != NULL) {
        trii_host_op *op = r->owned_hosts;

        r->owned_hosts = op->next_owned;
        if (op->kind->release != NULL)
            op->kind->release(op);
    }
}

static bool reads_elsewhere(const trii_node *reader, const trii_node *maker)
{
    return reader->host != NULL && reader->host->kind->stays == maker->host->kind->stays;
}

/* Marks the values that may stay where they are made. */
static void find_staying(trii_step *step, const trii_segment *segment)
{
    for (int32_t n = segment->first_node; n < segment->end_node; n++) {
        const trii_node *node = &step->nodes[n];
        bool may = node->host != NULL && node->host->kind->stays != NULL;

        for (int o = 0; o < node->n_out; o++)
            step->values[node->first_out + o].stays = may;
        for (int i = 0; i < node->n_in; i++) {
            trii_vid in = step->in_ids[node->first_in + i];

            if (in != TRII_NO_VALUE && step->values[in].node >= segment->first_node &&
                step->values[in].stays &&
                !reads_elsewhere(node, &step->nodes[step->values[in].node]))
                step->values[in].stays = false;
        }
    }
    for (int32_t o = 0; o < segment->n_outputs; o++)
        step->values[segment->outputs[o]].stays = false;
}

void trii_hosts_stay(trii_step *step, const trii_segment *segment)
{
    find_staying(step, segment);
    for (int32_t n = segment->first_node; n < segment->end_node; n++) {
        const trii_node *node = &step->nodes[n];
        uint64_t results = 0;

        if (node->host == NULL || node->host->kind->stays == NULL)
            continue;
        for (int o = 0; o < node->n_out; o++)
            results |= (uint64_t)step->values[node->first_out + o].stays << o;
        node->host->kind->stays(node->host, results);
    }
}

void trii_hosts_abort(const trii_step *step, const trii_segment *segment, const char *why)
{
    for (int32_t n = segment->first_node; n < segment->end_node; n++) {
        trii_host_op *op = step->nodes[n].host;

        if (op != NULL && op->kind->abort != NULL)
            op->kind->abort(op, why);
    }
}

/* "all_reduce(f32 [8, 16])" */
static void describe(const trii_step *step, const trii_node *node, char *text, size_t size)
{
    char name[TRII_OP_TEXT];
    size_t used = (size_t)snprintf(text, size, "%s(", trii_node_text(node, name));

    for (int i = 0; i < node->n_in && used < size; i++) {
        char type[TRII_TYPE_TEXT];

        used += (size_t)snprintf(
            text + used, size - used, "%s%s", i > 0 ? ", " : "",
            trii_type_text(&step->values[step->in_ids[node->first_in + i]].type, type));
    }
    if (used < size)
        (void)snprintf(text + used, size - used, ")");
}

tri_status trii_host_check(const trii_step *step, int32_t n)
{
    const trii_node *node = &step->nodes[n];
    char what[128], where[96] = "";

    if (!step->recorder->check_order || node->host->kind->compare == NULL)
        return TRI_OK;
    describe(step, node, what, sizeof(what));
    if (node->site.file != NULL)
        (void)snprintf(where, sizeof(where), "%s:%d", node->site.file, node->site.line);
    return node->host->kind->compare(node->host, what, where);
}
