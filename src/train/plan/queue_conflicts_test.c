/*
 * queue_conflicts_test.c - which entries of several queues touch the same bytes: what comparing
 * every access with every other one finds, and for a million accesses, which that would take
 * minutes for.
 */
/* ctest: timeout=60 threads=none */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "train/plan/schedule.h"
#include "train/tensor/sharing.h"
#include "testing/check.h"

static uint64_t state;

static int32_t below(int32_t n)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int32_t)((state >> 33) % (uint64_t)n);
}

/* --- a schedule ----------------------------------------------------------- */

enum { TENSORS = 5, STORAGES = 2 };

typedef struct problem {
    trii_plan plan;
    trii_pool pool;
    trii_ir ir;
    trii_step step;
    trii_segment segment;
    trii_schedule s;
    trii_storage storages[STORAGES];
    tri_tensor tensors[TENSORS];    /* ranges of a storage, some of them without a byte */
    trii_value values[2 * TENSORS]; /* each tensor is read, and written */
    trii_vid inputs[TENSORS], outputs[TENSORS];
    trii_access *accesses;
    int32_t n;
    int32_t *need;
} problem;

static void problem_init(problem *p, int n_queues, int32_t n_entries, int32_t n_buffers)
{
    *p = (problem){.plan.n_queues = n_queues};
    for (int i = 0; i < TENSORS; i++) {
        p->tensors[i] = (tri_tensor){.dtype = TRI_DTYPE_U8,
                                     .ndim = 1,
                                     .shape = {below(8)},
                                     .storage = &p->storages[below(STORAGES)],
                                     .offset = (size_t)below(16)};
        p->values[i].leaf = p->values[TENSORS + i].bound = &p->tensors[i];
        p->inputs[i] = i;
        p->outputs[i] = TENSORS + i;
    }
    p->ir.pool = &p->pool;
    p->step.values = p->values;
    p->segment.inputs = p->inputs;
    p->segment.outputs = p->outputs;
    p->s = (trii_schedule){.plan = &p->plan,
                           .ir = &p->ir,
                           .step = &p->step,
                           .segment = &p->segment,
                           .n_buffers = n_buffers,
                           .n_entries = n_entries};
    p->s.buffers = calloc((size_t)n_buffers, sizeof(*p->s.buffers));
    p->s.entry_queue = calloc((size_t)n_entries, sizeof(*p->s.entry_queue));
    p->accesses = calloc(4 * (size_t)n_entries, sizeof(*p->accesses));
    p->need = malloc((size_t)n_entries * (size_t)n_queues * sizeof(*p->need));
}

static void problem_fini(problem *p)
{
    trii_pool_fini(&p->pool);
    free(p->s.buffers);
    free(p->s.entry_queue);
    free(p->accesses);
    free(p->need);
}

static void clear(const problem *p)
{
    memset(p->need, 0xff, (size_t)p->s.n_entries * (size_t)p->plan.n_queues * sizeof(*p->need));
}

static void buffers_of_any_kind(problem *p)
{
    for (int32_t b = 0; b < p->s.n_buffers; b++) {
        trii_buffer *buffer = &p->s.buffers[b];
        int kind = below(6);

        buffer->queue = below(p->plan.n_queues + 1) - 1;
        buffer->place = kind == 0   ? TRII_PLACE_INPUT
                        : kind == 1 ? TRII_PLACE_OUTPUT
                                    : TRII_PLACE_ARENA;
        buffer->index = below(TENSORS);
        buffer->offset = (size_t)below(40);
        buffer->bytes = 1 + (size_t)below(below(4) == 0 ? 40 : 6);
    }
}

static void accesses_of_any_kind(problem *p, int32_t most)
{
    for (int32_t e = 0; e < p->s.n_entries; e++) {
        p->s.entry_queue[e] = below(p->plan.n_queues);
        for (int32_t i = below(most + 1); i > 0; i--)
            p->accesses[p->n++] = (trii_access){e, below(p->s.n_buffers), below(3) == 0};
    }
}

/* --- every access with every other one ------------------------------------ */

static bool overlap(const trii_schedule *s, int32_t a, int32_t b)
{
    const trii_buffer *x = &s->buffers[a], *y = &s->buffers[b];

    if (a == b && x->place == TRII_PLACE_ARENA)
        return true;
    if (x->place == TRII_PLACE_ARENA || y->place == TRII_PLACE_ARENA)
        return x->place == y->place && trii_buffer_queue(x) == trii_buffer_queue(y) &&
               x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
    return trii_tensors_overlap(trii_buffer_tensor(s, x), trii_buffer_tensor(s, y));
}

static void compare_all(problem *p)
{
    const trii_schedule *s = &p->s;

    clear(p);
    for (int32_t i = 0; i < p->n; i++) {
        for (int32_t k = 0; k < p->n; k++) {
            const trii_access *x = &p->accesses[i], *y = &p->accesses[k];
            int32_t from = s->entry_queue[x->entry], to = s->entry_queue[y->entry];
            int32_t *need = &p->need[y->entry * p->plan.n_queues + from];
            bool foreign = s->buffers[x->buffer].queue != from || s->buffers[y->buffer].queue != to;

            if (x->entry < y->entry && from != to && (x->write || y->write) && foreign &&
                overlap(s, x->buffer, y->buffer) && *need < x->entry)
                *need = x->entry;
        }
    }
}

static void conflicts_are_those_of_every_pair(void **unused)
{
    (void)unused;
    for (int seed = 0; seed < 3000; seed++) {
        problem p;
        int32_t *wanted;
        size_t bytes;

        state = (uint64_t)seed;
        problem_init(&p, 1 + below(5), 1 + below(60), 1 + below(30));
        buffers_of_any_kind(&p);
        accesses_of_any_kind(&p, 4);
        bytes = (size_t)p.s.n_entries * (size_t)p.plan.n_queues * sizeof(*p.need);
        compare_all(&p);
        wanted = memcpy(malloc(bytes), p.need, bytes);
        clear(&p);
        CHECK_OK(trii_queue_conflicts(&p.s, p.accesses, p.n, p.need));
        if (memcmp(p.need, wanted, bytes) != 0)
            fail_msg("seed %d: other entries than by comparing all", seed);
        free(wanted);
        problem_fini(&p);
    }
}

/* Results of many pieces, each of which the next queue reads. */
static void a_million_accesses_take_a_moment(void **unused)
{
    enum { ENTRIES = TEST_SANITIZED ? 50000 : 500000, LIVE = 1000 };
    problem p;

    (void)unused;
    problem_init(&p, 4, ENTRIES, ENTRIES);
    for (int32_t e = 0; e < ENTRIES; e++) {
        int32_t queue = e % 4;

        p.s.buffers[e] =
            (trii_buffer){.queue = queue, .offset = (size_t)(e / 4 % LIVE) * 64, .bytes = 64};
        p.s.entry_queue[e] = queue;
        p.accesses[p.n++] = (trii_access){e, e, true};
        if (e >= 5) /* of the queue before: what it wrote in its last turn */
            p.accesses[p.n++] = (trii_access){e, e - 5, false};
    }
    clear(&p);
    CHECK_OK(trii_queue_conflicts(&p.s, p.accesses, p.n, p.need));
    for (int32_t e = 4 * LIVE + 4; e < ENTRIES; e++) {
        int32_t queue = e % 4, before = (queue + 3) % 4, after = (queue + 1) % 4;

        assert_int_equal(p.need[4 * e + before], e - 5);
        /* where it writes, this one read the value of before */
        assert_int_equal(p.need[4 * e + after], e - 4 * LIVE + 5);
        assert_int_equal(p.need[4 * e + (queue + 2) % 4], -1);
    }
    problem_fini(&p);
}

static void finding_conflicts_without_memory_fails_in_words(void **unused)
{
    problem p;
    long calls;

    (void)unused;
    state = 1;
    problem_init(&p, 3, 4000, 3000);
    buffers_of_any_kind(&p);
    accesses_of_any_kind(&p, 2);
    clear(&p);
    calls = trii_alloc_calls();
    CHECK_OK(trii_queue_conflicts(&p.s, p.accesses, p.n, p.need));
    calls = trii_alloc_calls() - calls;
    assert_true(calls > 1);
    for (long at = 1; at <= calls; at++) {
        trii_pool_fini(&p.pool);
        p.pool = (trii_pool){NULL};
        trii_alloc_fail_at(at);
        CHECK_FAILS(trii_queue_conflicts(&p.s, p.accesses, p.n, p.need), TRI_ERR_NO_MEMORY, "");
        trii_alloc_fail_at(0);
    }
    problem_fini(&p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(conflicts_are_those_of_every_pair),
    cmocka_unit_test(a_million_accesses_take_a_moment),
    cmocka_unit_test(finding_conflicts_without_memory_fails_in_words),
};

TEST_MAIN(tests)
