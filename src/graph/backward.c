/*
 * backward.c - gradients: a walk back over the recorded nodes that records more nodes.
 *
 * Nothing is computed here. Gradients of one value that come from several readers are added in
 * the order of the walk (last reader first), then what the tensor's gradient held before; a
 * parallel strategy may replace the sums (trii_grad_hook); at last each is bound to its tensor's
 * grad.
 */
#include "base/alloc.h"
#include "base/dtype.h"
#include "graph/ops/rules.h"
#include "graph/recorder.h"

#define UNREACHED (-2)
#define REACHED TRII_NO_VALUE /* the loss depends on it; no gradient has arrived yet */

typedef struct backward {
    trii_step *step;
    int32_t *grads; /* of each value that was there when it began: UNREACHED, REACHED or a value */
    int32_t n_values;
    int64_t count;               /* samples; -1 = not known yet */
    struct trii_grad_hook *next; /* of the tensors that are collected next */
    bool more;
} backward;

/* The persistent tensor whose gradient this value's gradient is, or NULL. */
static tri_tensor *owner_of(const trii_value *value)
{
    tri_tensor *tensor = value->leaf != NULL ? value->leaf : value->bound;

    return tensor != NULL && tensor->requires_grad ? tensor : NULL;
}

/* Marks what the loss depends on, as far as gradients flow. */
static void mark(backward *b, trii_vid loss)
{
    const trii_step *s = b->step;

    for (int32_t v = 0; v < b->n_values; v++)
        b->grads[v] = UNREACHED;
    b->grads[loss] = REACHED;
    for (int32_t n = s->values[loss].node; n >= 0; n--) {
        const trii_node *node = &s->nodes[n];
        bool reached = false;

        if (!node->requires_grad)
            continue;
        for (int o = 0; o < node->n_out; o++)
            reached |= b->grads[node->first_out + o] == REACHED;
        if (!reached)
            continue;
        for (int i = 0; i < node->n_in; i++) {
            trii_vid in = s->in_ids[node->first_in + i];

            if (in != TRII_NO_VALUE && s->values[in].requires_grad)
                b->grads[in] = REACHED;
        }
    }
}

static tri_status add_grad(backward *b, trii_vid value, trii_vid grad)
{
    trii_vid terms[2] = {b->grads[value], grad};

    if (terms[0] < 0) {
        b->grads[value] = grad;
        return TRI_OK;
    }
    return trii_record_values(b->step, &trii_op_add, terms, 2, NULL, &b->grads[value]);
}

static tri_status name_gradient(const trii_step *s, const trii_node *node, tri_status status)
{
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
                      "before anything runs the step (tri_item, tri_optimizer_step), or record "
                      "forward again");
    if (node->site.file != NULL)
        return TRII_FAIL_CTX(status, "gradient of tri_%s at %s:%d", node->op->name, node->site.file,
                             node->site.line);
    return TRII_FAIL_CTX(status, "gradient of tri_%s", node->op->name);
}

static tri_status node_backward(backward *b, int32_t n)
{
    trii_step *s = b->step;
    const trii_node *node = &s->nodes[n];
    trii_vid grad_out[TRII_MAX_OUTPUTS], grad_in[TRII_MAX_INPUTS];
    bool needs[TRII_MAX_INPUTS], any = false;
    int n_in = node->n_in;
    tri_status status;

    if (!node->requires_grad)
        return TRI_OK;
    for (int o = 0; o < node->n_out; o++) {
        grad_out[o] = b->grads[node->first_out + o];
        if (grad_out[o] < 0)
            grad_out[o] = TRII_NO_VALUE;
        else
            any = true;
    }
    if (!any)
        return TRI_OK;
    for (int i = 0; i < n_in; i++) {
        trii_vid in = s->in_ids[node->first_in + i];

        needs[i] = in != TRII_NO_VALUE && b->grads[in] != UNREACHED;
        grad_in[i] = TRII_NO_VALUE;
    }
    status = trii_step_reserve(s, TRII_RESERVE_NODES);
    if (status != TRI_OK)
        return status;
    node = &s->nodes[n]; /* may have moved */
    status = node->op->grad(s, node, grad_out, needs, grad_in);
    if (status != TRI_OK)
        return name_gradient(s, &s->nodes[n], status);
    for (int i = 0; i < n_in && status == TRI_OK; i++) {
        if (needs[i] && grad_in[i] != TRII_NO_VALUE)
            status = add_grad(b, s->in_ids[s->nodes[n].first_in + i], grad_in[i]);
    }
    s->nodes[n].differentiated = true;
    return status;
}

/* What tri_backward found: tensors of one hook (or of none) and their gradients. */
typedef struct found {
    tri_tensor **tensors;
    trii_vid *grads;
    int n;
} found;

static tri_status bind_grads(backward *b, const found *f)
{
    for (int i = 0; i < f->n; i++) {
        tri_status status = trii_grad_bind(b->step, f->grads[i], f->tensors[i]);

        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

/* A loss may reach contents that the tensor had before it was written, and those after: its
 * gradient is the sum. The place of a tensor that was found already, or -1: its mark may be of
 * another walk. */
static int place_of(const found *f, const tri_tensor *tensor)
{
    int at = tensor->found_at;

    return at >= 0 && at < f->n && f->tensors[at] == tensor ? at : -1;
}

static tri_status add_found(trii_step *s, found *f, int at, trii_vid grad)
{
    trii_vid terms[2] = {f->grads[at], grad};

    return trii_record_values(s, &trii_op_add, terms, 2, NULL, &f->grads[at]);
}

/* The tensors of this hook, first use first; adds what their gradients held before. Says whether
 * there are others, and the hook of the first of them. */
static tri_status collect(backward *b, const struct trii_grad_hook *hook, found *f)
{
    trii_step *s = b->step;

    f->n = 0;
    b->more = false;
    for (int32_t v = 0; v < b->n_values; v++) {
        tri_tensor *tensor = b->grads[v] >= 0 ? owner_of(&s->values[v]) : NULL;
        tri_status status;
        int at;

        if (tensor == NULL)
            continue;
        if (tensor->grad_hook != hook) {
            b->next = b->more ? b->next : tensor->grad_hook;
            b->more = true;
            continue;
        }
        at = place_of(f, tensor);
        status = at >= 0 ? add_found(s, f, at, b->grads[v]) : trii_grad_prepare(tensor);
        if (at < 0 && status == TRI_OK && tensor->has_grad) {
            trii_vid terms[2] = {TRII_NO_VALUE, b->grads[v]};

            status = trii_resolve(s, tensor->grad, &terms[0]);
            if (status == TRI_OK)
                status = trii_record_values(s, &trii_op_add, terms, 2, NULL, &b->grads[v]);
        }
        if (status != TRI_OK)
            return status;
        if (at < 0) {
            tensor->found_at = f->n;
            f->tensors[f->n] = tensor;
            f->grads[f->n++] = b->grads[v];
        }
        b->grads[v] = UNREACHED; /* done; the next hook starts with the rest */
    }
    return TRI_OK;
}

static tri_status attach_all(backward *b)
{
    struct trii_grad_hook *hook = b->next;
    trii_recorder *r = trii_recorder_of(b->step);
    void *array = r->found;
    found f;
    tri_status status =
        trii_grow(&array, &r->cap_found, b->n_values, sizeof(*r->found), "gradients");

    r->found = array;
    if (status != TRI_OK)
        return status;
    array = r->found_grads;
    status =
        trii_grow(&array, &r->cap_found_grads, b->n_values, sizeof(*r->found_grads), "gradients");
    r->found_grads = array;
    f = (found){r->found, r->found_grads, 0};
    for (b->more = true; status == TRI_OK && b->more; hook = b->next) {
        status = collect(b, hook, &f);
        if (status == TRI_OK && hook != NULL && f.n > 0)
            status = hook->attach(hook, b->step, f.tensors, f.grads, f.n, b->count);
        if (status == TRI_OK)
            status = bind_grads(b, &f);
    }
    return status;
}

/* The gradient of the loss itself: 1, unless the one hook of all parameters says otherwise. */
static tri_status seed_of(backward *b, trii_vid loss)
{
    trii_type type = b->step->values[loss].type;
    tri_dtype dtype = type.dtype;
    struct trii_grad_hook *hook = NULL;
    bool same = true, counted = false;
    trii_vid seed = TRII_NO_VALUE;
    trii_attrs attrs;
    tri_status status = TRI_OK;

    for (int32_t v = 0; v < b->n_values; v++) {
        const tri_tensor *tensor = b->grads[v] == REACHED ? owner_of(&b->step->values[v]) : NULL;

        if (tensor == NULL)
            continue;
        same = same && (!b->more || tensor->grad_hook == hook);
        hook = tensor->grad_hook;
        b->next = b->more ? b->next : hook;
        b->more = true;
        counted = counted || hook != NULL;
    }
    if (counted && b->count < 0)
        b->count = trii_samples_under(b->step, loss, b->grads, b->grads + b->n_values);
    if (dtype == TRI_DTYPE_BF16)
        type.dtype = TRI_DTYPE_F32; /* and is rounded at last */
    if (same && hook != NULL && hook->seed != NULL)
        status = hook->seed(hook, b->step, type.dtype, b->count, &seed);
    if (status != TRI_OK)
        return status;
    if (seed == TRII_NO_VALUE) {
        trii_fill_attrs(&type, 1, &attrs);
        status = trii_record_values(b->step, &trii_op_fill, NULL, 0, &attrs, &seed);
    } else if (!trii_type_same_shape(&b->step->values[seed].type, &type)) {
        status = trii_rec_expand(b->step, seed, type.shape, type.ndim, &seed);
    }
    return status == TRI_OK ? trii_rec_cast(b->step, seed, dtype, &b->grads[loss]) : status;
}

static tri_status check_loss(trii_step *s, tri_tensor *loss, trii_vid *id)
{
    char text[TRII_TYPE_TEXT];
    const trii_value *value;
    tri_status status;

    if (loss == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the loss is NULL");
    status = trii_resolve(s, loss, id);
    if (status != TRI_OK)
        return status;
    value = &s->values[*id];
    if (trii_type_numel(&value->type) != 1 || !trii_dtype_is_float(value->type.dtype))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the loss must be one floating-point number, not %s",
                         trii_type_text(&value->type, text));
    if (!value->requires_grad || value->node < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the loss depends on no tensor that requires a "
                                              "gradient (or was recorded under tri_no_grad_begin)");
    return TRI_OK;
}

static tri_status backward_on(trii_step *s, tri_tensor *loss, int64_t count)
{
    trii_recorder *r = trii_recorder_of(s);
    backward b = {.step = s};
    trii_vid id = TRII_NO_VALUE;
    void *scratch = r->scratch;
    tri_status status = check_loss(s, loss, &id);

    if (status != TRI_OK)
        return status;
    status =
        trii_grow(&scratch, &r->cap_scratch, 2 * s->n_values, sizeof(*r->scratch), "gradients");
    r->scratch = scratch;
    if (status != TRI_OK)
        return status;
    b.grads = r->scratch;
    b.n_values = s->n_values;
    b.count = count;
    if (s->values[id].state == TRII_VALUE_PENDING)
        s->values[id].keep = true;
    mark(&b, id);
    status = seed_of(&b, id);
    for (int32_t n = s->values[id].node; n >= 0 && status == TRI_OK; n--)
        status = node_backward(&b, n);
    return status == TRI_OK ? attach_all(&b) : status;
}

/* backward_n: NULL count means default. */
static void backward_run(tri_tensor *loss, int64_t count)
{
    trii_step *step = trii_step_current();
    trii_recorder *r;
    trii_site site = trii_site_last();
    tri_status status;
    int autocast;
    bool failed;

    if (step == NULL)
        return; /* the next run has no memory either */
    failed = step->failed != TRI_OK;
    r = trii_recorder_of(step);
    autocast = r->autocast;
    r->autocast = 0; /* gradients have the types of their values */
    r->no_grad++;
    r->deferred++;
    status = backward_on(step, loss, count);
    r->no_grad--;
    r->deferred--;
    r->autocast = autocast;
    if (status == TRI_OK)
        status = trii_step_eager(step);
    else if (site.file != NULL)
        status = TRII_FAIL_CTX(status, "tri_backward at %s:%d", site.file, site.line);
    else
        status = TRII_FAIL_CTX(status, "tri_backward");
    if (status != TRI_OK) {
        trii_step_fail(step, status);
        r->told = r->told && failed; /* there is no status here to say so */
    }
}

void tri_backward(tri_tensor *loss)
{
    backward_run(loss, -1);
}

/* Of which the sum over ranks and micro-batches does not overflow. */
#define MAX_COUNT (INT64_C(1) << 40)

void tri_backward_n(tri_tensor *loss, int64_t count)
{
    if (count < 0 || count > MAX_COUNT) {
        trii_step *step = trii_step_current();

        if (step != NULL)
            trii_step_fail(step, TRII_FAIL(TRI_ERR_INVALID_ARG,
                                           "tri_backward_n: count %lld: 0 to 2^40 samples",
                                           (long long)count));
        return;
    }
    backward_run(loss, count);
}

void tri_requires_grad(tri_tensor *tensor, bool on)
{
    trii_recorder *r = trii_recorder_mine();
    trii_step *step;
    uint64_t mark;

    if (tensor == NULL || (!trii_is_handle(tensor) && tensor->status != TRI_OK))
        return; /* whoever uses the tensor gets its error */
    if (trii_is_handle(tensor) || !trii_dtype_is_float(tensor->dtype)) {
        step = on ? trii_step_current() : NULL;
        if (step != NULL)
            trii_step_fail(step, TRII_FAIL(TRI_ERR_INVALID_ARG,
                                           "tri_requires_grad: only persistent floating-point "
                                           "tensors can require a gradient"));
        return;
    }
    tensor->requires_grad = on;
    mark = atomic_load_explicit(&tensor->mark, memory_order_relaxed);
    if (r != NULL && r->active && mark >> TRII_INDEX_BITS == r->step.generation)
        r->step.values[mark & TRII_INDEX_MASK].requires_grad = on;
}

void tri_no_grad_begin(void)
{
    trii_step *step = trii_step_current();

    if (step != NULL)
        trii_recorder_of(step)->no_grad++;
}

void tri_no_grad_end(void)
{
    trii_step *step = trii_step_current();

    if (step == NULL)
        return;
    if (trii_recorder_of(step)->no_grad == 0)
        trii_step_fail(step, TRII_FAIL(TRI_ERR_STATE, "tri_no_grad_end without tri_no_grad_begin"));
    else
        trii_recorder_of(step)->no_grad--;
}
