/*
 * ema.c - moving averages of a model's parameters, as torch.optim.swa_utils.AveragedModel with
 * get_ema_multi_avg_fn. The averages are tensors of their own, which are swapped with the
 * parameters to be used. Where a rank updates a piece of a parameter, it has the average of that.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/dist/unit.h"
#include "train/graph/ops/table.h"
#include "train/nn/module.h"
#include "train/optim/optimizer.h"
#include "train/tensor/pipeline_stages.h"

typedef struct averaged {
    tri_tensor *param, *home, *average; /* references are held; home: trii_home of it then */
    trii_held held; /* where home is a piece: what checkpoints say of the average */
} averaged;

struct tri_ema {
    double decay;
    averaged *list;
    tri_state_entry *state; /* names owned */
    int n;
    tri_tensor *n_averaged; /* i64 [1]; never part of a step */
    /* Of the model of a pipeline, whose other averages are on other ranks: checkpoints see by the
     * counter that the list is a part. */
    trii_staged staged;
};

static bool is_listed(const tri_ema *e, const tri_tensor *tensor)
{
    for (int i = 0; i < e->n; i++) {
        if (e->list[i].param == tensor)
            return true;
    }
    return false;
}

static tri_status add(tri_ema *e, const tri_state_entry *entry)
{
    tri_tensor *param = entry->tensor, *from = trii_home(param), *average;
    char *name;
    tri_status status;

    if (from->dtype != TRI_DTYPE_F32 && from->dtype != TRI_DTYPE_F64)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is %s: only f32 and f64 can be averaged",
                         entry->name, tri_dtype_name(from->dtype));
    status = trii_tensor_create(from->dtype, from->shape, from->ndim, from->device, &average);
    if (status != TRI_OK)
        return status;
    name = trii_strdup(entry->name, "parameter name");
    if (name == NULL) {
        tri_tensor_unref(average);
        return TRI_ERR_NO_MEMORY;
    }
    e->list[e->n] = (averaged){
        .param = tri_tensor_ref(param), .home = tri_tensor_ref(from), .average = average};
    if (trii_home_keeps(param, from, &e->list[e->n].held))
        average->held = &e->list[e->n].held;
    e->state[e->n++] = (tri_state_entry){.name = name, .tensor = average};
    return TRI_OK;
}

static tri_status gather(tri_ema *e, tri_module *model)
{
    int64_t total, one = 1;
    tri_status status = trii_module_flatten(model);

    if (status != TRI_OK)
        return status;
    total = tri_module_state_count(model);
    e->list = trii_alloc((size_t)total + 1, sizeof(*e->list), "averages");
    e->state = trii_alloc((size_t)total + 1, sizeof(*e->state), "averages");
    if (e->list == NULL || e->state == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < total && status == TRI_OK; i++) {
        tri_state_entry entry = tri_module_state(model, i);

        if (!entry.parameter || is_listed(e, entry.tensor))
            continue;
        if (entry.tensor->staged != NULL && entry.tensor->staged->is_copy)
            entry.name = entry.tensor->staged->name;
        status = add(e, &entry);
    }
    if (status != TRI_OK)
        return status;
    e->staged.of = trii_stages_ref(tri_module_unwrapped(model)->stages);
    if (e->n == 0 && e->staged.of == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the model has no parameters");
    status =
        trii_tensor_create(TRI_DTYPE_I64, &one, 1, TRI_CPU(0), &e->n_averaged); /* counted here */
    if (status != TRI_OK)
        return status;
    if (e->staged.of != NULL)
        e->n_averaged->staged = &e->staged;
    e->state[e->n].name = trii_strdup("n_averaged", "parameter name");
    e->state[e->n].tensor = e->n_averaged;
    return e->state[e->n].name != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

tri_status tri_ema_create(tri_module *model, double decay, tri_ema **ema_out)
{
    tri_ema *e;
    tri_status status;

    if (ema_out == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_ema_create: ema_out is NULL");
    *ema_out = NULL;
    if (!(decay >= 0.0 && decay <= 1.0))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_ema_create: decay %g: it must be from 0 to 1",
                         decay);
    e = trii_alloc(1, sizeof(*e), "averages");
    if (e == NULL)
        return TRI_ERR_NO_MEMORY;
    e->decay = decay;
    status = gather(e, model);
    if (status != TRI_OK) {
        status = TRII_FAIL_CTX(status, "tri_ema_create");
        tri_ema_destroy(e);
        return status;
    }
    *ema_out = e;
    return TRI_OK;
}

void tri_ema_destroy(tri_ema *e)
{
    if (e == NULL)
        return;
    for (int i = 0; i < e->n; i++) {
        tri_tensor_unref(e->list[i].param);
        tri_tensor_unref(e->list[i].home);
        e->list[i].average->held = NULL; /* it may outlive the list */
        trii_home_lets_go(&e->list[i].held);
        tri_tensor_unref(e->list[i].average);
    }
    for (int i = 0; e->state != NULL && i <= e->n; i++)
        trii_free((void *)(uintptr_t)e->state[i].name);
    if (e->n_averaged != NULL)
        e->n_averaged->staged = NULL; /* it may outlive the list */
    tri_tensor_unref(e->n_averaged);
    trii_stages_unref(e->staged.of);
    trii_free(e->list);
    trii_free(e->state);
    trii_free(e);
}

static tri_status record_averages(tri_ema *e, trii_step *step)
{
    bool first = *(const int64_t *)trii_tensor_data(e->n_averaged) == 0;
    trii_update_batch batch;
    tri_status status = TRI_OK;

    batch.n = batch.n_states = 0;
    batch.scale = batch.skip = TRII_NO_VALUE;
    batch.attrs.n_i = 2;
    batch.attrs.i[0] = TRII_UPDATE_LERP;
    batch.attrs.i[1] = 0;
    batch.attrs.n_f = 2;
    batch.attrs.f[0] = 0.0;
    batch.attrs.f[1] = first ? 1.0 : 1.0 - e->decay; /* the first time it copies the parameter */
    for (int i = 0; i < e->n && status == TRI_OK; i++) {
        const averaged *a = &e->list[i];
        trii_vid value;

        if (batch.n > 0 &&
            (trii_update_is_full(&batch) || a->home->dtype != batch.tensors[0]->dtype ||
             a->home->device != batch.tensors[0]->device))
            status = trii_update_record(&batch, step);
        if (status == TRI_OK)
            status = trii_resolve(step, a->home, &value);
        if (status == TRI_OK)
            status = trii_update_add(&batch, step, a->average, value, NULL);
        if (status != TRI_OK)
            status = TRII_FAIL_CTX(status, "%s", e->state[i].name);
    }
    return status == TRI_OK ? trii_update_record(&batch, step) : status;
}

/* Parameters are as they were, and each average goes to the device of its own. */
static tri_status prepare(const tri_ema *e)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < e->n && status == TRI_OK; i++) {
        const averaged *a = &e->list[i];

        status = trii_home_stays(a->param, a->home, "the average", e->state[i].name);
        if (status == TRI_OK && a->average->device != a->home->device)
            status = trii_tensor_send(a->average, a->home->device);
    }
    return status;
}

/* Runs what `record` recorded. */
static tri_status run(tri_ema *e, const char *call,
                      tri_status (*record)(tri_ema *e, trii_step *step))
{
    trii_step *step = trii_step_current();
    tri_status status;

    if (e == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: ema is NULL", call);
    if (step == NULL)
        return TRI_ERR_NO_MEMORY;
    status = prepare(e);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "%s", call);
    tri_no_grad_begin();
    status = record(e, step);
    tri_no_grad_end();
    status = status != TRI_OK ? TRII_FAIL_CTX(status, "%s", call) : trii_step_run(step);
    if (status == TRI_OK)
        return TRI_OK;
    trii_step_fail(step, status); /* some without the others must not run when the step ends */
    return trii_step_run(step);
}

tri_status tri_ema_update(tri_ema *e)
{
    tri_status status = run(e, "tri_ema_update", record_averages);

    if (status == TRI_OK)
        ++*(int64_t *)trii_tensor_data(e->n_averaged);
    return status;
}

static tri_status swap_homes(const tri_ema *e, trii_step *step)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < e->n && status == TRI_OK; i++) {
        trii_vid param, average;

        status = trii_resolve(step, e->list[i].home, &param);
        if (status == TRI_OK)
            status = trii_resolve(step, e->list[i].average, &average);
        if (status == TRI_OK)
            status = trii_record_values(step, &trii_op_copy, &param, 1, NULL, &param);
        if (status == TRI_OK)
            status = trii_record_values(step, &trii_op_copy, &average, 1, NULL, &average);
        if (status == TRI_OK)
            status = trii_bind(step, param, e->list[i].average);
        if (status == TRI_OK)
            status = trii_bind(step, average, e->list[i].home);
        if (status != TRI_OK)
            status = TRII_FAIL_CTX(status, "%s", e->state[i].name);
    }
    return status;
}

static tri_status record_swap(tri_ema *e, trii_step *step)
{
    tri_status status = swap_homes(e, step);

    for (int i = 0; i < e->n && status == TRI_OK; i++)
        trii_home_changed(e->list[i].param, e->list[i].home);
    for (int i = 0; i < e->n && status == TRI_OK; i++)
        status = trii_home_gather(e->list[i].param, e->list[i].home, step);
    for (int i = 0; i < e->n && status != TRI_OK; i++)
        status = trii_home_tell(e->list[i].param, e->list[i].home, status);
    return status;
}

tri_status tri_ema_swap(tri_ema *e)
{
    return run(e, "tri_ema_swap", record_swap);
}

int64_t tri_ema_state_count(const tri_ema *e)
{
    return e != NULL ? e->n + 1 : 0;
}

tri_state_entry tri_ema_state(const tri_ema *e, int64_t index)
{
    if (index < 0 || index >= tri_ema_state_count(e))
        return (tri_state_entry){0};
    return e->state[index];
}
