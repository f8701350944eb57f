/*
 * sharding_complaints_test.c - what users of other systems have had to complain of when parameters,
 * gradients and states were divided over ranks, and what they get here. Each case names the issues;
 * owner/name#n is https://github.com/owner/name/issues/n.
 *
 * Of one process strategies_test.c, of the bits of tri_ddp tests/bits/zero_bits_test.sh and
 * zero_programs_test.c have many more compositions.
 */
/* ctest: start=first timeout=120 */
#include "strategies.h"
#include "testing/scratch.h"

/* --- models --------------------------------------------------------------- */

/* A batch takes one of two branches, both, or neither. */
typedef struct branches {
    tri_module *stem, *branch[2], *head;
} branches;

static _Thread_local int taken; /* a bit for each */

static tri_tensor *branches_forward(tri_module *self, tri_tensor *x)
{
    const branches *b = tri_module_data(self);

    x = tri_tanh(tri_forward(b->stem, x));
    for (int i = 0; i < 2; i++)
        if ((taken >> i & 1) != 0)
            x = tri_add(x, tri_forward(b->branch[i], x));
    return tri_forward(b->head, x);
}

static tri_module *branches_build(void)
{
    tri_module *self = tri_module_simple("Branches", sizeof(branches), branches_forward);
    branches *b = tri_module_data(self);

    b->stem = tri_module_add_child(self, "stem", tri_nn_linear(WIDTH, 12, NULL));
    b->branch[0] = tri_module_add_child(self, "branch0", tri_nn_linear(12, 12, NULL));
    b->branch[1] = tri_module_add_child(self, "branch1", tri_nn_linear(12, 12, NULL));
    b->head = tri_module_add_child(self, "head", tri_nn_linear(12, OUT, NULL));
    return self;
}

/* One layer's weights serve twice, and there is a parameter of one element. */
typedef struct tied {
    tri_module *first, *twice, *head;
    tri_tensor *scale;
} tied;

static tri_tensor *tied_forward(tri_module *self, tri_tensor *x)
{
    const tied *t = tri_module_data(self);

    x = tri_tanh(tri_forward(t->twice, tri_tanh(tri_forward(t->first, x))));
    return tri_forward(t->head, tri_mul(tri_tanh(tri_forward(t->twice, x)), t->scale));
}

static tri_module *tied_build(void)
{
    tri_module *self = tri_module_simple("Tied", sizeof(tied), tied_forward);
    tied *t = tri_module_data(self);

    t->first = tri_module_add_child(self, "first", tri_nn_linear(WIDTH, 12, NULL));
    t->twice = tri_module_add_child(self, "twice", tri_nn_linear(12, 12, NULL));
    t->head = tri_module_add_child(self, "head", tri_nn_linear(12, OUT, NULL));
    t->scale = tri_tensor_create((const int64_t[]){1}, 1, tri_default_dtype());
    tri_module_add_parameter(self, "scale", t->scale);
    if (tri_init_constant(t->scale, 0.7) != TRI_OK)
        tri_module_fail(self, TRI_ERR_INTERNAL, "no value");
    return self;
}

/* Each weight is as many blocks as there are ranks. */
static tri_module *wide_build(void)
{
    tri_module *net[7] = {tri_nn_linear(WIDTH, 128, NULL)};

    for (int i = 1; i < 6; i++)
        net[i] = tri_nn_linear(128, 128, NULL);
    net[6] = tri_nn_linear(128, OUT, NULL);
    return tri_nn_sequential_of(7, net);
}

static const kind wide = {.name = "wide layers", .build = wide_build};
static const kind branching = {.name = "branches", .build = branches_build};
static const kind tying = {.name = "tied layers", .build = tied_build};

/* --- training by a stage -------------------------------------------------- */

typedef struct watched {
    job j;
    double norms[MAX_RANKS][MAX_STEPS];
    tri_ddp_volume_stats volume[MAX_RANKS];
    tri_memory_stats memory[MAX_RANKS];
} watched;

/* One update; the norm is looked at where there is a clip. */
static tri_status step_and_look(trainer *t, watched *w, int step, double *loss_out)
{
    tri_tensor *norm;
    tri_status st;

    if (w->j.c.update != SGD_CLIP || w->j.c.gather != ONE_BATCH)
        return train_step(t, loss_out);
    *loss_out = 0;
    tri_backward(loss_of(t, rows_of(w->j.k, &w->j.c, t->rank, 0)));
    norm = tri_keep(tri_clip_grad_norm(t->opt, CLIP));
    st = tri_optimizer_step(t->opt);
    w->norms[t->rank][step] = tri_item(norm);
    return st == TRI_OK ? tri_step_end_status() : st;
}

static const char *watched_steps(rank_env *env, watched *w, trainer *t)
{
    JOB_TRY(env, &w->j, tri_module_status(t->model));
    t->opt = optimizer_of(&w->j.c, t->model);
    for (int step = 0; step < STEPS; step++) {
        double *loss = &w->j.ranks[env->rank].losses[step];

        taken = (step + env->rank) % 4;
        if (step == STEPS - 1 && w->j.c.place != TWO_GROUPS) /* buckets have their order by then */
            JOB_TRY(env, &w->j, tri_ddp_volume(t->model, &w->volume[env->rank]));
        JOB_TRY(env, &w->j, step_and_look(t, w, step, loss));
    }
    if (w->j.c.place != TWO_GROUPS)
        JOB_TRY(env, &w->j, tri_ddp_volume(t->model, &w->volume[env->rank]));
    JOB_TRY(env, &w->j, tri_memory(t->model, t->opt, NULL, &w->memory[env->rank]));
    if (w->j.k != &wide)
        JOB_TRY(env, &w->j, keep_result(t->model, &w->j.ranks[env->rank]));
    return NULL;
}

static const char *watched_main(rank_env *env)
{
    watched *w = env->arg;
    trainer t = {.j = &w->j, .rank = env->rank};
    tri_group *group = NULL;
    const char *failure;

    JOB_TRY(env, &w->j, tri_group_create(env->store, env->rank, env->size, NULL, &group));
    failure = composed(env, group, &w->j, &t.model);
    if (failure == NULL)
        failure = watched_steps(env, w, &t);
    tri_step_end();
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.model);
    tri_group_unref(group);
    return failure;
}

/* Trains by a stage; 0: tri_ddp. */
static void train(const kind *k, composition c, int stage, watched *w)
{
    *w = (watched){.j = {.k = k, .c = c}};
    w->j.c.zero = stage;
    if (stage == 0)
        w->j.c.replicas = 0;
    composition_text(k, &w->j.c, w->j.name, sizeof(w->j.name));
    run_threads(c.ranks, NULL, watched_main, w);
}

static void same_bits(const watched *a, const watched *b)
{
    for (int r = 0; r < b->j.c.ranks; r++)
        if (a->j.ranks[r].hash != b->j.ranks[r].hash)
            fail_msg("%s: rank %d has other bits than by %s", b->j.name, r, a->j.name);
}

/* Stages have the bits of tri_ddp. */
static void stages_have_the_same_bits(const kind *k, composition c, int last)
{
    static watched ddp, zero;

    train(k, c, 0, &ddp);
    for (int stage = 1; stage <= last; stage++) {
        train(k, c, stage, &zero);
        same_bits(&ddp, &zero);
    }
}

static void all_stages_have_the_same_bits(const kind *k, composition c)
{
    stages_have_the_same_bits(k, c, STAGES);
}

/* --- numbers -------------------------------------------------------------- */

/* deepspeedai/DeepSpeed#966, #757, #1488, #4298, pytorch/pytorch#98501: other losses and other
 * norms by each stage. */
static void every_stage_has_one_loss_and_one_norm(void **state)
{
    static watched ddp, zero;
    const composition c = {.ranks = 4, .update = SGD_CLIP, .small_buckets = true};

    (void)state;
    train(&gpt, c, 0, &ddp);
    for (int stage = 1; stage <= STAGES; stage++) {
        train(&gpt, c, stage, &zero);
        same_bits(&ddp, &zero);
        for (int r = 0; r < c.ranks; r++)
            for (int s = 0; s < STEPS; s++)
                assert_true(zero.norms[r][s] == ddp.norms[r][s]);
    }
}

/* pytorch/pytorch#170862, #180346, #153354, pytorch/torchtitan#766: another norm on each rank; and
 * clipping that is not that of one process. */
static void the_norm_is_that_of_one_process_on_every_rank(void **state)
{
    static watched alone, zero;
    const kind *const kinds[] = {&mlp, &gpt};

    (void)state;
    for (size_t k = 0; k < TRII_COUNT_OF(kinds); k++) {
        composition c = {.ranks = 1, .update = SGD_CLIP};

        train(kinds[k], c, 0, &alone);
        for (int stage = 1; stage <= STAGES; stage++) {
            for (int copies = 0; copies <= 2; copies += 2) {
                c = (composition){.ranks = 4, .update = SGD_CLIP, .replicas = copies};
                train(kinds[k], c, stage, &zero);
                for (int r = 0; r < c.ranks; r++)
                    for (int s = 0; s < STEPS; s++) {
                        assert_true(zero.norms[r][s] == zero.norms[0][s]);
                        CHECK_NEAR(zero.norms[r][s], alone.norms[0][s], BOUND);
                    }
            }
        }
    }
}

/* deepspeedai/DeepSpeed#6351: the size of a bucket changes what is learnt. */
static void the_size_of_buckets_changes_no_bit(void **state)
{
    static watched large, small;
    composition c = {.ranks = 3, .update = ADAMW_CLIP};

    (void)state;
    for (int stage = 1; stage <= STAGES; stage++) {
        c.small_buckets = false;
        train(&gpt, c, stage, &large);
        c.small_buckets = true;
        train(&gpt, c, stage, &small);
        same_bits(&large, &small);
    }
}

/* pytorch/pytorch#168058, #146190, NVIDIA/Megatron-LM#1736: masks of dropout depend on how the
 * parameters lie. */
static void dropout_does_not_depend_on_how_parameters_lie(void **state)
{
    (void)state;
    all_stages_have_the_same_bits(&dropout, (composition){.ranks = 4});
    all_stages_have_the_same_bits(&dropout,
                                  (composition){.ranks = 4, .replicas = 2, .small_buckets = true});
    all_stages_have_the_same_bits(&dropout, (composition){.ranks = 3, .recompute = true});
}

/* pytorch/torchtitan#1842, huggingface/transformers#24725, NVIDIA/Megatron-LM#936: batches of few
 * samples weigh as much as others; pytorch/pytorch#155903: and somebody has to divide by the number
 * of ranks. Rates and losses are those of one process here, however samples are divided. */
static void samples_weigh_alike_and_nobody_divides_by_ranks(void **state)
{
    static watched zero;
    static result alone;
    const kind *const kinds[] = {&mlp, &gpt};

    (void)state;
    for (size_t k = 0; k < TRII_COUNT_OF(kinds); k++) {
        for (int stage = 1; stage <= STAGES; stage++) {
            for (int ranks = 1; ranks <= 4; ranks *= 2) {
                /* One rank has one stage, and the large network is trained by as few as divide. */
                if ((ranks == 1 && stage > 1) || (ranks != 2 && kinds[k] == &gpt))
                    continue;
                for (int way = 0; way < 4; way++) {
                    const composition c = {
                        .ranks = ranks, .uneven = way & 1, .gather = way & 2 ? NO_SYNC : ONE_BATCH};

                    train(kinds[k], c, stage, &zero);
                    CHECK_OK(train_alone(kinds[k], &zero.j.c, &alone));
                    for (int i = 0; i < alone.n_state; i++)
                        CHECK_NEAR(zero.j.ranks[ranks - 1].state[i], alone.state[i], BOUND);
                }
            }
        }
    }
}

/* --- accumulation --------------------------------------------------------- */

/* deepspeedai/DeepSpeed#373, huggingface/accelerate#3877, pytorch/torchtitan#292,
 * pytorch/pytorch#196641: gradients that add up are refused, dropped, or sent each time. */
static void gradients_add_up_in_both_modes(void **state)
{
    static watched once, each, one;
    const composition base = {.ranks = 3, .update = ADAMW_CLIP};
    composition apart = base, together = base;

    (void)state;
    apart.gather = NO_SYNC;
    all_stages_have_the_same_bits(&gpt, apart);
    together.gather = TWO_BATCHES;
    all_stages_have_the_same_bits(&gpt, together);
    for (int stage = 1; stage <= STAGES; stage++) {
        train(&gpt, base, stage, &one);
        train(&gpt, apart, stage, &once);
        train(&gpt, together, stage, &each);
        /* tri_ddp_no_sync_begin saves what it is there for; without it gradients are sent twice. */
        assert_int_equal(once.volume[0].reduce_scatter, one.volume[0].reduce_scatter);
        assert_int_equal(each.volume[0].reduce_scatter, 2 * one.volume[0].reduce_scatter);
    }
}

/* --- memory and what is sent ---------------------------------------------- */

/* deepspeedai/DeepSpeed#1302, #724: stage 2 needs more memory than stage 1. A network of one
 * bucket, where it has no use, and one of many. */
static void no_stage_needs_more_than_the_one_before(void **state)
{
    static watched before, zero;
    const kind *const kinds[] = {&gpt, &wide};
    const int last = STAGES;

    (void)state;
    for (size_t k = 0; k < TRII_COUNT_OF(kinds); k++) {
        const composition c = {.ranks = 4, .update = ADAMW, .small_buckets = kinds[k] == &wide};

        train(kinds[k], c, 0, &before);
        for (int stage = 1; stage <= last; stage++) {
            train(kinds[k], c, stage, &zero);
            for (int r = 0; r < c.ranks; r++) {
                const tri_memory_stats *a = &before.memory[r], *b = &zero.memory[r];
                size_t had = a->total - a->values, has = b->total - b->values;

                if (has > (c.small_buckets ? had - had / 10 : had))
                    fail_msg("%s: rank %d keeps %zu bytes, stage %d %zu", zero.j.name, r, has,
                             stage - 1, had);
            }
            before = zero;
        }
    }
}

/* pytorch/pytorch#105635, #175406, NVIDIA-NeMo/Automodel#3373: what is computed again is gathered
 * again. */
static void recomputation_gathers_nothing_twice(void **state)
{
    static watched plain, recomputed;
    composition c = {.ranks = 3, .update = ADAMW};

    (void)state;
    for (int stage = 1; stage <= STAGES; stage++) {
        c.recompute = false;
        train(&gpt, c, stage, &plain);
        c.recompute = true;
        train(&gpt, c, stage, &recomputed);
        same_bits(&plain, &recomputed);
        assert_int_equal(recomputed.volume[0].all_gather, plain.volume[0].all_gather);
        assert_int_equal(recomputed.volume[0].reduce_scatter, plain.volume[0].reduce_scatter);
    }
}

/* --- models that others refuse -------------------------------------------- */

/* deepspeedai/DeepSpeed#4966, #5828, #7998, pytorch/pytorch#158719: ranks whose batches take other
 * branches wait for each other for ever. */
static void ranks_may_take_other_branches(void **state)
{
    static const composition ways[] = {{.update = ADAMW},
                                       {.small_buckets = true, .gather = NO_SYNC, .uneven = true}};
    const int last = STAGES < 2 ? STAGES : 2; /* stage 3 fails, and says which forward differs */

    (void)state;
    for (size_t w = 0; w < TRII_COUNT_OF(ways); w++) {
        for (int ranks = 2; ranks <= 4; ranks++) {
            composition c = ways[w];

            c.ranks = ranks;
            stages_have_the_same_bits(&branching, c, last);
        }
    }
    stages_have_the_same_bits(&branching,
                              (composition){.ranks = 4, .replicas = 2, .update = SGD_CLIP}, last);
}

/* pytorch/pytorch#51931, pytorch/PiPPy#32, pytorch/torchtitan#1524, #2252: tied weights train
 * apart.
 */
static void tied_weights_stay_tied(void **state)
{
    static watched zero;
    static result alone;

    (void)state;
    for (int stage = 1; stage <= STAGES; stage++) {
        for (int ranks = 2; ranks <= 4; ranks++) {
            const composition c = {
                .ranks = ranks, .update = ADAMW_CLIP, .small_buckets = ranks == 3};

            train(&tying, c, stage, &zero);
            CHECK_OK(train_alone(&tying, &zero.j.c, &alone));
            assert_int_equal(zero.j.ranks[0].n_state, alone.n_state);
            for (int i = 0; i < alone.n_state; i++)
                CHECK_NEAR(zero.j.ranks[0].state[i], alone.state[i], BOUND);
        }
    }
}

static const char *shapes_main(rank_env *env)
{
    const int *stage = env->arg;
    job j = {.k = &gpt, .c = {.ranks = env->size, .zero = *stage}, .name = "shapes"};
    tri_module *plain = build(&gpt, NULL), *model = NULL;
    tri_group *group = NULL;
    const char *failure;

    JOB_TRY(env, &j, tri_group_create(env->store, env->rank, env->size, NULL, &group));
    failure = composed(env, group, &j, &model);
    if (failure == NULL && (tri_module_state_count(model) != tri_module_state_count(plain) ||
                            tri_module_parameter_count(model) != tri_module_parameter_count(plain)))
        failure = RANK_FAIL(env, "another number of parameters");
    for (int64_t i = 0; failure == NULL && i < tri_module_state_count(plain); i++) {
        tri_state_entry a = tri_module_state(plain, i), b = tri_module_state(model, i);

        if (strcmp(a.name, b.name) != 0 || tri_tensor_ndim(a.tensor) != tri_tensor_ndim(b.tensor))
            failure = RANK_FAIL(env, "%s is %s", a.name, b.name);
        for (int d = 0; failure == NULL && d < tri_tensor_ndim(a.tensor); d++)
            if (tri_tensor_size(a.tensor, d) != tri_tensor_size(b.tensor, d))
                failure = RANK_FAIL(env, "another size of %s", a.name);
    }
    tri_step_end();
    tri_module_destroy(model);
    tri_module_destroy(plain);
    tri_group_unref(group);
    return failure;
}

/* deepspeedai/DeepSpeed#3574, huggingface/transformers#20082, Lightning-AI/pytorch-lightning#18648:
 * a parameter that is divided has shape [0]. */
static void shapes_stay_those_of_whole_parameters(void **state)
{
    (void)state;
    for (int stage = 1; stage <= STAGES; stage++)
        run_threads(3, NULL, shapes_main, &stage);
}

/* --- going on with other ranks -------------------------------------------- */

typedef struct part_of_run {
    job j;
    const char *folder;
    int first, last;
} part_of_run;

static tri_status go_on(const part_of_run *p, trainer *t)
{
    tri_checkpoint *checkpoint;
    tri_status st;

    if (p->first == 0)
        return TRI_OK;
    st = tri_checkpoint_open(p->folder, &checkpoint);
    if (st == TRI_OK) {
        st = tri_checkpoint_restore(checkpoint, t->model, t->opt);
        tri_checkpoint_close(checkpoint);
    }
    return st;
}

static const char *run_part(rank_env *env, part_of_run *p, trainer *t)
{
    double loss;

    t->opt = optimizer_of(&p->j.c, t->model);
    JOB_TRY(env, &p->j, go_on(p, t));
    for (int step = p->first; step < p->last; step++)
        JOB_TRY(env, &p->j, train_step(t, &loss));
    if (p->j.c.zero > 0 || env->rank == 0)
        JOB_TRY(env, &p->j,
                tri_checkpoint_save(p->folder, t->model, t->opt,
                                    &(tri_checkpoint_info){.step = p->last}, NULL));
    JOB_TRY(env, &p->j, keep_result(t->model, &p->j.ranks[env->rank]));
    JOB_TRY(env, &p->j, ranks_meet(env, "saved", -1));
    return NULL;
}

static const char *part_main(rank_env *env)
{
    part_of_run *p = env->arg;
    trainer t = {.j = &p->j, .rank = env->rank};
    tri_group *group = NULL;
    const char *failure;

    if (p->j.c.ranks > 0)
        JOB_TRY(env, &p->j, tri_group_create(env->store, env->rank, env->size, NULL, &group));
    failure = composed(env, group, &p->j, &t.model);
    if (failure == NULL)
        failure = run_part(env, p, &t);
    tri_step_end();
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.model);
    tri_group_unref(group);
    return failure;
}

/* Trains a part of the steps on so many ranks (0: one process, without a strategy), from the
 * checkpoint before it if it is not the first; the hash that all ranks end with. */
static uint64_t train_part(const char *folder, int ranks, int stage, int first, int last)
{
    static part_of_run p;

    p = (part_of_run){.folder = folder, .first = first, .last = last};
    p.j = (job){.k = &gpt,
                .c = {.ranks = ranks, .zero = ranks > 0 ? stage : 0, .update = ADAMW_CLIP},
                .name = "a part"};
    run_threads(ranks > 0 ? ranks : 1, NULL, part_main, &p);
    return p.j.ranks[0].hash;
}

/* On `ranks[0]`, `ranks[1]` and `ranks[2]`, each going on from what the one before saved. */
static uint64_t train_in_parts(const int *ranks, int stage)
{
    uint64_t hash = 0;
    scratch folder;

    scratch_begin(&folder);
    for (int i = 0; i < 3; i++)
        hash = train_part(folder.dir, ranks[i], stage, i, i + 1);
    scratch_end(&folder);
    return hash;
}

/* deepspeedai/DeepSpeed#2898, #3810, #2921, #5405: a run cannot go on with another number of ranks.
 */
static void another_number_of_ranks_goes_on(void **state)
{
    static const int ways[][3] = {{4, 2, 3}, {2, 4, 0}, {3, 1, 4}, {0, 4, 2}};

    (void)state;
    for (size_t w = 0; w < TRII_COUNT_OF(ways); w++) {
        uint64_t ddp = train_in_parts(ways[w], 0);

        for (int stage = 1; stage <= STAGES; stage++)
            if (train_in_parts(ways[w], stage) != ddp)
                fail_msg("stage %d on %d, %d and %d ranks", stage, ways[w][0], ways[w][1],
                         ways[w][2]);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_stage_has_one_loss_and_one_norm),
    cmocka_unit_test(the_norm_is_that_of_one_process_on_every_rank),
    cmocka_unit_test(the_size_of_buckets_changes_no_bit),
    cmocka_unit_test(dropout_does_not_depend_on_how_parameters_lie),
    cmocka_unit_test(samples_weigh_alike_and_nobody_divides_by_ranks),
    cmocka_unit_test(gradients_add_up_in_both_modes),
    cmocka_unit_test(no_stage_needs_more_than_the_one_before),
    cmocka_unit_test(recomputation_gathers_nothing_twice),
    cmocka_unit_test(ranks_may_take_other_branches),
    cmocka_unit_test(tied_weights_stay_tied),
    cmocka_unit_test(shapes_stay_those_of_whole_parameters),
    cmocka_unit_test(another_number_of_ranks_goes_on),
};

TEST_MAIN(tests)
