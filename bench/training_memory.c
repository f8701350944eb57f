/*
 * training_memory.c - what a rank holds while it trains; bench/training_memory.sh starts it, as
 * each rank of a group:
 *
 *     bench_training_memory ddp|zero1|zero2|zero3 [MODEL [BATCH]]
 *
 * trains MODEL (gpt:10,480,8,256,256: 28 million parameters) with Adam for three steps of BATCH (1)
 * texts on each rank, and prints in MiB: what the formula of the strategy says of parameters,
 * gradients and states; what tri_memory says of these; message buffers; values of a step; and by
 * how much the rank's share of physical memory (Pss of /proc/self/smaps_rollup, where pages that
 * several processes map count in parts) has grown since the world was joined. The first figures are
 * those of the rank that has most, the last is the mean of all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/models.h>
#include <trireme/trireme.h>

#define CONTEXT 256
#define VOCABULARY 256
#define STEPS 3
#define MIB (1024.0 * 1024.0)

static double pss_mib(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long kib = -1;

    TRI_TRY(file != NULL ? TRI_OK : TRI_ERR_IO);
    while (fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "Pss:", 4) == 0)
            kib = strtol(line + 4, NULL, 10);
    fclose(file);
    TRI_TRY(kib >= 0 ? TRI_OK : TRI_ERR_IO);
    return (double)kib / 1024;
}

static double over_ranks(double mine, tri_redop op)
{
    double all;

    TRI_TRY(tri_all_reduce(NULL, &mine, &all, 1, TRI_DTYPE_F64, op, NULL));
    return all;
}

static void train(tri_module *model, tri_optimizer *opt, int64_t batch)
{
    const int64_t shape[] = {batch, CONTEXT};
    const size_t bytes = (size_t)(batch * CONTEXT) * sizeof(int64_t);
    tri_tensor *x = tri_tensor_create(shape, 2, TRI_DTYPE_I64);
    int64_t *tokens = malloc(bytes);

    TRI_TRY(tokens != NULL ? TRI_OK : TRI_ERR_NO_MEMORY);
    for (int64_t i = 0; i < batch * CONTEXT; i++)
        tokens[i] = i * 7 % VOCABULARY;
    for (int i = 0; i < STEPS; i++) {
        tri_tensor *out;

        TRI_TRY(tri_tensor_copy_in(x, tokens, bytes));
        out = tri_reshape(tri_forward(model, x), TRI_SHAPE(-1, VOCABULARY));
        tri_backward(tri_cross_entropy(out, tri_flatten(x, 0), NULL));
        TRI_TRY(tri_optimizer_step(opt));
        TRI_TRY(tri_step_end_status());
    }
    tri_tensor_unref(x);
    free(tokens);
}

/* Of parameters, gradients and the two states of Adam, in copies of all parameters. */
static double copies(int stage, int n)
{
    const double part = 1.0 / n;
    const double of[] = {4, 2 + 2 * part, 1 + 3 * part, 4 * part};

    return of[stage];
}

int main(int argc, char **argv)
{
    const char *name = argc > 2 ? argv[2] : "gpt:10,480,8,256,256";
    const int64_t batch = argc > 3 ? strtol(argv[3], NULL, 10) : 1;
    int stage = -1;
    tri_module *model;
    tri_optimizer *opt;
    tri_memory_stats s;
    double before, grown;

    if (argc > 1 && strcmp(argv[1], "ddp") == 0)
        stage = 0;
    if (argc > 1 && strncmp(argv[1], "zero", 4) == 0)
        stage = (int)strtol(argv[1] + 4, NULL, 10);
    if (stage < 0 || stage > 3 || batch < 1) {
        fprintf(stderr, "usage: %s ddp|zero1|zero2|zero3 [MODEL [BATCH]]\n", argv[0]);
        return 2;
    }
    TRI_TRY(tri_init(NULL));
    TRI_TRY(tri_barrier(NULL, NULL));
    before = pss_mib();
    model = tri_model_by_name(name, 0);
    model =
        stage == 0 ? tri_ddp(model, NULL) : tri_zero(model, &(tri_zero_options){.stage = stage});
    TRI_TRY(tri_module_status(model));
    opt = tri_adam(model, 1e-3, NULL);
    train(model, opt, batch);
    TRI_TRY(tri_memory(model, opt, NULL, &s));
    TRI_TRY(tri_barrier(NULL, NULL)); /* all have touched what they map */
    grown = over_ranks(pss_mib() - before, TRI_REDOP_AVG);
    {
        const double formula = (double)s.whole_parameters * copies(stage, tri_world_size()) / MIB;
        double kept = (double)(s.parameters + s.gradients + s.states) / MIB;
        double messages = (double)s.messages / MIB, values = (double)s.values / MIB;

        kept = over_ranks(kept, TRI_REDOP_MAX);
        messages = over_ranks(messages, TRI_REDOP_MAX);
        values = over_ranks(values, TRI_REDOP_MAX);
        if (tri_rank() == 0)
            printf("%.2f %.2f %.2f %.2f %.2f\n", formula, kept, messages, values, grown);
    }
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_finalize();
    return 0;
}
