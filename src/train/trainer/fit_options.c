/*
 * fit_options.c - what the arguments of the four calls may be: all mistakes that can be seen before
 * anything is done.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/option.h"
#include "train/trainer/trainer_internal.h"

#define CALL trii_fit_call_name(t->call)

/* --- structs -------------------------------------------------------------- */

static tri_status check_reserved(const tri_trainer *t)
{
    const tri_fit_options *opt = t->opt;
    tri_status status = TRII_CHECK_RESERVED(tri_task, t->task);

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_fit_data, t->data);
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_fit_options, opt);
    if (status != TRI_OK || opt == NULL) /* which it never is */
        return status;
    status = trii_need(t->task, CALL, "task");
    if (status == TRI_OK)
        status = trii_need(t->data, CALL, "data");
    if (status == TRI_OK && t->call == TRII_PREDICT)
        status = trii_need(t->predictions_out, CALL, "predictions_out");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_loader_options, &t->data->loader);
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_fit_checkpoint_options, opt->checkpoint);
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_fit_early_stopping_options, opt->early_stopping);
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_fit_ema_options, opt->ema);
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_ddp_options, opt->ddp);
    return status == TRI_OK ? TRII_CHECK_RESERVED(tri_zero_options, opt->zero) : status;
}

static tri_status check_callbacks(const tri_trainer *t)
{
    const tri_fit_options *opt = t->opt;

    if (opt->n_callbacks < 0 || (opt->n_callbacks > 0 && opt->callbacks == NULL))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: n_callbacks %d, and callbacks is %s", CALL,
                         opt->n_callbacks, opt->callbacks == NULL ? "NULL" : "not NULL");
    for (int i = 0; i < opt->n_callbacks; i++) {
        const tri_callback *callback = opt->callbacks[i];
        tri_status status;

        if (callback == NULL || callback->cls == NULL || callback->cls->name == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: callback %d %s", CALL, i,
                             callback == NULL        ? "is NULL"
                             : callback->cls == NULL ? "has no class"
                                                     : "has a class without a name");
        status = TRII_CHECK_RESERVED(tri_callback, callback);
        if (status == TRI_OK)
            status = TRII_CHECK_RESERVED(tri_callback_class, callback->cls);
        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

/* It becomes a part of a path. */
static tri_status check_name(const tri_trainer *t, const char *what, const char *name)
{
    size_t length = strlen(name);

    if (length == 0 || length > 63 || name[0] == '.' ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != length)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: %s \"%.64s\": is a part of the run folder's name: 1 to 63 letters, "
                         "digits, '-', '_' and '.', not beginning with '.'",
                         CALL, what, name);
    return TRI_OK;
}

static tri_status check_task(const tri_trainer *t)
{
    const tri_task *task = t->task;
    const char *missing = task->name == NULL                            ? "name"
                          : task->model == NULL                         ? "model"
                          : t->call == TRII_FIT && !task->optimizer     ? "optimizer"
                          : t->call == TRII_FIT && !task->training_step ? "training_step"
                                                                        : NULL;

    if (missing != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: the task has no %s", CALL, missing);
    return check_name(t, "the task's name", task->name);
}

/* --- numbers -------------------------------------------------------------- */

static tri_status check_counts(const tri_trainer *t)
{
    const tri_fit_options *opt = t->opt;
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {
        {"max_epochs", opt->max_epochs},
        {"max_steps", opt->max_steps},
        {"min_epochs", opt->min_epochs},
        {"min_steps", opt->min_steps},
        {"devices", opt->devices},
        {"num_nodes", opt->num_nodes},
        {"limit_train_batches", opt->limit_train_batches},
        {"limit_val_batches", opt->limit_val_batches},
        {"limit_test_batches", opt->limit_test_batches},
        {"limit_predict_batches", opt->limit_predict_batches},
        {"overfit_batches", opt->overfit_batches},
        {"fast_dev_run", opt->fast_dev_run},
        {"val_check_interval", opt->val_check_interval},
        {"check_val_every_n_epoch", opt->check_val_every_n_epoch},
        {"accumulate_grad_batches", opt->accumulate_grad_batches},
        {"log_every_n_steps", opt->log_every_n_steps},
        {"batch_size of the data", t->data->batch_size},
        {"global_batch_size of the data", t->data->global_batch_size},
        {"val_batch_size of the data", t->data->val_batch_size},
    };

    for (size_t i = 0; i < TRII_COUNT_OF(counts); i++)
        if (counts[i].value < 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s: %s %" PRId64 ": is negative: 0 is the default, else a count",
                             CALL, counts[i].name, counts[i].value);
    if (opt->devices > 4096 || opt->num_nodes > 65536)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: devices %d, num_nodes %d: at most 4096 and 65536", CALL, opt->devices,
                         opt->num_nodes);
    return TRI_OK;
}

static tri_status check_reals(const tri_trainer *t)
{
    const tri_fit_options *opt = t->opt;
    const struct {
        const char *name;
        double value, max;
        int64_t count; /* of the same limit */
    } reals[] = {
        {"limit_train_share", opt->limit_train_share, 1, opt->limit_train_batches},
        {"limit_val_share", opt->limit_val_share, 1, opt->limit_val_batches},
        {"limit_test_share", opt->limit_test_share, 1, opt->limit_test_batches},
        {"limit_predict_share", opt->limit_predict_share, 1, opt->limit_predict_batches},
        {"max_time_s", opt->max_time_s, 1e9, 0},
        {"gradient_clip_val", opt->gradient_clip_val, 1e300, 0},
    };

    for (size_t i = 0; i < TRII_COUNT_OF(reals); i++) {
        if (!(reals[i].value >= 0 && reals[i].value <= reals[i].max))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s %g: must be 0 (the default) to %g", CALL,
                             reals[i].name, reals[i].value, reals[i].max);
        if (reals[i].value > 0 && reals[i].count > 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s: %s %g and a limit in batches, %" PRId64 ": give one of the two",
                             CALL, reals[i].name, reals[i].value, reals[i].count);
    }
    return TRI_OK;
}

/* Options of one strategy are not read under another. */
static tri_status check_strategy(tri_trainer *t)
{
    const tri_fit_options *opt = t->opt;
    const char *name = opt->strategy != NULL ? opt->strategy : "auto";
    tri_status status = trii_fit_strategy(opt->strategy, CALL, &t->set.strategy);
    int stage;

    if (status != TRI_OK)
        return status;
    if (opt->ddp != NULL && opt->zero != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: options of tri_ddp (ddp) and of tri_zero (zero): give one of them",
                         CALL);
    if (t->set.strategy == TRII_STRATEGY_AUTO && opt->zero != NULL)
        return trii_fit_zero_stage(opt->zero->stage, CALL, &t->set.strategy);
    stage = trii_strategy_stage(t->set.strategy);
    if (stage > 0 && opt->ddp != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: options of tri_ddp (ddp) with strategy \"%s\": give those of "
                         "tri_zero (zero), which has the same and more",
                         CALL, name);
    if (stage == 0 && opt->zero != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: options of tri_zero (zero) with strategy \"%s\": use \"zero1\", "
                         "\"zero2\" or \"zero3\"",
                         CALL, name);
    if (stage > 0 && opt->zero != NULL && opt->zero->stage != 0 && opt->zero->stage != stage)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: zero->stage %d with strategy \"%s\", which is stage %d: leave one "
                         "of them out",
                         CALL, opt->zero->stage, name, stage);
    return TRI_OK;
}

/* What the trainer cannot do where each rank has a part of the state. */
static tri_status check_sharded(const tri_trainer *t)
{
    const tri_fit_options *opt = t->opt;

    if (opt->zero != NULL && opt->zero->mesh != NULL)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: zero->mesh: the trainer divides over all ranks of zero->group, or of "
                         "the world: leave the mesh out, or call tri_zero in a loop of your own",
                         CALL);
    if (t->call == TRII_FIT && trii_strategy_stage(t->set.strategy) > 0 &&
        opt->checkpoint != NULL && opt->checkpoint->on_exception)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: checkpoint->on_exception with strategy \"%s\": ranks save "
                         "together, which those of a fit that has failed cannot: set "
                         "every_n_train_steps, so that little is lost, or use \"ddp\"",
                         CALL, trii_fit_strategy_name(t->set.strategy));
    return TRI_OK;
}

static tri_status check_texts(tri_trainer *t)
{
    const tri_fit_options *opt = t->opt;
    const char *clip = opt->gradient_clip_algorithm;
    tri_status status = trii_fit_accelerator(opt->accelerator, CALL);

    if (status == TRI_OK)
        status = check_strategy(t);
    if (status == TRI_OK)
        status = check_sharded(t);
    if (status == TRI_OK)
        status = trii_fit_precision(opt->precision, CALL, &t->set.precision);
    if (status != TRI_OK)
        return status;
    if (clip != NULL && strcmp(clip, "norm") != 0 && strcmp(clip, "value") != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: gradient_clip_algorithm \"%.64s\": there are \"norm\" and \"value\"",
                         CALL, clip);
    t->set.clip_value = clip != NULL && strcmp(clip, "value") == 0;
    if (opt->default_root_dir != NULL && (opt->default_root_dir[0] == '\0' ||
                                          strlen(opt->default_root_dir) > TRI_FIT_PATH_BYTES - 256))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: default_root_dir: a path of %zu bytes: must be 1 to %d", CALL,
                         strlen(opt->default_root_dir), TRI_FIT_PATH_BYTES - 256);
    if (opt->ckpt_path != NULL && opt->ckpt_path[0] == '\0')
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: ckpt_path is empty: \"last\", \"best\" or a folder, or NULL", CALL);
    return opt->run_name != NULL ? check_name(t, "run_name", opt->run_name) : TRI_OK;
}

/* --- how they fit --------------------------------------------------------- */

static tri_status check_limits(const tri_trainer *t)
{
    const tri_fit_options *opt = t->opt;

    if (opt->max_epochs == 0 && opt->max_steps == 0 && opt->max_time_s == 0 &&
        opt->fast_dev_run == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: no limit: set max_epochs, max_steps or max_time_s (there is no "
                         "default, as Lightning's 1000 epochs)",
                         CALL);
    if (opt->max_epochs > 0 && opt->min_epochs > opt->max_epochs)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: min_epochs %" PRId64 " is more than max_epochs %" PRId64, CALL,
                         opt->min_epochs, opt->max_epochs);
    if (opt->max_steps > 0 && opt->min_steps > opt->max_steps)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: min_steps %" PRId64 " is more than max_steps %" PRId64, CALL,
                         opt->min_steps, opt->max_steps);
    return TRI_OK;
}

/* The set that the call is about. */
static tri_status check_set(const tri_trainer *t, const char *name, const tri_dataset *set,
                            bool required)
{
    if (set == NULL && required)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: the data have no %s", CALL, name);
    if (set != NULL && tri_dataset_length(set) < 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s: the data set has no samples%s", CALL, name,
                         required ? "" : ": leave it out");
    return TRI_OK;
}

static tri_status check_data(const tri_trainer *t)
{
    const tri_fit_data *data = t->data;
    tri_status status = TRI_OK;

    if (t->call == TRII_FIT)
        status = check_set(t, "train", data->train, true);
    if (status == TRI_OK && t->call != TRII_TEST && t->call != TRII_PREDICT)
        status = check_set(t, "val", data->val, t->call == TRII_VALIDATE);
    if (status == TRI_OK && t->call == TRII_TEST)
        status = check_set(t, "test", data->test, true);
    if (status == TRI_OK && t->call == TRII_PREDICT)
        status = check_set(t, "predict", data->predict, true);
    if (status != TRI_OK)
        return status;
    if (data->batch_size == 0 && data->global_batch_size == 0 &&
        (t->call == TRII_FIT || data->val_batch_size == 0))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: the data have no batch_size (samples of one rank) and no "
                         "global_batch_size (samples of an update): set one",
                         CALL);
    return TRI_OK;
}

static tri_status check_steps(const tri_trainer *t)
{
    const tri_task *task = t->task;

    if (t->call == TRII_FIT || t->call == TRII_PREDICT || task->training_step != NULL)
        return TRI_OK;
    if (task->validation_step == NULL && (t->call == TRII_VALIDATE || task->test_step == NULL))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: the task has neither %s nor training_step", CALL,
                         t->call == TRII_VALIDATE ? "validation_step"
                                                  : "test_step, validation_step");
    return TRI_OK;
}

static tri_status check_validation(const tri_trainer *t)
{
    const tri_fit_options *opt = t->opt;
    int64_t sanity = 0;
    tri_status status =
        trii_option_whole(opt->num_sanity_val_steps, "num_sanity_val_steps", 2, &sanity);

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "%s", CALL);
    if (sanity < -1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: num_sanity_val_steps %" PRId64 ": is -1 (all), 0 (none) or a count",
                         CALL, sanity);
    if (opt->overfit_batches > 0 && (opt->limit_train_batches > 0 || opt->limit_train_share > 0 ||
                                     opt->limit_val_batches > 0 || opt->limit_val_share > 0))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: overfit_batches %" PRId64 " limits training and validation: leave "
                         "limit_train_.. and limit_val_.. out",
                         CALL, opt->overfit_batches);
    return TRI_OK;
}

static int64_t or_default(int64_t value, int64_t fallback)
{
    return value > 0 ? value : fallback;
}

static void take_defaults(tri_trainer *t)
{
    const tri_fit_options *opt = t->opt;
    trii_fit_settings *set = &t->set;
    tri_status status = trii_option_whole(opt->num_sanity_val_steps, "", 2, &set->sanity);

    (void)status; /* checked before */
    set->accumulate = or_default(opt->accumulate_grad_batches, 1);
    set->log_every = or_default(opt->log_every_n_steps, 50);
    set->check_every_epoch = or_default(opt->check_val_every_n_epoch, 1);
    set->max_epochs = or_default(opt->max_epochs, -1);
    set->max_steps = or_default(opt->max_steps, -1);
    if (opt->fast_dev_run > 0) {
        set->max_epochs = 1;
        set->sanity = 0;
    }
}

tri_status trii_fit_check(tri_trainer *t)
{
    tri_status status = check_reserved(t);

    if (status == TRI_OK)
        status = check_task(t);
    if (status == TRI_OK)
        status = check_callbacks(t);
    if (status == TRI_OK)
        status = check_counts(t);
    if (status == TRI_OK)
        status = check_reals(t);
    if (status == TRI_OK)
        status = check_texts(t);
    if (status == TRI_OK && t->call == TRII_FIT)
        status = check_limits(t);
    if (status == TRI_OK)
        status = check_data(t);
    if (status == TRI_OK)
        status = check_steps(t);
    if (status == TRI_OK)
        status = check_validation(t);
    if (status == TRI_OK)
        take_defaults(t);
    return status;
}
