/*
 * remote_apply.c - tri_remote_apply: functions that run on another worker. What is known of one
 * (its session) is kept until the worker that called it leaves: it is an object of that worker.
 */
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/err.h"
#include "train/nn/module.h"
#include "train/parallel/rpc/remote_internal.h"

static trii_mutex table_lock = TRII_MUTEX_INITIALIZER;
static trii_remote *table;

static void forget(void *object)
{
    trii_remote *remote = object, **at = &table;

    trii_mutex_lock(&table_lock);
    while (*at != NULL && *at != remote)
        at = &(*at)->next;
    if (*at != NULL)
        *at = remote->next;
    trii_mutex_unlock(&table_lock);
    trii_remote_unref(remote);
}
static const tri_rpc_object known_type = {.name = "remote function", .release = forget};

/* A reference; locked. */
static tri_status make(tri_rpc *rpc, const char *name, const tri_remote_function *function,
                       trii_remote **remote_out)
{
    static uint64_t made;
    char own_name[64];
    trii_remote *remote = NULL;
    tri_rpc_ref *ref = NULL;
    tri_status status = trii_remote_create(rpc, name, 0, &remote);

    if (status != TRI_OK)
        return status;
    remote->function = function;
    snprintf(own_name, sizeof(own_name), "remote_apply:%llu", (unsigned long long)++made);
    status = tri_rpc_own(rpc, own_name, &known_type, remote, &ref);
    if (status != TRI_OK) {
        trii_remote_unref(remote);
        return status;
    }
    tri_rpc_ref_unref(ref); /* its name keeps it until the worker leaves */
    remote->next = table;
    table = remote;
    *remote_out = remote;
    return TRI_OK;
}

static tri_status find(tri_rpc *rpc, const char *worker, const tri_remote_function *function,
                       trii_remote **remote_out)
{
    char name[2 * TRII_REMOTE_NAME];
    trii_remote *remote;
    tri_status status = TRI_OK;

    if (snprintf(name, sizeof(name), "%s/%s", worker, function->name) >= (int)sizeof(name))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "the names of worker and function are too long");
    trii_mutex_lock(&table_lock);
    remote = table;
    while (remote != NULL &&
           (remote->rpc != rpc || remote->function != function || strcmp(remote->name, name) != 0))
        remote = remote->next;
    if (remote == NULL)
        status = make(rpc, name, function, &remote);
    if (status == TRI_OK) {
        atomic_fetch_add(&remote->refs, 1);
        *remote_out = remote;
    }
    trii_mutex_unlock(&table_lock);
    return status;
}

/* --- types ---------------------------------------------------------------- */

static tri_function_array array_of(const trii_type *type)
{
    tri_function_array array = {.dtype = type->dtype, .ndim = type->ndim};

    for (int d = 0; d < type->ndim; d++)
        array.shape[d] = type->shape[d];
    return array;
}

static tri_status take_type(const char *name, int o, const tri_function_array *array,
                            trii_type *type)
{
    trii_remote_type wire = {.dtype = (int32_t)array->dtype, .ndim = array->ndim};
    tri_device device = type->device;
    tri_status status = TRI_OK;

    if (array->dtype == TRI_DTYPE_NONE || array->ndim < 0 || array->ndim > TRI_MAX_DIMS)
        status = TRI_ERR_INVALID_ARG;
    for (int d = 0; d < array->ndim && status == TRI_OK; d++)
        wire.shape[d] = array->shape[d];
    if (status != TRI_OK || trii_remote_type_get(&wire, type) != TRI_OK)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "shape of %s has set no type for result %d that can be", name, o);
    type->device = device;
    return TRI_OK;
}

static tri_status call_shape(const tri_remote_function *function, const void *data,
                             trii_remote_answer *a)
{
    tri_function_array in[TRI_REMOTE_TENSORS] = {{0}}, out[TRI_REMOTE_TENSORS] = {{0}};
    const tri_function_call call = {
        .data = data, .n_in = a->n_in, .n_out = a->n_out, .in = in, .out = out};
    unsigned lines = trii_err_lines();
    tri_status status;

    for (int i = 0; i < a->n_in; i++)
        in[i] = array_of(&a->in[i]);
    status = function->shape(&call, out);
    if (status != TRI_OK && trii_err_lines() == lines)
        trii_err_set("it returned %s, and no reason (tri_status_fail gives one)",
                     tri_status_name(status));
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status < 0 ? status : TRI_ERR_INVALID_ARG, "shape of %s",
                             function->name);
    for (int o = 0; o < a->n_out && status == TRI_OK; o++) {
        status = take_type(function->name, o, &out[o], &a->out[o]);
        if (status == TRI_OK && a->requires_grad != 0 && trii_dtype_is_float(a->out[o].dtype))
            a->out_requires_grad |= (uint64_t)1 << o;
    }
    a->n_random = 1;
    return status;
}

/* --- recording ------------------------------------------------------------ */

static tri_status apply(trii_remote *remote, trii_step *step, const void *data,
                        tri_tensor *const *in, int n_in, trii_vid *out, int n_out)
{
    trii_remote_answer answer;
    trii_vid ids[TRI_REMOTE_TENSORS];
    tri_status status = trii_remote_check_counts(remote, n_in, n_out);

    if (status == TRI_OK)
        status = trii_remote_describe(step, in, n_in, n_out, ids, &answer);
    if (status == TRI_OK)
        status = call_shape(remote->function, data, &answer);
    return status == TRI_OK ? trii_remote_record(remote, step, ids, n_in, data, &answer, out)
                            : status;
}

void(tri_remote_apply)(tri_rpc *rpc, const char *worker, const tri_remote_function *function,
                       const void *data, tri_tensor *const *in, int n_in, tri_tensor **out,
                       int n_out)
{
    trii_step *step = trii_step_current();
    trii_vid ids[TRI_REMOTE_TENSORS];
    trii_remote *remote = NULL;
    tri_status status = trii_remote_function_check(function, "remote_apply");

    if (out == NULL || n_out < 0)
        return; /* there is nowhere to report it */
    if (status == TRI_OK)
        status = trii_need_text(worker, "remote_apply", "worker");
    if (status == TRI_OK && n_in > 0)
        status = trii_need(in, "remote_apply", "in");
    if (status == TRI_OK && function->size > 0)
        status = trii_need(data, "remote_apply", "data");
    if (status == TRI_OK && step == NULL)
        status = TRI_ERR_NO_MEMORY;
    if (status == TRI_OK)
        status = find(rpc, worker, function, &remote);
    if (status == TRI_OK) {
        status = apply(remote, step, data, in, n_in, ids, n_out);
        trii_remote_unref(remote);
    }
    if (status != TRI_OK)
        status = TRII_FAIL_CTX(status, "tri_remote_apply");
    for (int o = 0; o < n_out; o++)
        out[o] =
            status == TRI_OK ? trii_handle_recorded(step, ids[o]) : trii_forward_failed(status);
}
