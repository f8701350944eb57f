/*
 * ddp_grad_test.c - what tri_grad shows of replicas: the average, also before it has run.
 */
/* ctest: also=TRI_CHECK=order */
#include "base/err.h"
#include "testing/ddp_ranks.h"

static tri_status sum_of(tri_tensor *grad, double *out)
{
    return grad != NULL ? tri_item_status(tri_sum(tri_square(grad), NULL, 0, false), out)
                        : TRII_FAIL(TRI_ERR_INTERNAL, "no gradient");
}

/* Left to be compared: of a gradient that pends, the same after its step, a local one. */
static tri_status look_at_gradients(rank *r)
{
    tri_module *net = mlp(1), *model = tri_ddp(net, &(tri_ddp_options){.group = r->group});
    tri_tensor *w = tri_module_find(net, "2.weight");
    int n = ROWS / r->size;
    tri_tensor *x = rows_of(x_data, IN, r->index * n, n),
               *y = rows_of(y_data, OUT, r->index * n, n);
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);

    TRY(tri_module_status(model));
    if (tri_grad(w) != NULL)
        return TRII_FAIL(TRI_ERR_INTERNAL, "a gradient before the first backward");
    tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
    TRY(sum_of(tri_grad(w), &r->weights[0]));
    TRY(tri_step_end_status());
    TRY(sum_of(tri_grad(w), &r->weights[1]));
    tri_optimizer_zero_grad(opt);
    TRY(tri_step_end_status());
    if (tri_grad(w) != NULL)
        return TRII_FAIL(TRI_ERR_INTERNAL, "a gradient after tri_optimizer_zero_grad");
    tri_ddp_no_sync_begin(model);
    tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
    tri_ddp_no_sync_end(model);
    TRY(sum_of(tri_grad(w), &r->weights[2]));
    TRY(tri_step_end_status());
    tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL)); /* averages both */
    TRY(sum_of(tri_grad(w), &r->weights[3]));
    TRY(tri_optimizer_step(opt));
    TRY(tri_step_end_status());
    TRY(sum_of(tri_grad(w), &r->weights[4]));
    TRY(tri_step_end_status());
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void a_gradient_is_the_average_before_and_after_its_run(void **state)
{
    static rank one[1], two[2];

    (void)state;
    make_data();
    ranks_succeed(one, 1, look_at_gradients, NULL);
    ranks_succeed(two, 2, look_at_gradients, NULL);
    assert_true(fabs(two[0].weights[2] - two[1].weights[2]) > 1e-6); /* their own */
    for (int i = 0; i < 5; i++) {
        if (i == 2)
            continue;
        CHECK_NEAR(two[0].weights[i], two[1].weights[i], 0);
        CHECK_NEAR(two[0].weights[i], one[0].weights[i], 1e-12);
    }
    CHECK_NEAR(two[0].weights[0], two[0].weights[1], 0);
    CHECK_NEAR(two[0].weights[3], two[0].weights[4], 0);
}

/* --- of a model without an optimizer -------------------------------------- */

#define PASSES 3

typedef struct reading {
    bool after_step; /* they are read after the end of the step, else before anything has run */
    bool small_buckets;
} reading;

/* Rows of a rank in a pass: all together ROWS; one of three has none. */
static int share_of(const rank *r, int pass, int index)
{
    static const int of_two[] = {5, 7}, of_three[] = {4, 0, 8};

    return r->size == 1   ? ROWS
           : r->size == 2 ? of_two[(index + pass) % 2]
                          : of_three[(index + pass) % 3];
}

static tri_status read_all(rank *r, tri_module *model)
{
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        tri_tensor *param = tri_module_state(model, i).tensor, *grad = tri_grad(param);
        int n = (int)tri_tensor_numel(param);

        if (grad == NULL)
            return TRII_FAIL(TRI_ERR_INTERNAL, "no gradient");
        TRY(tri_tensor_copy_out(grad, r->weights + r->n_weights, (size_t)n * sizeof(double)));
        r->n_weights += n;
    }
    return TRI_OK;
}

/* Left to be compared: all gradients after each pass. */
static tri_status add_up(rank *r)
{
    const reading *how = r->arg;
    tri_module *model =
        tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group,
                                           .bucket_cap_bytes = how->small_buckets ? 200 : 0});
    uint64_t hash;

    TRY(tri_module_status(model));
    TRY(tri_module_hash(model, &r->hash));
    for (int pass = 0; pass < PASSES; pass++) {
        int n = share_of(r, pass, r->index), first = 0;
        tri_tensor *x, *y;

        for (int q = 0; q < r->index; q++)
            first += share_of(r, pass, q);
        x = rows_of(x_data, IN, first, n);
        y = rows_of(y_data, OUT, first, n);
        tri_backward(tri_mul_scalar(tri_mse_loss(tri_forward(model, x), y, NULL), pass + 1));
        if (how->after_step)
            TRY(tri_step_end_status());
        TRY(read_all(r, model));
        TRY(tri_step_end_status());
        tri_tensor_unref(x);
        tri_tensor_unref(y);
        if (tri_ddp_sample_count(model) != ROWS)
            return TRII_FAIL(TRI_ERR_INTERNAL, "%d samples", (int)tri_ddp_sample_count(model));
    }
    TRY(tri_module_hash(model, &hash));
    tri_module_destroy(model);
    return hash == r->hash ? TRI_OK : TRII_FAIL(TRI_ERR_INTERNAL, "parameters have changed");
}

static void without_an_optimizer_averages_add_up(void **state)
{
    static rank one[1], ranks[3];

    (void)state;
    make_data();
    ranks_succeed(one, 1, add_up, &(reading){false, false});
    assert_int_equal(one[0].n_weights, PASSES * (IN * 8 + 8 + 8 * 8 + 8 + 8 * OUT + OUT));
    for (int way = 0; way < 8; way++) {
        int size = 2 + way / 4;

        ranks_succeed(ranks, size, add_up, &(reading){way % 2 == 0, way % 4 < 2});
        for (int i = 0; i < one[0].n_weights; i++) {
            CHECK_NEAR(ranks[0].weights[i], one[0].weights[i], 1e-12);
            for (int q = 1; q < size; q++)
                CHECK_NEAR(ranks[q].weights[i], ranks[0].weights[i], 0);
        }
    }
}

/* --- of a parameter that only another rank uses --------------------------- */

typedef struct switched {
    tri_tensor *a, *b;
    bool uses_b;
} switched;

static void switched_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                             int n_out)
{
    switched *s = tri_module_data(self);

    (void)n_in;
    (void)n_out;
    out[0] = tri_mul(in[0], s->uses_b ? tri_mul(s->a, s->b) : s->a);
}

static tri_status use_on_one_rank(rank *r)
{
    static const tri_module_class type = {
        .name = "switched", .size = sizeof(switched), .forward = switched_forward};
    const double threes[2] = {3, 3};
    tri_module *net = tri_module_create(&type), *model;
    switched *s = tri_module_data(net);
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F64, threes);
    tri_optimizer *opt;
    double early = 0;

    s->a = tri_module_add_parameter(net, "a", tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F64, threes));
    s->b = tri_module_add_parameter(net, "b", tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F64, threes));
    s->uses_b = r->index == 1;
    model = tri_ddp(net, &(tri_ddp_options){.group = r->group});
    TRY(tri_module_status(model));
    opt = tri_sgd(model, 0.1, NULL);
    tri_backward(tri_sum(tri_forward(model, x), NULL, 0, false)); /* db: 0 there, 9 here */
    if (r->index == 0 && tri_grad(s->b) != NULL)
        return TRII_FAIL(TRI_ERR_INTERNAL, "it is shown before the ranks have agreed");
    if (r->index == 1)
        TRY(sum_of(tri_grad(s->b), &early));
    TRY(tri_optimizer_step(opt));
    TRY(sum_of(tri_grad(s->b), &r->weights[0]));
    TRY(sum_of(tri_grad(s->a), &r->weights[1]));
    r->weights[2] = r->index == 1 ? early : r->weights[0];
    TRY(tri_step_end_status());
    s->uses_b = false; /* nobody does now: what its bucket holds is no gradient of it */
    tri_backward(tri_sum(tri_forward(model, x), NULL, 0, false));
    TRY(tri_optimizer_step(opt));
    if (tri_grad(s->b) != NULL) {
        TRY(sum_of(tri_grad(s->b), &early));
        return TRII_FAIL(TRI_ERR_INTERNAL, "a gradient that no rank has computed: %g", early);
    }
    TRY(tri_step_end_status());
    tri_tensor_unref(x);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void a_parameter_that_others_use_has_it_after_the_update(void **state)
{
    static rank ranks[2];

    (void)state;
    ranks_succeed(ranks, 2, use_on_one_rank, NULL);
    for (int i = 0; i < 2; i++) {
        CHECK_NEAR(ranks[i].weights[0], 2 * 4.5 * 4.5, 1e-12);
        CHECK_NEAR(ranks[i].weights[1], 2 * 6 * 6, 1e-12); /* the mean of 3 and 9 */
        CHECK_NEAR(ranks[i].weights[2], 2 * 4.5 * 4.5, 1e-12);
    }
}

/* Without an optimizer it is there when the next backward begins. */
static tri_status add_up_on_one_rank(rank *r)
{
    static const tri_module_class type = {
        .name = "switched", .size = sizeof(switched), .forward = switched_forward};
    const double threes[2] = {3, 3};
    tri_module *net = tri_module_create(&type), *model;
    switched *s = tri_module_data(net);
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F64, threes);

    s->a = tri_module_add_parameter(net, "a", tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F64, threes));
    s->b = tri_module_add_parameter(net, "b", tri_tensor_from(TRI_SHAPE(2), TRI_DTYPE_F64, threes));
    model = tri_ddp(net, &(tri_ddp_options){.group = r->group});
    TRY(tri_module_status(model));
    for (int pass = 0; pass < 3; pass++) {
        s->uses_b = r->index == pass % 2; /* 9 there, 0 here */
        tri_backward(tri_sum(tri_forward(model, x), NULL, 0, false));
        TRY(tri_step_end_status());
    }
    s->uses_b = false;
    tri_backward(tri_sum(tri_forward(model, x), NULL, 0, false));
    TRY(sum_of(tri_grad(s->b), &r->weights[0]));
    TRY(sum_of(tri_grad(s->a), &r->weights[1]));
    TRY(tri_step_end_status());
    tri_tensor_unref(x);
    tri_module_destroy(model);
    return TRI_OK;
}

static void without_an_optimizer_it_has_it_with_the_next_backward(void **state)
{
    static rank ranks[2];

    (void)state;
    ranks_succeed(ranks, 2, add_up_on_one_rank, NULL);
    for (int i = 0; i < 2; i++) {
        CHECK_NEAR(ranks[i].weights[0], 2 * pow(3 * 4.5, 2), 1e-12);
        CHECK_NEAR(ranks[i].weights[1], 2 * pow(3 * 6 + 3, 2), 1e-12);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_gradient_is_the_average_before_and_after_its_run),
    cmocka_unit_test(without_an_optimizer_averages_add_up),
    cmocka_unit_test(a_parameter_that_others_use_has_it_after_the_update),
    cmocka_unit_test(without_an_optimizer_it_has_it_with_the_next_backward),
};

TEST_MAIN(tests)
