/* parallelize_alike_test.c - ranks of a tensor group compute one batch alike: the first update of
 * an optimizer names those that have another batch, other random numbers or other settings. And
 * what they draw for parts is not alike. */
#include "testing/cut_ranks.h"

typedef struct difference {
    const char *line; /* NULL: they are alike */
    bool batch, seed, unread_seed, rate, decay, kind, target;
    bool embeds; /* the batch is words of a table that is cut */
} difference;

static const difference differences[] = {
    {.line = NULL},
    {.line = "rank 1 has another batch than rank 0", .batch = true},
    {.line = "rank 1 has another batch than rank 0", .batch = true, .embeds = true},
    {.line = "rank 1 has random numbers of seed 6, stream 0, step 0, and rank 0 of seed 5",
     .seed = true},
    {.line = NULL, .unread_seed = true},
    {.line = "rank 1 has lr 0.25 in its optimizer, and rank 0 has 0.125: give all ranks the same; "
             "other ranks that differ: 2",
     .rate = true},
    {.line = "rank 1 has weight_decay 0.5 in its optimizer, and rank 0 has 0:", .decay = true},
    {.line = "rank 1 has another kind of optimizer than rank 0", .kind = true},
    {.line = "mse_loss", .target = true}};
/* of ranks 1 and 2 */
static const difference in_part = {
    .line = "rank 1 (world rank 2) has lr 0.25 in its optimizer, and rank 0 has", .rate = true};

static tri_module *build_words(void)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_set_default_dtype(TRI_DTYPE_F64);
    net = tri_nn_sequential(tri_nn_embedding(7, IN, NULL), tri_nn_tanh(),
                            tri_nn_linear(IN, OUT, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return net;
}

static tri_tensor *batch_of(const difference *d, bool differs)
{
    int64_t words[ROWS] = {1, 2, 3, 4, 5, differs ? 6 : 0};

    return d->embeds ? tri_tensor_from(TRI_SHAPE(ROWS), TRI_DTYPE_I64, words)
                     : rows(differs, ROWS, IN);
}

static tri_optimizer *optimizer_of(const difference *d, tri_module *net, bool differs)
{
    const double lr = d->rate && differs ? 0.25 : 0.125, decay = d->decay && differs ? 0.5 : 0;

    return d->kind && differs ? tri_adagrad(net, lr, NULL)
                              : tri_sgd(net, lr, &(tri_sgd_options){.weight_decay = decay});
}

static const char *differ(rank_env *env, tri_group *group, const difference *d)
{
    static const tri_parallel_rule words[] = {{.module = "0", .style = TRI_ROWWISE}};
    const bool differs = tri_group_rank(group) > 0;
    tri_module *net = d->embeds ? build_words() : build(3);
    tri_tensor *x = batch_of(d, d->batch && differs);
    tri_tensor *y = rows(0, d->target && env->rank == 1 ? ROWS - 1 : ROWS, OUT);
    tri_optimizer *opt;

    tri_module_train(net, !d->unread_seed);
    RANK_TRY(env, d->embeds ? tri_parallelize(net, group, words, 1)
                            : tri_parallelize(net, group, pairs, 4));
    tri_rng_state_set(&(tri_rng){.seed = 5 + ((d->seed || d->unread_seed) && differs)});
    opt = optimizer_of(d, net, differs);
    for (int s = 0; s < 2; s++) {
        tri_backward(tri_mse_loss(tri_forward(net, x), y, NULL));
        if (d->line != NULL) {
            RANK_FAILS(env, tri_optimizer_step(opt),
                       d->target ? env->rank == 1 ? TRI_ERR_INVALID_ARG : TRI_ERR_ABORTED
                                 : TRI_ERR_MISMATCH,
                       d->line);
            break;
        }
        RANK_TRY(env, tri_optimizer_step(opt));
        tri_step_end();
    }
    tri_step_end();
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return NULL;
}

static const char *alike_rank(rank_env *env)
{
    tri_group *group = NULL, *other = NULL;
    const char *wrong = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (size_t k = 0; k < TRII_COUNT_OF(differences) && wrong == NULL; k++) {
        RANK_TRY(env, tri_group_split(group, 0, env->rank, NULL, &other)); /* it may be aborted */
        wrong = differ(env, other, &differences[k]);
        tri_group_unref(other);
    }
    if (wrong == NULL)
        RANK_TRY(env, tri_group_split(group, env->rank > 0, env->rank, NULL, &other));
    if (wrong == NULL && env->rank > 0)
        wrong = differ(env, other, &in_part);
    if (wrong == NULL)
        tri_group_unref(other);
    tri_group_unref(group);
    return wrong;
}

static void ranks_that_differ_are_named_in_the_first_update(void **state)
{
    (void)state;
    run_threads(3, &(tri_group_options){.engine = "shm", .timeout_ms = 20000}, alike_rank, NULL);
}

static const char *drawn_rank(rank_env *env)
{
    tri_module *net = build(3);
    tri_group *group = NULL;
    tri_tensor *weight = tri_module_find(net, "2.weight");

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, tri_parallelize(net, group, pairs, 4));
    RANK_FAILS(env, tri_init_kaiming_uniform(weight, 0, TRI_FAN_IN), TRI_ERR_UNSUPPORTED,
               "Draw them before the cut");
    RANK_FAILS(env, tri_init_normal(tri_module_find(net, "0.bias"), 0, 1), TRI_ERR_UNSUPPORTED,
               "all ranks would draw the same numbers");
    RANK_TRY(env, tri_init_normal(tri_module_find(net, "2.bias"), 0, 1));
    RANK_TRY(env, tri_init_constant(weight, 1));
    tri_module_destroy(net);
    tri_group_unref(group);
    return NULL;
}

/* Parts of one parameter would be equal, and as wide as a part's number of inputs says. */
static void parts_are_not_drawn_alike(void **state)
{
    (void)state;
    run_threads(2, &(tri_group_options){.engine = "shm"}, drawn_rank, NULL);
}

/* --- masks ---------------------------------------------------------------- */

enum { TOKENS = 4, ALL = 2 * TOKENS * 3 };

/* Two masks, the first of a module that a rule of its own names; on one process in `want`. */
static tri_status drop_twice(tri_group *group, double *got)
{
    const tri_parallel_rule rules[] = {
        {.module = "0", .style = TRI_SEQUENCE, .input = TRI_WHOLE, .output = TRI_WHOLE},
        {.module = "0.0", .style = TRI_SEQUENCE}};
    tri_module *net =
        tri_nn_sequential(tri_nn_sequential(tri_nn_dropout(0.5), tri_nn_dropout(0.5)));
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(2, TOKENS, 3), TRI_DTYPE_F64);
    tri_status status = tri_init_constant(x, 1);

    tri_rng_state_set(&(tri_rng){.seed = 5});
    if (status == TRI_OK && group != NULL)
        status = tri_parallelize(net, group, rules, 2);
    if (status == TRI_OK)
        status = tri_tensor_copy_out(tri_forward(net, x), got, ALL * sizeof(double));
    tri_step_end();
    tri_module_destroy(net);
    tri_tensor_unref(x);
    return status;
}

static const char *masks_rank(rank_env *env)
{
    double got[ALL];
    tri_group *group = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    RANK_TRY(env, drop_twice(group, got));
    tri_group_unref(group);
    return far_from(env, "value", got, env->arg, ALL);
}

static void a_module_inside_leaves_the_masks_of_the_outer_one(void **state)
{
    double want[ALL];

    (void)state;
    CHECK_OK(drop_twice(NULL, want));
    run_threads(2, &(tri_group_options){.engine = "shm"}, masks_rank, want);
}

/* Of layers over two groups, the dropout follows the one whose group is its own. */
typedef struct fork_of_two {
    tri_module *kept, *drop, *beside;
} fork_of_two;

static tri_tensor *fork_forward(tri_module *self, tri_tensor *x)
{
    fork_of_two *f = tri_module_data(self);
    tri_tensor *y = tri_forward(f->kept, x);

    (void)tri_forward(f->beside, x);
    return tri_forward(f->drop, y);
}

static tri_status drop_beside(tri_group *group, tri_group *other, double *got)
{
    const tri_parallel_rule rules[] = {{.module = "kept", .style = TRI_COLWISE},
                                       {.module = "drop", .style = TRI_COLWISE}};
    tri_module *net = tri_module_simple("fork", sizeof(fork_of_two), fork_forward);
    fork_of_two *f = tri_module_data(net);
    tri_tensor *x = tri_tensor_create(TRI_SHAPE(2, 1), TRI_DTYPE_F64);
    tri_status status = tri_init_constant(x, 1);

    trii_mutex_lock(&drawing);
    tri_set_default_dtype(TRI_DTYPE_F64);
    f->kept = tri_module_add_child(net, "kept", tri_nn_linear(1, 8, NULL));
    f->drop = tri_module_add_child(net, "drop", tri_nn_dropout(0.5));
    f->beside = tri_module_add_child(net, "beside", tri_nn_linear(1, 8, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    for (int64_t i = 0; i < tri_module_state_count(net) && status == TRI_OK; i++)
        status = tri_init_constant(tri_module_state(net, i).tensor, 1);
    tri_rng_state_set(&(tri_rng){.seed = 5});
    if (status == TRI_OK && group != NULL)
        status = tri_parallelize(net, group, rules, 2);
    if (status == TRI_OK && group != NULL)
        status = tri_parallelize(
            f->beside, other, &(tri_parallel_rule){.module = "", .style = TRI_COLWISE, .parts = 2},
            1);
    if (status == TRI_OK)
        status = tri_tensor_copy_out(tri_forward(net, x), got,
                                     (group != NULL ? 8 : 16) * sizeof(double));
    tri_step_end();
    tri_module_destroy(net);
    tri_tensor_unref(x);
    return status;
}

static const char *beside_rank(rank_env *env)
{
    const double *want = env->arg;
    double got[8];
    tri_group *group = NULL, *other = NULL;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &other));
    RANK_TRY(env, tri_group_split(other, 0, -env->rank, NULL, &group)); /* the other way round */
    RANK_TRY(env, drop_beside(group, other, got));
    for (int i = 0; i < 8; i++) {
        double whole = want[i / 4 * 8 + 4 * tri_group_rank(group) + i % 4];

        if (got[i] != whole)
            return RANK_FAIL(env, "rank %d: value %d is %g, not %g", env->rank, i, got[i], whole);
    }
    tri_group_unref(group);
    tri_group_unref(other);
    return NULL;
}

static void a_dropout_follows_the_layers_of_its_own_group(void **state)
{
    double want[16];

    (void)state;
    CHECK_OK(drop_beside(NULL, NULL, want));
    run_threads(2, &(tri_group_options){.engine = "shm"}, beside_rank, want);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_that_differ_are_named_in_the_first_update),
    cmocka_unit_test(parts_are_not_drawn_alike),
    cmocka_unit_test(a_module_inside_leaves_the_masks_of_the_outer_one),
    cmocka_unit_test(a_dropout_follows_the_layers_of_its_own_group),
};

TEST_MAIN(tests)
