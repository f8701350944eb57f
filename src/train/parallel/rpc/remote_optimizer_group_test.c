/*
 * remote_optimizer_group_test.c - trainers of a group beside tri_ddp: their gradients at an owner
 * as one update, or as one for each.
 */
#define MAX_RANKS 3
#include "base/err.h"
#include "train/parallel/rpc/remote_optimizer_internal.h"
#include "testing/ddp_ranks.h"
#include "testing/remote_workers.h"

/* Rank r trains rows from begins[r] on, up to those of the next one. */
static const int begins[] = {0, 3, 8, 12};

/* The last worker owns the first layer; the others train it, and have the second in tri_ddp. */
typedef struct problem {
    remote_workers r;
    tri_module *table;
    tri_optimizer *sgd;
    bool average;
    double max_norm;
    int bad_rank; /* its second step fails; -1 = none */
    double out[IN * 4], head[4 * OUT];
} problem;

static tri_module *make_layer(int in, int out, uint64_t seed)
{
    tri_module *layer;

    trii_mutex_lock(&drawing);
    tri_manual_seed(seed);
    tri_set_default_dtype(TRI_DTYPE_F64);
    layer = tri_nn_linear(in, out, &(tri_nn_linear_options){.no_bias = true});
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return layer;
}

static tri_status train(rank *r)
{
    const problem *p = r->arg;
    int first = begins[r->index], n = begins[r->index + 1] - first;
    tri_module *head = tri_ddp(make_layer(4, OUT, 2), &(tri_ddp_options){.group = r->group});
    tri_module *table = tri_remote_module(p->r.w.rpc[r->index], "w3/table", NULL);
    tri_optimizer *own = tri_sgd(head, 0.1, &(tri_sgd_options){.momentum = 0.9});
    tri_remote_optimizer *opt = tri_remote_optimizer_of(
        own, &table, 1,
        &(tri_remote_optimizer_options){
            .average = p->average, .group = r->group, .max_norm = p->max_norm});
    tri_tensor *x = rows_of(x_data, IN, first, n), *y = rows_of(y_data, OUT, first, n);
    tri_status status = TRI_OK;

    for (int s = 0; s < (p->average ? 3 : 1) && status == TRI_OK; s++) {
        tri_backward(tri_mse_loss(tri_forward(head, tri_forward(table, x)), y, NULL));
        if (s == 1 && r->index == p->bad_rank) {
            CHECK_OK(tri_run());
            trii_step_fail(trii_step_current(), tri_status_fail(TRI_ERR_NAN, "no number"));
        }
        status = tri_remote_optimizer_step(opt);
        snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
        tri_step_end();
    }
    if (status == TRI_OK)
        status = tri_tensor_copy_out(tri_module_state(head, 0).tensor, r->weights,
                                     4 * OUT * sizeof(double));
    if (status != TRI_OK)
        trii_err_set("%s", r->line);
    tri_remote_optimizer_destroy(opt);
    tri_optimizer_destroy(own);
    tri_module_destroy(head);
    tri_module_destroy(table);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

static void run(problem *p, rank *ranks)
{
    tri_sgd_options momentum = {.momentum = p->average ? 0.9 : 0};

    make_data();
    remote_begin(&p->r, 4, NULL);
    p->table = make_layer(IN, 4, 1);
    p->sgd = tri_sgd(p->table, 0.1, &momentum);
    CHECK_OK(tri_remote_serve(p->r.w.rpc[3], "table", p->table, p->sgd, NULL));
    run_ranks(ranks, 3, train, p);
    CHECK_OK(tri_remote_withdraw(p->r.w.rpc[3], "table"));
    CHECK_OK(tri_tensor_copy_out(tri_module_state(p->table, 0).tensor, p->out, sizeof(p->out)));
    tri_step_end();
    tri_optimizer_destroy(p->sgd);
    tri_module_destroy(p->table);
    remote_end(&p->r);
}

/* One process: all rows, or the sum of the ranks' own gradients. */
static void run_here(problem *p, int steps)
{
    tri_module *table = make_layer(IN, 4, 1), *head = make_layer(4, OUT, 2);
    tri_sgd_options momentum = {.momentum = 0.9};
    tri_optimizer *a = tri_sgd(table, 0.1, p->average ? &momentum : NULL);
    tri_optimizer *b = tri_sgd(head, 0.1, &momentum);

    for (int s = 0; s < steps; s++) {
        for (int i = 0; i < 3; i++) {
            int first = p->average ? 0 : begins[i];
            int n = p->average ? begins[3] : begins[i + 1] - first;
            tri_tensor *x = rows_of(x_data, IN, first, n), *y = rows_of(y_data, OUT, first, n);

            tri_backward(tri_mse_loss(tri_forward(head, tri_forward(table, x)), y, NULL));
            CHECK_OK(tri_run());
            tri_tensor_unref(x);
            tri_tensor_unref(y);
            if (p->average)
                break;
        }
        if (p->max_norm > 0)
            (void)tri_clip_grad_norm_of((tri_tensor *[]){tri_module_state(table, 0).tensor,
                                                         tri_module_state(head, 0).tensor},
                                        2, p->max_norm);
        CHECK_OK(tri_optimizer_step(a));
        CHECK_OK(tri_optimizer_step(b));
        tri_step_end();
    }
    CHECK_OK(tri_tensor_copy_out(tri_module_state(table, 0).tensor, p->out, sizeof(p->out)));
    CHECK_OK(tri_tensor_copy_out(tri_module_state(head, 0).tensor, p->head, sizeof(p->head)));
    tri_step_end();
    tri_optimizer_destroy(a);
    tri_optimizer_destroy(b);
    tri_module_destroy(table);
    tri_module_destroy(head);
}

static void the_average_is_over_the_samples_of_all_trainers(void **state)
{
    problem there = {.average = true, .bad_rank = -1}, again = there, here = there;
    rank ranks[3];

    (void)state;
    run(&there, ranks);
    check_ranks(ranks, 3);
    run_here(&here, 3);
    for (int i = 0; i < IN * 4; i++)
        CHECK_NEAR(there.out[i], here.out[i], 1e-13);
    for (int i = 0; i < 4 * OUT; i++)
        CHECK_NEAR(ranks[1].weights[i], here.head[i], 1e-13);
    run(&again, ranks);
    check_ranks(ranks, 3);
    assert_memory_equal(there.out, again.out, sizeof(there.out));
}

static void the_norm_is_that_of_the_averages(void **state)
{
    problem there = {.average = true, .max_norm = 0.1, .bad_rank = -1}, here = there;
    rank ranks[3];

    (void)state;
    run(&there, ranks);
    check_ranks(ranks, 3);
    run_here(&here, 3);
    for (int i = 0; i < IN * 4; i++)
        CHECK_NEAR(there.out[i], here.out[i], 1e-13);
    for (int i = 0; i < 4 * OUT; i++)
        CHECK_NEAR(ranks[2].weights[i], here.head[i], 1e-13);
}

/* As in torch: an owner gets the gradients of each trainer's own loss, though tri_ddp weights those
 * of the layer beside it. */
static void updates_of_single_trainers_are_of_their_own_losses(void **state)
{
    problem there = {.bad_rank = -1}, here = there;
    rank ranks[3];

    (void)state;
    run(&there, ranks);
    check_ranks(ranks, 3);
    run_here(&here, 1);
    for (int i = 0; i < IN * 4; i++)
        CHECK_NEAR(there.out[i], here.out[i], 1e-13);
}

static void a_trainer_that_fails_fails_the_step_of_all(void **state)
{
    problem there = {.average = true, .bad_rank = 1}, here = {.average = true};
    rank ranks[3];

    (void)state;
    run(&there, ranks);
    run_here(&here, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ranks[i].status, TRI_ERR_NAN);
        assert_non_null(strstr(ranks[i].line, "no number"));
        assert_int_equal(strstr(ranks[i].line, "rank 1 of the trainers") != NULL, i != 1);
    }
    for (int i = 0; i < IN * 4; i++)
        CHECK_NEAR(there.out[i], here.out[i], 1e-13);
}

/* Rank 2 is the owner's, and waits in tri_rpc_join. */
static tri_status train_or_serve(rank *r)
{
    const problem *p = r->arg;
    tri_rpc *rpc = p->r.w.rpc[r->index];
    tri_module *table;
    tri_remote_optimizer *opt;
    tri_tensor *x;
    tri_status status;

    if (r->index == 2)
        return tri_rpc_join(rpc, TRI_FOREVER);
    table = tri_remote_module(rpc, "w2/table", NULL);
    opt = tri_remote_optimizer_of(
        NULL, &table, 1, &(tri_remote_optimizer_options){.average = true, .group = r->group});
    x = rows_of(x_data, IN, 0, 2);
    tri_backward(tri_sum(tri_forward(table, x), NULL, 0, false));
    status = tri_remote_optimizer_step(opt);
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_step_end();
    tri_remote_optimizer_destroy(opt);
    tri_module_destroy(table);
    tri_tensor_unref(x);
    CHECK_OK(tri_rpc_join(rpc, TRI_FOREVER));
    trii_err_set("%s", r->line);
    return status;
}

static void a_server_among_the_trainers_is_named_at_once(void **state)
{
    int64_t began_ns = trii_now_ns();
    problem p = {.bad_rank = -1};
    rank ranks[3];

    (void)state;
    make_data();
    remote_begin(&p.r, 3, NULL);
    p.table = make_layer(IN, 4, 1);
    p.sgd = tri_sgd(p.table, 0.1, NULL);
    CHECK_OK(tri_remote_serve(p.r.w.rpc[2], "table", p.table, p.sgd, NULL));
    run_ranks(ranks, 3, train_or_serve, &p);
    CHECK_OK(ranks[2].status);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, TRI_ERR_STATE);
        if (strstr(ranks[i].line, "average: these ranks of the group are in tri_rpc_join") ==
                NULL ||
            strstr(ranks[i].line, "2 (w2)") == NULL)
            fail_msg("%s", ranks[i].line);
    }
    assert_true(trii_now_ns() - began_ns < 10 * TRII_NS_PER_S);
    CHECK_OK(tri_remote_withdraw(p.r.w.rpc[2], "table"));
    tri_optimizer_destroy(p.sgd);
    tri_module_destroy(p.table);
    remote_end(&p.r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_average_is_over_the_samples_of_all_trainers),
        cmocka_unit_test(the_norm_is_that_of_the_averages),
        cmocka_unit_test(updates_of_single_trainers_are_of_their_own_losses),
        cmocka_unit_test(a_trainer_that_fails_fails_the_step_of_all),
        cmocka_unit_test(a_server_among_the_trainers_is_named_at_once),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
