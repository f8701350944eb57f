/* zero_gathers_test.c - tri_zero_options that say how stage 3 gathers: ahead up to so many bytes,
 * and in 16 bits; and where the network lies. Weights are compared with those of tri_ddp, bit for
 * bit. */
#include "base/err.h"
#include "testing/ddp_ranks.h"
#include "train/graph/step/host_op.h"

static void check_all(const rank *ranks, int n, tri_status wanted, const char *line)
{
    for (int r = 0; r < n; r++)
        if (ranks[r].status != wanted || strstr(ranks[r].line, line) == NULL)
            fail_msg("rank %d of %d: %s: %s", r, n, tri_status_name(ranks[r].status),
                     ranks[r].line);
}

/* The line must outlive what is destroyed. */
static tri_status destroyed(rank *r, tri_module *model)
{
    tri_status status = tri_module_status(model);

    (void)snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_module_destroy(model);
    trii_err_set("%s", r->line);
    return status;
}

/* --- bytes ahead ---------------------------------------------------------- */

#define LAYERS 6
#define ROOM 64 /* gathers of a step */

typedef struct ahead {
    int widths[LAYERS + 1];
    int prefetch;
    size_t bytes;
    int depth; /* what comes of it where layers are of equal size; -1 = they are not */
} ahead;

static tri_module *linear(const ahead *a, int i)
{
    return tri_nn_linear(a->widths[i], a->widths[i + 1], NULL);
}

/* A bucket for each layer. */
static tri_module *layers_of(const rank *r, const ahead *a)
{
    static const char *const units[] = {"*"};
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(1);
    net = tri_nn_sequential(linear(a, 0), linear(a, 1), linear(a, 2), linear(a, 3), linear(a, 4),
                            linear(a, 5));
    trii_mutex_unlock(&drawing);
    return tri_fully_shard(net, &(tri_zero_options){.group = r->group,
                                                    .units = units,
                                                    .n_units = 1,
                                                    .prefetch = a->prefetch,
                                                    .prefetch_bytes = a->bytes});
}

/* A gather of the step that is recorded. */
typedef struct gather {
    trii_vid result;
    size_t bytes;
    int32_t starts; /* once this node is complete; -1 = at once */
    int32_t reader; /* the first kernel that reads it */
} gather;

static int find_gathers(const trii_step *step, gather *found)
{
    trii_vid *from = calloc((size_t)step->n_values, sizeof(*from)); /* gather + 1 of each value */
    int n = 0;

    for (int32_t k = 0; k < step->n_nodes && n < ROOM; k++) {
        const trii_node *node = &step->nodes[k];

        if (node->host != NULL &&
            strstr(node->host->kind->name, "parameters of a bucket") != NULL) {
            const trii_vid *after = &step->in_ids[node->first_in + node->n_in];
            const trii_type *type = &step->values[node->first_out].type;

            found[n++] = (gather){.result = node->first_out,
                                  .bytes = (size_t)type->shape[0] * tri_dtype_size(type->dtype),
                                  .starts = node->n_after > 0 ? step->values[after[0]].node : -1,
                                  .reader = INT32_MAX};
            from[node->first_out] = n;
            continue;
        }
        for (int i = 0; i < node->n_in; i++) {
            trii_vid in = step->in_ids[node->first_in + i];

            if (in < 0 || from[in] == 0)
                continue;
            if (node->op->op_class == TRII_CLASS_VIEW)
                from[node->first_out] = from[in];
            else if (found[from[in] - 1].reader > k)
                found[from[in] - 1].reader = k;
        }
    }
    free(from);
    return n;
}

/* When each starts: what is there or under way, and is not read yet, without the one that is read
 * next, is ahead; that there is one more ahead would be too much. */
static tri_status check_ahead(const ahead *a, const gather *all, int n)
{
    size_t most = a->bytes > 0 ? a->bytes : SIZE_MAX;
    int depth = a->prefetch < 0 ? 0 : a->prefetch > 0 ? a->prefetch : a->bytes > 0 ? 7 : 1;

    for (int g = 0; g < n; g++) {
        int first = 0, n_ahead;
        size_t bytes = 0;

        while (first < g && all[first].reader <= all[g].starts)
            first++;
        n_ahead = g - first;
        for (int k = g; k > g - n_ahead; k--)
            bytes += all[k].bytes;
        if (n_ahead > depth || bytes > most)
            return TRII_FAIL(TRI_ERR_INTERNAL, "gather %d of %d: %d, %zu bytes, are ahead", g, n,
                             n_ahead, bytes);
        if (all[g].starts >= 0 && n_ahead < depth && bytes + all[first].bytes <= most)
            return TRII_FAIL(TRI_ERR_INTERNAL, "gather %d of %d: only %d, %zu bytes, are ahead", g,
                             n, n_ahead, bytes);
    }
    return TRI_OK;
}

static tri_status gather_ahead(rank *r)
{
    const ahead *a = r->arg;
    tri_module *model = layers_of(r, a);
    tri_tensor *x = tri_tensor_create((int64_t[]){2, a->widths[0]}, 2, TRI_DTYPE_F32), *loss;
    gather gathers[ROOM];
    int n, again = LAYERS - 2 - a->depth;

    TRY(tri_module_status(model));
    loss = tri_forward(model, x);
    loss = tri_mean(tri_mul(loss, loss), NULL, 0, false);
    tri_backward(loss);
    n = find_gathers(trii_step_current(), gathers);
    TRY(check_ahead(a, gathers, n));
    if (a->depth >= 0 && n != LAYERS + (again > 0 ? again : 0))
        return TRII_FAIL(TRI_ERR_INTERNAL, "%d gathers, where %d are ahead", n, a->depth);
    TRY(tri_step_end_status());
    tri_step_end();
    tri_tensor_unref(x);
    tri_module_destroy(model);
    return TRI_OK;
}

static void what_is_gathered_ahead_has_a_bound_in_bytes(void **state)
{
    /* a layer of 8 x 8 has 320 bytes: 64 for its bias */
    static const ahead cases[] = {
        {{8, 8, 8, 8, 8, 8, 8}, 0, 0, 1},         {{8, 8, 8, 8, 8, 8, 8}, 0, 1, 0},
        {{8, 8, 8, 8, 8, 8, 8}, 0, 319, 0},       {{8, 8, 8, 8, 8, 8, 8}, 0, 320, 1},
        {{8, 8, 8, 8, 8, 8, 8}, 0, 959, 2},       {{8, 8, 8, 8, 8, 8, 8}, 0, 960, 3},
        {{8, 8, 8, 8, 8, 8, 8}, 0, SIZE_MAX, 7},  {{8, 8, 8, 8, 8, 8, 8}, 2, SIZE_MAX, 2},
        {{8, 8, 8, 8, 8, 8, 8}, 2, 320, 1},       {{8, 8, 8, 8, 8, 8, 8}, -1, SIZE_MAX, 0},
        {{8, 8, 8, 8, 8, 8, 8}, 3, 0, 3},         {{8, 64, 8, 8, 32, 8, 1}, 0, 1000, -1},
        {{8, 64, 8, 8, 32, 8, 1}, 0, 3000, -1},   {{8, 64, 8, 8, 32, 8, 1}, 2, 3000, -1},
        {{8, 64, 8, 8, 32, 8, 1}, 0, 100000, -1}, {{1, 1, 8, 100, 8, 1, 100}, 0, 700, -1},
    };
    static rank ranks[2];

    (void)state;
    assert_int_equal(unsetenv("TRI_EAGER"), 0); /* under which nothing starts ahead */
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        run_ranks(ranks, 2, gather_ahead, &cases[i]);
        if (ranks[0].status != TRI_OK)
            print_error("case %d\n", (int)i);
        check_ranks(ranks, 2);
    }
}

/* --- 16 bits -------------------------------------------------------------- */

#define SYMBOLS 7

/* A network of f32 whose forward rounds weights by itself, if it is to. */
typedef struct tongue {
    tri_tensor *table, *up, *bias, *scale, *down;
    tri_dtype rounds_to;
} tongue;

/* The gradient passes as if it were not rounded. */
static tri_tensor *rounded(const tongue *t, tri_tensor *weight)
{
    tri_tensor *by;

    if (t->rounds_to == TRI_DTYPE_NONE)
        return weight;
    tri_no_grad_begin();
    by = tri_sub(tri_cast(tri_cast(weight, t->rounds_to), TRI_DTYPE_F32), weight); /* exact */
    tri_no_grad_end();
    return tri_add(weight, by);
}

static void tongue_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                           int n_out)
{
    const tongue *t = tri_module_data(self);
    tri_tensor *h = tri_embedding(in[0], rounded(t, t->table), NULL);

    (void)n_in;
    (void)n_out;
    h = tri_tanh(tri_mul(tri_linear(h, rounded(t, t->up), t->bias), t->scale));
    out[0] = tri_linear(h, rounded(t, t->down), NULL);
}

static tri_tensor *weight_of(tri_module *net, const char *name, const int64_t *shape, int ndim)
{
    tri_tensor *tensor = tri_tensor_create(shape, ndim, TRI_DTYPE_F32);

    if (tri_init_uniform(tensor, -0.7, 0.7) != TRI_OK)
        (void)tri_module_fail(net, TRI_ERR_INTERNAL, "%s", tri_last_error());
    return tri_module_add_parameter(net, name, tensor);
}

static tri_module *tongue_of(int width, int hidden, tri_dtype rounds_to)
{
    static const tri_module_class type = {
        .name = "Tongue", .size = sizeof(tongue), .forward = tongue_forward};
    tri_module *net = tri_module_create(&type);
    tongue *t = tri_module_data(net);

    trii_mutex_lock(&drawing);
    tri_manual_seed(3);
    t->rounds_to = rounds_to;
    t->table = weight_of(net, "table", TRI_SHAPE(SYMBOLS, width));
    t->up = weight_of(net, "up", TRI_SHAPE(hidden, width));
    t->bias = weight_of(net, "bias", TRI_SHAPE(hidden));
    t->scale = weight_of(net, "scale", TRI_SHAPE(hidden));
    t->down = weight_of(net, "down", TRI_SHAPE(3, hidden));
    trii_mutex_unlock(&drawing);
    return net;
}

typedef struct narrow {
    int width, hidden;
    tri_dtype dtype;
    size_t bucket_bytes;
} narrow;

static tri_status train_tongue(rank *r, tri_module *model)
{
    tri_optimizer *opt = tri_adam(model, 0.05, NULL);
    int64_t symbols[4];
    tri_tensor *x;

    for (int i = 0; i < 4; i++)
        symbols[i] = (3 * r->index + 2 * i) % SYMBOLS;
    x = tri_tensor_from(TRI_SHAPE(4), TRI_DTYPE_I64, symbols);
    TRY(tri_module_status(model));
    for (int step = 0; step < 3; step++) {
        tri_tensor *y = tri_forward(model, x);

        tri_backward(tri_mean(tri_mul(y, y), NULL, 0, false));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        tri_step_end();
    }
    TRY(tri_module_hash(model, &r->hash));
    tri_tensor_unref(x);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static tri_status train_rounding(rank *r)
{
    const narrow *n = r->arg;

    return train_tongue(r, tri_ddp(tongue_of(n->width, n->hidden, n->dtype),
                                   &(tri_ddp_options){.group = r->group}));
}

static tri_status train_gathered(rank *r)
{
    const narrow *n = r->arg;

    return train_tongue(r,
                        tri_fully_shard(tongue_of(n->width, n->hidden, TRI_DTYPE_NONE),
                                        &(tri_zero_options){.group = r->group,
                                                            .bucket_cap_bytes = n->bucket_bytes,
                                                            .first_bucket_bytes = n->bucket_bytes,
                                                            .gather_dtype = n->dtype}));
}

/* Weights are, biases and scales are not; what is updated has 32 bits. */
static void what_is_gathered_in_16_bits_is_read_rounded(void **state)
{
    static const narrow cases[] = {
        {8, 16, TRI_DTYPE_BF16, 0},   {8, 16, TRI_DTYPE_F16, 0},     {8, 16, TRI_DTYPE_BF16, 8},
        {1, 1, TRI_DTYPE_BF16, 0},    {5, 3, TRI_DTYPE_F16, 100},    {3, 4099, TRI_DTYPE_BF16, 0},
        {33, 500, TRI_DTYPE_F16, 40}, {7, 1301, TRI_DTYPE_BF16, 40},
    };
    static rank ranks[MAX_RANKS], rounding[MAX_RANKS];

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++)
        for (int n = 2; n <= 4; n++) {
            ranks_succeed(rounding, n, train_rounding, &cases[i]);
            ranks_succeed(ranks, n, train_gathered, &cases[i]);
            for (int k = 0; k < n; k++)
                if (ranks[k].hash != rounding[0].hash)
                    fail_msg("case %d, rank %d of %d: other weights", (int)i, k, n);
        }
}

/* --- under autocast ------------------------------------------------------- */

static tri_module *products(void)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(1);
    net = tri_nn_sequential(tri_nn_linear(IN, 40, NULL), tri_nn_relu(), tri_nn_linear(40, 40, NULL),
                            tri_nn_relu(), tri_nn_layer_norm(TRI_SHAPE(40), NULL),
                            tri_nn_linear(40, OUT, NULL));
    trii_mutex_unlock(&drawing);
    return net;
}

static tri_status train_in_bf16(rank *r, tri_module *model, bool recomputes)
{
    tri_optimizer *opt = tri_adam(model, 0.01, NULL);
    tri_tensor *x = rows_of(x_data, IN, 3 * r->index, 3), *y = rows_of(y_data, OUT, 0, 3);

    TRY(tri_module_status(model));
    if (recomputes)
        tri_module_set_recompute(tri_module_submodule(model, "2"), true);
    for (int step = 0; step < STEPS; step++) {
        tri_tensor *out = NULL, *loss;

        TRI_AUTOCAST(TRI_DTYPE_BF16)
        {
            out = tri_forward(model, tri_cast(x, TRI_DTYPE_F32));
        }
        loss = tri_mse_loss(out, tri_cast(y, TRI_DTYPE_F32), NULL);
        tri_backward(loss);
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        tri_step_end();
    }
    TRY(tri_module_hash(model, &r->hash));
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static tri_status train_whole_in_bf16(rank *r)
{
    return train_in_bf16(r, tri_ddp(products(), &(tri_ddp_options){.group = r->group}), false);
}

static tri_status train_gathered_in_bf16(rank *r)
{
    const tri_zero_options *options = r->arg;
    tri_zero_options opt = *options;
    tri_mesh *mesh = NULL;
    tri_status status;

    opt.gather_dtype = TRI_DTYPE_BF16;
    if (r->size == 4)
        TRY(tri_mesh_create(r->group, TRI_SHAPE(2, 2), (const char *[]){"host", "core"}, &mesh));
    opt.mesh = mesh;
    opt.group = mesh == NULL ? r->group : NULL;
    status = train_in_bf16(r, tri_fully_shard(products(), &opt), opt.prefetch < 0);
    tri_mesh_destroy(mesh);
    return status;
}

/* Whose kernels round weights by themselves: so nothing is lost. Four ranks are two by two. */
static void products_in_bf16_keep_their_bits(void **state)
{
    static const tri_zero_options cases[] = {
        {0},
        {.bucket_cap_bytes = 8, .first_bucket_bytes = 8, .prefetch = -1},
        {.keep_after_forward = true, .keep_below = 41},
    };
    static rank whole[MAX_RANKS], ranks[MAX_RANKS];

    (void)state;
    assert_int_equal(unsetenv("TRI_EAGER"), 0); /* whose kernels do not */
    make_data();
    for (int n = 2; n <= 4; n++) {
        ranks_succeed(whole, n, train_whole_in_bf16, NULL);
        for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
            ranks_succeed(ranks, n, train_gathered_in_bf16, &cases[i]);
            for (int k = 0; k < n; k++)
                if (ranks[k].hash != whole[0].hash)
                    fail_msg("case %d, rank %d of %d: other weights", (int)i, k, n);
        }
    }
}

/* --- how much is sent ----------------------------------------------------- */

static tri_status measure(rank *r)
{
    const tri_dtype dtypes[] = {TRI_DTYPE_NONE, TRI_DTYPE_BF16};
    /* of the averages of the first step, to which the second one adds: half of the two */
    const size_t numbers = 64 * 128 * 2, held = numbers * sizeof(float) / (size_t)r->size / 2;
    tri_ddp_volume_stats volumes[2];
    size_t sent[2];

    for (int k = 0; k < 2; k++) {
        tri_module *model = tri_fully_shard(
            tri_nn_sequential(tri_nn_linear(64, 128, &(tri_nn_linear_options){.no_bias = true}),
                              tri_nn_linear(128, 64, &(tri_nn_linear_options){.no_bias = true})),
            &(tri_zero_options){
                .group = r->group, .keep_after_forward = true, .gather_dtype = dtypes[k]});
        tri_tensor *x = tri_tensor_create((int64_t[]){2, 64}, 2, TRI_DTYPE_F32);
        tri_ddp_pass_stats stats;

        TRY(tri_module_status(model));
        TRY(tri_ddp_stats(model, &stats, NULL, 0));
        for (int step = 0; step < 2; step++) {
            tri_backward(tri_mean(tri_forward(model, x), NULL, 0, false));
            TRY(tri_step_end_status());
            tri_step_end();
        }
        TRY(tri_ddp_stats(model, &stats, NULL, 0));
        TRY(tri_ddp_volume(model, &volumes[k]));
        sent[k] = stats.sent_bytes - stats.bytes - held; /* of parameters */
        tri_tensor_unref(x);
        tri_module_destroy(model);
    }
    if (sent[0] != 2 * sent[1] || sent[1] != numbers * 2 / (size_t)r->size)
        return TRII_FAIL(TRI_ERR_INTERNAL, "%zu and %zu bytes", sent[0], sent[1]);
    if (volumes[0].all_gather != volumes[1].all_gather || volumes[0].all_gather == 0)
        return TRII_FAIL(TRI_ERR_INTERNAL, "another number of elements");
    return TRI_OK;
}

static void half_the_bytes_are_sent(void **state)
{
    static rank ranks[2];

    (void)state;
    ranks_succeed(ranks, 2, measure, NULL);
}

/* --- what is refused ------------------------------------------------------ */

static tri_status make(rank *r)
{
    tri_zero_options opt = *(const tri_zero_options *)r->arg;

    opt.group = r->group;
    return destroyed(r, tri_fully_shard(products(), &opt));
}

static void types_that_cannot_be_are_refused(void **state)
{
    static const struct {
        tri_dtype dtype;
        const char *line;
    } cases[] = {
        {TRI_DTYPE_F32, "gather_dtype f32: bf16 or f16 (0 = each parameter in its own)"},
        {TRI_DTYPE_F64, "gather_dtype f64: bf16 or f16"},
        {TRI_DTYPE_U8, "gather_dtype u8: bf16 or f16"},
        {(tri_dtype)77, "gather_dtype unknown dtype: bf16 or f16"},
    };
    static rank ranks[2];

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        run_ranks(ranks, 2, make, &(tri_zero_options){.gather_dtype = cases[i].dtype});
        check_all(ranks, 2, TRI_ERR_INVALID_ARG, cases[i].line);
    }
}

static tri_status differ(rank *r)
{
    tri_zero_options opt = {.group = r->group};

    if (*(const int *)r->arg == 0)
        opt.gather_dtype = r->index == 1 ? TRI_DTYPE_F16 : TRI_DTYPE_BF16;
    else
        opt.prefetch_bytes = r->index == 1 ? 1234 : 0;
    return destroyed(r, tri_fully_shard(products(), &opt));
}

static void ranks_that_gather_otherwise_are_named(void **state)
{
    static rank ranks[2];

    (void)state;
    run_ranks(ranks, 2, differ, &(int){0});
    check_all(ranks, 2, TRI_ERR_MISMATCH, "gathered in f16");
    run_ranks(ranks, 2, differ, &(int){1});
    check_all(ranks, 2, TRI_ERR_MISMATCH, "prefetch 7 of 1234 bytes");
}

/* --- devices -------------------------------------------------------------- */

/* 0: tri_ddp on the first device. */
static tri_status train_there(rank *r)
{
    const int stage = *(const int *)r->arg;
    const tri_device there = TRI_CPU(1), home = TRI_CPU(0);
    tri_module *net = mlp(1), *model;
    tri_optimizer *opt;
    tri_tensor *x = rows_of(x_data, IN, 3 * r->index, 3), *y = rows_of(y_data, OUT, 0, 3);

    if (stage > 0)
        TRY(tri_module_to(net, there));
    model = stage > 0 ? tri_zero(net, &(tri_zero_options){.group = r->group,
                                                          .stage = stage,
                                                          .device_ids = &there,
                                                          .n_devices = 1,
                                                          .output_device = &home})
                      : tri_ddp(net, &(tri_ddp_options){.group = r->group});
    TRY(tri_module_status(model));
    opt = tri_adam(model, 0.01, NULL);
    for (int step = 0; step < STEPS; step++) {
        tri_tensor *out = tri_forward(model, x);

        if (tri_tensor_device(out) != home)
            return TRII_FAIL(TRI_ERR_INTERNAL, "the result lies elsewhere");
        tri_backward(tri_mse_loss(out, y, NULL));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        tri_step_end();
    }
    TRY(tri_unshard_begin(model));
    TRY(take_weights(r, model));
    TRY(tri_unshard_end(model));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return TRI_OK;
}

static void inputs_go_to_the_network_and_results_come_back(void **state)
{
    static rank here[2], there[2];

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    make_data();
    for (int size = 1; size <= 2; size++) {
        ranks_succeed(here, size, train_there, &(int){0});
        for (int stage = 1; stage <= 3; stage++) {
            ranks_succeed(there, size, train_there, &stage);
            for (int k = 0; k < size; k++)
                if (there[k].hash != here[0].hash)
                    fail_msg("stage %d, rank %d of %d: other weights", stage, k, size);
        }
    }
}

static void devices_that_do_not_fit_are_named(void **state)
{
    const tri_device ids[2] = {TRI_CPU(1), TRI_CPU(0)}, none = TRI_CPU(7);
    const struct {
        tri_zero_options options;
        const char *text;
    } wrong[] = {
        {{.device_ids = ids, .n_devices = 1}, "lies on cpu:0, and device_ids[0] is cpu:1"},
        {{.device_ids = ids, .n_devices = 2}, "2 device_ids"},
        {{.device_ids = ids}, "device_ids is set, but n_devices is 0: set it to 1"},
        {{.n_devices = 1}, "n_devices is 1, but device_ids is NULL"},
        {{.device_ids = &none, .n_devices = 1}, "cpu:7 does not exist"},
        {{.output_device = &none}, "cpu:7 does not exist"},
    };
    static rank ranks[2];

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    for (size_t i = 0; i < TRII_COUNT_OF(wrong); i++) {
        run_ranks(ranks, 2, make, &wrong[i].options);
        check_all(ranks, 2, TRI_ERR_INVALID_ARG, wrong[i].text);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_gathered_ahead_has_a_bound_in_bytes),
    cmocka_unit_test(what_is_gathered_in_16_bits_is_read_rounded),
    cmocka_unit_test(products_in_bf16_keep_their_bits),
    cmocka_unit_test(half_the_bytes_are_sent),
    cmocka_unit_test(types_that_cannot_be_are_refused),
    cmocka_unit_test(ranks_that_gather_otherwise_are_named),
    cmocka_unit_test(inputs_go_to_the_network_and_results_come_back),
    cmocka_unit_test(devices_that_do_not_fit_are_named),
};

TEST_MAIN(tests)
