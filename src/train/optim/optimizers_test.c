/* optimizers_test.c - all optimisers against values of PyTorch; groups, settings, state, averages.
 * In eager mode too. */
/* ctest: also=TRI_EAGER=1 */
#include <trireme/trireme.h>

#include "base/compiler.h"
#include "testing/check.h"
#include "testing/optim_golden.h"
#include "testing/optim_problem.h"

#define STEPS 6

static tri_optimizer *make(const struct golden_optim *g, tri_module *net)
{
    if (strcmp(g->kind, "sgd") == 0)
        return tri_sgd(net, g->lr, &g->opt.sgd);
    if (strcmp(g->kind, "adam") == 0)
        return tri_adam(net, g->lr, &g->opt.adam);
    if (strcmp(g->kind, "adamw") == 0)
        return tri_adamw(net, g->lr, &g->opt.adam);
    if (strcmp(g->kind, "rmsprop") == 0)
        return tri_rmsprop(net, g->lr, &g->opt.rmsprop);
    return tri_adagrad(net, g->lr, &g->opt.adagrad);
}

/* Clips as the case says; `lists`: by tri_clip_grad_.._of. The norm, or NULL. */
static tri_tensor *clip(const struct golden_optim *g, problem *p, tri_optimizer *opt, bool lists)
{
    tri_tensor *const params[] = {tri_module_find(p->net, "weight"),
                                  tri_module_find(p->net, "bias")};
    tri_tensor *norm = NULL;
    const char *at = g->clip;

    for (int c = 0; *at != '\0'; c++) {
        bool by_norm = strncmp(at, "norm", 4) == 0;

        if (by_norm)
            norm = lists ? tri_clip_grad_norm_of(params, 2, g->bounds[c])
                         : tri_clip_grad_norm(opt, g->bounds[c]);
        else if (lists)
            tri_clip_grad_value_of(params, 2, g->bounds[c]);
        else
            tri_clip_grad_value(opt, g->bounds[c]);
        at += by_norm ? 4 : 5;
        at += *at == ',' ? 2 : 0;
    }
    return norm;
}

static void train(const struct golden_optim *g, problem *p, bool lists, double *losses,
                  double *norms)
{
    tri_optimizer *opt = make(g, p->net);

    for (int step = 0; step < STEPS; step++) {
        tri_tensor *loss = tri_mse_loss(tri_forward(p->net, p->x), p->y, NULL), *norm;

        tri_optimizer_set_lr(opt, g->lr / (step + 1));
        tri_backward(loss);
        norm = clip(g, p, opt, lists);
        CHECK_OK(tri_optimizer_step(opt));
        losses[step] = tri_item(loss);
        norms[step] = norm != NULL ? tri_item(norm) : 0.0;
        tri_step_end();
    }
    tri_optimizer_destroy(opt);
}

static void all_are_those_of_torch_in_double(void **state)
{
    (void)state;
    for (size_t c = 0; c < 2 * TRII_COUNT_OF(golden_optim); c++) {
        const struct golden_optim *g = &golden_optim[c / 2];
        problem p = problem_create(TRI_DTYPE_F64);
        double losses[STEPS], norms[STEPS], weight[6], bias[2];

        train(g, &p, c % 2 != 0, losses, norms);
        read_param(p.net, "weight", weight, 6);
        read_param(p.net, "bias", bias, 2);
        check_near(losses, g->losses, STEPS, 1e-13);
        check_near(norms, g->norms, STEPS, 1e-13);
        check_near(weight, g->weight64, 6, 1e-13);
        check_near(bias, g->bias64, 2, 1e-13);
        problem_destroy(&p);
    }
}

static void all_are_those_of_torch_in_single(void **state)
{
    (void)state;
    for (size_t c = 0; c < TRII_COUNT_OF(golden_optim); c++) {
        const struct golden_optim *g = &golden_optim[c];
        problem p = problem_create(TRI_DTYPE_F32);
        double losses[STEPS], norms[STEPS], weight[6];

        train(g, &p, false, losses, norms);
        read_param(p.net, "weight", weight, 6);
        check_near(weight, g->weight32, 6, 2e-6);
        check_near(norms, g->norms, STEPS, 2e-6);
        problem_destroy(&p);
    }
}

/* Written over and over by each optimiser; nothing but the state and the weights goes into it. */
static void a_restored_optimizer_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    for (size_t c = 0; c < TRII_COUNT_OF(golden_optim); c++) {
        const struct golden_optim *g = &golden_optim[c];
        problem p = problem_create(TRI_DTYPE_F32), q = problem_create(TRI_DTYPE_F32);
        tri_optimizer *a = make(g, p.net), *b = make(g, q.net);
        int64_t n = tri_optimizer_state_count(a);
        char bytes[256];

        (void)one_step(&p, a);
        (void)one_step(&p, a);
        assert_int_equal(tri_optimizer_state_count(b), n);
        for (int64_t i = 0; i < n + 2; i++) {
            tri_tensor *from =
                i < n ? tri_optimizer_state(a, i).tensor : tri_module_state(p.net, i - n).tensor;
            tri_tensor *to =
                i < n ? tri_optimizer_state(b, i).tensor : tri_module_state(q.net, i - n).tensor;
            size_t size = (size_t)tri_tensor_numel(from) * tri_dtype_size(tri_tensor_dtype(from));

            CHECK_OK(tri_tensor_copy_out(from, bytes, size));
            CHECK_OK(tri_tensor_copy_in(to, bytes, size));
        }
        for (int step = 0; step < 3; step++)
            assert_true(one_step(&p, a) == one_step(&q, b));
        tri_optimizer_destroy(a);
        tri_optimizer_destroy(b);
        problem_destroy(&p);
        problem_destroy(&q);
    }
}

static void states_are_called_as_in_torch(void **state)
{
    problem p = problem_create(TRI_DTYPE_F32);
    tri_optimizer *adam = tri_adamw(p.net, 1e-3, &(tri_adam_options){.amsgrad = true});
    tri_optimizer *rms =
        tri_rmsprop(p.net, 1e-2, &(tri_rmsprop_options){.momentum = 0.9, .centered = true});
    tri_optimizer *adagrad =
        tri_adagrad(p.net, 1e-2, &(tri_adagrad_options){.initial_accumulator_value = 0.5});
    const char *const adam_names[] = {"weight.exp_avg",
                                      "weight.exp_avg_sq",
                                      "weight.max_exp_avg_sq",
                                      "bias.exp_avg",
                                      "bias.exp_avg_sq",
                                      "bias.max_exp_avg_sq",
                                      "step"};
    const char *const rms_names[] = {"weight.square_avg", "weight.momentum_buffer",
                                     "weight.grad_avg"};
    float start[2];

    (void)state;
    assert_int_equal(tri_optimizer_state_count(adam), 7);
    for (int i = 0; i < 7; i++)
        assert_string_equal(tri_optimizer_state(adam, i).name, adam_names[i]);
    assert_int_equal(tri_optimizer_state_count(rms), 7);
    for (int i = 0; i < 3; i++)
        assert_string_equal(tri_optimizer_state(rms, i).name, rms_names[i]);
    assert_int_equal(tri_optimizer_state_count(adagrad), 3);
    assert_string_equal(tri_optimizer_state(adagrad, 1).name, "bias.sum");
    CHECK_OK(tri_tensor_copy_out(tri_optimizer_state(adagrad, 1).tensor, start, sizeof(start)));
    assert_true(start[0] == 0.5f && start[1] == 0.5f);
    tri_optimizer_destroy(adam);
    tri_optimizer_destroy(rms);
    tri_optimizer_destroy(adagrad);
    problem_destroy(&p);
}

/* --- groups --------------------------------------------------------------- */

static void groups_have_settings_of_their_own(void **state)
{
    problem p = problem_create(TRI_DTYPE_F64);
    tri_tensor *weight = tri_module_find(p.net, "weight"), *bias = tri_module_find(p.net, "bias");
    tri_optimizer *opt = tri_adamw_of((tri_param_group[]){{.params = &weight, .n_params = 1},
                                                          {.params = &bias,
                                                           .n_params = 1,
                                                           .names = (const char *[]){"b"},
                                                           .lr = TRI_SET(0.02),
                                                           .weight_decay = TRI_SET(0)}},
                                      2, 0.1, &(tri_adam_options){.weight_decay = TRI_SET(0.2)});
    double w[6], b[2];

    (void)state;
    assert_int_equal(tri_optimizer_group_count(opt), 2);
    assert_true(tri_optimizer_lr(opt) == 0.1);
    assert_true(tri_optimizer_hyper(opt, 1, TRI_HYPER_LR) == 0.02);
    assert_true(tri_optimizer_hyper(opt, 0, TRI_HYPER_WEIGHT_DECAY) == 0.2);
    assert_true(tri_optimizer_hyper(opt, 1, TRI_HYPER_WEIGHT_DECAY) == 0.0);
    assert_true(tri_optimizer_hyper(opt, 1, TRI_HYPER_BETA2) == 0.999);
    assert_string_equal(tri_optimizer_state(opt, 0).name, "param_0.exp_avg");
    assert_string_equal(tri_optimizer_state(opt, 2).name, "b.exp_avg");
    for (int step = 0; step < STEPS; step++) {
        tri_optimizer_set_hyper(opt, 0, TRI_HYPER_LR, 0.1 / (step + 1));
        tri_optimizer_set_hyper(opt, 1, TRI_HYPER_LR, 0.02 / (step + 1));
        (void)one_step(&p, opt);
    }
    read_param(p.net, "weight", w, 6);
    read_param(p.net, "bias", b, 2);
    check_near(w, golden_groups_weight, 6, 1e-13);
    check_near(b, golden_groups_bias, 2, 1e-13);
    tri_optimizer_destroy(opt);
    problem_destroy(&p);
}

/* Their states would not be told apart in a checkpoint. */
static void two_parameters_of_one_name_are_refused(void **state)
{
    problem p = problem_create(TRI_DTYPE_F32);
    tri_tensor *both[] = {tri_module_find(p.net, "weight"), tri_module_find(p.net, "bias")};
    const char *const same[] = {"w", "w"}, *const number[] = {"param_1", NULL};
    const char *const *const names[] = {same, number};

    (void)state;
    for (int i = 0; i < 2; i++) {
        tri_optimizer *opt = tri_adam_of(
            &(tri_param_group){.params = both, .n_params = 2, .names = names[i]}, 1, 0.1, NULL);

        CHECK_FAILS(tri_optimizer_status(opt), TRI_ERR_INVALID_ARG, "two parameters are called");
        tri_optimizer_destroy(opt);
    }
    problem_destroy(&p);
}

static void nesterov_keeps_its_momentum(void **state)
{
    static const struct {
        tri_hyper what;
        double value;
    } bad[] = {{TRI_HYPER_DAMPENING, 0.5}, {TRI_HYPER_MOMENTUM, 0}};
    problem p = problem_create(TRI_DTYPE_F32);

    (void)state;
    for (int i = 0; i < 2; i++) {
        tri_optimizer *opt =
            tri_sgd(p.net, 0.1, &(tri_sgd_options){.momentum = 0.9, .nesterov = true});

        tri_optimizer_set_hyper(opt, 0, TRI_HYPER_MOMENTUM, 0.8);
        tri_optimizer_set_hyper(opt, 0, TRI_HYPER_DAMPENING, 0);
        CHECK_OK(tri_optimizer_status(opt));
        tri_optimizer_set_hyper(opt, 0, bad[i].what, bad[i].value);
        CHECK_FAILS(tri_optimizer_status(opt), TRI_ERR_INVALID_ARG, "nesterov needs a momentum");
        tri_optimizer_destroy(opt);
    }
    problem_destroy(&p);
}

static void models_can_be_groups(void **state)
{
    problem p = problem_create(TRI_DTYPE_F64), q = problem_create(TRI_DTYPE_F64);
    tri_optimizer *opt = tri_sgd_of(
        (tri_param_group[]){{.model = p.net}, {.model = q.net, .lr = TRI_SET(0)}}, 2, 0.1, NULL);
    tri_optimizer *momenta = tri_sgd_of((tri_param_group[]){{.model = p.net}, {.model = q.net}}, 2,
                                        0.1, &(tri_sgd_options){.momentum = 0.5});
    double before[6], after[6];

    (void)state;
    read_param(q.net, "weight", before, 6);
    tri_backward(tri_add(tri_mse_loss(tri_forward(p.net, p.x), p.y, NULL),
                         tri_mse_loss(tri_forward(q.net, q.x), q.y, NULL)));
    CHECK_OK(tri_optimizer_step(opt));
    tri_step_end();
    read_param(q.net, "weight", after, 6);
    check_near(after, before, 6, 0.0);
    read_param(p.net, "weight", after, 6);
    assert_true(after[0] != before[0]);
    /* the same names twice are told apart */
    assert_string_equal(tri_optimizer_state(momenta, 0).name, "weight.momentum_buffer");
    assert_string_equal(tri_optimizer_state(momenta, 2).name, "group_1.weight.momentum_buffer");
    tri_optimizer_destroy(opt);
    tri_optimizer_destroy(momenta);
    problem_destroy(&p);
    problem_destroy(&q);
}

/* No module at all: weights in the program's own structures. */
static void loose_tensors_are_optimised(void **state)
{
    const double values[3] = {3, -2, 0.5}, target[3] = {1, 2, 3};
    tri_tensor *x = tri_tensor_from((int64_t[]){3}, 1, TRI_DTYPE_F64, values);
    tri_tensor *frozen = tri_tensor_from((int64_t[]){0}, 1, TRI_DTYPE_F32, NULL);
    tri_tensor *goal = tri_tensor_from((int64_t[]){3}, 1, TRI_DTYPE_F64, target);
    tri_tensor *const list[] = {x, frozen, x};
    tri_optimizer *opt =
        tri_adam_of(&(tri_param_group){.params = list, .n_params = 3}, 1, 0.1, NULL);
    double got[3];

    (void)state;
    tri_requires_grad(x, true);
    for (int step = 0; step < 400; step++) {
        tri_backward(tri_mse_loss(x, goal, NULL));
        CHECK_OK(tri_optimizer_step(opt));
        tri_step_end();
    }
    CHECK_OK(tri_tensor_copy_out(x, got, sizeof(got)));
    check_near(got, target, 3, 1e-3);
    assert_int_equal(tri_optimizer_state_count(opt), 5); /* x is listed twice and kept once */
    tri_optimizer_destroy(opt);
    tri_tensor_unref(x);
    tri_tensor_unref(frozen);
    tri_tensor_unref(goal);
}

/* One node updates many tensors, if they were updated equally often; as each would be alone. */
static void many_tensors_are_updated_as_each_alone(void **state)
{
    enum { N = 40 };
    tri_tensor *params[2][N];
    tri_optimizer *together, *alone[N];

    (void)state;
    for (int i = 0; i < N; i++) {
        int64_t n = i == 3 ? 0 : i == 7 ? 70001 : i % 5 + 1;
        float *values = malloc((size_t)n * sizeof(float) + 1);

        for (int64_t k = 0; k < n; k++)
            values[k] = (float)((k * 31 + i) % 17) - 8;
        for (int copy = 0; copy < 2; copy++) {
            params[copy][i] = tri_tensor_from(&n, 1, TRI_DTYPE_F32, values);
            tri_requires_grad(params[copy][i], true);
        }
        free(values);
        alone[i] =
            tri_adamw_of(&(tri_param_group){.params = &params[1][i], .n_params = 1}, 1, 0.1, NULL);
    }
    together = tri_adamw_of(&(tri_param_group){.params = params[0], .n_params = N}, 1, 0.1, NULL);
    for (int step = 0; step < 4; step++) {
        for (int copy = 0; copy < 2; copy++) {
            tri_tensor *loss = NULL;

            for (int i = 0; i < N; i++) {
                tri_tensor *term = tri_sum(tri_square(params[copy][i]), NULL, 0, false);

                if ((step + i) % 3 == 0 && step < 3)
                    continue; /* no gradient this time */
                loss = loss != NULL ? tri_add(loss, term) : term;
            }
            tri_backward(loss);
        }
        CHECK_OK(tri_optimizer_step(together));
        for (int i = 0; i < N; i++)
            CHECK_OK(tri_optimizer_step(alone[i]));
        tri_step_end();
    }
    for (int i = 0; i < N; i++) {
        static float a[70001], b[70001];
        size_t bytes = (size_t)tri_tensor_numel(params[0][i]) * sizeof(float);

        CHECK_OK(tri_tensor_copy_out(params[0][i], a, bytes));
        CHECK_OK(tri_tensor_copy_out(params[1][i], b, bytes));
        assert_memory_equal(a, b, bytes);
        tri_optimizer_destroy(alone[i]);
        tri_tensor_unref(params[0][i]);
        tri_tensor_unref(params[1][i]);
    }
    tri_optimizer_destroy(together);
}

static void refuses(tri_optimizer *opt, const char *why)
{
    CHECK_FAILS(tri_optimizer_step(opt), TRI_ERR_INVALID_ARG, why);
    assert_int_equal(tri_optimizer_group_count(opt), 0);
    tri_optimizer_destroy(opt);
}

static void bad_groups_are_refused(void **state)
{
    problem p = problem_create(TRI_DTYPE_F32);
    tri_tensor *weight = tri_module_find(p.net, "weight"), *bias = tri_module_find(p.net, "bias");
    tri_tensor *labels = tri_tensor_create((int64_t[]){2}, 1, TRI_DTYPE_I64);
    tri_tensor *step_value = tri_add(weight, weight), *nothing = NULL;
    tri_tensor *both[] = {weight, bias};

    (void)state;
    refuses(tri_sgd_of(NULL, 1, 0.1, NULL), "groups at (nil), n is 1");
    refuses(tri_sgd_of(&(tri_param_group){.model = p.net}, 0, 0.1, NULL), "n is 0");
    refuses(tri_adam_of(&(tri_param_group){.params = both, .n_params = 0}, 1, 0.1, NULL),
            "adam: the parameter list is empty");
    refuses(tri_adam_of(&(tri_param_group){0}, 1, 0.1, NULL), "groups[0] has neither");
    refuses(tri_adam_of(&(tri_param_group){.n_params = 2}, 1, 0.1, NULL),
            "group 0: a list of 2 parameters at NULL");
    refuses(tri_adam_of(&(tri_param_group){.params = both, .n_params = -1}, 1, 0.1, NULL),
            "list of -1");
    refuses(tri_adam_of(&(tri_param_group){.params = &nothing, .n_params = 1}, 1, 0.1, NULL),
            "param_0 is NULL");
    refuses(tri_adam_of(&(tri_param_group){.params = &step_value, .n_params = 1}, 1, 0.1, NULL),
            "param_0 is a value of a step");
    refuses(tri_adam_of(&(tri_param_group){.params = &labels, .n_params = 1}, 1, 0.1, NULL),
            "param_0 is i64");
    refuses(tri_adam_of(&(tri_param_group){.model = p.net, .params = &labels, .n_params = 1}, 1,
                        0.1, NULL),
            "group 0 has a model and a list");
    refuses(tri_adam_of((tri_param_group[]){{.model = p.net}, {.params = &bias, .n_params = 1}}, 2,
                        0.1, NULL),
            "param_2 of group 1 is bias of group 0");
    refuses(tri_adam_of((tri_param_group[]){{.params = &weight, .n_params = 1},
                                            {.params = &bias, .n_params = 1, .lr = TRI_SET(-1)}},
                        2, 0.1, NULL),
            "lr -1");
    tri_step_end();
    tri_tensor_unref(labels);
    problem_destroy(&p);
}

/* --- settings ------------------------------------------------------------- */

static void settings_are_checked(void **state)
{
    static const struct {
        int group;
        tri_hyper what;
        double value;
        const char *why;
    } bad[] = {
        {0, TRI_HYPER_LR, -1, "adam: lr -1"},
        {0, TRI_HYPER_BETA1, 1.0, "beta1 1: it must be from 0 to below 1"},
        {0, TRI_HYPER_BETA2, -0.1, "beta2 -0.1"},
        {0, TRI_HYPER_EPS, (double)INFINITY, "eps inf"},
        {0, TRI_HYPER_WEIGHT_DECAY, (double)NAN, "weight_decay"},
        {0, TRI_HYPER_MOMENTUM, 0.9, "adam has no setting momentum"},
        {0, (tri_hyper)77, 0.9, "no setting of this number (77)"},
        {1, TRI_HYPER_LR, 0.1, "group 1 is out of range (it has 1)"},
        {-2, TRI_HYPER_LR, 0.1, "group -2"},
    };
    problem p = problem_create(TRI_DTYPE_F32);

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(bad); i++) {
        tri_optimizer *opt = tri_adam(p.net, 0.1, NULL);

        tri_optimizer_set_hyper(opt, bad[i].group, bad[i].what, bad[i].value);
        assert_true(isnan(tri_optimizer_hyper(opt, bad[i].group, bad[i].what)) ||
                    bad[i].group == 0);
        refuses(opt, bad[i].why);
    }
    refuses(tri_adam(p.net, 0.1, &(tri_adam_options){.beta1 = TRI_SET(1.5)}), "beta1 1.5");
    refuses(tri_rmsprop(p.net, 0.1, &(tri_rmsprop_options){.alpha = TRI_SET(-1)}), "alpha -1");
    refuses(tri_adagrad(p.net, 0.1, &(tri_adagrad_options){.initial_accumulator_value = -1}),
            "initial_accumulator_value -1");
    refuses(tri_adagrad(p.net, 0.1, &(tri_adagrad_options){.lr_decay = -1}), "lr_decay -1");
    problem_destroy(&p);
}

static void a_momentum_needs_its_buffer(void **state)
{
    problem p = problem_create(TRI_DTYPE_F32);
    tri_optimizer *opt = tri_sgd(p.net, 0.1, NULL);

    (void)state;
    tri_optimizer_set_hyper(opt, TRI_ALL_GROUPS, TRI_HYPER_MOMENTUM, 0.0);
    CHECK_OK(tri_optimizer_status(opt));
    tri_optimizer_set_hyper(opt, TRI_ALL_GROUPS, TRI_HYPER_MOMENTUM, 0.9);
    refuses(opt, "was made without momentum");
    opt = tri_rmsprop(p.net, 0.1, &(tri_rmsprop_options){.momentum = 0.9});
    tri_optimizer_set_hyper(opt, TRI_ALL_GROUPS, TRI_HYPER_MOMENTUM, 0.5);
    assert_true(tri_optimizer_hyper(opt, 0, TRI_HYPER_MOMENTUM) == 0.5);
    CHECK_OK(tri_optimizer_status(opt));
    tri_optimizer_destroy(opt);
    problem_destroy(&p);
}

/* w = 1, loss w^2, with a momentum that is 0 for two steps: PyTorch's values. */
static void a_momentum_of_0_leaves_the_buffer_as_it_is(void **state)
{
    static const double momentum[5] = {0.9, 0, 0, 0.9, 0.9};
    static const double sgd[5] = {0.8, 0.64, 0.512, 0.2296, -0.07048};

    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        const double one = 1;
        tri_tensor *w = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_F64, &one);
        const tri_param_group group = {.params = &w, .n_params = 1};
        tri_optimizer *opt =
            kind == 0
                ? tri_sgd_of(&group, 1, 0.1, &(tri_sgd_options){.momentum = 0.9})
                : tri_rmsprop_of(&group, 1, 0.1,
                                 &(tri_rmsprop_options){.momentum = 0.9, .centered = kind == 2});
        double square = 0, mean = 0, buffer = 0, at = 1;

        tri_requires_grad(w, true);
        for (int s = 0; s < 5; s++) {
            double g = 2 * at, step;

            square = 0.99 * square + 0.01 * g * g;
            mean = 0.99 * mean + 0.01 * g;
            step = g / (sqrt(square - (kind == 2 ? mean * mean : 0)) + 1e-8);
            if (momentum[s] != 0)
                step = buffer = momentum[s] * buffer + step;
            at = kind == 0 ? sgd[s] : at - 0.1 * step;
            tri_optimizer_set_hyper(opt, TRI_ALL_GROUPS, TRI_HYPER_MOMENTUM, momentum[s]);
            tri_backward(tri_sum(tri_square(w), NULL, 0, false));
            CHECK_OK(tri_optimizer_step(opt));
            tri_optimizer_zero_grad(opt);
            CHECK_NEAR(tri_item(tri_sum(w, NULL, 0, false)), at, 1e-9);
            CHECK_OK(tri_step_end_status());
        }
        tri_optimizer_destroy(opt);
        tri_tensor_unref(w);
    }
}

/* --- averages ------------------------------------------------------------- */

static void averages_are_those_of_torch(void **state)
{
    problem p = problem_create(TRI_DTYPE_F64);
    tri_optimizer *opt = tri_sgd(p.net, 0.1, NULL);
    double weight[6];
    tri_ema *ema;

    (void)state;
    CHECK_OK(tri_ema_create(p.net, 0.8, &ema));
    assert_int_equal(tri_ema_state_count(ema), 3);
    assert_string_equal(tri_ema_state(ema, 1).name, "bias");
    assert_string_equal(tri_ema_state(ema, 2).name, "n_averaged");
    assert_null(tri_ema_state(ema, 3).name);
    for (int step = 0; step < STEPS; step++) {
        tri_backward(tri_mse_loss(tri_forward(p.net, p.x), p.y, NULL));
        tri_optimizer_set_lr(opt, 0.1 / (step + 1));
        CHECK_OK(tri_optimizer_step(opt));
        CHECK_OK(tri_ema_update(ema));
        tri_step_end();
    }
    CHECK_OK(tri_tensor_copy_out(tri_ema_state(ema, 0).tensor, weight, sizeof(weight)));
    check_near(weight, golden_ema_weight, 6, 1e-13);
    CHECK_OK(tri_ema_swap(ema));
    read_param(p.net, "weight", weight, 6);
    check_near(weight, golden_ema_weight, 6, 1e-13);
    CHECK_OK(tri_tensor_copy_out(tri_ema_state(ema, 0).tensor, weight, sizeof(weight)));
    check_near(weight, golden_ema_plain, 6, 1e-13);
    CHECK_OK(tri_ema_swap(ema));
    tri_step_end();
    read_param(p.net, "weight", weight, 6);
    check_near(weight, golden_ema_plain, 6, 1e-13);
    tri_ema_destroy(ema);
    tri_ema_destroy(NULL);
    tri_optimizer_destroy(opt);
    problem_destroy(&p);
}

static void bad_averages_are_refused(void **state)
{
    problem p = problem_create(TRI_DTYPE_F32);
    tri_module *relu = tri_nn_relu();
    tri_ema *ema;

    (void)state;
    CHECK_FAILS(tri_ema_create(p.net, 1.5, &ema), TRI_ERR_INVALID_ARG, "decay 1.5");
    assert_null(ema);
    CHECK_FAILS(tri_ema_create(p.net, (double)NAN, &ema), TRI_ERR_INVALID_ARG, "decay");
    CHECK_FAILS(tri_ema_create(NULL, 0.9, &ema), TRI_ERR_INVALID_ARG, "module is NULL");
    CHECK_FAILS(tri_ema_create(relu, 0.9, &ema), TRI_ERR_INVALID_ARG, "no parameters");
    CHECK_FAILS(tri_ema_update(NULL), TRI_ERR_INVALID_ARG, "ema is NULL");
    CHECK_FAILS(tri_ema_swap(NULL), TRI_ERR_INVALID_ARG, "ema is NULL");
    assert_int_equal(tri_ema_state_count(NULL), 0);
    tri_module_destroy(relu);
    problem_destroy(&p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_those_of_torch_in_double),
        cmocka_unit_test(all_are_those_of_torch_in_single),
        cmocka_unit_test(a_restored_optimizer_goes_on_with_the_same_bits),
        cmocka_unit_test(states_are_called_as_in_torch),
        cmocka_unit_test(groups_have_settings_of_their_own),
        cmocka_unit_test(two_parameters_of_one_name_are_refused),
        cmocka_unit_test(nesterov_keeps_its_momentum),
        cmocka_unit_test(models_can_be_groups),
        cmocka_unit_test(loose_tensors_are_optimised),
        cmocka_unit_test(many_tensors_are_updated_as_each_alone),
        cmocka_unit_test(bad_groups_are_refused),
        cmocka_unit_test(settings_are_checked),
        cmocka_unit_test(a_momentum_needs_its_buffer),
        cmocka_unit_test(a_momentum_of_0_leaves_the_buffer_as_it_is),
        cmocka_unit_test(averages_are_those_of_torch),
        cmocka_unit_test(bad_averages_are_refused),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
