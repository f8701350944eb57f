/*
 * saving.c - what an asynchronous save of 500 MB costs training.
 *
 * The state is a network of 42 million weights and its Adam optimiser, 500 MB. In turn: the state
 * is copied by one memcpy into memory that was used before; it is saved by a writer whose copy was
 * used before (the call returns when the state has been copied); and training goes on while it is
 * written. A step trains with a small batch, so that the optimiser, which walks the whole state, is
 * most of it. What the steps take longer than steps without a writer is set against the processor
 * time that the writer's thread had in that time. Prints "case<tab>unit<tab>ours<tab>peer<tab>peer
 * name" lines for bench/checkpoint.sh.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/checkpoint.h>
#include <trireme/nn.h>
#include <trireme/ops.h>
#include <trireme/optim.h>

#include "timing.h"

#define WIDTH 2048
#define LAYERS 10
#define BATCH 16
#define MOST 64

/* The first words of a file of a thread of this process; false: there is no such thread. */
static bool read_task(long id, const char *file, char *words, int n)
{
    char path[64];
    FILE *f;
    bool ok;

    snprintf(path, sizeof(path), "/proc/self/task/%ld/%s", id, file);
    f = fopen(path, "r");
    if (f == NULL)
        return false;
    ok = fgets(words, n, f) != NULL;
    fclose(f);
    return ok;
}

/* The writer's thread, which came after the first one: the kernel tells its name. 0 = not found. */
static long find_writer(void)
{
    char words[64] = "";
    FILE *f = fopen("/proc/self/stat", "r");
    long first;

    if (f == NULL || fgets(words, sizeof(words), f) == NULL)
        return 0;
    fclose(f);
    first = strtol(words, NULL, 10);
    for (long id = first; id < first + 100000; id++) {
        if (read_task(id, "comm", words, sizeof(words)) &&
            strncmp(words, "tri-checkpoint", 14) == 0)
            return id;
    }
    return 0;
}

/* Processor time that a thread has had so far. */
static double cpu_ms(long id)
{
    char words[64];

    return read_task(id, "schedstat", words, sizeof(words)) ? strtod(words, NULL) / 1e6 : 0;
}

typedef struct run {
    tri_module *net;
    tri_optimizer *opt;
    tri_tensor *x;
    int64_t step;
    char *state, *copy; /* as many bytes as the state has */
    size_t bytes;
} run;

static void train_step(run *r)
{
    tri_backward(tri_mean(tri_square(tri_forward(r->net, r->x)), NULL, 0, false));
    TRI_TRY(tri_optimizer_step(r->opt));
    TRI_TRY(tri_step_end_status());
    r->step++;
}

static size_t state_bytes(const run *r)
{
    size_t bytes = 0;

    for (int64_t i = 0; i < tri_module_state_count(r->net); i++)
        bytes += 4 * (size_t)tri_tensor_numel(tri_module_state(r->net, i).tensor);
    for (int64_t i = 0; i < tri_optimizer_state_count(r->opt); i++)
        bytes += 4 * (size_t)tri_tensor_numel(tri_optimizer_state(r->opt, i).tensor);
    return bytes;
}

static void run_begin(run *r)
{
    tri_module *layers[LAYERS];

    for (int i = 0; i < LAYERS; i++)
        layers[i] = tri_nn_linear(WIDTH, WIDTH, NULL);
    r->net = tri_nn_sequential_of(LAYERS, layers);
    r->opt = tri_adam(r->net, 1e-4, NULL);
    r->x = tri_tensor_create(TRI_SHAPE(BATCH, WIDTH), TRI_DTYPE_F32);
    TRI_TRY(tri_init_constant(r->x, 0.5));
    for (int i = 0; i < 3; i++)
        train_step(r);
    r->bytes = state_bytes(r);
    r->state = malloc(r->bytes);
    r->copy = malloc(r->bytes);
    if (r->state == NULL || r->copy == NULL)
        exit(1);
    memset(r->state, 1, r->bytes);
    memset(r->copy, 2, r->bytes);
}

/* While `writer` is busy, or so many steps; how many it were is in *n_io. */
static double time_steps(run *r, tri_checkpoint_writer *writer, int *n_io)
{
    double begin = now_us();
    int n = 0;

    while (writer != NULL ? n == 0 || tri_checkpoint_writer_is_busy(writer) : n < *n_io) {
        train_step(r);
        n++;
    }
    *n_io = n;
    return (now_us() - begin) / 1e3;
}

static void save(run *r, tri_checkpoint_writer *writer)
{
    TRI_TRY(tri_checkpoint_writer_save(writer, r->net, r->opt,
                                       &(tri_checkpoint_info){.step = r->step},
                                       &(tri_checkpoint_save_options){.keep = 1}));
}

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 5;
    double copies[MOST], saves[MOST], plain[MOST], longer[MOST], cpu[MOST], writes[MOST];
    tri_checkpoint_writer *writer;
    run r = {0};
    long id;

    if (argc < 2 || rounds < 1 || rounds > MOST)
        return 2;
    run_begin(&r);
    TRI_TRY(tri_checkpoint_writer_create(argv[1], &writer));
    save(&r, writer); /* the copy is made, and the thread has its name */
    TRI_TRY(tri_checkpoint_writer_wait(writer));
    id = find_writer();
    if (id == 0) {
        fprintf(stderr, "bench_saving: the writer has no thread of the name that it should have\n");
        return 1;
    }
    for (int i = 0; i < rounds; i++) {
        double begin = now_us(), cpu_before = cpu_ms(id), during;
        int n = 0;

        memcpy(r.copy, r.state, r.bytes);
        __asm__ volatile("" ::: "memory");
        copies[i] = (now_us() - begin) / 1e3;
        begin = now_us();
        save(&r, writer);
        saves[i] = (now_us() - begin) / 1e3;
        during = time_steps(&r, writer, &n);
        cpu[i] = cpu_ms(id) - cpu_before;
        TRI_TRY(tri_checkpoint_writer_wait(writer));
        writes[i] = 1e3 * tri_checkpoint_writer_seconds(writer);
        plain[i] = time_steps(&r, NULL, &n); /* as many without a writer */
        longer[i] = during - plain[i];
        plain[i] /= n;
    }
    fprintf(stderr, "%.0f MB of state; a step takes %.1f ms, a write %.0f ms\n",
            (double)r.bytes / 1e6, median(plain, rounds), median(writes, rounds));
    printf("saving step\tms\t%.1f\t%.1f\tmemcpy\n", median(saves, rounds), median(copies, rounds));
    printf("all steps during the write, longer\tms\t%.1f\t%.1f\twriter's processor time\n",
           median(longer, rounds), median(cpu, rounds));
    tri_checkpoint_writer_destroy(writer);
    free(r.state);
    free(r.copy);
    tri_tensor_unref(r.x);
    tri_optimizer_destroy(r.opt);
    tri_module_destroy(r.net);
    return 0;
}
