/* fit_options_test.c - every bad option is an error that names it, its value and what to do. */
#include "testing/fit_problem.h"
#include "train/trainer/trainer_internal.h"

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
static const tri_ddp_options no_ddp;
static const tri_zero_options stage_2 = {.stage = 2}, stage_7 = {.stage = 7};
static const tri_zero_options newer_zero_options = {.reserved = {1}};
static tri_zero_options with_mesh; /* the test's */
static const tri_fit_checkpoint_options on_exception = {.on_exception = true};
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
MISTAKE(zero_slip, opt->strategy = "zero_2")
MISTAKE(stage_slip, opt->strategy = "deepspeed_stage2")
MISTAKE(hybrid, opt->strategy = "HYBRID_SHARD")
MISTAKE(hsdp, opt->strategy = "hsdp")
MISTAKE(to_disk, opt->strategy = "deepspeed_stage_3_offload_nvme")
MISTAKE(zero_under_ddp, (opt->strategy = "ddp", opt->zero = &stage_2))
MISTAKE(ddp_under_zero, (opt->strategy = "SHARD_GRAD_OP", opt->ddp = &no_ddp))
MISTAKE(both_structs, (opt->zero = &stage_2, opt->ddp = &no_ddp))
MISTAKE(other_stage, (opt->strategy = "zero1", opt->zero = &stage_2))
MISTAKE(no_stage, opt->zero = &stage_7)
MISTAKE(mesh_of_zero, (opt->strategy = "zero1", opt->zero = &with_mesh))
MISTAKE(newer_zero, opt->zero = &newer_zero_options)
MISTAKE(saved_at_failure, (opt->strategy = "zero1", opt->checkpoint = &on_exception))
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
     "strategy \"horovod_on_mars\": there are \"auto\", \"single\", \"ddp\", \"zero1\", "
     "\"zero2\", \"zero3\", \"data_parallel\""},
    {zero_slip, TRI_ERR_INVALID_ARG, "strategy \"zero_2\": did you mean \"zero2\"?"},
    {stage_slip, TRI_ERR_INVALID_ARG, "did you mean \"deepspeed_stage_2\"?"},
    {hsdp, TRI_ERR_UNSUPPORTED, "strategy \"hsdp\": the trainer divides over all ranks"},
    {hybrid, TRI_ERR_UNSUPPORTED, "strategy \"HYBRID_SHARD\": the trainer divides over all"},
    {to_disk, TRI_ERR_UNSUPPORTED, "nothing is moved to disks: use \"zero3\""},
    {zero_under_ddp, TRI_ERR_INVALID_ARG, "options of tri_zero (zero) with strategy \"ddp\": use"},
    {ddp_under_zero, TRI_ERR_INVALID_ARG,
     "options of tri_ddp (ddp) with strategy \"SHARD_GRAD_OP\": give those of tri_zero"},
    {both_structs, TRI_ERR_INVALID_ARG, "(ddp) and of tri_zero (zero): give one of them"},
    {other_stage, TRI_ERR_INVALID_ARG,
     "zero->stage 2 with strategy \"zero1\", which is stage 1: leave one of them out"},
    {no_stage, TRI_ERR_INVALID_ARG, "zero->stage 7: 1 to 3 (0 = 1)"},
    {mesh_of_zero, TRI_ERR_UNSUPPORTED, "zero->mesh: the trainer divides over all ranks of"},
    {newer_zero, TRI_ERR_INVALID_ARG, "tri_zero_options"},
    {saved_at_failure, TRI_ERR_UNSUPPORTED,
     "checkpoint->on_exception with strategy \"zero1\": ranks save together"},
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
    tri_group *group;
    tri_store *store;
    tri_mesh *mesh;
    scratch s;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_group_create(store, 0, 1, NULL, &group));
    CHECK_OK(tri_mesh_create(group, TRI_SHAPE(1), (const char *const[]){"all"}, &mesh));
    with_mesh.mesh = mesh;
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
    tri_mesh_destroy(mesh);
    tri_group_unref(group);
    tri_store_unref(store);
    tri_dataset_destroy(samples.dataset);
    scratch_end(&s);
}

/* What is no mistake: Lightning's names, and the limits. */
static void names_of_others_are_taken(void **state)
{
    static const char *const strategies[] = {NULL,
                                             "auto",
                                             "single",
                                             "single_device",
                                             "ddp",
                                             "ddp_spawn",
                                             "ddp_fork",
                                             "data_parallel",
                                             "dp",
                                             "ddp_find_unused_parameters_true",
                                             "zero1",
                                             "ZeRO2",
                                             "zero3",
                                             "deepspeed",
                                             "deepspeed_stage_1",
                                             "deepspeed_stage_2",
                                             "deepspeed_stage_3",
                                             "deepspeed_stage_2_offload",
                                             "fsdp",
                                             "fsdp_cpu_offload",
                                             "FULL_SHARD",
                                             "SHARD_GRAD_OP",
                                             "NO_SHARD",
                                             "fully_shard"};
    enum { N_STRATEGIES = sizeof(strategies) / sizeof(strategies[0]) };
    static const char *const precisions[] = {NULL,       "32", "32-true", "bf16",    "bf16-mixed",
                                             "16-mixed", "16", "64",      "64-true", "auto"};
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&samples, 10, 1);
    for (size_t i = 0; i < N_STRATEGIES + 10; i++) {
        tri_fit_options opt = fit_quiet(s.dir);
        fit_arg arg = {.lr = 0.1};
        tri_fit_result result;

        if (i < N_STRATEGIES)
            opt.strategy = strategies[i];
        else
            opt.precision = precisions[i - N_STRATEGIES];
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

static void names_of_others_are_stages(void **state)
{
    static const struct {
        const char *name;
        int stage;
    } names[] = {{"no_shard", 0},
                 {"ddp_spawn", 0},
                 {"zero1", 1},
                 {"deepspeed_stage_1", 1},
                 {"deepspeed_stage_1_offload", 1},
                 {"zero2", 2},
                 {"deepspeed", 2},
                 {"deepspeed_stage_2", 2},
                 {"Shard_Grad_Op", 2},
                 {"zero3", 3},
                 {"deepspeed_stage_3_offload", 3},
                 {"fsdp", 3},
                 {"FULL_SHARD", 3}};
    trii_strategy strategy;

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        CHECK_OK(trii_fit_strategy(names[i].name, "tri_fit", &strategy));
        if (trii_strategy_stage(strategy) != names[i].stage)
            fail_msg("%s: stage %d", names[i].name, trii_strategy_stage(strategy));
    }
    CHECK_OK(trii_fit_zero_stage(0, "tri_fit", &strategy));
    assert_int_equal(trii_strategy_stage(strategy), 1);
    assert_string_equal(trii_fit_strategy_name(strategy), "zero1");
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
    cmocka_unit_test(names_of_others_are_stages),
    cmocka_unit_test(each_call_asks_for_what_it_needs),
};
TEST_MAIN(tests)
