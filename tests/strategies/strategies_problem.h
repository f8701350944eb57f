/*
 * strategies_problem.h - what is trained: small models, the ways to compose strategies, and the
 * numbers of each rank and step. Tests only.
 */
#ifndef TEST_STRATEGIES_PROBLEM_H
#define TEST_STRATEGIES_PROBLEM_H

#include <trireme/models.h>
#include <trireme/trireme.h>

#include "base/compiler.h"
#include "strategies/stages.h"
#include "testing/check.h"

#define ROWS 48
#define WIDTH 16 /* elements of a sample */
#define OUT 3
#define TOKENS 6 /* of a sample of the GPT */
#define VOCABULARY 11
#define STEPS (TEST_SANITIZED ? 3 : 10)
#define MAX_STEPS 10
#define SEED 7
#define MAX_RANKS 8
#define MAX_DEVICES 3

/* --- models --------------------------------------------------------------- */

typedef struct kind {
    const char *name;
    tri_module *(*build)(void);
    void (*parts)(tri_module **part); /* the three that `build` puts one after the other, or NULL */
    const char *blocks[2]; /* what is computed again, and what is on the second device, from */
    const char *rest[2];   /* there, too */
    const char *back;      /* its result comes back to the first device */
    bool tokens;
    bool random, statistics; /* dropout, batch norm: compared with parts one after the other */
    bool never_empty;        /* no rank is without samples */
    bool shared;             /* batch norm of all ranks, compared with each batch whole */
    bool f32;                /* it is in f32, else in f64 */
    bool ignored;            /* tokens: some targets do not count */
} kind;

static inline void mlp_parts(tri_module **part)
{
    part[0] = tri_nn_sequential(tri_nn_linear(WIDTH, 12, NULL), tri_nn_tanh());
    part[1] = tri_nn_sequential(tri_nn_linear(12, 12, NULL), tri_nn_gelu(TRI_GELU_ERF));
    part[2] = tri_nn_linear(12, OUT, NULL);
}

static inline tri_module *mlp_build(void)
{
    tri_module *part[3];

    mlp_parts(part);
    return tri_nn_sequential_of(3, part);
}

/* As many modules as the largest number of ranks that has a stage each. */
static inline tri_module *deep_build(void)
{
    return tri_nn_sequential(
        tri_nn_linear(WIDTH, 12, NULL), tri_nn_tanh(), tri_nn_linear(12, 12, NULL), tri_nn_tanh(),
        tri_nn_linear(12, 12, NULL), tri_nn_tanh(), tri_nn_linear(12, OUT, NULL));
}

static inline tri_module *dropout_build(void)
{
    return tri_nn_sequential(
        tri_nn_sequential(tri_nn_linear(WIDTH, 12, NULL), tri_nn_tanh(), tri_nn_dropout(0.3)),
        tri_nn_sequential(tri_nn_linear(12, 12, NULL), tri_nn_dropout(0.5), tri_nn_tanh()),
        tri_nn_linear(12, OUT, NULL));
}

static inline tri_tensor *to_image(tri_module *self, tri_tensor *x)
{
    (void)self;
    return tri_reshape(x, TRI_SHAPE(tri_tensor_size(x, 0), 1, 4, 4));
}

static inline tri_module *cnn_build(void)
{
    /* a bias in front of batch norm has no gradient but rounding, which AdamW enlarges */
    const tri_nn_conv2d_options padded = {.padding = 1, .no_bias = true};
    const tri_nn_conv2d_options smaller = {.stride = 2, .no_bias = true};

    return tri_nn_sequential(tri_nn_sequential(tri_module_simple("Image", 0, to_image),
                                               tri_nn_conv2d(1, 4, 3, &padded),
                                               tri_nn_batch_norm2d(4, NULL), tri_nn_relu()),
                             tri_nn_sequential(tri_nn_conv2d(4, 6, 2, &smaller),
                                               tri_nn_batch_norm2d(6, NULL), tri_nn_relu()),
                             tri_nn_sequential(tri_nn_flatten(1), tri_nn_linear(24, OUT, NULL)));
}

static inline tri_module *gpt_build(void)
{
    return tri_model_gpt2(&(tri_model_gpt2_options){
        .layers = 2, .width = 8, .heads = 2, .context = TOKENS, .vocabulary = VOCABULARY});
}

static const kind mlp = {
    .name = "MLP", .build = mlp_build, .parts = mlp_parts, .blocks = {"0", "1"}, .rest = {"2"}};
static const kind gpt = {.name = "GPT",
                         .build = gpt_build,
                         .blocks = {"h.0", "h.1"},
                         .rest = {"ln_f"},
                         .back = "ln_f",
                         .tokens = true};
static const kind dropout = {.name = "MLP with dropout",
                             .build = dropout_build,
                             .blocks = {"0", "1"},
                             .rest = {"2"},
                             .random = true};
static const kind batch_norm = {.name = "CNN with batch norm",
                                .build = cnn_build,
                                .blocks = {"0", "1"},
                                .rest = {"2"},
                                .statistics = true,
                                .never_empty = true};

static const kind sync_norm = {.name = "CNN with SyncBatchNorm",
                               .build = cnn_build,
                               .blocks = {"0", "1"},
                               .rest = {"2"},
                               .shared = true};

/* --- compositions --------------------------------------------------------- */

typedef enum placement {
    ONE_DEVICE,
    REPLICAS_2,
    REPLICAS_3,
    CUT,
    ONE_LAYER,  /* in DataParallel; this and what follows only of what comes in parts */
    TWO_GROUPS, /* the first part in one model of tri_ddp, the others in another */
    N_PLACEMENTS,
    CUT_IN_3 =
        N_PLACEMENTS, /* the second half on two devices; this and the rest not of every pair */
    IN_STAGES,        /* of tri_pipeline, one on each rank; this and what follows of `deep` */
    IN_PARTS          /* of tri_parallelize */
} placement;
typedef enum gathering { ONE_BATCH, TWO_BATCHES, NO_SYNC, N_GATHERINGS } gathering;
typedef enum updating { SGD, SGD_CLIP, ADAMW, ADAMW_CLIP, N_UPDATINGS } updating;

typedef struct composition {
    int ranks; /* of tri_ddp; 0 = without it */
    placement place;
    gathering gather;
    updating update;
    int zero;     /* stage of tri_zero; 0: tri_ddp */
    int replicas; /* of its parts, over a mesh of two axes; 0: over the group */
    bool recompute, uneven, small_buckets;
    bool join;            /* the data of some ranks are used up before those of others */
    bool own_buffers;     /* no_buffer_sync */
    tri_bucket_hook hook; /* of tri_ddp; NULL = none */
    void *hook_state;
    tri_dtype autocast; /* 0 = none */
    tri_pipeline_schedule schedule;
} composition;

static inline void composition_text(const kind *k, const composition *c, char *text, size_t bytes)
{
    static const char *const places[] = {"one device",
                                         "DataParallel on 2",
                                         "DataParallel on 3",
                                         "a half on each of 2 devices",
                                         "one layer in DataParallel",
                                         "two models of tri_ddp",
                                         "on 3 devices",
                                         "in stages",
                                         "in parts"};
    static const char *const gathers[] = {"one batch", "two batches", "two batches, no_sync"};
    static const char *const updates[] = {"SGD", "SGD clipped", "AdamW", "AdamW clipped"};

    snprintf(text, bytes,
             "%s, %d ranks (0: no DDP), stage %d of ZeRO (0: DDP)%s, %s, %s, %s%s%s%s%s%s", k->name,
             c->ranks, c->zero, c->replicas > 0 ? ", HSDP" : "", places[c->place],
             gathers[c->gather], updates[c->update], c->recompute ? ", recomputed" : "",
             c->uneven ? ", uneven shares" : "", c->small_buckets ? ", small buckets" : "",
             c->hook != NULL ? ", a hook" : "", c->join ? ", join" : "");
}

/* What tri_zero takes: it is over ranks, copies are of an even number of them, and hooks of the
 * user want whole gradients. */
static inline bool division_goes(int ranks, int zero, bool copies, bool hook)
{
    return (zero == 0 || (ranks > 0 && !(zero > 1 && hook))) &&
           (!copies || (zero > 0 && ranks % 2 == 0));
}

/* The nearest that goes with the kind of model. */
static inline composition composition_that_goes(const kind *k, composition c)
{
    if (k->shared && (c.place == REPLICAS_2 || c.place == REPLICAS_3)) /* refused */
        c.place = c.place == REPLICAS_2 ? ONE_DEVICE : CUT;
    if (c.zero > 2 && (c.place == REPLICAS_2 || c.place == REPLICAS_3 || c.place == ONE_LAYER))
        c.place = ONE_DEVICE;               /* refused: replicas read whole parameters */
    if (k->shared && c.gather != ONE_BATCH) /* in between each rank's loss weighs as one */
        c.uneven = false;
    return c;
}

static inline int batches_of(const composition *c)
{
    return c->gather == ONE_BATCH ? 1 : 2;
}

static inline int devices_of(const composition *c)
{
    static const int devices[CUT_IN_3 + 1] = {
        [REPLICAS_2] = 2, [REPLICAS_3] = 3, [CUT] = 2, [CUT_IN_3] = 3};

    return devices[c->place] > 0 ? devices[c->place] : 1;
}

/* Samples of a rank: an even number. Uneven: the first takes what the second would have, but for
 * two if that may not be none, and of the others every other one gives two away. */
static inline int share_of(const kind *k, const composition *c, int rank)
{
    int even = c->ranks > 0 ? ROWS / c->ranks : ROWS;
    int left = k->never_empty || c->join ? even - 2 : even;

    if (!c->uneven || c->ranks < 2)
        return even;
    if (rank < 2)
        return rank == 0 ? even + left : even - left;
    return rank % 2 == 0 ? even + 2 : even - 2;
}

typedef struct rows {
    int first, n;
} rows;

static inline rows rows_of(const kind *k, const composition *c, int rank, int batch)
{
    int n = share_of(k, c, rank) / batches_of(c);
    rows r = {batch * n, n};

    for (int before = 0; before < rank; before++)
        r.first += share_of(k, c, before);
    return r;
}

/* How many steps a rank has data for: those of rank 1, or of one alone, last. */
static inline int steps_of(const composition *c, int rank)
{
    if (!c->join || c->ranks < 2 || rank % 3 == 1)
        return STEPS;
    return rank % 3 == 0 ? STEPS * 2 / 3 : STEPS / 3;
}

/* Samples of all ranks in a step. */
static inline int samples_of(const kind *k, const composition *c, int step)
{
    int n = 0;

    for (int r = 0; r < (c->ranks > 0 ? c->ranks : 1); r++)
        n += step < steps_of(c, r) ? share_of(k, c, r) : 0;
    return n;
}

/* --- data ----------------------------------------------------------------- */

static inline double number_at(int i)
{
    uint32_t x = (uint32_t)i * 2654435761u + 12345u;

    x = (x ^ x >> 15) * 2246822519u;
    return (double)((x ^ x >> 13) >> 8) / (double)(1 << 23) - 1.0;
}

static inline tri_tensor *floats_of(const kind *k, int n, int width, const double *data)
{
    float small[ROWS * WIDTH];

    if (!k->f32)
        return tri_tensor_from(TRI_SHAPE(n, width), TRI_DTYPE_F64, data);
    for (int i = 0; i < n * width; i++)
        small[i] = (float)data[i];
    return tri_tensor_from(TRI_SHAPE(n, width), TRI_DTYPE_F32, small);
}

static inline tri_tensor *input_of(const kind *k, rows r)
{
    int64_t tokens[ROWS * TOKENS];
    double data[ROWS * WIDTH];

    if (k->tokens) {
        for (int i = 0; i < r.n * TOKENS; i++)
            tokens[i] = (int64_t)((number_at(r.first * TOKENS + i) + 1) / 2 * (VOCABULARY - 0.01));
        return tri_tensor_from(TRI_SHAPE(r.n, TOKENS), TRI_DTYPE_I64, tokens);
    }
    for (int i = 0; i < r.n * WIDTH; i++)
        data[i] = number_at(r.first * WIDTH + i);
    return floats_of(k, r.n, WIDTH, data);
}

static inline tri_tensor *target_of(const kind *k, rows r)
{
    int64_t tokens[ROWS * TOKENS];
    double data[ROWS * OUT];

    if (k->tokens) {
        for (int i = 0; i < r.n * TOKENS; i++)
            tokens[i] = k->ignored && (r.first * TOKENS + i) % 7 < 2
                            ? -100
                            : (r.first * TOKENS + i) * 3 % VOCABULARY;
        return tri_tensor_from(TRI_SHAPE(r.n * TOKENS), TRI_DTYPE_I64, tokens);
    }
    for (int i = 0; i < r.n * OUT; i++)
        data[i] = number_at(100000 + r.first * OUT + i);
    return floats_of(k, r.n, OUT, data);
}

/* The mean over all rows of `n` parts, as one batch. */
static inline tri_tensor *loss_of_all(const kind *k, tri_module *model, const rows *parts, int n)
{
    tri_tensor *x[2 * MAX_RANKS], *y[2 * MAX_RANKS], *out, *target;
    int64_t all = 0;

    for (int i = 0; i < n; i++) {
        x[i] = input_of(k, parts[i]);
        y[i] = target_of(k, parts[i]);
        all += parts[i].n;
    }
    out = tri_forward(model, n > 1 ? tri_concat(x, n, 0) : x[0]);
    target = tri_to(n > 1 ? tri_concat(y, n, 0) : y[0], tri_tensor_device(out));
    if (k->tokens)
        out =
            tri_cross_entropy(tri_reshape(out, TRI_SHAPE(all * TOKENS, VOCABULARY)), target, NULL);
    else
        out = tri_mse_loss(out, target, NULL);
    for (int i = 0; i < n; i++) {
        tri_tensor_unref(x[i]);
        tri_tensor_unref(y[i]);
    }
    return out;
}

#endif
