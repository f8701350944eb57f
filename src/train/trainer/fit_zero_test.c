/* fit_zero_test.c - fits whose ranks divide states and gradients: the weights, values and
 * checkpoints are those of tri_ddp, and any number of ranks goes on from them. */
/* ctest: timeout=120 */
#include <inttypes.h>
#include <string.h>

#include "testing/fit_problem.h"

static const char *const strategies[] = {"ddp", "zero1", "zero2", "zero3"};
enum { N_STRATEGIES = sizeof(strategies) / sizeof(strategies[0]) };

enum { HIDDEN = 1100 }; /* the first weight has more than one block of elements */

typedef enum kind { PLAIN, MOMENTUM, ADAM } kind;

typedef struct job {
    const char *strategy, *precision, *root, *ckpt_path;
    kind kind;
    int64_t accumulate, max_steps, n_samples, n_val;
    double clip;
    bool clip_value, ema, buffers, sync, async, weights_only, validate, predict;
    int fails; /* the rank whose callback fails when its second validation begins; -1 = none */
    fit_samples train, val;
    float predicted[MAX_RANKS][FIT_MAX * FIT_OUT];
    uint64_t hash[MAX_RANKS];
    tri_fit_result result[MAX_RANKS];
} job;

static job base(const char *strategy)
{
    return (job){.strategy = strategy,
                 .kind = ADAM,
                 .max_steps = 9,
                 .n_samples = 43,
                 .n_val = 21,
                 .fails = -1};
}

/* --- the task ------------------------------------------------------------- */

static tri_module *make_model(void *arg)
{
    const job *j = arg;
    tri_module *norm = j->buffers ? tri_nn_batch_norm1d(HIDDEN, NULL) : tri_nn_identity();
    tri_module *net = tri_nn_sequential(tri_nn_linear(FIT_IN, HIDDEN, NULL), norm, tri_nn_tanh(),
                                        tri_nn_linear(HIDDEN, FIT_OUT, NULL));
    static float values[FIT_IN * HIDDEN];
    static double wide[FIT_IN * HIDDEN];
    uint64_t seed = 3;

    trii_mutex_lock(&drawing);
    for (int64_t i = 0; i < tri_module_state_count(net); i++) {
        tri_state_entry entry = tri_module_state(net, i);
        int64_t n = tri_tensor_numel(entry.tensor);

        for (int64_t k = 0; k < n; k++)
            wide[k] = values[k] = (float)(scratch_random(&seed) % 1001) / 1000 - 0.5F;
        if (entry.parameter && tri_tensor_dtype(entry.tensor) == TRI_DTYPE_F64)
            CHECK_OK(tri_tensor_copy_in(entry.tensor, wide, (size_t)n * sizeof(double)));
        else if (entry.parameter)
            CHECK_OK(tri_tensor_copy_in(entry.tensor, values, (size_t)n * sizeof(float)));
    }
    trii_mutex_unlock(&drawing);
    return net;
}

static tri_optimizer *make_optimizer(tri_module *model, void *arg)
{
    const job *j = arg;

    if (j->kind == ADAM)
        return tri_adam(model, 0.01, NULL);
    return tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = j->kind == PLAIN ? 0 : 0.9});
}

static tri_tensor *train_one(tri_trainer *t, const tri_batch *batch, void *arg)
{
    tri_tensor *logits = tri_forward(tri_trainer_model(t), batch->fields[0]);

    (void)arg;
    tri_trainer_log(t, "accuracy", tri_count_correct(logits, batch->fields[1]),
                    &(tri_trainer_log_options){.count = true});
    return tri_cross_entropy(logits, batch->fields[1], NULL);
}

static const tri_task task = {.name = "zero",
                              .model = make_model,
                              .optimizer = make_optimizer,
                              .training_step = train_one,
                              .lr = fit_lr};

typedef struct watcher {
    tri_callback base;
    job *j;
    int validations;
} watcher;

static tri_status watch_validation(tri_callback *self, tri_trainer *t)
{
    watcher *w = (watcher *)self;

    if (++w->validations == 2 && tri_trainer_rank(t) == w->j->fails)
        return tri_status_fail(TRI_ERR_UNSUPPORTED, "no more of this");
    return TRI_OK;
}

static tri_status watch_end(tri_callback *self, tri_trainer *t)
{
    return tri_module_hash(tri_trainer_model(t), &((watcher *)self)->j->hash[tri_trainer_rank(t)]);
}

static const tri_callback_class watcher_class = {
    .name = "watcher", .validation_begin = watch_validation, .fit_end = watch_end};

static tri_status run_job(rank *r)
{
    job *j = (job *)(uintptr_t)r->arg;
    watcher w = {.base = {.cls = &watcher_class}, .j = j};
    tri_callback *callbacks[] = {&w.base};
    tri_fit_options opt = fit_quiet(j->root);
    tri_fit_data data;
    tri_tensor *predictions;
    tri_status status;
    bool is_zero = strncmp(j->strategy, "ddp", 3) != 0;

    opt.run_name = "run";
    opt.strategy = j->strategy;
    opt.precision = j->precision;
    opt.max_steps = j->max_steps;
    opt.seed = 5;
    opt.accumulate_grad_batches = j->accumulate;
    opt.gradient_clip_val = j->clip;
    opt.gradient_clip_algorithm = j->clip_value ? "value" : NULL;
    opt.log_every_n_steps = 2;
    opt.ckpt_path = j->ckpt_path;
    opt.checkpoint = &(tri_fit_checkpoint_options){.monitor = j->n_val > 0 ? "val_loss" : NULL,
                                                   .every_n_epochs = 3,
                                                   .async = j->async,
                                                   .weights_only = j->weights_only};
    opt.ema = j->ema ? &(tri_fit_ema_options){.decay = TRI_SET(0.5)} : NULL;
    opt.sync_batchnorm = j->sync;
    opt.callbacks = callbacks;
    opt.n_callbacks = 1;
    opt.ddp = is_zero ? NULL : &(tri_ddp_options){.group = r->group, .bucket_cap_bytes = 8192};
    opt.zero = is_zero ? &(tri_zero_options){.group = r->group, .bucket_cap_bytes = 8192} : NULL;
    data = (tri_fit_data){.train = j->train.dataset,
                          .val = j->n_val > 0 ? j->val.dataset : NULL,
                          .predict = j->train.dataset,
                          .batch_size = 4};
    if (!j->predict)
        return (j->validate ? tri_validate : tri_fit)(&task, &data, &opt, j, &j->result[r->index]);
    TRY(tri_predict(&task, &data, &opt, j, &predictions));
    status = tri_tensor_copy_out(predictions, j->predicted[r->index],
                                 (size_t)j->n_samples * FIT_OUT * sizeof(float));
    tri_tensor_unref(predictions);
    return status;
}

/* In a folder that stays. */
static void run_in(job *j, const char *root, int size)
{
    rank ranks[MAX_RANKS];

    j->root = root;
    fit_samples_make(&j->train, j->n_samples, 1);
    fit_samples_make(&j->val, j->n_val > 0 ? j->n_val : 1, 2);
    ranks_succeed(ranks, size, run_job, j);
    tri_dataset_destroy(j->train.dataset);
    tri_dataset_destroy(j->val.dataset);
}

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

/* All that a fit has found, on every rank. */
static void check_same(const job *a, const job *b, int size)
{
    for (int r = 0; r < size; r++) {
        const tri_fit_result *x = &a->result[0], *y = &b->result[r];

        if (a->hash[0] != b->hash[r])
            fail_msg("%s and %s, rank %d of %d: weights differ", a->strategy, b->strategy, r, size);
        assert_int_equal(x->steps, y->steps);
        assert_int_equal(x->n_values, y->n_values);
        for (int i = 0; i < x->n_values; i++) {
            if (!same_bits(x->values[i], tri_fit_result_value(y, x->names[i])))
                fail_msg("%s and %s, rank %d of %d: %s differs", a->strategy, b->strategy, r, size,
                         x->names[i]);
        }
        assert_true(same_bits(x->best_value, y->best_value));
    }
}

/* --- what is saved -------------------------------------------------------- */

static void add_state(uint64_t *hash, tri_state_entry entry)
{
    static unsigned char bytes[FIT_IN * HIDDEN * sizeof(double)];
    size_t n =
        (size_t)tri_tensor_numel(entry.tensor) * tri_dtype_size(tri_tensor_dtype(entry.tensor));

    assert_true(n <= sizeof(bytes));
    CHECK_OK(tri_tensor_copy_out(entry.tensor, bytes, n));
    for (const char *c = entry.name; *c != '\0'; c++)
        *hash = (*hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    for (size_t i = 0; i < n; i++)
        *hash = (*hash ^ bytes[i]) * UINT64_C(1099511628211);
}

/* Of all tensors of a checkpoint, as one process alone reads it. */
static uint64_t state_hash(job *j, const char *root, int64_t step)
{
    bool is_wide = j->precision != NULL && strcmp(j->precision, "64-true") == 0;
    tri_optimizer *optimizer;
    tri_module *net;
    tri_state_entry entries[8];
    tri_checkpoint *checkpoint;
    tri_ema *ema = NULL;
    uint64_t hash = 1469598103934665603U;
    char path[600];

    tri_set_default_dtype(is_wide ? TRI_DTYPE_F64 : TRI_DTYPE_F32);
    net = make_model(j);
    tri_set_default_dtype(TRI_DTYPE_F32);
    optimizer = make_optimizer(net, j);
    snprintf(path, sizeof(path), "%s/run/checkpoints/step-%012" PRId64, root, step);
    CHECK_OK(tri_checkpoint_open(path, &checkpoint));
    CHECK_OK(tri_checkpoint_restore(checkpoint, net, j->weights_only ? NULL : optimizer));
    CHECK_OK(tri_ema_create(net, 0.5, &ema));
    assert_true(tri_ema_state_count(ema) <= 8);
    for (int64_t i = 0; i < tri_ema_state_count(ema); i++)
        entries[i] = tri_ema_state(ema, i);
    assert_int_equal(tri_checkpoint_has(checkpoint, "ema"), j->ema);
    if (j->ema)
        CHECK_OK(
            tri_checkpoint_restore_extra(checkpoint, "ema", entries, tri_ema_state_count(ema)));
    for (int64_t i = 0; i < tri_module_state_count(net); i++)
        add_state(&hash, tri_module_state(net, i));
    for (int64_t i = 0; i < tri_optimizer_state_count(optimizer); i++)
        add_state(&hash, tri_optimizer_state(optimizer, i));
    for (int64_t i = 0; j->ema && i < tri_ema_state_count(ema); i++)
        add_state(&hash, entries[i]);
    tri_ema_destroy(ema);
    tri_checkpoint_close(checkpoint);
    tri_optimizer_destroy(optimizer);
    tri_module_destroy(net);
    return hash;
}

/* Whether the checkpoint has a file of pieces. */
static bool has_pieces(const char *root, int64_t step)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/run/checkpoints/step-%012" PRId64 "/pieces.rank0.safetensors",
             root, step);
    return access(path, F_OK) == 0;
}

/* --- the same bits -------------------------------------------------------- */

static void compare_with_ddp(job how, int size)
{
    uint64_t want = 0;
    job ddp = how;

    for (int s = 0; s < N_STRATEGIES; s++) {
        job zero = how;
        uint64_t found;
        scratch sc;

        zero.strategy = strategies[s];
        scratch_begin(&sc);
        run_in(s == 0 ? &ddp : &zero, sc.dir, size);
        found = state_hash(&how, sc.dir, (s == 0 ? &ddp : &zero)->result[0].steps);
        if (s == 0)
            want = found;
        else
            check_same(&ddp, &zero, size);
        if (found != want)
            fail_msg("%s on %d ranks: the checkpoint differs from tri_ddp's", strategies[s], size);
        if (s > 0 && size > 1)
            assert_int_equal(has_pieces(sc.dir, zero.result[0].steps),
                             s == 3 || (!how.weights_only && (how.kind != PLAIN || how.ema)));
        scratch_end(&sc);
    }
}

static void the_weights_are_those_of_ddp(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++)
        compare_with_ddp(base("ddp"), size);
}

static void clipped_and_averaged_they_are(void **state)
{
    job how = base("ddp");

    (void)state;
    how.clip = 0.05;
    how.ema = true;
    compare_with_ddp(how, 3);
    how.clip_value = true;
    how.async = true;
    how.kind = MOMENTUM;
    compare_with_ddp(how, 2);
}

/* The last update of an epoch has fewer batches. */
static void accumulated_they_are(void **state)
{
    job how = base("ddp");

    (void)state;
    how.accumulate = 3;
    how.clip = 0.1;
    compare_with_ddp(how, 2);
    compare_with_ddp(how, 3);
}

static void in_any_precision_they_are(void **state)
{
    job how = base("ddp");

    (void)state;
    how.precision = "16-mixed";
    how.clip = 0.1;
    compare_with_ddp(how, 2);
    how.precision = "bf16-mixed";
    how.accumulate = 2;
    compare_with_ddp(how, 3);
    how.precision = "64-true";
    compare_with_ddp(how, 2);
}

static void with_buffers_they_are(void **state)
{
    job how = base("ddp");

    (void)state;
    how.buffers = true;
    compare_with_ddp(how, 2);
    how.sync = true;
    compare_with_ddp(how, 3);
}

/* Nothing is in pieces then, so rank 0 saves alone. */
static void without_states_rank_0_saves(void **state)
{
    job how = base("ddp");

    (void)state;
    how.kind = PLAIN;
    compare_with_ddp(how, 3);
    how.async = true;
    compare_with_ddp(how, 2);
    how.kind = ADAM;
    how.weights_only = true;
    compare_with_ddp(how, 3);
}

/* Some ranks have no sample of it, or a batch more. */
static void ranks_evaluate_other_numbers_of_batches(void **state)
{
    job how = base("ddp");

    (void)state;
    how.n_val = 2;
    how.ema = true;
    compare_with_ddp(how, 4);
    how.n_val = 17;
    compare_with_ddp(how, 2);
}

/* --- other numbers of ranks ----------------------------------------------- */

/* Saved by `from` and resumed by `to`, a strategy and a number of ranks each. */
static uint64_t save_and_resume(job how, const char *from, int n_from, const char *to, int n_to,
                                job *last)
{
    uint64_t hash;
    scratch s;

    scratch_begin(&s);
    how.strategy = from;
    how.max_steps = 7;
    run_in(&how, s.dir, n_from);
    how.strategy = to;
    how.max_steps = 16;
    how.ckpt_path = "last";
    run_in(&how, s.dir, n_to);
    hash = state_hash(&how, s.dir, 16);
    *last = how;
    scratch_end(&s);
    return hash;
}

static void any_number_of_ranks_goes_on(void **state)
{
    static const struct {
        const char *from, *to;
        int n_from, n_to;
    } ways[] = {
        {"zero1", "ddp", 4, 2},   {"zero1", "zero2", 4, 3}, {"zero1", "zero1", 4, 1},
        {"zero2", "zero1", 2, 4}, {"zero2", "ddp", 3, 1},   {"ddp", "zero2", 2, 3},
        {"zero3", "ddp", 4, 2},   {"zero3", "zero3", 2, 3}, {"zero1", "zero3", 3, 4},
        {"ddp", "zero1", 1, 2},   {"zero2", "zero2", 3, 3},
    };
    job how = base("ddp"), whole, divided;

    (void)state;
    how.ema = true;
    how.clip = 0.05;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        uint64_t want = save_and_resume(how, "ddp", ways[i].n_from, "ddp", ways[i].n_to, &whole);
        uint64_t found =
            save_and_resume(how, ways[i].from, ways[i].n_from, ways[i].to, ways[i].n_to, &divided);

        check_same(&whole, &divided, ways[i].n_to);
        if (found != want)
            fail_msg("saved by %s on %d ranks, resumed by %s on %d: states differ", ways[i].from,
                     ways[i].n_from, ways[i].to, ways[i].n_to);
    }
}

/* Weights alone, which each rank reads what it needs of. */
static void a_file_begins_a_run(void **state)
{
    job how = base("ddp"), first;
    char path[600];
    scratch s, other;

    (void)state;
    scratch_begin(&s);
    run_in(&how, s.dir, 2);
    snprintf(path, sizeof(path), "%s/model.safetensors", how.result[0].best_path);
    how.ckpt_path = path;
    for (int k = 0; k < N_STRATEGIES; k++) {
        job again = how;

        again.strategy = strategies[k];
        scratch_begin(&other);
        run_in(&again, other.dir, 3);
        scratch_end(&other);
        if (k == 0)
            first = again;
        check_same(&first, &again, 3);
    }
    scratch_end(&s);
}

/* Evaluated by others, with the averages, which are in pieces. */
static void any_number_of_ranks_evaluates(void **state)
{
    job how = base("zero2");
    scratch s;

    (void)state;
    how.ema = true;
    scratch_begin(&s);
    run_in(&how, s.dir, 3);
    for (int size = 1; size <= 4; size++) {
        for (int k = 0; k < N_STRATEGIES; k++) {
            job other = how;

            other.strategy = strategies[k];
            other.validate = true;
            other.ckpt_path = "last";
            run_in(&other, s.dir, size);
            CHECK_NEAR(tri_fit_result_value(&other.result[0], "val_loss"),
                       tri_fit_result_value(&how.result[0], "val_loss"), 1e-6);
            if (size == 3)
                assert_true(same_bits(tri_fit_result_value(&other.result[0], "val_loss"),
                                      tri_fit_result_value(&how.result[0], "val_loss")));
        }
    }
    scratch_end(&s);
}

static void any_number_of_ranks_predicts(void **state)
{
    job how = base("zero1"), first;
    scratch s;

    (void)state;
    how.n_samples = 41; /* one rank has a batch more */
    scratch_begin(&s);
    run_in(&how, s.dir, 3);
    for (int k = 0; k < N_STRATEGIES; k++) {
        job other = how;

        other.strategy = strategies[k];
        other.predict = true;
        other.ckpt_path = "last";
        run_in(&other, s.dir, 2);
        if (k == 0)
            first = other;
        for (int r = 0; r < 2; r++)
            assert_memory_equal(other.predicted[r], first.predicted[0], sizeof(other.predicted[r]));
    }
    scratch_end(&s);
}

/* --- failures ------------------------------------------------------------- */

/* In an evaluation averages are in the parameters' place, in pieces that ranks swap together: one
 * that has failed must not wait for the others to swap back. */
static void a_failure_in_an_evaluation_is_told(void **state)
{
    (void)state;
    for (int fails = 0; fails < 3; fails++) {
        job how = base(fails == 0 ? "zero3" : "zero1");
        rank ranks[MAX_RANKS];
        scratch s;

        how.ema = true;
        how.fails = fails;
        scratch_begin(&s);
        how.root = s.dir;
        fit_samples_make(&how.train, how.n_samples, 1);
        fit_samples_make(&how.val, how.n_val, 2);
        run_ranks(ranks, 3, run_job, &how);
        for (int r = 0; r < 3; r++) {
            if ((r == fails ? ranks[r].status != TRI_ERR_UNSUPPORTED
                            : ranks[r].status > TRI_ERR_PEER_LOST) ||
                strstr(ranks[r].line, "no more of this") == NULL)
                fail_msg("rank %d: %s: %s", r, tri_status_name(ranks[r].status), ranks[r].line);
        }
        tri_dataset_destroy(how.train.dataset);
        tri_dataset_destroy(how.val.dataset);
        scratch_end(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_weights_are_those_of_ddp),
    cmocka_unit_test(clipped_and_averaged_they_are),
    cmocka_unit_test(accumulated_they_are),
    cmocka_unit_test(in_any_precision_they_are),
    cmocka_unit_test(with_buffers_they_are),
    cmocka_unit_test(without_states_rank_0_saves),
    cmocka_unit_test(ranks_evaluate_other_numbers_of_batches),
    cmocka_unit_test(any_number_of_ranks_goes_on),
    cmocka_unit_test(a_file_begins_a_run),
    cmocka_unit_test(any_number_of_ranks_evaluates),
    cmocka_unit_test(any_number_of_ranks_predicts),
    cmocka_unit_test(a_failure_in_an_evaluation_is_told),
};
TEST_MAIN(tests)
