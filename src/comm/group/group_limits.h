/*
 * group_limits.h - how much of each thing a group can have: the numbers that several rooms must
 * agree on.
 */
#ifndef TRII_GROUP_LIMITS_H
#define TRII_GROUP_LIMITS_H

#include <stddef.h>

/* --- ranks ---------------------------------------------------------------- */

/* Of any group: a reduction keeps a pointer to each rank's part on its stack. */
#define TRII_GROUP_MAX_RANKS 1024
/* Of one host, through shared memory: a stage then has at least a few lines for every rank. Over
 * tcp it is as many as one poll can wait for (TRII_POLL_MAX of os/socket.h, less one). */
#define TRII_HOST_MAX_RANKS 256
/* Levels of the canonical tree over so many ranks, leaves included, and one to spare. */
#define TRII_TREE_LEVELS 12
/* Accepted from a launcher or a URL. No group has so many; the group's own limit says so in
 * better words. */
#define TRII_WORLD_MAX_RANKS 1000000

/* --- messages ------------------------------------------------------------- */

/* What every engine promises, in group.h at tri_send: messages of up to TRII_EAGER_BYTES are copied
 * and the send ends at once; larger ones stay where they are until their receive is posted. What
 * has arrived without a receive is bounded: from TRII_KEPT_EAGER bytes of one sender on, its
 * messages are only announced, and from TRII_KEPT_MOST bytes on, announcements included, its sends
 * wait. */
#define TRII_EAGER_BYTES ((size_t)256 << 10)
#define TRII_KEPT_EAGER ((size_t)16 << 20)
#define TRII_KEPT_MOST ((size_t)64 << 20)
#define TRII_TINY_BYTES ((size_t)64) /* copied even while TRII_KEPT_EAGER bytes are kept */

#endif
