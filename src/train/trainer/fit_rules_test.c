/* fit_rules_test.c - accumulation, evaluation in shares, predictions: what must not depend on how
 * the samples are cut into batches and ranks. */
#include "testing/fit_problem.h"

/* --- accumulation --------------------------------------------------------- */

typedef struct part {
    fit_samples train;
    const char *folder;
    int64_t batch_size, global, accumulate, steps;
    double clip;
    const char *clip_by;
    int64_t counts[MAX_RANKS]; /* samples that the loss of a rank is the mean of; 0 = all */
} part;

/* The weights in f64, after the fit. */
typedef struct keeper {
    tri_callback base;
    rank *r;
} keeper;

static tri_status keep_weights(tri_callback *self, tri_trainer *t)
{
    rank *r = ((keeper *)self)->r;
    tri_module *model = tri_trainer_model(t);

    r->n_weights = 0;
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        tri_tensor *x = tri_module_state(model, i).tensor;
        int n = (int)tri_tensor_numel(x);

        TRY(tri_tensor_copy_out(x, r->weights + r->n_weights, (size_t)n * sizeof(double)));
        r->n_weights += n;
    }
    return TRI_OK;
}

static const tri_callback_class keeper_class = {.name = "keeper", .fit_end = keep_weights};

static tri_status fit_part(rank *r)
{
    const part *p = r->arg;
    keeper keep = {.base = {.cls = &keeper_class}, .r = r};
    tri_callback *callbacks[] = {&keep.base};
    tri_fit_options opt = fit_quiet(p->folder);
    fit_arg arg = {.lr = 0.3};

    opt.max_steps = p->steps;
    opt.accumulate_grad_batches = p->accumulate;
    opt.precision = "64-true";
    opt.gradient_clip_val = p->clip;
    opt.gradient_clip_algorithm = p->clip_by;
    opt.callbacks = callbacks;
    opt.n_callbacks = 1;
    opt.ddp = &(tri_ddp_options){.group = r->group};
    return tri_fit(&fit_task,
                   &(tri_fit_data){.train = p->train.dataset,
                                   .batch_size = p->batch_size,
                                   .global_batch_size = p->global,
                                   .no_shuffle = true},
                   &opt, &arg, NULL);
}

static void expect_near(const rank *a, const rank *b)
{
    assert_true(a->n_weights > 0 && a->n_weights == b->n_weights);
    for (int i = 0; i < a->n_weights; i++)
        if (!(fabs(a->weights[i] - b->weights[i]) < 1e-9))
            fail_msg("weight %d: %.17g and %.17g", i, a->weights[i], b->weights[i]);
}

/* The same updates from batches of these sizes on so many ranks. */
static void expect_as_whole(int64_t samples, const part *cut, int size)
{
    part whole = {.batch_size = samples, .accumulate = 1, .steps = cut->steps}, p = *cut;
    rank one[MAX_RANKS], many[MAX_RANKS];
    scratch s;

    scratch_begin(&s);
    fit_samples_make(&whole.train, samples, 7);
    p.train = whole.train;
    p.folder = whole.folder = s.dir;
    whole.clip = p.clip;
    whole.clip_by = p.clip_by;
    ranks_succeed(one, 1, fit_part, &whole);
    ranks_succeed(many, size, fit_part, &p);
    for (int r = 0; r < size; r++)
        expect_near(&one[0], &many[r]);
    tri_dataset_destroy(whole.train.dataset);
    scratch_end(&s);
}

static void four_batches_of_8_are_one_of_32(void **state)
{
    (void)state;
    expect_as_whole(32, &(part){.batch_size = 8, .accumulate = 4, .steps = 3}, 1);
}

/* 5 + 5 + 5 + 4 samples: 19 in all. */
static void a_short_last_batch_weighs_by_its_samples(void **state)
{
    (void)state;
    expect_as_whole(19, &(part){.batch_size = 5, .accumulate = 4, .steps = 3}, 1);
}

/* An update would have 8 batches, and the epoch has 3. */
static void a_group_that_the_epoch_cuts_off_is_a_mean_over_what_it_has(void **state)
{
    (void)state;
    expect_as_whole(19, &(part){.batch_size = 8, .accumulate = 8, .steps = 3}, 1);
}

static void ranks_and_batches_together_are_one_batch(void **state)
{
    (void)state;
    for (int size = 2; size <= 3; size++)
        expect_as_whole(12 * size, &(part){.batch_size = 5, .accumulate = 3, .steps = 3}, size);
}

static void a_global_batch_size_is_that_of_an_update(void **state)
{
    (void)state;
    expect_as_whole(24, &(part){.global = 24, .accumulate = 3, .steps = 3}, 2);
}

static void clipping_is_of_the_whole_update(void **state)
{
    static const char *const names[] = {"norm", "value"};

    (void)state;
    for (int i = 0; i < 2; i++)
        expect_as_whole(
            24,
            &(part){
                .batch_size = 4, .accumulate = 3, .steps = 3, .clip = 0.02, .clip_by = names[i]},
            2);
}

/* --- ranks whose losses are means over different numbers ------------------ */

/* The loss of the first samples of a batch only, more of them on rank 0 than on others. */
static tri_tensor *step_of_few(tri_trainer *t, const tri_batch *batch, void *arg)
{
    int64_t n = tri_trainer_rank(t) == 0 ? batch->size : batch->size - 3;
    tri_tensor *x = tri_narrow(batch->fields[0], 0, 0, n),
               *y = tri_narrow(batch->fields[1], 0, 0, n);

    (void)arg;
    return tri_cross_entropy(tri_forward(tri_trainer_model(t), x), y, NULL);
}

static tri_status fit_few(rank *r)
{
    const part *p = r->arg;
    keeper keep = {.base = {.cls = &keeper_class}, .r = r};
    tri_callback *callbacks[] = {&keep.base};
    tri_fit_options opt = fit_quiet(p->folder);
    tri_task task = fit_task;
    fit_arg arg = {.lr = 0.3};

    if (r->size > 1)
        task.training_step = step_of_few;
    opt.max_steps = p->steps;
    opt.precision = "64-true";
    opt.callbacks = callbacks;
    opt.n_callbacks = 1;
    opt.ddp = &(tri_ddp_options){.group = r->group};
    return tri_fit(
        &task,
        &(tri_fit_data){.train = p->train.dataset, .batch_size = p->batch_size, .no_shuffle = true},
        &opt, &arg, NULL);
}

/* Of 16 samples rank 1 uses the first five of its eight: 13 are one batch. */
static void ranks_weigh_by_the_samples_of_their_losses(void **state)
{
    part two = {.batch_size = 8, .steps = 3}, one = {.batch_size = 13, .steps = 3};
    rank whole[MAX_RANKS], ranks[MAX_RANKS];
    scratch s;
    int n = 0;

    (void)state;
    scratch_begin(&s);
    two.folder = one.folder = s.dir;
    fit_samples_make(&two.train, 16, 7);
    fit_samples_make(&one.train, 13, 7);
    for (int i = 0; i < 16; i++) { /* the samples are dealt out: 0, 2, .. and 1, 3, .. */
        if (i % 2 == 1 && i / 2 >= 5)
            continue;
        memcpy(one.train.x[n], two.train.x[i], sizeof(one.train.x[n]));
        one.train.y[n++] = two.train.y[i];
    }
    assert_int_equal(n, 13);
    ranks_succeed(whole, 1, fit_few, &one);
    ranks_succeed(ranks, 2, fit_few, &two);
    expect_near(&whole[0], &ranks[0]);
    expect_near(&whole[0], &ranks[1]);
    tri_dataset_destroy(one.train.dataset);
    tri_dataset_destroy(two.train.dataset);
    scratch_end(&s);
}

/* --- evaluation ----------------------------------------------------------- */

typedef struct look {
    fit_samples samples;
    const char *folder;
    int64_t batch_size;
    double accuracy[MAX_RANKS], n[MAX_RANKS], least[MAX_RANKS], most[MAX_RANKS];
    float predictions[FIT_MAX * FIT_OUT];
    tri_dtype dtype;
} look;

static void validate_all(tri_trainer *t, const tri_batch *batch, void *arg)
{
    tri_tensor *logits = tri_forward(tri_trainer_model(t), batch->fields[0]);

    (void)arg;
    tri_trainer_log(t, "val_accuracy", tri_count_correct(logits, batch->fields[1]),
                    &(tri_trainer_log_options){.count = true});
    tri_trainer_log_value(t, "val_n", (double)batch->size,
                          &(tri_trainer_log_options){.reduce = "sum"});
    tri_trainer_log(t, "val_least", tri_min(tri_reshape(logits, TRI_SHAPE(-1)), 0, false, NULL),
                    &(tri_trainer_log_options){.reduce = "min"});
    tri_trainer_log(t, "val_most", tri_max(tri_reshape(logits, TRI_SHAPE(-1)), 0, false, NULL),
                    &(tri_trainer_log_options){.reduce = "max"});
}

static tri_status validate_look(rank *r)
{
    look *l = (look *)(uintptr_t)r->arg;
    tri_fit_options opt = fit_quiet(l->folder);
    tri_task task = fit_task;
    fit_arg arg = {.lr = 0.3, .buffers = true};
    tri_fit_result result;

    task.validation_step = validate_all;
    opt.ddp = &(tri_ddp_options){.group = r->group};
    TRY(tri_test(&task,
                 &(tri_fit_data){.test = l->samples.dataset, .val_batch_size = l->batch_size}, &opt,
                 &arg, &result));
    if (!isnan(tri_fit_result_value(&result, "val_accuracy")))
        return TRI_ERR_INTERNAL; /* it is called test_accuracy */
    l->accuracy[r->index] = tri_fit_result_value(&result, "test_accuracy");
    l->n[r->index] = tri_fit_result_value(&result, "test_n");
    l->least[r->index] = tri_fit_result_value(&result, "test_least");
    l->most[r->index] = tri_fit_result_value(&result, "test_most");
    return TRI_OK;
}

/* 1, 2 and 61 samples, on up to four ranks (some without any), in batches of 1 to 64. */
static void counts_do_not_depend_on_ranks_and_batches(void **state)
{
    static const int64_t lengths[] = {1, 2, 61}, batches[] = {1, 7, 64};
    rank ranks[MAX_RANKS];
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int n = 0; n < 3; n++) {
        look one = {.folder = s.dir, .batch_size = 64}, l = one;

        fit_samples_make(&one.samples, lengths[n], 9);
        l.samples = one.samples;
        ranks_succeed(ranks, 1, validate_look, &one);
        assert_true(one.n[0] == (double)lengths[n]);
        for (int size = 1; size <= MAX_RANKS; size++) {
            for (int b = 0; b < 3; b++) {
                l.batch_size = batches[b];
                ranks_succeed(ranks, size, validate_look, &l);
                for (int r = 0; r < size; r++) {
                    assert_true(l.accuracy[r] == one.accuracy[0]);
                    assert_true(l.n[r] == one.n[0]);
                    CHECK_NEAR(l.least[r], one.least[0], 1e-5);
                    CHECK_NEAR(l.most[r], one.most[0], 1e-5);
                }
            }
        }
        tri_dataset_destroy(one.samples.dataset);
    }
    scratch_end(&s);
}

/* --- predictions ---------------------------------------------------------- */

static tri_status predict_look(rank *r)
{
    look *l = (look *)(uintptr_t)r->arg;
    tri_fit_options opt = fit_quiet(l->folder);
    fit_arg arg = {.lr = 0.3};
    tri_tensor *all;
    float *mine = calloc(FIT_MAX * FIT_OUT, sizeof(float));
    size_t bytes = (size_t)tri_dataset_length(l->samples.dataset) * FIT_OUT * sizeof(float);
    bool same;

    opt.ddp = &(tri_ddp_options){.group = r->group};
    TRY(tri_predict(&fit_task,
                    &(tri_fit_data){.predict = l->samples.dataset, .batch_size = l->batch_size},
                    &opt, &arg, &all));
    same = tri_tensor_ndim(all) == 2 && tri_tensor_size(all, 1) == FIT_OUT &&
           tri_tensor_size(all, 0) == tri_dataset_length(l->samples.dataset);
    if (same)
        TRY(tri_tensor_copy_out(all, mine, bytes));
    if (r->size == 1)
        memcpy(l->predictions, mine, bytes);
    for (size_t i = 0; i < bytes / sizeof(float) && same; i++)
        same = fabsf(mine[i] - l->predictions[i]) < 1e-5F;
    tri_tensor_unref(all);
    free(mine);
    return same ? TRI_OK : TRI_ERR_INTERNAL;
}

static void predictions_of_all_ranks_come_in_order(void **state)
{
    static const int64_t lengths[] = {1, 3, 61};
    rank ranks[MAX_RANKS];
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int n = 0; n < 3; n++) {
        look l = {.folder = s.dir, .batch_size = 5};

        fit_samples_make(&l.samples, lengths[n], 9);
        for (int size = 1; size <= MAX_RANKS; size++)
            ranks_succeed(ranks, size, predict_look, &l);
        tri_dataset_destroy(l.samples.dataset);
    }
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(four_batches_of_8_are_one_of_32),
    cmocka_unit_test(a_short_last_batch_weighs_by_its_samples),
    cmocka_unit_test(a_group_that_the_epoch_cuts_off_is_a_mean_over_what_it_has),
    cmocka_unit_test(ranks_and_batches_together_are_one_batch),
    cmocka_unit_test(a_global_batch_size_is_that_of_an_update),
    cmocka_unit_test(clipping_is_of_the_whole_update),
    cmocka_unit_test(ranks_weigh_by_the_samples_of_their_losses),
    cmocka_unit_test(counts_do_not_depend_on_ranks_and_batches),
    cmocka_unit_test(predictions_of_all_ranks_come_in_order),
};
TEST_MAIN(tests)
