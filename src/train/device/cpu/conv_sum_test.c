/*
 * conv_sum_test.c - gradients of a convolution's weights by several batches: their sum against the
 * reference kernels, and which of them become one kernel.
 */
#include <math.h>
#include <trireme/trireme.h>

#include "train/device/cpu/cpu_parallel.h"
#include "train/plan/plan.h"
#include "testing/check.h"
#include "testing/spread_values.h"

#define MAX_PIECES 9

typedef struct sum_case {
    int64_t in, out;
    int window, stride, groups;
    int64_t size;                  /* of images */
    int64_t batch[MAX_PIECES + 1]; /* up to 0 */
    int kernels;                   /* that the gradient takes */
    bool other_stride;             /* of the second piece */
} sum_case;

static const sum_case cases[] = {
    {64, 64, 3, 1, 1, 3, {2, 2, 2, 2}, 1, false},
    {64, 64, 3, 1, 1, 8, {1, 1, 1}, 1, false}, /* together enough for Winograd */
    {64, 32, 1, 1, 1, 2, {3, 1, 2}, 1, false}, /* pieces of several sizes */
    {16, 16, 3, 2, 1, 5, {2, 1}, 1, false},
    {3, 16, 3, 1, 1, 4, {1, 1}, 1, false},                       /* images in plain order */
    {32, 32, 3, 1, 4, 3, {1, 2}, 1, false},                      /* in groups */
    {64, 32, 1, 1, 1, 1, {1, 1, 1, 1, 1, 1, 1, 1, 1}, 2, false}, /* more than a group holds */
    {16, 16, 1, 1, 1, 9, {1, 1}, 2, false},   /* the images are larger than the weights */
    {16, 16, 3, 1, 1, 3, {1, 1, 1}, 3, true}, /* what differs in more than the batch */
};

static int kernels;

/* Counts the kernels of such gradients; then the usual executor runs the segment. */
static tri_status count(trii_step *step, const trii_segment *segment)
{
    trii_plan *plan;
    tri_status status = trii_plan_create(step, segment, &trii_plan_device, false, &plan);

    if (status != TRI_OK)
        return status;
    for (int32_t e = 0; e < plan->n_entries; e++) {
        const trii_kernel *kernel = plan->entries[e].kernel;

        kernels += kernel != NULL && strncmp(kernel->name, "conv_backward_weight", 20) == 0;
    }
    trii_plan_destroy(plan);
    return trii_executor_plan.run(step, segment);
}

static const trii_executor counting = {.name = "counting", .run = count, .release = NULL};

/* The gradient of the weights by a loss of all pieces, or by one of each. */
static float *gradient(const sum_case *c, bool one_loss, int64_t *n_out)
{
    tri_tensor *w = spread_values(TRI_SHAPE(c->out, c->in / c->groups, c->window, c->window), 2);
    tri_tensor *x[MAX_PIECES], *total = NULL;
    float *data;
    int n = 0;

    tri_requires_grad(w, true);
    for (; c->batch[n] > 0; n++) {
        int stride = c->other_stride && n == 1 ? c->stride + 1 : c->stride;
        const tri_conv_options options = {.stride = {stride, stride},
                                          .padding = {c->window / 2, c->window / 2},
                                          .groups = c->groups};
        tri_tensor *loss;

        x[n] = spread_values(TRI_SHAPE(c->batch[n], c->in, c->size, c->size), n);
        loss = tri_sum(tri_square(tri_conv(x[n], w, NULL, &options)), NULL, 0, false);
        if (!one_loss)
            tri_backward(loss);
        total = total != NULL ? tri_add(total, loss) : loss;
    }
    if (one_loss)
        tri_backward(total);
    CHECK_OK(tri_run());
    *n_out = tri_tensor_numel(w);
    data = malloc((size_t)*n_out * sizeof(float));
    CHECK_OK(tri_tensor_copy_out(tri_grad(w), data, (size_t)*n_out * sizeof(float)));
    CHECK_OK(tri_step_end_status());
    for (int i = 0; i < n; i++)
        tri_tensor_unref(x[i]);
    tri_tensor_unref(w);
    return data;
}

static void check(const sum_case *c, bool one_loss)
{
    int64_t n;
    float *want, *got;
    double off = 0, size = 0;

    trii_executor_set(&trii_executor_reference);
    want = gradient(c, one_loss, &n);
    kernels = 0;
    trii_executor_set(&counting);
    got = gradient(c, one_loss, &n);
    trii_executor_set(NULL);
    for (int64_t i = 0; i < n; i++) {
        off += pow((double)want[i] - (double)got[i], 2);
        size += pow((double)want[i], 2);
    }
    if (!(sqrt(off) <= 1e-5 * sqrt(size)) || kernels != c->kernels)
        fail_msg("%lld to %lld channels, images of %lld: off by %g of %g, by %d kernels",
                 (long long)c->in, (long long)c->out, (long long)c->size, sqrt(off), sqrt(size),
                 kernels);
    free(want);
    free(got);
}

static void gradients_by_pieces_of_a_batch_are_made_together(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        trii_parallel_set_threads(threads);
        trii_step_release(); /* plans of so many threads */
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            check(&cases[i], true);
            check(&cases[i], false);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(gradients_by_pieces_of_a_batch_are_made_together),
};

TEST_MAIN(tests)
