/*
 * ddp_models_test.c - a loss of several models: each rank may use other parts of them.
 */
#include "testing/ddp_ranks.h"

/* --- a network of which a forward uses one part --------------------------- */

typedef struct parts {
    tri_module *part[2];
    int which;
} parts;

static tri_tensor *parts_forward(tri_module *self, tri_tensor *x)
{
    const parts *p = tri_module_data(self);

    return tri_forward(p->part[p->which], x);
}

static tri_module *build(uint64_t seed, parts **parts_out)
{
    tri_module *self = tri_module_simple("Parts", sizeof(parts), parts_forward);
    parts *p = tri_module_data(self);

    trii_mutex_lock(&drawing);
    tri_manual_seed(seed);
    tri_set_default_dtype(TRI_DTYPE_F64);
    p->part[0] = tri_module_add_child(self, "part0", tri_nn_linear(IN, OUT, NULL));
    p->part[1] = tri_module_add_child(self, "part1", tri_nn_linear(IN, OUT, NULL));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    *parts_out = p;
    return self;
}

/* --- a loss of the second model, then one of both ------------------------- */

typedef struct order {
    int first;  /* the part that rank 0 uses for the first loss; other ranks use the other one */
    bool apart; /* the losses have a step each */
} order;

static tri_status train_both(rank *r)
{
    const order *o = r->arg;
    const tri_ddp_options options = {.group = r->group};
    parts *p[2];
    tri_module *a = tri_ddp(build(3, &p[0]), &options), *b = tri_ddp(build(4, &p[1]), &options);
    tri_optimizer *opt[2] = {tri_sgd(a, 0.25, NULL), tri_sgd(b, 0.25, NULL)};
    tri_tensor *x = rows_of(x_data, IN, 4 * r->index, 4);

    TRY(tri_module_status(b));
    for (int step = 0; step < STEPS; step++) {
        tri_tensor *out;

        p[1]->which = r->index == 0 ? o->first : 1 - o->first;
        tri_backward(tri_mean(tri_square(tri_forward(b, x)), NULL, 0, false));
        if (o->apart)
            TRY(tri_step_end_status());
        p[0]->which = p[1]->which = o->first;
        out = tri_forward(a, x);
        out = tri_add(out, tri_forward(b, x));
        tri_backward(tri_mean(tri_square(out), NULL, 0, false));
        TRY(tri_optimizer_step(opt[0]));
        TRY(tri_optimizer_step(opt[1]));
        TRY(tri_step_end_status());
    }
    TRY(tri_ddp_verify(a, true));
    TRY(tri_ddp_verify(b, true));
    TRY(take_weights(r, a));
    TRY(take_weights(r, b));
    for (int i = 0; i < 2; i++)
        tri_optimizer_destroy(opt[i]);
    tri_module_destroy(a);
    tri_module_destroy(b);
    tri_tensor_unref(x);
    return TRI_OK;
}

/* The buckets of the models are alike: taken for each other, nothing would fail. */
static void ranks_may_have_used_other_parts_before_a_loss_of_two_models(void **state)
{
    static rank apart[3], ranks[3];

    (void)state;
    make_data();
    for (int first = 0; first < 2; first++) {
        ranks_succeed(apart, 3, train_both, &(order){first, true});
        ranks_succeed(ranks, 3, train_both, &(order){first, false});
        for (int i = 0; i < 3; i++)
            assert_true(ranks[i].hash == apart[i].hash);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_may_have_used_other_parts_before_a_loss_of_two_models),
};

TEST_MAIN(tests)
