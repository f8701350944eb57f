/*
 * pipeline_skips.c - see pipeline_skips.h.
 *
 * A tensor goes to another rank by one message, whatever lies between the stages. Only where a
 * message would not do it passes through all stages between them, as one more result of each:
 * between stages of one rank with other ranks between them, since a large message to oneself needs
 * its receive first; and under TRI_EAGER=1, where a rank that sends waits, so that messages have to
 * come in the order of the stages. Stages of one rank that follow each other are one graph, in
 * which nothing is sent.
 *
 * Gradients come back as messages do and are added where the tensor was made: the backward of a
 * stage begins at all of its messages at once.
 */
#include "train/parallel/pipeline/pipeline_skips.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/graph/step/recorder.h"
#include "train/nn/module.h"
#include "train/traffic/traffic.h"

/* --- who saves and takes what --------------------------------------------- */

typedef struct mention {
    char name[TRII_SKIP_NAME];
    int32_t stage;
    int32_t takes;
} mention;

typedef struct mentions {
    mention *items;
    int n, cap;
} mentions;

static tri_status mention_it(mentions *list, const char *name, int stage, bool takes)
{
    mention *m;

    if (name == NULL)
        return TRI_OK;
    if (list->n == list->cap) {
        int cap = 2 * list->cap + 8;
        mention *items = trii_alloc((size_t)cap, sizeof(*items), "skips");

        if (items == NULL)
            return TRI_ERR_NO_MEMORY;
        if (list->n > 0)
            memcpy(items, list->items, (size_t)list->n * sizeof(*items));
        trii_free(list->items);
        list->items = items;
        list->cap = cap;
    }
    m = &list->items[list->n++];
    *m = (mention){.stage = stage, .takes = takes};
    (void)snprintf(m->name, sizeof(m->name), "%s", name);
    return TRI_OK;
}

static tri_status look_below(mentions *list, const tri_module *module, int stage)
{
    tri_status status = mention_it(list, trii_skip_saved_by(module), stage, false);

    if (status == TRI_OK)
        status = mention_it(list, trii_skip_taken_by(module), stage, true);
    for (int i = 0; i < module->n_children && status == TRI_OK; i++)
        status = look_below(list, module->children[i], stage);
    return status;
}

static tri_status look_here(mentions *list, const trii_pipeline *p)
{
    tri_status status = TRI_OK;

    for (int local = 0; local < p->n_local; local++)
        for (int i = p->first[local]; i < p->first[local + 1] && status == TRI_OK; i++)
            status =
                look_below(list, p->parts[i], trii_pipeline_stage_of(&p->shape, p->rank, local));
    return status;
}

static tri_status gather_into(const trii_pipeline *p, mentions *list, int64_t *counts,
                              size_t *bytes)
{
    const int64_t mine = list->n;
    mention *all = NULL;
    size_t total = 0;
    tri_status status = tri_all_gather(p->group, &mine, counts, 1, TRI_DTYPE_I64, NULL);

    for (int r = 0; r < p->shape.ranks && status == TRI_OK; r++)
        total += bytes[r] = (size_t)counts[r] * sizeof(mention);
    if (status != TRI_OK || total == 0)
        return status;
    all = trii_alloc(1, total, "skips");
    if (all == NULL)
        return TRI_ERR_NO_MEMORY;
    status = tri_all_gather_v(p->group, list->items, all, bytes, TRI_DTYPE_U8, NULL);
    trii_free(list->items);
    *list = (mentions){.items = all, .n = (int)(total / sizeof(mention))};
    return status;
}

/* Of all ranks, in their order. */
static tri_status gather(const trii_pipeline *p, mentions *list)
{
    size_t ranks = (size_t)p->shape.ranks, *bytes = trii_alloc(ranks, sizeof(*bytes), "skips");
    int64_t *counts = trii_alloc(ranks, sizeof(*counts), "skips");
    tri_status status =
        bytes != NULL && counts != NULL ? gather_into(p, list, counts, bytes) : TRI_ERR_NO_MEMORY;

    trii_free(bytes);
    trii_free(counts);
    return status;
}

/* The last stage up to this one that saves the name, as in one process; -1: none. The mentions of
 * one stage are in the order in which its modules are used. */
static int saver_of(const mentions *list, const mention *taker)
{
    int found = -1;

    for (const mention *m = list->items; m < list->items + list->n; m++)
        if (!m->takes && m->stage > found && strcmp(m->name, taker->name) == 0 &&
            (m->stage < taker->stage || (m->stage == taker->stage && m < taker)))
            found = m->stage;
    return found;
}

static int by_maker(const void *a, const void *b)
{
    const trii_pipeline_skip *one = a, *other = b;
    int names = strcmp(one->name, other->name);

    if (names != 0)
        return names;
    return one->from != other->from ? one->from - other->from : one->to - other->to;
}

static tri_status list_skips(trii_pipeline *p, const mentions *list)
{
    int n = 0;

    p->skips = trii_alloc((size_t)list->n + 1, sizeof(*p->skips), "skips");
    if (p->skips == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < list->n; i++) {
        const mention *m = &list->items[i];
        int from = saver_of(list, m);

        if (!m->takes || from == m->stage)
            continue;
        if (from < 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "stage %d takes \"%s\" (tri_nn_skip_take), which no stage before it "
                             "saves",
                             m->stage, m->name);
        p->skips[n] = (trii_pipeline_skip){.from = from, .to = m->stage};
        memcpy(p->skips[n++].name, m->name, sizeof(m->name));
    }
    qsort(p->skips, (size_t)n, sizeof(*p->skips), by_maker);
    for (int i = 0; i < n; i++)
        if (i == 0 || by_maker(&p->skips[i], &p->skips[i - 1]) != 0)
            p->skips[p->n_skips++] = p->skips[i];
    return TRI_OK;
}

tri_status trii_pipeline_skips_make(trii_pipeline *p)
{
    mentions list = {.n = 0};
    tri_status status = look_here(&list, p);

    if (status == TRI_OK && p->group != NULL)
        status = gather(p, &list);
    if (status == TRI_OK && list.n > 0)
        status = list_skips(p, &list);
    trii_free(list.items);
    return status;
}

/* --- which way they go ---------------------------------------------------- */

/* The stages are one graph. */
static bool are_joined(const trii_pipeline_shape *shape, int from, int to)
{
    for (int s = from; s < to; s++)
        if (trii_pipeline_rank_of(shape, s) != trii_pipeline_rank_of(shape, s + 1))
            return false;
    return true;
}

/* The first skip of the same tensor. */
static int tensor_of(const trii_pipeline *p, int skip)
{
    while (skip > 0 && p->skips[skip - 1].from == p->skips[skip].from &&
           strcmp(p->skips[skip - 1].name, p->skips[skip].name) == 0)
        skip--;
    return skip;
}

/* Unless the tensor gets there anyway. */
static tri_status add_hop(trii_skip_pass *t, int tensor, int from, int to)
{
    const trii_pipeline_shape *shape = &t->p->shape;

    for (int h = 0; h < t->n_hops; h++)
        if (t->hops[h].skip == tensor && t->hops[h].to <= to &&
            are_joined(shape, t->hops[h].to, to))
            return TRI_OK;
    if (t->n_hops == TRII_PIPELINE_MOST_HOPS)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "more than %d messages of saved tensors for a micro-batch",
                         TRII_PIPELINE_MOST_HOPS);
    t->hops[t->n_hops++] = (trii_pipeline_hop){.skip = tensor, .from = from, .to = to};
    return TRI_OK;
}

static bool goes_through(const trii_skip_pass *t, const trii_pipeline_skip *skip)
{
    const trii_pipeline_shape *shape = &t->p->shape;

    return trii_recorder_of(t->step)->eager ||
           trii_pipeline_rank_of(shape, skip->from) == trii_pipeline_rank_of(shape, skip->to);
}

static tri_status add_way(trii_skip_pass *t, int i)
{
    const trii_pipeline_shape *shape = &t->p->shape;
    const trii_pipeline_skip *skip = &t->p->skips[i];
    int tensor = tensor_of(t->p, i);
    tri_status status = TRI_OK;

    if (are_joined(shape, skip->from, skip->to))
        return TRI_OK;
    if (!goes_through(t, skip))
        return add_hop(t, tensor, skip->from, skip->to);
    for (int s = skip->from; s < skip->to && status == TRI_OK; s++)
        if (!are_joined(shape, s, s + 1))
            status = add_hop(t, tensor, s, s + 1);
    return status;
}

/* Those that pass through stages first: others may find them there. */
static tri_status find_ways(trii_skip_pass *t)
{
    tri_status status = TRI_OK;

    for (int through = 1; through >= 0; through--)
        for (int i = 0; i < t->p->n_skips && status == TRI_OK; i++)
            if (goes_through(t, &t->p->skips[i]) == (through != 0))
                status = add_way(t, i);
    return status;
}

tri_status trii_skips_begin(trii_skip_pass *t, const trii_pipeline *p, trii_step *step,
                            trii_pipeline_call call, bool halves)
{
    size_t m = (size_t)p->shape.microbatches, n, cells = (size_t)p->n_skips * (size_t)p->n_local;
    tri_status status = TRI_OK;

    *t = (trii_skip_pass){.p = p, .step = step, .call = call, .halves = halves};
    if (p->n_skips > 0) {
        t->hops = trii_alloc(TRII_PIPELINE_MOST_HOPS, sizeof(*t->hops), "skips");
        status = t->hops != NULL ? find_ways(t) : TRI_ERR_NO_MEMORY;
    }
    if (status != TRI_OK)
        return status;
    n = (size_t)t->n_hops;
    t->cells = trii_alloc(cells * m, sizeof(*t->cells), "skips");
    t->tokens = trii_alloc(n * m, sizeof(tri_tensor *), "skips");
    t->notes = trii_alloc(2 * n, sizeof(*t->notes), "skips");
    t->roots = trii_alloc(n + cells + 1, sizeof(tri_tensor *), "skips");
    t->seeds = trii_alloc(n + cells + 1, sizeof(tri_tensor *), "skips");
    t->stops = trii_alloc((size_t)p->n_skips + 1, sizeof(*t->stops), "skips");
    t->stop_grads = trii_alloc((size_t)p->n_skips + 1, sizeof(*t->stop_grads), "skips");
    t->stopped = trii_alloc((size_t)p->n_skips + 1, sizeof(*t->stopped), "skips");
    return t->cells == NULL || t->tokens == NULL || t->notes == NULL || t->roots == NULL ||
                   t->seeds == NULL || t->stops == NULL || t->stop_grads == NULL ||
                   t->stopped == NULL
               ? TRI_ERR_NO_MEMORY
               : TRI_OK;
}

void trii_skips_end(trii_skip_pass *t)
{
    trii_free(t->hops);
    trii_free(t->cells);
    trii_free(t->tokens);
    trii_free(t->notes);
    trii_free(t->returned);
    trii_free(t->roots);
    trii_free(t->seeds);
    trii_free(t->stops);
    trii_free(t->stop_grads);
    trii_free(t->stopped);
}

/* --- a stage -------------------------------------------------------------- */

static trii_skip_cell *cell_of(const trii_skip_pass *t, int skip, const trii_skip_place *at)
{
    const trii_pipeline *p = t->p;
    ptrdiff_t row = (ptrdiff_t)skip * p->n_local + trii_pipeline_local_of(&p->shape, at->stage);

    return &t->cells[row * p->shape.microbatches + at->microbatch];
}

/* This rank has the stage before, too. */
static bool is_joined_to_last(const trii_skip_pass *t, const trii_skip_place *at)
{
    return at->stage > 0 && are_joined(&t->p->shape, at->stage - 1, at->stage);
}

/* Messages from stage to stage have numbers below. */
static trii_pipeline_edge edge_of(const trii_skip_pass *t, int hop)
{
    return (trii_pipeline_edge){
        .number = t->p->shape.stages + hop, .from = t->hops[hop].from, .to = t->hops[hop].to};
}

static tri_status receive(trii_skip_pass *t, int hop, const trii_skip_place *at)
{
    const trii_pipeline_note *note = &t->notes[2 * hop + at->kind];
    const trii_pipeline_edge edge = edge_of(t, hop);
    const trii_after after = {&at->after, at->after != TRII_NO_VALUE};
    trii_skip_cell *cell = cell_of(t, t->hops[hop].skip, at);
    trii_vid value = TRII_NO_VALUE;
    tri_status status;

    if (cell->tensor != NULL)
        return TRI_OK;
    status = trii_record_recv(t->step, t->p->group, &note->type, note->requires_grad,
                              trii_pipeline_rank_of(&t->p->shape, edge.from),
                              trii_pipeline_tag(t->p, &edge, at->microbatch), &after, &value);
    if (status != TRI_OK)
        return status;
    if (note->in_parts)
        trii_cut_parts_note(value);
    trii_traffic_is_for(t->step, value, "tri_pipeline (saved tensor of a stage)");
    trii_traffic_for_backward(t->step, value);
    *cell = (trii_skip_cell){trii_handle_recorded(t->step, value), at->stage};
    return TRI_OK;
}

tri_status trii_skips_expect(trii_skip_pass *t, const trii_skip_place *at)
{
    tri_status status = TRI_OK;

    for (int h = 0; h < t->n_hops && status == TRI_OK; h++)
        if (t->hops[h].to == at->stage && t->notes[2 * h + at->kind].rows != 0)
            status = receive(t, h, at);
    return status;
}

static tri_status listen(trii_skip_pass *t, int hop, const trii_skip_place *at)
{
    const trii_pipeline_edge edge = edge_of(t, hop);
    trii_pipeline_note *note = &t->notes[2 * hop + at->kind];

    return note->rows != 0 && !at->first_of_kind
               ? TRI_OK
               : trii_pipeline_note_recv(t->p, &edge, t->call, note);
}

tri_status trii_skips_arrive(trii_skip_pass *t, const trii_skip_place *at)
{
    tri_status status = TRI_OK;

    if (t->p->n_skips > 0 && is_joined_to_last(t, at)) {
        const trii_skip_place before = {.stage = at->stage - 1, .microbatch = at->microbatch};

        for (int i = 0; i < t->p->n_skips; i++)
            *cell_of(t, i, at) = *cell_of(t, i, &before);
    }
    for (int h = 0; h < t->n_hops && status == TRI_OK; h++) {
        if (t->hops[h].to != at->stage)
            continue;
        status = listen(t, h, at);
        if (status == TRI_OK)
            status = receive(t, h, at);
    }
    /* what a stage saves is what is there afterwards */
    for (int i = 0; i < t->p->n_skips && status == TRI_OK; i++)
        if (t->p->skips[i].from == at->stage)
            status = trii_skip_set(t->p->skips[i].name, NULL);
    for (int i = 0; i < t->p->n_skips && status == TRI_OK; i++)
        if (t->p->skips[i].to == at->stage)
            status = trii_skip_set(t->p->skips[i].name, cell_of(t, tensor_of(t->p, i), at)->tensor);
    return status;
}

static tri_status take_saved(trii_skip_pass *t, const trii_skip_place *at)
{
    for (int i = 0; i < t->p->n_skips; i++) {
        const trii_pipeline_skip *skip = &t->p->skips[i];

        if (skip->from != at->stage || tensor_of(t->p, i) != i)
            continue;
        *cell_of(t, i, at) = (trii_skip_cell){trii_skip_find(skip->name), at->stage};
        if (cell_of(t, i, at)->tensor == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "stage %d has not called its tri_nn_skip_save of \"%s\", which stage "
                             "%d takes",
                             at->stage, skip->name, skip->to);
    }
    return TRI_OK;
}

static tri_status send(trii_skip_pass *t, int hop, const trii_skip_place *at)
{
    const trii_pipeline_edge edge = edge_of(t, hop);
    trii_pipeline_note note = {.call = t->call, .rows = at->rows};
    tri_tensor *x = cell_of(t, t->hops[hop].skip, at)->tensor;
    trii_vid value = TRII_NO_VALUE, out = TRII_NO_VALUE;
    tri_status status = trii_resolve(t->step, x, &value);

    if (status != TRI_OK)
        return status;
    note.type = t->step->values[value].type;
    note.requires_grad = t->step->values[value].requires_grad;
    note.in_parts = trii_cut_parts_reach(value);
    status = trii_pipeline_note_tell(t->p, &edge, &note, at->first_of_kind, at->microbatch,
                                     &t->notes[2 * hop + at->kind]);
    if (status == TRI_OK)
        status = trii_record_send(t->step, t->p->group, value,
                                  trii_pipeline_rank_of(&t->p->shape, edge.to),
                                  trii_pipeline_tag(t->p, &edge, at->microbatch), &out);
    if (status != TRI_OK)
        return status;
    trii_traffic_is_for(t->step, out, "tri_pipeline (saved tensor of a stage)");
    t->tokens[(ptrdiff_t)hop * t->p->shape.microbatches + at->microbatch] =
        trii_handle_recorded(t->step, out);
    return TRI_OK;
}

tri_status trii_skips_leave(trii_skip_pass *t, const trii_skip_place *at)
{
    tri_status status = take_saved(t, at);

    for (int h = 0; h < t->n_hops && status == TRI_OK; h++)
        if (t->hops[h].from == at->stage)
            status = send(t, h, at);
    return status;
}

/* --- backward ------------------------------------------------------------- */

static tri_status add_root(trii_skip_pass *t, tri_tensor *root, tri_tensor *seed, int *n_io)
{
    trii_vid value = TRII_NO_VALUE;
    tri_status status = trii_resolve(t->step, root, &value);

    if (status == TRI_OK && t->step->values[value].requires_grad) {
        t->roots[*n_io] = root;
        t->seeds[(*n_io)++] = seed;
    }
    return status;
}

tri_status trii_skips_roots(trii_skip_pass *t, const trii_skip_place *at, tri_tensor *root,
                            tri_tensor *seed, int *n_out)
{
    const trii_pipeline_shape *shape = &t->p->shape;
    tri_status status = TRI_OK;

    *n_out = 0;
    if (root == NULL && !t->halves)
        return TRI_OK;
    if (root != NULL)
        status = add_root(t, root, seed, n_out);
    for (int h = 0; h < t->n_hops && status == TRI_OK; h++) {
        tri_tensor *token = t->tokens[(ptrdiff_t)h * shape->microbatches + at->microbatch];
        int from = t->hops[h].from;

        if (token != NULL && (from == at->stage || (!t->halves && from < at->stage &&
                                                    are_joined(shape, from, at->stage))))
            status = add_root(t, token, NULL, n_out);
    }
    for (int i = 0; i < t->n_returned && status == TRI_OK; i++)
        if (t->returned[i].stage == at->stage && t->returned[i].microbatch == at->microbatch)
            status = add_root(t, t->returned[i].value, t->returned[i].seed, n_out);
    return status;
}

tri_status trii_skips_stops(trii_skip_pass *t, const trii_skip_place *at, trii_vid in, int *n_out)
{
    tri_status status = TRI_OK;
    int n = 0;

    if (in != TRII_NO_VALUE)
        t->stops[n++] = in;
    for (int i = 0; i < t->p->n_skips && status == TRI_OK; i++) {
        const trii_skip_cell *cell = cell_of(t, i, at);
        trii_vid value = TRII_NO_VALUE;
        int k = 0;

        if (cell->tensor == NULL || cell->stage == at->stage)
            continue;
        status = trii_resolve(t->step, cell->tensor, &value);
        while (k < n && t->stops[k] != value)
            k++;
        if (k < n || status != TRI_OK || !t->step->values[value].requires_grad)
            continue;
        t->stopped[n] = *cell;
        t->stops[n++] = value;
    }
    *n_out = n;
    return status;
}

tri_status trii_skips_return(trii_skip_pass *t, const trii_skip_place *at, int first, int n)
{
    for (int k = first; k < n; k++) {
        void *array = t->returned;
        tri_status status;

        if (t->stop_grads[k] == TRII_NO_VALUE)
            continue;
        status = trii_grow(&array, &t->cap_returned, t->n_returned + 1, sizeof(*t->returned),
                           "gradients of saved tensors");
        t->returned = array;
        if (status != TRI_OK)
            return status;
        t->returned[t->n_returned++] =
            (trii_skip_root){.stage = t->stopped[k].stage,
                             .microbatch = at->microbatch,
                             .value = t->stopped[k].tensor,
                             .seed = trii_handle(t->step, t->stop_grads[k])};
    }
    return TRI_OK;
}

tri_status trii_skips_answer(const trii_skip_pass *t, const trii_skip_place *at)
{
    tri_status status = TRI_OK;

    for (int h = 0; h < t->n_hops && status == TRI_OK; h++) {
        trii_vid value = TRII_NO_VALUE;

        if (t->hops[h].to != at->stage)
            continue;
        status = trii_resolve(t->step, cell_of(t, t->hops[h].skip, at)->tensor, &value);
        if (status == TRI_OK)
            status = trii_traffic_answer_zeros(t->step, value);
    }
    return status;
}
