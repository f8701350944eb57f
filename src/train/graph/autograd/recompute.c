/*
 * recompute.c - parts of forward that are computed again for backward instead of being kept.
 *
 * A region is what is recorded between tri_recompute_begin and tri_recompute_end. When the walk
 * back reaches it, those of its nodes that gradients depend on are copied in front of the
 * gradients, which read the copies. So user code runs once, and the values of the region live only
 * from the copy to the last gradient of the region. Copies have the types, random numbers and
 * source lines of their originals, bind nothing, and are fused only with each other: fused with
 * others they would run where their originals are. Communication is not repeated: its results are
 * kept.
 */
#include "train/graph/autograd/backward.h"
#include "train/graph/step/retired.h"

/* Not copied; -1 = not decided yet. */
#define COPY_WANTED (-2)

void tri_recompute_begin(void)
{
    trii_step *step = trii_step_current();
    trii_recorder *r;
    tri_status status = TRI_OK;

    if (step == NULL)
        return;
    r = trii_recorder_of(step);
    /* where all values are kept, nothing would be saved */
    if (r->scopes.recompute == 0 && !r->eager)
        status = trii_region_open(r);
    r->scopes.recompute++;
    if (status != TRI_OK)
        trii_step_fail(step, status);
}

void tri_recompute_end(void)
{
    trii_step *step = trii_step_current();
    trii_recorder *r;

    if (step == NULL)
        return;
    r = trii_recorder_of(step);
    if (r->scopes.recompute == 0) {
        trii_step_fail(step,
                       TRII_FAIL(TRI_ERR_STATE, "tri_recompute_end without tri_recompute_begin"));
        return;
    }
    if (--r->scopes.recompute == 0)
        r->scopes.region = 0;
}

/* Which nodes of the region, up to `last`, gradients need: those that are differentiated, and what
 * they depend on. */
static void want(trii_backward *b, int32_t region, int32_t first, int32_t last)
{
    const trii_step *s = b->step;

    for (int32_t n = last; n >= first; n--) {
        const trii_node *node = &s->nodes[n];
        bool wanted = false;

        if (node->region != region || node->host != NULL)
            continue;
        for (int o = 0; o < node->n_out; o++)
            wanted = wanted || b->copies[node->first_out + o] == COPY_WANTED ||
                     (node->requires_grad && b->grads[node->first_out + o] != TRII_UNREACHED);
        if (!wanted)
            continue;
        b->copies[node->first_out] = COPY_WANTED;
        for (int i = 0; i < node->n_in; i++) {
            trii_vid in = s->in_ids[node->first_in + i];

            if (in != TRII_NO_VALUE && trii_region_of(s, in) == region)
                b->copies[in] = COPY_WANTED;
        }
    }
}

/* The operands of the copy, and how many results it has. */
static tri_status operands(const trii_backward *b, const trii_node *node, trii_vid *in, int *n_out)
{
    const trii_step *s = b->step;
    bool state = false;

    for (int i = 0; i < node->n_in; i++) {
        in[i] = s->in_ids[node->first_in + i];
        if (in[i] == TRII_NO_VALUE)
            continue;
        if (i < 8 && (node->op->state_in >> i & 1) != 0) {
            in[i] = TRII_NO_VALUE;
            state = true;
            continue;
        }
        if (in[i] < b->n_values && b->copies[in[i]] >= 0)
            in[i] = b->copies[in[i]];
        if (trii_value_is_renewable(&s->values[in[i]])) {
            tri_status status = trii_value_renew(b->step, &in[i]);

            if (status != TRI_OK)
                return status;
        }
        if (s->values[in[i]].state >= TRII_VALUE_DROPPED)
            return TRII_FAIL(TRI_ERR_STATE,
                             "argument %d of tri_%s at %s:%d, which is to be computed again, was "
                             "overwritten since, or not kept when the step ran",
                             i, node->op->name, node->site.file != NULL ? node->site.file : "?",
                             node->site.line);
    }
    *n_out = node->n_out - (state ? node->op->state_out : 0);
    return TRI_OK;
}

static tri_status copy_node(trii_backward *b, int32_t n)
{
    trii_step *s = b->step;
    trii_vid in[TRII_MAX_INPUTS];
    trii_type out[TRII_MAX_OUTPUTS];
    trii_node *node, *copy;
    int n_out = 0;
    tri_status status = trii_step_reserve(s, TRII_RESERVE_NODES);

    node = &s->nodes[n];
    if (status == TRI_OK)
        status = operands(b, node, in, &n_out);
    node = &s->nodes[n];
    for (int o = 0; o < n_out && status == TRI_OK; o++)
        trii_type_copy(&out[o], &s->values[node->first_out + o].type);
    if (status == TRI_OK)
        status = trii_node_append(s, node->op, in, node->n_in, &node->attrs, NULL, out, n_out);
    if (status != TRI_OK)
        return status;
    copy = &s->nodes[s->n_nodes - 1];
    copy->site = node->site;
    if (node->op->random) {
        copy->random_index = node->random_index;
        copy->random_seeded = node->random_seeded;
        s->random_count--;
    }
    copy->requires_grad = copy->requires_grad && node->requires_grad; /* with create_graph, too */
    for (int o = 0; o < node->n_out; o++) {
        b->copies[node->first_out + o] = o < n_out ? copy->first_out + o : TRII_NO_VALUE;
        if (o < n_out && !s->values[node->first_out + o].requires_grad)
            s->values[copy->first_out + o].requires_grad = false;
    }
    return TRI_OK;
}

tri_status trii_region_copy(trii_backward *b, int32_t last)
{
    trii_step *s = b->step;
    trii_recorder *r = trii_recorder_of(s);
    int32_t region = s->nodes[last].region, first = r->regions.first[region - 1];
    tri_status status = TRI_OK;

    if (b->region == 0) { /* the first region of this walk */
        for (int32_t v = 0; v < b->n_values; v++)
            b->copies[v] = TRII_NO_VALUE;
    }
    b->region = region;
    want(b, region, first, last);
    r->scopes.region = -++r->pending.n_copied;
    for (int32_t n = first; n <= last && status == TRI_OK; n++) {
        if (s->nodes[n].region == region && s->nodes[n].host == NULL &&
            b->copies[s->nodes[n].first_out] == COPY_WANTED)
            status = copy_node(b, n);
    }
    r->scopes.region = 0;
    return status;
}

const trii_node *trii_region_node(const trii_backward *b, int32_t n)
{
    const trii_step *s = b->step;
    const trii_node *node = &s->nodes[n];

    return node->region > 0 && b->copies[node->first_out] >= 0
               ? &s->nodes[s->values[b->copies[node->first_out]].node]
               : node;
}
