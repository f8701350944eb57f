/*
 * optimizer.c - what all optimisers share: the list of parameters, the step, the state for
 * checkpoints. The formulas are in train/graph/ops/update.h, and what is specific to one optimiser
 * is in a file of its own (sgd_optimizer.c).
 */
#include "train/optim/optimizer.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/option.h"
#include "train/graph/values/contents.h"
#include "train/dist/unit.h"
#include "train/graph/ops/table.h"
#include "train/nn/module.h"

/* --- making --------------------------------------------------------------- */

static char *joined(const char *first, const char *second)
{
    size_t bytes = strlen(first) + strlen(second) + 2;
    char *name = trii_alloc(bytes, 1, "optimizer state name");

    if (name != NULL)
        snprintf(name, bytes, "%s.%s", first, second);
    return name;
}

static const trii_optim_param *find_param(const tri_optimizer *o, const char *name)
{
    for (int i = 0; i < o->n_params; i++) {
        if (strcmp(o->params[i].name, name) == 0)
            return &o->params[i];
    }
    return NULL;
}

/* If another group has a parameter of the same name, the group's number is added. States are found
 * by these names, so no two may be equal. */
static tri_status name_param(const tri_optimizer *o, trii_optim_param *param, const char *name)
{
    const trii_optim_param *same = find_param(o, name);
    char prefix[32];

    snprintf(prefix, sizeof(prefix), "group_%d", param->group);
    param->name = same != NULL && same->group != param->group ? joined(prefix, name)
                                                              : trii_strdup(name, "parameter name");
    if (param->name == NULL)
        return TRI_ERR_NO_MEMORY;
    if (find_param(o, param->name) == NULL)
        return TRI_OK;
    trii_free(param->name);
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: group %d: two parameters are called %s",
                     o->ops->name, param->group, name);
}

static tri_status check_param(const tri_optimizer *o, tri_tensor *tensor, const char *name)
{
    if (tensor == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s is NULL", o->ops->name, name);
    if (trii_is_handle(tensor))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: %s is a value of a step; only persistent tensors (parameters, "
                         "tri_tensor_create) can be updated",
                         o->ops->name, name);
    if (trii_home(tensor)->status != TRI_OK)
        return tri_tensor_status(trii_home(tensor));
    if (tensor->dtype != TRI_DTYPE_F32 && tensor->dtype != TRI_DTYPE_F64)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s is %s: only f32 and f64 can be updated",
                         o->ops->name, name, tri_dtype_name(tensor->dtype));
    return TRI_OK;
}

static void take_stages(tri_optimizer *o, trii_stages *stages)
{
    if (TRII_UNLIKELY(stages != NULL && o->stages == NULL))
        o->stages = trii_stages_ref(stages);
}

/* A tensor with several names in a group is updated once. */
static tri_status add_param(tri_optimizer *o, tri_tensor *tensor, const char *name, int group)
{
    trii_optim_param *param;
    tri_status status = check_param(o, tensor, name);

    if (status != TRI_OK)
        return status;
    for (int i = 0; i < o->n_params; i++) {
        if (o->params[i].tensor != tensor)
            continue;
        if (o->params[i].group == group)
            return TRI_OK;
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: %s of group %d is %s of group %d: a tensor can be in one group only",
                         o->ops->name, name, group, o->params[i].name, o->params[i].group);
    }
    status = trii_array_grow(&o->params, &o->cap_params, o->n_params, 64, sizeof(*o->params),
                             "optimizer parameters");
    if (status != TRI_OK)
        return status;
    param = &o->params[o->n_params];
    *param = (trii_optim_param){.group = group, .clipped = TRII_NO_VALUE};
    status = name_param(o, param, name);
    if (status != TRI_OK)
        return status;
    param->tensor = tri_tensor_ref(tensor);
    param->home = tri_tensor_ref(trii_home(tensor));
    if (tensor->staged != NULL)
        take_stages(o, tensor->staged->of);
    if (param->home != tensor) {
        o->sharded = true;
        param->empty = param->home->shape[0] == 0;
    }
    o->n_params++;
    return TRI_OK;
}

static tri_status add_model(tri_optimizer *o, tri_module *model, int group)
{
    int64_t total;
    tri_status status;

    if (model == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: the model is NULL", o->ops->name);
    status = trii_module_flatten(model);
    if (status != TRI_OK)
        return status;
    take_stages(o, tri_module_unwrapped(model)->stages);
    total = tri_module_state_count(model);
    for (int64_t i = 0; i < total && status == TRI_OK; i++) {
        tri_state_entry entry = tri_module_state(model, i);

        if (entry.parameter && entry.tensor->staged != NULL && entry.tensor->staged->is_copy)
            entry.name = entry.tensor->staged->name;
        if (entry.parameter)
            status = add_param(o, entry.tensor, entry.name, group);
    }
    return status;
}

static tri_status add_list(tri_optimizer *o, const tri_param_group *from, int group)
{
    tri_status status = TRI_OK;

    if (from->n_params < 0 || (from->n_params > 0 && from->params == NULL))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: group %d: a list of %d parameters at %s",
                         o->ops->name, group, from->n_params,
                         from->params == NULL ? "NULL" : "a valid address");
    for (int i = 0; i < from->n_params && status == TRI_OK; i++) {
        char number[32];
        const char *name = from->names != NULL ? from->names[i] : NULL;

        snprintf(number, sizeof(number), "param_%d", o->n_params);
        status = add_param(o, from->params[i], name != NULL ? name : number, group);
    }
    return status;
}

static tri_status add_group(tri_optimizer *o, const trii_optim_recipe *recipe,
                            const tri_param_group *from)
{
    int group = o->n_groups++;
    double *hyper = o->groups[group].hyper;

    memcpy(hyper, recipe->hyper, sizeof(recipe->hyper));
    hyper[TRI_HYPER_LR] = trii_option(from->lr, hyper[TRI_HYPER_LR]);
    hyper[TRI_HYPER_WEIGHT_DECAY] = trii_option(from->weight_decay, hyper[TRI_HYPER_WEIGHT_DECAY]);
    if (from->model != NULL && from->n_params != 0 && from->n_params != TRII_MODEL_ONLY)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: group %d has a model and a list of parameters: give one of them",
                         o->ops->name, group);
    if (from->model != NULL || from->n_params == TRII_MODEL_ONLY)
        return add_model(o, from->model, group);
    if (from->params == NULL && from->n_params == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s_of: groups[%d] has neither a model nor a list of parameters",
                         o->ops->name, group);
    return add_list(o, from, group);
}

static tri_status add_states(tri_optimizer *o, const trii_optim_recipe *recipe, int n_states)
{
    o->state = trii_alloc((size_t)o->n_params * (size_t)n_states + 1, sizeof(*o->state),
                          "optimizer state list");
    if (o->state == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < o->n_params; i++) {
        trii_optim_param *param = &o->params[i];
        bool holds = n_states > 0 && trii_home_keeps(param->tensor, param->home, &param->held);

        for (int s = 0; s < n_states; s++) {
            tri_state_entry *listed = &o->state[o->n_state];
            tri_status status;

            status = trii_tensor_create(param->home->dtype, param->home->shape, param->home->ndim,
                                        param->home->device, &param->state[s]);
            if (status == TRI_OK && holds)
                param->state[s]->held = &param->held;
            if (status == TRI_OK && recipe->state_value != 0.0)
                status = tri_init_constant(param->state[s], recipe->state_value);
            if (status != TRI_OK)
                return TRII_FAIL_CTX(status, "%s of %s", recipe->state_names[s], param->name);
            listed->name = joined(param->name, recipe->state_names[s]);
            if (listed->name == NULL)
                return TRI_ERR_NO_MEMORY;
            listed->tensor = param->state[s];
            o->n_state++;
        }
    }
    return TRI_OK;
}

static tri_status gather(tri_optimizer *o, const trii_optim_recipe *recipe,
                         const tri_param_group *groups, int n_groups)
{
    int64_t n;
    tri_status status = recipe->status;

    if (status != TRI_OK)
        return status;
    if (groups == NULL || n_groups < 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s_of: groups at %p, n is %d: there must be a group",
                         o->ops->name, (const void *)groups, n_groups);
    o->groups = trii_alloc((size_t)n_groups, sizeof(*o->groups), "optimizer groups");
    if (o->groups == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int g = 0; g < n_groups && status == TRI_OK; g++) {
        status = TRII_CHECK_RESERVED(tri_param_group, &groups[g]);
        if (status == TRI_OK)
            status = add_group(o, recipe, &groups[g]);
    }
    if (status != TRI_OK)
        return status;
    n = o->n_params;
    if (n == 0 && o->stages == NULL) /* a stage may have none, and takes part in norms */
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: the parameter list is empty", o->ops->name);
    status = add_states(o, recipe, trii_update_states(o->ops->rule, o->flags));
    if (status != TRI_OK)
        return status;
    o->grads = trii_alloc((size_t)n + 1, sizeof(*o->grads), "optimizer gradients");
    o->tensors = trii_alloc((size_t)n + 1, sizeof(*o->tensors), "optimizer parameters");
    if (o->grads == NULL || o->tensors == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < o->n_params; i++)
        o->tensors[i] = o->params[i].tensor;
    status = trii_tensor_create(TRI_DTYPE_I64, &n, 1, TRI_CPU(0), &o->updates); /* counted here */
    if (status != TRI_OK)
        return status;
    o->state[o->n_state].name = trii_strdup("step", "optimizer state name");
    if (o->state[o->n_state].name == NULL)
        return TRI_ERR_NO_MEMORY;
    o->state[o->n_state++].tensor = o->updates;
    return TRI_OK;
}

tri_optimizer *trii_optimizer_create(const trii_optim_recipe *recipe, const tri_param_group *groups,
                                     int n_groups)
{
    static _Atomic uint64_t made;
    tri_optimizer *o = trii_alloc(1, sizeof(*o), "optimizer");
    tri_status status;

    if (o == NULL)
        return &trii_optimizer_out_of_memory;
    o->ops = recipe->ops;
    o->number = ++made;
    o->flags = recipe->flags;
    status = gather(o, recipe, groups, n_groups);
    if (status != TRI_OK)
        trii_optimizer_fail(o, status);
    else
        trii_optimizer_check(o);
    return o;
}

void tri_optimizer_destroy(tri_optimizer *o)
{
    if (o == NULL || o == &trii_optimizer_out_of_memory)
        return;
    for (int i = 0; i < o->n_params; i++) {
        for (int s = 0; s < TRII_UPDATE_STATES; s++) {
            if (o->params[i].state[s] != NULL)
                o->params[i].state[s]->held = NULL; /* it may outlive the optimizer */
            tri_tensor_unref(o->params[i].state[s]);
        }
        trii_home_lets_go(&o->params[i].held);
        tri_tensor_unref(o->params[i].home);
        tri_tensor_unref(o->params[i].tensor);
        trii_free(o->params[i].name);
    }
    for (int i = 0; i < o->n_state; i++)
        trii_free((void *)(uintptr_t)o->state[i].name);
    tri_tensor_unref(o->updates);
    trii_stages_unref(o->stages);
    trii_free(o->grads);
    trii_free(o->tensors);
    trii_free(o->groups);
    trii_free(o->params);
    trii_free(o->state);
    trii_free(o->why);
    trii_free(o);
}

/* --- the step ------------------------------------------------------------- */

tri_status trii_update_add(trii_update_batch *b, trii_step *step, tri_tensor *tensor, trii_vid grad,
                           tri_tensor *const *states)
{
    trii_vid *in = b->in + b->n * (2 + b->n_states);
    tri_status status = trii_resolve(step, tensor, &in[0]);

    in[1] = grad;
    for (int s = 0; s < b->n_states && status == TRI_OK; s++)
        status = trii_resolve(step, states[s], &in[2 + s]);
    if (status != TRI_OK)
        return status;
    b->tensors[b->n] = tensor;
    b->states[b->n++] = states;
    return TRI_OK;
}

tri_status trii_update_record(trii_update_batch *b, trii_step *step)
{
    int n = b->n, n_in;
    trii_vid out;
    tri_status status;

    b->n = 0;
    if (n == 0)
        return TRI_OK;
    n_in = n * (2 + b->n_states);
    if (b->scale != TRII_NO_VALUE)
        b->in[n_in++] = b->scale;
    if (b->skip != TRII_NO_VALUE)
        b->in[n_in++] = b->skip;
    status = trii_record_values(step, &trii_op_update, b->in, n_in, &b->attrs, &out);
    if (status == TRI_OK)
        (void)trii_handle_recorded(step, out); /* eager mode runs it now */
    for (int t = 0; t < n && status == TRI_OK; t++) {
        status = trii_bind(step, out++, b->tensors[t]);
        for (int s = 0; s < b->n_states && status == TRI_OK; s++)
            status = trii_bind(step, out++, b->states[t][s]);
    }
    return status;
}

/* What parameters must have in common to be updated by one node. */
typedef struct likeness {
    int group;
    int64_t updates;
    trii_vid scale;
    double limit;
    tri_dtype dtype;
    tri_device device;
} likeness;

static bool is_like(const likeness *a, const likeness *b)
{
    return a->group == b->group && a->updates == b->updates && a->scale == b->scale &&
           a->limit == b->limit && a->dtype == b->dtype && a->device == b->device;
}

typedef struct recording {
    tri_optimizer *o;
    trii_step *step;
    likeness like; /* number of those in the batch */
    int first;     /* parameters from here on are in the batch */
    bool any;      /* a parameter has a gradient */
    trii_update_batch batch;
} recording;

/* Records the batch; the next one begins at parameter `next`. */
static tri_status flush(recording *r, int next)
{
    tri_status status = trii_update_record(&r->batch, r->step);

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "update of %s and others", r->o->params[r->first].name);
    for (int i = r->first; i < next; i++)
        r->o->params[i].recorded = r->o->params[i].adding;
    r->first = next;
    return TRI_OK;
}

/* The scaler's flag, on the device of the batch. */
static tri_status find_skip(recording *r, tri_device device)
{
    tri_status status;

    r->batch.skip = TRII_NO_VALUE;
    if (TRII_LIKELY(r->o->found == NULL))
        return TRI_OK;
    r->batch.attrs.i[1] |= TRII_UPDATE_SKIPS;
    status = trii_resolve(r->step, r->o->found, &r->batch.skip);
    return status == TRI_OK ? trii_record_to(r->step, r->batch.skip, device, &r->batch.skip)
                            : status;
}

static tri_status begin_batch(recording *r, const likeness *like)
{
    tri_optimizer *o = r->o;
    trii_attrs *attrs = &r->batch.attrs;

    r->like = *like;
    r->batch.scale = like->scale;
    r->batch.n_states = trii_update_states(o->ops->rule, o->flags);
    attrs->n_i = 2;
    attrs->i[0] = o->ops->rule;
    attrs->i[1] = o->flags;
    attrs->n_f = 1 + trii_update_numbers(o->ops->rule);
    attrs->f[0] = like->limit;
    o->ops->numbers(o, o->groups[like->group].hyper, like->updates, attrs->f + 1);
    return find_skip(r, like->device);
}

/* The gradient that parameter i is updated with; NO_VALUE: it has none. */
static tri_status take_gradient(const recording *r, int i, trii_vid *grad_out)
{
    const trii_given *given = r->o->given;

    if (TRII_LIKELY(given == NULL))
        return trii_grad_consume(r->step, r->o->params[i].home, grad_out);
    *grad_out = TRII_NO_VALUE;
    return given->grads[i] != NULL ? trii_resolve(r->step, given->grads[i], grad_out) : TRI_OK;
}

/* What the caller of trii_optimizer_step_given multiplies gradients by. */
static tri_status take_factor(const recording *r, likeness *like)
{
    tri_tensor *factor = r->o->given->factor[like->dtype == TRI_DTYPE_F64];
    tri_status status;

    if (factor == NULL)
        return TRI_OK;
    status = trii_resolve(r->step, factor, &like->scale);
    return status == TRI_OK ? trii_record_to(r->step, like->scale, like->device, &like->scale)
                            : status;
}

static tri_status record_update(recording *r, int i, int64_t updates)
{
    trii_optim_param *param = &r->o->params[i];
    trii_vid grad = TRII_NO_VALUE;
    likeness like = {param->group,       updates, TRII_NO_VALUE, 0.0, param->home->dtype,
                     param->home->device};
    tri_status status = take_gradient(r, i, &grad);

    if (status == TRI_OK && TRII_UNLIKELY(r->o->given != NULL))
        status = take_factor(r, &like);
    else if (status == TRI_OK && TRII_UNLIKELY(r->o->n_clips > 0))
        status = trii_optimizer_clipped(r->o, r->step, param, &grad, &like.scale, &like.limit);
    if (status == TRI_OK && grad != TRII_NO_VALUE && TRII_UNLIKELY(param->empty)) {
        r->any = param->adding = true; /* it counts as one, on this rank as on the others */
        return TRI_OK;
    }
    if (status == TRI_OK && grad != TRII_NO_VALUE && r->batch.n > 0 &&
        (!is_like(&like, &r->like) || trii_update_is_full(&r->batch)))
        status = flush(r, i);
    if (status != TRI_OK || grad == TRII_NO_VALUE)
        return status;
    r->any = true;
    if (r->batch.n == 0)
        status = begin_batch(r, &like);
    if (status == TRI_OK)
        status = trii_update_add(&r->batch, r->step, param->home, grad, param->state);
    param->adding = status == TRI_OK;
    return status;
}

/* Parameters stay as they are, and a loop that forgot its backward pass would never know why. */
static TRII_NOINLINE void warn_of_no_gradient(const tri_optimizer *o)
{
    static atomic_bool warned;
    trii_site site = trii_site_last();

    if (atomic_exchange(&warned, true))
        return;
    TRII_LOG(
        TRII_LOG_WARN, "optim",
        "tri_optimizer_step at %s:%d: none of the %d parameters has a gradient, so none is "
        "updated: was tri_backward left out, was tri_optimizer_zero_grad called after it, or does "
        "the loss not depend on them?",
        site.file != NULL ? site.file : "?", site.line, o->n_params);
}

static tri_status record_updates(tri_optimizer *o, trii_step *step)
{
    const int64_t *updates = trii_tensor_data(o->updates);
    recording r;

    r.o = o;
    r.step = step;
    r.first = r.batch.n = 0;
    r.any = false;
    for (int i = 0; i < o->n_params; i++)
        o->params[i].recorded = o->params[i].adding = false;
    for (int i = 0; i < o->n_params; i++) {
        tri_status status = record_update(&r, i, updates[i]);

        if (status != TRI_OK)
            return TRII_FAIL_CTX(status, "update of %s", o->params[i].name);
    }
    if (TRII_UNLIKELY(!r.any) && step->failed == TRI_OK && o->given == NULL && o->n_params > 0)
        warn_of_no_gradient(o);
    return flush(&r, o->n_params);
}

static void count_updates(tri_optimizer *o)
{
    int64_t *updates = trii_tensor_data(o->updates);

    if (o->found != NULL && *(const float *)trii_tensor_data(o->found) != 0)
        return;
    for (int i = 0; i < o->n_params; i++)
        updates[i] += o->params[i].recorded;
}

/* Each state goes to the device of its parameter (tri_module_to). */
static tri_status follow(const tri_optimizer *o)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < o->n_params && status == TRI_OK; i++) {
        const trii_optim_param *param = &o->params[i];

        if (TRII_LIKELY(param->state[0] == NULL || param->state[0]->device == param->home->device))
            continue;
        for (int s = 0; s < TRII_UPDATE_STATES && status == TRI_OK; s++) {
            if (param->state[s] != NULL)
                status = trii_tensor_send(param->state[s], param->home->device);
        }
    }
    return status;
}

static tri_status gather_homes(const tri_optimizer *o, trii_step *step)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < o->n_params; i++)
        if (o->params[i].recorded)
            trii_home_changed(o->params[i].tensor, o->params[i].home);
    for (int i = 0; i < o->n_params && status == TRI_OK; i++)
        status = trii_home_gather(o->params[i].tensor, o->params[i].home, step);
    return status;
}

static tri_status update(tri_optimizer *o, trii_step *step)
{
    tri_status status = o->given == NULL ? trii_optimizer_before_update(o, step) : TRI_OK;

    if (status == TRI_OK)
        status = follow(o);
    if (status == TRI_OK && TRII_UNLIKELY(!o->compared) && o->given == NULL)
        status = trii_optimizer_compare_ranks(o, step);
    if (status != TRI_OK)
        return status;
    tri_no_grad_begin();
    status = record_updates(o, step);
    if (status == TRI_OK && TRII_UNLIKELY(o->sharded))
        status = gather_homes(o, step);
    tri_no_grad_end();
    if (status != TRI_OK) {
        /* in eager mode earlier updates have run already */
        if (step->first_pending == step->n_nodes)
            count_updates(o);
        return status;
    }
    trii_step_count_update(step);
    status = trii_step_run(step);
    if (status == TRI_OK)
        count_updates(o);
    o->compared |= status == TRI_OK;
    return status;
}

/* Several optimizers, or groups of parameters, are how a program gives parts of a network rates of
 * their own. */
static void tell_rate(const tri_optimizer *o, trii_stages *stages)
{
    if (o->n_groups > 1 || (stages->updated_by != 0 && stages->updated_by != o->number))
        stages->updated_by = UINT64_MAX;
    else
        stages->updated_by = o->number;
    stages->given.rate = stages->updated_by != UINT64_MAX ? o->groups[0].hyper[TRI_HYPER_LR] : -1;
    stages->is_updated = true;
}

static TRII_NOINLINE void tell_stages(const tri_optimizer *o)
{
    tell_rate(o, o->stages);
    for (int i = 0; i < o->n_params; i++) /* they may be of several pipelines */
        if (o->params[i].tensor->staged != NULL)
            tell_rate(o, o->params[i].tensor->staged->of);
}

static tri_status step_with(tri_optimizer *o, tri_tensor *found, const trii_given *given)
{
    trii_step *step;
    tri_status status = tri_optimizer_status(o);

    if (o == NULL)
        return trii_contents_fail(status, "tri_optimizer_step");
    if (status != TRI_OK)
        return status;
    step = trii_step_current();
    if (step == NULL)
        return TRI_ERR_NO_MEMORY;
    if (TRII_UNLIKELY(o->stages != NULL))
        tell_stages(o);
    o->found = found;
    o->given = given;
    status = update(o, step);
    o->found = NULL;
    o->given = NULL;
    o->n_clips = 0;
    if (status == TRI_OK)
        return TRI_OK;
    for (int i = 0; i < o->n_params; i++)
        status = trii_home_tell(o->params[i].tensor, o->params[i].home, status);
    trii_step_fail(step, status); /* what was recorded must not run when the step ends */
    return trii_step_run(step);
}

tri_status trii_optimizer_step_unless(tri_optimizer *o, tri_tensor *found)
{
    return step_with(o, found, NULL);
}

tri_status trii_optimizer_step_given(tri_optimizer *o, const trii_given *given)
{
    for (int i = 0; i < o->n_params; i++)
        if (trii_home(o->params[i].tensor) != o->params[i].tensor)
            return TRII_FAIL(
                TRI_ERR_UNSUPPORTED,
                "%s is divided over ranks: gradients of a remote optimizer are those of "
                "whole parameters",
                o->params[i].name);
    return step_with(o, NULL, given);
}

tri_status(tri_optimizer_step)(tri_optimizer *o)
{
    return trii_optimizer_step_unless(o, NULL);
}

void tri_optimizer_zero_grad(tri_optimizer *o)
{
    for (int i = 0; o != NULL && i < o->n_params; i++) {
        trii_grad_clear(o->params[i].tensor);
        if (TRII_UNLIKELY(o->params[i].home != o->params[i].tensor))
            trii_grad_clear(o->params[i].home);
    }
    if (o != NULL && o != &trii_optimizer_out_of_memory)
        o->n_clips = 0;
}

/* --- state ---------------------------------------------------------------- */

int64_t tri_optimizer_state_count(tri_optimizer *o)
{
    return o != NULL && o->status == TRI_OK ? o->n_state : 0;
}

tri_state_entry tri_optimizer_state(tri_optimizer *o, int64_t index)
{
    if (index < 0 || index >= tri_optimizer_state_count(o))
        return (tri_state_entry){0};
    return o->state[index];
}
