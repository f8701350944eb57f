/*
 * ddp_ignored_test.c - means that do not divide by their number of rows: with targets that are
 * ignored and classes of different weights the ranks together train as one on the whole batch.
 */
/* ctest: also=TRI_CHECK=order */
#include "testing/ddp_ranks.h"
#include "testing/guarded.h"

#define IGNORED (-100)

typedef struct plan {
    const int64_t *targets; /* [ROWS] */
    bool weighted, nll;
    tri_reduction reduction;
    int micro;         /* batches of each step; all but the last inside no_sync */
    double scale;      /* of the loss */
    bool thrown;       /* gradients of a batch that are thrown away come first */
    bool bad_first;    /* a batch under no_sync fails, and comes again */
    tri_device device; /* of the loss */
} plan;

static const double class_weights[OUT] = {0.5, 2, 1.25};

static tri_tensor *loss_of(const plan *p, tri_tensor *logits, tri_tensor *target, tri_tensor *w)
{
    tri_tensor *loss;

    logits = tri_to(logits, p->device);
    target = tri_to(target, p->device);
    w = tri_to(w, p->device);
    if (p->nll)
        loss = tri_nll_loss(
            tri_log_softmax(logits, 1), target,
            &(tri_nll_loss_options){.weight = p->weighted ? w : NULL, .reduction = p->reduction});
    else
        loss = tri_cross_entropy(logits, target,
                                 &(tri_cross_entropy_options){.weight = p->weighted ? w : NULL,
                                                              .label_smoothing = 0.1,
                                                              .reduction = p->reduction});
    return tri_mul_scalar(loss, p->scale > 0 ? p->scale : 1);
}

/* Micro-batch m of all is rows [m, m + 1) * ROWS / micro; of these each rank has its part. */
static tri_status batch(const rank *r, tri_module *model, int m, bool local, int64_t spoilt)
{
    const plan *p = r->arg;
    int all = ROWS / (p->micro > 0 ? p->micro : 1), n = all / r->size;
    int first = m * all + r->index * n;
    int64_t targets[ROWS];
    tri_tensor *x = rows_of(x_data, IN, first, n), *t, *w;

    memcpy(targets, p->targets + first, (size_t)n * sizeof(int64_t));
    if (spoilt != 0)
        targets[0] = spoilt;
    t = tri_tensor_from(TRI_SHAPE(n), TRI_DTYPE_I64, targets);
    w = tri_tensor_from(TRI_SHAPE(OUT), TRI_DTYPE_F64, class_weights);
    if (local)
        tri_ddp_no_sync_begin(model);
    tri_backward(loss_of(p, tri_forward(model, x), t, w));
    if (local)
        tri_ddp_no_sync_end(model);
    tri_tensor_unref(x);
    tri_tensor_unref(t);
    tri_tensor_unref(w);
    return TRI_OK;
}

static tri_status train(rank *r)
{
    const plan *p = r->arg;
    int micro = p->micro > 0 ? p->micro : 1;
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.5, NULL);

    TRY(tri_module_status(model));
    for (int step = 0; step < 3; step++) {
        if (p->thrown) {
            TRY(batch(r, model, 0, true, 0));
            TRY(tri_run());
            tri_optimizer_zero_grad(opt);
        }
        for (int m = 0; m < micro; m++) {
            if (p->bad_first && m == 0) {
                TRY(batch(r, model, 0, true, OUT));
                if (tri_run() != TRI_ERR_INVALID_ARG)
                    return TRI_ERR_INTERNAL;
                tri_step_end();
            }
            TRY(batch(r, model, m, m < micro - 1, 0));
            if (step == 1)
                TRY(tri_step_end_status());
        }
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    TRY(tri_ddp_verify(model, true));
    TRY(take_weights(r, model));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void check(const plan *ranks, const plan *whole)
{
    static rank one[1], two[2];

    make_data();
    ranks_succeed(one, 1, train, whole);
    ranks_succeed(two, 2, train, ranks);
    for (int i = 0; i < one[0].n_weights; i++)
        CHECK_NEAR(two[0].weights[i], one[0].weights[i], 1e-12);
    assert_true(two[0].hash == two[1].hash);
}

/* Rank 0 has the first half. */
static const int64_t uneven[ROWS] = {0, IGNORED, IGNORED, 2, IGNORED, IGNORED, 1, 2, 0, 1, 1, 0};
static const int64_t one_sided[ROWS] = {IGNORED, IGNORED, IGNORED, IGNORED, IGNORED, IGNORED,
                                        1,       2,       0,       IGNORED, 1,       0};
/* Two batches, of whose targets rank 0 has one and rank 1 two. */
static const int64_t twice[ROWS] = {0,       IGNORED, IGNORED, IGNORED, 1, 2,
                                    IGNORED, IGNORED, 1,       2,       2, IGNORED};

static void ignored_targets_do_not_weigh(void **state)
{
    (void)state;
    for (int v = 0; v < 4; v++) {
        plan p = {.targets = uneven, .weighted = v % 2 != 0, .nll = v / 2 != 0};

        check(&p, &p);
    }
}

static void a_rank_may_have_nothing_but_ignored_targets(void **state)
{
    (void)state;
    for (int v = 0; v < 2; v++) {
        plan p = {.targets = one_sided, .weighted = v != 0};

        check(&p, &p);
    }
}

/* Its loss is the mean of none, which is NaN, and weighs nothing. */
static void under_a_check_for_nan_a_rank_may_have_no_targets(void **state)
{
    const plan p = {.targets = one_sided};

    (void)state;
    assert_int_equal(unsetenv("TRI_EAGER"), 0); /* where a loss runs before its backward */
    assert_int_equal(setenv("TRI_CHECK", "nan", 1), 0);
    check(&p, &p);
}

/* A mean of none inside no_sync, run with the others of its update and alone. */
static void under_a_check_for_nan_a_micro_batch_may_have_no_targets(void **state)
{
    static const int64_t first_has_none[ROWS] = {IGNORED, IGNORED, IGNORED, 1, 1, 2,
                                                 0,       1,       1,       2, 2, 0};
    const plan p = {.targets = first_has_none, .micro = 2};
    static rank unchecked[2], checked[2];

    (void)state;
    assert_int_equal(unsetenv("TRI_EAGER"), 0);
    make_data();
    ranks_succeed(unchecked, 2, train, &p);
    assert_int_equal(setenv("TRI_CHECK", "nan", 1), 0);
    ranks_succeed(checked, 2, train, &p);
    assert_true(checked[0].hash == unchecked[0].hash && checked[1].hash == checked[0].hash);
}

static void sums_count_equally(void **state)
{
    const plan ranks = {.targets = uneven, .reduction = TRI_REDUCTION_SUM};
    plan whole = ranks;

    (void)state;
    whole.scale = 0.5; /* the mean over ranks */
    check(&ranks, &whole);
}

static void micro_batches_add_up_what_they_divide_by(void **state)
{
    plan p = {.targets = twice, .micro = 2};

    (void)state;
    check(&p, &p);
    p.thrown = true;
    check(&p, &p);
    p.bad_first = true;
    check(&p, &p);
}

/* What the mean divides by is found where the loss is, and the ranks add it up. */
static void a_loss_may_lie_in_memory_that_only_its_device_touches(void **state)
{
    plan one = {.targets = twice, .micro = 2}, there = one;

    (void)state;
    guarded_register();
    there.device = TRI_CUDA(0);
    check(&there, &one);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ignored_targets_do_not_weigh),
    cmocka_unit_test(a_rank_may_have_nothing_but_ignored_targets),
    cmocka_unit_test(under_a_check_for_nan_a_rank_may_have_no_targets),
    cmocka_unit_test(under_a_check_for_nan_a_micro_batch_may_have_no_targets),
    cmocka_unit_test(sums_count_equally),
    cmocka_unit_test(micro_batches_add_up_what_they_divide_by),
    cmocka_unit_test(a_loss_may_lie_in_memory_that_only_its_device_touches),
};

TEST_MAIN(tests)
