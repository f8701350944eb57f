/*
 * save_by_all_test.c - a checkpoint that all ranks save (tri_checkpoint_save_options.all_ranks):
 * one program for every strategy, whatever that has divided.
 */
#include "base/err.h"
#include "testing/ddp_ranks.h"
#include "testing/scratch.h"

typedef enum strategy { DDP, ZERO1, ZERO2, ZERO3, HSDP, STRATEGIES } strategy;

typedef struct way {
    const char *folder, *no_folder;
    strategy strategy;
    bool adam, async; /* else SGD without momentum, which has no state to be divided */
} way;

static tri_status model_make(const rank *r, strategy how, tri_module **model_out)
{
    tri_mesh *mesh = NULL;

    if (how == HSDP)
        TRY(tri_mesh_create(r->group, TRI_SHAPE(2, r->size / 2),
                            (const char *[]){"copies", "parts"}, &mesh));
    if (how == DDP)
        *model_out = tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
    else
        *model_out = tri_zero(mlp(1), &(tri_zero_options){.group = mesh == NULL ? r->group : NULL,
                                                          .mesh = mesh,
                                                          .stage = how == HSDP ? 3 : how - DDP});
    tri_mesh_destroy(mesh);
    return tri_module_status(*model_out);
}

static tri_optimizer *optimizer_make(const way *w, tri_module *model)
{
    return w->adam ? tri_adam(model, 0.01, NULL) : tri_sgd(model, 0.1, NULL);
}

static tri_status train(tri_module *model, tri_optimizer *opt, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        tri_tensor *x = rows_of(x_data, IN, i % 8, 4), *y = rows_of(y_data, OUT, i % 8, 4);
        tri_status status;

        tri_step_end();
        tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        status = tri_optimizer_step(opt);
        tri_tensor_unref(x);
        tri_tensor_unref(y);
        TRY(status);
    }
    return TRI_OK;
}

static tri_status expect(tri_status status, tri_status wanted, const char *line)
{
    if (status != wanted || strstr(tri_last_error(), line) == NULL)
        return TRII_FAIL(TRI_ERR_INTERNAL, "%s instead of %s with \"%s\": %s",
                         tri_status_name(status), tri_status_name(wanted), line, tri_last_error());
    return TRI_OK;
}

/* What is wrong on one rank all are told. */
static tri_status fail_to_save(const rank *r, tri_module *model, tri_optimizer *opt)
{
    const tri_checkpoint_save_options all = {.all_ranks = true};
    const way *w = r->arg;
    const char *because = r->size > 1 ? "rank 0: " : "";

    TRY(expect(
        tri_checkpoint_save(w->no_folder, model, opt, &(tri_checkpoint_info){.step = 9}, &all),
        TRI_ERR_IO, because));
    TRY(expect(tri_checkpoint_save(
                   w->folder, model, opt,
                   r->index == r->size - 1 ? NULL : &(tri_checkpoint_info){.step = 9}, &all),
               TRI_ERR_INVALID_ARG, "info is NULL"));
    if (r->size > 1)
        TRY(expect(tri_checkpoint_save(w->folder, model, opt,
                                       &(tri_checkpoint_info){.step = 8 + (r->index == 0)}, &all),
                   TRI_ERR_MISMATCH, "one saves 8, one 9"));
    return TRI_OK;
}

static tri_status save(const rank *r, tri_module *model, tri_optimizer *opt)
{
    const tri_checkpoint_save_options all = {.all_ranks = true};
    const tri_checkpoint_info info = {.step = 3};
    const way *w = r->arg;
    tri_checkpoint_writer *writer;
    tri_status status;

    if (!w->async)
        return tri_checkpoint_save(w->folder, model, opt, &info, &all);
    TRY(tri_checkpoint_writer_create(w->folder, &writer));
    status = tri_checkpoint_writer_save(writer, model, opt, &info, &all);
    if (status == TRI_OK)
        status = tri_checkpoint_writer_wait(writer);
    tri_checkpoint_writer_destroy(writer);
    TRY(status);
    TRY(tri_checkpoint_writer_create(w->no_folder, &writer));
    status = tri_checkpoint_writer_save(writer, model, opt, &info, &all);
    if (status == TRI_OK)
        status =
            expect(tri_checkpoint_writer_wait(writer), TRI_ERR_IO, r->size > 1 ? "rank 0: " : "");
    tri_checkpoint_writer_destroy(writer);
    return status;
}

static tri_status train_and_save(rank *r)
{
    const way *w = r->arg;
    tri_optimizer *opt;
    tri_module *model;
    tri_tensor *counts;
    tri_status status;

    TRY(model_make(r, w->strategy, &model));
    opt = optimizer_make(w, model);
    TRY(train(model, opt, 0, 3));
    counts = tri_ones(TRI_SHAPE(3), TRI_DTYPE_F32);
    (void)tri_dist_all_reduce(counts, TRI_REDOP_SUM, r->group); /* the save is to run it */
    status = save(r, model, opt);
    tri_tensor_unref(counts);
    if (status == TRI_OK)
        status = train(model, opt, 3, 1);
    if (status == TRI_OK)
        status = fail_to_save(r, model, opt);
    if (status == TRI_OK)
        status = tri_module_hash(model, &r->hash);
    tri_step_end();
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return status;
}

/* In one process, from what all ranks have saved; nothing else has been left there. */
static uint64_t go_on(const way *w)
{
    tri_module *model = mlp(2);
    tri_optimizer *opt = optimizer_make(w, model);
    tri_checkpoint *checkpoint;
    uint64_t hash = 0;

    CHECK_OK(tri_checkpoint_open(w->folder, &checkpoint));
    assert_int_equal(tri_checkpoint_step(checkpoint), 3);
    CHECK_OK(tri_checkpoint_restore(checkpoint, model, opt));
    tri_checkpoint_close(checkpoint);
    CHECK_OK(train(model, opt, 3, 1));
    CHECK_OK(tri_module_hash(model, &hash));
    tri_step_end();
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return hash;
}

static void check(way w, int size)
{
    static rank ranks[MAX_RANKS];
    char folder[192];
    uint64_t hash;
    scratch s;

    scratch_begin(&s);
    snprintf(folder, sizeof(folder), "%s", scratch_path(&s, "checkpoints"));
    w.folder = folder;
    w.no_folder = "/dev/null/checkpoints";
    ranks_succeed(ranks, size, train_and_save, &w);
    hash = go_on(&w);
    for (int r = 0; r < size; r++)
        if (ranks[r].hash != hash)
            fail_msg("strategy %d, %s: rank %d of %d has other weights", (int)w.strategy,
                     w.adam ? "Adam" : "SGD", r, size);
    scratch_end(&s);
}

static void every_strategy_saves_by_one_program(void **state)
{
    (void)state;
    make_data();
    for (strategy how = DDP; how < STRATEGIES; how++) {
        check((way){.strategy = how}, how == HSDP ? 4 : 2);
        check((way){.strategy = how, .adam = true}, 4);
        check((way){.strategy = how, .adam = how % 2 != 0, .async = true}, how == HSDP ? 4 : 2);
    }
    check((way){.strategy = DDP}, 1);
    check((way){.strategy = ZERO3, .async = true}, 1);
}

/* A process alone has no world. */
static void one_process_may_ask_for_all_ranks(void **state)
{
    const tri_checkpoint_save_options all = {.all_ranks = true};
    tri_module *net = mlp(1);
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_checkpoint_save(s.dir, net, NULL, &(tri_checkpoint_info){.step = 1}, &all));
    CHECK_FAILS(tri_checkpoint_save("/dev/null/checkpoints", net, NULL,
                                    &(tri_checkpoint_info){.step = 1}, &all),
                TRI_ERR_IO, "/dev/null");
    scratch_end(&s);
    tri_module_destroy(net);
}

static tri_status save_replicas(int index, void *folder)
{
    const tri_checkpoint_save_options all = {.all_ranks = true};
    const tri_checkpoint_info info = {.step = 1};
    tri_module *net;

    TRY(tri_init(NULL));
    net = mlp(1);
    TRY(tri_checkpoint_save(folder, net, NULL, &info, &all));
    TRY(tri_barrier(NULL, NULL));
    TRY(expect(tri_checkpoint_save("/dev/null/checkpoints", net, NULL, &info, &all), TRI_ERR_IO,
               "rank 0: "));
    tri_module_destroy(net);
    return index == tri_rank() ? TRI_OK : TRI_ERR_INTERNAL;
}

static void a_world_without_a_strategy_saves_together(void **state)
{
    const tri_spawn_options copies = {.how = TRI_SPAWN_COPY};
    tri_checkpoint *checkpoint;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_spawn(save_replicas, s.dir, 3, &copies));
    CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
    tri_checkpoint_close(checkpoint);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_strategy_saves_by_one_program),
    cmocka_unit_test(a_world_without_a_strategy_saves_together),
    cmocka_unit_test(one_process_may_ask_for_all_ranks),
};
TEST_MAIN(tests)
