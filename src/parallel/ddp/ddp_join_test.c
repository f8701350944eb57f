/*
 * ddp_join_test.c - ranks with different numbers of batches: as one process that has at each step
 * what the ranks have together.
 */
/* ctest: also=TRI_CHECK=order */
#include <trireme/sync_batch_norm.h>

#include "base/err.h"
#include "testing/ddp_ranks.h"

typedef struct plan {
    int steps[MAX_RANKS]; /* batches of each rank, 0 to MOST */
    bool norm;            /* with batch norm over all ranks */
    bool plain_norm;      /* with batch norm of its own on each, of the inputs */
    bool unseen;          /* the loss is a sum: ranks with data have equal weights */
    bool scaled;          /* the loss is a mean times a parameter */
    bool nan_check;       /* a NaN behind the join is found */
    int per_update;       /* synchronised passes; 0 = 1 */
    bool kept;            /* rank 0's last batch is made under no_sync and not updated with */
    tri_bucket_hook hook;
} plan;

#define MOST 5
#define MORE 2 /* passes of all ranks behind a join, with running statistics */

/* What rank r of the plan has at a step. */
static int first_row(int r, int step)
{
    return (2 * r + step) % 6;
}

static int count_rows(int r, int step)
{
    return 2 + (r + step) % 3; /* batch norm needs two */
}

static tri_module *build(const plan *p, tri_group *group)
{
    const tri_nn_sync_batch_norm_options options = {.group = group};
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(4);
    tri_set_default_dtype(TRI_DTYPE_F64);
    if (p->plain_norm)
        net = tri_sequential(tri_nn_batch_norm2d(IN, NULL), tri_nn_flatten(1),
                             tri_nn_linear(IN, OUT, NULL));
    else
        net = p->norm ? tri_sequential(tri_nn_conv2d(IN, 8, 1, NULL),
                                       tri_nn_sync_batch_norm(8, &options), tri_nn_tanh(),
                                       tri_nn_flatten(1), tri_nn_linear(8, OUT, NULL))
                      : tri_sequential(tri_nn_flatten(1), tri_nn_linear(IN, 8, NULL), tri_nn_tanh(),
                                       tri_nn_linear(8, OUT, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    if (p->scaled)
        tri_module_parameter(net, "scale", tri_tensor_from(TRI_DTYPE_F64, NULL, 0, &(double){2}));
    return net;
}

/* What the ranks from `from` to `to` - 1 have at the step, one behind the other. */
typedef struct trainer {
    const plan *p;
    tri_module *model;
    tri_optimizer *opt;
    int from, to;
    int calls, updates;
} trainer;

static tri_tensor *loss_of_step(const trainer *t, int step)
{
    double x[ROWS * IN], y[ROWS * OUT];
    int n = 0;
    tri_tensor *in, *target, *loss;

    for (int r = t->from; r < t->to; r++) {
        int first = first_row(r, step), rows = step < t->p->steps[r] ? count_rows(r, step) : 0;

        memcpy(x + (size_t)n * IN, x_data + (size_t)first * IN, (size_t)rows * IN * sizeof(double));
        memcpy(y + (size_t)n * OUT, y_data + (size_t)first * OUT,
               (size_t)rows * OUT * sizeof(double));
        n += rows;
    }
    in = tri_tensor_from(TRI_DTYPE_F64, TRI_SHAPE(n, IN, 1, 1), x);
    target = tri_tensor_from(TRI_DTYPE_F64, TRI_SHAPE(n, OUT), y);
    loss = tri_forward(t->model, in);
    if (t->p->scaled) /* whose gradient is the mean of no rows */
        loss = tri_mul(tri_mean(tri_square(tri_sub(loss, target)), NULL, 0, false),
                       tri_module_find(t->model, "scale"));
    else
        loss = t->p->unseen ? tri_sum(tri_square(tri_sub(loss, target)), NULL, 0, false)
                            : tri_mse_loss(loss, target, NULL);
    tri_tensor_unref(in);
    tri_tensor_unref(target);
    return loss;
}

static tri_tensor *loss_of_nothing(void *arg)
{
    return loss_of_step(arg, MOST);
}

static tri_status update(void *arg)
{
    trainer *t = arg;

    if (t->p->per_update > 0 && ++t->calls % t->p->per_update != 0)
        return TRI_OK;
    t->updates++;
    return tri_optimizer_step(t->opt);
}

static int longest(const plan *p)
{
    int most = 0;

    for (int r = 0; r < MAX_RANKS; r++)
        most = p->steps[r] > most ? p->steps[r] : most;
    return most;
}

static tri_status take_buffers(rank *r, tri_module *model)
{
    r->n_weights = 0;
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        tri_state_entry entry = tri_module_state(model, i);
        int n = (int)tri_tensor_numel(entry.tensor);
        int64_t whole;

        if (entry.parameter)
            continue;
        if (tri_tensor_dtype(entry.tensor) == TRI_DTYPE_I64) {
            TRY(tri_copy_out(entry.tensor, &whole, sizeof(whole)));
            r->weights[r->n_weights] = (double)whole;
        } else {
            TRY(tri_copy_out(entry.tensor, r->weights + r->n_weights, (size_t)n * sizeof(double)));
        }
        r->n_weights += n;
    }
    return TRI_OK;
}

/* A sum, whose passes are counted. */
static tri_status counted(void *state, tri_bucket *bucket, int stage, tri_work **work_out)
{
    if (stage > 0)
        return TRI_OK;
    *(int *)state += bucket->index == 0;
    return tri_all_reduce(bucket->group, bucket->data, bucket->data, bucket->count, bucket->dtype,
                          TRI_REDOP_SUM, work_out);
}

static tri_status find_nan(void)
{
    tri_tensor *one = tri_tensor_from(TRI_DTYPE_F64, NULL, 0, &(double){-1});
    double value;
    tri_status status = tri_item_get(tri_log(one), &value);

    tri_step_end();
    tri_tensor_unref(one);
    return status == TRI_ERR_NAN ? TRI_OK : TRII_FAIL(TRI_ERR_INTERNAL, "a NaN was not found");
}

static tri_status train(rank *r)
{
    const plan *p = r->arg;
    bool alone = r->size == 1;
    trainer t = {.p = p, .from = alone ? 0 : r->index, .to = alone ? MAX_RANKS : r->index + 1};
    int steps = alone ? longest(p) : p->steps[r->index], passes = 0;

    t.model = tri_ddp(build(p, r->group), &(tri_ddp_options){.group = r->group,
                                                             .hook = p->hook,
                                                             .hook_state = &passes,
                                                             .bucket_cap_bytes = 200,
                                                             .first_bucket_bytes = 1});
    TRY(tri_module_status(t.model));
    t.opt = tri_sgd(t.model, 0.05, &(tri_sgd_options){.momentum = 0.9, .weight_decay = 0.01});
    for (int step = 0; step < steps; step++) {
        bool keep = p->kept && !alone && r->index == 0 && step == steps - 1;

        for (int pass = 1; pass < p->per_update; pass++, t.calls++)
            tri_backward(loss_of_step(&t, step));
        if (keep)
            tri_no_sync_begin(t.model);
        tri_backward(loss_of_step(&t, step));
        if (keep)
            tri_no_sync_end(t.model);
        else
            TRY(update(&t));
        TRY(tri_step_end_status());
    }
    TRY(tri_ddp_join(t.model, loss_of_nothing, update, &t, NULL));
    if (t.updates != longest(p) || (p->hook == counted && !alone && passes != longest(p)))
        return TRII_FAIL(TRI_ERR_INTERNAL, "%d updates, %d passes of a hook", t.updates, passes);
    TRY(tri_optimizer_step(t.opt)); /* finds no gradients */
    for (int i = 0; i < MORE * p->plain_norm; i++) {
        tri_backward(loss_of_step(&t, 0));
        TRY(tri_step_end_status());
    }
    TRY(tri_ddp_sync_buffers(t.model));
    TRY(tri_ddp_verify(t.model, true));
    if (p->nan_check)
        TRY(find_nan());
    TRY(p->plain_norm ? take_buffers(r, t.model) : take_weights(r, t.model));
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.model);
    return TRI_OK;
}

static void check(const plan *p, int size, double bound)
{
    static rank one[1], ranks[MAX_RANKS];

    make_data();
    run_ranks(one, 1, train, p);
    check_ranks(one, 1);
    run_ranks(ranks, size, train, p);
    check_ranks(ranks, size);
    assert_true(one[0].n_weights > 70);
    for (int i = 0; i < one[0].n_weights; i++)
        CHECK_NEAR(ranks[0].weights[i], one[0].weights[i], bound);
    for (int i = 1; i < size; i++)
        assert_true(ranks[i].hash == ranks[0].hash);
}

static void uneven_numbers_of_batches_are_one_process(void **state)
{
    (void)state;
    check(&(plan){.steps = {2, MOST}}, 2, 1e-12);
    check(&(plan){.steps = {MOST, 3}}, 2, 1e-12);
    check(&(plan){.steps = {0, MOST, 3}}, 3, 1e-12);
    check(&(plan){.steps = {4, 4, 4}}, 3, 1e-12);
}

static void an_update_may_take_several_passes(void **state)
{
    (void)state;
    check(&(plan){.steps = {1, 3}, .per_update = 2}, 2, 1e-12);
    check(&(plan){.steps = {0, 2, 3}, .per_update = 3}, 3, 1e-12);
}

/* Gradients that were not averaged yet are data: of a rank that joins with others or after all. */
static void what_no_sync_has_left_is_averaged(void **state)
{
    (void)state;
    check(&(plan){.steps = {3, MOST}, .kept = true}, 2, 1e-12);
    check(&(plan){.steps = {3, 2, 2}, .kept = true}, 3, 1e-12);
    check(&(plan){.steps = {3, 3}, .kept = true, .hook = counted}, 2, 1e-12);
}

/* What they make of no rows at all is not sent. */
static void gradients_of_nothing_are_zeros(void **state)
{
    (void)state;
    check(&(plan){.steps = {2, MOST}, .scaled = true}, 2, 1e-12);
    check(&(plan){.steps = {2, MOST}, .scaled = true, .hook = counted}, 2, 1e-12);
}

static void under_a_check_for_nan_as_well(void **state)
{
    (void)state;
    assert_int_equal(setenv("TRI_CHECK", "nan", 1), 0);
    check(&(plan){.steps = {1, 3}, .nan_check = true}, 2, 1e-12);
    check(&(plan){.steps = {1, 3}, .scaled = true, .norm = true}, 2, 1e-11);
}

static void nobody_has_a_batch(void **state)
{
    (void)state;
    check(&(plan){.steps = {0, 0}}, 2, 0.0);
    check(&(plan){.steps = {0, 0}, .norm = true}, 2, 0.0);
}

/* The statistics are those of the ranks that have data; a last pass without any counts nowhere. */
static void batch_norm_over_all_ranks_is_one_process(void **state)
{
    (void)state;
    check(&(plan){.steps = {2, MOST}, .norm = true}, 2, 1e-11);
    check(&(plan){.steps = {MOST, 1, 3}, .norm = true}, 3, 1e-11);
}

/* Whose running statistics all have before the next pass, and in the end. */
static int source_of(const plan *p, int step)
{
    int source = MAX_RANKS - 1;

    while (source > 0 && p->steps[source] <= step)
        source--;
    return p->steps[0] > step ? 0 : source;
}

/* The statistics of one process that has the batches of the sources. */
static void take_statistics(const plan *p, double *weights, int *n_out)
{
    tri_module *net = build(p, NULL);
    rank r = {0};

    int each = p->per_update > 0 ? p->per_update : 1, passes = each * longest(p);

    for (int pass = 0; pass < passes + MORE; pass++) {
        int step = pass < passes ? pass / each : 0;
        int source = pass < passes ? source_of(p, step) : 0;
        const trainer t = {.p = p, .model = net, .from = source, .to = source + 1};
        tri_tensor *loss = loss_of_step(&t, step);

        CHECK_OK(tri_tensor_status(loss));
        CHECK_OK(tri_step_end_status());
    }
    CHECK_OK(take_buffers(&r, net));
    memcpy(weights, r.weights, (size_t)r.n_weights * sizeof(*weights));
    *n_out = r.n_weights;
    tri_module_destroy(net);
}

static void running_statistics_are_of_ranks_that_have_data(void **state)
{
    static const plan plans[] = {{.steps = {1, 4}, .plain_norm = true},
                                 {.steps = {4, 2}, .plain_norm = true},
                                 {.steps = {1, 3, 4}, .plain_norm = true},
                                 {.steps = {2, 4, 1}, .plain_norm = true},
                                 {.steps = {0, 3, 3}, .plain_norm = true},
                                 {.steps = {0, 0}, .plain_norm = true},
                                 {.steps = {1, 3, 2}, .plain_norm = true, .per_update = 2}};

    (void)state;
    make_data();
    for (size_t i = 0; i < TRII_COUNT_OF(plans); i++) {
        static rank ranks[MAX_RANKS];
        int size = plans[i].steps[2] > 0 ? 3 : 2, n;
        double wanted[WEIGHTS];

        take_statistics(&plans[i], wanted, &n);
        assert_true(n == 2 * IN + 1);
        run_ranks(ranks, size, train, &plans[i]);
        check_ranks(ranks, size);
        for (int r = 0; r < size; r++)
            for (int k = 0; k < n; k++)
                if (!(fabs(ranks[r].weights[k] - wanted[k]) < 1e-12))
                    fail_msg("plan %zu, rank %d, statistic %d: %g instead of %g", i, r, k,
                             ranks[r].weights[k], wanted[k]);
    }
}

static void hooks_go_on_with_who_is_left(void **state)
{
    (void)state;
    check(&(plan){.steps = {2, MOST}, .hook = tri_bucket_hook_f16}, 2, 1e-3);
}

/* It would count in what a hook keeps. */
static void a_pass_without_any_data_is_not_shown_to_hooks(void **state)
{
    (void)state;
    check(&(plan){.steps = {2, MOST}, .hook = counted}, 2, 1e-12);
    check(&(plan){.steps = {2, 2, 2}, .hook = counted}, 3, 1e-12);
}

/* --- votes ---------------------------------------------------------------- */

/* Rank 0 is in the join when rank 1 votes: it has to leave with the others. */
static tri_status vote(rank *r)
{
    const plan p = {.steps = {0, MOST, MOST}};
    trainer t = {.p = &p, .from = r->index, .to = r->index + 1};

    t.model = tri_ddp(build(&p, r->group), &(tri_ddp_options){.group = r->group});
    TRY(tri_module_status(t.model));
    t.opt = tri_sgd(t.model, 0.05, NULL);
    for (int step = 0; step < p.steps[r->index] && !tri_ddp_stopped(t.model); step++) {
        if (r->index == 1 && step == 1)
            tri_ddp_vote_stop(t.model);
        tri_backward(loss_of_step(&t, step));
        TRY(update(&t));
        TRY(tri_step_end_status());
    }
    TRY(tri_ddp_join(t.model, loss_of_nothing, update, &t, NULL));
    if (!tri_ddp_stopped(t.model) || t.updates != 2 ||
        tri_ddp_sample_count(t.model) != count_rows(1, 1) + count_rows(2, 1))
        return TRII_FAIL(TRI_ERR_INTERNAL, "%d updates, %lld samples%s", t.updates,
                         (long long)tri_ddp_sample_count(t.model),
                         tri_ddp_stopped(t.model) ? "" : ", not stopped");
    TRY(tri_ddp_verify(t.model, true));
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.model);
    return TRI_OK;
}

static void a_vote_is_known_behind_the_join(void **state)
{
    static rank ranks[3];

    (void)state;
    make_data();
    run_ranks(ranks, 3, vote, NULL);
    check_ranks(ranks, 3);
}

/* Of sums the mean is over ranks that have data: with one left that is its own. */
static tri_status join_at_once(rank *r)
{
    const plan p = {.steps = {0, MOST}, .unseen = true};
    rank mine = *r;

    mine.arg = &p;
    TRY(train(&mine));
    memcpy(r->weights, mine.weights, sizeof(r->weights));
    r->n_weights = mine.n_weights;
    return TRI_OK;
}

static void who_has_joined_weighs_nothing(void **state)
{
    static rank one[1], ranks[2];

    (void)state;
    make_data();
    run_ranks(one, 1, join_at_once, NULL);
    check_ranks(one, 1);
    run_ranks(ranks, 2, join_at_once, NULL);
    check_ranks(ranks, 2);
    for (int i = 0; i < one[0].n_weights; i++)
        CHECK_NEAR(ranks[0].weights[i], one[0].weights[i], 1e-12);
}

/* --- mistakes ------------------------------------------------------------- */

static tri_status refuse(void *arg)
{
    (void)arg;
    return TRII_FAIL(TRI_ERR_UNSUPPORTED, "refused on purpose");
}

static tri_status end(void *arg)
{
    (void)arg;
    return TRI_END;
}

static tri_tensor *trained_loss(void *arg)
{
    tri_tensor *loss = loss_of_nothing(arg);

    tri_backward(loss);
    return loss;
}

static tri_tensor *no_loss(void *arg)
{
    (void)arg;
    return NULL;
}

typedef struct mistake {
    tri_tensor *(*loss)(void *arg);
    tri_status (*update)(void *arg);
    tri_status status;
    const char *text;
} mistake;

/* Rank 0 joins and makes a mistake; rank 1 trains. */
static tri_status join_and_fail(rank *r)
{
    const plan p = {.steps = {0, 3}};
    const mistake *m = r->arg;
    trainer t = {.p = &p, .from = r->index, .to = r->index + 1};
    tri_status status;

    t.model = tri_ddp(build(&p, r->group), &(tri_ddp_options){.group = r->group});
    t.opt = tri_sgd(t.model, 0.05, NULL);
    status = tri_module_status(t.model);
    if (status == TRI_OK && r->index == 0)
        status = tri_ddp_join(t.model, m->loss, m->update, &t, NULL);
    for (int step = 0; step < 3 && status == TRI_OK && r->index == 1; step++) {
        tri_backward(loss_of_step(&t, step));
        status = update(&t);
        if (status == TRI_OK)
            status = tri_step_end_status();
    }
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.model);
    return status;
}

static void a_mistake_in_the_join_is_told_to_peers(void **state)
{
    const mistake cases[] = {
        {loss_of_nothing, refuse, TRI_ERR_UNSUPPORTED, "refused on purpose"},
        {loss_of_nothing, end, TRI_ERR_INVALID_ARG, "ddp_join: update returned END"},
        {trained_loss, update, TRI_ERR_INVALID_ARG, "ddp_join: loss calls tri_backward"},
        {no_loss, update, TRI_ERR_INVALID_ARG, "the loss is NULL"},
    };
    static rank ranks[2];

    (void)state;
    make_data();
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        run_ranks(ranks, 2, join_and_fail, &cases[i]);
        for (int k = 0; k < 2; k++)
            if (ranks[k].status != (k == 0 ? cases[i].status : TRI_ERR_ABORTED) ||
                strstr(ranks[k].line, cases[i].text) == NULL)
                fail_msg("case %zu, rank %d: %s: %s", i, k, tri_status_name(ranks[k].status),
                         ranks[k].line);
    }
}

/* Ranks run out where the plan says; all of them fail in the same step, before its update. */
static tri_status run_out(rank *r)
{
    const plan *p = r->arg;
    trainer t = {.p = p, .from = r->index, .to = r->index + 1};
    tri_status status;

    t.model = tri_ddp(build(p, r->group), &(tri_ddp_options){.group = r->group});
    t.opt = tri_sgd(t.model, 0.05, NULL);
    status = tri_module_status(t.model);
    for (int step = 0; step < p->steps[r->index] && status == TRI_OK; step++) {
        tri_backward(loss_of_step(&t, step));
        status = tri_optimizer_step(t.opt);
        if (status == TRI_OK)
            status = tri_step_end_status();
        t.updates += status == TRI_OK;
    }
    if (status == TRI_OK)
        status = tri_ddp_join(t.model, loss_of_nothing, update, &t,
                              &(tri_ddp_join_options){.throw_on_early_termination = true});
    if (status == TRI_OK && r->index == 0) { /* the next epoch, without */
        tri_backward(loss_of_step(&t, 0));
        status = tri_optimizer_step(t.opt);
        if (status == TRI_OK)
            status = tri_step_end_status();
    }
    if (status == TRI_OK) {
        const int before = t.updates;

        status = tri_ddp_join(t.model, loss_of_nothing, update, &t, NULL);
        t.updates = before;
    }
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    r->n_weights = t.updates;
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.model);
    return status;
}

static void all_fail_when_some_run_out(void **state)
{
    static const struct {
        plan p;
        int size, updates;
        const char *who; /* NULL: nobody fails */
    } cases[] = {{{.steps = {2, 4}}, 2, 2, "no data left on rank 0, and others have some"},
                 {{.steps = {3, 1}}, 2, 1, "no data left on rank 1, and others have some"},
                 {{.steps = {2, 3, 2}, .norm = true}, 3, 2, "no data left on ranks 0, 2, and"},
                 {{.steps = {3, 0, 1}}, 3, 0, "no data left on rank 1, and others have some"},
                 {{.steps = {2, 2, 2}}, 3, 2, NULL}};
    static rank ranks[MAX_RANKS];

    (void)state;
    make_data();
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        run_ranks(ranks, cases[i].size, run_out, &cases[i].p);
        for (int k = 0; k < cases[i].size; k++) {
            const rank *r = &ranks[k];
            bool failed = r->status == TRI_ERR_MISMATCH || r->status == TRI_ERR_ABORTED;

            if (failed != (cases[i].who != NULL) || (!failed && r->status != TRI_OK) ||
                (failed && strstr(r->line, cases[i].who) == NULL) ||
                r->n_weights != cases[i].updates)
                fail_msg("case %zu, rank %d: %d updates, %s: %s", i, k, r->n_weights,
                         tri_status_name(r->status), r->line);
        }
    }
}

/* Of a parameter that is not the model's. */
static tri_tensor *another_loss(void *arg)
{
    tri_tensor *x = tri_tensor_from(TRI_DTYPE_F64, NULL, 0, x_data), *loss;

    (void)arg;
    tri_requires_grad(x, true);
    loss = tri_square(x);
    tri_tensor_unref(x);
    return loss;
}

static tri_tensor *loss_then_another(void *arg)
{
    const trainer *t = arg;

    return t->updates == 0 ? loss_of_nothing(arg) : another_loss(NULL);
}

static tri_status update_once(void *arg)
{
    const trainer *t = arg;

    return t->updates == 0 ? update(arg) : TRII_FAIL(TRI_ERR_INTERNAL, "the loss was taken");
}

/* Rank 0 joins, with a loss that is wrong at once or only in its second pass. */
static tri_status join_with_another_loss(rank *r)
{
    const plan p = {.steps = {0, 3}};
    const bool *at_once = r->arg;
    trainer t = {.p = &p, .from = r->index, .to = r->index + 1};
    tri_status status;

    t.model = tri_ddp(build(&p, r->group), &(tri_ddp_options){.group = r->group});
    t.opt = tri_sgd(t.model, 0.05, NULL);
    status = tri_module_status(t.model);
    if (status == TRI_OK && r->index == 0)
        status = tri_ddp_join(t.model, *at_once ? another_loss : loss_then_another, update_once, &t,
                              NULL);
    for (int step = 0; step < 3 && status == TRI_OK && r->index == 1; step++) {
        tri_backward(loss_of_step(&t, step));
        status = update(&t);
        if (status == TRI_OK)
            status = tri_step_end_status();
    }
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.model);
    return status;
}

static void a_loss_that_is_not_the_models_is_refused(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    for (int at_once = 0; at_once < 2; at_once++) {
        run_ranks(ranks, 2, join_with_another_loss, &(bool){at_once == 1});
        for (int i = 0; i < 2; i++)
            if (ranks[i].status != (i == 0 ? TRI_ERR_INVALID_ARG : TRI_ERR_ABORTED) ||
                strstr(ranks[i].line, "is not one of the model in training mode") == NULL)
                fail_msg("%d, rank %d: %s", at_once, i, ranks[i].line);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(uneven_numbers_of_batches_are_one_process),
    cmocka_unit_test(an_update_may_take_several_passes),
    cmocka_unit_test(what_no_sync_has_left_is_averaged),
    cmocka_unit_test(gradients_of_nothing_are_zeros),
    cmocka_unit_test(under_a_check_for_nan_as_well),
    cmocka_unit_test(nobody_has_a_batch),
    cmocka_unit_test(batch_norm_over_all_ranks_is_one_process),
    cmocka_unit_test(running_statistics_are_of_ranks_that_have_data),
    cmocka_unit_test(hooks_go_on_with_who_is_left),
    cmocka_unit_test(a_pass_without_any_data_is_not_shown_to_hooks),
    cmocka_unit_test(who_has_joined_weighs_nothing),
    cmocka_unit_test(a_vote_is_known_behind_the_join),
    cmocka_unit_test(a_mistake_in_the_join_is_told_to_peers),
    cmocka_unit_test(all_fail_when_some_run_out),
    cmocka_unit_test(a_loss_that_is_not_the_models_is_refused),
};

TEST_MAIN(tests)
