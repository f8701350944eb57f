/* checkpoint_pieces_model_test.c - modules and optimizers of which ranks have pieces, as ZeRO has
 * them: saved by some, restored by others and by one process alone. */
#include <trireme/checkpoint.h>
#include <trireme/nn.h>
#include <trireme/optim.h>

#include "base/alloc.h"
#include "testing/ranks.h"
#include "testing/scratch.h"
#include "train/tensor/persistent.h"
#include "train/tensor/piece.h"

enum { MOST = 12, ROOM = 64 };

/* What is in pieces. */
typedef enum divided { NOTHING, STATES, ALL } divided;

typedef struct trained {
    tri_module *net;
    tri_optimizer *opt;
    trii_held held[MOST];
    int n_held;
} trained;

static int64_t count(const trained *t)
{
    return tri_module_state_count(t->net) + tri_optimizer_state_count(t->opt);
}

static tri_tensor *at(const trained *t, int64_t i)
{
    int64_t n = tri_module_state_count(t->net);

    return i < n ? tri_module_state(t->net, i).tensor : tri_optimizer_state(t->opt, i - n).tensor;
}

/* A strategy leaves the tensor its shape, and keeps the piece elsewhere. */
static void divide(trained *t, tri_tensor *tensor, tri_group *group, int rank, int size)
{
    trii_held *held = &t->held[t->n_held++];
    int64_t n = tri_tensor_numel(tensor), start = n * rank / size;
    int64_t length = n * (rank + 1) / size - start;

    *held = (trii_held){.group = group,
                        .ndim = tri_tensor_ndim(tensor),
                        .piece = trii_piece_range(start, length),
                        .tensor = tri_tensor_create(&length, 1, tri_tensor_dtype(tensor))};
    for (int d = 0; d < held->ndim; d++)
        held->shape[d] = tri_tensor_size(tensor, d);
    tensor->held = held;
}

static void trained_begin(trained *t, divided what, tri_group *group, int rank, int size)
{
    *t = (trained){.net = tri_nn_linear(5, 3, NULL)};
    t->opt = tri_adam(t->net, 0.1, NULL);
    for (int64_t i = 0; i < count(t); i++) {
        bool is_state = i >= tri_module_state_count(t->net);

        if (what == ALL || (what == STATES && is_state && tri_tensor_ndim(at(t, i)) > 0))
            divide(t, at(t, i), group, rank, size);
    }
}

static void trained_end(trained *t)
{
    for (int i = 0; i < t->n_held; i++)
        tri_tensor_unref(t->held[i].tensor);
    tri_optimizer_destroy(t->opt);
    tri_module_destroy(t->net);
}

/* The bytes that this rank has of tensor i of the state. */
static size_t wanted(const trained *t, int64_t i, char bytes[ROOM * 8], tri_tensor **tensor_out)
{
    tri_tensor *tensor = at(t, i);
    const trii_held *held = tensor->held;
    size_t size = tri_dtype_size(tri_tensor_dtype(tensor)), n;
    char whole[ROOM * 8];

    for (size_t k = 0; k < sizeof(whole); k++)
        whole[k] = (char)(31 * i + (int64_t)k);
    n = size * (size_t)(held != NULL ? held->piece.size[0] : tri_tensor_numel(tensor));
    memcpy(bytes, whole + (held != NULL ? size * (size_t)held->piece.offset[0] : 0), n);
    *tensor_out = held != NULL ? held->tensor : tensor;
    return n;
}

static tri_status fill(const trained *t)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < count(t) && status == TRI_OK; i++) {
        char bytes[ROOM * 8];
        tri_tensor *tensor;
        size_t n = wanted(t, i, bytes, &tensor);

        status = tri_tensor_copy_in(tensor, bytes, n);
    }
    return status;
}

/* The first tensor of the state that is not as fill has made it; -1: none. */
static int64_t differs(const trained *t)
{
    for (int64_t i = 0; i < count(t); i++) {
        char bytes[ROOM * 8], have[ROOM * 8];
        tri_tensor *tensor;
        size_t n = wanted(t, i, bytes, &tensor);

        if (tri_tensor_copy_out(tensor, have, n) != TRI_OK || memcmp(bytes, have, n) != 0)
            return i;
    }
    return -1;
}

typedef struct plan {
    const char *folder;
    divided what;
    bool asynchronous;
} plan;

/* Several in a row, while the group is used for other things and the state goes on. */
static const char *save_by_writer(rank_env *env, const plan *p, trained *t, tri_group *group)
{
    tri_checkpoint_writer *writer;

    RANK_TRY(env, tri_checkpoint_writer_create(p->folder, &writer));
    for (int64_t step = 1; step <= 5; step++) {
        RANK_TRY(env, fill(t));
        RANK_TRY(env, tri_checkpoint_writer_save(writer, t->net, t->opt,
                                                 &(tri_checkpoint_info){.step = step}, NULL));
        for (int64_t i = 0; i < count(t); i++) {
            char bytes[ROOM * 8], zeros[ROOM * 8] = {0};
            tri_tensor *tensor;
            size_t n = wanted(t, i, bytes, &tensor);

            RANK_TRY(env, tri_tensor_copy_in(tensor, zeros, n));
            RANK_TRY(env, tri_barrier(group, NULL));
        }
    }
    /* The failure of one is told to all. */
    RANK_FAILS(env,
               tri_checkpoint_writer_save(writer, t->net, t->opt,
                                          env->rank == 0 ? &(tri_checkpoint_info){.step = -1}
                                                         : &(tri_checkpoint_info){.step = 6},
                                          NULL),
               TRI_ERR_INVALID_ARG, "step -1");
    tri_checkpoint_writer_destroy(writer); /* waits */
    return NULL;
}

static const char *save_rank(rank_env *env)
{
    const plan *p = env->arg;
    tri_group *group;
    trained t;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    trained_begin(&t, p->what, group, env->rank, env->size);
    RANK_TRY(env, fill(&t));
    if (p->what == ALL) {
        RANK_FAILS(env, tri_save(t.net, p->folder), TRI_ERR_UNSUPPORTED, "tri_checkpoint_save");
        RANK_FAILS(env, tri_load(t.net, p->folder, NULL), TRI_ERR_UNSUPPORTED,
                   "tri_checkpoint_restore");
    }
    /* One that cannot take part is that of all. */
    RANK_FAILS(env,
               tri_checkpoint_save(
                   p->folder, t.net, t.opt,
                   env->rank == env->size - 1 ? NULL : &(tri_checkpoint_info){.step = 5}, NULL),
               TRI_ERR_INVALID_ARG, "info is NULL");
    if (p->asynchronous) {
        const char *failure = save_by_writer(env, p, &t, group);

        if (failure != NULL)
            return failure;
    } else {
        RANK_TRY(env, tri_checkpoint_save(p->folder, t.net, t.opt,
                                          &(tri_checkpoint_info){.step = 5}, NULL));
    }
    trained_end(&t);
    tri_group_unref(group);
    return NULL;
}

static void check_restored(const char *folder, divided what, int size)
{
    for (int r = 0; r < size; r++) {
        tri_checkpoint *checkpoint;
        trained t;

        trained_begin(&t, what, NULL, r, size);
        CHECK_OK(tri_checkpoint_open(folder, &checkpoint));
        CHECK_OK(tri_checkpoint_restore(checkpoint, t.net, t.opt));
        assert_int_equal(differs(&t), -1);
        tri_checkpoint_close(checkpoint);
        trained_end(&t);
    }
}

static void networks_and_optimizers_come_back(void **state)
{
    scratch s;

    (void)state;
    for (int size = 1; size <= 4; size++) {
        for (divided what = STATES; what <= ALL; what++) {
            scratch_begin(&s);
            run_threads(size, NULL, save_rank,
                        &(plan){scratch_path(&s, "c"), what, what == ALL ? size % 2 : size > 2});
            check_restored(scratch_path(&s, "c"), NOTHING, 1);
            for (int as = 1; as <= 5; as++) {
                check_restored(scratch_path(&s, "c"), STATES, as);
                check_restored(scratch_path(&s, "c"), ALL, as);
            }
            scratch_end(&s);
        }
    }
}

/* What fits nowhere is said before anything changes. */
static void another_network_is_refused(void **state)
{
    tri_checkpoint *checkpoint;
    scratch s;
    trained t;

    (void)state;
    scratch_begin(&s);
    run_threads(2, NULL, save_rank, &(plan){s.dir, ALL, false});
    CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
    trained_begin(&t, ALL, NULL, 0, 2);
    CHECK_OK(fill(&t));
    t.held[0].shape[0] = 4; /* of the network's first */
    CHECK_FAILS(tri_checkpoint_restore(checkpoint, t.net, t.opt), TRI_ERR_FORMAT, "weight");
    t.held[0].shape[0] = 3;
    t.held[0].piece = trii_piece_range(0, 4);
    CHECK_FAILS(tri_checkpoint_restore(checkpoint, t.net, t.opt), TRI_ERR_FORMAT,
                "tensor weight: piece [0] + [4]");
    trained_end(&t);
    tri_checkpoint_close(checkpoint);
    scratch_end(&s);
}

static const char *save_step(rank_env *env, tri_checkpoint_writer *writer, tri_group *group,
                             int64_t step)
{
    trained t;

    trained_begin(&t, STATES, group, tri_group_rank(group), tri_group_size(group));
    RANK_TRY(env, fill(&t));
    RANK_TRY(env, tri_checkpoint_writer_save(writer, t.net, t.opt,
                                             &(tri_checkpoint_info){.step = step}, NULL));
    RANK_TRY(env, tri_checkpoint_writer_wait(writer));
    trained_end(&t);
    return NULL;
}

/* Rank 0 goes on alone, by a group that may lie where that of both has lain. */
static const char *save_by_the_next_group(rank_env *env)
{
    tri_checkpoint_writer *writer;
    tri_group *group;
    const char *failure;

    RANK_TRY(env, tri_checkpoint_writer_create(env->arg, &writer));
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    failure = save_step(env, writer, group, 1);
    tri_group_unref(group);
    if (failure == NULL && env->rank == 0) {
        RANK_TRY(env, tri_group_create(NULL, 0, 1, NULL, &group));
        failure = save_step(env, writer, group, 2);
        tri_group_unref(group);
    }
    tri_checkpoint_writer_destroy(writer);
    return failure;
}

static void a_writer_knows_a_later_group_from_the_first(void **state)
{
    scratch s;

    (void)state;
    scratch_begin(&s);
    run_threads(2, NULL, save_by_the_next_group, s.dir);
    check_restored(s.dir, NOTHING, 1);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(networks_and_optimizers_come_back),
    cmocka_unit_test(another_network_is_refused),
    cmocka_unit_test(a_writer_knows_a_later_group_from_the_first),
};
TEST_MAIN(tests)
