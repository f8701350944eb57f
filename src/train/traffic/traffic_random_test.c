/* traffic_random_test.c - random programs that communicate, over two groups and two devices, run
 * in parts that differ from rank to rank: the values and gradients of one process that plays all
 * ranks. */
#include <math.h>

#include <trireme/trireme.h>

#include "base/compiler.h"
#include "train/graph/step/step.h"
#include "testing/check.h"
#include "testing/ranks.h"
#include "train/traffic/traffic.h"

#define MAX_RANKS 3
#define WIDTH 4
#define LEAVES 3
#define OPS 24
#define VALUES (LEAVES + OPS)
#define GROUPS 2

typedef enum op_kind {
    UNARY,
    BINARY,
    PRODUCT,
    ALL_REDUCE,
    SCATTER_GATHER,
    ALL_TO_ALL,
    SHIFT,
    KINDS
} op_kind;

typedef struct op {
    op_kind kind;
    int a, b; /* operands */
    int group, device, variant;
} op;

/* What all ranks do: every value has the shape [size, WIDTH]. */
typedef struct program {
    int size;
    tri_dtype dtype;
    uint32_t seed;
    op ops[OPS];
    bool in_loss[VALUES];
    double grads[MAX_RANKS][LEAVES][MAX_RANKS * WIDTH]; /* of one process */
    double losses[MAX_RANKS];
} program;

static uint32_t draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

static void make_program(program *p, int size, tri_dtype dtype, uint32_t seed)
{
    *p = (program){.size = size, .dtype = dtype, .seed = seed};
    for (int i = 0; i < OPS; i++) {
        int n = LEAVES + i;

        p->ops[i] = (op){.kind = (op_kind)draw(&seed, KINDS),
                         .a = (int)draw(&seed, (uint32_t)n),
                         .b = (int)draw(&seed, (uint32_t)n),
                         .group = (int)draw(&seed, GROUPS),
                         .device = (int)draw(&seed, 2),
                         .variant = (int)draw(&seed, 2)};
    }
    for (int v = 0; v < VALUES; v++)
        /* the sender of a message waits for its gradient */
        p->in_loss[v] = v == VALUES - 1 || (v >= LEAVES && p->ops[v - LEAVES].kind == SHIFT) ||
                        draw(&seed, 4) == 0;
}

/* --- what ranks do alone -------------------------------------------------- */

static tri_tensor *leaf(const program *p, int rank, int number)
{
    int64_t n = p->size * WIDTH;
    double data[MAX_RANKS * WIDTH];
    float narrow[MAX_RANKS * WIDTH];
    tri_tensor *t;

    for (int i = 0; i < n; i++) {
        data[i] = 0.125 * ((i * 5 + rank * 3 + number * 7) % 13 - 6);
        narrow[i] = (float)data[i];
    }
    t = tri_tensor_from(TRI_SHAPE(p->size, WIDTH), p->dtype,
                        p->dtype == TRI_DTYPE_F64 ? (const void *)data : narrow);
    tri_requires_grad(t, true);
    return t;
}

static tri_tensor *alone(const op *o, tri_tensor *const *values)
{
    tri_tensor *a = tri_to(values[o->a], TRI_CPU(o->device));

    switch (o->kind) {
    case UNARY:
        return o->variant == 0 ? tri_tanh(a) : tri_mul_scalar(a, 0.75);
    case BINARY:
        return o->variant == 0 ? tri_add(a, tri_to(values[o->b], TRI_CPU(o->device)))
                               : tri_mul(tri_tanh(a), tri_to(values[o->b], TRI_CPU(o->device)));
    default: /* PRODUCT */
        return tri_matmul(tri_matmul(a, tri_transpose(a, 0, 1)),
                          tri_tanh(tri_to(values[o->b], TRI_CPU(o->device))));
    }
}

/* So large values do not run away. */
static tri_tensor *tamed(tri_tensor *x)
{
    return tri_tanh(tri_mul_scalar(x, 0.5));
}

static tri_tensor *loss_of(const program *p, int rank, tri_tensor *const *values)
{
    tri_tensor *loss = NULL;

    for (int v = 0; v < VALUES; v++) {
        tri_tensor *x;

        if (!p->in_loss[v])
            continue;
        x = tri_mul_scalar(tri_sum(tri_square(tri_to(values[v], TRI_CPU(0))), NULL, 0, false),
                           1 + 0.25 * rank);
        loss = loss != NULL ? tri_add(loss, x) : x;
    }
    return loss;
}

/* --- one process ---------------------------------------------------------- */

static tri_tensor *row(tri_tensor *x, int r)
{
    return tri_narrow(x, 0, r, 1);
}

static tri_tensor *rows_of(const program *p,
                           tri_tensor *(*row_of)(const program *p, int r, int q,
                                                 tri_tensor *const *in),
                           int rank, tri_tensor *const *in)
{
    tri_tensor *rows[MAX_RANKS];

    for (int q = 0; q < p->size; q++)
        rows[q] = row_of(p, rank, q, in);
    return tri_concat(rows, p->size, 0);
}

static tri_tensor *transposed_row(const program *p, int r, int q, tri_tensor *const *in)
{
    (void)p;
    return row(in[q], r);
}

static tri_tensor *total_row(const program *p, int r, int q, tri_tensor *const *in)
{
    tri_tensor *sum = row(in[0], q);

    (void)r;
    for (int s = 1; s < p->size; s++)
        sum = tri_add(sum, row(in[s], q));
    return tri_tanh(sum);
}

static void play_op(const program *p, const op *o, tri_tensor *values[][VALUES], int out)
{
    tri_tensor *in[MAX_RANKS];

    for (int r = 0; r < p->size; r++)
        in[r] = values[r][o->a];
    for (int r = 0; r < p->size; r++) {
        tri_tensor *y = in[0];

        if (o->kind < ALL_REDUCE)
            y = alone(o, values[r]);
        for (int q = 1; q < p->size && o->kind == ALL_REDUCE; q++)
            y = tri_add(y, in[q]);
        if (o->kind == ALL_REDUCE && o->variant == 1)
            y = tri_mul_scalar(y, 1.0 / p->size);
        if (o->kind == SCATTER_GATHER)
            y = rows_of(p, total_row, r, in);
        if (o->kind == ALL_TO_ALL)
            y = rows_of(p, transposed_row, r, in);
        if (o->kind == SHIFT)
            y = in[(r + p->size - 1) % p->size];
        values[r][out] = tamed(y);
    }
}

static void read_doubles(const program *p, tri_tensor *t, double *out)
{
    size_t n = (size_t)p->size * WIDTH;
    float narrow[MAX_RANKS * WIDTH];

    if (p->dtype == TRI_DTYPE_F64) {
        CHECK_OK(tri_tensor_copy_out(t, out, n * sizeof(double)));
        return;
    }
    CHECK_OK(tri_tensor_copy_out(t, narrow, n * sizeof(float)));
    for (size_t i = 0; i < n; i++)
        out[i] = (double)narrow[i];
}

static void play(program *p)
{
    tri_tensor *values[MAX_RANKS][VALUES], *loss[MAX_RANKS], *total = NULL;

    for (int r = 0; r < p->size; r++)
        for (int k = 0; k < LEAVES; k++)
            values[r][k] = leaf(p, r, k);
    for (int i = 0; i < OPS; i++)
        play_op(p, &p->ops[i], values, LEAVES + i);
    for (int r = 0; r < p->size; r++) {
        loss[r] = tri_keep(loss_of(p, r, values[r]));
        total = total != NULL ? tri_add(total, loss[r]) : loss[r];
    }
    tri_backward(total);
    for (int r = 0; r < p->size; r++) {
        CHECK_OK(tri_item_status(loss[r], &p->losses[r]));
        for (int k = 0; k < LEAVES; k++) {
            memset(p->grads[r][k], 0, sizeof(p->grads[r][k]));
            if (tri_grad(values[r][k]) != NULL)
                read_doubles(p, tri_grad(values[r][k]), p->grads[r][k]);
        }
    }
    CHECK_OK(tri_step_end_status());
    for (int r = 0; r < p->size; r++)
        for (int k = 0; k < LEAVES; k++)
            tri_tensor_unref(values[r][k]);
}

/* --- many ----------------------------------------------------------------- */

typedef struct part {
    rank_env *env;
    const program *p;
    tri_group *groups[GROUPS];
    tri_tensor *values[VALUES];
    tri_tensor *outputs[OPS + 1]; /* where the backward pass begins: tokens, then the loss */
    int n_outputs;
} part;

static tri_tensor *handle(tri_status status, trii_vid out)
{
    trii_step *step = trii_step_current();

    return status == TRI_OK ? trii_handle_recorded(step, out) : trii_handle_failed(step, status);
}

static tri_tensor *shift(part *t, tri_group *group, trii_vid in, int tag)
{
    trii_step *step = trii_step_current();
    int size = t->p->size, rank = t->env->rank;
    const trii_type type = step->values[in].type;
    trii_vid token = TRII_NO_VALUE, out = TRII_NO_VALUE;
    tri_status status = trii_record_send(step, group, in, (rank + 1) % size, tag, &token);

    if (status == TRI_OK)
        t->outputs[t->n_outputs++] = trii_handle_recorded(step, token);
    if (status == TRI_OK)
        status =
            trii_record_recv(step, group, &type, true, (rank + size - 1) % size, tag, NULL, &out);
    return handle(status, out);
}

static tri_tensor *together(part *t, const op *o, int number)
{
    trii_step *step = trii_step_current();
    tri_group *group = t->groups[o->group];
    tri_tensor *a = tri_to(t->values[o->a], TRI_CPU(o->device));
    trii_vid in = TRII_NO_VALUE, out = TRII_NO_VALUE;
    tri_status status = trii_resolve(step, a, &in);

    if (status != TRI_OK)
        return a;
    if (o->kind == SHIFT)
        return shift(t, group, in, number);
    if (o->kind == ALL_REDUCE)
        status = trii_record_all_reduce(step, group, in,
                                        o->variant == 0 ? TRI_REDOP_SUM : TRI_REDOP_AVG, &out);
    if (o->kind == ALL_TO_ALL)
        status = trii_record_all_to_all(step, group, in, &out);
    if (o->kind == SCATTER_GATHER)
        status = trii_record_reduce_scatter(step, group, in, TRI_REDOP_SUM, &out);
    if (o->kind == SCATTER_GATHER && status == TRI_OK)
        status = trii_resolve(step, tri_tanh(trii_handle_recorded(step, out)), &in);
    if (o->kind == SCATTER_GATHER && status == TRI_OK)
        status = trii_record_all_gather(step, group, in, &out);
    return handle(status, out);
}

static const char *compare(part *t, tri_tensor *const *leaves, double loss)
{
    rank_env *env = t->env;
    const program *p = t->p;
    double got[MAX_RANKS * WIDTH], tolerance = p->dtype == TRI_DTYPE_F64 ? 1e-9 : 2e-3;

    if (!(fabs(loss - p->losses[env->rank]) <= tolerance * (1 + fabs(loss))))
        return RANK_FAIL(env, "seed %u, rank %d of %d: the loss is %.9g, not %.9g", p->seed,
                         env->rank, p->size, loss, p->losses[env->rank]);
    for (int k = 0; k < LEAVES; k++) {
        memset(got, 0, sizeof(got));
        if (tri_grad(leaves[k]) != NULL)
            read_doubles(p, tri_grad(leaves[k]), got);
        for (int i = 0; i < p->size * WIDTH; i++) {
            double want = p->grads[env->rank][k][i];

            if (!(fabs(got[i] - want) <= tolerance * (1 + fabs(want))))
                return RANK_FAIL(env, "seed %u, rank %d of %d: gradient %d[%d] is %.9g, not %.9g",
                                 p->seed, env->rank, p->size, k, i, got[i], want);
        }
    }
    return NULL;
}

static const char *random_rank(rank_env *env)
{
    const program *p = env->arg;
    part t = {.env = env, .p = p};
    uint32_t own = p->seed + 77u * (uint32_t)env->rank;
    const char *wrong = NULL;

    for (int g = 0; g < GROUPS; g++)
        RANK_TRY(env,
                 tri_group_create(env->store, env->rank, env->size, env->options, &t.groups[g]));
    for (int round = 0; round < 2 && wrong == NULL; round++) {
        tri_tensor *leaves[LEAVES];
        double loss = 0;

        t.n_outputs = 0;
        for (int k = 0; k < LEAVES; k++)
            leaves[k] = t.values[k] = leaf(p, env->rank, k);
        for (int i = 0; i < OPS; i++) {
            const op *o = &p->ops[i];

            t.values[LEAVES + i] =
                tamed(o->kind < ALL_REDUCE ? alone(o, t.values) : together(&t, o, i));
            if (round == 1 && draw(&own, 6) == 0) /* ranks run their steps in other parts */
                RANK_TRY(env, tri_item_status(tri_sum(t.values[LEAVES + i], NULL, 0, false),
                                              &(double){0}));
        }
        t.outputs[t.n_outputs] = tri_keep(loss_of(p, env->rank, t.values));
        tri_backward_of(t.outputs, t.n_outputs + 1, NULL);
        if (draw(&own, 2) == 0)
            RANK_TRY(env, tri_run());
        RANK_TRY(env, tri_item_status(t.outputs[t.n_outputs], &loss));
        wrong = compare(&t, leaves, loss);
        RANK_TRY(env, tri_step_end_status());
        for (int k = 0; k < LEAVES; k++)
            tri_tensor_unref(leaves[k]);
    }
    for (int g = 0; g < GROUPS; g++)
        tri_group_unref(t.groups[g]);
    return wrong;
}

static void check_programs(uint32_t first, uint32_t n)
{
    static const tri_group_options engines[] = {{.engine = "shm"}, {.engine = "tcp"}};
    static program p;

    CHECK_OK(tri_cpu_devices_set(2));
    for (uint32_t seed = first; seed < first + n; seed++) {
        make_program(&p, seed % 2 == 0 ? 2 : 3, seed % 4 < 2 ? TRI_DTYPE_F32 : TRI_DTYPE_F64, seed);
        play(&p);
        run_threads(p.size, &engines[seed / 2 % 2], random_rank, &p);
    }
}

static void random_programs_are_one_process(void **state)
{
    (void)state;
    check_programs(1, 12);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_programs_are_one_process),
};

TEST_MAIN(tests)
