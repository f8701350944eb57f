/*
 * backward_walk.c - gradients: a walk back over the recorded nodes that records more nodes. Shared
 * by tri_backward (train/dist/backward.c) and tri_gradients (gradients.c); calls the gradient rule
 * (gradients/) of each operation.
 *
 * Nothing is computed here. Gradients of one value that come from several readers are added in the
 * order of the walk, last reader first. With create_graph the recorded nodes are themselves
 * differentiable; an operation that has no gradient then still counts as one that needs it, so that
 * a walk through it fails and names it.
 */
#include "base/alloc.h"
#include "base/dtype.h"
#include "train/graph/autograd/backward.h"
#include "train/graph/gradients/gradient_rules.h"
#include "train/graph/step/retired.h"

static void state_release(void *state)
{
    trii_autograd_state *own = state;

    trii_free(own->scratch);
    trii_free(own->roots);
}

trii_autograd_state *trii_autograd_state_of(trii_recorder *r)
{
    return trii_floor_state_of(r, TRII_FLOOR_AUTOGRAD, sizeof(trii_autograd_state), state_release);
}

tri_status trii_backward_check(const trii_recorder *r)
{
    return !r->scopes.walking
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_STATE, "gradients are being recorded already: a "
                                          "function's backward cannot ask for others");
}

tri_status trii_backward_enter(trii_recorder *r, bool create_graph, trii_backward_mode *mode)
{
    tri_status status = trii_backward_check(r);

    if (status != TRI_OK)
        return status;
    *mode = (trii_backward_mode){r->scopes.no_grad, r->scopes.autocast, r->scopes.region};
    r->scopes.region = 0;
    r->scopes.autocast.depth = 0; /* gradients have the types of their values */
    r->scopes.no_grad = create_graph ? 0 : r->scopes.no_grad + 1;
    r->scopes.create_graph = create_graph;
    r->scopes.walking = true;
    if (++r->scopes.walks == 0)
        r->scopes.walks = 1;
    r->scopes.deferred++;
    return TRI_OK;
}

void trii_backward_leave(trii_recorder *r, const trii_backward_mode *mode)
{
    r->scopes.no_grad = mode->no_grad;
    r->scopes.autocast = mode->autocast;
    r->scopes.region = mode->region;
    r->scopes.create_graph = false;
    r->scopes.for_inputs = false;
    r->scopes.walking = false;
    r->scopes.deferred--;
}

/* --- beginning ------------------------------------------------------------ */

/* "the loss" of a call that takes one, else its number. */
static const char *name_of(const trii_roots *roots, int k, char text[32])
{
    if (!roots->takes_seeds)
        return "the loss";
    snprintf(text, 32, "outputs[%d]", k);
    return text;
}

/* Stands for a gradient where a host operation has nothing to give, on any device: no elements. */
static bool is_token(const trii_step *s, const trii_value *value)
{
    while (value->node >= 0 && s->nodes[value->node].op == &trii_op_to)
        value = &s->values[s->in_ids[s->nodes[value->node].first_in]];
    return value->node >= 0 && s->nodes[value->node].host != NULL &&
           trii_type_numel(&value->type) == 0;
}

static tri_status check_output(const trii_backward *b, int k)
{
    const trii_value *value = &b->step->values[b->outputs[k]];
    char name[32], text[TRII_TYPE_TEXT];
    const char *what = name_of(b->roots, k, name);

    if (!trii_dtype_is_float(value->type.dtype) ||
        (b->seeds[k] == TRII_NO_VALUE && trii_type_numel(&value->type) != 1 &&
         !is_token(b->step, value)))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s must be one floating-point number, not %s%s",
                         what, trii_type_text(&value->type, text),
                         b->roots->takes_seeds ? " (others need a seed)" : "");
    if (!value->requires_grad)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s depends on no tensor that requires a gradient (or was recorded under "
                         "tri_no_grad_begin, or is of tri_pipeline_step, which has done the "
                         "backward itself)",
                         what);
    return TRI_OK;
}

static tri_status check_seed(const trii_backward *b, int k)
{
    const trii_type *output = &b->step->values[b->outputs[k]].type;
    const trii_type *seed = &b->step->values[b->seeds[k]].type;
    char have[TRII_TYPE_TEXT], want[TRII_TYPE_TEXT];

    if (seed->dtype == output->dtype && trii_type_same_shape(seed, output))
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "seeds[%d] must be %s as outputs[%d], not %s", k,
                     trii_type_text(output, want), k, trii_type_text(seed, have));
}

static tri_status resolve_roots(trii_backward *b)
{
    const trii_roots *roots = b->roots;
    char text[32];

    for (int k = 0; k < roots->n; k++) {
        tri_status status;

        b->seeds[k] = TRII_NO_VALUE;
        if (roots->outputs[k] == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is NULL", name_of(roots, k, text));
        status = trii_resolve(b->step, roots->outputs[k], &b->outputs[k]);
        if (status == TRI_OK && roots->seeds != NULL && roots->seeds[k] != NULL) {
            status = trii_resolve(b->step, roots->seeds[k], &b->seeds[k]);
            if (status == TRI_OK)
                status = check_seed(b, k);
        }
        if (status == TRI_OK)
            status = check_output(b, k);
        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

static tri_status take_room(void **array, int32_t *cap, int64_t n, size_t size)
{
    if (n > INT32_MAX)
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "gradients of %lld values", (long long)n);
    return trii_grow(array, cap, (int32_t)n, size, "gradients");
}

tri_status trii_backward_open(trii_backward *b, trii_step *s, const trii_roots *roots)
{
    trii_autograd_state *own = trii_autograd_state_of(trii_recorder_of(s));
    void *array;
    tri_status status;

    if (own == NULL)
        return TRI_ERR_NO_MEMORY;
    *b = (trii_backward){.step = s, .state = own, .roots = roots, .last_node = -1};
    if (roots->n < 1 || roots->outputs == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d outputs%s: at least one is needed", roots->n,
                         roots->outputs == NULL ? " at NULL" : "");
    array = own->roots;
    status = take_room(&array, &own->cap_roots, 2 * (int64_t)roots->n + roots->n_inputs,
                       sizeof(*own->roots));
    own->roots = array;
    if (status != TRI_OK)
        return status;
    b->outputs = own->roots;
    b->seeds = b->outputs + roots->n;
    b->inputs = b->seeds + roots->n;
    status = resolve_roots(b);
    for (int k = 0; k < roots->n && status == TRI_OK; k++) {
        trii_value *output = &s->values[b->outputs[k]];

        b->last_node = output->node > b->last_node ? output->node : b->last_node;
        if (output->state == TRII_VALUE_PENDING)
            output->keep = true;
    }
    return status;
}

tri_status trii_backward_room(trii_backward *b)
{
    trii_autograd_state *own = b->state;
    void *array = own->scratch;
    tri_status status;

    b->n_values = b->step->n_values;
    b->owns = trii_recorder_of(b->step)->retiring.owned_in == b->step->generation;
    status = take_room(&array, &own->cap_scratch, 4 * (int64_t)b->n_values, sizeof(*own->scratch));
    own->scratch = array;
    b->grads = own->scratch;
    b->scratch = b->grads + b->n_values;
    b->copies = b->scratch + b->n_values;
    b->ways = b->copies + b->n_values;
    return status;
}

/* --- the walk ------------------------------------------------------------- */

static inline bool stops_at(const trii_backward *b, trii_vid value)
{
    for (int k = 0; k < b->n_stops; k++)
        if (b->stops[k] == value)
            return true;
    return false;
}

static inline void reach(trii_backward *b, trii_vid value, const int32_t *leads)
{
    if (b->step->values[value].requires_grad && (leads == NULL || leads[value] != 0))
        b->grads[value] = TRII_REACHED;
}

void trii_backward_mark(trii_backward *b, const int32_t *leads)
{
    const trii_step *s = b->step;
    int32_t *grads = b->grads, n_values = b->n_values;

    for (int32_t v = 0; v < n_values; v++)
        grads[v] = TRII_UNREACHED;
    for (int k = 0; k < b->roots->n; k++)
        reach(b, b->outputs[k], leads);
    for (int32_t n = b->last_node; n >= 0; n--) {
        const trii_node *node = &s->nodes[n];
        bool reached = false;

        if (!node->requires_grad)
            continue;
        for (int o = 0; o < node->n_out; o++)
            reached |=
                grads[node->first_out + o] == TRII_REACHED && !stops_at(b, node->first_out + o);
        for (int i = 0; i < node->n_in && reached; i++) {
            trii_vid in = trii_backward_operand(b, node, i);

            if (in != TRII_NO_VALUE)
                reach(b, in, leads);
        }
    }
}

/* A gradient has the dtype of its value: sums of what was expanded in bf16 come in f32. */
static tri_status add_grad(trii_backward *b, trii_vid value, trii_vid grad)
{
    tri_status status = trii_rec_cast(b->step, grad, b->step->values[value].type.dtype, &grad);

    if (status != TRI_OK)
        return status;
    if (b->grads[value] < 0) {
        b->grads[value] = grad;
        return TRI_OK;
    }
    return trii_rec_accumulated(b->step, b->grads[value], grad, &b->grads[value]);
}

tri_dtype trii_backward_dtype(const trii_backward *b)
{
    tri_dtype dtype = TRI_DTYPE_NONE;

    for (int k = 0; k < b->roots->n; k++) {
        tri_dtype of = b->step->values[b->outputs[k]].type.dtype;

        of = trii_dtype_is_half(of) ? TRI_DTYPE_F32 : of; /* and is rounded at last */
        if (k > 0 && of != dtype)
            return TRI_DTYPE_NONE;
        dtype = of;
    }
    return dtype;
}

static tri_status seed_output(trii_backward *b, int k, trii_vid weight)
{
    trii_type type = b->step->values[b->outputs[k]].type;
    tri_dtype dtype = type.dtype;
    trii_vid seed = b->seeds[k];
    trii_attrs attrs;
    tri_status status = TRI_OK;

    if (trii_dtype_is_half(dtype))
        type.dtype = TRI_DTYPE_F32;
    if (weight != TRII_NO_VALUE)
        status = trii_record_to(b->step, weight, type.device, &weight);
    if (status != TRI_OK)
        return status;
    if (seed == TRII_NO_VALUE && weight == TRII_NO_VALUE) {
        trii_fill_attrs(&type, 1, &attrs);
        status = trii_record_values(b->step, &trii_op_fill, NULL, 0, &attrs, &seed);
    } else if (seed == TRII_NO_VALUE) {
        seed = weight;
        if (!trii_type_same_shape(trii_type_of(b->step, seed), &type))
            status = trii_rec_expand(b->step, seed, type.shape, type.ndim, &seed);
    } else if (weight != TRII_NO_VALUE) {
        status = trii_rec_cast(b->step, seed, type.dtype, &seed);
        if (status == TRI_OK)
            status = trii_rec2(b->step, &trii_op_mul, seed, weight, &seed);
    }
    if (status == TRI_OK)
        status = trii_rec_cast(b->step, seed, dtype, &seed);
    return status == TRI_OK ? add_grad(b, b->outputs[k], seed) : status;
}

tri_status trii_backward_seed(trii_backward *b, trii_vid weight)
{
    tri_status status = TRI_OK;

    for (int k = 0; k < b->roots->n && status == TRI_OK; k++) {
        if (b->grads[b->outputs[k]] != TRII_UNREACHED)
            status = seed_output(b, k, weight);
    }
    return status;
}

static tri_status name_gradient(const trii_step *s, const trii_node *node, tri_status status)
{
    char name[TRII_OP_TEXT];
    bool dropped = false;

    for (int i = 0; i < node->n_in; i++) {
        trii_vid in = s->in_ids[node->first_in + i];

        dropped = dropped || (in != TRII_NO_VALUE && s->values[in].state == TRII_VALUE_DROPPED);
    }
    for (int o = 0; o < node->n_out; o++)
        dropped = dropped || s->values[node->first_out + o].state == TRII_VALUE_DROPPED;
    if (node->differentiated && dropped)
        status =
            TRII_FAIL(TRI_ERR_STATE,
                      "a second tri_backward through what has run since the first: call both "
                      "before anything runs the step (tri_item, tri_optimizer_step), let the first "
                      "keep_graph (tri_backward_of), or record forward again");
    (void)trii_node_text(node, name);
    if (node->site.file != NULL)
        return TRII_FAIL_CTX(status, "gradient of %s at %s:%d", name, node->site.file,
                             node->site.line);
    return TRII_FAIL_CTX(status, "gradient of %s", name);
}

static tri_status call_rule(trii_backward *b, const trii_node *node, const trii_vid *grad_out,
                            const bool *needs, trii_vid *grad_in)
{
    if (!trii_node_has_gradient(node))
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "it has none: what tri_gradients recorded with create_graph cannot be "
                         "differentiated through it again");
    return node->host != NULL
               ? node->host->kind->grad(b->step, node, grad_out, needs, grad_in)
               : trii_gradient_rules[node->op->gradient](b->step, node, grad_out, needs, grad_in);
}

/* The region of the node is copied. A node of the second half has its copy from the first one. */
static tri_status copy_region(trii_backward *b, int32_t n)
{
    const trii_node *node = &b->step->nodes[n];

    if (node->region <= 0 || node->region == b->region)
        return TRI_OK;
    if (b->half == TRII_BACKWARD_SECOND && (node->host != NULL || b->copies[node->first_out] >= 0))
        return TRI_OK;
    return trii_region_copy(b, n);
}

/* Records gradients of the operands that are needed. */
static tri_status apply_rule(trii_backward *b, int32_t n, const bool *needs)
{
    trii_step *s = b->step;
    trii_vid grad_out[TRII_MAX_OUTPUTS], grad_in[TRII_MAX_INPUTS];
    int n_in = s->nodes[n].n_in;
    tri_status status = copy_region(b, n);

    if (status == TRI_OK)
        status = trii_step_reserve(s, TRII_RESERVE_NODES); /* nodes may move */
    if (status != TRI_OK)
        return status;
    for (int o = 0; o < s->nodes[n].n_out; o++) {
        trii_vid out = s->nodes[n].first_out + o;

        grad_out[o] = b->grads[out] < 0 || stops_at(b, out) ? TRII_NO_VALUE : b->grads[out];
    }
    for (int i = 0; i < n_in; i++)
        grad_in[i] = TRII_NO_VALUE;
    status = call_rule(b, trii_region_node(b, n), grad_out, needs, grad_in);
    if (status != TRI_OK)
        return name_gradient(s, &s->nodes[n], status);
    for (int i = 0; i < n_in && status == TRI_OK; i++) {
        if (needs[i] && grad_in[i] != TRII_NO_VALUE)
            status = add_grad(b, trii_backward_operand(b, &s->nodes[n], i), grad_in[i]);
    }
    if (!b->keep_graph && s->nodes[n].differentiated == 0)
        s->nodes[n].differentiated = trii_recorder_of(s)->scopes.walks;
    return status;
}

/* Whether the half that is recorded comes to this node at all. */
static bool is_passed(const trii_backward *b, const trii_node *node)
{
    bool on = b->half != TRII_BACKWARD_WHOLE && node->n_out > 0 &&
              b->ways[node->first_out] == TRII_WAY_ON;

    return (b->half == TRII_BACKWARD_FIRST && !on) || (b->half == TRII_BACKWARD_SECOND && on);
}

static tri_status node_backward(trii_backward *b, int32_t n)
{
    const trii_node *node = &b->step->nodes[n];
    bool needs[TRII_MAX_INPUTS], any_out = false, any_in = false;
    uint64_t left = 0;
    tri_status status = TRI_OK;

    if (!node->requires_grad || is_passed(b, node))
        return TRI_OK;
    for (int o = 0; o < node->n_out; o++)
        any_out =
            any_out || (b->grads[node->first_out + o] >= 0 && !stops_at(b, node->first_out + o));
    for (int i = 0; i < node->n_in && any_out; i++) {
        trii_vid in = trii_backward_operand(b, node, i);

        needs[i] = in != TRII_NO_VALUE && b->grads[in] != TRII_UNREACHED;
        any_in = any_in || needs[i];
    }
    if (!any_in && !(any_out && trii_node_leads_elsewhere(node)))
        return TRI_OK;
    if (b->half == TRII_BACKWARD_FIRST)
        left = trii_backward_put_off(b, node, needs);
    if (left != 0)
        status = trii_backward_leave_node(b->rest, n, left);
    return status == TRI_OK ? apply_rule(b, n, needs) : status;
}

/* Operands that the first half has left. */
static tri_status rest_of_node(trii_backward *b, const trii_rest_node *left)
{
    bool needs[TRII_MAX_INPUTS];

    for (int i = 0; i < b->step->nodes[left->node].n_in; i++)
        needs[i] = (left->operands >> i & 1) != 0;
    return apply_rule(b, left->node, needs);
}

tri_status trii_backward_walk(trii_backward *b)
{
    tri_status status = TRI_OK;
    int32_t k = 0;

    trii_recorder_of(b->step)->scopes.keep_graph = b->keep_graph;
    for (int32_t n = b->last_node; n >= 0 && status == TRI_OK; n--) {
        if (b->half == TRII_BACKWARD_SECOND && k < b->rest->n_nodes && b->rest->nodes[k].node == n)
            status = rest_of_node(b, &b->rest->nodes[k++]);
        else
            status = node_backward(b, n);
    }
    return status;
}

void trii_backward_forget(trii_step *s)
{
    uint32_t walk = trii_recorder_of(s)->scopes.walks;

    for (int32_t n = s->n_nodes - 1; n >= 0; n--) {
        if (s->nodes[n].differentiated == walk)
            s->nodes[n].differentiated = 0;
    }
}
