/*
 * regions.c - parts of forward that are computed again for backward (autograd/recompute.c): where
 * they begin, and which of their values a run must keep.
 */
#include "train/graph/step/recorder.h"

tri_status trii_region_open(trii_recorder *r)
{
    void *array = r->regions.first;
    tri_status status =
        trii_grow(&array, &r->regions.cap, r->regions.n + 1, sizeof(*r->regions.first), "regions");

    r->regions.first = array;
    if (status != TRI_OK)
        return status;
    r->regions.first[r->regions.n++] = r->step.n_nodes;
    r->scopes.region = r->regions.n;
    return TRI_OK;
}

void trii_regions_end_step(trii_recorder *r)
{
    r->regions.n = r->scopes.region = 0;
    if (r->scopes.recompute > 0 && !r->eager)
        (void)trii_region_open(r); /* otherwise this step keeps its values: slower, not wrong */
}

bool trii_step_computes_again(const trii_step *step)
{
    return step->recorder->pending.n_copied > 0;
}

int32_t trii_region_of(const trii_step *s, trii_vid v)
{
    int32_t n = s->values[v].node;

    return n >= 0 && s->nodes[n].region > 0 && s->nodes[n].host == NULL ? s->nodes[n].region : 0;
}

static void keep(trii_step *s, trii_vid v)
{
    if (s->values[v].state == TRII_VALUE_PENDING)
        s->values[v].keep = true;
}

static bool waits_for_gradient(const trii_node *node)
{
    return node->requires_grad && !node->differentiated;
}

/* Whether the region of a node will be copied: something in it will be differentiated later. */
static bool is_open(const trii_recorder *r, int32_t region)
{
    const trii_step *s = &r->step;

    if (region == r->scopes.region && r->scopes.no_grad == 0)
        return true;
    for (int32_t n = r->regions.first[region - 1]; n < s->n_nodes; n++) {
        if (s->nodes[n].region > region)
            break;
        if (s->nodes[n].region == region && waits_for_gradient(&s->nodes[n]))
            return true;
    }
    return false;
}

void trii_regions_keep(trii_recorder *r)
{
    trii_step *s = &r->step;
    int32_t last = 0;
    bool open = false;

    for (int32_t n = s->first_pending; n < s->n_nodes; n++) {
        const trii_node *node = &s->nodes[n];

        if (node->region > 0 && node->region != last) {
            last = node->region;
            open = is_open(r, last);
        }
        for (int i = 0; i < node->n_in; i++) {
            trii_vid in = s->in_ids[node->first_in + i];
            int32_t from = in != TRII_NO_VALUE ? trii_region_of(s, in) : 0;

            if (in == TRII_NO_VALUE || (from == node->region && from != r->scopes.region))
                continue;
            /* operands of copies, and values that others may still read, in a region that has not
             * ended */
            if ((node->region > 0 && open) ||
                (from > 0 && waits_for_gradient(&s->nodes[s->values[in].node])))
                keep(s, in);
        }
        for (int o = 0; o < node->n_out && node->region > 0; o++) {
            if (waits_for_gradient(node) &&
                (node->host != NULL || node->region == r->scopes.region ||
                 !s->values[node->first_out + o].used))
                keep(s, node->first_out + o);
        }
    }
}
