/*
 * pipeline_pass.c - records one pass of all micro-batches through this rank's stages, action by
 * action; a plan runs what was recorded in that order.
 *
 * A forward begins with what the stage before has sent and ends with a send, whose token is where
 * the backward begins (train/traffic/traffic.h); at the last stage it begins at the loss. Where the
 * next stage is on the same rank the two are one graph, and the backward of the later one is that
 * of both; but in a schedule whose backwards have two parts each stage has its own, which ends at
 * the result of the stage before (train/dist/halves.h).
 *
 * A receive is recorded one forward ahead, and posted when the forward before it is over: so a
 * message comes while the rank computes, and two lie in memory at most.
 *
 * Under TRI_EAGER=1 each message is waited for where it is recorded. A rank that sends then waits
 * for its peer to receive, and so the micro-batches pass one after the other.
 */
#include <string.h>

#include <trireme/dist.h>
#include <trireme/gradient.h>
#include <trireme/ops.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/dist/halves.h"
#include "train/graph/record/record.h"
#include "train/graph/step/part.h"
#include "train/graph/step/recorder.h"
#include "train/graph/step/type.h"
#include "train/parallel/pipeline/pipeline_answers.h"
#include "train/parallel/pipeline/pipeline_loss.h"
#include "train/parallel/pipeline/pipeline_random.h"
#include "train/parallel/pipeline/pipeline_skips.h"
#include "train/parallel/pipeline/pipeline_ties.h"
#include "train/traffic/traffic.h"

/* A micro-batch at one of this rank's stages. */
typedef struct piece {
    trii_vid received; /* NO_VALUE: not recorded yet */
    tri_tensor *out;
    tri_tensor *root; /* where the backward begins; NULL: at a later stage of this rank */
    /* Of a schedule in two halves. */
    trii_vid in;             /* the result of the stage before, on this rank; else NO_VALUE */
    tri_tensor *seed;        /* its gradient; NULL: 1 */
    trii_backward_rest rest; /* for the second half */
} piece;

typedef struct pass {
    trii_pipeline *p;
    trii_step *step;
    trii_pipeline_call call;
    const trii_pipeline_inputs *inputs;
    trii_pipeline_action *in_turn; /* NULL: actions are the pipeline's */
    const trii_pipeline_action *actions;
    int64_t n_actions;
    int64_t rows;              /* of the whole batch; 0: not known yet */
    piece *pieces;             /* [n_local][microbatches] */
    trii_pipeline_note *notes; /* [n_local][2]: of what comes; rows 0: not here yet */
    trii_pipeline_note *told;  /* [n_local][2]: of what goes */
    trii_pipeline_loss of_batch;
    tri_tensor *loss;  /* of the micro-batches so far */
    trii_vid last_out; /* of the forward before */
    trii_pipeline_answers answers;
    trii_skip_pass skips;
    trii_pipeline_random random;
} pass;

/* What is recorded from now on is this action's. */
static void set_part(const pass *t, const trii_pipeline_action *a)
{
    trii_recorder_of(t->step)->scopes.part =
        trii_part_number((int)a->kind, a->stage, a->microbatch);
}

/* --- the batch ------------------------------------------------------------ */

static int local_of(const pass *t, int stage)
{
    return trii_pipeline_local_of(&t->p->shape, stage);
}

static piece *piece_of(const pass *t, int stage, int microbatch)
{
    return &t->pieces[local_of(t, stage) * t->p->shape.microbatches + microbatch];
}

static bool is_here(const pass *t, int stage)
{
    return trii_pipeline_rank_of(&t->p->shape, stage) == t->p->rank;
}

/* The first ones have one row more where the rows do not divide, as torch.tensor_split does it. */
static int64_t rows_of(const pass *t, int microbatch)
{
    int m = t->p->shape.microbatches;

    return t->rows / m + (microbatch < t->rows % m);
}

static int64_t first_row(const pass *t, int microbatch)
{
    int64_t m = t->p->shape.microbatches, longer = t->rows % m;

    return microbatch * (t->rows / m) + (microbatch < longer ? microbatch : longer);
}

/* With fewer rows than micro-batches some have none. */
static int used_microbatches(const pass *t)
{
    int m = t->p->shape.microbatches;

    return t->rows < m ? (int)t->rows : m;
}

/* 0: it has as many rows as the first, 1: one less. */
static int kind_of(const pass *t, int microbatch)
{
    return rows_of(t, microbatch) != rows_of(t, 0);
}

/* It is the one whose types are told. */
static bool is_first_of_kind(const pass *t, int microbatch)
{
    return microbatch == 0 || kind_of(t, microbatch) != kind_of(t, microbatch - 1);
}

static tri_tensor *rows_from(const pass *t, tri_tensor *whole, int microbatch)
{
    return tri_narrow(whole, 0, first_row(t, microbatch), rows_of(t, microbatch));
}

/* stage: "first" or "last", which needs it and is here. */
static tri_status check_rows(const pass *t, const char *name, tri_tensor *batch, const char *stage)
{
    tri_status status;

    if (batch == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s is NULL on rank %d, which has the %s stage", name,
                         t->p->rank, stage);
    status = tri_tensor_status(batch);
    if (status != TRI_OK)
        return status;
    if (tri_tensor_ndim(batch) < 1 || tri_tensor_size(batch, 0) < 1)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s has no rows: dimension 0 is that of the samples, at least 1", name);
    return TRI_OK;
}

/* What this rank's stages need beside messages. */
static tri_status check_inputs(pass *t)
{
    const trii_pipeline_inputs *in = t->inputs;
    tri_status status = trii_pipeline_replicas_check(t->p, in->model, t->call);

    if (status == TRI_OK && is_here(t, 0)) {
        status = check_rows(t, "x", in->x, "first");
        if (status == TRI_OK)
            t->rows = tri_tensor_size(in->x, 0);
    }
    if (status != TRI_OK || t->call == TRII_PIPELINE_OUTPUTS || !is_here(t, t->p->shape.stages - 1))
        return status;
    status = check_rows(t, "target", in->target, "last");
    return status == TRI_OK && in->loss == NULL
               ? TRII_FAIL(TRI_ERR_INVALID_ARG, "loss is NULL on the rank of the last stage")
               : status;
}

static tri_status check_target(const pass *t)
{
    int64_t rows = tri_tensor_size(t->inputs->target, 0);

    return rows == t->rows ? TRI_OK
                           : TRII_FAIL(TRI_ERR_INVALID_ARG,
                                       "target has %lld rows, x on the first rank has %lld",
                                       (long long)rows, (long long)t->rows);
}

/* --- forward -------------------------------------------------------------- */

static trii_pipeline_edge edge_from(int stage)
{
    return (trii_pipeline_edge){.number = stage, .from = stage, .to = stage + 1};
}

static trii_skip_place place_of(const pass *t, const trii_pipeline_action *a)
{
    return (trii_skip_place){.stage = a->stage,
                             .microbatch = a->microbatch,
                             .kind = kind_of(t, a->microbatch),
                             .first_of_kind = is_first_of_kind(t, a->microbatch),
                             .rows = t->rows,
                             .after = t->last_out};
}

/* Records the receive of a stage's input, unless it is recorded. */
static tri_status receive(pass *t, int stage, int microbatch, trii_vid after)
{
    const trii_pipeline *p = t->p;
    const trii_pipeline_edge edge = edge_from(stage - 1);
    piece *at = piece_of(t, stage, microbatch);
    const trii_pipeline_note *note = &t->notes[2 * local_of(t, stage) + kind_of(t, microbatch)];
    trii_vid values[TRII_PIPELINE_ANSWERS_TAKEN + 1];
    trii_after first = {values, 0};
    tri_status status;

    if (at->received != TRII_NO_VALUE)
        return TRI_OK;
    first.n = trii_pipeline_answers_take(&t->answers, stage, microbatch, values);
    if (after != TRII_NO_VALUE)
        values[first.n++] = after;
    status = trii_record_recv(t->step, p->group, &note->type, note->requires_grad,
                              trii_pipeline_rank_of(&p->shape, edge.from),
                              trii_pipeline_tag(p, &edge, microbatch), &first, &at->received);
    if (status != TRI_OK)
        return status;
    if (note->in_parts)
        trii_cut_parts_note(at->received);
    trii_traffic_is_for(t->step, at->received, "tri_pipeline (input of a stage)");
    trii_traffic_for_backward(t->step, at->received);
    return TRI_OK;
}

/* Waits for the note that comes before this micro-batch, if one does. */
static tri_status listen(pass *t, int stage, int microbatch)
{
    const trii_pipeline_edge edge = edge_from(stage - 1);
    trii_pipeline_note *notes = &t->notes[2 * (ptrdiff_t)local_of(t, stage)], note;
    tri_status status;

    if (microbatch > 0 && notes[kind_of(t, microbatch)].rows != 0)
        return TRI_OK;
    status = trii_pipeline_note_recv(t->p, &edge, t->call, &note);
    if (status != TRI_OK)
        return status;
    t->rows = note.rows;
    notes[kind_of(t, microbatch)] = note;
    return trii_pipeline_updates_join(t->p, trii_pipeline_rank_of(&t->p->shape, stage - 1),
                                      &note.updates);
}

/* What the next forward of this rank receives, if it is known what that will be. */
static tri_status receive_next(pass *t, const trii_pipeline_action *done)
{
    const trii_pipeline_action *end = t->actions + t->n_actions, *next = done + 1;
    trii_skip_place place;
    tri_status status;

    if (t->in_turn != NULL)
        return TRI_OK;
    while (next < end && (next->kind != TRII_PIPELINE_FORWARD || rows_of(t, next->microbatch) == 0))
        next++;
    if (next == end || next->stage == 0 || is_here(t, next->stage - 1) ||
        t->notes[2 * local_of(t, next->stage) + kind_of(t, next->microbatch)].rows == 0)
        return TRI_OK;
    set_part(t, next);
    status = receive(t, next->stage, next->microbatch, t->last_out);
    place = place_of(t, next);
    if (status == TRI_OK)
        status = trii_skips_expect(&t->skips, &place);
    set_part(t, done);
    return status;
}

static tri_status input_of(pass *t, const trii_pipeline_action *a, tri_tensor **in_out)
{
    piece *at = piece_of(t, a->stage, a->microbatch);
    tri_status status;

    if (a->stage == 0) {
        *in_out = rows_from(t, t->inputs->x, a->microbatch);
        return TRI_OK;
    }
    if (is_here(t, a->stage - 1)) {
        *in_out = piece_of(t, a->stage - 1, a->microbatch)->out;
        return trii_resolve(t->step, *in_out, &at->in);
    }
    status = listen(t, a->stage, a->microbatch);
    if (status == TRI_OK)
        status = receive(t, a->stage, a->microbatch, t->last_out);
    *in_out = status == TRI_OK ? trii_handle_recorded(t->step, at->received) : NULL;
    return status;
}

static tri_status send_on(pass *t, const trii_pipeline_action *a, trii_vid out)
{
    const trii_pipeline *p = t->p;
    const trii_pipeline_edge edge = edge_from(a->stage);
    piece *at = piece_of(t, a->stage, a->microbatch);
    const trii_pipeline_note note = {
        .call = t->call,
        .rows = t->rows,
        .drawn = trii_pipeline_random_until(&t->random, local_of(t, a->stage)),
        .updates = p->updates,
        .type = t->step->values[out].type,
        .requires_grad = t->step->values[out].requires_grad,
        .in_parts = trii_cut_parts_reach(out)};
    trii_pipeline_note *told =
        &t->told[2 * (ptrdiff_t)local_of(t, a->stage) + kind_of(t, a->microbatch)];
    trii_vid token = TRII_NO_VALUE;
    tri_status status = trii_pipeline_note_tell(p, &edge, &note, is_first_of_kind(t, a->microbatch),
                                                a->microbatch, told);

    if (status == TRI_OK)
        status = trii_record_send(t->step, p->group, out, trii_pipeline_rank_of(&p->shape, edge.to),
                                  trii_pipeline_tag(p, &edge, a->microbatch), &token);
    if (status != TRI_OK)
        return status;
    trii_traffic_is_for(t->step, token, "tri_pipeline (result of a stage)");
    at->root = trii_handle_recorded(t->step, token);
    return TRI_OK;
}

static tri_status take_loss(pass *t, const trii_pipeline_action *a)
{
    piece *at = piece_of(t, a->stage, a->microbatch);
    tri_status status = a->microbatch == 0 ? check_target(t) : TRI_OK;

    if (status != TRI_OK)
        return status;
    status =
        trii_pipeline_loss_of(&t->of_batch, at->out, rows_from(t, t->inputs->target, a->microbatch),
                              (double)rows_of(t, a->microbatch) / (double)t->rows, &at->root);
    if (status != TRI_OK)
        return status;
    tri_no_grad_begin();
    t->loss = t->loss == NULL ? at->root : tri_add(t->loss, at->root);
    tri_no_grad_end();
    return tri_tensor_status(t->loss);
}

static tri_tensor *run_stage(const trii_pipeline *p, int local, tri_tensor *x)
{
    for (int i = p->first[local]; i < p->first[local + 1]; i++)
        x = tri_forward(p->parts[i], x);
    return x;
}

/* What earlier stages draw for a micro-batch. */
static trii_pipeline_drawn random_before(const pass *t, int stage)
{
    if (stage == 0)
        return (trii_pipeline_drawn){.count = 0};
    return is_here(t, stage - 1) ? trii_pipeline_random_until(&t->random, local_of(t, stage - 1))
                                 : t->notes[2 * (ptrdiff_t)local_of(t, stage)].drawn;
}

/* The stage's own part of a forward, and the loss after the last one. */
static tri_status compute(pass *t, const trii_pipeline_action *a, tri_tensor *in)
{
    piece *at = piece_of(t, a->stage, a->microbatch);
    int local = local_of(t, a->stage);
    bool has_loss = a->stage == t->p->shape.stages - 1 && t->call != TRII_PIPELINE_OUTPUTS;
    trii_vid out = TRII_NO_VALUE;
    tri_status status;

    trii_pipeline_random_enter(&t->random, local, a->microbatch, random_before(t, a->stage));
    at->out = run_stage(t->p, local, in);
    status = tri_tensor_status(at->out);
    if (status == TRI_OK)
        status = trii_resolve(t->step, at->out, &out);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "stage %d, micro-batch %d", a->stage, a->microbatch);
    t->last_out = out;
    status = has_loss ? take_loss(t, a) : TRI_OK;
    return status == TRI_OK ? trii_pipeline_random_leave(&t->random, local, a->microbatch) : status;
}

static tri_status forward(pass *t, const trii_pipeline_action *a)
{
    bool is_last = a->stage == t->p->shape.stages - 1;
    tri_tensor *in = NULL;
    trii_skip_place place;
    tri_status status = input_of(t, a, &in);

    if (status != TRI_OK)
        return status;
    place = place_of(t, a);
    status = trii_skips_arrive(&t->skips, &place);
    if (status == TRI_OK)
        status = receive_next(t, a);
    if (status == TRI_OK)
        status = compute(t, a, in);
    if (status == TRI_OK && !is_last && !is_here(t, a->stage + 1))
        status = send_on(t, a, t->last_out);
    return status == TRI_OK ? trii_skips_leave(&t->skips, &place) : status;
}

/* --- backward ------------------------------------------------------------- */

/* Where the backward of this piece begins; nowhere: it has none of its own. So has a stage below
 * which nothing is trained, but for the last one, whose loss says so. */
static tri_status find_roots(pass *t, const trii_pipeline_action *a, trii_roots *roots_out)
{
    const piece *at = piece_of(t, a->stage, a->microbatch);
    const trii_skip_place place = place_of(t, a);
    int n = 0;
    tri_status status = trii_skips_roots(&t->skips, &place, at->root, at->seed, &n);

    if (status == TRI_OK && n == 0 && a->stage == t->p->shape.stages - 1) {
        t->skips.roots[0] = at->root;
        t->skips.seeds[0] = NULL;
        n = 1;
    }
    *roots_out = (trii_roots){.call = "tri_pipeline_step",
                              .takes_seeds = true,
                              .outputs = t->skips.roots,
                              .seeds = t->skips.seeds,
                              .n = n};
    return status;
}

static tri_status backward(pass *t, const trii_pipeline_action *a)
{
    trii_roots roots = {.n = 0};
    tri_status status = find_roots(t, a, &roots);

    if (status != TRI_OK || roots.n == 0)
        return status;
    if (roots.n == 1)
        tri_backward(roots.outputs[0]);
    else
        tri_backward_of(roots.outputs, roots.n, NULL);
    if (t->step->failed == TRI_OK)
        return TRI_OK;
    return TRII_FAIL(t->step->failed, "stage %d, micro-batch %d: %s", a->stage, a->microbatch,
                     trii_recorder_of(t->step)->failures.line != NULL
                         ? trii_recorder_of(t->step)->failures.line
                         : "out of memory");
}

/* The gradients of the stage's input and of what it took, and whatever comes with them. Where
 * stages before are on this rank, their backwards begin there. */
static tri_status backward_of_input(pass *t, const trii_pipeline_action *a)
{
    piece *at = piece_of(t, a->stage, a->microbatch);
    const trii_skip_place place = place_of(t, a);
    trii_roots roots = {.n = 0};
    int has_in = at->in != TRII_NO_VALUE, n_stops = 0;
    tri_status status = find_roots(t, a, &roots);

    if (status == TRI_OK && roots.n > 0)
        status = trii_skips_stops(&t->skips, &place, at->in, &n_stops);
    if (status != TRI_OK || roots.n == 0)
        return status;
    status = trii_backward_first(t->step, &roots, t->skips.stops, n_stops, t->skips.stop_grads,
                                 &at->rest);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "stage %d, micro-batch %d", a->stage, a->microbatch);
    if (has_in && t->skips.stop_grads[0] != TRII_NO_VALUE) {
        piece *before = piece_of(t, a->stage - 1, a->microbatch);

        before->root = before->out;
        before->seed = trii_handle(t->step, t->skips.stop_grads[0]);
    }
    return trii_skips_return(&t->skips, &place, has_in, n_stops);
}

static tri_status backward_of_weights(pass *t, const trii_pipeline_action *a)
{
    piece *at = piece_of(t, a->stage, a->microbatch);
    trii_roots roots = {.n = 0};
    tri_status status = find_roots(t, a, &roots);

    if (status != TRI_OK || roots.n == 0)
        return status;
    if (at->rest.last_node < 0) /* it is all of the backward: nobody waits for any of it */
        set_part(t, &(trii_pipeline_action){TRII_PIPELINE_BACKWARD, a->stage, a->microbatch});
    status = trii_backward_second(t->step, &roots, &at->rest);
    return status == TRI_OK
               ? status
               : TRII_FAIL_CTX(status, "stage %d, micro-batch %d", a->stage, a->microbatch);
}

/* --- all of it ------------------------------------------------------------ */

/* All of this stage's gradients that others wait for are recorded. They wait also where a stage
 * gives none, since its result does not depend on what they sent, or has no gradient. */
static tri_status answer(pass *t, const trii_pipeline_action *a)
{
    trii_vid received = piece_of(t, a->stage, a->microbatch)->received, token = TRII_NO_VALUE;
    const trii_skip_place place = place_of(t, a);
    tri_status status = trii_skips_answer(&t->skips, &place);

    if (status == TRI_OK && received != TRII_NO_VALUE) {
        status = trii_traffic_answer_zeros(t->step, received);
        token = trii_traffic_answer(t->step, received);
    }
    if (status == TRI_OK && token != TRII_NO_VALUE && t->in_turn == NULL)
        trii_pipeline_answers_add(&t->answers, a->stage, a->microbatch, token);
    return status == TRI_OK ? trii_step_eager(t->step) : status;
}

static tri_status record(pass *t, const trii_pipeline_action *a)
{
    tri_status status;

    if (a->kind == TRII_PIPELINE_FORWARD)
        return forward(t, a);
    if (t->call != TRII_PIPELINE_TRAIN)
        return TRI_OK;
    if (a->kind == TRII_PIPELINE_WEIGHT)
        return backward_of_weights(t, a);
    status = a->kind == TRII_PIPELINE_BACKWARD ? backward(t, a) : backward_of_input(t, a);
    return status == TRI_OK ? answer(t, a) : status;
}

static tri_status record_all(pass *t)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < t->n_actions && status == TRI_OK; i++) {
        const trii_pipeline_action *a = &t->actions[i];

        if (t->rows != 0 && rows_of(t, a->microbatch) == 0)
            continue; /* fewer rows than micro-batches */
        set_part(t, a);
        status = record(t, a);
    }
    trii_recorder_of(t->step)->scopes.part = 0;
    return status;
}

/* Gradients of parameters that several ranks have are added before replicas average them. */
static tri_status record_and_add(pass *t)
{
    bool trains = t->call == TRII_PIPELINE_TRAIN;
    tri_status status = trains ? trii_pipeline_ties_begin(t->p, t->step) : TRI_OK;

    if (trains)
        trii_pipeline_updates_begin(t->p);
    if (status == TRI_OK)
        status = record_all(t);
    if (status == TRI_OK && trains)
        trii_pipeline_updates_end(t->p);
    return status == TRI_OK && trains ? trii_pipeline_ties_end(t->p, t->step) : status;
}

/* The loss of the last stage, on all ranks. */
static tri_status share_loss(const pass *t, tri_tensor **loss_out)
{
    const trii_pipeline *p = t->p;
    tri_tensor *loss;

    tri_no_grad_begin();
    loss = t->loss != NULL
               ? trii_pipeline_loss_of_all(&t->of_batch, tri_cast(t->loss, TRI_DTYPE_F64))
               : tri_zeros(NULL, 0, TRI_DTYPE_F64);
    if (p->group != NULL)
        loss = tri_dist_broadcast(loss, trii_pipeline_rank_of(&p->shape, p->shape.stages - 1),
                                  p->group);
    tri_no_grad_end();
    *loss_out = loss;
    return tri_tensor_status(loss);
}

/* All rows of the last stage's results; elsewhere the token of the last message. */
static tri_status join_outputs(const pass *t, tri_tensor **out)
{
    const trii_pipeline *p = t->p;
    int m = p->shape.microbatches, n = 0;
    int stage = trii_pipeline_stage_of(&p->shape, p->rank, p->n_local - 1);
    bool is_last = is_here(t, p->shape.stages - 1);
    tri_tensor **all = trii_alloc((size_t)m, sizeof(tri_tensor *), "outputs of a pipeline");

    if (all == NULL)
        return TRI_ERR_NO_MEMORY;
    stage = is_last ? p->shape.stages - 1 : stage;
    while (n < m && rows_of(t, n) > 0) {
        all[n] = is_last ? piece_of(t, stage, n)->out : piece_of(t, stage, n)->root;
        n++;
    }
    *out = is_last && n > 1 ? tri_concat(all, n, 0) : all[n - 1];
    trii_free(all);
    return tri_tensor_status(*out);
}

static tri_status take_room(pass *t)
{
    size_t n = (size_t)t->p->n_local * (size_t)t->p->shape.microbatches;
    tri_status status;

    t->pieces = trii_alloc(n, sizeof(*t->pieces), "micro-batches");
    t->notes = trii_alloc(4 * (size_t)t->p->n_local, sizeof(*t->notes), "micro-batches");
    t->actions = t->p->actions;
    t->n_actions = t->p->n_actions;
    if (t->pieces == NULL || t->notes == NULL)
        return TRI_ERR_NO_MEMORY;
    t->told = t->notes + 2 * (ptrdiff_t)t->p->n_local;
    if (trii_recorder_of(t->step)->eager) {
        t->actions = t->in_turn =
            trii_alloc((size_t)t->p->n_actions, sizeof(*t->in_turn), "schedule");
        if (t->in_turn == NULL)
            return TRI_ERR_NO_MEMORY;
        t->n_actions = trii_pipeline_actions_in_turn(&t->p->shape, t->p->rank, t->in_turn);
    }
    status = trii_pipeline_answers_init(&t->answers, &t->p->shape, t->p->rank);
    for (size_t i = 0; i < n; i++)
        t->pieces[i] =
            (piece){.received = TRII_NO_VALUE, .in = TRII_NO_VALUE, .rest = {.last_node = -1}};
    return status;
}

static bool has_halves(const pass *t)
{
    for (int64_t i = 0; i < t->n_actions; i++)
        if (t->actions[i].kind == TRII_PIPELINE_INPUT)
            return true;
    return false;
}

/* What an earlier pass of this step has left: others may need it before they come to this one. And
 * a step that has failed says so here, before anybody waits for this rank. */
static tri_status settle(const pass *t)
{
    return t->step->failed != TRI_OK || t->p->generation == t->step->generation
               ? trii_step_run(t->step)
               : TRI_OK;
}

/* The peers get the reason, and no update happens here. */
static tri_tensor *give_up(const pass *t, tri_status status)
{
    const char *name = t->call == TRII_PIPELINE_OUTPUTS ? "pipeline forward" : "pipeline_step";
    tri_tensor *failed = trii_handle_refused(t->step, name, NULL, 0, status);
    char line[TRII_ERR_BYTES];

    (void)snprintf(line, sizeof(line), "%s", tri_last_error());
    trii_pipeline_abort(t->p, line);
    trii_pipeline_replicas_abort(t->inputs->model, line);
    trii_err_set("%s", line);
    if (t->step != NULL && t->step->failed == TRI_OK)
        trii_step_fail(t->step, status);
    return failed;
}

static void release(pass *t)
{
    size_t n = t->pieces != NULL ? (size_t)t->p->n_local * (size_t)t->p->shape.microbatches : 0;

    for (size_t i = 0; i < n; i++)
        trii_backward_rest_free(&t->pieces[i].rest);
    trii_pipeline_answers_fini(&t->answers);
    trii_free(t->pieces);
    trii_free(t->notes);
    trii_free(t->in_turn);
    trii_skips_end(&t->skips);
    trii_pipeline_random_end(&t->random);
}

tri_tensor *trii_pipeline_pass(trii_pipeline *p, trii_pipeline_call call,
                               const trii_pipeline_inputs *inputs)
{
    pass t = {.p = p,
              .step = trii_step_current(),
              .call = call,
              .inputs = inputs,
              .of_batch = {.loss = inputs->loss,
                           .count = p->count,
                           .arg = inputs->arg,
                           .target = inputs->target,
                           .replicas = trii_pipeline_counted_over(p, inputs->model, call)},
              .last_out = TRII_NO_VALUE};
    tri_tensor *result = NULL;
    tri_status status = t.step != NULL ? settle(&t) : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK)
        status = check_inputs(&t);
    if (status == TRI_OK)
        status = take_room(&t);
    if (status == TRI_OK)
        status = trii_skips_begin(&t.skips, p, t.step, call, has_halves(&t));
    if (status == TRI_OK)
        status = trii_pipeline_random_begin(&t.random, p, t.step, call);
    if (status == TRI_OK) {
        p->generation = t.step->generation;
        status = trii_pipeline_replicas_begin(inputs->model, t.step, call);
    }
    if (status == TRI_OK) {
        status = record_and_add(&t);
        status = trii_pipeline_replicas_end(p, inputs->model, t.step, call, &t.rows, status);
    }
    if (status == TRI_OK)
        status = trii_pipeline_random_set(&t.random, used_microbatches(&t));
    if (status == TRI_OK)
        status =
            call == TRII_PIPELINE_OUTPUTS ? join_outputs(&t, &result) : share_loss(&t, &result);
    release(&t);
    return status == TRI_OK ? tri_keep(result) : give_up(&t, status);
}
