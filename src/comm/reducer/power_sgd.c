/*
 * power_sgd.c - PowerSGD: a matrix M [n, m] is sent as P [n, r] and Q [m, r].
 *
 *     Q orthonormal, from the last pass or random   P = sum of M Q, made orthonormal
 *     Q = sum of M^T P                              the average is P Q^T
 *
 * The ranks' matrices come weighted, so their sums are averages. What this rank's matrix lost is
 * kept, unweighted, and added to the next one (error feedback).
 *
 * The bucket's memory holds, in floats, the first message (parts that travel whole, then all P) and
 * the second (all Q). Kept of each matrix, in whatever bucket it travels: one that says whether
 * there is a Q, what is lost, and Q.
 */
/* build: leaf */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/float_env.h"
#include "base/option.h"
#include "base/philox.h"
#include "comm/reducer/reducer_internal.h"

#define START_PASS 1000
#define NOISE 1e-10 /* of a square, in f32 */

struct tri_power_sgd {
    tri_power_sgd_options options;
    double min_rate; /* of the options */
    int64_t start_pass;
};

typedef struct matrix {
    float *m;     /* [rows, columns]: in the bucket */
    float *p, *q; /* [rows, rank], [columns, rank]: in the messages */
    float *kept;  /* has_q, lost [rows, columns], q */
    size_t rows, columns, rank;
    uint32_t index; /* of the gradient */
} matrix;

/* A bucket's memory, and how much of it there is of each kind. */
typedef struct memory {
    float *first, *second;
    size_t n_whole, n_p, n_q;
} memory;

/* --- which parts ---------------------------------------------------------- */

/* Whether the part travels as factors, and their sizes. */
static bool is_matrix(const tri_power_sgd *state, const tri_bucket_part *part, matrix *m)
{
    size_t n = part->rows, columns = n > 0 ? part->count / n : 0;
    size_t r = (size_t)state->options.rank;

    r = r > n ? n : r;
    r = r > columns ? columns : r;
    m->rows = n;
    m->columns = columns;
    m->rank = r;
    return r > 0 &&
           (double)(n + columns) * (double)r * state->min_rate < (double)n * (double)columns;
}

static float *keep(tri_bucket *bucket, int part, const matrix *m)
{
    return trii_bucket_keep(bucket, part,
                            (1 + m->rows * m->columns + m->columns * m->rank) * sizeof(float));
}

static tri_status memory_of(const tri_power_sgd *state, tri_bucket *bucket, memory *out)
{
    memory mem = {0};
    matrix m;

    for (int i = 0; i < bucket->n_parts; i++) {
        if (is_matrix(state, &bucket->parts[i], &m)) {
            mem.n_p += m.rows * m.rank;
            mem.n_q += m.columns * m.rank;
            if (keep(bucket, i, &m) == NULL)
                return TRI_ERR_NO_MEMORY;
        } else {
            mem.n_whole += bucket->parts[i].count;
        }
    }
    if (mem.n_q > 0) {
        mem.first = tri_bucket_memory(bucket, (mem.n_whole + mem.n_p + mem.n_q) * sizeof(float));
        if (mem.first == NULL)
            return TRI_ERR_NO_MEMORY;
        mem.second = mem.first + mem.n_whole + mem.n_p;
    }
    *out = mem;
    return TRI_OK;
}

/* Calls `act` for each matrix. */
static void each_matrix(const tri_power_sgd *state, tri_bucket *bucket, const memory *mem,
                        void (*act)(const tri_power_sgd *state, const tri_bucket *bucket,
                                    const matrix *m))
{
    matrix m = {.p = mem->first + mem->n_whole, .q = mem->second};

    for (int i = 0; i < bucket->n_parts; i++) {
        const tri_bucket_part *part = &bucket->parts[i];

        if (!is_matrix(state, part, &m))
            continue;
        m.m = (float *)bucket->data + part->offset;
        m.kept = keep(bucket, i, &m);
        m.index = (uint32_t)part->index;
        act(state, bucket, &m);
        m.p += m.rows * m.rank;
        m.q += m.columns * m.rank;
    }
}

/* Parts that travel whole, between the bucket and the first message. */
static void copy_whole(const tri_power_sgd *state, const tri_bucket *bucket, const memory *mem,
                       bool out)
{
    float *at = mem->first;
    matrix m;

    for (int i = 0; i < bucket->n_parts; i++) {
        const tri_bucket_part *part = &bucket->parts[i];
        float *data = (float *)bucket->data + part->offset;

        if (is_matrix(state, part, &m) || part->count == 0)
            continue;
        memcpy(out ? at : data, out ? data : at, part->count * sizeof(float));
        at += part->count;
    }
}

/* --- arithmetic ----------------------------------------------------------- */

static double dot(const float *a, size_t k, size_t l, size_t n, size_t r)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)a[i * r + k] * (double)a[i * r + l];
    return sum;
}

/* Standard normal numbers (Box and Muller), the same on all ranks, for Q from `at` on. */
static void draw(const tri_power_sgd *state, const matrix *m, int64_t pass, size_t at,
                 size_t stride)
{
    const double unit = 1.0 / 4294967296.0;

    for (; at < m->columns * m->rank; at += stride) {
        const uint32_t counter[4] = {(uint32_t)at, (uint32_t)pass, m->index, 0};
        uint32_t word[4];

        trii_philox(counter, state->options.seed, word);
        m->q[at] = (float)(sqrt(-2.0 * log(((double)word[0] + 0.5) * unit)) *
                           cos(2.0 * 3.14159265358979323846 * ((double)word[1] * unit)));
    }
}

/* Q of the last pass, or random. */
static void first_q(const tri_power_sgd *state, const tri_bucket *bucket, const matrix *m)
{
    bool cold = state->options.no_warm_start;

    if (m->kept[0] == 0.0f || cold)
        draw(state, m, cold ? bucket->pass : 0, 0, 1);
    else
        memcpy(m->q, m->kept + 1 + m->rows * m->columns, m->columns * m->rank * sizeof(float));
}

/* A Gram-Schmidt step on column k of a [n, r], against those before it, twice: what is left of one
 * that nearly depends on the others is not orthogonal to them after once. One that depends is
 * noise: zeros, and false. */
static bool orthonormal_column(float *a, size_t n, size_t r, size_t k)
{
    double before = dot(a, k, k, n, r), after, scale; /* in f32 it overflows for tiny columns */
    bool holds;

    for (size_t l = 0; l < 2 * k; l++) {
        float part = (float)dot(a, l % k, k, n, r);

        for (size_t i = 0; i < n; i++)
            a[i * r + k] -= part * a[i * r + l % k];
    }
    after = dot(a, k, k, n, r);
    holds = after > NOISE * before;
    scale = holds ? 1.0 / sqrt(after) : 0.0;
    for (size_t i = 0; i < n; i++)
        a[i * r + k] = (float)((double)a[i * r + k] * scale);
    return holds;
}

/* Null columns of Q are drawn again, other numbers in each pass: by the warm start they would stay
 * null for ever. All ranks have the same Q, so they draw the same. */
static void orthonormal_q(const tri_power_sgd *state, const tri_bucket *bucket, const matrix *m)
{
    for (size_t k = 0; k < m->rank; k++) {
        if (orthonormal_column(m->q, m->columns, m->rank, k))
            continue;
        draw(state, m, bucket->pass, k, m->rank);
        (void)orthonormal_column(m->q, m->columns, m->rank, k);
    }
}

/* P = M Q, of this rank. */
static void make_p(const tri_power_sgd *state, const tri_bucket *bucket, const matrix *m)
{
    const float weight = (float)bucket->weight;

    if (!state->options.no_feedback && weight > 0.0f)
        for (size_t i = 0; i < m->rows * m->columns; i++)
            m->m[i] += weight * m->kept[1 + i];
    first_q(state, bucket, m);
    orthonormal_q(state, bucket, m);
    for (size_t i = 0; i < m->rows; i++)
        for (size_t k = 0; k < m->rank; k++) {
            const float *row = m->m + i * m->columns;
            float sum = 0;

            for (size_t j = 0; j < m->columns; j++)
                sum += row[j] * m->q[j * m->rank + k];
            m->p[i * m->rank + k] = sum;
        }
}

/* Q = M^T P, of this rank, with the P of all. */
static void make_q(const tri_power_sgd *state, const tri_bucket *bucket, const matrix *m)
{
    (void)state;
    (void)bucket;
    for (size_t k = 0; k < m->rank; k++)
        (void)orthonormal_column(m->p, m->rows, m->rank, k);
    memset(m->q, 0, m->columns * m->rank * sizeof(float));
    for (size_t i = 0; i < m->rows; i++)
        for (size_t k = 0; k < m->rank; k++) {
            const float *row = m->m + i * m->columns;
            float factor = m->p[i * m->rank + k];

            for (size_t j = 0; j < m->columns; j++)
                m->q[j * m->rank + k] += row[j] * factor;
        }
}

static bool all_finite(const float *a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(a[i]))
            return false;
    return true;
}

static void keep_lost(float *kept, float lost)
{
    if (isfinite(lost))
        *kept = lost;
}

/* The average P Q^T instead of M, and what this rank lost by it. A gradient that was not finite
 * somewhere is in all of the average; nothing is kept of it, or it would be in all later ones. */
static void unpack(const tri_power_sgd *state, const tri_bucket *bucket, const matrix *m)
{
    const float weight = (float)bucket->weight;
    size_t n_q = m->columns * m->rank;
    bool finite = all_finite(m->p, m->rows * m->rank) && all_finite(m->q, n_q);
    bool feedback = !state->options.no_feedback && weight > 0.0f && finite;

    for (size_t i = 0; i < m->rows; i++)
        for (size_t j = 0; j < m->columns; j++) {
            size_t at = i * m->columns + j;
            float value = 0;

            for (size_t k = 0; k < m->rank; k++)
                value += m->p[i * m->rank + k] * m->q[j * m->rank + k];
            if (feedback)
                keep_lost(&m->kept[1 + at], m->m[at] / weight - value);
            m->m[at] = value;
        }
    if (!finite)
        return;
    m->kept[0] = 1.0f;
    memcpy(m->kept + 1 + m->rows * m->columns, m->q, n_q * sizeof(float));
}

/* --- the hook ------------------------------------------------------------- */

static tri_status sum_up(const tri_bucket *bucket, void *data, size_t count, tri_dtype dtype,
                         tri_work **work_out)
{
    return tri_all_reduce(bucket->group, data, data, count, dtype, TRI_REDOP_SUM, work_out);
}

static tri_status run_stage(void *hook_state, tri_bucket *bucket, int stage, tri_work **work_out)
{
    const tri_power_sgd *state = hook_state;
    bool plain = bucket->pass < state->start_pass || bucket->dtype != TRI_DTYPE_F32;
    memory mem = {0};

    if (!plain) {
        tri_status status = memory_of(state, bucket, &mem);

        if (status != TRI_OK)
            return status;
        plain = mem.n_q == 0;
    }
    if (plain)
        return stage > 0 ? TRI_OK
                         : sum_up(bucket, bucket->data, bucket->count, bucket->dtype, work_out);
    switch (stage) {
    case 0:
        each_matrix(state, bucket, &mem, make_p);
        copy_whole(state, bucket, &mem, true);
        return sum_up(bucket, mem.first, mem.n_whole + mem.n_p, TRI_DTYPE_F32, work_out);
    case 1:
        copy_whole(state, bucket, &mem, false);
        each_matrix(state, bucket, &mem, make_q);
        return sum_up(bucket, mem.second, mem.n_q, TRI_DTYPE_F32, work_out);
    default:
        each_matrix(state, bucket, &mem, unpack);
        return TRI_OK;
    }
}

/* The same bits on all ranks. */
tri_status tri_bucket_hook_power_sgd(void *hook_state, tri_bucket *bucket, int stage,
                                     tri_work **work_out)
{
    tri_status status = trii_need(hook_state, "bucket_hook_power_sgd", "state");
    uint64_t env;

    if (status == TRI_OK)
        status = trii_need(bucket, "bucket_hook_power_sgd", "bucket");
    if (status == TRI_OK)
        status = trii_need(work_out, "bucket_hook_power_sgd", "work_out");
    if (status != TRI_OK)
        return status;
    env = trii_float_env_enter();
    status = run_stage(hook_state, bucket, stage, work_out);
    trii_float_env_leave(env);
    return status;
}

tri_status tri_power_sgd_create(const tri_power_sgd_options *opt, tri_power_sgd **state_out)
{
    tri_power_sgd_options o = opt != NULL ? *opt : (tri_power_sgd_options){0};
    const double min_rate = trii_option(o.min_rate, 2.0);
    int64_t start_pass = 0;
    tri_power_sgd *state;
    tri_status status = trii_need(state_out, "power_sgd_create", "state_out");

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_power_sgd_options, opt);
    if (status == TRI_OK)
        status = trii_option_whole(o.start_pass, "power_sgd: start_pass", START_PASS, &start_pass);
    if (status != TRI_OK)
        return status;
    if (o.rank < 0 || o.rank > 1024 || !(min_rate >= 0.0) || start_pass < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "power_sgd: rank %d, min_rate %g, start_pass %lld",
                         o.rank, min_rate, (long long)start_pass);
    o.rank = o.rank > 0 ? o.rank : 1;
    state = trii_alloc(1, sizeof(*state), "power_sgd");
    if (state == NULL)
        return TRI_ERR_NO_MEMORY;
    state->options = o;
    state->min_rate = min_rate;
    state->start_pass = start_pass;
    *state_out = state;
    return TRI_OK;
}

void tri_power_sgd_destroy(tri_power_sgd *state)
{
    trii_free(state);
}
