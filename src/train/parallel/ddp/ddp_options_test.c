/*
 * ddp_options_test.c - device_ids and output_device, figures of the passes, tri_module_broadcast,
 * and who is told what before and between passes.
 */
/* ctest: also=TRI_CHECK=order */
#include "testing/ddp_ranks.h"

static void keep_line(rank *r)
{
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
}

/* All ranks have come here, over the store: a rank that leaves the group before would be missed. */
static tri_status meet(const rank *r)
{
    const char *keys[] = {"here/0", "here/1"};

    TRY(tri_store_set(r->store, keys[r->index], "", 0));
    return tri_store_wait(r->store, keys, 2, 20000);
}

/* --- devices -------------------------------------------------------------- */

/* Of the second device; 0: options without devices. */
static tri_status train_there(rank *r)
{
    const tri_device *there = r->arg, home = TRI_CPU(0);
    tri_ddp_options options = {.group = r->group,
                               .find_unused_parameters = true,
                               .static_graph = true,
                               .bucket_cap_bytes = 300,
                               .first_bucket_bytes = 100};
    tri_module *net = mlp(1), *model;
    tri_optimizer *opt;
    tri_tensor *x = rows_of(x_data, IN, 6 * r->index, 6), *y = rows_of(y_data, OUT, 0, 6);

    if (*there != home) {
        TRY(tri_module_to(net, *there));
        options.device_ids = there;
        options.n_devices = 1;
        options.output_device = &home;
    }
    model = tri_ddp(net, &options);
    TRY(tri_module_status(model));
    opt = tri_sgd(model, 0.1, &(tri_sgd_options){.momentum = 0.9});
    for (int step = 0; step < STEPS; step++) {
        tri_tensor *out = tri_forward(model, x);

        if (tri_tensor_device(out) != home)
            return TRI_ERR_INTERNAL;
        tri_backward(tri_mse_loss(out, y, NULL));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    return take_and_destroy(r, model, opt, x, y);
}

static void inputs_go_to_the_network_and_results_come_back(void **state)
{
    static rank here[2], there[2];
    const tri_device first = TRI_CPU(0), second = TRI_CPU(1);

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    make_data();
    for (int size = 1; size <= 2; size++) {
        ranks_succeed(here, size, train_there, &first);
        ranks_succeed(there, size, train_there, &second);
        assert_true(here[0].hash == there[0].hash && here[0].n_weights > 100);
    }
}

static void devices_that_do_not_fit_are_named(void **state)
{
    const tri_device ids[2] = {TRI_CPU(1), TRI_CPU(0)}, none = TRI_CPU(7);
    const struct {
        tri_ddp_options options;
        const char *text;
    } wrong[] = {
        {{.device_ids = ids, .n_devices = 1}, "lies on cpu:0, and device_ids[0] is cpu:1"},
        {{.device_ids = ids, .n_devices = 2}, "2 device_ids"},
        {{.device_ids = ids}, "device_ids is set, but n_devices is 0: set it to 1"},
        {{.n_devices = 1}, "n_devices is 1, but device_ids is NULL"},
        {{.device_ids = &none, .n_devices = 1}, "cpu:7 does not exist"},
        {{.output_device = &none}, "cpu:7 does not exist"},
    };

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    for (size_t i = 0; i < TRII_COUNT_OF(wrong); i++) {
        tri_module *model = tri_ddp(mlp(1), &wrong[i].options);

        CHECK_FAILS(tri_module_status(model), TRI_ERR_INVALID_ARG, wrong[i].text);
        tri_module_destroy(model);
    }
}

/* --- a network that is none, on one rank ---------------------------------- */

static tri_status make_one_after_another(rank *r)
{
    const int *bad = r->arg;
    tri_module *model = tri_ddp(r->index == *bad ? tri_nn_linear(-1, 2, NULL) : mlp(1),
                                &(tri_ddp_options){.group = r->group});
    tri_status status = tri_module_status(model);

    keep_line(r);
    tri_module_destroy(model);
    if (status == TRI_OK)
        return TRI_ERR_INTERNAL;
    model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group}); /* the group goes on */
    TRY(tri_module_status(model));
    tri_module_destroy(model);
    r->hash = status == TRI_ERR_MISMATCH;
    return TRI_OK;
}

static void a_network_that_failed_on_one_rank_is_told_to_all(void **state)
{
    static rank ranks[3];

    (void)state;
    for (int bad = 0; bad < 3; bad++) {
        run_ranks(ranks, 3, make_one_after_another, &bad);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(ranks[i].status, TRI_OK);
            assert_int_equal(ranks[i].hash, i != bad);
        }
    }
}

/* --- passes that are open ------------------------------------------------- */

/* Two forwards, and the backward of the second goes wrong on rank 0 when that of the first is
 * complete. In contexts of their own: the first is complete in one when the other has its
 * mistake, whichever began. */
static tri_status fail_in_the_second_backward(rank *r)
{
    const int *contexts = r->arg;
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 0, 4), *y = rows_of(y_data, OUT, 0, 4);
    tri_tensor *short_y = rows_of(y_data, OUT, 0, 3), *first = NULL, *second;
    tri_context *context = NULL;
    tri_status status = tri_module_status(model);

    TRY(tri_context_create(&context));
    if (*contexts == 2) {
        TRY(tri_context_enter(context));
        first = tri_forward(model, x);
        TRY(tri_context_leave());
    }
    second = tri_keep(tri_forward(model, x));
    if (*contexts != 0)
        TRY(tri_context_enter(context));
    if (*contexts != 2)
        first = tri_forward(model, x);
    tri_backward(tri_mse_loss(first, y, NULL));
    if (status == TRI_OK)
        status = tri_run();
    if (*contexts != 0)
        TRY(tri_context_leave());
    tri_backward(tri_mse_loss(second, r->index == 0 ? short_y : y, NULL));
    if (status == TRI_OK)
        status = tri_run();
    keep_line(r);
    TRY(meet(r));
    tri_step_end();
    tri_context_destroy(context);
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    tri_tensor_unref(short_y);
    return status;
}

static void a_mistake_in_one_of_two_passes_is_told(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    for (int contexts = 0; contexts < 3; contexts++) {
        run_ranks(ranks, 2, fail_in_the_second_backward, &contexts);
        if (ranks[0].status != TRI_ERR_INVALID_ARG || ranks[1].status != TRI_ERR_ABORTED ||
            strstr(ranks[1].line, "tri_mse_loss(f64 [4, 3], f64 [3, 3])") == NULL)
            fail_msg("contexts %d: %s; %s", contexts, ranks[0].line, ranks[1].line);
    }
}

/* --- figures -------------------------------------------------------------- */

/* Of so many passes since the last call. */
static tri_status look_at_figures(const rank *r, tri_module *model, int64_t passes)
{
    const tri_bucket_hook *hook = r->arg; /* a quarter of f64, or none */
    tri_ddp_bucket_stats buckets[8] = {{0}};
    tri_ddp_pass_stats stats;
    int n_params = 0;
    size_t sent = 0;
    double comm = 0, exposed = 0, shown;

    TRY(tri_ddp_stats(model, &stats, buckets, 8));
    for (int b = 0; b < stats.n_buckets; b++) {
        n_params += buckets[b].n_parameters;
        comm += buckets[b].comm_ms;
        exposed += buckets[b].exposed_ms;
        sent += buckets[b].sent_bytes;
        if (buckets[b].bytes == 0 || buckets[b].exposed_ms < 0 ||
            buckets[b].sent_bytes !=
                (passes > 0 ? buckets[b].bytes / (*hook != NULL ? 4 : 1) : 0) ||
            (passes > 0) != (buckets[b].comm_ms > 0))
            return TRI_ERR_INTERNAL;
    }
    if (r->size == 1 ? stats.n_passes != 0 || stats.n_buckets != 0
                     : stats.n_passes != passes || stats.n_buckets < 3 || n_params != 6 ||
                           stats.bytes < 155 * sizeof(double) || stats.sent_bytes != sent)
        return TRI_ERR_INTERNAL;
    if (stats.comm_ms > comm * 1.001 || fabs(stats.exposed_ms - exposed) > 1e-6 + exposed * 1e-3 ||
        (stats.comm_ms > 0) != (comm > 0))
        return TRI_ERR_INTERNAL;
    if (*hook != NULL && passes > 0 && r->size > 1 && stats.comm_ms >= comm)
        return TRI_ERR_INTERNAL; /* all are sent before the first is waited for */
    shown = stats.comm_ms > 0 ? fmax(0.0, 1.0 - stats.exposed_ms / stats.comm_ms) : 1.0;
    if (fabs(stats.hidden - shown) > 1e-9)
        return TRI_ERR_INTERNAL;
    memset(buckets, 0, sizeof(buckets));
    TRY(tri_ddp_stats(model, &stats, buckets, 2));
    return (buckets[1].bytes != 0) == (r->size > 1) && buckets[2].bytes == 0 ? TRI_OK
                                                                             : TRI_ERR_INTERNAL;
}

static tri_status measure(rank *r)
{
    const tri_bucket_hook *hook = r->arg;
    tri_module *model = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group,
                                                           .hook = *hook,
                                                           .bucket_cap_bytes = 200,
                                                           .first_bucket_bytes = 1});
    tri_tensor *x = rows_of(x_data, IN, 0, 6), *y = rows_of(y_data, OUT, 0, 6);

    TRY(tri_module_status(model));
    TRY(look_at_figures(r, model, 0));
    for (int step = 0; step < 7; step++) {
        if (step == 3) /* the first pass had other buckets */
            TRY(look_at_figures(r, model, 2));
        tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        TRY(tri_step_end_status());
    }
    TRY(look_at_figures(r, model, 4));
    TRY(look_at_figures(r, model, 0));
    tri_module_destroy(model);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return TRI_OK;
}

static void passes_are_counted_and_buckets_add_up(void **state)
{
    static rank ranks[2];
    const tri_bucket_hook hooks[2] = {NULL, tri_bucket_hook_bf16};

    (void)state;
    make_data();
    for (int i = 0; i < 4; i++)
        ranks_succeed(ranks, 1 + i / 2, measure, &hooks[i & 1]);
}

/* The limit holds for the first bucket, too. */
static tri_status count_buckets(rank *r)
{
    tri_module *model =
        tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group, .bucket_cap_bytes = 200});
    tri_ddp_pass_stats stats;

    TRY(tri_module_status(model));
    TRY(tri_ddp_stats(model, &stats, NULL, 0));
    tri_module_destroy(model);
    return stats.n_buckets >= 3 ? TRI_OK : TRI_ERR_INTERNAL;
}

static void a_small_limit_makes_several_buckets(void **state)
{
    static rank ranks[2];

    (void)state;
    ranks_succeed(ranks, 2, count_buckets, NULL);
}

/* --- a module's broadcast ------------------------------------------------- */

static tri_status send_module(rank *r)
{
    const int *root = r->arg;
    tri_module *net = mlp(1 + (uint64_t)r->index);
    tri_tensor *x = rows_of(x_data, IN, 0, 6), *y = rows_of(y_data, OUT, 0, 6);
    tri_optimizer *opt = tri_sgd(net, 0.1, NULL);

    /* An update that pends belongs to what is sent. */
    tri_backward(tri_mse_loss(tri_forward(net, x), y, NULL));
    TRY(tri_optimizer_step(opt));
    if (*root == r->index)
        TRY(tri_module_hash(net, &r->hash));
    TRY(tri_module_broadcast(net, r->group, *root));
    TRY(take_weights(r, net));
    tri_step_end();
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    return TRI_OK;
}

static void all_ranks_get_the_roots_module(void **state)
{
    static rank alone[3], ranks[3];

    (void)state;
    make_data();
    for (int root = 0; root < 3; root++) {
        ranks_succeed(ranks, 3, send_module, &root);
        assert_true(ranks[0].hash == ranks[1].hash && ranks[0].hash == ranks[2].hash);
        alone[root] = ranks[0];
    }
    assert_true(alone[0].hash != alone[1].hash && alone[1].hash != alone[2].hash);
}

/* Rank 1 makes a mistake of this kind; the group goes on. */
static tri_status send_unlike(rank *r)
{
    const int *kind = r->arg;
    bool mistaken = r->index == 1;
    tri_module *net = tri_nn_linear(3, mistaken && *kind == 0 ? 4 : 5, NULL);
    tri_tensor *x = rows_of(x_data, 3, 0, 2);
    tri_status status;

    if (tri_module_broadcast(net, r->group, 2) != TRI_ERR_INVALID_ARG) /* nothing is sent */
        return TRI_ERR_INTERNAL;
    if (mistaken && *kind == 2) /* f32 and f64 */
        tri_backward(tri_mean(tri_forward(net, x), NULL, 0, false));
    status = tri_module_broadcast(net, r->group, mistaken && *kind == 1);
    keep_line(r);
    tri_step_end();
    tri_module_destroy(net);
    tri_tensor_unref(x);
    net = mlp(1);
    TRY(tri_module_broadcast(net, r->group, 1));
    tri_module_destroy(net);
    r->hash = status == TRI_ERR_MISMATCH;
    return TRI_OK;
}

static void modules_that_differ_are_named(void **state)
{
    static const char *const texts[3] = {
        "module_broadcast: not the same model: rank 1 has weight f32[4, 3], rank 0 has weight",
        "rank 1 has root 1, rank 0 has root 0", "tri_linear(f64 [2, 3], f32 [5, 3]"};
    static rank ranks[2];

    (void)state;
    make_data();
    for (int kind = 0; kind < 3; kind++) {
        ranks_succeed(ranks, 2, send_unlike, &kind);
        for (int i = 0; i < 2; i++)
            if (ranks[i].hash != (kind < 2 || i == 0) || strstr(ranks[i].line, texts[kind]) == NULL)
                fail_msg("kind %d, rank %d: %s", kind, i, ranks[i].line);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(inputs_go_to_the_network_and_results_come_back),
    cmocka_unit_test(devices_that_do_not_fit_are_named),
    cmocka_unit_test(a_network_that_failed_on_one_rank_is_told_to_all),
    cmocka_unit_test(a_mistake_in_one_of_two_passes_is_told),
    cmocka_unit_test(passes_are_counted_and_buckets_add_up),
    cmocka_unit_test(a_small_limit_makes_several_buckets),
    cmocka_unit_test(all_ranks_get_the_roots_module),
    cmocka_unit_test(modules_that_differ_are_named),
};

TEST_MAIN(tests)
