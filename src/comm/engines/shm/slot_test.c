/*
 * slot_test.c - which path a collective takes, by its size, by where the buffers of all ranks
 * lie and by what the system allows. One rank in its own memory, no peers: the choice reads no
 * more.
 */
/* ctest: threads=none */
#include "comm/engines/shm/slot.h"
#include "comm/engines/shm/shm_group.h"
#include "testing/check.h"

#define SEQ 1
#define MOST_BYTES ((size_t)1 << 20)

/* Memory of the ranks, and what they can do with each other's. */
typedef struct place {
    bool arena;
    int cma;
    bool crowded;
} place;

static const place heap = {.cma = 0}, heap_cma = {.cma = 1}, arena = {.arena = true};
static const place crowded_cma = {.cma = 1, .crowded = true};
static const place crowded_cma_2 = {.cma = 2, .crowded = true};

static shm_block *block;
static float *buffer;

/* The path of a call of 2 ranks that has `count` f32; `others` are flags of the other rank. */
static shm_path path_with(trii_kind kind, size_t count, place where, unsigned others)
{
    shm_group *g = calloc(1, sizeof(*g));
    shm_peer peers[2] = {{.block = block}, {.rank = 1, .block = block}};
    trii_shmem memory[2] = {{.base = buffer}, {.base = buffer}};
    trii_op op = {.call = {.kind = kind,
                           .dtype = TRI_DTYPE_F32,
                           .op = TRI_REDOP_SUM,
                           .count = count,
                           .seq = SEQ,
                           .src = buffer,
                           .dst = buffer}};
    shm_step *step = shm_step_of(&op);
    shm_path path;

    assert_non_null(g);
    assert_true(count * sizeof(*buffer) <= MOST_BYTES);
    g->size = 2;
    g->block = block;
    g->peers = peers;
    g->arena = g;
    g->cma = where.cma;
    g->crowded = where.crowded;
    g->extents[0] = (shm_extent){MOST_BYTES, memory};
    atomic_store(&g->n_extents, where.arena ? 1 : 0);
    shm_slot_arrive(g, &op);
    assert_int_equal(step->phase, SHM_ARRIVED);
    step->everywhere &= step->flags & others;
    shm_slot_choose_path(g, &op);
    assert_int_equal(step->phase, SHM_RUNNING);
    path = step->path;
    free(g);
    return path;
}

static shm_path path_of(trii_kind kind, size_t count, place where)
{
    return path_with(kind, count, where, ~0u);
}

static void small_calls_are_copied_before_arriving(void **state)
{
    (void)state;
    assert_int_equal(path_of(TRII_KIND_ALL_REDUCE, 0, heap), SHM_PATH_INLINE);
    assert_int_equal(path_of(TRII_KIND_ALL_REDUCE, 24, heap), SHM_PATH_INLINE);
    assert_int_equal(path_of(TRII_KIND_ALL_REDUCE, 25, heap), SHM_PATH_ONE_SHOT);
    assert_int_equal(path_of(TRII_KIND_ALL_REDUCE, 767, arena), SHM_PATH_ONE_SHOT);
    assert_int_equal(path_of(TRII_KIND_ALL_REDUCE, 4096, heap_cma), SHM_PATH_ONE_SHOT);
    assert_int_equal(path_of(TRII_KIND_ALL_TO_ALL, 2048, heap_cma), SHM_PATH_ONE_SHOT);
}

static void arenas_are_used_where_they_are(void **state)
{
    (void)state;
    assert_int_equal(path_of(TRII_KIND_ALL_REDUCE, 768, arena), SHM_PATH_DIRECT);
    assert_int_equal(path_of(TRII_KIND_ALL_REDUCE, 100000, arena), SHM_PATH_DIRECT);
    assert_int_equal(path_of(TRII_KIND_BROADCAST, 100000, arena), SHM_PATH_DIRECT);
    /* The bytes that all ranks put in decide, and this kind puts in a part for each. */
    assert_int_equal(path_of(TRII_KIND_ALL_TO_ALL, 384, arena), SHM_PATH_DIRECT);
}

static void one_rank_without_an_arena_changes_the_path_of_all(void **state)
{
    (void)state;
    assert_int_equal(path_with(TRII_KIND_ALL_REDUCE, 100000, arena, SHM_SRC_IN_ARENA),
                     SHM_PATH_STAGED);
    assert_int_equal(path_with(TRII_KIND_ALL_REDUCE, 1000, heap, SHM_COPIED), SHM_PATH_ONE_SHOT);
    /* Only sums write to the others' dst. */
    assert_int_equal(path_with(TRII_KIND_ALL_GATHER, 100000, arena, SHM_SRC_IN_ARENA),
                     SHM_PATH_DIRECT);
}

static void other_memory_is_read_by_cma_where_that_pays(void **state)
{
    (void)state;
    assert_int_equal(path_of(TRII_KIND_ALL_REDUCE, 131072, heap_cma), SHM_PATH_CMA_SUM);
    assert_int_equal(path_of(TRII_KIND_ALL_REDUCE, 131071, heap_cma), SHM_PATH_STAGED);
    assert_int_equal(path_of(TRII_KIND_REDUCE_SCATTER, 131072, heap_cma), SHM_PATH_CMA_SUM);
    assert_int_equal(path_of(TRII_KIND_ALL_GATHER, 12288, heap_cma), SHM_PATH_CMA);
    assert_int_equal(path_of(TRII_KIND_ALL_GATHER, 12287, heap_cma), SHM_PATH_STAGED);
    assert_int_equal(path_of(TRII_KIND_BROADCAST, 131072, heap_cma), SHM_PATH_STAGED);
    assert_int_equal(path_of(TRII_KIND_REDUCE, 131072, heap_cma), SHM_PATH_STAGED);
    assert_int_equal(path_of(TRII_KIND_ALL_REDUCE, 131072, heap), SHM_PATH_STAGED);
}

static void ranks_that_share_cores_sum_and_gather_through_stages(void **state)
{
    (void)state;
    assert_int_equal(path_of(TRII_KIND_ALL_REDUCE, 131072, crowded_cma), SHM_PATH_STAGED);
    assert_int_equal(path_of(TRII_KIND_ALL_GATHER, 131072, crowded_cma), SHM_PATH_STAGED);
    assert_int_equal(path_of(TRII_KIND_ALL_TO_ALL, 131072, crowded_cma), SHM_PATH_CMA);
    assert_int_equal(path_of(TRII_KIND_ALL_REDUCE, 131072, crowded_cma_2), SHM_PATH_CMA_SUM);
    assert_int_equal(path_of(TRII_KIND_ALL_GATHER, 131072, crowded_cma_2), SHM_PATH_CMA);
}

static int make_memory(void **state)
{
    size_t bytes = (sizeof(*block) + 4095) / 4096 * 4096;

    (void)state;
    block = aligned_alloc(4096, bytes);
    buffer = calloc(1, MOST_BYTES);
    if (block == NULL || buffer == NULL)
        return -1;
    memset(block, 0, bytes);
    return 0;
}

static int free_memory(void **state)
{
    (void)state;
    free(block);
    free(buffer);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(small_calls_are_copied_before_arriving, make_memory,
                                    free_memory),
    cmocka_unit_test_setup_teardown(arenas_are_used_where_they_are, make_memory, free_memory),
    cmocka_unit_test_setup_teardown(one_rank_without_an_arena_changes_the_path_of_all, make_memory,
                                    free_memory),
    cmocka_unit_test_setup_teardown(other_memory_is_read_by_cma_where_that_pays, make_memory,
                                    free_memory),
    cmocka_unit_test_setup_teardown(ranks_that_share_cores_sum_and_gather_through_stages,
                                    make_memory, free_memory),
};

TEST_MAIN(tests)
