/*
 * hooks_test.c - what travels instead of the gradients: 16-bit types, factors, and whatever a
 * user's own hook does.
 */
#include <math.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/err.h"
#include "testing/check.h"
#include "testing/reducer_ranks.h"

/* One pass with these gradients, all ready at once. */
static tri_status pass(tri_reducer *r, int64_t samples, int n_grads)
{
    tri_status status = tri_reducer_begin(r, samples);

    for (int g = n_grads - 1; g >= 0 && status == TRI_OK; g--)
        status = tri_reducer_ready(r, g);
    return status == TRI_OK ? tri_reducer_finish(r) : status;
}

/* --- 16 bits -------------------------------------------------------------- */

typedef struct narrow {
    tri_bucket_hook hook;
    double step; /* 1 + step/4 is 1 on the wire, 1 + step is kept */
} narrow;

static const char *narrowed(rank_env *env)
{
    const narrow *n = env->arg;
    float x[4] = {1, -3, (float)(1 + n->step), (float)(1 + n->step / 4)};
    double wide[2] = {2.5, 1 + n->step / 4};
    uint16_t half[1] = {0};
    tri_group *group = NULL;
    tri_reducer *r = NULL;

    JOIN(env, group);
    RANK_TRY(env, tri_reducer_create(&(tri_reducer_options){.group = group, .hook = n->hook}, &r));
    RANK_TRY(env, tri_reducer_add(r, &(tri_reducer_grad){.data = x, .count = 4}, NULL));
    RANK_TRY(env,
             tri_reducer_add(
                 r, &(tri_reducer_grad){.data = wide, .count = 2, .dtype = TRI_DTYPE_F64}, NULL));
    RANK_TRY(env,
             tri_reducer_add(
                 r, &(tri_reducer_grad){.data = half, .count = 1, .dtype = TRI_DTYPE_BF16}, NULL));
    for (int k = 0; k < 2; k++) {
        half[0] = 0x4040; /* 3 */
        RANK_TRY(env, pass(r, 3, 3));
        /* two ranks: halves are exact, and so are their sums */
        if (x[0] != 1 || x[1] != -3 || x[2] != (float)(1 + n->step) || x[3] != 1 ||
            wide[0] != 2.5 || wide[1] != 1 || half[0] != 0x4040)
            return RANK_FAIL(env, "%.9g %.9g %.9g %.9g, %.17g %.17g, %x", (double)x[0],
                             (double)x[1], (double)x[2], (double)x[3], wide[0], wide[1],
                             (unsigned)half[0]);
    }
    tri_reducer_destroy(r);
    tri_group_unref(group);
    return NULL;
}

static void sixteen_bits_travel(void **state)
{
    narrow f16 = {tri_bucket_hook_f16, 1.0 / 1024}, bf16 = {tri_bucket_hook_bf16, 1.0 / 128};

    (void)state;
    run_threads(2, &shm_options, narrowed, &f16);
    run_threads(2, &shm_options, narrowed, &bf16);
    assert_int_equal(trii_alloc_live(), 0);
}

/* --- factors -------------------------------------------------------------- */

/* Two matrices, one below the other, and a vector. */
enum { ROWS = 24, UPPER = 11, COLUMNS = 20, VECTOR = 7 };

typedef struct gradients {
    float m[ROWS * COLUMNS], v[VECTOR];
} gradients;

/* A matrix of rank `rank`, the same factors times another number on each rank of the group. */
static void make(gradients *g, int rank, int own, int k)
{
    memset(g, 0, sizeof(*g));
    for (int f = 0; f < rank; f++)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++)
                g->m[i * COLUMNS + j] += (float)(own + 1 + f) * sinf((float)(i * (f + 2) + 1 + k)) *
                                         cosf((float)(j * (f + 1) + 3 * f));
    for (int i = 0; i < VECTOR; i++)
        g->v[i] = (float)(own * 4 + i);
}

/* The average over ranks with these numbers of samples, plainly. */
static void average(gradients *out, const int64_t *samples, int size, int rank, int k)
{
    gradients g;
    int64_t total = 0;

    memset(out, 0, sizeof(*out));
    for (int r = 0; r < size; r++)
        total += samples[r];
    for (int r = 0; r < size; r++) {
        float w = (float)((double)samples[r] / (double)total);

        make(&g, rank, r, k);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            out->m[i] += w * g.m[i];
        for (int i = 0; i < VECTOR; i++)
            out->v[i] += w * g.v[i];
    }
}

static double distance(const float *a, const float *b, int n)
{
    double worst = 0;

    for (int i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    return worst;
}

static tri_status factors(tri_group *group, tri_power_sgd *power, gradients *g, tri_reducer **r)
{
    tri_status status = tri_reducer_create(&(tri_reducer_options){.group = group,
                                                                  .hook = tri_bucket_hook_power_sgd,
                                                                  .hook_state = power},
                                           r);

    if (status == TRI_OK)
        status = tri_reducer_add(
            *r, &(tri_reducer_grad){.data = g->m, .count = UPPER * COLUMNS, .rows = UPPER}, NULL);
    if (status == TRI_OK)
        status = tri_reducer_add(*r,
                                 &(tri_reducer_grad){.data = g->m + UPPER * COLUMNS,
                                                     .count = (ROWS - UPPER) * COLUMNS,
                                                     .rows = ROWS - UPPER},
                                 NULL);
    if (status == TRI_OK)
        status = tri_reducer_add(*r, &(tri_reducer_grad){.data = g->v, .count = VECTOR}, NULL);
    return status;
}

typedef struct power_case {
    tri_power_sgd_options options;
    int rank;  /* of the gradients */
    int lossy; /* passes from this on differ from the plain average; 99 = none */
} power_case;

static const char *matrices(rank_env *env)
{
    static const int64_t samples[3] = {3, 1, 0};
    const power_case *p = env->arg;
    tri_power_sgd *state = NULL;
    gradients g, wanted, all[3];
    tri_group *group = NULL;
    tri_reducer *r = NULL;

    JOIN(env, group);
    RANK_TRY(env, tri_power_sgd_create(&p->options, &state));
    RANK_TRY(env, factors(group, state, &g, &r));
    for (int k = 0; k < 4; k++) {
        double off;

        make(&g, p->rank, env->rank, k);
        average(&wanted, samples, env->size, p->rank, k);
        RANK_TRY(env, pass(r, samples[env->rank], 3));
        off = distance(g.m, wanted.m, ROWS * COLUMNS);
        if ((k >= p->lossy) != (off > 1e-4))
            return RANK_FAIL(env, "rank %d, pass %d: the matrix is off by %g", env->rank, k, off);
        if (distance(g.v, wanted.v, VECTOR) > 1e-5)
            return RANK_FAIL(env, "pass %d: the vector is not whole", k);
        RANK_TRY(env, tri_all_gather(group, &g, all, sizeof(g), TRI_DTYPE_U8, NULL));
        for (int o = 0; o < env->size; o++)
            if (memcmp(&all[o], &g, sizeof(g)) != 0)
                return RANK_FAIL(env, "pass %d: ranks %d and %d differ", k, env->rank, o);
    }
    tri_reducer_destroy(r);
    tri_power_sgd_destroy(state);
    tri_group_unref(group);
    return NULL;
}

static void matrices_of_low_rank_travel_whole(void **state)
{
    power_case one = {.options = {.start_pass = TRI_SET(0)}, .rank = 1, .lossy = 99};
    power_case two = {.options = {.start_pass = TRI_SET(0), .rank = 2, .no_warm_start = true},
                      .rank = 2,
                      .lossy = 99};
    power_case full = {
        .options = {.start_pass = TRI_SET(0), .rank = 99, .min_rate = TRI_SET(1e-9), .seed = 5},
        .rank = 12,
        .lossy = 99};

    (void)state;
    run_threads(3, &shm_options, matrices, &one);
    run_threads(3, &shm_options, matrices, &two);
    run_threads(2, &shm_options, matrices, &full);
    run_threads(1, NULL, matrices, &one);
    assert_int_equal(trii_alloc_live(), 0);
}

static void others_are_cut_from_the_start_pass_on(void **state)
{
    power_case from_2 = {.options = {.start_pass = TRI_SET(2)}, .rank = 6, .lossy = 2};
    power_case late = {.rank = 6, .lossy = 99}; /* 1000 */
    power_case no_gain = {.options = {.start_pass = TRI_SET(0), .rank = 6}, .rank = 9, .lossy = 99};

    (void)state;
    run_threads(2, &shm_options, matrices, &from_2);
    run_threads(2, &shm_options, matrices, &late);
    run_threads(2, &shm_options, matrices, &no_gain); /* (13 + 20) 6 2 > 13 20 */
    assert_int_equal(trii_alloc_live(), 0);
}

/* The same gradients in each pass: how far the sum of what comes out is from what went in. */
static double drift(rank_env *env, tri_group *group, bool no_feedback, int passes)
{
    static const int64_t samples[2] = {3, 1};
    tri_power_sgd *state = NULL;
    gradients g, wanted, sum = {0};
    tri_reducer *r = NULL;
    tri_status status = tri_power_sgd_create(
        &(tri_power_sgd_options){.start_pass = TRI_SET(0), .no_feedback = no_feedback}, &state);

    if (status == TRI_OK)
        status = factors(group, state, &g, &r);
    average(&wanted, samples, 2, 3, 0);
    for (int k = 0; k < passes && status == TRI_OK; k++) {
        make(&g, 3, env->rank, 0);
        status = pass(r, samples[env->rank], 3);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            sum.m[i] += g.m[i];
    }
    for (int i = 0; i < ROWS * COLUMNS; i++)
        wanted.m[i] *= (float)passes;
    tri_reducer_destroy(r);
    tri_power_sgd_destroy(state);
    return status == TRI_OK ? distance(sum.m, wanted.m, ROWS * COLUMNS) : -1;
}

static const char *feedback(rank_env *env)
{
    tri_group *group = NULL;
    double with[2], without[2];

    JOIN(env, group);
    for (int i = 0; i < 2; i++) {
        with[i] = drift(env, group, false, 10 + 50 * i);
        without[i] = drift(env, group, true, 10 + 50 * i);
    }
    if (with[0] < 0 || without[0] < 0)
        return RANK_FAIL(env, "%s", tri_last_error());
    /* lost for good, it grows with the passes; fed back, it stays */
    if (!(without[1] > 4 * without[0] && with[1] < 2 * with[0] && with[1] < without[1] / 4))
        return RANK_FAIL(env, "with feedback %g, %g; without %g, %g", with[0], with[1], without[0],
                         without[1]);
    tri_group_unref(group);
    return NULL;
}

static void what_is_lost_comes_later(void **state)
{
    (void)state;
    run_threads(2, &shm_options, feedback, NULL);
}

/* Two passes without a gradient, then some of rank 2: both columns of Q must be alive again. */
static const char *revival(rank_env *env)
{
    static const int64_t samples[2] = {3, 1};
    const tri_power_sgd_options options = {
        .start_pass = TRI_SET(0), .rank = 2, .min_rate = TRI_SET(1e-9)};
    tri_power_sgd *state = NULL;
    gradients g, wanted, all[2];
    tri_group *group = NULL;
    tri_reducer *r = NULL;

    JOIN(env, group);
    RANK_TRY(env, tri_power_sgd_create(&options, &state));
    RANK_TRY(env, factors(group, state, &g, &r));
    for (int k = 0; k < 6; k++) {
        int rank = k < 2 ? 0 : k < 4 ? 1 : 2; /* rank 1 leaves a column that depends */

        make(&g, rank, env->rank, k);
        average(&wanted, samples, env->size, rank, k);
        RANK_TRY(env, pass(r, samples[env->rank], 3));
        if (distance(g.m, wanted.m, ROWS * COLUMNS) > 1e-4)
            return RANK_FAIL(env, "rank %d, pass %d: the matrix is off by %g", env->rank, k,
                             distance(g.m, wanted.m, ROWS * COLUMNS));
        RANK_TRY(env, tri_all_gather(group, &g, all, sizeof(g), TRI_DTYPE_U8, NULL));
        if (memcmp(&all[0], &all[1], sizeof(g)) != 0)
            return RANK_FAIL(env, "pass %d: the ranks differ", k);
    }
    tri_reducer_destroy(r);
    tri_power_sgd_destroy(state);
    tri_group_unref(group);
    return NULL;
}

static void null_columns_are_drawn_again(void **state)
{
    (void)state;
    run_threads(2, &shm_options, revival, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

enum { PASSES = 5 };

typedef struct odd_case {
    tri_power_sgd_options options;
    float bad;    /* an element of rank 1's matrices in a pass of its own */
    double scale; /* of all gradients */
} odd_case;

/* What comes of the passes, but for the bad one, which is in all of the matrices on all ranks. */
static tri_status run_passes(rank_env *env, tri_group *group, const odd_case *c, int bad_pass,
                             gradients *out)
{
    static const int64_t samples[2] = {3, 1};
    tri_power_sgd *state = NULL;
    gradients g;
    tri_reducer *r = NULL;
    tri_status status = tri_power_sgd_create(&c->options, &state);

    if (status == TRI_OK)
        status = factors(group, state, &g, &r);
    for (int k = 0; k < PASSES && status == TRI_OK; k++) {
        if (k == bad_pass) {
            make(&g, 3, env->rank, k);
            if (env->rank == 1)
                g.m[2 * COLUMNS + 3] = g.m[(UPPER + 1) * COLUMNS] = c->bad;
            status = pass(r, samples[env->rank], 3);
            for (int i = 0; i < ROWS * COLUMNS && status == TRI_OK; i++)
                if (isfinite(g.m[i]))
                    status = TRII_FAIL(TRI_ERR_INTERNAL, "element %d of the bad pass is %g", i,
                                       (double)g.m[i]);
        }
        make(&g, 3, env->rank, k);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            g.m[i] = (float)(g.m[i] * c->scale);
        if (status == TRI_OK)
            status = pass(r, samples[env->rank], 3);
        out[k] = g;
    }
    tri_reducer_destroy(r);
    tri_power_sgd_destroy(state);
    return status;
}

static const char *recovery(rank_env *env)
{
    const odd_case *c = env->arg;
    gradients with[PASSES], without[PASSES];
    tri_group *group = NULL;

    JOIN(env, group);
    RANK_TRY(env, run_passes(env, group, c, 99, without));
    for (int bad_pass = 0; bad_pass < PASSES; bad_pass++) {
        RANK_TRY(env, run_passes(env, group, c, bad_pass, with));
        for (int k = 0; k < PASSES; k++)
            if (memcmp(&with[k], &without[k], sizeof(*with)) != 0)
                return RANK_FAIL(env, "rank %d: pass %d differs by %g after %g before pass %d",
                                 env->rank, k, distance(with[k].m, without[k].m, ROWS * COLUMNS),
                                 (double)c->bad, bad_pass);
    }
    tri_group_unref(group);
    return NULL;
}

/* As a gradient scaler needs it, which leaves such a step out. */
static void later_passes_are_as_without_one_that_is_not_finite(void **state)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};

    (void)state;
    for (int i = 0; i < 3; i++) {
        for (int rank = 1; rank < 3; rank++) {
            odd_case c = {
                .options = {.start_pass = TRI_SET(0), .rank = rank}, .bad = bad[i], .scale = 1};

            run_threads(2, &shm_options, recovery, &c);
            c.options.no_feedback = true;
            run_threads(2, &shm_options, recovery, &c);
        }
    }
    assert_int_equal(trii_alloc_live(), 0);
}

static const char *tiny(rank_env *env)
{
    const odd_case one = {.options = {.start_pass = TRI_SET(0), .rank = 2}, .scale = 1};
    odd_case c = one;
    gradients wanted[PASSES], got[PASSES];
    tri_group *group = NULL;

    JOIN(env, group);
    RANK_TRY(env, run_passes(env, group, &one, 99, wanted));
    for (c.scale = 1e-36; c.scale > 1e-41; c.scale *= 1e-2) {
        RANK_TRY(env, run_passes(env, group, &c, 99, got));
        for (int k = 0; k < PASSES; k++)
            for (int i = 0; i < ROWS * COLUMNS; i++)
                if (!(fabs((double)got[k].m[i] / c.scale - (double)wanted[k].m[i]) < 0.1))
                    return RANK_FAIL(env, "pass %d, element %d: %g times %g, not %g", k, i,
                                     (double)got[k].m[i] / c.scale, c.scale,
                                     (double)wanted[k].m[i]);
    }
    tri_group_unref(group);
    return NULL;
}

static void gradients_below_the_normal_numbers_are_cut_as_others(void **state)
{
    (void)state;
    run_threads(2, &shm_options, tiny, NULL);
    assert_int_equal(trii_alloc_live(), 0);
}

static void bad_options_are_refused(void **state)
{
    tri_power_sgd *power = NULL;

    (void)state;
    CHECK_FAILS(tri_power_sgd_create(&(tri_power_sgd_options){.rank = -1}, &power),
                TRI_ERR_INVALID_ARG, "rank -1");
    CHECK_FAILS(tri_power_sgd_create(&(tri_power_sgd_options){.min_rate = TRI_SET(NAN)}, &power),
                TRI_ERR_INVALID_ARG, "min_rate");
    assert_null(power);
}

/* --- a user's own --------------------------------------------------------- */

typedef struct journal {
    char text[256];
    int fail_at; /* bucket whose stage 1 fails; -1 = none */
} journal;

/* Max over the ranks, then a barrier, and for bucket 1 nothing at all. */
static tri_status largest(void *state, tri_bucket *bucket, int stage, tri_work **work_out)
{
    journal *j = state;
    size_t used = strlen(j->text);

    snprintf(j->text + used, sizeof(j->text) - used, "%d.%d ", bucket->index, stage);
    if (stage == 1 && j->fail_at == bucket->index)
        return TRII_FAIL(TRI_ERR_IO, "no ink");
    if (bucket->index == 1)
        return TRI_OK;
    if (stage == 0)
        return tri_all_reduce(bucket->group, bucket->data, bucket->data, bucket->count,
                              bucket->dtype, TRI_REDOP_MAX, work_out);
    return stage == 1 ? tri_barrier(bucket->group, work_out) : TRI_OK;
}

static const char *own_hook(rank_env *env)
{
    journal j = {.fail_at = *(int *)env->arg};
    float x[3];
    tri_group *group = NULL;
    tri_reducer *r = NULL;
    tri_status status;

    JOIN(env, group);
    RANK_TRY(env, tri_reducer_create(&(tri_reducer_options){.group = group,
                                                            .first_bucket_bytes = 1,
                                                            .bucket_cap_bytes = 1,
                                                            .hook = largest,
                                                            .hook_state = &j},
                                     &r));
    for (int g = 0; g < 3; g++) {
        x[g] = (float)(env->rank + g);
        RANK_TRY(env, tri_reducer_add(r, &(tri_reducer_grad){.data = &x[g], .count = 1}, NULL));
    }
    if (env->rank != 0)
        j.fail_at = -1;
    status = pass(r, 1, 3);
    if (*(int *)env->arg >= 0) {
        if (status != TRI_ERR_ABORTED || strstr(tri_last_error(), "no ink") == NULL)
            return RANK_FAIL(env, "rank %d: %s: %s", env->rank, tri_status_name(status),
                             tri_last_error());
    } else {
        RANK_TRY(env, status);
        if (strcmp(j.text, "0.0 1.0 2.0 0.1 2.1 0.2 2.2 ") != 0)
            return RANK_FAIL(env, "stages %s", j.text);
        /* weights of a half; bucket 0 is the last gradient, bucket 1 stays this rank's */
        if (x[2] != 1.5f || x[1] != 0.5f * (float)(env->rank + 1) || x[0] != 0.5f)
            return RANK_FAIL(env, "%g %g %g", (double)x[0], (double)x[1], (double)x[2]);
    }
    tri_reducer_destroy(r);
    tri_group_unref(group);
    return NULL;
}

static void stages_come_in_one_order(void **state)
{
    int none = -1;

    (void)state;
    run_threads(2, &shm_options, own_hook, &none);
}

static void a_hook_that_fails_is_heard_by_all(void **state)
{
    int bucket = 2;

    (void)state;
    run_threads(2, &shm_options, own_hook, &bucket);
    assert_int_equal(trii_alloc_live(), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sixteen_bits_travel),
    cmocka_unit_test(matrices_of_low_rank_travel_whole),
    cmocka_unit_test(others_are_cut_from_the_start_pass_on),
    cmocka_unit_test(what_is_lost_comes_later),
    cmocka_unit_test(null_columns_are_drawn_again),
    cmocka_unit_test(later_passes_are_as_without_one_that_is_not_finite),
    cmocka_unit_test(gradients_below_the_normal_numbers_are_cut_as_others),
    cmocka_unit_test(bad_options_are_refused),
    cmocka_unit_test(stages_come_in_one_order),
    cmocka_unit_test(a_hook_that_fails_is_heard_by_all),
};

TEST_MAIN(tests)
