/* ddp_random_test.c - random training: layers on two devices of which each rank uses some, batches
 * with and without synchronisation, values asked for in between, clipping, gradients that are
 * thrown away. As one process in which all ranks' losses are one. */
#include "testing/ddp_ranks.h"

#define LAYERS 4
#define RANDOM_STEPS 5
#define BATCHES 3

typedef struct batch_plan {
    bool local;               /* inside no_sync */
    unsigned used[MAX_RANKS]; /* bit of each layer */
    bool reads[MAX_RANKS];    /* the loss is asked for at once */
} batch_plan;

typedef struct program {
    uint32_t seed;
    int size; /* ranks that there would be */
    bool norm;
    int device[LAYERS];
    int n_batches[RANDOM_STEPS];
    batch_plan batch[RANDOM_STEPS][BATCHES];
    bool thrown[RANDOM_STEPS]; /* in place of an update */
    bool runs[RANDOM_STEPS];   /* what is thrown away has run */
    bool ends[RANDOM_STEPS];   /* the next one is recorded in another step of the context */
    double clip[RANDOM_STEPS]; /* 0 = none */
} program;

static uint32_t draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

static void make_program(program *p, uint32_t seed, int size)
{
    *p = (program){.seed = seed, .size = size};
    for (int l = 0; l < LAYERS; l++)
        p->device[l] = (int)draw(&seed, 2);
    for (int s = 0; s < RANDOM_STEPS; s++) {
        bool partly = draw(&seed, 2) == 0;

        p->n_batches[s] = 1 + (int)draw(&seed, BATCHES);
        for (int b = 0; b < p->n_batches[s]; b++) {
            batch_plan *batch = &p->batch[s][b];
            unsigned all = (1u << LAYERS) - 1;

            batch->local = b < p->n_batches[s] - 1 && draw(&seed, 2) == 0;
            for (int r = 0; r < size; r++) {
                batch->used[r] = partly ? draw(&seed, all) + 1 : all;
                batch->reads[r] = draw(&seed, 3) == 0;
            }
        }
        p->thrown[s] = draw(&seed, 5) == 0;
        p->runs[s] = draw(&seed, 2) == 0;
        p->ends[s] = !p->thrown[s] || draw(&seed, 2) == 0;
        p->clip[s] = draw(&seed, 3) == 0 ? 0.05 : 0;
    }
}

/* --- the network ---------------------------------------------------------- */

typedef struct layers {
    tri_module *layer[LAYERS];
    const program *p;
    unsigned used; /* by the next forward */
} layers;

static void layers_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                           int n_out)
{
    const layers *n = tri_module_data(self);
    tri_tensor *x = in[0];

    (void)n_in;
    (void)n_out;
    for (int l = 0; l < LAYERS; l++) {
        if ((n->used >> l & 1) != 0)
            x = tri_tanh(tri_forward(n->layer[l], tri_to(x, TRI_CPU(n->p->device[l]))));
    }
    out[0] = x;
}

static tri_module *build(const program *p, layers **layers_out)
{
    static const tri_module_class type = {
        .name = "Layers", .size = sizeof(layers), .forward = layers_forward};
    tri_module *self = tri_module_create(&type);
    layers *n = tri_module_data(self);
    char name[8];

    trii_mutex_lock(&drawing);
    tri_manual_seed(p->seed);
    tri_set_default_dtype(TRI_DTYPE_F64);
    n->p = p;
    for (int l = 0; l < LAYERS; l++) {
        snprintf(name, sizeof(name), "l%d", l);
        n->layer[l] = tri_module_add_child(self, name, tri_nn_linear(IN, IN, NULL));
    }
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    *layers_out = n;
    return self;
}

/* --- training ------------------------------------------------------------- */

/* Rows of rank q's batch b in step s. */
static tri_tensor *input_of(const program *p, int s, int b, int q)
{
    int first = (int)((p->seed + (uint32_t)(s * 5 + b * 3 + q)) % (ROWS - 2));

    return rows_of(x_data, IN, first, 2);
}

/* In a world of one the losses of all. */
static tri_status run_batch(const rank *r, tri_module *model, layers *n, int s, int b)
{
    const program *p = r->arg;
    const batch_plan *batch = &p->batch[s][b];
    tri_tensor *loss[MAX_RANKS], *x;

    for (int q = 0; q < p->size; q++) {
        if (r->size > 1 && q != r->index)
            continue;
        n->used = batch->used[q];
        x = input_of(p, s, b, q);
        if (batch->local)
            tri_ddp_no_sync_begin(model);
        loss[q] = tri_mean(tri_square(tri_forward(model, tri_add_scalar(x, 0.5))), NULL, 0, false);
        tri_tensor_unref(x);
        if (r->size == 1)
            loss[q] = tri_mul_scalar(loss[q], 1.0 / p->size);
        tri_backward(loss[q]);
        if (batch->local)
            tri_ddp_no_sync_end(model);
        if (batch->reads[r->index])
            TRY(tri_item_status(loss[q], &(double){0}));
    }
    return TRI_OK;
}

static tri_status train(rank *r)
{
    const program *p = r->arg;
    layers *n;
    tri_module *net = build(p, &n), *model;
    tri_optimizer *opt;
    double norm;

    for (int l = 0; l < LAYERS; l++)
        TRY(tri_module_to(n->layer[l], TRI_CPU(p->device[l])));
    model = tri_ddp(
        net,
        &(tri_ddp_options){.group = r->group, .first_bucket_bytes = 256, .bucket_cap_bytes = 512});
    TRY(tri_module_status(model));
    opt = tri_adam(model, 0.01, NULL);
    for (int s = 0; s < RANDOM_STEPS; s++) {
        for (int b = 0; b < p->n_batches[s]; b++)
            TRY(run_batch(r, model, n, s, b));
        if (p->thrown[s]) {
            if (p->runs[s])
                TRY(tri_run());
            tri_optimizer_zero_grad(opt);
        } else {
            if (p->clip[s] > 0)
                TRY(tri_item_status(tri_clip_grad_norm(opt, p->clip[s]), &norm));
            TRY(tri_optimizer_step(opt));
        }
        if (p->ends[s])
            TRY(tri_step_end_status());
    }
    TRY(tri_step_end_status());
    TRY(tri_ddp_verify(model, true));
    TRY(take_weights(r, model));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void random_training_is_that_of_one_process(void **state)
{
    static rank one[1], ranks[MAX_RANKS];
    static program p;

    (void)state;
    CHECK_OK(tri_cpu_devices_set(2));
    make_data();
    for (uint32_t seed = 1; seed < 13; seed++) {
        make_program(&p, seed, 2 + (int)(seed % 2));
        ranks_succeed(one, 1, train, &p);
        run_ranks(ranks, p.size, train, &p);
        for (int i = 0; i < p.size; i++)
            if (ranks[i].status != TRI_OK)
                fail_msg("seed %u, rank %d: %s", seed, i, ranks[i].line);
        for (int i = 0; i < one[0].n_weights; i++)
            if (!(fabs(ranks[0].weights[i] - one[0].weights[i]) < 1e-8))
                fail_msg("seed %u: weight %d is %.12g, not %.12g", seed, i, ranks[0].weights[i],
                         one[0].weights[i]);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_training_is_that_of_one_process),
};

TEST_MAIN(tests)
