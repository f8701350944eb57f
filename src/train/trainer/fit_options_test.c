/* fit_options_test.c - every bad option is an error that names it, its value and what to do. */
#include "testing/fit_problem.h"

/* One change to good arguments. */
typedef struct mistake {
    void (*make)(tri_task *task, tri_fit_data *data, tri_fit_options *opt);
    tri_status status;
    const char *says;
} mistake;

static fit_samples samples;

#define MISTAKE(name, change)                                                                      \
    static void name(tri_task *task, tri_fit_data *data, tri_fit_options *opt)                     \
    {                                                                                              \
        (void)task, (void)data, (void)opt;                                                         \
        change;                                                                                    \
    }

static tri_dataset empty = {.length = 0};
static tri_callback nameless = {0};
static tri_callback *const nothing[] = {NULL}, *const classless[] = {&nameless};

MISTAKE(no_name, task->name = NULL)
MISTAKE(bad_name, task->name = "a/b")
MISTAKE(no_model, task->model = NULL)
MISTAKE(no_optimizer, task->optimizer = NULL)
MISTAKE(no_step, task->training_step = NULL)
MISTAKE(no_train, data->train = NULL)
MISTAKE(empty_val, data->val = &empty)
MISTAKE(no_batch, data->batch_size = 0)
MISTAKE(negative_batch, data->batch_size = -1)
MISTAKE(odd_global,
        (data->global_batch_size = 7, data->batch_size = 0, opt->accumulate_grad_batches = 2))
MISTAKE(two_sizes, data->global_batch_size = 6)
MISTAKE(no_limit, opt->max_epochs = 0)
MISTAKE(negative_epochs, opt->max_epochs = -1)
MISTAKE(min_above_max, opt->min_epochs = 3)
MISTAKE(min_steps_above, (opt->max_steps = 4, opt->min_steps = 5))
MISTAKE(bad_time, opt->max_time_s = -1)
MISTAKE(nan_time, opt->max_time_s = (double)NAN)
MISTAKE(share_above, opt->limit_val_share = 1.5)
MISTAKE(both_limits, (opt->limit_train_share = 0.5, opt->limit_train_batches = 2))
MISTAKE(overfit_and_limit, (opt->overfit_batches = 1, opt->limit_val_batches = 2))
MISTAKE(sanity_below, opt->num_sanity_val_steps = TRI_SET(-2))
MISTAKE(sanity_broken, opt->num_sanity_val_steps = TRI_SET(0.5))
MISTAKE(negative_interval, opt->val_check_interval = -1)
MISTAKE(both_intervals, (opt->val_check_interval = 100, opt->check_val_every_n_epoch = 2))
MISTAKE(negative_clip, opt->gradient_clip_val = -1)
MISTAKE(bad_clip, opt->gradient_clip_algorithm = "l2")
MISTAKE(bad_accelerator, opt->accelerator = "gpx")
MISTAKE(no_gpu, opt->accelerator = "cuda")
MISTAKE(misspelt, opt->strategy = "dpd")
MISTAKE(unknown, opt->strategy = "horovod_on_mars")
MISTAKE(sharded, opt->strategy = "fsdp")
MISTAKE(deepspeed, opt->strategy = "deepspeed_stage_2")
MISTAKE(true_16, opt->precision = "16-true")
MISTAKE(true_bf16, opt->precision = "bf16-true")
MISTAKE(engine, opt->precision = "transformer-engine")
MISTAKE(precision_slip, opt->precision = "bf16-mixd")
MISTAKE(negative_devices, opt->devices = -1)
MISTAKE(many_devices, opt->devices = 5000)
MISTAKE(single_of_two, (opt->devices = 2, opt->strategy = "single"))
MISTAKE(nodes, opt->num_nodes = 2)
MISTAKE(bad_run_name, opt->run_name = "../x")
MISTAKE(empty_root, opt->default_root_dir = "")
MISTAKE(empty_ckpt, opt->ckpt_path = "")
MISTAKE(missing_ckpt, opt->ckpt_path = "/nowhere/at/all")
MISTAKE(null_callback, (opt->callbacks = nothing, opt->n_callbacks = 1))
MISTAKE(no_class, (opt->callbacks = classless, opt->n_callbacks = 1))
MISTAKE(no_callbacks, opt->n_callbacks = 1)
MISTAKE(newer, opt->reserved[0] = 1)
MISTAKE(newer_task, task->reserved[0] = 1)
MISTAKE(newer_loader, data->loader.reserved[0] = 1)

static const mistake mistakes[] = {
    {no_name, TRI_ERR_INVALID_ARG, "the task has no name"},
    {bad_name, TRI_ERR_INVALID_ARG, "the task's name \"a/b\": is a part of the run folder's name"},
    {no_model, TRI_ERR_INVALID_ARG, "the task has no model"},
    {no_optimizer, TRI_ERR_INVALID_ARG, "the task has no optimizer"},
    {no_step, TRI_ERR_INVALID_ARG, "the task has no training_step"},
    {no_train, TRI_ERR_INVALID_ARG, "the data have no train"},
    {empty_val, TRI_ERR_INVALID_ARG, "val: the data set has no samples: leave it out"},
    {no_batch, TRI_ERR_INVALID_ARG, "no batch_size (samples of one rank) and no global_batch_size"},
    {negative_batch, TRI_ERR_INVALID_ARG, "batch_size of the data -1: is negative"},
    {odd_global, TRI_ERR_INVALID_ARG,
     "global_batch_size 7 is not a multiple of 2, the 1 ranks x 2 batches of an update: 8 would"},
    {two_sizes, TRI_ERR_INVALID_ARG,
     "batch_size 4 x 1 ranks x 1 batches of an update is 4, and global_batch_size is 6"},
    {no_limit, TRI_ERR_INVALID_ARG, "no limit: set max_epochs, max_steps or max_time_s"},
    {negative_epochs, TRI_ERR_INVALID_ARG, "max_epochs -1: is negative: 0 is the default"},
    {min_above_max, TRI_ERR_INVALID_ARG, "min_epochs 3 is more than max_epochs 2"},
    {min_steps_above, TRI_ERR_INVALID_ARG, "min_steps 5 is more than max_steps 4"},
    {bad_time, TRI_ERR_INVALID_ARG, "max_time_s -1: must be 0 (the default) to 1e+09"},
    {nan_time, TRI_ERR_INVALID_ARG, "max_time_s"},
    {share_above, TRI_ERR_INVALID_ARG, "limit_val_share 1.5: must be 0 (the default) to 1"},
    {both_limits, TRI_ERR_INVALID_ARG,
     "limit_train_share 0.5 and a limit in batches, 2: give one of the two"},
    {overfit_and_limit, TRI_ERR_INVALID_ARG, "overfit_batches 1 limits training and validation"},
    {sanity_below, TRI_ERR_INVALID_ARG, "num_sanity_val_steps -2: is -1 (all), 0 (none) or a"},
    {sanity_broken, TRI_ERR_INVALID_ARG, "num_sanity_val_steps"},
    {negative_interval, TRI_ERR_INVALID_ARG, "val_check_interval -1: is negative"},
    {both_intervals, TRI_ERR_INVALID_ARG,
     "val_check_interval 100 is more than the 3 batches of an epoch and is counted over epochs"},
    {negative_clip, TRI_ERR_INVALID_ARG, "gradient_clip_val -1: must be 0"},
    {bad_clip, TRI_ERR_INVALID_ARG, "gradient_clip_algorithm \"l2\": there are \"norm\" and"},
    {bad_accelerator, TRI_ERR_INVALID_ARG, "accelerator \"gpx\": there are \"auto\", \"cpu\""},
    {no_gpu, TRI_ERR_UNSUPPORTED, "accelerator \"cuda\": this build has \"cpu\" alone"},
    {misspelt, TRI_ERR_INVALID_ARG, "strategy \"dpd\": did you mean \"ddp\"?"},
    {unknown, TRI_ERR_INVALID_ARG,
     "strategy \"horovod_on_mars\": there are \"auto\", \"single\", \"ddp\", \"data_parallel\""},
    {sharded, TRI_ERR_UNSUPPORTED, "strategy \"fsdp\": parameters and optimizer states are not"},
    {deepspeed, TRI_ERR_UNSUPPORTED, "strategy \"deepspeed_stage_2\": parameters"},
    {true_16, TRI_ERR_UNSUPPORTED, "use \"16-mixed\""},
    {true_bf16, TRI_ERR_UNSUPPORTED, "use \"bf16-mixed\""},
    {engine, TRI_ERR_UNSUPPORTED, "needs a GPU"},
    {precision_slip, TRI_ERR_INVALID_ARG, "did you mean \"bf16-mixed\"?"},
    {negative_devices, TRI_ERR_INVALID_ARG, "devices -1: is negative"},
    {many_devices, TRI_ERR_INVALID_ARG, "devices 5000, num_nodes 0: at most 4096"},
    {single_of_two, TRI_ERR_INVALID_ARG, "strategy \"single\" with devices 2"},
    {nodes, TRI_ERR_INVALID_ARG, "trirun --nnodes 2 --nproc-per-node 1"},
    {bad_run_name, TRI_ERR_INVALID_ARG, "run_name \"../x\": is a part of the run folder's name"},
    {empty_root, TRI_ERR_INVALID_ARG, "default_root_dir: a path of 0 bytes"},
    {empty_ckpt, TRI_ERR_INVALID_ARG, "ckpt_path is empty"},
    {missing_ckpt, TRI_ERR_NOT_FOUND, "/nowhere/at/all"},
    {null_callback, TRI_ERR_INVALID_ARG, "callback 0 is NULL"},
    {no_class, TRI_ERR_INVALID_ARG, "callback 0 has no class"},
    {no_callbacks, TRI_ERR_INVALID_ARG, "n_callbacks 1, and callbacks is NULL"},
    {newer, TRI_ERR_INVALID_ARG, "tri_fit_options"},
    {newer_task, TRI_ERR_INVALID_ARG, "tri_task"},
    {newer_loader, TRI_ERR_INVALID_ARG, "tri_loader_options"},
};

static void every_mistake_is_named_with_its_remedy(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&samples, 10, 1);
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        tri_task task = fit_task;
        tri_fit_data data = {.train = samples.dataset, .batch_size = 4};
        tri_fit_options opt = fit_quiet(s.dir);
        fit_arg arg = {.lr = 0.1};
        tri_status status;

        opt.max_epochs = 2;
        mistakes[i].make(&task, &data, &opt);
        status = tri_fit(&task, &data, &opt, &arg, NULL);
        if (status != mistakes[i].status || strstr(tri_last_error(), mistakes[i].says) == NULL)
            fail_msg("mistake %zu (%s): %s: %s", i, mistakes[i].says, tri_status_name(status),
                     tri_last_error());
        if (strncmp(tri_last_error(), "tri_", 4) != 0)
            fail_msg("mistake %zu does not name the call: %s", i, tri_last_error());
        assert_int_equal(arg.seen, 0);
    }
    tri_dataset_destroy(samples.dataset);
    scratch_end(&s);
}

/* What is no mistake: Lightning's names, and the limits. */
static void names_of_others_are_taken(void **state)
{
    static const char *const strategies[] = {NULL,       "auto",
                                             "single",   "single_device",
                                             "ddp",      "ddp_spawn",
                                             "ddp_fork", "data_parallel",
                                             "dp",       "ddp_find_unused_parameters_true"};
    static const char *const precisions[] = {NULL,       "32", "32-true", "bf16",    "bf16-mixed",
                                             "16-mixed", "16", "64",      "64-true", "auto"};
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&samples, 10, 1);
    for (size_t i = 0; i < 20; i++) {
        tri_fit_options opt = fit_quiet(s.dir);
        fit_arg arg = {.lr = 0.1};
        tri_fit_result result;

        if (i < 10)
            opt.strategy = strategies[i];
        else
            opt.precision = precisions[i - 10];
        opt.accelerator = i % 2 == 0 ? "cpu" : "auto";
        opt.fast_dev_run = 2;
        CHECK_OK(tri_fit(&fit_task, &(tri_fit_data){.train = samples.dataset, .batch_size = 4},
                         &opt, &arg, &result));
        assert_int_equal(result.steps, 2);
        assert_int_equal(result.epochs, 1);
        assert_string_equal(result.run_dir, ""); /* it leaves nothing */
    }
    assert_int_equal(scratch_count(s.dir), 0);
    tri_dataset_destroy(samples.dataset);
    scratch_end(&s);
}

/* Only the call that needs a part asks for it. */
static void each_call_asks_for_what_it_needs(void **state)
{
    tri_task task = fit_task;
    tri_fit_options opt;
    tri_tensor *all;
    fit_arg arg = {.lr = 0.1};
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&samples, 10, 1);
    opt = fit_quiet(s.dir);
    CHECK_FAILS(tri_validate(&task, &(tri_fit_data){.batch_size = 4}, &opt, &arg, NULL),
                TRI_ERR_INVALID_ARG, "tri_validate: the data have no val");
    CHECK_FAILS(tri_test(&task, &(tri_fit_data){.batch_size = 4}, &opt, &arg, NULL),
                TRI_ERR_INVALID_ARG, "tri_test: the data have no test");
    CHECK_FAILS(tri_predict(&task, &(tri_fit_data){.batch_size = 4}, &opt, &arg, &all),
                TRI_ERR_INVALID_ARG, "tri_predict: the data have no predict");
    CHECK_FAILS(tri_predict(&task, &(tri_fit_data){.predict = samples.dataset}, &opt, &arg, NULL),
                TRI_ERR_INVALID_ARG, "tri_predict: predictions_out is NULL");
    task.optimizer = NULL;
    CHECK_OK(tri_validate(&task, &(tri_fit_data){.val = samples.dataset, .val_batch_size = 4}, &opt,
                          &arg, NULL));
    task.training_step = NULL;
    CHECK_FAILS(tri_test(&task, &(tri_fit_data){.test = samples.dataset, .batch_size = 4}, &opt,
                         &arg, NULL),
                TRI_ERR_INVALID_ARG, "neither test_step, validation_step nor training_step");
    CHECK_FAILS(tri_fit(NULL, NULL, NULL, NULL, NULL), TRI_ERR_INVALID_ARG, "task is NULL");
    tri_dataset_destroy(samples.dataset);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_mistake_is_named_with_its_remedy),
    cmocka_unit_test(names_of_others_are_taken),
    cmocka_unit_test(each_call_asks_for_what_it_needs),
};
TEST_MAIN(tests)
