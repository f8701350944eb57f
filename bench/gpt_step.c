/*
 * gpt_step.c - training of a small GPT by one process, through the public API:
 *
 *     bench_gpt_step [STEPS [RUNS [LAYERS [bf16]]]]
 *
 * 6 layers of width 384 with 6 heads, a context of 256, 256 tokens, batches of 8, AdamW. Prints
 * tokens a second, the median of RUNS runs of STEPS steps each; which share of what the processor's
 * fused multiply-add can do, measured by a loop of it in the same run, the model's products came
 * to; and how many seconds the first step took beyond the second.
 *
 * Products: 6 operations for each weight of a product and each token, forward and backward, and
 * 6 context width a layer for attention, of whose matrices half are masked. BENCH_CPU=1 counts
 * processor time instead of wall time, of all threads together: for busy machines.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/models.h>
#include <trireme/trireme.h>

#include "fma_peak.h"
#include "timing.h"

#define WIDTH 384
#define CONTEXT 256
#define VOCABULARY 256
#define BATCH 8

typedef struct task {
    bool bf16;
    tri_module *net;
    tri_optimizer *opt;
    tri_tensor *x, *y;
    int64_t tokens[BATCH * CONTEXT + 1];
} task;

static void step(task *t)
{
    const size_t bytes = (size_t)(BATCH * CONTEXT) * sizeof(int64_t);
    tri_tensor *logits;

    TRI_TRY(tri_tensor_copy_in(t->x, t->tokens, bytes));
    TRI_TRY(tri_tensor_copy_in(t->y, t->tokens + 1, bytes));
    if (t->bf16)
        tri_autocast_begin(TRI_DTYPE_BF16);
    logits = tri_reshape(tri_forward(t->net, t->x), TRI_SHAPE(-1, VOCABULARY));
    if (t->bf16)
        tri_autocast_end();
    tri_backward(tri_cross_entropy(logits, tri_flatten(t->y, 0), NULL));
    TRI_TRY(tri_optimizer_step(t->opt));
    TRI_TRY(tri_step_end_status());
}

static int number(int argc, char **argv, int i, int fallback)
{
    return argc > i ? (int)strtol(argv[i], NULL, 10) : fallback;
}

static int threads(void)
{
    const char *text = getenv("TRI_NUM_THREADS");
    int n = text != NULL ? (int)strtol(text, NULL, 10) : 1;

    return n > 0 ? n : 1;
}

/* Of a training step, for each token. */
static double flops_per_token(int layers)
{
    double weights = 12.0 * WIDTH * WIDTH * layers + (double)WIDTH * VOCABULARY;

    return 6 * weights + 6.0 * CONTEXT * WIDTH * layers;
}

int main(int argc, char **argv)
{
    static task t;
    int steps = number(argc, argv, 1, 2), runs = number(argc, argv, 2, 3);
    int layers = number(argc, argv, 3, 6);
    double *rates = malloc((size_t)runs * sizeof(double)), first = 0, peak, rate;
    uint32_t state = 1;

    if (rates == NULL || runs < 1 || steps < 1)
        return 1;
    t.bf16 = argc > 4 && strcmp(argv[4], "bf16") == 0;
    peak = fma_peak_flops(threads());
    tri_manual_seed(1);
    t.net = tri_model_gpt2(&(tri_model_gpt2_options){.layers = layers,
                                                     .width = WIDTH,
                                                     .heads = 6,
                                                     .context = CONTEXT,
                                                     .vocabulary = VOCABULARY});
    t.opt = tri_adamw(t.net, 3e-4, &(tri_adam_options){.weight_decay = TRI_SET(0.1)});
    t.x = tri_tensor_create(TRI_SHAPE(BATCH, CONTEXT), TRI_DTYPE_I64);
    t.y = tri_tensor_create(TRI_SHAPE(BATCH, CONTEXT), TRI_DTYPE_I64);
    for (int i = 0; i <= BATCH * CONTEXT; i++) {
        state = state * 1664525u + 1013904223u;
        t.tokens[i] = state >> 24;
    }
    for (int i = 0; i < 3; i++) {
        double begin = cost_us();

        step(&t);
        first += i == 0 ? cost_us() - begin : i == 1 ? begin - cost_us() : 0;
    }
    for (int r = 0; r < runs; r++) {
        double begin = cost_us();

        for (int i = 0; i < steps; i++)
            step(&t);
        rates[r] = (double)(steps * BATCH * CONTEXT) * 1e6 / (cost_us() - begin);
    }
    rate = median(rates, runs);
    printf("%.1f %.3f %.3f\n", rate, rate * flops_per_token(layers) / peak, first / 1e6);
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.net);
    tri_tensor_unref(t.x);
    tri_tensor_unref(t.y);
    free(rates);
    return 0;
}
