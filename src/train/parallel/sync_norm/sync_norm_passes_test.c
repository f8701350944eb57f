/* sync_norm_passes_test.c - batch norm by the batches of all ranks where several backward passes
 * make one update and ranks have batches of different sizes: as one process that has the whole
 * batch in each pass. */
/* ctest: also=TRI_CHECK=order */
#include <trireme/sync_batch_norm.h>

#include "base/err.h"
#include "testing/ddp_ranks.h"

#define PASSES 3
#define UPDATES 2

typedef struct pass {
    bool local;          /* between tri_ddp_no_sync_begin and end */
    bool beside;         /* its loss reaches the last layer alone, and no norm */
    int rows[MAX_RANKS]; /* in all at most ROWS */
} pass;

typedef struct plan {
    int size, n_passes;
    pass passes[PASSES];
    bool ignored;      /* some targets are ignored: the means divide by what is left */
    int first_ignored; /* so are those of so many first rows */
    tri_bucket_hook hook;
    bool inputs;    /* inputs have gradients, too */
    bool recompute; /* forward is computed again for backward */
} plan;

static int count(const pass *p, int from, int to)
{
    int n = 0;

    for (int r = from; r < to; r++)
        n += p->rows[r];
    return n;
}

static tri_module *build(const plan *p, tri_group *group)
{
    const tri_nn_sync_batch_norm_options options = {.group = group};
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(7);
    tri_set_default_dtype(TRI_DTYPE_F64);
    net = tri_nn_sequential(tri_nn_linear(IN, 5, NULL), tri_nn_sync_batch_norm(5, &options),
                            tri_nn_tanh(), tri_nn_linear(5, 4, NULL),
                            tri_nn_sync_batch_norm(4, &options), tri_nn_tanh(),
                            tri_nn_linear(4, OUT, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    tri_module_set_recompute(tri_module_submodule(net, "0"), p->recompute);
    tri_module_set_recompute(tri_module_submodule(net, "1"), p->recompute);
    return net;
}

/* Of the rows of ranks `from` to `to` - 1, times the pass's share of the update's rows. */
static tri_tensor *loss_of(const plan *p, int k, tri_module *model, int from, int to)
{
    const pass *now = &p->passes[k];
    int first = count(now, 0, from), n = count(now, from, to), all = 0;
    int64_t labels[ROWS];
    int width = now->beside ? 4 : IN;
    tri_tensor *x = rows_of(x_data, width, first, n), *y, *loss;

    for (int i = 0; i < p->n_passes; i++)
        all += count(&p->passes[i], 0, MAX_RANKS);
    for (int i = 0; i < n; i++)
        labels[i] = (p->ignored && (first + i) % 3 == 1) || first + i < p->first_ignored
                        ? -100
                        : (first + i + k) % OUT;
    tri_requires_grad(x, p->inputs);
    y = tri_tensor_from(TRI_SHAPE(n), TRI_DTYPE_I64, labels);
    if (now->beside)
        model = tri_module_submodule(model, "6");
    loss = tri_cross_entropy(tri_forward(model, x), y, NULL);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return tri_mul_scalar(loss, (double)count(now, 0, MAX_RANKS) / all);
}

/* Of all rows of an update. */
static double share_of(const plan *p, int r)
{
    int mine = 0, all = 0;

    for (int i = 0; i < p->n_passes; i++) {
        mine += p->passes[i].rows[r];
        all += count(&p->passes[i], 0, MAX_RANKS);
    }
    return (double)mine / all;
}

/* A sum, that leaves the weight. */
static tri_status note_weight(void *state, tri_bucket *bucket, int stage, tri_work **work)
{
    *(double *)state = bucket->weight;
    return stage > 0 ? TRI_OK
                     : tri_all_reduce(bucket->group, bucket->data, bucket->data, bucket->count,
                                      bucket->dtype, TRI_REDOP_SUM, work);
}

static tri_status train(rank *r)
{
    const plan *p = r->arg;
    bool alone = r->size == 1;
    double weight = -1;
    tri_module *model = tri_ddp(build(p, r->group), &(tri_ddp_options){.group = r->group,
                                                                       .hook = p->hook,
                                                                       .hook_state = &weight,
                                                                       .bucket_cap_bytes = 200,
                                                                       .first_bucket_bytes = 1});
    tri_optimizer *opt = tri_sgd(model, 0.5, &(tri_sgd_options){.momentum = 0.9});
    tri_status status = tri_module_status(model);

    for (int u = 0; u < UPDATES && status == TRI_OK; u++) {
        for (int k = 0; k < p->n_passes; k++) {
            if (p->passes[k].local)
                tri_ddp_no_sync_begin(model);
            tri_backward(
                loss_of(p, k, model, alone ? 0 : r->index, alone ? p->size : r->index + 1));
            if (p->passes[k].local)
                tri_ddp_no_sync_end(model);
            if (k == u % 2) /* some run by themselves, some with what follows */
                status = tri_run();
        }
        if (status == TRI_OK)
            status = tri_optimizer_step(opt);
        if (status == TRI_OK)
            status = tri_step_end_status();
    }
    if (status == TRI_OK)
        status = tri_ddp_verify(model, true);
    if (status == TRI_OK)
        status = take_weights(r, model);
    if (status == TRI_OK && p->hook != NULL && !alone &&
        fabs(weight - share_of(p, r->index)) > 1e-12)
        status = TRII_FAIL(TRI_ERR_INTERNAL, "the hook hears of a weight of %g", weight);
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return status;
}

static void check(const plan *p)
{
    static rank one[1], ranks[MAX_RANKS];

    make_data();
    ranks_succeed(one, 1, train, p);
    ranks_succeed(ranks, p->size, train, p);
    assert_true(one[0].n_weights > 60);
    for (int i = 0; i < one[0].n_weights; i++)
        CHECK_NEAR(ranks[0].weights[i], one[0].weights[i], 1e-9);
    for (int i = 1; i < p->size; i++)
        assert_true(ranks[i].hash == ranks[0].hash);
}

static void each_synchronised_pass_weighs_by_its_own_rows(void **state)
{
    (void)state;
    check(&(plan){.size = 2, .n_passes = 1, .passes = {{.rows = {2, 7}}}});
    check(&(plan){.size = 2, .n_passes = 2, .passes = {{.rows = {2, 7}}, {.rows = {4, 1}}}});
    check(&(plan){.size = 3,
                  .n_passes = 3,
                  .passes = {{.rows = {2, 7, 3}}, {.rows = {4, 1, 0}}, {.rows = {0, 5, 5}}}});
    check(&(plan){
        .size = 3,
        .n_passes = 3,
        .recompute = true,
        .passes = {{.rows = {2, 7, 3}}, {.beside = true, .rows = {1, 2, 3}}, {.rows = {4, 1, 0}}}});
}

static void each_pass_without_synchronisation_weighs_by_its_own_rows(void **state)
{
    (void)state;
    check(&(plan){
        .size = 2, .n_passes = 2, .passes = {{.local = true, .rows = {2, 7}}, {.rows = {4, 1}}}});
    check(&(plan){.size = 3,
                  .n_passes = 3,
                  .hook = note_weight,
                  .passes = {{.local = true, .rows = {2, 7, 3}},
                             {.local = true, .rows = {0, 5, 5}},
                             {.rows = {4, 1, 0}}}});
    check(&(plan){.size = 3,
                  .n_passes = 3,
                  .passes = {{.rows = {2, 7, 3}},
                             {.local = true, .rows = {0, 5, 5}},
                             {.beside = true, .rows = {4, 1, 0}}}});
    check(&(plan){.size = 2, /* what has added up unweighed before weighs with it */
                  .n_passes = 3,
                  .passes = {{.local = true, .beside = true, .rows = {1, 3}},
                             {.local = true, .rows = {2, 6}},
                             {.rows = {3, 1}}}});
}

/* The means divide by what is left. */
static void targets_that_are_ignored_do_not_count(void **state)
{
    (void)state;
    check(&(plan){.size = 2, .n_passes = 1, .ignored = true, .passes = {{.rows = {5, 7}}}});
    check(&(plan){.size = 2,
                  .n_passes = 2,
                  .ignored = true,
                  .passes = {{.local = true, .rows = {3, 9}}, {.rows = {6, 3}}}});
}

/* Its rows are in the statistics of the others' losses. */
static void a_rank_whose_targets_are_all_ignored_has_a_part_in_the_statistics(void **state)
{
    (void)state;
    check(&(plan){.size = 2, .n_passes = 1, .first_ignored = 5, .passes = {{.rows = {5, 7}}}});
    check(&(plan){.size = 3, .n_passes = 1, .first_ignored = 3, .passes = {{.rows = {3, 5, 4}}}});
}

/* --- what cannot be weighed before ranks add it up ------------------------ */

/* The inputs want a gradient of this rank's own loss. */
static void inputs_with_gradients_go_with_even_batches(void **state)
{
    static rank ranks[2];
    const plan uneven[] = {
        {.size = 2, .n_passes = 1, .inputs = true, .passes = {{.rows = {2, 7}}}},
        {.size = 2,
         .n_passes = 2,
         .inputs = true,
         .passes = {{.local = true, .rows = {2, 7}}, {.rows = {7, 2}}}},
    };

    (void)state;
    check(&(plan){.size = 2,
                  .n_passes = 3,
                  .inputs = true,
                  .passes = {{.rows = {4, 4}}, {.local = true, .rows = {2, 2}}, {.rows = {2, 2}}}});
    for (int i = 0; i < 2; i++) {
        run_ranks(ranks, 2, train, &uneven[i]);
        for (int r = 0; r < 2; r++) {
            assert_true(ranks[r].status != TRI_OK);
            assert_non_null(strstr(ranks[r].line, "goes with batches of one size"));
        }
    }
}

static void losses_of_both_kinds_do_not_add_up_without_synchronisation(void **state)
{
    static rank ranks[2];
    const plan mixed = {.size = 2,
                        .n_passes = 3,
                        .passes = {{.local = true, .rows = {2, 7}},
                                   {.local = true, .beside = true, .rows = {2, 7}},
                                   {.rows = {2, 7}}}};

    (void)state;
    make_data();
    run_ranks(ranks, 2, train, &mixed);
    for (int r = 0; r < 2; r++) {
        assert_true(ranks[r].status != TRI_OK);
        assert_non_null(strstr(ranks[r].line, "a loss that does not cannot be added"));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_synchronised_pass_weighs_by_its_own_rows),
    cmocka_unit_test(each_pass_without_synchronisation_weighs_by_its_own_rows),
    cmocka_unit_test(targets_that_are_ignored_do_not_count),
    cmocka_unit_test(a_rank_whose_targets_are_all_ignored_has_a_part_in_the_statistics),
    cmocka_unit_test(inputs_with_gradients_go_with_even_batches),
    cmocka_unit_test(losses_of_both_kinds_do_not_add_up_without_synchronisation),
};

TEST_MAIN(tests)
