/* engine_odd_test.c - engines as programs use them by mistake or in a rare way: two at once, an
 * optimizer and a schedule of the program's own, parts of a loop left out, large parameters, empty
 * batches, a forked child. */

#include "testing/engine_ranks.h"
#include "testing/test_fork.h"

#define CONFIG(stage, k)                                                                           \
    "{\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": " #k                 \
    ", \"gradient_clipping\": 1, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\":"         \
    " 0.01}}, \"zero_optimization\": {\"stage\": " #stage                                          \
    ", \"stage3_param_persistence_threshold\": 0}}"

static const char *const configs[] = {CONFIG(0, 1), CONFIG(1, 2), CONFIG(2, 2), CONFIG(3, 1),
                                      CONFIG(3, 2)};

static tri_status hash_after(tri_engine *e, rank *r, int n)
{
    TRY(engine_micro_steps(e, r, 0, n));
    return tri_module_hash(tri_engine_module(e), &r->hash);
}

/* What four micro-batches give by themselves. */
static tri_status train_four(tri_engine *e, rank *r, void *arg)
{
    (void)arg;
    return hash_after(e, r, 4);
}

static uint64_t plain_hash(const char *config, int size)
{
    rank ranks[MAX_RANKS];

    run_engines(ranks, size, config, train_four, NULL);
    check_ranks(ranks, size);
    return ranks[0].hash;
}

static void check_hash(const rank *ranks, int size, uint64_t hash)
{
    check_ranks(ranks, size);
    for (int r = 0; r < size; r++)
        assert_true(ranks[r].hash == hash);
}

/* --- several of them ------------------------------------------------------ */

static tri_status train_two(tri_engine *e, rank *r, void *arg)
{
    tri_engine *other = NULL;
    double loss;
    uint64_t hash = 0;
    tri_status status = engine_make(r, arg, &other);

    for (int step = 0; step < 4 && status == TRI_OK; step++) {
        status = engine_micro_step(e, r, step, &loss);
        if (status == TRI_OK)
            status = engine_micro_step(other, r, step, &loss);
    }
    if (status == TRI_OK)
        status = tri_module_hash(tri_engine_module(other), &hash);
    if (status == TRI_OK)
        status = tri_module_hash(tri_engine_module(e), &r->hash);
    if (status == TRI_OK && hash != r->hash)
        status = TRII_FAIL(TRI_ERR_INTERNAL, "the engines differ");
    tri_engine_destroy(other);
    return status;
}

static void two_engines_do_not_disturb_each_other(void **state)
{
    rank ranks[MAX_RANKS];

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(configs); i++) {
        run_engines(ranks, 2, configs[i], train_two, (void *)(uintptr_t)configs[i]);
        check_hash(ranks, 2, plain_hash(configs[i], 2));
    }
}

/* --- what is the program's own -------------------------------------------- */

static tri_optimizer *own_optimizer(tri_module *model, void *arg)
{
    return tri_sgd(model, *(const double *)arg, NULL);
}

static double own_rate(double lr, int64_t step, void *arg)
{
    (void)arg;
    return lr / (double)(1 + step);
}

static void an_optimizer_and_a_schedule_of_the_program_win(void **state)
{
    double lr = 0.5;
    lone_engine l;

    (void)state;
    lone_engine_begin(&l, CONFIG(0, 1));
    tri_engine_destroy(l.e);
    CHECK_OK(tri_initialize(
        NULL, engine_network(),
        &(tri_initialize_options){
            .config =
                "{\"train_batch_size\": 4, \"gradient_clipping\": 0, \"optimizer\": {\"type\":"
                " \"Lamb\"}, \"scheduler\": {\"type\": \"WarmupLR\"}}",
            .group = l.r.group,
            .optimizer = own_optimizer,
            .lr_scheduler = own_rate,
            .arg = &lr},
        &l.e));
    for (int step = 0; step < 3; step++) {
        assert_true(tri_engine_lr(l.e) == 0.5 / (1 + step));
        CHECK_OK(engine_micro_steps(l.e, &l.r, step, 1));
    }
    lone_engine_end(&l);
}

static void without_an_optimizer_the_remedy_is_named(void **state)
{
    rank ranks[MAX_RANKS];

    (void)state;
    run_engines(ranks, 2, "{\"train_micro_batch_size_per_gpu\": 4}", train_four, NULL);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, TRI_ERR_INVALID_ARG);
        assert_non_null(strstr(ranks[r].line, "no optimizer: write \"optimizer\""));
    }
}

/* --- parts of a loop ------------------------------------------------------ */

/* Evaluates before, between and after micro-batches. */
static tri_status evaluate_between(tri_engine *e, rank *r, void *arg)
{
    tri_tensor *x, *y;
    double loss;

    (void)arg;
    for (int step = 0; step < 4; step++) {
        engine_batch(r, step + 9, &x, &y);
        tri_engine_train(e, false);
        TRY(tri_item_status(tri_cross_entropy(tri_engine_forward(e, x), y, NULL), &loss));
        tri_step_end();
        tri_engine_train(e, true);
        tri_tensor_unref(x);
        tri_tensor_unref(y);
        TRY(engine_micro_step(e, r, step, &loss));
    }
    return tri_module_hash(tri_engine_module(e), &r->hash);
}

static void evaluation_changes_nothing(void **state)
{
    rank ranks[MAX_RANKS];

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(configs); i++) {
        run_engines(ranks, 2, configs[i], evaluate_between, NULL);
        check_hash(ranks, 2, plain_hash(configs[i], 2));
    }
}

/* Ends the loop at each of its places; all ranks do. */
static tri_status leave_at(tri_engine *e, rank *r, void *arg)
{
    const int place = *(const int *)arg;
    tri_tensor *x, *y, *loss;
    tri_status status = TRI_OK;

    if (place == 0)
        return TRI_OK;
    engine_batch(r, 0, &x, &y);
    loss = tri_cross_entropy(tri_engine_forward(e, x), y, NULL);
    if (place > 1)
        tri_engine_backward(e, loss);
    if (place > 2)
        tri_engine_backward(e, tri_cross_entropy(tri_engine_forward(e, x), y, NULL));
    if (place > 3)
        status = tri_engine_step(e);
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

static void an_engine_ends_wherever_its_loop_is(void **state)
{
    rank ranks[MAX_RANKS];

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(configs); i++)
        for (int size = 1; size <= 2; size++)
            for (int place = 0; place <= 4; place++) {
                run_engines(ranks, size, configs[i], leave_at, &place);
                check_ranks(ranks, size);
            }
}

/* --- batches -------------------------------------------------------------- */

/* Rows of each rank in three micro-batches: the last ones are short, or empty. */
static tri_status short_batches(tri_engine *e, rank *r, void *arg)
{
    const int64_t *rows = arg;

    for (int step = 0; step < 4; step++) {
        const int64_t n = rows[r->index];
        float values[ENGINE_BATCH * FIT_IN] = {0.5F, -0.25F};
        int64_t labels[ENGINE_BATCH] = {1, 2};
        tri_tensor *x = tri_tensor_from((int64_t[]){n, FIT_IN}, 2, TRI_DTYPE_F32, values);
        tri_tensor *y = tri_tensor_from((int64_t[]){n}, 1, TRI_DTYPE_I64, labels);
        tri_status status;

        tri_engine_backward(e, tri_cross_entropy(tri_engine_forward(e, x), y, NULL));
        status = tri_engine_step(e);
        tri_step_end();
        tri_tensor_unref(x);
        tri_tensor_unref(y);
        TRY(status);
    }
    return tri_module_hash(tri_engine_module(e), &r->hash);
}

static void short_batches_are_trained(void **state)
{
    int64_t rows[][2] = {{1, 1}, {4, 3}, {2, 4}};
    rank ranks[MAX_RANKS];

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(configs); i++)
        for (size_t k = 0; k < TRII_COUNT_OF(rows); k++) {
            run_engines(ranks, 2, configs[i], short_batches, rows[k]);
            check_hash(ranks, 2, ranks[0].hash);
        }
}

/* A mean over nothing is not a number: it ends in a status, on all ranks alike. */
static void an_empty_batch_ends_alike_on_all_ranks(void **state)
{
    int64_t rows[][2] = {{0, 0}, {4, 0}};
    rank ranks[MAX_RANKS];

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(configs); i++)
        for (size_t k = 0; k < TRII_COUNT_OF(rows); k++) {
            run_engines(ranks, 2, configs[i], short_batches, rows[k]);
            if (ranks[0].status != ranks[1].status)
                fail_msg("%s: %s\n%s: %s", tri_status_name(ranks[0].status), ranks[0].line,
                         tri_status_name(ranks[1].status), ranks[1].line);
        }
}

/* --- size ----------------------------------------------------------------- */

static tri_status train_large(rank *r)
{
    tri_engine *e = NULL;
    tri_tensor *x = NULL;
    tri_status status;

    TRY(tri_initialize(NULL, tri_nn_linear(1 << 11, 1 << 11, NULL),
                       &(tri_initialize_options){.config = CONFIG(3, 1), .group = r->group}, &e));
    x = tri_ones(TRI_SHAPE(1, 1 << 11), TRI_DTYPE_F32);
    tri_engine_backward(e, tri_mean(tri_engine_forward(e, x), NULL, 0, false));
    status = tri_engine_step(e);
    tri_step_end();
    if (status == TRI_OK)
        status = tri_engine_save_checkpoint(e, (const char *)r->arg, "large", NULL, 0);
    if (status == TRI_OK)
        status = tri_module_hash(tri_engine_module(e), &r->hash);
    if (status == TRI_OK)
        status = tri_engine_load_checkpoint(e, (const char *)r->arg, NULL, NULL);
    tri_engine_destroy(e);
    return status;
}

static void a_parameter_of_2_to_the_22_elements(void **state)
{
    rank ranks[MAX_RANKS];
    scratch s;

    (void)state;
    scratch_begin(&s);
    run_ranks(ranks, 3, train_large, s.dir);
    check_hash(ranks, 3, ranks[0].hash);
    scratch_end(&s);
}

/* --- a forked child ------------------------------------------------------- */

/* Only what it may: it destroys the engine, or is told. */
static void a_forked_child_is_told(void **state)
{
    lone_engine l;
    double loss;
    int status = 0;
    pid_t pid;

    (void)state;
    lone_engine_begin(&l, CONFIG(0, 1));
    CHECK_OK(engine_micro_steps(l.e, &l.r, 0, 2));
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(20);
        (void)!engine_micro_step(l.e, &l.r, 2, &loss);
        tri_engine_destroy(l.e);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_OK(engine_micro_steps(l.e, &l.r, 2, 2));
    lone_engine_end(&l);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(two_engines_do_not_disturb_each_other),
    cmocka_unit_test(an_optimizer_and_a_schedule_of_the_program_win),
    cmocka_unit_test(without_an_optimizer_the_remedy_is_named),
    cmocka_unit_test(evaluation_changes_nothing),
    cmocka_unit_test(an_engine_ends_wherever_its_loop_is),
    cmocka_unit_test(short_batches_are_trained),
    cmocka_unit_test(an_empty_batch_ends_alike_on_all_ranks),
    cmocka_unit_test(a_parameter_of_2_to_the_22_elements),
    cmocka_unit_test(a_forked_child_is_told),
};

TEST_MAIN(tests)
