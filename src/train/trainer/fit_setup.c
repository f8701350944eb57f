/*
 * fit_setup.c - what a fit needs before its first batch: network, optimizer, data, folder.
 */
#include <string.h>

#include <trireme/data_parallel.h>
#include <trireme/sync_batch_norm.h>

#include "train/trainer/log_book.h"
#include "train/trainer/trainer_policy.h"

#define CALL trii_fit_call_name(t->call)

/* --- precision ------------------------------------------------------------ */

/* Of ranks on processors that differ rank 0 decides for all. */
static tri_status choose_precision(tri_trainer *t)
{
    double quick = t->rank == 0 && tri_is_bf16_fast() ? 1 : 0;
    tri_status status = TRI_OK;

    if (t->set.precision == TRII_PRECISION_AUTO) {
        status = trii_fit_max(t, &quick, 1);
        t->set.precision = quick > 0 ? TRII_PRECISION_BF16 : TRII_PRECISION_32;
    }
    t->autocast = t->set.precision == TRII_PRECISION_BF16 || t->set.precision == TRII_PRECISION_16;
    t->autocast_dtype = t->set.precision == TRII_PRECISION_16 ? TRI_DTYPE_F16 : TRI_DTYPE_BF16;
    return status;
}

/* --- the network ---------------------------------------------------------- */

/* Asking how many there are settles it, so that comes second. */
static tri_status make_devices(const tri_trainer *t)
{
    tri_status status = t->opt->devices > 0 ? tri_cpu_devices_set(t->opt->devices) : TRI_OK;

    if (status == TRI_OK || t->opt->devices <= tri_device_count(TRI_DEVICE_CPU))
        return TRI_OK;
    return TRII_FAIL_CTX(status, "%s: devices %d of strategy \"data_parallel\"", CALL,
                         t->opt->devices);
}

static tri_module *wrap_zero(const tri_trainer *t, tri_module *net)
{
    tri_zero_options zero = t->opt->zero != NULL ? *t->opt->zero : (tri_zero_options){0};

    zero.group = t->group;
    zero.stage = trii_strategy_stage(t->set.strategy);
    return tri_zero(net, &zero);
}

static tri_module *wrap(tri_trainer *t, tri_module *net)
{
    tri_ddp_options ddp = t->opt->ddp != NULL ? *t->opt->ddp : (tri_ddp_options){0};
    tri_device devices[TRI_MAX_DEVICES];

    if (t->opt->sync_batchnorm && t->size > 1)
        (void)tri_convert_sync_batch_norm(net, t->group);
    if (t->set.strategy == TRII_STRATEGY_DATA_PARALLEL) {
        for (int d = 0; d < t->opt->devices; d++)
            devices[d] = TRI_CPU(d);
        return tri_data_parallel(
            net, t->opt->devices > 0 ? &(tri_data_parallel_options){.device_ids = devices,
                                                                    .n_devices = t->opt->devices}
                                     : NULL);
    }
    t->is_ddp = t->size > 1;
    if (trii_fit_is_sharded(t))
        return wrap_zero(t, net);
    ddp.group = t->group;
    return t->is_ddp ? tri_ddp(net, &ddp) : net;
}

static tri_status make_model(tri_trainer *t)
{
    tri_dtype before = tri_default_dtype();
    tri_module *net;
    tri_status status = TRI_OK;

    if (t->set.strategy == TRII_STRATEGY_DATA_PARALLEL)
        status = make_devices(t);
    if (status != TRI_OK)
        return status;
    tri_manual_seed(t->opt->seed);
    if (t->set.precision == TRII_PRECISION_64)
        tri_set_default_dtype(TRI_DTYPE_F64);
    net = t->task->model(t->arg);
    tri_set_default_dtype(before);
    if (net == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: model() of the task returned NULL", CALL);
    t->model = wrap(t, net);
    status = tri_module_status(t->model);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "%s", CALL);
}

static tri_status make_optimizer(tri_trainer *t)
{
    tri_status status = TRI_OK;

    t->optimizer = t->task->optimizer(t->model, t->arg);
    if (t->optimizer == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: optimizer() of the task returned NULL", CALL);
    status = tri_optimizer_status(t->optimizer);
    t->lr = tri_optimizer_lr(t->optimizer);
    if (status == TRI_OK && t->set.precision == TRII_PRECISION_16)
        status = tri_grad_scaler_create(NULL, &t->scaler);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "%s", CALL);
}

/* --- how long ------------------------------------------------------------- */

static int64_t count_steps(const tri_trainer *t)
{
    int64_t per_epoch = (t->train.n_batches - 1) / t->set.accumulate + 1, by_epochs;

    if (t->set.max_epochs < 0)
        return t->set.max_steps;
    by_epochs =
        t->set.max_epochs > INT64_MAX / per_epoch ? INT64_MAX : t->set.max_epochs * per_epoch;
    return t->set.max_steps > 0 && t->set.max_steps < by_epochs ? t->set.max_steps : by_epochs;
}

/* --- all of it ------------------------------------------------------------ */

static tri_status set_up_fit(tri_trainer *t)
{
    tri_status status;

    t->total_steps = count_steps(t);
    status = trii_policy_create(t);
    if (status == TRI_OK)
        status = trii_early_create(t);
    return status == TRI_OK ? trii_average_create(t) : status;
}

tri_status trii_fit_set_up(tri_trainer *t)
{
    tri_status status = choose_precision(t);

    if (status == TRI_OK)
        status = make_model(t);
    if (status == TRI_OK && t->call == TRII_FIT)
        status = make_optimizer(t);
    if (status == TRI_OK) {
        status = trii_fit_open_data(t);
        if (status != TRI_OK && strncmp(tri_last_error(), "tri_", 4) != 0)
            trii_err_prepend("%s", CALL);
    }
    if (status == TRI_OK)
        status = trii_resume_choose_folder(t);
    if (status == TRI_OK && t->call == TRII_FIT)
        status = set_up_fit(t);
    if (status == TRI_OK)
        status = trii_resume_load(t);
    if (status == TRI_OK)
        status = trii_book_create(t);
    return status == TRI_OK ? trii_resume_finish(t) : status;
}

void trii_fit_take_down(tri_trainer *t)
{
    tri_progress_destroy(t->progress);
    trii_resume_drop(t);
    trii_book_destroy(t->book);
    trii_average_destroy(t);
    trii_early_destroy(t);
    trii_policy_destroy(t->policy);
    trii_fit_close_data(t);
    tri_grad_scaler_destroy(t->scaler);
    tri_optimizer_destroy(t->optimizer);
    tri_module_destroy(t->model);
    trii_state_clear(&t->saves);
    trii_state_clear(&t->loaded);
}
