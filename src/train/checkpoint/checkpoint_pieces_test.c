/* checkpoint_pieces_test.c - tensors that ranks have in pieces: saved by some number of ranks, read
 * by any other, with the same bits. */
/* ctest: program=own */
#include <errno.h>
#include <stdatomic.h>

#include <trireme/optim.h>

#include "base/alloc.h"
#include "testing/divided_state.h"
#include "testing/ranks.h"
#include "testing/scratch.h"
#include "train/checkpoint/pieces.h"

static _Thread_local bool disk_is_full; /* of this rank */

/* In place of libc's. */
int fsync(int fd)
{
    if (disk_is_full) {
        errno = ENOSPC;
        return -1;
    }
    return fdatasync(fd);
}

/* What is wrong on rank 1. */
typedef enum mistake {
    NO_MISTAKE,
    DISK_IS_FULL,
    OTHER_STEP,
    OTHER_FOLDER, /* a host of its own, without the others' disk */
    OTHER_GROUP,  /* of one tensor */
    OTHER_SHAPE,
    HOLE,
    OVERLAP,
    TOO_FEW, /* elements are in the tensor */
    OUTSIDE  /* of the whole */
} mistake;

/* What all ranks save. */
typedef struct plan {
    const char *folder;
    divided_how how;
    int round; /* of the contents, and the step */
    mistake mistake;
    const char *other_folder;
    tri_status status;
    const char *line; /* of the failure */
} plan;

enum { NUMBERS = 6 }; /* the tensor that is wrong: 12 elements, 4 on each of 3 ranks */

static void take(divided_state *s, int64_t start, int64_t count, int64_t in_tensor)
{
    tri_tensor_unref(s->entries[NUMBERS].tensor);
    s->held[NUMBERS].piece = trii_piece_range(start, count);
    s->entries[NUMBERS].tensor = tri_tensor_create(&in_tensor, 1, TRI_DTYPE_I64);
    s->entries[NUMBERS].tensor->held = &s->held[NUMBERS];
}

static void make_mistake(mistake m, divided_state *s, plan *p)
{
    switch (m) {
    case DISK_IS_FULL:
        disk_is_full = true;
        break;
    case OTHER_STEP:
        p->round += 100;
        break;
    case OTHER_FOLDER:
        p->folder = p->other_folder;
        break;
    case OTHER_GROUP:
        s->held[NUMBERS].group = NULL;
        break;
    case OTHER_SHAPE:
        memcpy(s->held[NUMBERS].shape, (int64_t[]){2, 2, 3}, 3 * sizeof(int64_t));
        break;
    case HOLE:
        take(s, 4, 3, 3);
        break;
    case OVERLAP:
        take(s, 3, 5, 5);
        break;
    case TOO_FEW:
        take(s, 4, 4, 3);
        break;
    case OUTSIDE:
        take(s, 9, 4, 4);
        break;
    default:
        break;
    }
}

static const char *save_all(rank_env *env, plan p, divided_state *s)
{
    tri_module *net = tri_nn_linear(3, 2, NULL);
    tri_checkpoint_info info = {.extras = &s->extra, .n_extras = 1};
    tri_status status;

    RANK_TRY(env, divided_fill(s, p.round));
    if (env->rank == 1)
        make_mistake(p.mistake, s, &p);
    for (int64_t i = 0; i < tri_module_state_count(net); i++)
        RANK_TRY(env, tri_init_constant(tri_module_state(net, i).tensor, p.round));
    info.step = p.round;
    status = tri_checkpoint_save(p.folder, net, NULL, &info, NULL);
    disk_is_full = false;
    tri_module_destroy(net);
    if (status != p.status || (status != TRI_OK && strstr(tri_last_error(), p.line) == NULL))
        return RANK_FAIL(env, "rank %d: %s: %s", env->rank, tri_status_name(status),
                         tri_last_error());
    return NULL;
}

static const char *save_rank(rank_env *env)
{
    const plan *p = env->arg;
    const char *failure;
    divided_state s;
    tri_group *group;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    divided_begin(&s, group, env->rank, env->size, p->how);
    failure = save_all(env, *p, &s);
    divided_end(&s);
    tri_group_unref(group);
    return failure;
}

static void save(const char *folder, int size, divided_how how, int round)
{
    run_threads(size, NULL, save_rank, &(plan){.folder = folder, .how = how, .round = round});
}

/* As each of `size` ranks. */
static void check_loaded(const tri_checkpoint *checkpoint, int size, divided_how how, int round)
{
    for (int r = 0; r < size; r++) {
        divided_state s;
        const char *differs;

        divided_begin(&s, NULL, r, size, how);
        CHECK_OK(tri_checkpoint_restore_extra(checkpoint, "divided", s.entries, DIVIDED_TENSORS));
        differs = divided_differs(&s, round);
        if (differs != NULL)
            fail_msg("rank %d of %d, divided by %d: %s", r, size, how, differs);
        divided_end(&s);
    }
}

static void any_number_of_ranks_reads_what_any_other_saved(void **state)
{
    static const int sizes[] = {1, 2, 3, 4, 7, 8};
    long live = 0;
    int round = 0;
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int i = 0; i < 6; i++) {
        for (int how = 0; how < DIVIDED_KINDS; how++) {
            tri_checkpoint *checkpoint;

            save(s.dir, sizes[i], (divided_how)how, ++round);
            CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
            assert_int_equal(tri_checkpoint_step(checkpoint), round);
            check_loaded(checkpoint, 1, DIVIDED_NOT, round);
            for (int k = 0; k < 6; k++) {
                if (TEST_SANITIZED && k != (i + how) % 6)
                    continue;
                for (int as = 0; as < DIVIDED_KINDS; as++)
                    check_loaded(checkpoint, sizes[k], (divided_how)as, round);
            }
            tri_checkpoint_close(checkpoint);
            live = round == 1 ? trii_alloc_live() : live; /* this thread has its context now */
        }
    }
    assert_int_equal(scratch_count(s.dir), 3);
    assert_int_equal(trii_alloc_live(), live);
    scratch_end(&s);
}

/* One process saves whole tensors, as ever, in a format that earlier releases read. */
static void what_is_whole_is_read_by_pieces(void **state)
{
    tri_module *net = tri_nn_linear(3, 2, NULL);
    tri_checkpoint *checkpoint;
    divided_state d;
    size_t n;
    char *manifest;
    scratch s;

    (void)state;
    scratch_begin(&s);
    divided_begin(&d, NULL, 0, 1, DIVIDED_NOT);
    CHECK_OK(divided_fill(&d, 1));
    CHECK_OK(tri_checkpoint_save(
        s.dir, net, NULL, &(tri_checkpoint_info){.step = 1, .extras = &d.extra, .n_extras = 1},
        NULL));
    divided_end(&d);
    manifest = scratch_read(scratch_path(&s, "step-000000000001/manifest.json"), &n);
    assert_non_null(strstr(manifest, "\"version\":2,"));
    assert_null(strstr(manifest, "\"tensors\""));
    free(manifest);
    CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
    for (int how = 0; how <= DIVIDED_KINDS; how++)
        check_loaded(checkpoint, how == DIVIDED_NOT ? 1 : 3, (divided_how)how, 1);
    tri_checkpoint_close(checkpoint);
    tri_module_destroy(net);
    scratch_end(&s);
}

/* The failure of one rank is that of all, which names it; the checkpoint before it stays, and
 * nothing else does. */
static void a_failure_on_one_rank_is_that_of_all(void **state)
{
    static const struct {
        mistake mistake;
        tri_status status;
        const char *line;
    } cases[] = {
        {DISK_IS_FULL, TRI_ERR_IO, "step-000000000002: rank 1: "},
        {DISK_IS_FULL, TRI_ERR_IO, "pieces.rank1.safetensors"},
        {OTHER_STEP, TRI_ERR_MISMATCH, "one saves 2, one 102"},
        {OTHER_FOLDER, TRI_ERR_IO, "not seen by this rank"},
        {OTHER_GROUP, TRI_ERR_INVALID_ARG, "rank 1: state numbers: its pieces are over another"},
        {OTHER_SHAPE, TRI_ERR_INVALID_ARG,
         "tensor divided/numbers: rank 1 has i64 [2,2,3], ranks before it i64 [2,3,2]"},
        {HOLE, TRI_ERR_FORMAT, "tensor divided/numbers: no piece has elements 7 to 7 of 12"},
        {OVERLAP, TRI_ERR_FORMAT,
         "tensor divided/numbers: pieces [0] + [4] in pieces.rank0.safetensors and [3] + [5] in "
         "pieces.rank1.safetensors both have element 3"},
        {TOO_FEW, TRI_ERR_INVALID_ARG, "rank 1: state divided/numbers: piece [4] + [4]"},
        {OUTSIDE, TRI_ERR_INVALID_ARG, "rank 1: state divided/numbers: piece [9] + [4]"},
    };
    scratch s;

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        tri_checkpoint *checkpoint;
        plan p = {.how = DIVIDED_EVENLY,
                  .round = 2,
                  .mistake = cases[i].mistake,
                  .status = cases[i].status,
                  .line = cases[i].line};

        scratch_begin(&s);
        p.folder = scratch_path(&s, "c");
        p.other_folder = scratch_path(&s, "other");
        save(p.folder, 3, DIVIDED_EVENLY, 1);
        run_threads(3, NULL, save_rank, &p);
        assert_int_equal(scratch_count(p.folder), 1);
        CHECK_OK(tri_checkpoint_open(p.folder, &checkpoint));
        check_loaded(checkpoint, 1, DIVIDED_NOT, 1);
        tri_checkpoint_close(checkpoint);
        save(p.folder, 3, DIVIDED_EVENLY, 2);
        assert_int_equal(scratch_count(p.folder), 2);
        scratch_end(&s);
    }
}

static const char *tell_without_folder(rank_env *env)
{
    trii_piece_list list = {.rank = env->rank};
    trii_pieces_told told = {.bytes = NULL};
    tri_status status;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &list.group));
    tri_group_abort(list.group, "a peer is gone");
    status = trii_pieces_tell(env->arg, &list, TRI_OK, &told);
    trii_pieces_told_fini(&told);
    tri_group_unref(list.group);
    if (status == TRI_ERR_IO || strstr(tri_last_error(), "a peer is gone") == NULL)
        return RANK_FAIL(env, "%s: %s", tri_status_name(status), tri_last_error());
    return NULL;
}

/* Rank 0 hears of a lost peer and removes the folder before rank 1 has written: what is said is
 * that the peer is lost, not that the folder is missing. */
static void a_folder_that_went_with_the_group_is_not_the_reason(void **state)
{
    char folder[192];
    scratch s;

    (void)state;
    scratch_begin(&s);
    snprintf(folder, sizeof(folder), "%s", scratch_path(&s, "gone"));
    run_threads(2, NULL, tell_without_folder, folder);
    scratch_end(&s);
}

/* What does not fit is named, and nothing has changed. */
static void what_does_not_fit_is_named(void **state)
{
    tri_checkpoint *checkpoint;
    divided_state d;
    scratch s;

    (void)state;
    scratch_begin(&s);
    save(s.dir, 3, DIVIDED_EVENLY, 1);
    CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
    divided_begin(&d, NULL, 1, 3, DIVIDED_EVENLY);
    CHECK_OK(divided_fill(&d, 7));
    d.held[NUMBERS].shape[0] = 3;
    CHECK_FAILS(
        tri_checkpoint_restore_extra(checkpoint, "divided", d.entries, DIVIDED_TENSORS),
        TRI_ERR_FORMAT,
        "tensor numbers has another shape or dtype (i64 [2, 3, 2]) than here (i64 [3, 3, 2])");
    d.held[NUMBERS].shape[0] = 2;
    take(&d, 10, 4, 4);
    CHECK_FAILS(tri_checkpoint_restore_extra(checkpoint, "divided", d.entries, DIVIDED_TENSORS),
                TRI_ERR_FORMAT, "tensor numbers: piece [10] + [4]");
    take(&d, 4, 4, 4);
    d.entries[0].name = "matrices";
    CHECK_FAILS(tri_checkpoint_restore_extra(checkpoint, "divided", d.entries, DIVIDED_TENSORS),
                TRI_ERR_FORMAT, "no tensor matrices");
    CHECK_FAILS(tri_checkpoint_restore_extra(checkpoint, "divided", d.entries, 8), TRI_ERR_FORMAT,
                "9 tensors, the divided has 8");
    divided_end(&d);
    tri_checkpoint_close(checkpoint);
    scratch_end(&s);
}

static tri_status save_and_load(const char *folder, divided_state *d, tri_module *net)
{
    tri_checkpoint_info info = {.step = 2, .extras = &d->extra, .n_extras = 1};
    tri_checkpoint *checkpoint = NULL;
    tri_status status = tri_checkpoint_save(folder, net, NULL, &info, NULL);

    if (status == TRI_OK)
        status = tri_checkpoint_open(folder, &checkpoint);
    if (status == TRI_OK)
        status = tri_checkpoint_restore_extra(checkpoint, "divided", d->entries, DIVIDED_TENSORS);
    tri_checkpoint_close(checkpoint);
    return status;
}

/* In a group of one, which has all of a rank 0's steps. */
static void every_allocation_may_fail(void **state)
{
    tri_module *net = tri_nn_linear(3, 2, NULL);
    tri_status status = TRI_ERR_NO_MEMORY;
    tri_store *store;
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_store_hash(&store));
    for (long n = 1; status != TRI_OK; n++) {
        tri_checkpoint *checkpoint;
        divided_state d;
        tri_group *group; /* a new one: without memory it is aborted */
        long live;

        CHECK_OK(tri_group_create(store, 0, 1, NULL, &group));
        divided_begin(&d, group, 0, 1, DIVIDED_IN_BOXES);
        CHECK_OK(divided_fill(&d, 2));
        if (n == 1)
            CHECK_OK(save_and_load(s.dir, &d, net));
        live = trii_alloc_live();
        trii_alloc_fail_at(n);
        status = save_and_load(s.dir, &d, net);
        trii_alloc_fail_at(0);
        assert_int_equal(trii_alloc_live(), live);
        divided_end(&d);
        tri_group_unref(group);
        assert_int_equal(scratch_count(s.dir), 1);
        CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
        check_loaded(checkpoint, 2, DIVIDED_EVENLY, 2);
        tri_checkpoint_close(checkpoint);
    }
    tri_store_unref(store);
    tri_module_destroy(net);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_number_of_ranks_reads_what_any_other_saved),
    cmocka_unit_test(what_is_whole_is_read_by_pieces),
    cmocka_unit_test(a_failure_on_one_rank_is_that_of_all),
    cmocka_unit_test(a_folder_that_went_with_the_group_is_not_the_reason),
    cmocka_unit_test(what_does_not_fit_is_named),
    cmocka_unit_test(every_allocation_may_fail),
};
TEST_MAIN(tests)
