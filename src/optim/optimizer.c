/*
 * optimizer.c - what all optimisers share: the list of parameters, the step, the state for
 * checkpoints. The formulas are in one file each (sgd_optimizer.c).
 */
#include "optim/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "nn/module.h"

/* When there is no memory even for a failed optimizer. Never written, never destroyed. */
static tri_optimizer out_of_memory = {.status = TRI_ERR_NO_MEMORY};

void trii_optimizer_fail(tri_optimizer *optimizer, tri_status status)
{
    if (optimizer == &out_of_memory || optimizer->status < 0)
        return;
    optimizer->status = status;
    optimizer->why = trii_strdup(tri_last_error(), "optimizer error");
}

tri_status tri_optimizer_status(const tri_optimizer *optimizer)
{
    if (optimizer == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "optimizer is NULL");
    if (optimizer->status < 0)
        return TRII_FAIL(optimizer->status, "%s",
                         optimizer->why != NULL ? optimizer->why : "no memory");
    return TRI_OK;
}

/* --- making --------------------------------------------------------------------------------- */

static char *state_name(const char *parameter, const char *state)
{
    size_t bytes = strlen(parameter) + strlen(state) + 2;
    char *name = trii_alloc(bytes, 1, "optimizer state name");

    if (name != NULL)
        snprintf(name, bytes, "%s.%s", parameter, state);
    return name;
}

static tri_status add_param(tri_optimizer *o, const tri_state_entry *entry, int n_states)
{
    trii_optim_param *param = &o->params[o->n_params++];

    param->tensor = tri_tensor_ref(entry->tensor);
    param->name = trii_strdup(entry->name, "parameter name");
    if (param->name == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int s = 0; s < n_states; s++) {
        tri_state_entry *listed = &o->state[o->n_state];
        tri_status st;

        param->state[s] =
            tri_tensor_create(entry->tensor->dtype, entry->tensor->shape, entry->tensor->ndim);
        st = tri_tensor_status(param->state[s]);
        if (st < 0)
            return TRII_FAIL_CTX(st, "%s of %s", o->ops->state_names[s], entry->name);
        listed->name = state_name(entry->name, o->ops->state_names[s]);
        if (listed->name == NULL)
            return TRI_ERR_NO_MEMORY;
        listed->tensor = param->state[s];
        o->n_state++;
    }
    return TRI_OK;
}

/* A tensor that stands under several names is updated once. */
static bool is_listed(const tri_optimizer *o, const tri_tensor *tensor)
{
    for (int i = 0; i < o->n_params; i++)
        if (o->params[i].tensor == tensor)
            return true;
    return false;
}

static tri_status gather(tri_optimizer *o, tri_module *model, int n_states)
{
    int64_t total, n = 0;
    tri_status st = trii_module_flatten(model);

    if (st < 0)
        return st;
    total = tri_module_state_count(model);
    o->params = trii_alloc((size_t)total, sizeof(*o->params), "optimizer parameters");
    o->state =
        trii_alloc((size_t)(total * n_states + 1), sizeof(*o->state), "optimizer state list");
    if (o->params == NULL || o->state == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < total && st == TRI_OK; i++) {
        tri_state_entry entry = tri_module_state(model, i);

        if (entry.parameter && !is_listed(o, entry.tensor))
            st = add_param(o, &entry, n_states);
    }
    if (st < 0)
        return st;
    n = o->n_params;
    if (n == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: the model has no parameters", o->ops->name);
    o->updates = tri_tensor_create(TRI_DTYPE_I64, &n, 1);
    st = tri_tensor_status(o->updates);
    if (st < 0)
        return st;
    o->state[o->n_state].name = trii_strdup("steps", "optimizer state name");
    if (o->state[o->n_state].name == NULL)
        return TRI_ERR_NO_MEMORY;
    o->state[o->n_state++].tensor = o->updates;
    return TRI_OK;
}

tri_optimizer *trii_optimizer_create(const trii_optimizer_ops *ops, tri_module *model, double lr,
                                     int n_states)
{
    tri_optimizer *o = trii_alloc(1, sizeof(*o), "optimizer");
    tri_status st;

    if (o == NULL)
        return &out_of_memory;
    o->ops = ops;
    o->lr = lr;
    st = gather(o, model, n_states);
    if (st < 0)
        trii_optimizer_fail(o, st);
    return o;
}

void tri_optimizer_destroy(tri_optimizer *o)
{
    if (o == NULL || o == &out_of_memory)
        return;
    for (int i = 0; i < o->n_params; i++) {
        for (int s = 0; s < TRII_OPTIM_STATES; s++)
            tri_tensor_unref(o->params[i].state[s]);
        tri_tensor_unref(o->params[i].tensor);
        trii_free(o->params[i].name);
    }
    for (int i = 0; i < o->n_state; i++)
        trii_free((void *)(uintptr_t)o->state[i].name);
    tri_tensor_unref(o->updates);
    trii_free(o->params);
    trii_free(o->state);
    trii_free(o->why);
    trii_free(o);
}

/* --- the step ------------------------------------------------------------------------------- */

/* Every hook has its say once: parameters of one hook follow each other. */
static tri_status settle(tri_optimizer *o, trii_step *step)
{
    trii_grad_hook *last = NULL;

    for (int i = 0; i < o->n_params; i++) {
        trii_grad_hook *hook = o->params[i].tensor->grad_hook;
        tri_status st;

        if (hook == NULL || hook == last)
            continue;
        last = hook;
        if (hook->settle == NULL)
            continue;
        st = hook->settle(hook, step);
        if (st < 0)
            return st;
    }
    return TRI_OK;
}

static tri_status record_updates(tri_optimizer *o, trii_step *step)
{
    const int64_t *updates = trii_tensor_data(o->updates);

    for (int i = 0; i < o->n_params; i++)
        o->params[i].recorded = false;
    for (int i = 0; i < o->n_params; i++) {
        trii_optim_param *param = &o->params[i];
        trii_vid grad = TRII_NO_VALUE;
        tri_status st = trii_grad_consume(step, param->tensor, &grad);

        if (st == TRI_OK && grad != TRII_NO_VALUE) {
            st = o->ops->update(o, step, param, trii_handle(step, grad), updates[i]);
            o->params[i].recorded = st == TRI_OK;
        }
        if (st < 0)
            return TRII_FAIL_CTX(st, "update of %s", param->name);
    }
    return TRI_OK;
}

static void count_updates(tri_optimizer *o)
{
    int64_t *updates = trii_tensor_data(o->updates);

    for (int i = 0; i < o->n_params; i++)
        updates[i] += o->params[i].recorded;
}

tri_status(tri_optimizer_step)(tri_optimizer *o)
{
    trii_step *step;
    tri_status st = tri_optimizer_status(o);

    if (st < 0)
        return st;
    step = trii_step_current();
    if (step == NULL)
        return TRI_ERR_NO_MEMORY;
    st = settle(o, step);
    if (st < 0)
        return st;
    tri_no_grad_begin();
    st = record_updates(o, step);
    tri_no_grad_end();
    if (st < 0) {
        count_updates(o); /* those before the failure run when the step ends */
        return st;
    }
    st = trii_step_run(step);
    if (st == TRI_OK)
        count_updates(o);
    return st;
}

void tri_optimizer_zero_grad(tri_optimizer *o)
{
    for (int i = 0; o != NULL && i < o->n_params; i++)
        trii_grad_clear(o->params[i].tensor);
}

/* --- settings and state --------------------------------------------------------------------- */

void trii_optimizer_check(tri_optimizer *o, const char *what, double value)
{
    if (!isfinite(value) || value < 0.0)
        trii_optimizer_fail(o, TRII_FAIL(TRI_ERR_INVALID_ARG,
                                         "%s: %s %g: it must be finite and not negative",
                                         o->ops->name, what, value));
}

void tri_optimizer_set_lr(tri_optimizer *o, double lr)
{
    if (o == NULL || o == &out_of_memory)
        return;
    trii_optimizer_check(o, "lr", lr);
    o->lr = lr;
}

double tri_optimizer_lr(const tri_optimizer *o)
{
    return o != NULL ? o->lr : 0.0;
}

void tri_optimizer_set_momentum(tri_optimizer *o, double momentum)
{
    if (o == NULL || o == &out_of_memory)
        return;
    trii_optimizer_check(o, "momentum", momentum);
    o->sgd.momentum = momentum;
}

double tri_optimizer_momentum(const tri_optimizer *o)
{
    return o != NULL ? o->sgd.momentum : 0.0;
}

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
