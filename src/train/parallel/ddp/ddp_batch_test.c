/*
 * ddp_batch_test.c - a program that collects calls of its own on the model's group, in a batch,
 * while it trains: the model's collectives are none of them.
 */
#include "base/compiler.h"
#include "testing/ddp_ranks.h"

/* The same training twice: by itself, and with everything inside of batches. */
static tri_status train(rank *r, bool in_batch)
{
    tri_module *net = mlp(1), *model;
    tri_tensor *x = rows_of(x_data, IN, r->index * 4, 4), *y = rows_of(y_data, OUT, r->index, 4);
    double sums[STEPS + 1];
    tri_optimizer *opt;

    for (int step = 0; step <= STEPS; step++)
        sums[step] = r->index + step;
    if (in_batch)
        TRY(tri_group_batch_begin(r->group));
    model = tri_ddp(net, &(tri_ddp_options){.group = r->group});
    TRY(tri_module_status(model));
    opt = tri_sgd(model, 0.1, NULL);
    for (int step = 0; step < STEPS; step++) {
        TRY(tri_all_reduce(r->group, &sums[step], &sums[step], 1, TRI_DTYPE_F64, TRI_REDOP_SUM,
                           NULL));
        tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    TRY(tri_ddp_verify(model, true));
    if (in_batch)
        TRY(tri_group_batch_end(r->group, NULL));
    for (int step = 0; step < STEPS; step++)
        if (sums[step] != (r->size - 1) * r->size / 2 + step * r->size)
            return TRI_ERR_INTERNAL;
    return take_and_destroy(r, model, opt, x, y);
}

static tri_status train_twice(rank *r)
{
    uint64_t hash;

    TRY(train(r, false));
    hash = r->hash;
    TRY(train(r, true));
    return r->hash == hash ? TRI_OK : TRI_ERR_MISMATCH;
}

static void what_the_program_collects_leaves_the_model_alone(void **state)
{
    static rank ranks[3];

    (void)state;
    make_data();
    for (int size = 1; size <= 3; size++)
        ranks_succeed(ranks, size, train_twice, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_the_program_collects_leaves_the_model_alone),
};

TEST_MAIN(tests)
