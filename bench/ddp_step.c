/*
 * ddp_step.c - what data-parallel training costs a step; bench/ddp_scaling.sh and bench/overlap.sh
 * start it, as each rank of a group.
 *
 *     bench_ddp_step share MODEL BATCH [ROUNDS [STEPS]]
 * prints "share with without low high": milliseconds of a step with DDP, and without it, and how
 * much of the speed remains, and the 95 % interval of that median. Without means that the same
 * workers train at the same time, each a replica of its own of the plain network: caches and memory
 * are as busy, and nobody is waited for. Of ROUNDS (5) rounds of both, one after the other, STEPS
 * (4) steps each, the medians. bench_ddp_step sync_batch_norm resnet18 BATCH [ROUNDS [STEPS]]
 * prints the same, with DDP in both: with SyncBatchNorm and without it.
 *     bench_ddp_step zero1|zero2|zero3 MODEL BATCH [ROUNDS [STEPS]]
 * prints the same, with tri_zero of that stage, and with DDP.
 *     bench_ddp_step deepspeed0|deepspeed1|deepspeed2|deepspeed3 gpt BATCH [ROUNDS [STEPS]]
 * prints the same, with that stage from a DeepSpeed configuration, and in plain calls.
 *     bench_ddp_step overlap MODEL BATCH [ROUNDS]
 * prints "step communication both hidden allowed": milliseconds of a step without DDP, of its
 *     buckets' sums with nothing beside them, and of a step with DDP; which share of the
 *     communication was hidden, and which one could be.
 *
 * What could be hidden: a bucket begins when its last gradient is there and the one before has
 * passed, and takes its part of the communication by its bytes; the update begins when the last one
 * has passed. When gradients are there says a hook that sends nothing.
 *
 * MODEL is resnet18 (3 x 224 x 224, SGD with momentum) or gpt (6 layers of width 384 with 6 heads,
 * a context of 256, AdamW); BATCH is that of each worker. Times are of the slowest rank; with
 * BENCH_CPU=1 processor time, for busy machines.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/models.h>
#include <trireme/trireme.h>

#include "timing.h"

#define CLASSES 1000
#define IMAGE 224
#define CONTEXT 256
#define VOCABULARY 256

enum { MOST_ROUNDS = 64, MOST_BUCKETS = 64 };

typedef struct task {
    bool gpt;
    int64_t batch;
    tri_tensor *x, *y;
    void *x_data, *y_data;
    size_t x_bytes, y_bytes;
} task;

/* A network that is trained: with DDP, or by each worker for itself. */
typedef struct replica {
    tri_engine *engine; /* has the others; NULL: plain calls */
    tri_module *model;
    tri_optimizer *opt;
} replica;

static double worst(double mine)
{
    double all;

    TRI_TRY(tri_all_reduce(NULL, &mine, &all, 1, TRI_DTYPE_F64, TRI_REDOP_MAX, NULL));
    return all;
}

/* --- training ------------------------------------------------------------- */

/* Numbers without a pattern; any will do. */
static uint32_t random_word(void)
{
    static uint32_t state = 1;

    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static void make_data(task *t)
{
    const int64_t images[] = {t->batch, 3, IMAGE, IMAGE}, texts[] = {t->batch, CONTEXT};
    size_t n_x = (size_t)(t->gpt ? t->batch * CONTEXT : t->batch * 3 * IMAGE * IMAGE);
    size_t n_y = (size_t)(t->gpt ? t->batch * CONTEXT : t->batch);

    t->x = t->gpt ? tri_tensor_create(texts, 2, TRI_DTYPE_I64)
                  : tri_tensor_create(images, 4, TRI_DTYPE_F32);
    t->y = tri_tensor_create(texts, t->gpt ? 2 : 1, TRI_DTYPE_I64);
    t->x_bytes = n_x * (t->gpt ? sizeof(int64_t) : sizeof(float));
    t->y_bytes = n_y * sizeof(int64_t);
    t->x_data = malloc(t->x_bytes);
    t->y_data = malloc(t->y_bytes);
    TRI_TRY(t->x_data != NULL && t->y_data != NULL ? TRI_OK : TRI_ERR_NO_MEMORY);
    for (size_t i = 0; i < n_x; i++) {
        if (t->gpt)
            ((int64_t *)t->x_data)[i] = random_word() % VOCABULARY;
        else
            ((float *)t->x_data)[i] = (float)random_word() / 16777216.0f - 0.5f;
    }
    for (size_t i = 0; i < n_y; i++)
        ((int64_t *)t->y_data)[i] = random_word() % (t->gpt ? VOCABULARY : CLASSES);
}

/* ddp: its options, or NULL: each worker for itself. sync: with SyncBatchNorm. stage: of tri_zero,
 * in place of DDP. */
static replica replica_with(const task *t, const tri_ddp_options *ddp, bool sync, int stage)
{
    replica r = {.engine = NULL};

    tri_manual_seed(1);
    r.model = tri_model_by_name(t->gpt ? "gpt:6,384,6,256,256" : "resnet18", CLASSES);
    if (sync)
        TRI_TRY(tri_convert_sync_batch_norm(r.model, NULL) > 0 ? TRI_OK : TRI_ERR_INVALID_ARG);
    if (stage > 0)
        r.model = tri_zero(r.model, &(tri_zero_options){.stage = stage});
    else if (ddp != NULL)
        r.model = tri_ddp(r.model, ddp);
    TRI_TRY(tri_module_status(r.model));
    r.opt = t->gpt ? tri_adamw(r.model, 3e-4, &(tri_adam_options){.weight_decay = TRI_SET(0.1)})
                   : tri_sgd(r.model, 0.001, &(tri_sgd_options){.momentum = 0.9});
    return r;
}

static replica replica_of(const task *t, const tri_ddp_options *ddp, bool sync)
{
    return replica_with(t, ddp, sync, 0);
}

static replica replica_of_configuration(const task *t, int stage)
{
    replica r;
    char config[256];

    snprintf(config, sizeof(config),
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": 0.0,"
             " \"zero_optimization\": {\"stage\": %d,"
             " \"stage3_param_persistence_threshold\": 0}, \"optimizer\": {\"type\": \"AdamW\","
             " \"params\": {\"lr\": 3e-4, \"weight_decay\": 0.1}}}",
             (int)t->batch, stage);
    tri_manual_seed(1);
    TRI_TRY(tri_initialize(NULL, tri_model_by_name("gpt:6,384,6,256,256", CLASSES),
                           &(tri_initialize_options){.config = config}, &r.engine));
    r.model = tri_engine_module(r.engine);
    r.opt = tri_engine_optimizer(r.engine);
    return r;
}

static void destroy(replica *r)
{
    if (r->engine != NULL) {
        tri_engine_destroy(r->engine);
        return;
    }
    tri_optimizer_destroy(r->opt);
    tri_module_destroy(r->model);
}

static void step(const task *t, const replica *r)
{
    tri_tensor *out, *loss;

    TRI_TRY(tri_tensor_copy_in(t->x, t->x_data, t->x_bytes));
    TRI_TRY(tri_tensor_copy_in(t->y, t->y_data, t->y_bytes));
    out = r->engine != NULL ? tri_engine_forward(r->engine, t->x) : tri_forward(r->model, t->x);
    if (t->gpt)
        out = tri_reshape(out, TRI_SHAPE(-1, VOCABULARY));
    loss = tri_cross_entropy(out, t->gpt ? tri_flatten(t->y, 0) : t->y, NULL);
    if (r->engine != NULL) {
        tri_engine_backward(r->engine, loss);
        TRI_TRY(tri_engine_step(r->engine));
    } else {
        tri_backward(loss);
        TRI_TRY(tri_optimizer_step(r->opt));
    }
    TRI_TRY(tri_step_end_status());
}

/* Of one step, where all begin together and n follow each other. */
static double steps_ms(const task *t, const replica *r, int n)
{
    double begin;

    TRI_TRY(tri_barrier(NULL, NULL));
    begin = cost_us();
    for (int i = 0; i < n; i++)
        step(t, r);
    return (cost_us() - begin) / 1e3 / n;
}

static void warm_up(const task *t, const replica *r)
{
    for (int i = 0; i < 3; i++) /* buckets get their order after the first */
        step(t, r);
}

/* --- the share ------------------------------------------------------------ */

/* Of the 95 % interval of a median of n sorted samples, the lower end as an index: by the binomial
 * distribution of how many lie below it. With fewer than 6 it is all of them. */
static int interval_begin(int n)
{
    double passed = 0, chance = 1;
    int low = 0;

    for (int i = 0; i < n; i++)
        chance /= 2;
    for (; low < n / 2; low++) {
        passed += chance;
        if (passed > 0.025)
            break;
        chance = chance * (n - low) / (low + 1);
    }
    return low > 0 ? low - 1 : 0;
}

/* Destroys both. */
static void print_share(const task *t, replica measured, replica plain, int rounds, int steps)
{
    static double with[MOST_ROUNDS], without[MOST_ROUNDS], of[MOST_ROUNDS];

    warm_up(t, &measured);
    warm_up(t, &plain);
    for (int i = 0; i < rounds; i++) {
        with[i] = worst(steps_ms(t, &measured, steps));
        without[i] = worst(steps_ms(t, &plain, steps));
        of[i] = without[i] / with[i];
    }
    if (tri_rank() == 0) {
        double share = median(of, rounds); /* sorts them */
        int low = interval_begin(rounds);

        printf("%.4f %.3f %.3f %.4f %.4f\n", share, median(with, rounds), median(without, rounds),
               of[low], of[rounds - 1 - low]);
    }
    destroy(&measured);
    destroy(&plain);
}

static void share(const task *t, int rounds, int steps)
{
    print_share(t, replica_of(t, &(tri_ddp_options){0}, false), replica_of(t, NULL, false), rounds,
                steps);
}

static void sync_batch_norm(const task *t, int rounds, int steps)
{
    print_share(t, replica_of(t, &(tri_ddp_options){0}, true),
                replica_of(t, &(tri_ddp_options){0}, false), rounds, steps);
}

static void zero1(const task *t, int rounds, int steps)
{
    print_share(t, replica_with(t, NULL, false, 1), replica_of(t, &(tri_ddp_options){0}, false),
                rounds, steps);
}

static void zero2(const task *t, int rounds, int steps)
{
    print_share(t, replica_with(t, NULL, false, 2), replica_of(t, &(tri_ddp_options){0}, false),
                rounds, steps);
}

static void zero3(const task *t, int rounds, int steps)
{
    print_share(t, replica_with(t, NULL, false, 3), replica_of(t, &(tri_ddp_options){0}, false),
                rounds, steps);
}

static void deepspeed(const task *t, int stage, int rounds, int steps)
{
    const tri_ddp_options ddp = {0};

    print_share(t, replica_of_configuration(t, stage),
                replica_with(t, stage == 0 ? &ddp : NULL, false, stage), rounds, steps);
}

static void deepspeed0(const task *t, int rounds, int steps)
{
    deepspeed(t, 0, rounds, steps);
}

static void deepspeed1(const task *t, int rounds, int steps)
{
    deepspeed(t, 1, rounds, steps);
}

static void deepspeed2(const task *t, int rounds, int steps)
{
    deepspeed(t, 2, rounds, steps);
}

static void deepspeed3(const task *t, int rounds, int steps)
{
    deepspeed(t, 3, rounds, steps);
}

/* --- the overlap ---------------------------------------------------------- */

/* When buckets were ready, in milliseconds from `begin`, which is in microseconds. */
typedef struct moments {
    double begin, at[MOST_BUCKETS][MOST_ROUNDS];
    int round, n_buckets;
} moments;

/* A hook that sends nothing. */
static tri_status note_moment(void *state, tri_bucket *bucket, int stage, tri_work **work_out)
{
    moments *m = state;

    (void)work_out;
    if (stage == 0 && bucket->index < MOST_BUCKETS) {
        m->at[bucket->index][m->round] = (cost_us() - m->begin) / 1e3;
        m->n_buckets = bucket->n_buckets;
    }
    return TRI_OK;
}

/* Medians of when each bucket is ready, and of the whole step, which it returns. */
static double find_moments(const task *t, int rounds, double *ready, int n)
{
    static moments m;
    static double whole[MOST_ROUNDS];
    replica r = replica_of(t, &(tri_ddp_options){.hook = note_moment, .hook_state = &m}, false);
    double step_ms;

    warm_up(t, &r);
    for (m.round = 0; m.round < rounds; m.round++) {
        TRI_TRY(tri_barrier(NULL, NULL));
        m.begin = cost_us();
        step(t, &r);
        whole[m.round] = (cost_us() - m.begin) / 1e3;
    }
    TRI_TRY(m.n_buckets == n ? TRI_OK : TRI_ERR_STATE);
    step_ms = worst(median(whole, rounds));
    for (int b = 0; b < n; b++)
        ready[b] = worst(median(m.at[b], rounds));
    destroy(&r);
    return step_ms;
}

/* The buckets' sums, with nothing beside them. */
static double sums_ms(float *const *data, const tri_ddp_bucket_stats *buckets, int n)
{
    tri_work *works[MOST_BUCKETS] = {NULL};
    double begin;

    TRI_TRY(tri_barrier(NULL, NULL));
    begin = cost_us();
    for (int b = 0; b < n; b++)
        TRI_TRY(tri_all_reduce(NULL, data[b], data[b], buckets[b].bytes / sizeof(float),
                               TRI_DTYPE_F32, TRI_REDOP_SUM, &works[b]));
    for (int b = 0; b < n; b++) {
        TRI_TRY(tri_work_wait(works[b], 0));
        tri_work_destroy(works[b]);
    }
    return (cost_us() - begin) / 1e3;
}

static void overlap(const task *t, int rounds, int steps)
{
    static double alone[MOST_ROUNDS], sums[MOST_ROUNDS], both[MOST_ROUNDS];
    static tri_ddp_bucket_stats buckets[MOST_BUCKETS];
    double ready[MOST_BUCKETS], a, b, c, passed = 0, whole;
    replica together = replica_of(t, &(tri_ddp_options){0}, false);
    replica own = replica_of(t, NULL, false);
    tri_ddp_pass_stats stats;
    float *data[MOST_BUCKETS];
    int n;

    (void)steps; /* one after each kind of communication */
    warm_up(t, &together);
    warm_up(t, &own);
    TRI_TRY(tri_ddp_stats(together.model, &stats, buckets, MOST_BUCKETS));
    n = stats.n_buckets;
    TRI_TRY(n > 0 && n <= MOST_BUCKETS ? TRI_OK : TRI_ERR_STATE);
    for (int i = 0; i < n; i++) {
        data[i] = calloc(buckets[i].bytes, 1);
        TRI_TRY(data[i] != NULL ? TRI_OK : TRI_ERR_NO_MEMORY);
        memset(data[i], 1, buckets[i].bytes);
    }
    (void)sums_ms(data, buckets, n);
    for (int i = 0; i < rounds; i++) {
        alone[i] = steps_ms(t, &own, 1);
        sums[i] = sums_ms(data, buckets, n);
        both[i] = steps_ms(t, &together, 1);
    }
    a = worst(median(alone, rounds));
    b = worst(median(sums, rounds));
    c = worst(median(both, rounds));
    destroy(&together);
    destroy(&own);
    whole = find_moments(t, rounds, ready, n);
    for (int i = 0; i < n; i++) {
        ready[i] *= a / whole;
        passed = (passed > ready[i] ? passed : ready[i]) +
                 b * (double)buckets[i].bytes / (double)stats.bytes;
        free(data[i]);
        if (tri_rank() == 0)
            fprintf(stderr,
                    "bucket %d: %zu bytes, ready at %.1f of %.1f ms, may have passed at %.1f\n", i,
                    buckets[i].bytes, ready[i], a, passed);
    }
    if (tri_rank() == 0)
        printf("%.3f %.3f %.3f %.4f %.4f\n", a, b, c, (a + b - c) / b,
               (b - (passed - ready[n - 1])) / b);
}

static int number(int argc, char **argv, int i, int fallback)
{
    return argc > i ? (int)strtol(argv[i], NULL, 10) : fallback;
}

typedef void measurement(const task *t, int rounds, int steps);

static measurement *measurement_of(const char *name)
{
    static const struct {
        const char *name;
        measurement *measure;
    } all[] = {{"share", share},           {"zero1", zero1},
               {"zero2", zero2},           {"zero3", zero3},
               {"deepspeed0", deepspeed0}, {"deepspeed1", deepspeed1},
               {"deepspeed2", deepspeed2}, {"deepspeed3", deepspeed3},
               {"overlap", overlap},       {"sync_batch_norm", sync_batch_norm}};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(name, all[i].name) == 0)
            return all[i].measure;
    return NULL;
}

int main(int argc, char **argv)
{
    int rounds = number(argc, argv, 4, 5), steps = number(argc, argv, 5, 4);
    measurement *measure = argc > 3 ? measurement_of(argv[1]) : NULL;
    task t;

    if (measure == NULL || rounds < 1 || rounds > MOST_ROUNDS || steps < 1) {
        fprintf(stderr,
                "usage: %s share|sync_batch_norm|zero1..3|deepspeed0..3|overlap resnet18|gpt BATCH "
                "[ROUNDS [STEPS]]\n",
                argv[0]);
        return 2;
    }
    t.gpt = strcmp(argv[2], "gpt") == 0;
    t.batch = strtol(argv[3], NULL, 10);
    TRI_TRY(tri_init(NULL));
    make_data(&t);
    measure(&t, rounds, steps);
    tri_tensor_unref(t.x);
    tri_tensor_unref(t.y);
    free(t.x_data);
    free(t.y_data);
    tri_finalize();
    return 0;
}
