/* fit_test.c - tri_fit does what the loop of a program does: the same weights, bit for bit. */
#include <string.h>

#include "testing/fit_problem.h"

/* The plain loop's hash, then that of tri_fit with the same data. */
static void expect_same_of(int64_t samples, plain_fit plain, const char *precision)
{
    fit_samples train;
    fit_watch watch = FIT_WATCH;
    tri_callback *callbacks[] = {&watch.base};
    tri_fit_options options;
    tri_fit_result result;
    fit_arg arg = plain.arg;
    scratch s;

    scratch_begin(&s);
    fit_samples_make(&train, samples, 1);
    plain.train = train.dataset;
    CHECK_OK(plain_fit_run(&plain));
    options = fit_quiet(s.dir);
    options.max_epochs = 3;
    options.seed = 5;
    options.callbacks = callbacks;
    options.n_callbacks = 1;
    options.log_every_n_steps = 2;
    options.precision = precision;
    options.gradient_clip_val = plain.clip;
    options.gradient_clip_algorithm = plain.clip_value ? "value" : "norm";
    CHECK_OK(tri_fit(&fit_task,
                     &(tri_fit_data){.train = train.dataset,
                                     .batch_size = plain.batch_size,
                                     .loader.drop_last = plain.drop_last},
                     &options, &arg, &result));
    assert_true(watch.hash == plain.hash);
    assert_int_equal(result.reason, TRI_STOP_MAX_EPOCHS);
    assert_string_equal(result.why, "max_epochs=3 reached");
    assert_int_equal(result.epochs, 3);
    assert_int_equal(result.steps, watch.steps);
    assert_true(tri_fit_result_value(&result, "loss") > 0);
    tri_dataset_destroy(train.dataset);
    scratch_end(&s);
}

static void expect_same(int64_t samples, int64_t batch_size, bool drop_last)
{
    expect_same_of(
        samples,
        (plain_fit){
            .batch_size = batch_size, .epochs = 3, .drop_last = drop_last, .arg = {.lr = 0.2}},
        NULL);
}

static void one_process_gets_the_weights_of_the_plain_loop(void **state)
{
    (void)state;
    expect_same(40, 8, false);
}

static void a_last_batch_that_is_short_changes_nothing_of_that(void **state)
{
    (void)state;
    expect_same(43, 8, false);
}

static void a_last_batch_that_is_left_out_is_left_out_here(void **state)
{
    (void)state;
    expect_same(43, 8, true);
}

static void a_batch_may_be_larger_than_the_set(void **state)
{
    (void)state;
    expect_same(5, 8, false);
}

static void clipping_is_that_of_the_plain_loop(void **state)
{
    (void)state;
    for (int value = 0; value < 2; value++)
        expect_same_of(40,
                       (plain_fit){.batch_size = 8,
                                   .epochs = 3,
                                   .arg = {.lr = 0.2},
                                   .clip = 0.05,
                                   .clip_value = value},
                       NULL);
}

static void mixed_precision_is_that_of_the_plain_loop(void **state)
{
    (void)state;
    for (int clip = 0; clip < 2; clip++) {
        expect_same_of(40,
                       (plain_fit){.batch_size = 8,
                                   .epochs = 3,
                                   .arg = {.lr = 0.2},
                                   .clip = clip * 0.05,
                                   .autocast = TRI_DTYPE_BF16},
                       "bf16-mixed");
        expect_same_of(40,
                       (plain_fit){.batch_size = 8,
                                   .epochs = 3,
                                   .arg = {.lr = 0.2},
                                   .clip = clip * 0.05,
                                   .autocast = TRI_DTYPE_F16},
                       "16-mixed");
    }
}

/* --- modes ---------------------------------------------------------------- */

/* Batch statistics that are to stay while the rest is trained. */
static tri_module *model_set_aside(void *arg)
{
    tri_module *net = fit_model(arg);

    tri_module_train(tri_module_submodule(net, "1"), false);
    return net;
}

static tri_tensor *step_of_modes(tri_trainer *t, const tri_batch *batch, void *arg)
{
    tri_module *model = tri_trainer_model(t);
    bool trains = tri_module_is_training(model);

    if (tri_module_is_training(tri_module_submodule(model, "1")) ||
        tri_module_is_training(tri_module_submodule(model, "2")) != trains)
        return NULL;
    return fit_training_step(t, batch, arg);
}

static void validation_leaves_modules_in_their_modes(void **state)
{
    tri_task task = fit_task;
    fit_samples set;
    tri_fit_options opt;
    fit_arg arg = {.lr = 0.2, .buffers = true};
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&set, 16, 1);
    task.model = model_set_aside;
    task.training_step = step_of_modes;
    opt = fit_quiet(s.dir);
    opt.max_epochs = 2;
    opt.val_check_interval = 1;
    CHECK_OK(tri_fit(&task,
                     &(tri_fit_data){.train = set.dataset, .val = set.dataset, .batch_size = 4},
                     &opt, &arg, NULL));
    tri_dataset_destroy(set.dataset);
    scratch_end(&s);
}

/* --- ranks that are threads ----------------------------------------------- */

typedef struct ddp_case {
    fit_samples train;
    const char *folder;
} ddp_case;

static tri_status run_plain(rank *r)
{
    const ddp_case *c = r->arg;
    plain_fit plain = {.train = c->train.dataset,
                       .batch_size = 4,
                       .epochs = 3,
                       .group = r->group,
                       .arg = {.lr = 0.2, .buffers = true}};

    TRY(plain_fit_run(&plain));
    r->hash = plain.hash;
    return TRI_OK;
}

static tri_status run_fit(rank *r)
{
    const ddp_case *c = r->arg;
    fit_watch watch = FIT_WATCH;
    tri_callback *callbacks[] = {&watch.base};
    tri_fit_options options = fit_quiet(c->folder);
    fit_arg arg = {.lr = 0.2, .buffers = true};

    options.max_epochs = 3;
    options.seed = 5;
    options.callbacks = callbacks;
    options.n_callbacks = 1;
    options.ddp = &(tri_ddp_options){.group = r->group};
    TRY(tri_fit(&fit_task, &(tri_fit_data){.train = c->train.dataset, .batch_size = 4}, &options,
                &arg, NULL));
    r->hash = watch.hash;
    return TRI_OK;
}

static void ranks_get_those_of_the_plain_loop_with_ddp(void **state)
{
    rank plain[MAX_RANKS], fit[MAX_RANKS];
    ddp_case c;
    scratch s;

    (void)state;
    scratch_begin(&s);
    c.folder = s.dir;
    fit_samples_make(&c.train, 43, 1);
    for (int size = 2; size <= 3; size++) {
        ranks_succeed(plain, size, run_plain, &c);
        ranks_succeed(fit, size, run_fit, &c);
        for (int r = 0; r < size; r++)
            assert_true(fit[r].hash == plain[r].hash);
    }
    tri_dataset_destroy(c.train.dataset);
    scratch_end(&s);
}

/* --- workers that the call starts ----------------------------------------- */

/* Hash of what a checkpoint holds. */
static uint64_t hash_of(const char *checkpoint)
{
    char path[TRI_FIT_PATH_BYTES + 32];
    fit_arg arg = {.lr = 0.2};
    tri_module *model = fit_model(&arg);
    uint64_t hash;

    snprintf(path, sizeof(path), "%s/model.safetensors", checkpoint);
    CHECK_OK(tri_load(model, path, NULL));
    CHECK_OK(tri_module_hash(model, &hash));
    tri_module_destroy(model);
    return hash;
}

static tri_status run_plain_2(rank *r)
{
    plain_fit plain = {.train = ((const ddp_case *)r->arg)->train.dataset,
                       .batch_size = 4,
                       .epochs = 3,
                       .group = r->group,
                       .arg = {.lr = 0.2}};

    TRY(plain_fit_run(&plain));
    r->hash = plain.hash;
    return TRI_OK;
}

static void two_devices_are_two_workers(void **state)
{
    rank plain[MAX_RANKS];
    tri_fit_options options;
    tri_fit_result result;
    fit_arg arg = {.lr = 0.2};
    fit_samples val;
    ddp_case c;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&c.train, 43, 1);
    fit_samples_make(&val, 21, 2);
    options = fit_quiet(s.dir);
    options.max_epochs = 3;
    options.seed = 5;
    options.devices = 2;
    CHECK_OK(tri_fit(&fit_task,
                     &(tri_fit_data){.train = c.train.dataset, .val = val.dataset, .batch_size = 4},
                     &options, &arg, &result));
    assert_int_equal(result.steps, 18);
    assert_true(tri_fit_result_value(&result, "val_accuracy") > 0);
    ranks_succeed(plain, 2, run_plain_2, &c);
    assert_true(hash_of(result.best_path) == plain[0].hash);
    tri_dataset_destroy(val.dataset);
    tri_dataset_destroy(c.train.dataset);
    scratch_end(&s);
}

/* --- a profile ------------------------------------------------------------ */

static void a_profile_is_a_trace_of_what_ran(void **state)
{
    fit_samples train;
    tri_fit_options opt;
    fit_arg arg = {.lr = 0.2};
    size_t bytes;
    char *text;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&train, 16, 1);
    opt = fit_quiet(s.dir);
    opt.fast_dev_run = 2;
    opt.profile = scratch_path(&s, "trace.json");
    CHECK_OK(tri_fit(&fit_task, &(tri_fit_data){.train = train.dataset, .batch_size = 4}, &opt,
                     &arg, NULL));
    text = scratch_read(opt.profile, &bytes);
    assert_non_null(strstr(text, "\"cat\":\"backward\""));
    assert_non_null(strstr(text, "\"cat\":\"update\""));
    free(text);
    tri_dataset_destroy(train.dataset);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_process_gets_the_weights_of_the_plain_loop),
    cmocka_unit_test(a_last_batch_that_is_short_changes_nothing_of_that),
    cmocka_unit_test(a_last_batch_that_is_left_out_is_left_out_here),
    cmocka_unit_test(a_batch_may_be_larger_than_the_set),
    cmocka_unit_test(clipping_is_that_of_the_plain_loop),
    cmocka_unit_test(mixed_precision_is_that_of_the_plain_loop),
    cmocka_unit_test(validation_leaves_modules_in_their_modes),
    cmocka_unit_test(ranks_get_those_of_the_plain_loop_with_ddp),
    cmocka_unit_test(two_devices_are_two_workers),
    cmocka_unit_test(a_profile_is_a_trace_of_what_ran),
};
TEST_MAIN(tests)
