/*
 * pipeline_note.c - what a stage tells the next one before its messages, in every step:
 * the next rank waits for it while the one before records, which is long before that has results,
 * and so nothing has to be agreed when shapes, modes or frozen parameters change.
 */
#include <string.h>

#include "base/dtype.h"
#include "base/err.h"
#include "train/dist/token_counts.h"
#include "train/graph/step/type.h"
#include "train/parallel/pipeline/pipeline_internal.h"
#include "train/tensor/rank_text.h"
#include "train/traffic/traffic.h"

/* Messages of the steps have tags below. */
#define NOTE_TAG (TRII_TRAFFIC_TAGS / 2)

/* What a note is made of; tokens are of the sequences of which the sender has had a part. */
enum {
    CALL,
    TRAINING,
    ROWS,
    RANDOMS,
    FEATURES, /* of them */
    UPDATED = FEATURES + sizeof(trii_cut_features) / sizeof(int64_t),
    WITHOUT,
    GIVEN,
    REQUIRES_GRAD = GIVEN + sizeof(trii_stages_given) / sizeof(int64_t),
    IN_PARTS,
    DTYPE,
    NDIM,
    SHAPE,
    TOKENS = SHAPE + TRI_MAX_DIMS,
    WORDS = TOKENS + sizeof(trii_token_counts) / sizeof(int64_t)
};

static const char *call_text(int64_t call)
{
    switch (call) {
    case TRII_PIPELINE_TRAIN:
        return "tri_pipeline_step";
    case TRII_PIPELINE_LOSS:
        return "tri_pipeline_step without gradients";
    default:
        return "tri_forward";
    }
}

static const char *mode_text(bool training)
{
    return training ? "training" : "evaluation";
}

tri_status trii_pipeline_note_send(const trii_pipeline *p, const trii_pipeline_edge *edge,
                                   const trii_pipeline_note *note)
{
    int64_t words[WORDS] = {[CALL] = (int64_t)note->call,
                            [TRAINING] = tri_module_is_training(p->module),
                            [ROWS] = note->rows,
                            [RANDOMS] = note->drawn.count,
                            [UPDATED] = note->updates.any,
                            [WITHOUT] = note->updates.without,
                            [REQUIRES_GRAD] = note->requires_grad,
                            [IN_PARTS] = note->in_parts,
                            [DTYPE] = (int64_t)note->type.dtype,
                            [NDIM] = note->type.ndim};

    for (int d = 0; d < note->type.ndim; d++)
        words[SHAPE + d] = note->type.shape[d];
    memcpy(&words[FEATURES], &note->drawn.features, sizeof(note->drawn.features));
    memcpy(&words[GIVEN], &note->updates.given, sizeof(note->updates.given));
    memcpy(&words[TOKENS], trii_token_counts_now(), sizeof(trii_token_counts));
    return tri_send(p->group, words, WORDS, TRI_DTYPE_I64,
                    trii_pipeline_rank_of(&p->shape, edge->to), NOTE_TAG + edge->number, NULL);
}

tri_status trii_pipeline_note_tell(const trii_pipeline *p, const trii_pipeline_edge *edge,
                                   const trii_pipeline_note *note, bool is_first, int microbatch,
                                   trii_pipeline_note *told_io)
{
    char told[TRII_TYPE_TEXT], now[TRII_TYPE_TEXT];

    if (is_first) {
        *told_io = *note;
        return trii_pipeline_note_send(p, edge, note);
    }
    if (note->type.dtype == told_io->type.dtype &&
        trii_type_same_shape(&note->type, &told_io->type) &&
        note->requires_grad == told_io->requires_grad)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "stage %d gives %s %s a gradient for micro-batch %d, and %s %s one for an "
                     "earlier one: a stage gives alike for all of as many rows",
                     edge->from, trii_type_text(&note->type, now),
                     note->requires_grad ? "with" : "without", microbatch,
                     trii_type_text(&told_io->type, told),
                     told_io->requires_grad ? "with" : "without");
}

tri_status trii_pipeline_note_recv(const trii_pipeline *p, const trii_pipeline_edge *edge,
                                   trii_pipeline_call call, trii_pipeline_note *note_out)
{
    int64_t words[WORDS] = {0};
    trii_token_counts counts;
    int peer = trii_pipeline_rank_of(&p->shape, edge->from);
    tri_status status =
        tri_recv(p->group, words, WORDS, TRI_DTYPE_I64, peer, NOTE_TAG + edge->number, NULL);

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "waiting for the shapes of stage %d", edge->from);
    if (words[CALL] != (int64_t)call)
        return TRII_FAIL(TRI_ERR_MISMATCH,
                         "%s calls %s, %s %s: all ranks of a pipeline call the same",
                         trii_rank_text_of(p->group, p->rank).text, call_text((int64_t)call),
                         trii_rank_text_of(p->group, peer).text, call_text(words[CALL]));
    if ((words[TRAINING] != 0) != tri_module_is_training(p->module))
        return TRII_FAIL(TRI_ERR_MISMATCH,
                         "the pipeline is in %s mode on %s, in %s mode on %s: all ranks call "
                         "tri_module_train",
                         mode_text(tri_module_is_training(p->module)),
                         trii_rank_text_of(p->group, p->rank).text, mode_text(words[TRAINING] != 0),
                         trii_rank_text_of(p->group, peer).text);
    *note_out = (trii_pipeline_note){
        .call = call,
        .rows = words[ROWS],
        .drawn.count = words[RANDOMS],
        .updates = {.any = words[UPDATED] != 0, .without = (int)words[WITHOUT]},
        .requires_grad = words[REQUIRES_GRAD] != 0,
        .in_parts = words[IN_PARTS] != 0,
        .type = {.dtype = (tri_dtype)words[DTYPE],
                 .device = tri_current_device(),
                 .ndim = (int)words[NDIM]}};
    for (int d = 0; d < note_out->type.ndim; d++)
        note_out->type.shape[d] = words[SHAPE + d];
    memcpy(&note_out->drawn.features, &words[FEATURES], sizeof(note_out->drawn.features));
    note_out->drawn.features.group = 0; /* has other ranks than the one here */
    memcpy(&note_out->updates.given, &words[GIVEN], sizeof(note_out->updates.given));
    memcpy(&counts, &words[TOKENS], sizeof(counts));
    trii_token_counts_join(&counts);
    return TRI_OK;
}
