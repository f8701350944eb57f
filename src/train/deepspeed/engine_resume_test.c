/* engine_resume_test.c - runs that stop within an epoch and go on where they were: the next batch,
 * the same masks of dropout, the same bits; and what is kept with another number of ranks. */
#include "testing/engine_ranks.h"

#define SAMPLES 48
#define EPOCHS 3

typedef struct part {
    const char *config, *dir;
    uint64_t seed;              /* of dropout */
    int stop_epoch, stop_batch; /* saves there, and ends; 0: never */
    bool load;
    bool dirty; /* begins another group of micro-batches before it loads */
    uint64_t hash[MAX_RANKS];
    int64_t samples[MAX_RANKS], steps[MAX_RANKS], first[MAX_RANKS];
} part;

static tri_module *network(void)
{
    tri_module *net = tri_nn_sequential(tri_nn_linear(FIT_IN, 8, NULL), tri_nn_dropout(0.5),
                                        tri_nn_tanh(), tri_nn_linear(8, FIT_OUT, NULL));
    uint64_t seed = 3;

    for (int64_t i = 0; i < tri_module_state_count(net); i++) {
        tri_tensor *tensor = tri_module_state(net, i).tensor;
        const int64_t n = tri_tensor_numel(tensor);
        float values[64];

        for (int64_t k = 0; k < n; k++)
            values[k] = (float)(scratch_random(&seed) % 1001) / 1000 - 0.5F;
        CHECK_OK(tri_tensor_copy_in(tensor, values, (size_t)n * sizeof(float)));
    }
    return net;
}

static tri_status train_batch(tri_engine *e, const tri_batch *batch)
{
    tri_engine_backward(
        e, tri_cross_entropy(tri_engine_forward(e, batch->fields[0]), batch->fields[1], NULL));
    TRY(tri_engine_step(e));
    return tri_step_end_status();
}

/* As a program keeps it. */
static tri_status save(tri_engine *e, const part *p)
{
    char epoch[16], batch[16];
    const tri_metadata client[] = {{"epoch", epoch}, {"batch", batch}};

    snprintf(epoch, sizeof(epoch), "%d", p->stop_epoch);
    snprintf(batch, sizeof(batch), "%d", p->stop_batch);
    return tri_engine_save_checkpoint(e, p->dir, NULL, client, 2);
}

static tri_status find_place(tri_engine *e, const part *p, int64_t *epoch, int64_t *batch)
{
    int64_t begun;

    TRY(tri_engine_load_checkpoint(e, p->dir, NULL, NULL));
    *epoch = strtol(tri_engine_client(e, "epoch"), NULL, 10);
    *batch = strtol(tri_engine_client(e, "batch"), NULL, 10);
    /* With other ranks a batch of each is another part of the epoch. */
    begun = tri_engine_global_samples(e) - *epoch * SAMPLES;
    *batch = begun * tri_engine_gradient_accumulation_steps(e) / tri_engine_train_batch_size(e);
    return TRI_OK;
}

static tri_status train(tri_engine *e, rank *r, part *p)
{
    tri_loader *loader = tri_engine_training_dataloader(e);
    int64_t epoch = 0, first = 0;
    tri_batch batch;

    if (p->dirty) {
        TRY(tri_loader_begin(loader, 0, 0));
        TRY(tri_loader_next(loader, &batch));
        TRY(train_batch(e, &batch));
    }
    if (p->load)
        TRY(find_place(e, p, &epoch, &first));
    p->first[r->index] = first;
    for (; epoch < EPOCHS; epoch++, first = 0) {
        int64_t done = first;

        TRY(tri_loader_begin(loader, epoch, first));
        while (tri_loader_next(loader, &batch) == TRI_OK) {
            TRY(train_batch(e, &batch));
            done++;
            if (p->stop_batch > 0 && epoch == p->stop_epoch && done == p->stop_batch)
                return save(e, p);
        }
    }
    p->samples[r->index] = tri_engine_global_samples(e);
    p->steps[r->index] = tri_engine_global_steps(e);
    return tri_module_hash(tri_engine_module(e), &p->hash[r->index]);
}

static tri_status run_part(rank *r)
{
    part *p = (part *)(uintptr_t)r->arg;
    fit_samples samples;
    tri_engine *e = NULL;
    tri_status status;

    fit_samples_make(&samples, SAMPLES, 4);
    tri_rng_state_set(&(tri_rng){.seed = p->seed});
    status = tri_initialize(NULL, network(),
                            &(tri_initialize_options){.config = p->config,
                                                      .group = r->group,
                                                      .training_data = samples.dataset},
                            &e);
    if (status == TRI_OK)
        status = train(e, r, p);
    tri_step_end();
    tri_engine_destroy(e);
    tri_dataset_destroy(samples.dataset);
    return status;
}

static void run(part *p, int size)
{
    rank ranks[MAX_RANKS];

    ranks_succeed(ranks, size, run_part, p);
}

#define CONFIG(stage, more)                                                                        \
    "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 2,"                  \
    " \"gradient_clipping\": 1, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.01}},"  \
    " \"zero_optimization\": {\"stage\": " #stage                                                  \
    ", \"stage3_param_persistence_threshold\": 0}" more "}"

static const char *const configs[] = {
    CONFIG(0, ""),
    CONFIG(1, ""),
    CONFIG(2, ""),
    CONFIG(3, ""),
    CONFIG(3, ", \"fp16\": {\"enabled\": true, \"initial_scale_power\": 4}"),
    CONFIG(1, ", \"bf16\": {\"enabled\": true}")};

static void a_run_goes_on_with_the_next_batch_and_the_same_masks(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(configs); i++) {
        for (int size = 1; size <= 2; size++) {
            scratch s;
            part never = {.config = configs[i], .seed = 5}, stops = never, goes_on = never, other;

            scratch_begin(&s);
            run(&never, size);
            other = never;
            other.seed = 6;
            run(&other, size);
            assert_true(other.hash[0] != never.hash[0]); /* dropout has its say */
            stops.dir = goes_on.dir = s.dir;
            stops.stop_epoch = 1;
            stops.stop_batch = 4;
            run(&stops, size);
            goes_on.load = goes_on.dirty = true;
            goes_on.seed = 77;
            run(&goes_on, size);
            assert_int_equal(goes_on.first[0], 4);
            assert_true(goes_on.hash[0] == never.hash[0]);
            assert_int_equal(goes_on.samples[0], never.samples[0]);
            assert_int_equal(goes_on.steps[0], never.steps[0]);
            scratch_end(&s);
        }
    }
}

/* The epoch goes on after the samples that it had, in the same order. */
static void another_number_of_ranks_goes_on_with_the_samples_that_are_left(void **state)
{
    static const struct {
        int before, now;
    } ways[] = {{2, 3}, {2, 1}, {3, 1}, {1, 3}};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(ways); i++) {
        scratch s;
        part stops = {.config = configs[3], .seed = 5, .stop_epoch = 1}, goes_on = stops;

        scratch_begin(&s);
        stops.dir = goes_on.dir = s.dir;
        stops.stop_batch = 6;
        run(&stops, ways[i].before);
        goes_on.load = true;
        run(&goes_on, ways[i].now);
        for (int r = 0; r < ways[i].now; r++) {
            assert_int_equal(goes_on.first[r], 6 * ways[i].before / ways[i].now);
            assert_int_equal(goes_on.samples[r], EPOCHS * SAMPLES);
            assert_true(goes_on.hash[r] == goes_on.hash[0]);
        }
        scratch_end(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_run_goes_on_with_the_next_batch_and_the_same_masks),
    cmocka_unit_test(another_number_of_ranks_goes_on_with_the_samples_that_are_left),
};

TEST_MAIN(tests)
