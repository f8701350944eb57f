/*
 * zero_kernels_test.c - a step under stage 3 of tri_zero runs the kernels of a step under tri_ddp:
 * what is gathered is plain, but is brought into the layouts that kernels are fastest with, so the
 * choice among them is the same. The lists are those of TRI_TRACE, without communication, copies,
 * changes of layout, and updates, which are of pieces.
 */
#include "testing/ddp_ranks.h"

#include <trireme/models.h>

#include "testing/scratch.h"
#include "train/plan/trace.h"

#define NAMES 256
#define WARM_UP 4 /* steps until layouts and buckets have settled */
#define TRACED 2

typedef enum net_kind { PERCEPTRON, IMAGES, TEXT } net_kind;

typedef struct way {
    net_kind net;
    int stage;
    int64_t keep_below;
    const char *trace;
} way;

static tri_module *images(void)
{
    const tri_nn_conv2d_options padded = {.padding = 1};

    return tri_nn_sequential(
        tri_nn_conv2d(3, 32, 3, &padded), tri_nn_batch_norm2d(32, NULL), tri_nn_relu(),
        tri_nn_conv2d(32, 64, 3, &padded), tri_nn_batch_norm2d(64, NULL), tri_nn_relu(),
        tri_nn_max_pool2d(2, NULL), tri_nn_conv2d(64, 64, 1, NULL), tri_nn_batch_norm2d(64, NULL),
        tri_nn_relu(), tri_nn_adaptive_avg_pool2d(1, 1), tri_nn_flatten(1),
        tri_nn_linear(64, 10, NULL));
}

static tri_module *network(net_kind kind)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(1);
    if (kind == IMAGES)
        net = images();
    else if (kind == TEXT)
        net = tri_model_by_name("gpt:2,64,4,16,61", 0);
    else
        net = tri_nn_sequential(
            tri_nn_linear(40, 300, NULL), tri_nn_gelu(TRI_GELU_ERF), tri_nn_linear(300, 100, NULL),
            tri_nn_relu(), tri_nn_layer_norm(TRI_SHAPE(100), NULL), tri_nn_linear(100, 10, NULL));
    trii_mutex_unlock(&drawing);
    return net;
}

static tri_tensor *input(net_kind kind)
{
    int64_t tokens[2 * 16];

    if (kind == IMAGES)
        return tri_tensor_create(TRI_SHAPE(4, 3, 16, 16), TRI_DTYPE_F32);
    if (kind == PERCEPTRON)
        return tri_tensor_create(TRI_SHAPE(32, 40), TRI_DTYPE_F32);
    for (int i = 0; i < 2 * 16; i++)
        tokens[i] = i * 7 % 61;
    return tri_tensor_from(TRI_SHAPE(2, 16), TRI_DTYPE_I64, tokens);
}

static tri_status step(tri_module *model, tri_optimizer *opt, tri_tensor *x)
{
    tri_tensor *y = tri_forward(model, x);

    tri_backward(tri_mean(tri_mul(y, y), NULL, 0, false));
    TRY(tri_optimizer_step(opt));
    TRY(tri_step_end_status());
    tri_step_end();
    return TRI_OK;
}

/* The trace of the last steps, of all ranks, is in the file. */
static tri_status train(rank *r)
{
    const way *w = r->arg;
    const char *const units[] = {w->net == TEXT ? "h.*" : "*"};
    tri_module *model =
        w->stage == 0 ? tri_ddp(network(w->net), &(tri_ddp_options){.group = r->group})
                      : tri_zero(network(w->net), &(tri_zero_options){.group = r->group,
                                                                      .stage = w->stage,
                                                                      .units = units,
                                                                      .n_units = 1,
                                                                      .keep_below = w->keep_below});
    tri_optimizer *opt = tri_sgd(model, 0.01, NULL);
    tri_tensor *x = input(w->net);

    TRY(tri_module_status(model));
    for (int i = 0; i < WARM_UP; i++)
        TRY(step(model, opt, x));
    TRY(tri_barrier(r->group, NULL));
    if (r->index == 0)
        TRY(trii_trace_ask(w->trace));
    TRY(tri_barrier(r->group, NULL));
    for (int i = 0; i < TRACED; i++)
        TRY(step(model, opt, x));
    TRY(tri_barrier(r->group, NULL));
    if (r->index == 0)
        TRY(trii_trace_ask(NULL));
    tri_tensor_unref(x);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

/* --- lists ---------------------------------------------------------------- */

typedef struct kernels {
    char names[NAMES][120]; /* category and name */
    int times[NAMES], n;
} kernels;

static void add(kernels *k, const char *name)
{
    int i = 0;

    while (i < k->n && strcmp(k->names[i], name) != 0)
        i++;
    if (i == k->n) {
        assert_true(k->n < NAMES);
        snprintf(k->names[i], sizeof(k->names[i]), "%s", name);
        k->times[i] = 0;
        k->n++;
    }
    k->times[i]++;
}

/* Of kernels that take the sign of a rectified value from what they have: norms have their scale
 * from two gathers, so that the plan does not see that it is one, unless it stays whole. */
static void forget_sign(char *name)
{
    char *sign = strstr(name, "relu_backward(y)");

    if (sign != NULL)
        memcpy(sign, "relu_backward(x)", strlen("relu_backward(x)"));
}

static void read_trace(const char *path, bool folds, kernels *k)
{
    FILE *file = fopen(path, "r");
    char line[1024], name[100], category[20], both[120];

    assert_non_null(file);
    k->n = 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *begin = strstr(line, "{\"name\":\"");

        if (begin == NULL ||
            sscanf(begin, "{\"name\":\"%99[^\"]\",\"cat\":\"%19[a-z]", name, category) != 2)
            continue;
        if (strcmp(category, "forward") != 0 && strcmp(category, "backward") != 0)
            continue;
        if (folds)
            forget_sign(name);
        snprintf(both, sizeof(both), "%s %s", category, name);
        add(k, both);
    }
    fclose(file);
}

static int times_of(const kernels *k, const char *name)
{
    for (int i = 0; i < k->n; i++)
        if (strcmp(k->names[i], name) == 0)
            return k->times[i];
    return 0;
}

static int compare_lists(const kernels *ddp, const kernels *zero)
{
    int differ = 0, all = 0;

    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < (pass == 0 ? ddp : zero)->n; i++) {
            const char *name = (pass == 0 ? ddp : zero)->names[i];
            int a = times_of(ddp, name), b = times_of(zero, name);

            if (a != b && (pass == 0 || a == 0))
                print_error("%s: %d times under tri_ddp, %d in stage 3\n", name, a, b);
            differ += a != b;
            all += pass == 0 ? a : 0;
        }
    assert_true(all >= 2 * TRACED * 6);
    return differ;
}

static void check_kernels(net_kind net)
{
    static const int64_t kept[] = {0, 1000};
    static kernels ddp, zero;
    static rank ranks[2];
    scratch s;

    scratch_begin(&s);
    /* plans take times for a trace only if one is wanted when they are made */
    CHECK_OK(trii_trace_ask(scratch_path(&s, "first.json")));
    for (int i = 0; i < 2; i++) {
        way w = {.net = net, .trace = scratch_path(&s, "ddp.json")};

        ranks_succeed(ranks, 2, train, &w);
        read_trace(w.trace, kept[i] == 0, &ddp);
        CHECK_OK(trii_trace_ask(scratch_path(&s, "between.json")));
        w = (way){.net = net,
                  .stage = 3,
                  .keep_below = kept[i],
                  .trace = scratch_path(&s, i == 0 ? "all.json" : "large.json")};
        ranks_succeed(ranks, 2, train, &w);
        read_trace(w.trace, kept[i] == 0, &zero);
        CHECK_OK(trii_trace_ask(scratch_path(&s, "between.json")));
        if (compare_lists(&ddp, &zero) != 0)
            fail_msg("other kernels, keep_below %d", (int)kept[i]);
    }
    CHECK_OK(trii_trace_ask(NULL));
    scratch_end(&s);
}

static void linear_layers_run_the_same_kernels(void **state)
{
    (void)state;
    check_kernels(PERCEPTRON);
}

static void convolutions_run_the_same_kernels(void **state)
{
    (void)state;
    check_kernels(IMAGES);
}

static void transformers_run_the_same_kernels(void **state)
{
    (void)state;
    check_kernels(TEXT);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(linear_layers_run_the_same_kernels),
    cmocka_unit_test(convolutions_run_the_same_kernels),
    cmocka_unit_test(transformers_run_the_same_kernels),
};

TEST_MAIN(tests)
