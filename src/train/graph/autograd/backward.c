/*
 * backward.c - tri_backward: the gradients that the walk (backward_walk.c) records become the
 * gradients of tensors.
 *
 * To each sum it adds what the tensor's gradient held before; a parallel strategy may replace the
 * sums (trii_grad_hook); finally each is bound to its tensor's grad.
 */
#include "base/dtype.h"
#include "base/option.h"
#include "train/graph/autograd/backward.h"
#include "train/graph/ops/rules.h"

/* What tri_backward found: tensors of one hook (or of none) and their gradients. */
typedef struct found {
    tri_tensor **tensors;
    trii_vid *grads;
    int n;
} found;

static tri_status bind_grads(trii_backward *b, const found *f)
{
    for (int i = 0; i < f->n; i++) {
        tri_status status = trii_grad_bind(b->step, f->grads[i], f->tensors[i]);

        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

/* A loss may depend both on contents that the tensor had before it was written and on those after:
 * its gradient is the sum. The place of a tensor that was found already, or -1 (its mark may be
 * from another walk). */
static int place_of(const trii_step *s, const found *f, const tri_tensor *tensor)
{
    const trii_known *known = trii_known_find(s, tensor);
    int at = known != NULL ? known->found : -1;

    return at >= 0 && at < f->n && f->tensors[at] == tensor ? at : -1;
}

static tri_status add_found(trii_step *s, found *f, int at, trii_vid grad)
{
    trii_vid terms[2] = {f->grads[at], grad};

    return trii_record_values(s, &trii_op_add, terms, 2, NULL, &f->grads[at]);
}

/* Collects the tensors of this hook, first use first, and adds what their gradients held before.
 * Returns whether there are others, and the hook of the first of them. */
static tri_status collect(trii_backward *b, struct trii_grad_hook *hook, found *f)
{
    trii_step *s = b->step;

    f->n = 0;
    b->more = false;
    for (int32_t v = 0; v < b->n_values; v++) {
        tri_tensor *tensor = b->grads[v] >= 0 ? trii_backward_owner(&s->values[v]) : NULL;
        tri_status status;
        int at;

        if (tensor == NULL)
            continue;
        if (tensor->grad_hook != hook) {
            b->next = b->more ? b->next : tensor->grad_hook;
            b->more = true;
            continue;
        }
        at = place_of(s, f, tensor);
        status = at >= 0 ? add_found(s, f, at, b->grads[v]) : trii_grad_claim(s, tensor);
        if (at < 0 && status == TRI_OK)
            status = trii_grad_prepare(tensor);
        if (at < 0 && status == TRI_OK && trii_step_has_grad(s, tensor)) {
            trii_vid terms[2] = {TRII_NO_VALUE, b->grads[v]};

            status = trii_resolve(s, tensor->grad, &terms[0]);
            if (status == TRI_OK && hook != NULL && hook->held != NULL)
                status = hook->held(hook, s, tensor, &terms[0]);
            if (status == TRI_OK)
                status = trii_record_values(s, &trii_op_add, terms, 2, NULL, &b->grads[v]);
        }
        if (status != TRI_OK)
            return status;
        if (at < 0) {
            trii_known_find(s, tensor)->found = f->n;
            f->tensors[f->n] = tensor;
            f->grads[f->n++] = b->grads[v];
        }
        b->grads[v] = TRII_UNREACHED; /* done; the next hook starts with the rest */
    }
    return TRI_OK;
}

static tri_status attach_all(trii_backward *b)
{
    struct trii_grad_hook *hook = b->next;
    trii_autograd_state *own = b->state;
    void *array = own->found;
    found f;
    tri_status status =
        trii_grow(&array, &own->cap_found, b->n_values, sizeof(*own->found), "gradients");

    own->found = array;
    if (status != TRI_OK)
        return status;
    array = own->found_grads;
    status = trii_grow(&array, &own->cap_found_grads, b->n_values, sizeof(*own->found_grads),
                       "gradients");
    own->found_grads = array;
    f = (found){own->found, own->found_grads, 0};
    for (b->more = true; status == TRI_OK && b->more; hook = b->next) {
        status = collect(b, hook, &f);
        if (status == TRI_OK && hook != NULL && f.n > 0)
            status = hook->attach(hook, b->step, f.tensors, f.grads, f.n, &b->under);
        if (status == TRI_OK)
            status = bind_grads(b, &f);
    }
    return status;
}

/* Whether the gradients that will be recorded depend on those of other ranks. */
static bool crosses_ranks(const trii_backward *b)
{
    for (int32_t n = b->last_node; n >= 0; n--) {
        const trii_node *node = &b->step->nodes[n];
        trii_vid in = node->n_in > 0 ? b->step->in_ids[node->first_in] : TRII_NO_VALUE;

        if ((node->host != NULL ? node->host->kind->crosses_ranks : node->op->crosses_ranks) &&
            b->grads[node->first_out] == TRII_REACHED && in != TRII_NO_VALUE &&
            b->grads[in] == TRII_REACHED)
            return true;
    }
    return false;
}

/* Whether gradients of the outputs go on at other workers. */
static bool leads_elsewhere(const trii_backward *b)
{
    for (int32_t n = b->last_node; n >= 0; n--) {
        const trii_node *node = &b->step->nodes[n];

        if (node->host == NULL || !node->host->kind->grad_elsewhere)
            continue;
        for (int o = 0; o < node->n_out; o++) {
            if (b->grads[node->first_out + o] == TRII_REACHED)
                return true;
        }
    }
    return false;
}

/* The hooks of what the outputs depend on. Each may run the step before anything is recorded. */
static tri_status meet_hooks(trii_backward *b)
{
    struct trii_grad_hook *hook = NULL;
    tri_status status = TRI_OK;

    for (int32_t v = 0; v < b->n_values && status == TRI_OK; v++) {
        const tri_tensor *tensor =
            b->grads[v] == TRII_REACHED ? trii_backward_owner(&b->step->values[v]) : NULL;

        if (tensor == NULL)
            continue;
        b->one_hook = !b->more || (b->one_hook && tensor->grad_hook == hook);
        if (tensor->grad_hook != NULL && tensor->grad_hook != hook &&
            tensor->grad_hook->begin != NULL)
            status = tensor->grad_hook->begin(tensor->grad_hook, b->step);
        hook = tensor->grad_hook;
        b->next = b->more ? b->next : hook;
        b->more = true;
        b->counted = b->counted || hook != NULL;
    }
    return status;
}

/* The scalar by which the one hook of all parameters wants all gradients multiplied, or
 * NO_VALUE. */
static tri_status weight_of(trii_backward *b, trii_vid *weight)
{
    struct trii_grad_hook *hook = b->next;
    tri_dtype dtype = trii_backward_dtype(b);

    if (b->counted && b->under.count < 0) {
        tri_status status =
            trii_samples_under(b->step, b->last_node, b->grads, b->scratch, &b->under);

        if (status != TRI_OK)
            return status;
    }
    b->under.crosses_ranks = b->counted && crosses_ranks(b);
    if (leads_elsewhere(b)) { /* to parameters of others, which it is not for the hook to weight */
        trii_samples_go_elsewhere(b->step, b->last_node, b->grads, b->scratch, b->under.count);
        return TRI_OK;
    }
    if (!b->one_hook || hook == NULL || hook->seed == NULL || dtype == TRI_DTYPE_NONE)
        return TRI_OK;
    return hook->seed(hook, b->step, dtype, &b->under, weight);
}

static tri_status open_backward(trii_backward *b, trii_step *s, const trii_roots *roots,
                                const tri_backward_options *opt)
{
    tri_status status = trii_backward_open(b, s, roots);

    if (status == TRI_OK)
        status = trii_backward_room(b);
    if (status != TRI_OK)
        return status;
    b->under.count = opt->count != NULL ? *opt->count : -1;
    b->keep_graph = opt->keep_graph;
    trii_backward_mark(b, NULL);
    return meet_hooks(b);
}

static tri_status record_backward(trii_backward *b)
{
    trii_vid weight = TRII_NO_VALUE;
    tri_status status = weight_of(b, &weight);

    if (status == TRI_OK)
        status = trii_backward_seed(b, weight);
    if (status == TRI_OK)
        status = trii_backward_walk(b);
    return status == TRI_OK ? attach_all(b) : status;
}

/* The most samples whose sum over ranks and micro-batches does not overflow. */
#define MAX_COUNT (INT64_C(1) << 40)

static tri_status backward_in(trii_step *step, const trii_roots *roots,
                              const tri_backward_options *opt)
{
    trii_recorder *r = trii_recorder_of(step);
    trii_backward_mode mode;
    trii_backward b;
    tri_status status = TRII_CHECK_RESERVED(tri_backward_options, opt);

    if (status != TRI_OK)
        return status;
    if (opt->count != NULL && (*opt->count < 0 || *opt->count > MAX_COUNT))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "count %lld: 0 to 2^40 samples",
                         (long long)*opt->count);
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

void tri_requires_grad(tri_tensor *tensor, bool on)
{
    trii_recorder *r = trii_recorder_mine();
    trii_step *step;
    trii_vid id;

    if (tensor == NULL || (!trii_is_handle(tensor) && tensor->status != TRI_OK))
        return; /* the first use of the tensor gets its error */
    if (trii_is_handle(tensor) || !trii_dtype_is_float(tensor->dtype)) {
        step = on ? trii_step_current() : NULL;
        if (step != NULL)
            trii_step_fail(step, TRII_FAIL(TRI_ERR_INVALID_ARG,
                                           "tri_requires_grad: only persistent floating-point "
                                           "tensors can require a gradient"));
        return;
    }
    tensor->requires_grad = on;
    id = r != NULL && r->active ? trii_known_value(&r->step, tensor) : TRII_NO_VALUE;
    if (id != TRII_NO_VALUE)
        r->step.values[id].requires_grad = on;
}

void tri_no_grad_begin(void)
{
    trii_step *step = trii_step_current();

    if (step != NULL)
        trii_recorder_of(step)->scopes.no_grad++;
}

void tri_no_grad_end(void)
{
    trii_step *step = trii_step_current();

    if (step == NULL)
        return;
    if (trii_recorder_of(step)->scopes.no_grad == 0)
        trii_step_fail(step, TRII_FAIL(TRI_ERR_STATE, "tri_no_grad_end without tri_no_grad_begin"));
    else
        trii_recorder_of(step)->scopes.no_grad--;
}
