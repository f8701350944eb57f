/*
 * random_program.h - programs that train, drawn by numbers: a network of a few random layers, and
 * for each step what a program may do in it. Tests only.
 *
 * What is drawn depends on the number alone, and all ranks do the same but for their data, which
 * batches are empty, and, of some programs, which branches a batch takes.
 */
#ifndef TEST_RANDOM_PROGRAM_H
#define TEST_RANDOM_PROGRAM_H

#include <trireme/trireme.h>

#include "base/compiler.h"
#include "os/thread.h"
#include "testing/check.h"

#define PROGRAM_LAYERS 5 /* at most, between the first and the last one */
#define PROGRAM_STEPS 8
#define PROGRAM_BATCHES 3
#define PROGRAM_ROWS 6 /* of a batch of a rank, at most */
#define PROGRAM_IN 5
#define PROGRAM_OUT 3

/* --- numbers -------------------------------------------------------------- */

/* A number below n, of those that `what` names: Steele, Lea and Flood's SplitMix64. */
static inline int number_of(uint64_t program, uint64_t what, int n)
{
    uint64_t x = (program + 1) * UINT64_C(0x9e3779b97f4a7c15) + what * UINT64_C(0xd1342543de82ef95);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (int)((x ^ x >> 31) >> 33) % n;
}

/* Draws one after the other. */
typedef struct drawing_of {
    uint64_t program, n;
} drawing_of;

static inline int draw(drawing_of *d, int n)
{
    return number_of(d->program, ++d->n, n);
}

/* One time of n. */
static inline bool rarely(drawing_of *d, int n)
{
    return draw(d, n) == 0;
}

/* --- what is drawn -------------------------------------------------------- */

typedef enum layer_kind {
    LINEAR,
    AGAIN,  /* what the layer before has, once more: tied */
    BRANCH, /* some batches go around it */
    SCALE,  /* a parameter of one element */
    EMPTY,  /* one of none, which is used */
    NORM,
    DROPOUT,
    STATISTICS, /* batch norm */
    FROZEN,
    UNREACHED, /* no loss depends on it */
    PIECES,    /* DataParallel over two devices */
    N_LAYER_KINDS
} layer_kind;

typedef struct layer {
    layer_kind kind;
    bool recompute;
} layer;

/* What becomes of the gradients. FAIL: an operation that is wrong is recorded after them. */
typedef enum ending { UPDATE, KEEP, DROP, FAIL, FAIL_UPDATE } ending;
typedef enum checkpoint_use { NO_CHECKPOINT, SAVE, RESTORE, START_AGAIN } checkpoint_use;

typedef struct program_step {
    int batches, local; /* the first so many are without synchronisation */
    ending end;
    bool evaluates, swaps, verifies, slower, freezes;
    checkpoint_use checkpoint; /* after it */
} program_step;

typedef enum optimizer_kind {
    P_SGD,
    P_MOMENTUM,
    P_ADAM,
    P_ADAMW,
    P_AMSGRAD,
    P_RMSPROP,
    P_ADAGRAD,
    N_OPTIMIZER_KINDS
} optimizer_kind;
typedef enum limiting { FREE, BY_NORM, BY_VALUE, BY_NORM_OF_LIST } limiting;

typedef struct program {
    uint64_t number;
    int ranks, copies; /* of a mesh; 1 = the group itself */
    tri_dtype dtype, autocast;
    int width, n_layers;
    layer layers[PROGRAM_LAYERS];
    bool bias, shared; /* statistics are those of all ranks */
    bool own_buffers, empty_batches, two_optimizers, classes, own_branches;
    optimizer_kind optimizer;
    limiting limit;
    bool averages, scales;
    double scale;
    size_t bucket, first_bucket;
    tri_bucket_hook hook;
    bool own_hook;
    int prefetch; /* of stage 3, with what follows */
    bool keeps;
    int64_t keep_below;
    int n_steps;
    program_step steps[PROGRAM_STEPS];
} program;

static inline bool has_layer(const program *p, layer_kind kind)
{
    for (int i = 0; i < p->n_layers; i++)
        if (p->layers[i].kind == kind)
            return true;
    return false;
}

static inline void draw_network(program *p, drawing_of *d)
{
    static const int widths[] = {1, 3, 8, 30, 70, 130};

    p->width = widths[draw(d, (int)TRII_COUNT_OF(widths))];
    p->n_layers = draw(d, PROGRAM_LAYERS + 1);
    p->bias = !rarely(d, 4);
    for (int i = 0; i < p->n_layers; i++)
        p->layers[i] = (layer){(layer_kind)draw(d, N_LAYER_KINDS), rarely(d, 3)};
    p->shared = has_layer(p, STATISTICS) && !has_layer(p, PIECES) && rarely(d, 2);
    p->own_buffers = rarely(d, 5);
    p->own_branches = has_layer(p, BRANCH) && rarely(d, 2);
    p->empty_batches = !has_layer(p, STATISTICS) && rarely(d, 2);
}

static inline void draw_settings(program *p, drawing_of *d)
{
    static const size_t buckets[] = {0, 1, 200, 5000, 40000};

    p->optimizer = (optimizer_kind)draw(d, N_OPTIMIZER_KINDS);
    p->limit = (limiting)draw(d, 4);
    p->two_optimizers = rarely(d, 5);
    p->averages = rarely(d, 3);
    p->scales = rarely(d, 3);
    p->scale = rarely(d, 2) ? 256 : 0x1p120; /* too large for a part of the steps */
    p->bucket = buckets[draw(d, (int)TRII_COUNT_OF(buckets))];
    p->first_bucket = rarely(d, 2) ? p->bucket : p->bucket / 3;
    switch (draw(d, 8)) {
    case 0:
        p->hook = tri_bucket_hook_f16;
        break;
    case 1:
        p->hook = tri_bucket_hook_bf16;
        break;
    case 2:
        p->own_hook = true;
        break;
    default:
        break;
    }
}

/* Passes without synchronisation come before others until the gradients are used: added to averages
 * they are rounded in another order (zero.h). */
static inline void draw_steps(program *p, drawing_of *d)
{
    bool held = false, saved = false;

    p->n_steps = 3 + draw(d, PROGRAM_STEPS - 2);
    for (int i = 0; i < p->n_steps; i++) {
        program_step *s = &p->steps[i];

        s->batches = 1 + draw(d, PROGRAM_BATCHES);
        s->local = held ? 0 : draw(d, s->batches);
        s->end = rarely(d, 7)   ? KEEP
                 : rarely(d, 9) ? DROP
                 : rarely(d, 7) ? (ending)(FAIL + draw(d, 2))
                                : UPDATE;
        if (p->shared && s->batches > 1) /* batches of several ranks are one there */
            s->local = 0;
        held = s->end != UPDATE && s->end != DROP; /* what ran before it failed is there */
        s->evaluates = rarely(d, 4);
        s->swaps = p->averages && rarely(d, 4);
        s->verifies = rarely(d, 5);
        s->slower = rarely(d, 5);
        s->freezes = rarely(d, 25);
        if (!held && rarely(d, 4)) {
            s->checkpoint = saved ? (checkpoint_use)(1 + draw(d, 3)) : SAVE;
            saved = true;
        }
    }
}

static inline program program_of(uint64_t number)
{
    drawing_of d = {.program = number};
    program p = {.number = number, .ranks = 2 + draw(&d, 3), .copies = 1};

    if (p.ranks > 2 && rarely(&d, 3))
        p.copies = p.ranks == 4 && rarely(&d, 2) ? 2 : p.ranks; /* parts are a power of two */
    p.dtype = rarely(&d, 3) ? TRI_DTYPE_F64 : TRI_DTYPE_F32;
    if (p.dtype == TRI_DTYPE_F32 && rarely(&d, 4))
        p.autocast = rarely(&d, 2) ? TRI_DTYPE_BF16 : TRI_DTYPE_F16;
    p.classes = rarely(&d, 3);
    draw_network(&p, &d);
    draw_settings(&p, &d);
    draw_steps(&p, &d);
    p.prefetch = (int[]){-1, 0, 2, 7}[draw(&d, 4)];
    p.keeps = rarely(&d, 4);
    p.keep_below = rarely(&d, 4) ? p.width + 1 : 0;
    return p;
}

/* --- for those who read a failure ----------------------------------------- */

typedef struct text_of {
    char *at;
    size_t left;
} text_of;

static inline TRI_PRINTF(2, 3) void add_text(text_of *t, const char *format, ...)
{
    va_list list;
    int n;

    va_start(list, format);
    n = vsnprintf(t->at, t->left, format, list);
    va_end(list);
    n = n < (int)t->left ? n : (int)t->left - 1;
    t->at += n;
    t->left -= (size_t)n;
}

static inline void program_text(const program *p, char *text, size_t bytes)
{
    static const char *const layers[] = {"linear", "again",     "branch",  "scale",
                                         "empty",  "norm",      "dropout", "statistics",
                                         "frozen", "unreached", "pieces"};
    static const char *const optimizers[] = {"SGD",     "momentum", "Adam",   "AdamW",
                                             "AMSGrad", "RMSprop",  "Adagrad"};
    static const char *const limits[] = {"", " norm", " value", " norm of a list"};
    static const char *const ends[] = {"update", "keep", "drop", "fail", "fail update"};
    static const char *const uses[] = {"", " save", " restore", " again"};
    text_of t = {text, bytes};

    add_text(&t, "program %d: %d ranks, %d copies, %s%s, width %d%s%s%s%s%s;", (int)p->number,
             p->ranks, p->copies, tri_dtype_name(p->dtype),
             p->autocast == 0                ? ""
             : p->autocast == TRI_DTYPE_BF16 ? ", bf16"
                                             : ", f16",
             p->width, p->bias ? "" : ", no bias", p->shared ? ", shared" : "",
             p->own_branches ? ", own branches" : "", p->own_buffers ? ", own buffers" : "",
             p->empty_batches ? ", empty batches" : "");
    for (int i = 0; i < p->n_layers; i++)
        add_text(&t, " %s%s", layers[p->layers[i].kind], p->layers[i].recompute ? "(r)" : "");
    add_text(&t, "; %s%s%s%s%s, buckets %zu %zu%s%s%s;", optimizers[p->optimizer],
             p->two_optimizers ? " twice" : "", limits[p->limit], p->averages ? " EMA" : "",
             p->scales ? " scaler" : "", p->bucket, p->first_bucket,
             p->hook != NULL ? ", 16 bits" : "", p->own_hook ? ", own hook" : "",
             p->classes ? ", classes" : "");
    add_text(&t, " prefetch %d%s, below %d;", p->prefetch, p->keeps ? " keeps" : "",
             (int)p->keep_below);
    for (int i = 0; i < p->n_steps; i++) {
        const program_step *s = &p->steps[i];

        add_text(&t, " [%d/%d %s%s%s%s%s%s%s]", s->local, s->batches, ends[s->end],
                 s->evaluates ? " eval" : "", s->swaps ? " swap" : "", s->verifies ? " verify" : "",
                 s->slower ? " slower" : "", s->freezes ? " freeze" : "", uses[s->checkpoint]);
    }
}

#endif
