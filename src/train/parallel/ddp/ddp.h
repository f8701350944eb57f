/*
 * ddp.h - DistributedDataParallel: a module around a network whose parameters are one unit
 * (train/dist/unit.h, which says how their gradients are averaged). What the files of this folder
 * share:
 *
 *   ddp.c              the module: options, construction, forward, no_sync, the stop vote
 *   ddp_verify.c       ranks compare their models; one rank's state is sent to all
 *   buffers.c          one rank's buffers are sent to all before a forward in training
 *   ddp_join.c         ranks that have run out of data
 *   ddp_stats.c        how long each bucket takes
 *   zero.c             tri_zero: the same around a unit that is divided
 *   units.c            which parts of it are gathered as one
 *   unshard.c          its parameters are whole for a while
 */
#ifndef TRII_DDP_H
#define TRII_DDP_H

#include <trireme/parallel.h>

#include "train/dist/unit_collective.h"
#include "train/nn/module.h"

/* Some buffers and their block in the arena. */
typedef struct trii_ddp_block {
    trii_storage *storage;
    size_t bytes;
    int first, n; /* of ddp->buffers */
    trii_unit_coll *colls;
} trii_ddp_block;

typedef struct trii_ddp_buffer {
    tri_tensor *tensor;
    size_t offset, bytes;
} trii_ddp_buffer;

typedef struct trii_ddp {
    trii_unit unit; /* first */
    tri_ddp_options options;
    tri_module *net;
    trii_ddp_buffer *buffers;
    int n_buffers;
    trii_ddp_block *blocks;
    int n_blocks;
    const tri_device *device, *output; /* of options: one of its own or NULL */
    const char *const *units;          /* [n_units], of tri_zero_options; while it is made */
    int n_units;
    tri_device devices[2];
    bool is_bare;          /* the network is a pipeline's stages that train nothing on this rank */
    tri_group *bare_group; /* then: the ranks that average nothing either; NULL: one */
} trii_ddp;

/* ddp_verify.c. Collective. `contents`: compare values too, else names, types and shapes. */
tri_status trii_ddp_compare(trii_ddp *ddp, bool contents, bool buffers) TRI_MUST_CHECK;
/* This rank has no network to compare: the others are told why when they compare theirs. */
void trii_replica_failed(tri_group *group, const char *line);
/* Whether the ranks of the group (NULL: there is none) can have replicas: none of them has another
 * part of a tensor than this one. */
tri_status trii_replica_check(tri_module *net, const tri_group *group) TRI_MUST_CHECK;
/* The root's values of a network on which all agree. */
tri_status trii_replica_send(tri_module *net, tri_group *group, int root) TRI_MUST_CHECK;

/* What tri_ddp and its like make a model of. */
typedef struct trii_ddp_recipe {
    const char *call; /* for messages */
    tri_ddp_options options;
    int stage;    /* of ZeRO; 0: DDP */
    int prefetch; /* stage 3: this and what follows as in trii_unit */
    size_t prefetch_bytes;
    tri_dtype gather_dtype;
    bool keep_after_forward;
    int64_t keep_below;
    const char *const *units; /* [n_units], as in tri_zero_options */
    int n_units;
    tri_group *within, *across, *axis; /* as in trii_unit; borrowed */
    tri_status known;                  /* whether the options are good */
    bool is_lost;                      /* then: nor is it known where the others are */
} trii_ddp_recipe;

/* ddp.c. As tri_ddp; the status of bad options is of this thread's last error line. */
tri_module *trii_ddp_make(tri_module *own_net, const trii_ddp_recipe *recipe);
/* NULL: it is none. */
trii_ddp *trii_ddp_of(const tri_module *model);
/* The same for a call, which it names: INVALID_ARG, or the status of a model that failed. */
tri_status trii_ddp_need(const tri_module *model, const char *call,
                         trii_ddp **ddp_out) TRI_MUST_CHECK;
/* What comes before the network's own forward, for what runs that in its place. */
tri_status trii_ddp_enter(tri_module *model) TRI_MUST_CHECK;
/* What failed here: peers that are where the ranks meet get the reason. */
tri_status trii_ddp_tell(tri_group *group, tri_status status);

/* units.c: once all parameters are listed. */
tri_status trii_ddp_set_units(trii_ddp *ddp) TRI_MUST_CHECK;

/* buffers.c */
tri_status trii_ddp_buffers_make(trii_ddp *ddp) TRI_MUST_CHECK;
tri_status trii_ddp_buffers_record(trii_ddp *ddp, trii_step *step) TRI_MUST_CHECK;
void trii_ddp_buffers_free(trii_ddp *ddp);

#endif
