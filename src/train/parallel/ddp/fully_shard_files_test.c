/* fully_shard_files_test.c - what a model that is sharded saves, loads, hashes and prints: the same
 * as tri_ddp's, for any number of ranks and one process. */
#include <trireme/torch_file.h>

#include "base/err.h"
#include "testing/ddp_ranks.h"
#include "testing/scratch.h"

typedef struct files {
    char whole[192], checkpoint[192];
    bool sharded;
} files;

static tri_module *model_of(const rank *r, bool sharded)
{
    if (sharded)
        return tri_fully_shard(mlp(1), &(tri_zero_options){.group = r->group,
                                                           .bucket_cap_bytes = 300,
                                                           .first_bucket_bytes = 300});
    return tri_ddp(mlp(1), &(tri_ddp_options){.group = r->group});
}

static tri_status train(tri_module *model, tri_optimizer *opt, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        tri_tensor *x = rows_of(x_data, IN, i % 8, 4), *y = rows_of(y_data, OUT, i % 8, 4);
        tri_status status;

        tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
        status = tri_optimizer_step(opt);
        if (status == TRI_OK)
            status = tri_step_end_status();
        tri_step_end();
        tri_tensor_unref(x);
        tri_tensor_unref(y);
        TRY(status);
    }
    return TRI_OK;
}

/* Ranks have equal batches, so that any number of them trains the same. */
static tri_status train_and_save(rank *r)
{
    const files *f = r->arg;
    tri_module *model = model_of(r, f->sharded);
    tri_optimizer *opt = tri_adam(model, 0.01, NULL);

    TRY(tri_optimizer_status(opt));
    TRY(train(model, opt, 0, 3));
    if (f->sharded || r->index == 0)
        TRY(tri_save(model, f->whole));
    if (f->sharded || r->index == 0)
        TRY(tri_checkpoint_save(f->checkpoint, model, opt, &(tri_checkpoint_info){.step = 3},
                                NULL));
    TRY(train(model, opt, 3, 3));
    TRY(tri_module_hash(model, &r->hash));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

/* Parameters from the file, all from the checkpoint: it goes on as the one that saved. */
static tri_status load_and_go_on(rank *r)
{
    const files *f = r->arg;
    tri_module *model = model_of(r, f->sharded);
    tri_optimizer *opt = tri_adam(model, 0.01, NULL);
    tri_checkpoint *checkpoint = NULL;
    uint64_t loaded = 0, restored = 0;
    tri_status status;

    TRY(tri_optimizer_status(opt));
    TRY(tri_load(model, f->whole, NULL));
    TRY(tri_module_hash(model, &loaded));
    TRY(train(model, opt, 0, 1)); /* the restore is to replace something */
    TRY(tri_checkpoint_open(f->checkpoint, &checkpoint));
    status = tri_checkpoint_restore(checkpoint, model, opt);
    tri_checkpoint_close(checkpoint);
    TRY(status);
    TRY(tri_module_hash(model, &restored));
    if (loaded != restored)
        return TRII_FAIL(TRI_ERR_INTERNAL, "the file and the checkpoint differ");
    TRY(train(model, opt, 3, 3));
    TRY(tri_module_hash(model, &r->hash));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void check_equal(const rank *ranks, int n, uint64_t hash)
{
    check_ranks(ranks, n);
    for (int r = 0; r < n; r++)
        if (ranks[r].hash != hash)
            fail_msg("rank %d of %d has other weights", r, n);
}

static void what_is_saved_goes_on_on_any_number_of_ranks(void **state)
{
    static const int sizes[] = {1, 2, 4};
    static rank ranks[MAX_RANKS];
    uint64_t hash = 0;

    (void)state;
    make_data();
    for (int by = 0; by < 2; by++) { /* saved by tri_ddp, and sharded */
        for (size_t i = 0; i < TRII_COUNT_OF(sizes); i++) {
            scratch s;
            files f = {.sharded = by == 1};

            scratch_begin(&s);
            snprintf(f.whole, sizeof(f.whole), "%s", scratch_path(&s, "whole.safetensors"));
            snprintf(f.checkpoint, sizeof(f.checkpoint), "%s", scratch_path(&s, "checkpoints"));
            run_ranks(ranks, sizes[i], train_and_save, &f);
            hash = hash != 0 ? hash : ranks[0].hash;
            check_equal(ranks, sizes[i], hash);
            for (int to = 0; to < 2; to++) {
                f.sharded = to == 1;
                run_ranks(ranks, sizes[(i + 1) % TRII_COUNT_OF(sizes)], load_and_go_on, &f);
                check_equal(ranks, sizes[(i + 1) % TRII_COUNT_OF(sizes)], hash);
            }
            scratch_end(&s);
        }
    }
}

/* --- failures ------------------------------------------------------------- */

static tri_status save_where_nothing_can_be(rank *r)
{
    tri_module *model = model_of(r, true);
    tri_status status = tri_save(model, "/nowhere/model.safetensors");
    char line[256];

    snprintf(line, sizeof(line), "%s", tri_last_error());
    if (status == TRI_OK || strstr(line, "/nowhere") == NULL)
        return TRII_FAIL(TRI_ERR_INTERNAL, "saved nowhere: %s", line);
    status = tri_load(model, r->index == 1 ? "/nowhere/model.safetensors" : "/dev/null", NULL);
    if (status == TRI_OK)
        return TRII_FAIL(TRI_ERR_INTERNAL, "loaded from nowhere");
    TRY(tri_module_hash(model, &r->hash)); /* it is sharded as before, and works */
    tri_module_destroy(model);
    return TRI_OK;
}

static void what_one_rank_cannot_do_fails_on_all(void **state)
{
    static rank ranks[3];

    (void)state;
    ranks_succeed(ranks, 3, save_where_nothing_can_be, NULL);
}

/* --- print ---------------------------------------------------------------- */

static tri_status print(rank *r)
{
    tri_module *model = model_of(r, true);
    /* The bucket of both has the bias first. */
    static const char *const wanted[2][2] = {
        {"f64 [8, 6], of which this rank has none (tri_unshard_begin makes it whole): tensor([]",
         "f64 [8], of which this rank has elements 0 to 7 (tri_unshard_begin makes it whole): "},
        {"f64 [8, 6], of which this rank has elements 0 to 47 (tri_unshard_begin makes it whole)",
         "f64 [8], of which this rank has none (tri_unshard_begin makes it whole): tensor([]"}};
    char text[4096];

    TRY(tri_module_status(model));
    for (int i = 0; i < 2; i++) {
        (void)tri_tensor_text(tri_module_state(model, i).tensor, text, sizeof(text));
        if (strstr(text, wanted[r->index][i]) != text)
            return TRII_FAIL(TRI_ERR_INTERNAL, "%.200s", text);
    }
    tri_module_destroy(model);
    return TRI_OK;
}

static void each_rank_prints_what_it_has(void **state)
{
    static rank ranks[2];

    (void)state;
    ranks_succeed(ranks, 2, print, NULL);
}

/* --- failures ------------------------------------------------------------- */

/* One rank's path is wrong, or the file of rank 0 cannot be written: all fail, and train on. */
static tri_status save_badly(rank *r)
{
    const files *f = r->arg;
    tri_module *model = model_of(r, true);
    tri_optimizer *opt = tri_adam(model, 0.01, NULL);
    const char *paths[] = {r->index == 1 ? NULL : f->whole, r->index == 0 ? "" : f->whole,
                           "/no-such-folder/x"};

    TRY(tri_optimizer_status(opt));
    for (size_t i = 0; i < TRII_COUNT_OF(paths); i++) {
        if (tri_save(model, paths[i]) == TRI_OK)
            return TRII_FAIL(TRI_ERR_INTERNAL, "save %d did not fail", (int)i);
        if (strstr(tri_last_error(), i == 0 ? "rank 1: tri_save" : "rank 0: ") == NULL)
            return TRII_FAIL(TRI_ERR_INTERNAL, "save %d: %s", (int)i, tri_last_error());
    }
    TRY(train(model, opt, 0, 1));
    TRY(tri_save(model, f->whole));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void a_save_that_fails_on_one_rank_fails_on_all(void **state)
{
    static rank ranks[2];
    files f = {.sharded = true};
    scratch s;

    (void)state;
    make_data();
    scratch_begin(&s);
    snprintf(f.whole, sizeof(f.whole), "%s", scratch_path(&s, "whole.safetensors"));
    ranks_succeed(ranks, 2, save_badly, &f);
    assert_int_equal(scratch_count(s.dir), 1);
    scratch_end(&s);
}

/* The last tensor of rank 1's file is damaged: no rank has any of it. */
static tri_status load_a_damaged_file(rank *r)
{
    const files *f = r->arg;
    tri_module *model = model_of(r, true);
    tri_optimizer *opt = tri_adam(model, 0.01, NULL);
    tri_torch_file *file;
    uint64_t before = 0, after = 0;
    tri_status status;

    TRY(tri_optimizer_status(opt));
    TRY(tri_torch_save(model, f->whole));
    TRY(train(model, opt, 0, 1)); /* loading is to replace something */
    TRY(tri_module_hash(model, &before));
    if (r->index == 1) {
        size_t n;
        char *bytes = scratch_read(f->whole, &n);
        FILE *damaged = fopen(f->checkpoint, "wb");

        TRY(tri_torch_open(f->whole, &file));
        bytes[tri_torch_at(file, tri_torch_count(file) - 1)->file_offset] ^= 1;
        tri_torch_close(file);
        if (damaged == NULL || fwrite(bytes, 1, n, damaged) != n || fclose(damaged) != 0)
            return TRII_FAIL(TRI_ERR_IO, "the damaged file");
        free(bytes);
    }
    status = tri_load(model, r->index == 1 ? f->checkpoint : f->whole,
                      &(tri_load_options){.prefix = ""});
    if (status != TRI_ERR_FORMAT || strstr(tri_last_error(), "are damaged") == NULL)
        return TRII_FAIL(TRI_ERR_INTERNAL, "loaded: %s", tri_last_error());
    TRY(tri_module_hash(model, &after));
    if (before != after)
        return TRII_FAIL(TRI_ERR_INTERNAL, "a part of the file is in the model");
    TRY(tri_load(model, f->whole, &(tri_load_options){.prefix = "", .partial = true}));
    TRY(train(model, opt, 0, 1));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

static void a_file_that_is_damaged_for_one_rank_changes_none(void **state)
{
    static rank ranks[2];
    files f;
    scratch s;

    (void)state;
    make_data();
    scratch_begin(&s);
    snprintf(f.whole, sizeof(f.whole), "%s", scratch_path(&s, "whole.pth"));
    snprintf(f.checkpoint, sizeof(f.checkpoint), "%s", scratch_path(&s, "damaged.pth"));
    ranks_succeed(ranks, 2, load_a_damaged_file, &f);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_saved_goes_on_on_any_number_of_ranks),
    cmocka_unit_test(what_one_rank_cannot_do_fails_on_all),
    cmocka_unit_test(each_rank_prints_what_it_has),
    cmocka_unit_test(a_save_that_fails_on_one_rank_fails_on_all),
    cmocka_unit_test(a_file_that_is_damaged_for_one_rank_changes_none),
};

TEST_MAIN(tests)
