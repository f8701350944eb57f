/* grad_scaler_golden_test.c - a gradient scaler step by step against PyTorch's (grad_scaler.txt,
 * made by make_grad_scaler.py): the scale, how long it has stood, and the parameters. */
#include "golden_sketch.h"
#include "train/graph/step/step.h"
#include "testing/check.h"

#include <trireme/optim.h>
#include <trireme/ops.h>

enum { N = 5 };

typedef struct scaler_case {
    const char *name;
    bool two, clips;
    int micro;
} scaler_case;

static const scaler_case cases[] = {
    {"adam", false, false, 1},   {"two", true, false, 1},         {"clip", false, true, 1},
    {"two_clip", true, true, 1}, {"accumulate", false, false, 2},
};

typedef struct running {
    const scaler_case *c;
    tri_tensor *p[2];
    tri_optimizer *opt[2];
    tri_grad_scaler *scaler;
} running;

static void begin_case(running *r, const scaler_case *c)
{
    static const float values[2][N] = {{0.5f, -1, 2, 0.25f, -0.125f}, {1.5f, 0.75f, -2, 1, 0.5f}};
    const tri_grad_scaler_options options = {.init_scale = TRI_SET(1024),
                                             .growth_factor = TRI_SET(4),
                                             .backoff_factor = TRI_SET(0.25),
                                             .growth_interval = 3};

    r->c = c;
    for (int i = 0; i < 2; i++) {
        r->p[i] = tri_tensor_from((int64_t[]){N}, 1, TRI_DTYPE_F32, values[i]);
        tri_requires_grad(r->p[i], true);
    }
    r->opt[0] =
        tri_adam_of(&(tri_param_group){.params = r->p, .n_params = c->two ? 1 : 2}, 1, 0.125, NULL);
    r->opt[1] = !c->two ? NULL
                        : tri_sgd_of(&(tri_param_group){.params = &r->p[1], .n_params = 1}, 1, 0.25,
                                     &(tri_sgd_options){.momentum = 0.5});
    CHECK_OK(tri_grad_scaler_create(&options, &r->scaler));
}

static void end_case(running *r)
{
    tri_grad_scaler_destroy(r->scaler);
    for (int i = 0; i < 2 && r->c != NULL; i++) {
        tri_optimizer_destroy(r->opt[i]);
        tri_tensor_unref(r->p[i]);
    }
    *r = (running){0};
}

static bool is_bad(int which, int step)
{
    return which == 0 ? step == 2 || step == 3 || step == 8 : step == 3 || step == 9;
}

static tri_tensor *loss_of(const running *r, int step, int m)
{
    double fa = is_bad(0, step) && m == 0 ? INFINITY : 1 + 0.125 * m;
    double fb = is_bad(1, step) && m == r->c->micro - 1 ? INFINITY : 0.75;
    tri_tensor *b = tri_add_scalar(r->p[1], -0.5);

    return tri_add(tri_mul_scalar(tri_mean(tri_mul(r->p[0], r->p[0]), NULL, 0, false), fa),
                   tri_mul_scalar(tri_mean(tri_mul(b, b), NULL, 0, false), fb));
}

static void train_step(const running *r, int step)
{
    for (int m = 0; m < r->c->micro; m++)
        tri_backward(tri_grad_scaler_scale(r->scaler, loss_of(r, step, m)));
    for (int i = 0; i < 2 && r->opt[i] != NULL; i++) {
        if (r->c->clips) {
            tri_grad_scaler_unscale(r->scaler, r->opt[i]);
            tri_clip_grad_norm(r->opt[i], 0.25);
        }
        CHECK_OK(tri_grad_scaler_step(r->scaler, r->opt[i]));
        tri_optimizer_zero_grad(r->opt[i]);
    }
    CHECK_OK(tri_grad_scaler_update(r->scaler));
    CHECK_OK(tri_step_end_status());
}

static void check_line(const running *r, const char *line)
{
    float p[2 * N];
    int64_t tracker;
    char *at;
    int step = (int)strtol(line, &at, 10);

    train_step(r, step);
    assert_true(tri_grad_scaler_current_scale(r->scaler) == strtod(at, &at));
    CHECK_OK(
        tri_tensor_copy_out(tri_grad_scaler_state(r->scaler, 1).tensor, &tracker, sizeof(tracker)));
    assert_int_equal(tracker, strtol(at, &at, 10));
    for (int i = 0; i < 2; i++)
        CHECK_OK(tri_tensor_copy_out(r->p[i], p + i * N, N * sizeof(float)));
    for (int i = 0; i < 2 * N; i++) {
        double want = strtod(at, &at);

        if (!(fabs((double)p[i] - want) <= 2e-6 * (1 + fabs(want))))
            fail_msg("%s, step %d: element %d is %.9g, PyTorch has %.9g", r->c->name, step, i,
                     (double)p[i], want);
    }
}

static void check_all(void)
{
    FILE *file = golden_open("grad_scaler.txt");
    char line[4096];
    running r = {0};
    int lines = 0;
    size_t begun = 0;

    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "case ", 5) != 0) {
            check_line(&r, line);
            lines++;
            continue;
        }
        line[strcspn(line, "\n")] = '\0';
        end_case(&r);
        assert_true(begun < sizeof(cases) / sizeof(cases[0]));
        assert_string_equal(line + 5, cases[begun].name);
        begin_case(&r, &cases[begun++]);
    }
    end_case(&r);
    fclose(file);
    assert_int_equal(lines, 14 * sizeof(cases) / sizeof(cases[0]));
}

static void scales_and_parameters_are_those_of_pytorch(void **state)
{
    (void)state;
    check_all();
}

static void scales_and_parameters_by_the_reference_kernels(void **state)
{
    (void)state;
    trii_executor_set(&trii_executor_reference);
    check_all();
    trii_executor_set(NULL);
}

static void scales_and_parameters_operation_by_operation(void **state)
{
    (void)state;
    setenv("TRI_EAGER", "1", 1);
    check_all();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(scales_and_parameters_are_those_of_pytorch),
    cmocka_unit_test(scales_and_parameters_by_the_reference_kernels),
    cmocka_unit_test(scales_and_parameters_operation_by_operation),
};

TEST_MAIN(tests)
