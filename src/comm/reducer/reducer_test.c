/*
 * reducer_test.c - averages of plain buffers: any order, any buckets, uneven batches, unused
 * gradients, accumulation, ranks without data.
 */
#include <math.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "testing/check.h"
#include "testing/reducer_ranks.h"

enum { N_GRADS = 7 };
static const size_t counts[N_GRADS] = {5, 1000, 3, 70000, 0, 17, 4096};

/* Element i of gradient g on a rank: multiples of 1/8, so that sums of weighted ones are exact. */
static double value(int rank, int g, size_t i, int pass)
{
    return (double)((int)((i * 7 + (size_t)g * 13 + (size_t)rank * 5 + (size_t)pass) % 64) - 32) /
           8.0;
}

/* How a test passes its gradients. */
typedef struct scene {
    tri_reducer_options options;
    tri_dtype dtype;
    bool placed;      /* by the reducer */
    int order;        /* 0 = as a backward pass, 1 = forward, 2 = mixed, other on each rank */
    int64_t batch[4]; /* samples of the ranks */
    int passes;
    bool in_batch; /* while the program collects calls of its own */
} scene;

typedef struct buffers {
    void *data[N_GRADS];
} buffers;

static double get(tri_dtype dtype, const void *data, size_t i)
{
    return dtype == TRI_DTYPE_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void set(tri_dtype dtype, void *data, size_t i, double x)
{
    if (dtype == TRI_DTYPE_F64)
        ((double *)data)[i] = x;
    else
        ((float *)data)[i] = (float)x;
}

static tri_status setup(const scene *s, tri_group *group, tri_reducer **r, buffers *b)
{
    tri_reducer_options options = s->options;
    tri_status status;

    options.group = group;
    status = tri_reducer_create(&options, r);
    for (int g = 0; g < N_GRADS && status == TRI_OK; g++) {
        b->data[g] = s->placed ? NULL : trii_alloc(counts[g], 8, "gradient");
        status = tri_reducer_add(
            *r, &(tri_reducer_grad){.data = b->data[g], .count = counts[g], .dtype = s->dtype},
            NULL);
    }
    if (status == TRI_OK)
        status = tri_reducer_commit(*r);
    for (int g = 0; g < N_GRADS && status == TRI_OK; g++)
        b->data[g] = tri_reducer_data(*r, g);
    return status;
}

static void teardown(const scene *s, tri_group *group, tri_reducer *r, buffers *b)
{
    for (int g = 0; g < N_GRADS && !s->placed; g++)
        trii_free(b->data[g]);
    tri_reducer_destroy(r);
    tri_group_unref(group);
}

static int nth(const scene *s, int rank, int k)
{
    if (s->order == 0)
        return N_GRADS - 1 - k;
    return s->order == 1 ? k : (k * 3 + rank * 2) % N_GRADS;
}

static const char *averages(rank_env *env)
{
    const scene *s = env->arg;
    tri_group *group = NULL;
    tri_reducer *r = NULL;
    buffers b = {0};
    int64_t total = 0;

    JOIN(env, group);
    if (s->in_batch)
        RANK_TRY(env, tri_group_batch_begin(group));
    RANK_TRY(env, setup(s, group, &r, &b));
    for (int i = 0; i < env->size; i++)
        total += s->batch[i];
    for (int pass = 0; pass < s->passes; pass++) {
        RANK_TRY(env, tri_reducer_begin(r, s->batch[env->rank]));
        for (int k = 0; k < N_GRADS; k++) {
            int g = nth(s, env->rank, k);

            for (size_t i = 0; i < counts[g]; i++)
                set(s->dtype, b.data[g], i, value(env->rank, g, i, pass));
            RANK_TRY(env, tri_reducer_ready(r, g));
        }
        RANK_TRY(env, tri_reducer_finish(r));
        if (tri_reducer_sample_count(r) != total)
            return RANK_FAIL(env, "%lld samples", (long long)tri_reducer_sample_count(r));
        for (int g = 0; g < N_GRADS; g++)
            for (size_t i = 0; i < counts[g]; i++) {
                double wanted = 0;

                for (int o = 0; o < env->size; o++)
                    wanted += value(o, g, i, pass) * (double)s->batch[o] / (double)total;
                if (!(fabs(get(s->dtype, b.data[g], i) - wanted) <=
                      (s->dtype == TRI_DTYPE_F64 ? 1e-14 : 2e-6)))
                    return RANK_FAIL(env, "rank %d, pass %d, gradient %d, element %zu: %.9g not %g",
                                     env->rank, pass, g, i, get(s->dtype, b.data[g], i), wanted);
            }
    }
    if (s->in_batch)
        RANK_TRY(env, tri_group_batch_end(group, NULL));
    teardown(s, group, r, &b);
    return NULL;
}

static void equal_batches_are_averaged_in_any_order(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++)
        for (int order = 0; order < 3; order++) {
            scene s = {.passes = 3, .order = order, .batch = {4, 4, 4, 4}, .placed = order == 1};

            s.options.first_bucket_bytes = 4000;
            s.options.bucket_cap_bytes = 100000;
            run_threads(size, &shm_options, averages, &s);
            s.dtype = TRI_DTYPE_F64;
            s.placed = !s.placed;
            run_threads(size, size > 1 ? &tcp_options : NULL, averages, &s);
        }
    assert_int_equal(trii_alloc_live(), 0);
}

static void a_rank_weighs_as_many_samples_as_it_has(void **state)
{
    scene s = {.passes = 2, .order = 2, .batch = {7, 1, 2, 0}, .dtype = TRI_DTYPE_F64};

    (void)state;
    run_threads(3, &shm_options, averages, &s);
    run_threads(4, &shm_options, averages, &s); /* and one has nothing */
    s.placed = true;
    s.dtype = TRI_DTYPE_F32;
    run_threads(4, &tcp_options, averages, &s);
    assert_int_equal(trii_alloc_live(), 0);
}

static void what_the_program_collects_leaves_the_reducer_alone(void **state)
{
    scene s = {.passes = 2, .batch = {3, 1, 2}, .in_batch = true};

    (void)state;
    run_threads(3, &shm_options, averages, &s);
    run_threads(2, &tcp_options, averages, &s);
    assert_int_equal(trii_alloc_live(), 0);
}

/* Not by rounding alone: NaN of a rank without samples must not count. */
static const char *garbage_of_no_samples(rank_env *env)
{
    float x[3] = {1, 2, 3};
    tri_group *group = NULL;
    tri_reducer *r = NULL;

    JOIN(env, group);
    RANK_TRY(env, tri_reducer_create(&(tri_reducer_options){.group = group}, &r));
    RANK_TRY(env, tri_reducer_add(r, &(tri_reducer_grad){.data = x, .count = 3}, NULL));
    RANK_TRY(env, tri_reducer_begin(r, env->rank == 0 ? 0 : 3));
    x[0] = env->rank == 0 ? NAN : x[0];
    RANK_TRY(env, tri_reducer_ready(r, 0));
    RANK_TRY(env, tri_reducer_finish(r));
    if (x[0] != 1 || x[1] != 2 || x[2] != 3)
        return RANK_FAIL(env, "%g %g %g", (double)x[0], (double)x[1], (double)x[2]);
    tri_reducer_destroy(r);
    tri_group_unref(group);
    return NULL;
}

static void what_a_rank_without_samples_marks_does_not_count(void **state)
{
    (void)state;
    run_threads(2, &shm_options, garbage_of_no_samples, NULL);
}

/* --- buckets -------------------------------------------------------------- */

static const char *sixty_gradients(rank_env *env)
{
    float x;
    tri_group *group = NULL;
    tri_reducer *r = NULL;

    JOIN(env, group);
    RANK_TRY(env, tri_reducer_create(&(tri_reducer_options){.group = group}, &r));
    for (int g = 0; g < 60; g++) /* 256 KiB each, but the last two of 8 bytes */
        RANK_TRY(env, tri_reducer_add(
                          r,
                          &(tri_reducer_grad){.count = g < 58 ? 65536 : 1,
                                              .dtype = g < 58 ? TRI_DTYPE_F32 : TRI_DTYPE_F64},
                          NULL));
    if (tri_reducer_bucket_count(r) != 0 || tri_reducer_data(r, 0) != NULL)
        return RANK_FAIL(env, "buckets before they are made");
    RANK_TRY(env, tri_reducer_commit(r));
    /* 4 of 256 KiB fill the first MiB, the other 54 are less than 25 MiB, but the 4 that come last
     * are a bucket of their own; one of f64 */
    if (tri_reducer_bucket_count(r) != 4)
        return RANK_FAIL(env, "%d buckets", tri_reducer_bucket_count(r));
    x = ((float *)tri_reducer_data(r, 3))[65535];
    if (x != 0 || (uintptr_t)tri_reducer_data(r, 3) % 64 != 0 ||
        (char *)tri_reducer_data(r, 56) != (char *)tri_reducer_data(r, 57) + 262144)
        return RANK_FAIL(env, "places");
    tri_reducer_destroy(r);
    tri_group_unref(group);
    return NULL;
}

static void buckets_are_filled_from_the_last_gradient_on(void **state)
{
    (void)state;
    run_threads(2, &shm_options, sixty_gradients, NULL);
}

/* The same sums, bit for bit, however they travel. */
static const char *bits(rank_env *env)
{
    static const size_t caps[3] = {1, 50000, (size_t)25 << 20};
    static float first[N_GRADS][70000];
    tri_group *group = NULL;

    JOIN(env, group);
    for (int c = 0; c < 3; c++) {
        const scene s = {.order = c, .options = {.bucket_cap_bytes = caps[c]}, .placed = c == 1};
        tri_reducer *r = NULL;
        buffers b = {0};

        RANK_TRY(env, setup(&s, group, &r, &b));
        RANK_TRY(env, tri_reducer_begin(r, 3 + env->rank));
        for (int k = 0; k < N_GRADS; k++) {
            int g = nth(&s, env->rank, k);

            for (size_t i = 0; i < counts[g]; i++)
                ((float *)b.data[g])[i] = sinf((float)(i + (size_t)g) + (float)env->rank);
            RANK_TRY(env, tri_reducer_ready(r, g));
        }
        RANK_TRY(env, tri_reducer_finish(r));
        for (int g = 0; g < N_GRADS; g++) {
            if (c == 0 && env->rank == 0 && counts[g] > 0)
                memcpy(first[g], b.data[g], counts[g] * sizeof(float));
            RANK_TRY(env, tri_barrier(group, NULL));
            if (counts[g] > 0 && memcmp(first[g], b.data[g], counts[g] * sizeof(float)) != 0)
                return RANK_FAIL(env, "rank %d, buckets of %zu: gradient %d", env->rank, caps[c],
                                 g);
        }
        teardown(&s, tri_group_ref(group), r, &b);
    }
    tri_group_unref(group);
    return NULL;
}

static void buckets_and_order_change_no_bit(void **state)
{
    (void)state;
    run_threads(3, &shm_options, bits, NULL);
}

static const char *steady(rank_env *env)
{
    const scene s = {
        .options = {.first_bucket_bytes = 1, .bucket_cap_bytes = 20000, .find_unused = true}};
    tri_group *group = NULL;
    tri_reducer *r = NULL;
    buffers b = {0};
    long before = 0;

    JOIN(env, group);
    RANK_TRY(env, setup(&s, group, &r, &b));
    for (int pass = 0; pass < 110; pass++) {
        if (pass == 10) {
            RANK_TRY(env, tri_barrier(group, NULL));
            before = trii_alloc_calls();
            RANK_TRY(env, tri_barrier(group, NULL));
        }
        RANK_TRY(env, tri_reducer_begin(r, 4));
        for (int g = 0; g < N_GRADS; g++)
            RANK_TRY(env, tri_reducer_ready(r, g));
        RANK_TRY(env, tri_reducer_finish(r));
    }
    RANK_TRY(env, tri_barrier(group, NULL));
    if (trii_alloc_calls() != before)
        return RANK_FAIL(env, "%ld allocations in 100 passes", trii_alloc_calls() - before);
    RANK_TRY(env, tri_barrier(group, NULL));
    teardown(&s, group, r, &b);
    return NULL;
}

static void steady_passes_allocate_nothing(void **state)
{
    (void)state;
    run_threads(2, &shm_options, steady, NULL);
}

/* --- unused, accumulated, used up ----------------------------------------- */

static const char *unused(rank_env *env)
{
    float x[3] = {10, 20, 30};
    double *placed;
    tri_group *group = NULL;
    tri_reducer *r = NULL;

    JOIN(env, group);
    RANK_TRY(env,
             tri_reducer_create(&(tri_reducer_options){.group = group, .find_unused = true}, &r));
    for (int g = 0; g < 3; g++)
        RANK_TRY(env, tri_reducer_add(r, &(tri_reducer_grad){.data = &x[g], .count = 1}, NULL));
    RANK_TRY(env,
             tri_reducer_add(r, &(tri_reducer_grad){.count = 1, .dtype = TRI_DTYPE_F64}, NULL));
    for (int pass = 0; pass < 2; pass++) {
        RANK_TRY(env, tri_reducer_begin(r, 5));
        placed = tri_reducer_data(r, 3);
        *placed = 4;
        x[0] = 8;
        x[1] = 6;
        x[2] = 30;
        RANK_TRY(env, tri_reducer_ready(r, 0)); /* by all; 1 by the last rank; 2 and 3 by none */
        if (env->rank == env->size - 1)
            RANK_TRY(env, tri_reducer_ready(r, 1));
        RANK_TRY(env, tri_reducer_finish(r));
        if (x[0] != 8 || x[1] != 2 || x[2] != 30 || *placed != 0)
            return RANK_FAIL(env, "rank %d: %g %g %g %g", env->rank, (double)x[0], (double)x[1],
                             (double)x[2], *placed);
        if (!tri_reducer_is_used(r, 0) || !tri_reducer_is_used(r, 1) || tri_reducer_is_used(r, 2) ||
            tri_reducer_is_used(r, 3))
            return RANK_FAIL(env, "who is used");
    }
    tri_reducer_destroy(r);
    tri_group_unref(group);
    return NULL;
}

static void unused_here_is_zero_and_unused_everywhere_is_left(void **state)
{
    (void)state;
    run_threads(3, &shm_options, unused, NULL);
}

static const char *forgotten(rank_env *env)
{
    float x[2] = {3, 6};
    tri_group *group = NULL;
    tri_reducer *r = NULL;

    JOIN(env, group);
    RANK_TRY(env, tri_reducer_create(&(tri_reducer_options){.group = group}, &r));
    RANK_TRY(env, tri_reducer_add(r, &(tri_reducer_grad){.data = &x[0], .count = 1}, NULL));
    RANK_TRY(env,
             tri_reducer_add(r, &(tri_reducer_grad){.data = &x[1], .count = 1, .name = "head.bias"},
                             NULL));
    RANK_TRY(env, tri_reducer_begin(r, 1));
    RANK_TRY(env, tri_reducer_ready(r, 0));
    if (env->rank == 0)
        RANK_FAILS(env, tri_reducer_finish(r), TRI_ERR_INVALID_ARG, "gradients 1 (head.bias)");
    if (env->rank != 0) {
        RANK_TRY(env, tri_reducer_ready(r, 1));
        RANK_TRY(env, tri_reducer_finish(r));
    }
    if (x[1] != 3)
        return RANK_FAIL(env, "rank %d: %g", env->rank, (double)x[1]);
    for (int g = 0; g < 2; g++) /* and the next pass is as any */
        x[g] = (float)env->rank;
    RANK_TRY(env, tri_reducer_begin(r, 1));
    RANK_TRY(env, tri_reducer_ready(r, 1));
    RANK_TRY(env, tri_reducer_ready(r, 0));
    RANK_TRY(env, tri_reducer_finish(r));
    if (x[0] != 0.5f || x[1] != 0.5f)
        return RANK_FAIL(env, "rank %d: then %g %g", env->rank, (double)x[0], (double)x[1]);
    tri_reducer_destroy(r);
    tri_group_unref(group);
    return NULL;
}

static void a_forgotten_gradient_is_named_and_nobody_waits(void **state)
{
    (void)state;
    run_threads(2, &shm_options, forgotten, NULL);
}

/* Rank 0 adds up three batches of 2, rank 1 one of 2: weights 6 and 2 of 8. */
static const char *accumulate(rank_env *env)
{
    float x = 0;
    tri_group *group = NULL;
    tri_reducer *r = NULL;

    JOIN(env, group);
    RANK_TRY(env, tri_reducer_create(&(tri_reducer_options){.group = group}, &r));
    RANK_TRY(env, tri_reducer_add(r, &(tri_reducer_grad){.data = &x, .count = 1}, NULL));
    for (int pass = 0; pass < 2; pass++) {
        x = 0;
        for (int micro = 0; micro < 2 && env->rank == 0; micro++) {
            x += 4;
            RANK_TRY(env, tri_reducer_no_sync(r, 2));
        }
        x += 4;
        RANK_TRY(env, tri_reducer_begin(r, 2));
        RANK_FAILS(env, tri_reducer_no_sync(r, 2), TRI_ERR_STATE, "within a pass");
        RANK_TRY(env, tri_reducer_ready(r, 0));
        RANK_TRY(env, tri_reducer_finish(r));
        if (x != 12.0f * 6 / 8 + 4.0f * 2 / 8 || tri_reducer_sample_count(r) != 8)
            return RANK_FAIL(env, "%g of %lld", (double)x, (long long)tri_reducer_sample_count(r));
    }
    RANK_TRY(env, tri_reducer_begin(r, 2)); /* nothing is left over */
    RANK_TRY(env, tri_reducer_ready(r, 0));
    RANK_TRY(env, tri_reducer_finish(r));
    if (tri_reducer_sample_count(r) != 4)
        return RANK_FAIL(env, "%lld at last", (long long)tri_reducer_sample_count(r));
    tri_reducer_destroy(r);
    tri_group_unref(group);
    return NULL;
}

static void accumulated_samples_weigh_too(void **state)
{
    (void)state;
    run_threads(2, &shm_options, accumulate, NULL);
}

typedef struct replica {
    float weight, grad;
    int updates;
} replica;

static tri_status update(void *arg)
{
    replica *net = arg;

    net->weight -= 0.5f * net->grad;
    net->updates++;
    return TRI_OK;
}

/* Rank r has 2 r batches. All make as many updates, and two epochs in a row do so. */
static const char *uneven(rank_env *env)
{
    replica net = {.weight = 1};
    float all[4];
    tri_group *group = NULL;
    tri_reducer *r = NULL;

    JOIN(env, group);
    RANK_TRY(env, tri_reducer_create(&(tri_reducer_options){.group = group}, &r));
    RANK_TRY(env, tri_reducer_add(r, &(tri_reducer_grad){.data = &net.grad, .count = 1}, NULL));
    for (int epoch = 0; epoch < 2; epoch++) {
        for (int batch = 0; batch < 2 * env->rank; batch++) {
            RANK_TRY(env, tri_reducer_begin(r, 1));
            net.grad = net.weight * (float)(1 + env->rank);
            RANK_TRY(env, tri_reducer_ready(r, 0));
            RANK_TRY(env, tri_reducer_finish(r));
            RANK_TRY(env, update(&net));
        }
        RANK_TRY(env, tri_reducer_join(r, update, &net));
        if (net.updates != (epoch + 1) * 2 * (env->size - 1))
            return RANK_FAIL(env, "rank %d: %d updates", env->rank, net.updates);
    }
    RANK_TRY(env, tri_all_gather(group, &net.weight, all, 1, TRI_DTYPE_F32, NULL));
    for (int o = 0; o < env->size; o++)
        if (all[o] != net.weight || !(fabsf(net.weight) < 1))
            return RANK_FAIL(env, "rank %d has %g, rank %d %g", env->rank, (double)net.weight, o,
                             (double)all[o]);
    tri_reducer_destroy(r);
    tri_group_unref(group);
    return NULL;
}

static void ranks_without_data_keep_up(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++)
        run_threads(size, &shm_options, uneven, NULL);
    run_threads(3, &tcp_options, uneven, NULL);
}

/* Rank 0 has added up two batches, of 3, when its data are used up; rank 1 has as many samples. */
static const char *leave_some(rank_env *env)
{
    const bool *find_unused = env->arg;
    float grads[2][3];
    replica net = {.weight = 1};
    tri_group *group = NULL;
    tri_reducer *r = NULL;

    JOIN(env, group);
    RANK_TRY(env, tri_reducer_create(&(tri_reducer_options){.group = group,
                                                            .find_unused = *find_unused,
                                                            .first_bucket_bytes = 1},
                                     &r));
    for (int g = 0; g < 2; g++) {
        for (int i = 0; i < 3; i++)
            grads[g][i] = env->rank == 0 ? 3 : 1;
        RANK_TRY(env, tri_reducer_add(r, &(tri_reducer_grad){.data = grads[g], .count = 3}, NULL));
    }
    if (env->rank == 0) {
        RANK_TRY(env, tri_reducer_no_sync(r, 1));
        RANK_TRY(env, tri_reducer_no_sync(r, 1));
    } else {
        RANK_TRY(env, tri_reducer_begin(r, 2));
        RANK_TRY(env, tri_reducer_ready(r, 1));
        RANK_TRY(env, tri_reducer_ready(r, 0));
        RANK_TRY(env, tri_reducer_finish(r));
        RANK_TRY(env, update(&net));
    }
    RANK_TRY(env, tri_reducer_join(r, update, &net));
    for (int i = 0; i < 6; i++)
        if (grads[i / 3][i % 3] != 2)
            return RANK_FAIL(env, "gradient %d is %g", i / 3, (double)grads[i / 3][i % 3]);
    if (net.updates != 1 || tri_reducer_sample_count(r) != 4 || !tri_reducer_is_used(r, 0))
        return RANK_FAIL(env, "%d updates, %lld samples", net.updates,
                         (long long)tri_reducer_sample_count(r));
    tri_reducer_destroy(r);
    tri_group_unref(group);
    return NULL;
}

static void gradients_that_have_added_up_are_averaged_by_a_join(void **state)
{
    (void)state;
    run_threads(2, &shm_options, leave_some, &(bool){false});
    run_threads(2, &shm_options, leave_some, &(bool){true});
    run_threads(2, &tcp_options, leave_some, &(bool){true});
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(equal_batches_are_averaged_in_any_order),
    cmocka_unit_test(a_rank_weighs_as_many_samples_as_it_has),
    cmocka_unit_test(what_the_program_collects_leaves_the_reducer_alone),
    cmocka_unit_test(what_a_rank_without_samples_marks_does_not_count),
    cmocka_unit_test(buckets_are_filled_from_the_last_gradient_on),
    cmocka_unit_test(buckets_and_order_change_no_bit),
    cmocka_unit_test(steady_passes_allocate_nothing),
    cmocka_unit_test(unused_here_is_zero_and_unused_everywhere_is_left),
    cmocka_unit_test(a_forgotten_gradient_is_named_and_nobody_waits),
    cmocka_unit_test(accumulated_samples_weigh_too),
    cmocka_unit_test(ranks_without_data_keep_up),
    cmocka_unit_test(gradients_that_have_added_up_are_averaged_by_a_join),
};

TEST_MAIN(tests)
