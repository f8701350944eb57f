/*
 * tensor_parallel.h - tri_parallelize: what the files of this folder share.
 *
 *   parallelize.c       the call: ranks agree, parameters become parts, modules get their forward
 *   parallel_rules.c    which modules the rules name
 *   parallel_values.c   a value becomes this rank's part of it, and whole again
 *   parallel_sequence.c the same of tokens, also where they are sums over ranks
 *   parallel_linear.c   linear layers; parallel_embedding.c, parallel_attention.c: others
 *   parallel_whole.c    modules that stay whole: TRI_SEQUENCE and TRI_PREPARE
 *   parallel_loss.c     cross entropy of scores that are cut
 */
#ifndef TRII_TENSOR_PARALLEL_H
#define TRII_TENSOR_PARALLEL_H

#include <trireme/parallelize.h>

#include "train/nn/module.h"
#include "train/tensor/piece.h"
#include "train/tensor/storage.h"

/* This rank's part of a dimension, or of each of several parts of it. */
typedef struct trii_share {
    tri_group *group;
    int parts;     /* at least 1; what follows is of one of them */
    int64_t block; /* all three are multiples of it */
    int64_t whole, start, n;
    int copies; /* above 1: so many ranks in a row have the same */
} trii_share;

/* Of a dimension of this size, which both divide. As equal as can be: the first ranks have one
 * block more. None is empty where there are as many blocks. */
trii_share trii_share_of(tri_group *group, int64_t size, int parts, int64_t block);
/* That of another rank. */
trii_share trii_share_at(const trii_share *share, int rank);
/* x, which has the whole of the share along this dimension, to this rank's part; and back. Of
 * shares of one part. The loss is one that all ranks have: gradients are right for that (dist.h).
 */
tri_tensor *trii_share_take(const trii_share *share, tri_tensor *x, int dim);
tri_tensor *trii_share_join(const trii_share *share, tri_tensor *x, int dim);
/* Whether all ranks have equal parts. */
bool trii_share_is_equal(const trii_share *share);
/* x with so many zeros before and after it along this dimension. */
tri_tensor *trii_pad_along(tri_tensor *x, int dim, int64_t before, int64_t after);

/* Features of values that a layer has cut in this step, for what works on them without saying what
 * they are a part of. */
void trii_share_note(const trii_share *share);
/* The same, of what the layer gives. */
void trii_share_note_of(const trii_share *share, const tri_tensor *y);
/* x is whole, and goes into a layer that is cut. */
void trii_share_note_whole(tri_tensor *x);
/* trii_share_take along the last dimension, noted. */
tri_tensor *trii_share_give(const trii_share *share, tri_tensor *x);
/* x, of which this rank's part is taken for one of all features in a row. INVALID_ARG: it has a
 * part of each of several, as the layer before gave them. */
tri_status trii_share_check_order(const tri_tensor *x) TRI_MUST_CHECK;
/* The share of so many features; equal ones where none of the size was noted over this group. */
trii_share trii_share_noted(tri_group *group, int64_t n);
/* A forward draws random numbers for its part, along this dimension, of values of all ranks. */
void trii_forward_part(tri_module *self, tri_tensor *x, tri_tensor **out, const trii_share *share,
                       int dim);

/* Where indices, i64 of the whole dimension, are in this rank's part; 0 where others have them,
 * which `outside` says, bool of the same shape. One that nobody has is out of range at one rank. */
tri_tensor *trii_share_find(const trii_share *share, tri_tensor *indices, tri_tensor **outside_out);

/* --- sequences ------------------------------------------------------------ */

/* A dimension that counts tokens. */
typedef struct trii_tokens {
    tri_group *group;
    int dim;
    bool may_be_last; /* the dimension */
} trii_tokens;

/* From all tokens to this rank's: of values that all ranks have, and of sums over the ranks. */
tri_tensor *trii_tokens_take(const trii_tokens *tokens, tri_tensor *x);
tri_tensor *trii_tokens_reduce(const trii_tokens *tokens, tri_tensor *x);
/* This rank's part of them, which x has. */
tri_status trii_tokens_share(const trii_tokens *tokens, tri_tensor *x, trii_share *share_out,
                             int *dim_out) TRI_MUST_CHECK;
/* Of a failure: a step tensor that gives up the group. */
tri_tensor *trii_tokens_refused(const trii_tokens *tokens, tri_tensor *x, tri_status status);
/* And back: for what all ranks do alike, and for what each does its part of. */
tri_tensor *trii_tokens_join(const trii_tokens *tokens, tri_tensor *x);
tri_tensor *trii_tokens_gather(const trii_tokens *tokens, tri_tensor *x);

/* --- rules ---------------------------------------------------------------- */

/* A module that a rule names. */
typedef struct trii_parallel_match {
    tri_module *module;
    char *path; /* owned; from the root of the call */
    int rule;
    bool is_output; /* of attention that the rule names, whose heads are cut */
} trii_parallel_match;

typedef struct trii_parallel_matches {
    trii_parallel_match *list; /* in the order of the tree */
    int n, capacity;
} trii_parallel_matches;

/* Release with _fini in any case. */
tri_status trii_parallel_match_all(tri_module *root, const tri_parallel_rule *rules, int n,
                                   trii_parallel_matches *matches) TRI_MUST_CHECK;
void trii_parallel_matches_fini(trii_parallel_matches *matches);

/* --- cuts ----------------------------------------------------------------- */

/* A parameter that is cut along a dimension. */
typedef struct trii_parallel_part {
    tri_tensor *tensor; /* borrowed: the module has it */
    int dim;
    trii_share share;
    trii_storage *storage; /* the part, until the tensor has it; a reference */
    trii_held held;        /* what the tensor points at then */
} trii_parallel_part;

#define TRII_PARALLEL_PARTS 2

/* A module that is cut; the module owns it. */
typedef struct trii_parallel_cut {
    trii_module_cut base; /* first */
    tri_group *group;     /* a reference */
    tri_parallel_style style;
    void (*kept)(tri_module *self); /* when its parameters have become parts; or NULL */
    tri_parallel_value takes, gives;
    tri_parallel_value wanted[2]; /* TRI_PREPARE: of inputs and outputs */
    trii_tokens tokens;
    trii_share in, out;        /* of the last dimension */
    tri_group *sharers;        /* the ranks that have the same outputs; or NULL. A reference */
    tri_tensor *weight, *bias; /* borrowed; no bias: NULL */
    bool in_out;               /* the weight is [in, out] */
    trii_parallel_part parts[TRII_PARALLEL_PARTS];
    int n_parts;
} trii_parallel_cut;

static inline const trii_parallel_cut *trii_parallel_cut_of(const tri_module *module)
{
    return (const trii_parallel_cut *)(const void *)module->cut;
}
void trii_parallel_add_part(trii_parallel_cut *cut, tri_tensor *tensor, int dim,
                            const trii_share *share);
/* This rank's part of so many inputs or outputs (`what`), by the rule's parts and blocks (NULL:
 * none) and over the group that is in *share_io. INVALID_ARG: they do not divide it, or it is too
 * small. Fewer blocks than ranks become copies where share_io->copies is 1. */
tri_status trii_share_out(int64_t size, const tri_parallel_rule *rule, const char *what,
                          trii_share *share_io) TRI_MUST_CHECK;

/* They say how a module is to be cut: write all of `cut` but the group, which is set. They change
 * nothing. INVALID_ARG: it is no such module, or too small. */
tri_status trii_parallel_linear(const tri_module *module, const tri_parallel_rule *rule,
                                trii_parallel_cut *cut) TRI_MUST_CHECK;
tri_status trii_parallel_embedding(const tri_module *module, const tri_parallel_rule *rule,
                                   trii_parallel_cut *cut) TRI_MUST_CHECK;
tri_status trii_parallel_attention(const tri_module *module, const tri_parallel_rule *rule,
                                   trii_parallel_cut *cut) TRI_MUST_CHECK;
/* The output's projection of such a module. */
tri_status trii_parallel_output(const tri_module *module, const tri_parallel_rule *rule,
                                trii_parallel_cut *cut) TRI_MUST_CHECK;
/* tri_nn_dropout, which TRI_COLWISE lets draw its part of the mask. */
bool trii_parallel_is_dropout(const tri_module *module);
tri_status trii_parallel_dropout(const tri_parallel_rule *rule,
                                 trii_parallel_cut *cut) TRI_MUST_CHECK;
/* TRI_SEQUENCE and TRI_PREPARE. */
tri_status trii_parallel_sequence(tri_module *module, const tri_parallel_rule *rule,
                                  trii_parallel_cut *cut) TRI_MUST_CHECK;
tri_status trii_parallel_prepare(const tri_parallel_rule *rule,
                                 trii_parallel_cut *cut) TRI_MUST_CHECK;

#endif
