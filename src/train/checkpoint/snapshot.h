/*
 * snapshot.h - a copy of all that a checkpoint will hold, in memory that can be kept and used
 * again.
 */
#ifndef TRII_SNAPSHOT_H
#define TRII_SNAPSHOT_H

#include <trireme/checkpoint.h>
#include <trireme/nn.h>

#include "base/err.h"
#include "train/checkpoint/format.h"

/* A list of named tensors: a module's, an optimizer's, an extra's. */
typedef struct trii_state_list {
    int64_t (*count)(const struct trii_state_list *list);
    tri_state_entry (*at)(const struct trii_state_list *list, int64_t index);
    tri_module *module;
    tri_optimizer *optimizer;
    const tri_checkpoint_extra *extra;
} trii_state_list;

trii_state_list trii_state_of_module(tri_module *module);
trii_state_list trii_state_of_optimizer(tri_optimizer *optimizer);
trii_state_list trii_state_of_extra(const tri_checkpoint_extra *extra);
/* Name, dtype, shape and bytes, without data. */
void trii_state_describe(tri_state_entry state, tri_safetensors_entry *entry);

/* Zero before the first use. */
typedef struct trii_snapshot {
    trii_part parts[2 + TRII_MAX_EXTRAS]; /* names and entries are in the memory below */
    int n_parts;
    tri_checkpoint_info info;  /* a copy, without extras */
    const tri_metadata *texts; /* [n_texts] */
    int n_texts;
    trii_random_state random;
    bool only_gives;        /* other ranks save it all */
    tri_group *ranks;       /* that save together; NULL: this process alone */
    trii_piece_list pieces; /* what is not whole; of ranks other than 0 nothing else is copied */

    /* Memory, as much as the largest snapshot wanted. */
    void *data; /* contents of all tensors */
    size_t data_bytes;
    tri_safetensors_entry *entries;
    int64_t n_entries;
    trii_box *boxes; /* of the entries of `pieces` */
    int64_t n_boxes;
    char *strings; /* all names, keys and values */
    size_t string_bytes;
    tri_metadata *pairs; /* of info and texts */
    int n_pairs;
} trii_snapshot;

/* Copies the state now. The arguments have been checked; optimizer and info may be NULL. ranks and
 * sharers: as trii_savers and trii_sharers give them; with the latter it is collective over them,
 * and the snapshot is their rank 0's. Errors: NO_MEMORY, those of the tensors, INVALID_ARG (the
 * pieces are of several groups, or not as large as the tensors that are said to have them). */
tri_status trii_snapshot_take(trii_snapshot *snapshot, tri_module *module, tri_optimizer *optimizer,
                              const tri_checkpoint_info *info, tri_group *ranks,
                              tri_group *sharers) TRI_MUST_CHECK;
void trii_snapshot_fini(trii_snapshot *snapshot);

/* --- checkpoint_save.c ---------------------------------------------------- */

/* INVALID_ARG, and what a failed module has: its state cannot be listed. */
tri_status trii_check_module(tri_module *module, const char *call) TRI_MUST_CHECK;
/* UNSUPPORTED: the module has pieces of tensors, and no strategy that can make them whole. */
static inline TRI_MUST_CHECK tri_status trii_refuse_pieces(const char *call, const char *instead)
{
    return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                     "%s: nothing makes the module's parameters whole: %s the pieces of all ranks",
                     call, instead);
}
/* INVALID_ARG: entries without name or tensor. */
tri_status trii_check_extra(const char *call, const tri_checkpoint_extra *extra) TRI_MUST_CHECK;
/* All that can be wrong with the arguments of a save. */
tri_status trii_check_save(const char *call, tri_module *module, tri_optimizer *optimizer,
                           const tri_checkpoint_info *info,
                           const tri_checkpoint_save_options *opt) TRI_MUST_CHECK;
/* The ranks that save together; NULL: this process alone. Any argument may be NULL, and info has
 * been checked. */
tri_group *trii_savers(tri_module *module, tri_optimizer *optimizer,
                       const tri_checkpoint_info *info, const tri_checkpoint_save_options *opt);
/* trii_snapshot_take for `call` on all ranks of a pipeline, or on none. status: of this rank's
 * arguments. */
tri_status trii_stages_take(trii_snapshot *snapshot, const char *call, tri_module *module,
                            tri_optimizer *optimizer, const tri_checkpoint_info *info,
                            tri_status status) TRI_MUST_CHECK;
tri_status trii_snapshot_write(const trii_snapshot *snapshot, const char *folder,
                               const tri_checkpoint_save_options *opt) TRI_MUST_CHECK;

/* --- savers.c ------------------------------------------------------------- */

/* The ranks over which tensors of the module are cut; NULL: none is. */
tri_group *trii_group_of_cuts(tri_module *module);
/* The ranks that have the same parts of a network that is cut, and ranges of their state each (ZeRO
 * around tri_parallelize): the first of them puts these together, and saves. NULL: none have. */
tri_group *trii_sharers(tri_module *module);
/* With .all_ranks, where other ranks have the same parts (tri_ddp around tri_parallelize or a
 * pipeline): the first along their axis save, and the others only run what pends. */
typedef struct trii_replicas {
    tri_group *group; /* the ranks with this one's parts; NULL: it has none, or nobody else has */
    bool in_pipeline; /* of which a stage may have none */
    bool saves;
} trii_replicas;
tri_status trii_replicas_begin(trii_replicas *replicas, const char *call, tri_module *module,
                               const tri_checkpoint_save_options *opt) TRI_MUST_CHECK;
/* All of them return what those that save have: `status`. */
tri_status trii_replicas_end(const trii_replicas *replicas, tri_module *module,
                             tri_status status) TRI_MUST_CHECK;
/* All ranks that have a part of a pipeline's network: along the axis over which layers are cut,
 * along that of replicas that share the state, and, as a stage may have neither, along the
 * pipeline. `status`: as trii_ranks_agree. */
tri_status trii_stages_agree(tri_module *module, tri_group *sharers,
                             tri_status status) TRI_MUST_CHECK;
/* All of them give an optimizer of the pipeline, or none: what one gives that is wrong the others
 * hear. MISMATCH: some give none. */
tri_status trii_stages_optimize(tri_module *module, tri_group *sharers,
                                const tri_optimizer *optimizer, tri_status status) TRI_MUST_CHECK;

/* --- stages_file.c -------------------------------------------------------- */

/* A format for the tensors of a module in one file. */
typedef struct trii_file_kind {
    /* feed: NULL: entries have data */
    tri_status (*write)(const char *path, const tri_safetensors_entry *entries, int64_t n,
                        const trii_feed *feed);
    /* of pointers to entries, in the order in which it asks the feed; NULL: theirs */
    int (*compare)(const void *a, const void *b);
} trii_file_kind;
/* Of a pipeline over several ranks, for `call`; status: of this rank's arguments. */
tri_status trii_stages_save(tri_module *module, const char *path, const char *call,
                            const trii_file_kind *kind, tri_status status) TRI_MUST_CHECK;

#endif
