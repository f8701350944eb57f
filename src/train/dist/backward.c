/*
 * backward.c - tri_backward: the gradients that the walk (train/graph/autograd/backward_walk.c)
 * records become the gradients of tensors.
 *
 * To each sum it adds what the tensor's gradient held before; where a gradient is partial its unit
 * makes it whole (unit.h); finally each is bound to its tensor's grad.
 */
#include "base/dtype.h"
#include "base/option.h"
#include "train/dist/dist_state.h"
#include "train/dist/halves.h"
#include "train/dist/unit.h"
#include "train/graph/autograd/backward.h"
#include "train/graph/ops/table.h"
#include "train/graph/record/record.h"
#include "train/graph/step/part.h"

typedef struct backward {
    trii_backward walk;
    trii_samples under; /* count -1 = not known yet */
    trii_unit *next;    /* of the tensors that are collected next; NULL: they have none */
    bool more;          /* there are such */
    bool one_unit;      /* all tensors that the outputs reach are of this unit, or none is */
    bool counted;       /* some of them have a unit */
    trii_vid *owned;    /* the values that the outputs reach and tensors own */
    int32_t n_owned;
    /* Tensors of one unit (or of none), and their gradients. All arrays: [n_values], of the
     * context. */
    tri_tensor **tensors;
    trii_vid *grads;
    int n;
} backward;

/* A loss may depend both on contents that the tensor had before it was written and on those after:
 * its gradient is the sum. The place of a tensor that was found already, or -1 (its mark may be
 * from another walk). */
static int place_of(const backward *b, const tri_tensor *tensor)
{
    const trii_known *known = trii_known_find(b->walk.step, tensor);
    int at = known != NULL ? known->found : -1;

    return at >= 0 && at < b->n && b->tensors[at] == tensor ? at : -1;
}

static tri_status add_found(backward *b, int at, trii_vid grad)
{
    trii_vid terms[2] = {b->grads[at], grad};

    return trii_record_values(b->walk.step, &trii_op_add, terms, 2, NULL, &b->grads[at]);
}

/* A tensor that is found for the first time: its gradient, and what that held before. */
static tri_status find(backward *b, tri_tensor *tensor, trii_unit *unit, trii_vid grad)
{
    trii_step *s = b->walk.step;
    tri_status status = trii_grad_claim(s, tensor);
    trii_known *known;

    if (status == TRI_OK && (unit == NULL || !trii_unit_leaves_pieces(unit)))
        status = trii_grad_prepare(tensor);
    if (status != TRI_OK)
        return status;
    known = trii_known_find(s, tensor);
    known->found = b->n;
    if (trii_known_has_grad(known, tensor)) {
        trii_vid terms[2] = {TRII_NO_VALUE, grad};

        status = trii_resolve(s, tensor->grad, &terms[0]);
        if (status == TRI_OK && unit != NULL)
            status = trii_unit_held(unit, s, tensor, &terms[0]);
        if (status == TRI_OK)
            status = trii_record_values(s, &trii_op_add, terms, 2, NULL, &grad);
    }
    if (status != TRI_OK)
        return status;
    b->tensors[b->n] = tensor;
    b->grads[b->n++] = grad;
    return TRI_OK;
}

/* Whichever unit is first met on this rank, its collectives come in an order on which all ranks
 * agree: that in which the units were made, or last listed. Tensors without one have none. */
static void choose_next(backward *b, trii_unit *unit)
{
    if (!b->more || unit == NULL || (b->next != NULL && unit->id < b->next->id))
        b->next = unit;
    b->more = true;
}

/* Collects the tensors of this unit, first use first, and chooses that of the others. */
static tri_status collect(backward *b, trii_unit *unit)
{
    const trii_step *s = b->walk.step;
    int32_t *grads = b->walk.grads;
    tri_status status = TRI_OK;

    b->n = 0;
    b->more = false;
    for (int32_t i = 0; i < b->n_owned && status == TRI_OK; i++) {
        trii_vid v = b->owned[i];
        tri_tensor *tensor = grads[v] >= 0 ? trii_backward_owner(&s->values[v]) : NULL;
        int at;

        if (tensor == NULL)
            continue;
        if (trii_unit_of(tensor) != unit) {
            choose_next(b, trii_unit_of(tensor));
            continue;
        }
        at = place_of(b, tensor);
        status = at >= 0 ? add_found(b, at, grads[v]) : find(b, tensor, unit, grads[v]);
        grads[v] = TRII_UNREACHED; /* done; the next unit starts with the rest */
    }
    return status;
}

static tri_status bind_grads(const backward *b)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < b->n && status == TRI_OK; i++)
        if (b->grads[i] != TRII_NO_VALUE)
            status = trii_grad_bind(b->walk.step, b->grads[i], b->tensors[i]);
    return status;
}

static tri_status finish_all(backward *b)
{
    trii_unit *unit = b->next;
    tri_status status = TRI_OK;

    for (b->more = true; status == TRI_OK && b->more; unit = b->next) {
        status = collect(b, unit);
        if (status == TRI_OK && unit != NULL && b->n > 0)
            status = trii_unit_finish(unit, b->walk.step, b->tensors, b->grads, b->n, &b->under);
        if (status == TRI_OK)
            status = bind_grads(b);
    }
    return status;
}

/* Whether gradients of the outputs go on at other workers. */
static bool leads_elsewhere(const trii_backward *walk)
{
    for (int32_t n = walk->last_node; n >= 0; n--) {
        const trii_node *node = &walk->step->nodes[n];

        if (node->host == NULL || !node->host->kind->grad_elsewhere)
            continue;
        for (int o = 0; o < node->n_out; o++) {
            if (walk->grads[node->first_out + o] == TRII_REACHED)
                return true;
        }
    }
    return false;
}

/* The tensors on which the outputs depend, and their units. Each unit may run the step before
 * anything is recorded. */
static tri_status meet_units(backward *b)
{
    const trii_backward *walk = &b->walk;
    const trii_under part = {walk->last_node, walk->grads, walk->scratch};
    trii_unit *unit = NULL;
    tri_status status = TRI_OK;

    for (int32_t v = 0; v < walk->n_values && status == TRI_OK; v++) {
        const tri_tensor *tensor =
            walk->grads[v] == TRII_REACHED ? trii_backward_owner(&walk->step->values[v]) : NULL;
        trii_unit *its;

        if (tensor == NULL)
            continue;
        b->owned[b->n_owned++] = v;
        its = trii_unit_of(tensor);
        b->one_unit = !b->more || (b->one_unit && its == unit);
        if (its != NULL && its != unit) {
            status = trii_unit_begin(its, walk->step);
            its->crossed =
                its->group != NULL && trii_samples_cross_ranks(walk->step, &part, its->group);
        }
        unit = its;
        choose_next(b, its);
        b->counted = b->counted || its != NULL;
    }
    return status;
}

/* The scalar by which the one unit of all parameters wants all gradients multiplied, or
 * NO_VALUE. */
static tri_status weight_of(backward *b, trii_vid *weight)
{
    const trii_backward *walk = &b->walk;
    const trii_under part = {walk->last_node, walk->grads, walk->scratch};
    tri_dtype dtype = trii_backward_dtype(walk);

    if (b->counted && b->under.count < 0) {
        tri_status status = trii_samples_find(walk->step, &part, &b->under);

        if (status != TRI_OK)
            return status;
        if (b->under.count == 0 && b->under.divisor == TRII_NO_VALUE)
            trii_nan_check_without_rows();
    }
    if (leads_elsewhere(walk)) /* to parameters of others, which are not for the unit to weight */
        return trii_samples_go_elsewhere(walk->step, &part, b->under.count);
    if (!b->one_unit || b->next == NULL || dtype == TRI_DTYPE_NONE)
        return TRI_OK;
    return trii_unit_weigh(b->next, walk->step, dtype, &b->under, weight);
}

static tri_status take_room(backward *b)
{
    trii_dist_state *own = trii_dist_state_of(trii_recorder_of(b->walk.step));
    void *array;
    tri_status status;

    if (own == NULL)
        return TRI_ERR_NO_MEMORY;
    array = own->tensors;
    status =
        trii_grow(&array, &own->cap_tensors, b->walk.n_values, sizeof(*own->tensors), "gradients");
    b->tensors = own->tensors = array;
    if (status != TRI_OK)
        return status;
    array = own->grads;
    status =
        trii_grow(&array, &own->cap_grads, 2 * b->walk.n_values, sizeof(*own->grads), "gradients");
    b->grads = own->grads = array;
    b->owned = b->grads + b->walk.n_values;
    return status;
}

static tri_status open_backward(backward *b, trii_step *s, const trii_roots *roots,
                                const tri_backward_options *opt)
{
    tri_status status = trii_backward_open(&b->walk, s, roots);

    if (status == TRI_OK)
        status = trii_backward_room(&b->walk);
    if (status == TRI_OK)
        status = take_room(b);
    if (status != TRI_OK)
        return status;
    b->under.count = opt->count != NULL ? *opt->count : -1;
    b->walk.keep_graph = opt->keep_graph;
    trii_backward_mark(&b->walk, NULL);
    return meet_units(b);
}

static tri_status record_backward(backward *b)
{
    trii_vid weight = TRII_NO_VALUE;
    tri_status status = weight_of(b, &weight);

    if (status == TRI_OK)
        status = trii_backward_seed(&b->walk, weight);
    if (status == TRI_OK)
        status = trii_backward_walk(&b->walk);
    return status == TRI_OK ? finish_all(b) : status;
}

/* The most samples whose sum over ranks and micro-batches does not overflow. */
#define MAX_COUNT (INT64_C(1) << 40)

static tri_status backward_in(trii_step *step, const trii_roots *roots,
                              const tri_backward_options *opt)
{
    trii_recorder *r = trii_recorder_of(step);
    trii_backward_mode mode;
    backward b = {.under = {.count = -1, .divisor = TRII_NO_VALUE}};
    tri_status status = TRII_CHECK_RESERVED(tri_backward_options, opt);

    if (status != TRI_OK)
        return status;
    if (opt->count != NULL && (*opt->count < 0 || *opt->count > MAX_COUNT))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "count %lld: 0 to 2^40 samples",
                         (long long)*opt->count);
    if (TRII_UNLIKELY(step->failed != TRI_OK)) /* this would not run, and must not be counted */
        return TRII_FAIL(step->failed, "%s",
                         r->failures.line != NULL ? r->failures.line : "out of memory");
    if (r->scopes.part != 0 && trii_part_is_forward(r->scopes.part))
        return TRII_FAIL(TRI_ERR_STATE,
                         "tri_pipeline_step does the backward of its stages and of the loss: call "
                         "no tri_backward in them (tri_gradients is allowed)");
    status = trii_backward_check(r);
    if (status == TRI_OK)
        status = open_backward(&b, step, roots, opt);
    if (status == TRI_OK)
        status = trii_backward_enter(r, false, &mode);
    if (status != TRI_OK)
        return status;
    status = record_backward(&b);
    trii_backward_leave(r, &mode);
    return status;
}

/* --- in two halves -------------------------------------------------------- */

static tri_status record_first(trii_backward *walk, trii_vid *stop_grads)
{
    tri_status status = trii_backward_seed(walk, TRII_NO_VALUE);

    if (status == TRI_OK)
        status = trii_backward_walk(walk);
    if (status == TRI_OK)
        status = trii_backward_leave_values(walk, walk->rest);
    for (int k = 0; k < walk->n_stops && status == TRI_OK; k++)
        stop_grads[k] = walk->grads[walk->stops[k]] >= 0 ? walk->grads[walk->stops[k]] : -1;
    return status;
}

tri_status trii_backward_first(trii_step *step, const trii_roots *roots, const trii_vid *stops,
                               int n_stops, trii_vid *stop_grads_out, trii_backward_rest *rest_out)
{
    trii_recorder *r = trii_recorder_of(step);
    trii_backward_mode mode;
    trii_backward walk;
    tri_status status = trii_backward_check(r);

    *rest_out = (trii_backward_rest){.last_node = -1};
    for (int k = 0; k < n_stops; k++)
        stop_grads_out[k] = TRII_NO_VALUE;
    if (status == TRI_OK)
        status = trii_backward_open(&walk, step, roots);
    if (status == TRI_OK)
        status = trii_backward_room(&walk);
    if (status != TRI_OK)
        return status;
    walk.stops = stops;
    walk.n_stops = n_stops;
    walk.half = TRII_BACKWARD_FIRST;
    walk.rest = rest_out;
    trii_backward_mark(&walk, NULL);
    trii_backward_find_ways(&walk);
    if (!trii_backward_is_on_the_way(&walk))
        return TRI_OK;
    status = trii_backward_enter(r, false, &mode);
    if (status != TRI_OK)
        return status;
    status = record_first(&walk, stop_grads_out);
    trii_backward_leave(r, &mode);
    return status;
}

static tri_status open_second(backward *b, trii_step *step, trii_backward_rest *rest)
{
    tri_status status;

    b->walk = (trii_backward){.step = step,
                              .state = trii_autograd_state_of(trii_recorder_of(step)),
                              .half = TRII_BACKWARD_SECOND,
                              .rest = rest};
    if (b->walk.state == NULL)
        return TRI_ERR_NO_MEMORY;
    status = trii_backward_room(&b->walk);
    if (status == TRI_OK)
        status = take_room(b);
    if (status != TRI_OK)
        return status;
    trii_backward_take_reached(&b->walk, rest);
    return meet_units(b);
}

static tri_status record_second(backward *b, const trii_backward_rest *rest)
{
    tri_status status;

    trii_backward_take_grads(&b->walk, rest);
    status = trii_backward_walk(&b->walk);
    return status == TRI_OK ? finish_all(b) : status;
}

tri_status trii_backward_second(trii_step *step, const trii_roots *roots, trii_backward_rest *rest)
{
    trii_recorder *r = trii_recorder_of(step);
    trii_backward_mode mode;
    backward b = {.under = {.count = -1, .divisor = TRII_NO_VALUE}};
    tri_status status;

    if (rest->last_node < 0)
        return backward_in(step, roots, &(tri_backward_options){0});
    status = open_second(&b, step, rest);
    if (status == TRI_OK)
        status = trii_backward_enter(r, false, &mode);
    if (status == TRI_OK) {
        status = record_second(&b, rest);
        trii_backward_leave(r, &mode);
    }
    trii_backward_rest_free(rest);
    return status;
}

/* --- the calls ------------------------------------------------------------ */

static void backward_run(const trii_roots *roots, const tri_backward_options *opt)
{
    static const tri_backward_options defaults;
    trii_step *step = trii_step_current();
    trii_recorder *r;
    trii_site site = trii_site_last();
    tri_status status;
    bool failed;

    if (step == NULL)
        return; /* the next run has no memory either */
    r = trii_recorder_of(step);
    failed = step->failed != TRI_OK;
    status = backward_in(step, roots, opt != NULL ? opt : &defaults);
    if (status == TRI_OK)
        status = trii_step_eager(step);
    else if (site.file != NULL)
        status = TRII_FAIL_CTX(status, "%s at %s:%d", roots->call, site.file, site.line);
    else
        status = TRII_FAIL_CTX(status, "%s", roots->call);
    if (status != TRI_OK) {
        trii_step_fail(step, status);
        r->failures.returned =
            r->failures.returned && failed; /* there is no status here to say so */
    }
}

void tri_backward(tri_tensor *loss)
{
    backward_run(&(trii_roots){.call = "tri_backward", .outputs = &loss, .n = 1}, NULL);
}

void tri_backward_of(tri_tensor *const *outputs, int n, const tri_backward_options *opt)
{
    backward_run(&(trii_roots){.call = "tri_backward_of",
                               .takes_seeds = true,
                               .outputs = outputs,
                               .seeds = opt != NULL ? opt->seeds : NULL,
                               .n = n},
                 opt);
}
