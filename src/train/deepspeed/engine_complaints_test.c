/*
 * engine_complaints_test.c - what users of DeepSpeed and of other trainers have had to complain of
 * around checkpoints and configurations, and what they get here. Each case names the issues;
 * owner/name#n is https://github.com/owner/name/issues/n. What other tests hold:
 *
 * - deepspeedai/DeepSpeed#2898, #3810, #6441, #2921, another number of ranks:
 *   engine_checkpoint_test.c, sharding_complaints_test.c
 * - Lightning-AI/pytorch-lightning#1182, #19764, #19815, pytorch/pytorch#36650, a run that goes on
 *   within an epoch: engine_resume_test.c
 * - zai-org/ChatGLM-6B#1166, hiyouga/LlamaFactory#6208, #10280, a full disk:
 *   engine_folder_test.c; a kill: killed_savers_test.c
 * - deepspeedai/DeepSpeed#7439, micro-batches that are left over: engine_scale_test.c
 * - deepspeedai/DeepSpeed#8489, keys that were removed: config_wrong_test.c
 * - deepspeedai/DeepSpeed#8500, checkpoints with code in them: weight_folders_test.c,
 *   torch_file_test.c
 */
#include "testing/engine_ranks.h"

#define CONFIG(stage, more)                                                                        \
    "{\"train_micro_batch_size_per_gpu\": 4, \"optimizer\": {\"type\": \"Adam\","                  \
    " \"params\": {\"lr\": 0.01}}, \"zero_optimization\": {\"stage\": " #stage                     \
    ", \"stage3_param_persistence_threshold\": 0}" more "}"

/* --- who saves ------------------------------------------------------------ */

/* As a program has it that saves on rank 0 alone; impatient, as no other case is. */
static tri_status save_on_rank_0(tri_engine *e, rank *r, void *arg)
{
    TRY(engine_micro_steps(e, r, 0, 1));
    tri_group_set_timeout(r->group, 500);
    if (r->index == 0)
        TRY(tri_engine_save_checkpoint(e, arg, NULL, NULL, 0));
    return engine_micro_steps(e, r, 1, 1);
}

/* deepspeedai/DeepSpeed#797, #801, #2993, #942: a save inside of "if rank == 0" hangs. */
static void a_save_on_one_rank_alone_is_an_error(void **state)
{
    static const char *const configs[] = {CONFIG(0, ""), CONFIG(2, ""), CONFIG(3, "")};

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(configs); i++) {
        rank ranks[MAX_RANKS];
        scratch s;

        scratch_begin(&s);
        run_engines(ranks, 2, configs[i], save_on_rank_0, s.dir);
        for (int r = 0; r < 2; r++) {
            assert_true(ranks[r].status < 0);
            if (strstr(ranks[r].line, r == 0 ? "rank 1" : "rank 0") == NULL)
                fail_msg("%s", ranks[r].line);
        }
        assert_non_null(strstr(ranks[0].line, "tri_engine_save_checkpoint"));
        scratch_end(&s);
    }
}

/* --- what is in a checkpoint ---------------------------------------------- */

/* The weights of the first layer serve twice. */
typedef struct tied {
    tri_module *layer, *head;
} tied;

static tri_tensor *tied_forward(tri_module *self, tri_tensor *x)
{
    const tied *t = tri_module_data(self);

    x = tri_tanh(tri_forward(t->layer, tri_tanh(tri_forward(t->layer, x))));
    return tri_forward(t->head, x);
}

static tri_module *tied_build(void)
{
    tri_module *self = tri_module_simple("Tied", sizeof(tied), tied_forward);
    tied *t = tri_module_data(self);

    t->layer = tri_module_add_child(self, "layer", tri_nn_linear(FIT_IN, FIT_IN, NULL));
    t->head = tri_module_add_child(self, "head", tri_nn_linear(FIT_IN, FIT_OUT, NULL));
    return self;
}

static const char *tied_dir;
static uint64_t tied_hash[MAX_RANKS];

static tri_status save_tied(rank *r)
{
    tri_engine *e = NULL;
    tri_status status;

    TRY(tri_initialize(NULL, tied_build(),
                       &(tri_initialize_options){.config = CONFIG(3, ""), .group = r->group}, &e));
    status = engine_micro_steps(e, r, 0, 3);
    if (status == TRI_OK)
        status = tri_engine_save_checkpoint(e, tied_dir, "tied", NULL, 0);
    if (status == TRI_OK)
        status = tri_module_hash(tri_engine_module(e), &tied_hash[r->index]);
    tri_step_end();
    tri_engine_destroy(e);
    return status;
}

/* deepspeedai/DeepSpeed#1896, #3824, #1317, #1009, #3033: weights have to be made whole by a
 * script, which forgets tied ones; Lightning-AI/pytorch-lightning#18648,
 * huggingface/transformers#20082: they have shape [0] under stage 3. */
static void whole_weights_come_out_of_stage_3(void **state)
{
    tri_module *plain = tied_build();
    rank ranks[MAX_RANKS];
    tri_checkpoint *c;
    uint64_t hash;
    scratch s;

    (void)state;
    scratch_begin(&s);
    tied_dir = s.dir;
    ranks_succeed(ranks, 2, save_tied, NULL);
    CHECK_OK(tri_checkpoint_open(scratch_path(&s, "tied"), &c));
    CHECK_OK(tri_checkpoint_restore(c, plain, NULL));
    CHECK_OK(tri_module_hash(plain, &hash));
    assert_true(hash == tied_hash[0] && hash == tied_hash[1]);
    tri_checkpoint_close(c);
    tri_module_destroy(plain);
    scratch_end(&s);
}

/* --- defaults ------------------------------------------------------------- */

static tri_status save_and_load(tri_engine *e, rank *r, void *arg)
{
    const char *const *dirs = arg; /* to save into, to load from */

    if (dirs[0] != NULL)
        return tri_engine_save_checkpoint(e, dirs[0], NULL, NULL, 0);
    (void)r;
    return tri_engine_load_checkpoint(e, dirs[1], NULL, NULL);
}

/* deepspeedai/DeepSpeed#8068: a default was another one after an update, and nobody was told. A
 * checkpoint has what the configuration was, and what differs is said, once. */
static void values_that_have_changed_are_named_at_a_load(void **state)
{
    rank ranks[MAX_RANKS];
    scratch s;
    const char *dirs[2] = {NULL, NULL};
    size_t bytes;
    char *said;

    (void)state;
    scratch_begin(&s);
    dirs[0] = s.dir;
    run_engines(ranks, 2, CONFIG(0, ", \"gradient_clipping\": 0"), save_and_load, dirs);
    check_ranks(ranks, 2);
    dirs[1] = dirs[0];
    dirs[0] = NULL;
    assert_non_null(freopen(scratch_path(&s, "stderr"), "w", stderr));
    run_engines(ranks, 2, CONFIG(2, ""), save_and_load, dirs);
    fflush(stderr);
    said = scratch_read(scratch_path(&s, "stderr"), &bytes);
    check_ranks(ranks, 2);
    for (int i = 0; i < 2; i++) {
        const char *line = i == 0 ? "gradient_clipping is 1.0 now, 0 when it was saved"
                                  : "zero_optimization.stage is 2 now, 0 when it was saved";
        const char *at = strstr(said, line);

        if (at == NULL || strstr(at + 1, line) != NULL)
            fail_msg("%s", said);
    }
    assert_null(strstr(said, "optimizer.type"));
    free(said);
    scratch_end(&s);
}

/* --- the first rates ------------------------------------------------------ */

/* deepspeedai/DeepSpeed#6569, #7303, #5287, huggingface/accelerate#2124: a warm-up's first update
 * has the optimizer's whole rate, or 0; and WarmupLR ends at 0.001, whatever the optimizer has. */
static void a_warm_up_begins_where_it_says_and_ends_at_the_rate_of_the_optimizer(void **state)
{
    static const char *const from[] = {"", ", \"count_from\": 1"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        char config[512];
        lone_engine l;

        snprintf(config, sizeof(config),
                 CONFIG(0, ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\":"
                           " {\"warmup_num_steps\": 4, \"warmup_type\": \"linear\"%s}}"),
                 from[i]);
        lone_engine_begin(&l, config);
        assert_true(tri_engine_lr(l.e) == (i == 0 ? 0 : 0.0025));
        CHECK_OK(engine_micro_steps(l.e, &l.r, 0, 8));
        assert_true(tri_engine_lr(l.e) == 0.01);
        lone_engine_end(&l);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_save_on_one_rank_alone_is_an_error),
    cmocka_unit_test(whole_weights_come_out_of_stage_3),
    cmocka_unit_test(values_that_have_changed_are_named_at_a_load),
    cmocka_unit_test(a_warm_up_begins_where_it_says_and_ends_at_the_rate_of_the_optimizer),
};

TEST_MAIN(tests)
