/* zero_test.c - tri_zero: what a rank keeps, and what is refused. That weights have the bits of
 * tri_ddp is tests/bits/zero_bits_test.sh's. */
#include "base/err.h"
#include "os/clock.h"
#include "testing/ddp_ranks.h"

static int64_t state_elements(tri_optimizer *opt)
{
    int64_t n = 0;

    for (int64_t i = 0; i < tri_optimizer_state_count(opt); i++)
        if (strcmp(tri_optimizer_state(opt, i).name, "step") != 0)
            n += tri_tensor_numel(tri_optimizer_state(opt, i).tensor);
    return n;
}

/* --- what a rank keeps ---------------------------------------------------- */

#define LARGE 100 /* its square is more than two blocks of 4,096 elements */

static int64_t elements[MAX_RANKS];

static tri_status keep_a_part(rank *r)
{
    tri_module *net = tri_nn_sequential(tri_nn_linear(LARGE, LARGE, NULL), tri_nn_tanh(),
                                        tri_nn_linear(LARGE, LARGE, NULL));
    tri_module *model = tri_zero(net, &(tri_zero_options){.group = r->group});
    tri_optimizer *opt = tri_adam(model, 0.1, NULL);
    tri_status status = tri_module_status(model);

    if (status == TRI_OK)
        status = tri_optimizer_status(opt);
    elements[r->index] = state_elements(opt);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return status;
}

static void each_rank_keeps_its_part_of_the_states(void **state)
{
    const int64_t whole = 2 * 2 * (LARGE * LARGE + LARGE);
    static rank ranks[4];

    (void)state;
    for (int n = 1; n <= 4; n++) {
        int64_t sum = 0;

        run_ranks(ranks, n, keep_a_part, NULL);
        for (int r = 0; r < n; r++) {
            if (ranks[r].status != TRI_OK)
                fail_msg("rank %d of %d: %s", r, n, ranks[r].line);
            /* two states, and two buckets whose parts end at blocks */
            if (llabs(elements[r] - whole / n) > 2 * 2 * 4096)
                fail_msg("rank %d of %d keeps %lld", r, n, (long long)elements[r]);
            sum += elements[r];
        }
        assert_int_equal(sum, whole);
    }
}

/* --- what is refused ------------------------------------------------------ */

static tri_status train_once(tri_module *model, tri_optimizer *opt)
{
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *y = rows_of(y_data, OUT, 0, 4);
    tri_status status;

    tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
    status = tri_optimizer_step(opt);
    if (status == TRI_OK)
        status = tri_step_end_status();
    tri_step_end();
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return status;
}

static tri_status make_the_optimizer_first(rank *r)
{
    tri_module *net = mlp(1);
    tri_optimizer *opt = tri_sgd(net, 0.1, NULL);
    tri_module *model = tri_zero(net, &(tri_zero_options){.group = r->group});
    tri_status status = train_once(model, opt);

    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return status;
}

static tri_status read_a_gradient(rank *r)
{
    tri_module *model = tri_zero(mlp(1), &(tri_zero_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *weight = tri_module_state(model, 0).tensor;
    tri_status status;

    tri_backward(tri_mean(tri_forward(model, x), NULL, 0, false));
    status = tri_item_status(tri_mean(tri_grad(weight), NULL, 0, false), &(double){0});
    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_step_end();
    tri_tensor_unref(x);
    tri_module_destroy(model);
    return status;
}

static tri_status unfreeze_later(rank *r)
{
    tri_module *net = mlp(1), *model;
    tri_tensor *weight = tri_module_state(net, 0).tensor;
    tri_optimizer *opt;
    tri_status status;

    tri_requires_grad(weight, false);
    model = tri_zero(net, &(tri_zero_options){.group = r->group});
    opt = tri_sgd(model, 0.1, NULL);
    status = train_once(model, opt);
    if (status == TRI_OK) {
        tri_requires_grad(weight, true);
        status = train_once(model, opt);
        (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return status;
}

static tri_status lend_an_address(rank *r)
{
    tri_module *net = mlp(1), *model;
    tri_status status;

    if (tri_data(tri_module_state(net, 0).tensor) == NULL)
        return TRI_ERR_INTERNAL;
    model = tri_zero(net, &(tri_zero_options){.group = r->group});
    status = tri_module_status(model);
    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_module_destroy(model);
    return status;
}

/* In a forward that meets no other rank, which would see it: the backward does. */
static tri_status unfreeze_to_evaluate(rank *r)
{
    tri_module *net = mlp(1), *model;
    tri_tensor *weight = tri_module_state(net, 0).tensor, *x = rows_of(x_data, IN, 0, 4);
    tri_status status;

    tri_requires_grad(weight, false);
    model = tri_zero(net, &(tri_zero_options){.group = r->group});
    TRY(tri_module_status(model));
    tri_module_train(model, false);
    tri_requires_grad(weight, true);
    tri_backward(tri_mean(tri_forward(model, x), NULL, 0, false));
    status = tri_step_end_status();
    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_step_end();
    tri_tensor_unref(x);
    tri_module_destroy(model);
    return status;
}

/* Nor between these does anybody see it: what comes after does. */
static tri_status unfreeze_without_sync(rank *r)
{
    tri_module *net = mlp(1), *model;
    tri_tensor *weight = tri_module_state(net, 0).tensor, *x = rows_of(x_data, IN, 0, 4);
    tri_optimizer *opt;
    tri_status status;

    tri_requires_grad(weight, false);
    model = tri_zero(net, &(tri_zero_options){.group = r->group});
    TRY(tri_module_status(model));
    opt = tri_sgd(model, 0.1, NULL);
    tri_requires_grad(weight, true);
    tri_ddp_no_sync_begin(model);
    tri_backward(tri_mean(tri_forward(model, x), NULL, 0, false));
    tri_ddp_no_sync_end(model);
    status = train_once(model, opt);
    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_step_end();
    tri_tensor_unref(x);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return status;
}

/* A model of options that are refused. */
static tri_status make_of(rank *r, const tri_zero_options *opt)
{
    tri_module *model = tri_zero(mlp(1), opt);
    tri_status status = tri_module_status(model);

    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_module_destroy(model);
    return status;
}

static tri_status another_stage(rank *r)
{
    return make_of(r, &(tri_zero_options){.group = r->group, .stage = 7});
}

static tri_status three_axes(rank *r)
{
    tri_mesh *mesh = NULL;
    tri_status status;

    TRY(tri_mesh_create(r->group, TRI_SHAPE(1, 1, 2), (const char *[]){"a", "b", "c"}, &mesh));
    status = make_of(r, &(tri_zero_options){.mesh = mesh});
    tri_mesh_destroy(mesh);
    return status;
}

static tri_status a_mesh_and_a_group(rank *r)
{
    tri_mesh *mesh = NULL;
    tri_status status;

    TRY(tri_mesh_create(r->group, (const int64_t[]){2}, 1, (const char *[]){"data"}, &mesh));
    status = make_of(r, &(tri_zero_options){.mesh = mesh, .group = r->group});
    tri_mesh_destroy(mesh);
    return status;
}

static tri_status some_use_ddp(rank *r)
{
    tri_module *model = r->index == 1 ? tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group})
                                      : tri_zero(mlp(1), &(tri_zero_options){.group = r->group});
    tri_status status = tri_module_status(model);

    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_module_destroy(model);
    return status;
}

static void what_cannot_be_is_refused_with_the_reason(void **state)
{
    static const struct {
        tri_status (*run)(rank *r);
        tri_status status;
        const char *line;
    } cases[] = {
        {make_the_optimizer_first, TRI_ERR_STATE, "make it from the module that tri_zero returns"},
        {read_a_gradient, TRI_ERR_UNSUPPORTED, "are averaged in pieces, one on each rank"},
        {unfreeze_later, TRI_ERR_UNSUPPORTED,
         "whose parameters were unfrozen: the ranks' parts do not move: unfreeze them before "
         "tri_zero divides the network"},
        {unfreeze_to_evaluate, TRI_ERR_STATE, "0.weight requires a gradient only since"},
        {unfreeze_without_sync, TRI_ERR_UNSUPPORTED, "whose parameters were unfrozen"},
        {lend_an_address, TRI_ERR_STATE, "wrap the network before its memory is looked at"},
        {three_axes, TRI_ERR_INVALID_ARG, "a mesh of 3 axes"},
        {a_mesh_and_a_group, TRI_ERR_INVALID_ARG, "a mesh and a group: give one of them"},
        {another_stage, TRI_ERR_INVALID_ARG, ": stage 7 does not exist: 1 divides"},
        {some_use_ddp, TRI_ERR_MISMATCH, "divided by tri_zero"},
    };
    static rank ranks[2];

    (void)state;
    make_data();
    for (size_t c = 0; c < TRII_COUNT_OF(cases); c++) {
        run_ranks(ranks, 2, cases[c].run, NULL);
        for (int r = 0; r < 2; r++)
            if (ranks[r].status != cases[c].status || strstr(ranks[r].line, cases[c].line) == NULL)
                fail_msg("case %zu, rank %d: %s: %s", c, r, tri_status_name(ranks[r].status),
                         ranks[r].line);
    }
}

/* --- what others still read ----------------------------------------------- */

/* All elements of parameter i are first + i. */
static tri_status expect_values(tri_module *model, double first)
{
    for (int64_t i = 0; i < tri_module_state_count(model); i++) {
        tri_tensor *mean = tri_mean(tri_module_state(model, i).tensor, NULL, 0, false);
        double value;

        TRY(tri_item_status(mean, &value));
        if (value != first + (double)i)
            return TRII_FAIL(TRI_ERR_INTERNAL, "%s is %g, not %g", tri_module_state(model, i).name,
                             value, first + (double)i);
    }
    return TRI_OK;
}

static tri_status set_values(tri_module *model, double first)
{
    for (int64_t i = 0; i < tri_module_state_count(model); i++)
        TRY(tri_init_constant(tri_module_state(model, i).tensor, first + (double)i));
    return TRI_OK;
}

/* A swap reads what the gather writes: the plan may start it before the last reads. */
static tri_status swap_averages(rank *r)
{
    tri_module *model =
        tri_zero(mlp(1), &(tri_zero_options){.group = r->group,
                                             .bucket_cap_bytes = *(const size_t *)r->arg});
    tri_ema *ema;

    TRY(tri_module_status(model));
    TRY(tri_ema_create(model, 0.5, &ema));
    TRY(set_values(model, 10));
    TRY(tri_ema_update(ema));
    TRY(set_values(model, 20));
    for (int s = 0; s < 4; s++) {
        TRY(tri_ema_swap(ema));
        TRY(expect_values(model, s % 2 == 0 ? 10 : 20));
    }
    tri_ema_destroy(ema);
    tri_module_destroy(model);
    return TRI_OK;
}

static void averages_are_swapped_to_and_fro(void **state)
{
    static const size_t caps[] = {1, 1 << 20};
    static rank ranks[3];

    (void)state;
    for (int n = 1; n <= 3; n++)
        for (size_t c = 0; c < TRII_COUNT_OF(caps); c++)
            ranks_succeed(ranks, n, swap_averages, &caps[c]);
}

/* --- what adds up --------------------------------------------------------- */

static tri_tensor *loss_of(tri_module *layer, int width, int first)
{
    tri_tensor *x = rows_of(x_data, width, first, 2);
    tri_tensor *loss = tri_mean(tri_square(tri_forward(layer, x)), NULL, 0, false);

    tri_tensor_unref(x);
    return loss;
}

/* An average, a gradient of this rank's own, and a loss that does not reach that parameter. */
static tri_status add_to_averages(rank *r)
{
    const int stage = *(const int *)r->arg;
    tri_module *net = mlp(1), *first = tri_module_child(net, 0), *last = tri_module_child(net, 4);
    tri_module *model = stage == 0
                            ? tri_ddp(net, &(tri_ddp_options){.group = r->group})
                            : tri_zero(net, &(tri_zero_options){.group = r->group, .stage = stage});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);

    TRY(tri_module_status(model));
    for (int s = 0; s < 2; s++) {
        tri_backward(loss_of(model, IN, r->index));
        tri_ddp_no_sync_begin(model);
        tri_backward(loss_of(first, IN, 2 + r->index));
        tri_ddp_no_sync_end(model);
        tri_backward(loss_of(last, 8, r->index));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    TRY(take_weights(r, model));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void gradients_of_a_rank_join_averages_of_before(void **state)
{
    static rank ddp[3], zero[3];

    (void)state;
    make_data();
    ranks_succeed(ddp, 3, add_to_averages, &(const int){0});
    for (int stage = 1; stage <= 2; stage++) {
        ranks_succeed(zero, 3, add_to_averages, &stage);
        assert_int_equal(zero[0].n_weights, ddp[0].n_weights);
        for (int i = 0; i < ddp[0].n_weights; i++)
            if (!(fabs(zero[0].weights[i] - ddp[0].weights[i]) < 1e-14))
                fail_msg("stage %d: weight %d is %.17g, not %.17g", stage, i, zero[0].weights[i],
                         ddp[0].weights[i]);
    }
}

/* --- a mesh --------------------------------------------------------------- */

static atomic_int n_ended;

/* Rank 3's second step fails after its forward; it stays until the others have ended, for which its
 * leaving would be enough. */
static tri_status fail_on_a_mesh(rank *r)
{
    tri_mesh *mesh = NULL;
    tri_status status =
        tri_mesh_create(r->group, TRI_SHAPE(2, 2), (const char *[]){"copies", "parts"}, &mesh);
    tri_module *model = tri_zero(mlp(1), &(tri_zero_options){.mesh = mesh});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);

    if (status == TRI_OK)
        status = train_once(model, opt);
    if (status == TRI_OK && r->index == 3) {
        tri_tensor *x = rows_of(x_data, IN, 0, 4);

        tri_backward(tri_matmul(tri_forward(model, x), x)); /* of shapes that do not go together */
        status = tri_step_end_status();
        tri_tensor_unref(x);
        while (atomic_load(&n_ended) < 3)
            trii_thread_yield();
    } else if (status == TRI_OK) {
        status = train_once(model, opt);
    }
    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    atomic_fetch_add(&n_ended, r->index != 3);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    return status;
}

static void a_step_that_fails_on_a_mesh_fails_on_all_its_ranks(void **state)
{
    static rank ranks[4];
    int64_t begin = trii_now_ns();

    (void)state;
    make_data();
    run_ranks(ranks, 4, fail_on_a_mesh, NULL);
    for (int r = 0; r < 4; r++)
        if (r == 3 ? ranks[r].status != TRI_ERR_INVALID_ARG
                   : ranks[r].status != TRI_ERR_ABORTED && ranks[r].status != TRI_ERR_PEER_LOST)
            fail_msg("rank %d: %s: %s", r, tri_status_name(ranks[r].status), ranks[r].line);
    assert_true(trii_now_ns() - begin < INT64_C(8000000000)); /* nobody waited for a deadline */
}

/* --- a world of one ------------------------------------------------------- */

static tri_status train_alone(rank *r)
{
    tri_module *model = tri_zero(mlp(1), &(tri_zero_options){.group = r->group});
    tri_optimizer *opt = tri_sgd(model, 0.1, NULL);
    tri_status status = train_once(model, opt);

    if (status == TRI_OK && tri_grad(tri_module_state(model, 0).tensor) == NULL)
        status = TRI_ERR_INTERNAL;
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return status;
}

static void one_rank_divides_nothing(void **state)
{
    static rank ranks[1];

    (void)state;
    make_data();
    run_ranks(ranks, 1, train_alone, NULL);
    assert_int_equal(ranks[0].status, TRI_OK);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_rank_keeps_its_part_of_the_states),
    cmocka_unit_test(what_cannot_be_is_refused_with_the_reason),
    cmocka_unit_test(averages_are_swapped_to_and_fro),
    cmocka_unit_test(gradients_of_a_rank_join_averages_of_before),
    cmocka_unit_test(a_step_that_fails_on_a_mesh_fails_on_all_its_ranks),
    cmocka_unit_test(one_rank_divides_nothing),
};

TEST_MAIN(tests)
