/*
 * schedule.h - what the files that order a plan and assign its memory share: order.c,
 * queue_order.c, schedule.c, prepack.c, pointers.c, queue_events.c, queue_conflicts.c and
 * plan_buffers.c.
 * Nobody else includes it.
 */
#ifndef TRII_SCHEDULE_H
#define TRII_SCHEDULE_H

#include "train/plan/ir.h"
#include "train/plan/plan.h"

typedef enum trii_place { TRII_PLACE_ARENA, TRII_PLACE_INPUT, TRII_PLACE_OUTPUT } trii_place;

typedef struct trii_buffer {
    trii_place place;
    int32_t index; /* input or output number */
    int32_t queue; /* of the device on which it lies; an input's only matters with several queues */
    size_t bytes;
    int32_t first, last; /* entries; first INT32_MAX = never written */
    int32_t merged;      /* the buffer that it became a part of; -1 = itself */
    int32_t packed;      /* number in plan->packed; -1 = none. It lies in the arena, too */
    size_t offset;
} trii_buffer;

static inline int32_t trii_buffer_queue(const trii_buffer *buffer)
{
    return buffer->queue > 0 ? buffer->queue : 0;
}

typedef struct trii_schedule {
    trii_plan *plan;
    trii_ir *ir;
    const trii_step *step;
    const trii_segment *segment;
    trii_buffer *buffers;
    int32_t n_buffers;
    int32_t *readers;     /* [value] groups that read it */
    int32_t *view_of;     /* [value] shares the buffer of this value; -1 */
    int32_t *host_of;     /* [group] number in plan->hosts; -1 */
    int32_t *host_group;  /* [host] */
    int32_t *host_state;  /* [host] 0 not started, 1 started, 2 waited */
    int32_t *host_start;  /* [host] entry */
    int32_t *group_entry; /* [group] entry; -1 = none (views) */
    int32_t *group_queue; /* [group] */
    bool *done;           /* [group] has its place in the order */
    int32_t *entry_group; /* [entry] -1 for waits and late copies */
    int32_t *entry_queue; /* [entry] */
    int32_t *scratch;     /* [entry] buffer or -1 */
    int32_t *kept;        /* [entry] its number when idle views are gone; -1 = gone */
    int32_t *late;        /* [n_late] outputs that are copied at the end: values */
    int32_t *late_to;     /* [n_late] and the buffers that they get into */
    int32_t *unstarted;   /* [n_unstarted] hosts, the next one of each group of ranks */
    int32_t n_late, n_entries, n_unstarted;
} trii_schedule;

#define TRII_NEW(pool, n, pointer)                                                                 \
    ((pointer) = trii_pool_alloc(pool, (size_t)(n), sizeof(*(pointer))))

/* The buffer that stands for this one now, and that of a value; -1 = it has none. */
int32_t trii_buffer_root(const trii_schedule *s, int32_t buffer);
int32_t trii_buffer_of(const trii_schedule *s, int32_t value);
/* A new buffer; queue -1: on a device on which nothing runs. */
int32_t trii_buffer_add(trii_schedule *s, trii_place where, int32_t index, int32_t queue,
                        size_t bytes);
/* The entry reads or writes the buffer. */
void trii_buffer_touch(trii_schedule *s, int32_t buffer, int32_t entry);
/* The queue of the type's device; -1: nothing runs there. */
int32_t trii_type_queue(const trii_schedule *s, const trii_type *type);
/* Bytes of output o of the group, in its layout. */
size_t trii_value_bytes(const trii_schedule *s, const trii_group *group, int32_t o);
/* Whether the entry may fail: it communicates, or its kernel checks its operands. */
bool trii_entry_may_fail(const trii_schedule *s, int32_t entry);

/* order.c: all groups, in record order; host operations as early as possible. */
tri_status trii_order(trii_schedule *s) TRI_MUST_CHECK;
/* What both orders are built from: appends this group as the next entry, after the waits that it
 * needs; and appends the waits at the end. */
void trii_order_group(trii_schedule *s, int32_t group);
void trii_order_end(trii_schedule *s);
/* The group of which this group is a view, or itself; -1 = a view of an input. */
int32_t trii_order_source(const trii_schedule *s, int32_t group);
/* Before either: finds which operation starts before which. */
tri_status trii_order_hosts(trii_schedule *s) TRI_MUST_CHECK;
/* queue_order.c: the devices of the segment become queues; with several, groups are ordered so that
 * queues overlap. */
tri_status trii_queues_find(trii_schedule *s) TRI_MUST_CHECK;
tri_status trii_queues_order(trii_schedule *s) TRI_MUST_CHECK;
/* prepack.c: finds the copies of parameters that may be kept, when buffers have their places; and
 * when the arena is planned, where they lie in it. */
tri_status trii_prepack_find(trii_schedule *s) TRI_MUST_CHECK;
void trii_prepack_place(trii_schedule *s);
/* pointers.c: arguments of the entries, and copies at the end; removes copies with nothing to
 * do. */
tri_status trii_plan_pointers(trii_schedule *s) TRI_MUST_CHECK;
/* queue_events.c, for plans with several queues: which entry waits for which. */
tri_status trii_queues_connect(trii_schedule *s) TRI_MUST_CHECK;

/* An entry touches a buffer (its root). */
typedef struct trii_access {
    int32_t entry, buffer;
    bool write;
} trii_access;

/* queue_conflicts.c: for each entry and each other queue, finds that queue's last earlier entry
 * that touches the same bytes, if one of the two writes and one uses a buffer of another queue than
 * its own.
 *   accesses  [n], in the order of entries
 *   need      [entry, queue]: raised to what was found; -1 = none */
tri_status trii_queue_conflicts(const trii_schedule *s, const trii_access *accesses, int32_t n,
                                int32_t *need) TRI_MUST_CHECK;
/* The tensor of the program in which the buffer lies; NULL = none. */
const tri_tensor *trii_buffer_tensor(const trii_schedule *s, const trii_buffer *b);

#endif
