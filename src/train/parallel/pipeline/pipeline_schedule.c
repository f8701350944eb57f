/*
 * pipeline_schedule.c - see pipeline_schedule.h.
 *
 * GPipe and looped breadth-first do all forwards of a stage, then those of the next; backwards come
 * in the opposite order of stages, each in ascending order of micro-batches, which gradients add up
 * in (others drain looped breadth-first from the last micro-batch on; memory is the same).
 *
 * 1F1B, interleaved 1F1B and zero bubble are one list: w forwards, pairs of a forward and a
 * backward, the rest of the backwards. Interleaved stages take turns after g micro-batches. Zero
 * bubble needs one forward less for each rank that is further on, since only the gradient of the
 * input is on the way back, and weights follow as many backwards later as there are ranks before
 * this one.
 *
 * ZBV's phases are those of the paper ("Pipeline Parallelism with Controllable Memory") for at
 * least 2 ranks - 1 micro-batches; with fewer the missing ones are left out of the list.
 */
#include "train/parallel/pipeline/pipeline_schedule.h"

#include <stdbool.h>

#include "base/err.h"

static const char *const names[] = {
    [TRI_PIPELINE_1F1B] = "1f1b",
    [TRI_PIPELINE_GPIPE] = "gpipe",
    [TRI_PIPELINE_INTERLEAVED] = "interleaved",
    [TRI_PIPELINE_LOOPED_BFS] = "looped_bfs",
    [TRI_PIPELINE_ZERO_BUBBLE] = "zero_bubble",
    [TRI_PIPELINE_ZBV] = "zbv",
};

const char *trii_pipeline_schedule_name(tri_pipeline_schedule schedule)
{
    return (unsigned)schedule < sizeof(names) / sizeof(names[0]) ? names[schedule] : NULL;
}

static inline int min(int a, int b)
{
    return a < b ? a : b;
}

static inline int max(int a, int b)
{
    return a > b ? a : b;
}

static int stages_of_rank(const trii_pipeline_shape *s)
{
    return s->stages / s->ranks;
}

/* --- what is allowed ------------------------------------------------------ */

/* Interleaved stages take turns after as many micro-batches as a round has, so rounds are equal. */
static bool rounds_fit(int ranks, int microbatches)
{
    return microbatches % max(1, microbatches / ranks) == 0;
}

static tri_status check_rounds(const trii_pipeline_shape *s)
{
    int below = s->microbatches, above = s->microbatches;

    if (stages_of_rank(s) == 1 || rounds_fit(s->ranks, s->microbatches))
        return TRI_OK;
    while (!rounds_fit(s->ranks, below))
        below--;
    while (!rounds_fit(s->ranks, above))
        above++;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "%d micro-batches are %d rounds over %d ranks, which must be equal under "
                     "schedule %s with several stages a rank: %d or %d would fit",
                     s->microbatches, s->microbatches / s->ranks, s->ranks, names[s->schedule],
                     below, above);
}

static tri_status check_stages(const trii_pipeline_shape *s)
{
    int each = stages_of_rank(s);
    const char *name = names[s->schedule];

    if (s->stages < s->ranks || s->stages % s->ranks != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%d stages over %d ranks: all ranks have equally many, such as %d",
                         s->stages, s->ranks, max(1, each) * s->ranks);
    switch (s->schedule) {
    case TRI_PIPELINE_1F1B:
    case TRI_PIPELINE_GPIPE:
        if (each != 1)
            return TRII_FAIL(
                TRI_ERR_INVALID_ARG,
                "%d stages over %d ranks: schedule %s has one a rank; %s takes several", s->stages,
                s->ranks, name,
                names[s->schedule == TRI_PIPELINE_1F1B ? TRI_PIPELINE_INTERLEAVED
                                                       : TRI_PIPELINE_LOOPED_BFS]);
        return TRI_OK;
    case TRI_PIPELINE_ZBV:
        if (each != 2)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%d stages over %d ranks: schedule %s has two a rank, %d in all",
                             s->stages, s->ranks, name, 2 * s->ranks);
        return TRI_OK;
    default:
        return TRI_OK;
    }
}

tri_status trii_pipeline_shape_check(const trii_pipeline_shape *s)
{
    tri_status status;

    if (trii_pipeline_schedule_name(s->schedule) == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "schedule %d does not exist", (int)s->schedule);
    if (s->stages < 1 || s->stages > TRII_PIPELINE_MOST_STAGES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d stages: 1 to %d are allowed", s->stages,
                         TRII_PIPELINE_MOST_STAGES);
    if (s->microbatches < 1 || s->microbatches > TRII_PIPELINE_MOST_MICROBATCHES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d micro-batches: 1 to %d are allowed",
                         s->microbatches, TRII_PIPELINE_MOST_MICROBATCHES);
    status = check_stages(s);
    if (status == TRI_OK &&
        (s->schedule == TRI_PIPELINE_INTERLEAVED || s->schedule == TRI_PIPELINE_ZERO_BUBBLE))
        status = check_rounds(s);
    return status;
}

/* --- who has which stage -------------------------------------------------- */

int trii_pipeline_rank_of(const trii_pipeline_shape *s, int stage)
{
    if (s->schedule == TRI_PIPELINE_ZBV && stage >= s->ranks)
        return s->stages - 1 - stage;
    return stage % s->ranks;
}

int trii_pipeline_stage_of(const trii_pipeline_shape *s, int rank, int local)
{
    if (s->schedule == TRI_PIPELINE_ZBV && local == 1)
        return s->stages - 1 - rank;
    return local * s->ranks + rank;
}

/* --- the lists ------------------------------------------------------------ */

static bool has_two_parts(const trii_pipeline_shape *s)
{
    return s->schedule == TRI_PIPELINE_ZERO_BUBBLE || s->schedule == TRI_PIPELINE_ZBV;
}

int64_t trii_pipeline_action_count(const trii_pipeline_shape *s)
{
    return (int64_t)stages_of_rank(s) * s->microbatches * (has_two_parts(s) ? 3 : 2);
}

typedef struct list {
    const trii_pipeline_shape *shape;
    trii_pipeline_action *next;
    int rank;
} list;

static void add(list *l, trii_pipeline_kind kind, int local, int microbatch)
{
    if (microbatch < l->shape->microbatches) /* ZBV's are padded */
        *l->next++ =
            (trii_pipeline_action){.kind = kind,
                                   .stage = trii_pipeline_stage_of(l->shape, l->rank, local),
                                   .microbatch = microbatch};
}

static void all_forwards_first(list *l)
{
    int each = stages_of_rank(l->shape);

    for (int k = 0; k < each; k++)
        for (int i = 0; i < l->shape->microbatches; i++)
            add(l, TRII_PIPELINE_FORWARD, k, i);
    for (int k = each - 1; k >= 0; k--)
        for (int i = 0; i < l->shape->microbatches; i++)
            add(l, TRII_PIPELINE_BACKWARD, k, i);
}

/* Stages take turns after g micro-batches: of which stage the n-th forward is, or the n-th backward
 * (of which the last stage has the first), and of which micro-batch. */
typedef struct turns {
    int each, g;
} turns;

static void add_turn(list *l, const turns *t, trii_pipeline_kind kind, int n)
{
    int turn = n / t->g % t->each, round = n / (t->g * t->each);

    add(l, kind, kind == TRII_PIPELINE_FORWARD ? turn : t->each - 1 - turn,
        round * t->g + n % t->g);
}

static void one_forward_one_backward(list *l)
{
    const trii_pipeline_shape *s = l->shape;
    const bool parts = has_two_parts(s);
    const turns t = {stages_of_rank(s), s->microbatches / max(1, s->microbatches / s->ranks)};
    const int all = t.each * s->microbatches;
    /* 1F1B waits for both ways to the last stage, interleaved stages as well. */
    const int hops = (s->ranks - 1 - l->rank) * (parts || t.each == 1 ? 1 : 2);
    const int ahead = min((t.each == 1 ? 0 : (t.each - 1) * t.g) + hops, all);
    int weights = 0;

    for (int n = 0; n < ahead; n++)
        add_turn(l, &t, TRII_PIPELINE_FORWARD, n);
    for (int n = 0; n < all; n++) {
        if (n + ahead < all)
            add_turn(l, &t, TRII_PIPELINE_FORWARD, n + ahead);
        add_turn(l, &t, parts ? TRII_PIPELINE_INPUT : TRII_PIPELINE_BACKWARD, n);
        if (parts && n >= l->rank)
            add_turn(l, &t, TRII_PIPELINE_WEIGHT, weights++);
    }
    while (parts && weights < all)
        add_turn(l, &t, TRII_PIPELINE_WEIGHT, weights++);
}

/* The next micro-batch of each kind, of the way there (0) and of the way back (1). */
typedef struct v_counts {
    int forward[2], input[2], weight[2];
} v_counts;

static void add_forward(list *l, v_counts *c, int local)
{
    add(l, TRII_PIPELINE_FORWARD, local, c->forward[local]++);
}

static void add_input(list *l, v_counts *c, int local)
{
    add(l, TRII_PIPELINE_INPUT, local, c->input[local]++);
}

static void add_weight(list *l, v_counts *c, int local)
{
    add(l, TRII_PIPELINE_WEIGHT, local, c->weight[local]++);
}

static void add_all_three(list *l, v_counts *c, int local)
{
    add_forward(l, c, local);
    add_input(l, c, local);
    add_weight(l, c, local);
}

static void there_and_back(list *l)
{
    const int ranks = l->shape->ranks, after = ranks - l->rank;
    const int most = max(2 * ranks - 1, l->shape->microbatches);
    v_counts c = {{0}, {0}, {0}};

    for (int i = 0; i < 2 * after - 1; i++)
        add_forward(l, &c, 0);
    for (int i = 0; i < l->rank; i++) {
        add_forward(l, &c, 1);
        add_forward(l, &c, 0);
    }
    for (int i = 0; i < after; i++)
        add_all_three(l, &c, 1);
    while (c.forward[1] < c.forward[0] || c.forward[0] < most) {
        if (c.forward[0] < most)
            add_forward(l, &c, 0);
        add_input(l, &c, 0);
        add_weight(l, &c, 0);
        add_all_three(l, &c, 1);
    }
    for (int i = 0; i < l->rank; i++) {
        add_input(l, &c, 0);
        add_input(l, &c, 1);
    }
    for (int i = 0; i < after; i++) {
        add_input(l, &c, 0);
        add_weight(l, &c, 0);
    }
    for (int local = 1; local >= 0; local--)
        while (c.weight[local] < c.input[local])
            add_weight(l, &c, local);
}

void trii_pipeline_actions(const trii_pipeline_shape *s, int rank,
                           trii_pipeline_action *actions_out)
{
    list l = {.shape = s, .next = actions_out, .rank = rank};

    switch (s->schedule) {
    case TRI_PIPELINE_GPIPE:
    case TRI_PIPELINE_LOOPED_BFS:
        all_forwards_first(&l);
        break;
    case TRI_PIPELINE_ZBV:
        there_and_back(&l);
        break;
    default:
        one_forward_one_backward(&l);
    }
}

int64_t trii_pipeline_actions_in_turn(const trii_pipeline_shape *s, int rank,
                                      trii_pipeline_action *actions_out)
{
    list l = {.shape = s, .next = actions_out, .rank = rank};
    const int each = stages_of_rank(s);

    for (int i = 0; i < s->microbatches; i++) {
        for (int k = 0; k < each; k++)
            add(&l, TRII_PIPELINE_FORWARD, k, i);
        for (int k = each - 1; k >= 0; k--)
            add(&l, TRII_PIPELINE_BACKWARD, k, i);
    }
    return l.next - actions_out;
}
