/* checkpoint_fetch_test.c - ranks whose hosts share no disk agree on the newest checkpoint, and
 * have it. Folders stand for hosts. */
/* ctest: program=own */
#include <errno.h>
#include <stdatomic.h>

#include <trireme/checkpoint.h>
#include <trireme/nn.h>

#include "base/alloc.h"
#include "testing/divided_state.h"
#include "testing/scratch.h"
#include "testing/ranks.h"
#include "train/trainer/checkpoint_fetch.h"

static _Thread_local bool disk_is_full; /* of this rank */

/* A file of which a byte changes when the first disk is written. */
static const char *_Atomic rots;

static void rot(const char *path)
{
    FILE *file = fopen(path, "r+b");
    int byte;

    if (file == NULL || fseek(file, -1, SEEK_END) != 0 || (byte = fgetc(file)) == EOF ||
        fseek(file, -1, SEEK_END) != 0 || fputc(byte ^ 1, file) == EOF || fclose(file) != 0)
        abort();
}

/* In place of libc's. */
int fsync(int fd)
{
    const char *path = atomic_exchange(&rots, NULL);

    if (path != NULL)
        rot(path);
    if (disk_is_full) {
        errno = ENOSPC;
        return -1;
    }
    return fdatasync(fd);
}

enum { RANKS = 3 };

/* What a case wants of all ranks, and where their folders are. */
typedef struct plan {
    char folder[RANKS][160];
    bool full[RANKS];
    tri_status status;
    int64_t wanted;   /* the step that is asked for; 0: the newest one */
    int64_t step;     /* of what all have then */
    const char *line; /* of the failure */
} plan;

static void plan_begin(plan *p, scratch *s)
{
    static const char *const hosts[RANKS] = {"h0/c", "h1/c", "h1/c"}; /* two share one */

    scratch_begin(s);
    memset(p, 0, sizeof(*p));
    for (int r = 0; r < RANKS; r++)
        snprintf(p->folder[r], sizeof(p->folder[r]), "%s", scratch_path(s, hosts[r]));
}

static tri_module *make(void)
{
    return tri_nn_linear(60, 50, NULL);
}

/* All weights are `step`. */
static void save(const char *folder, int64_t step)
{
    tri_module *net = make();
    const tri_checkpoint_extra text = {.name = "trainer", .text = "{}"};

    for (int64_t i = 0; i < tri_module_state_count(net); i++)
        CHECK_OK(tri_init_constant(tri_module_state(net, i).tensor, (double)step));
    CHECK_OK(tri_checkpoint_save(
        folder, net, NULL, &(tri_checkpoint_info){.step = step, .extras = &text, .n_extras = 1},
        NULL));
    tri_module_destroy(net);
}

static const char *check(rank_env *env, const plan *p, tri_checkpoint *checkpoint)
{
    const char *path = tri_checkpoint_path(checkpoint);
    tri_module *net = make();
    float bias[50];

    if (tri_checkpoint_step(checkpoint) != p->step)
        return RANK_FAIL(env, "rank %d: step %lld", env->rank,
                         (long long)tri_checkpoint_step(checkpoint));
    if (strncmp(path, p->folder[env->rank], strlen(p->folder[env->rank])) != 0)
        return RANK_FAIL(env, "rank %d has %s", env->rank, path);
    RANK_TRY(env, tri_checkpoint_restore(checkpoint, net, NULL));
    RANK_TRY(env, tri_tensor_copy_out(tri_module_find(net, "bias"), bias, sizeof(bias)));
    if (bias[49] != (float)p->step || strcmp(tri_checkpoint_text(checkpoint, "trainer"), "{}") != 0)
        return RANK_FAIL(env, "rank %d: bias %g", env->rank, (double)bias[49]);
    tri_module_destroy(net);
    return NULL;
}

static const char *fetch(rank_env *env)
{
    const plan *p = env->arg;
    tri_checkpoint *checkpoint = NULL;
    const char *failure = NULL;
    tri_group *group;
    tri_status status;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    disk_is_full = p->full[env->rank];
    status = p->wanted > 0
                 ? trii_checkpoint_fetch_step(group, p->folder[env->rank], p->wanted, &checkpoint)
                 : tri_checkpoint_fetch(group, p->folder[env->rank], &checkpoint);
    if (status != p->status || (status != TRI_OK && strstr(tri_last_error(), p->line) == NULL))
        return RANK_FAIL(env, "rank %d: %s: %s", env->rank, tri_status_name(status),
                         tri_last_error());
    if (status == TRI_OK)
        failure = check(env, p, checkpoint);
    tri_checkpoint_close(checkpoint);
    tri_group_unref(group);
    return failure;
}

static void run(plan *p)
{
    long live = trii_alloc_live();

    run_threads(RANKS, NULL, fetch, p);
    assert_in_range(trii_alloc_live(), 0, live);
}

static void no_rank_has_one(void **state)
{
    scratch s;
    plan p;

    (void)state;
    plan_begin(&p, &s);
    p.status = TRI_ERR_NOT_FOUND;
    p.line = "nor on any other rank";
    run(&p);
    scratch_end(&s);
}

static void hosts_get_what_they_lack(void **state)
{
    scratch s;
    plan p;

    (void)state;
    plan_begin(&p, &s);
    save(p.folder[0], 7);
    p.step = 7;
    run(&p); /* from host 0 to host 1, once */
    assert_int_equal(scratch_count(p.folder[0]), 1);
    assert_int_equal(scratch_count(p.folder[1]), 1);
    run(&p); /* all have it */
    save(p.folder[1], 9);
    p.step = 9;
    run(&p); /* and back */
    assert_int_equal(scratch_count(p.folder[0]), 2);
    assert_int_equal(scratch_count(p.folder[1]), 2);
    /* The step is lower, but it was saved after the others. */
    save(p.folder[0], 3);
    p.step = 3;
    run(&p);
    assert_int_equal(scratch_count(p.folder[1]), 3);
    scratch_end(&s);
}

/* The best one, say. */
static void an_older_one_comes_by_its_step(void **state)
{
    scratch s;
    plan p;

    (void)state;
    plan_begin(&p, &s);
    save(p.folder[0], 5);
    save(p.folder[0], 7);
    p.step = 7;
    run(&p);
    assert_int_equal(scratch_count(p.folder[1]), 1);
    p.wanted = p.step = 5;
    run(&p);
    assert_int_equal(scratch_count(p.folder[1]), 2);
    p.wanted = 6;
    p.status = TRI_ERR_NOT_FOUND;
    p.line = "no checkpoint found in ";
    run(&p);
    p.wanted = 0;
    p.step = 7;
    p.status = TRI_OK;
    run(&p);
    scratch_end(&s);
}

/* Two hosts went on from the same one, each alone: the one that came further counts. */
static void hosts_that_went_apart_meet(void **state)
{
    scratch s;
    plan p;

    (void)state;
    plan_begin(&p, &s);
    save(p.folder[0], 5);
    save(p.folder[1], 6);
    p.step = 6;
    run(&p);
    scratch_end(&s);
}

static void damage(scratch *s, const char *name)
{
    size_t n;
    char *bytes = scratch_read(scratch_path(s, name), &n);

    bytes[n - 1] ^= 1;
    scratch_file(s, name, bytes, n);
    free(bytes);
}

static void a_damaged_copy_is_replaced_by_a_whole_one(void **state)
{
    scratch s;
    plan p;

    (void)state;
    plan_begin(&p, &s);
    save(p.folder[0], 5);
    p.step = 5;
    run(&p);
    damage(&s, "h0/c/step-000000000005/model.safetensors");
    run(&p); /* from host 1 */
    assert_int_equal(scratch_count(p.folder[0]), 1);
    damage(&s, "h0/c/step-000000000005/trainer.json");
    damage(&s, "h1/c/step-000000000005/model.safetensors");
    p.status = TRI_ERR_FORMAT;
    p.line = "rank 0: ";
    run(&p);
    scratch_end(&s);
}

/* It was whole when it was opened, and rots before it is sent. */
static void a_copy_that_rots_is_not_taken(void **state)
{
    scratch s;
    char path[200];
    plan p;

    (void)state;
    plan_begin(&p, &s);
    save(p.folder[0], 4);
    p.step = 4;
    run(&p);
    save(p.folder[0], 5);
    snprintf(path, sizeof(path), "%s/step-000000000005/model.safetensors", p.folder[0]);
    atomic_store(&rots, path);
    run(&p);
    assert_null(atomic_load(&rots));
    assert_int_equal(scratch_count(p.folder[1]), 1); /* nothing of it is left */
    scratch_end(&s);
}

static void a_full_disk_is_told_to_all(void **state)
{
    scratch s;
    plan p;

    (void)state;
    plan_begin(&p, &s);
    save(p.folder[1], 5);
    p.full[0] = true;
    p.status = TRI_ERR_IO;
    p.line = "rank 0: ";
    run(&p);
    assert_int_equal(scratch_count(p.folder[0]), 0);
    assert_int_equal(scratch_count(p.folder[1]), 1);
    p.full[0] = false;
    p.status = TRI_OK;
    p.step = 5;
    run(&p);
    scratch_end(&s);
}

static void a_folder_of_the_user_is_not_replaced(void **state)
{
    scratch s;
    plan p;

    (void)state;
    plan_begin(&p, &s);
    save(p.folder[0], 5);
    save(p.folder[1], 1);
    assert_int_equal(mkdir(scratch_path(&s, "h1/c/step-000000000005"), 0777), 0);
    scratch_file(&s, "h1/c/step-000000000005/notes.txt", "mine", 4);
    p.status = TRI_ERR_IO;
    p.line = "move it away";
    save(p.folder[0], 5);
    run(&p);
    assert_int_equal(access(scratch_path(&s, "h1/c/step-000000000005/notes.txt"), F_OK), 0);
    scratch_end(&s);
}

static void one_process_alone_opens_its_own(void **state)
{
    tri_checkpoint *checkpoint;
    scratch s;
    plan p;

    (void)state;
    plan_begin(&p, &s);
    CHECK_FAILS(tri_checkpoint_fetch(NULL, p.folder[0], &checkpoint), TRI_ERR_NOT_FOUND,
                p.folder[0]);
    save(p.folder[0], 5);
    CHECK_OK(tri_checkpoint_fetch(NULL, p.folder[0], &checkpoint));
    assert_int_equal(tri_checkpoint_step(checkpoint), 5);
    tri_checkpoint_close(checkpoint);
    CHECK_FAILS(tri_checkpoint_fetch(NULL, NULL, &checkpoint), TRI_ERR_INVALID_ARG,
                "folder is NULL");
    CHECK_FAILS(tri_checkpoint_fetch(NULL, p.folder[0], NULL), TRI_ERR_INVALID_ARG,
                "checkpoint_out is NULL");
    scratch_end(&s);
}

enum { SAVERS = 16, EXTRAS = 8 };

/* Half of the extras are texts, one is in pieces. */
static const char *save_pieces(rank_env *env)
{
    tri_module *net = make();
    tri_tensor *one = tri_tensor_create(NULL, 0, TRI_DTYPE_F32);
    const tri_state_entry entry = {.name = "one", .tensor = one};
    tri_checkpoint_extra extras[EXTRAS];
    tri_checkpoint_info info = {.step = 4, .extras = extras, .n_extras = EXTRAS};
    char names[EXTRAS][16];
    divided_state s;
    tri_group *group;
    tri_status status;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (int64_t i = 0; i < tri_module_state_count(net); i++)
        RANK_TRY(env, tri_init_constant(tri_module_state(net, i).tensor, 4));
    divided_begin(&s, group, env->rank, env->size, DIVIDED_EVENLY);
    RANK_TRY(env, divided_fill(&s, 4));
    for (int i = 0; i < EXTRAS; i++) {
        snprintf(names[i], sizeof(names[i]), "extra-%d", i);
        extras[i] = (tri_checkpoint_extra){.name = names[i], .entries = &entry, .n = 1};
        if (i % 2 == 1)
            extras[i] = (tri_checkpoint_extra){.name = names[i], .text = "{}"};
    }
    extras[0] = s.extra;
    extras[1].name = "trainer";
    status = tri_checkpoint_save(env->arg, net, NULL, &info, NULL);
    divided_end(&s);
    tri_tensor_unref(one);
    tri_module_destroy(net);
    tri_group_unref(group);
    return status == TRI_OK ? NULL : RANK_FAIL(env, "%s", tri_last_error());
}

/* A file of each rank that had some, so that there are many. */
static void pieces_come_too(void **state)
{
    tri_checkpoint *checkpoint;
    divided_state d;
    scratch s;
    plan p;

    (void)state;
    plan_begin(&p, &s);
    run_threads(SAVERS, NULL, save_pieces, p.folder[0]);
    p.step = 4;
    run(&p);
    for (int r = 0; r < RANKS; r++) {
        CHECK_OK(tri_checkpoint_open(p.folder[r], &checkpoint));
        divided_begin(&d, NULL, r, RANKS, DIVIDED_UNEVENLY);
        CHECK_OK(tri_checkpoint_restore_extra(checkpoint, "divided", d.entries, DIVIDED_TENSORS));
        assert_null(divided_differs(&d, 4));
        divided_end(&d);
        tri_checkpoint_close(checkpoint);
    }
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pieces_come_too),
    cmocka_unit_test(no_rank_has_one),
    cmocka_unit_test(hosts_get_what_they_lack),
    cmocka_unit_test(an_older_one_comes_by_its_step),
    cmocka_unit_test(hosts_that_went_apart_meet),
    cmocka_unit_test(a_damaged_copy_is_replaced_by_a_whole_one),
    cmocka_unit_test(a_copy_that_rots_is_not_taken),
    cmocka_unit_test(a_full_disk_is_told_to_all),
    cmocka_unit_test(a_folder_of_the_user_is_not_replaced),
    cmocka_unit_test(one_process_alone_opens_its_own),
};
TEST_MAIN(tests)
