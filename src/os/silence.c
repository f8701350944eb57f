/*
 * silence.c - when a host is lost, from what its system says of a connection.
 *
 * What is sent to it is acknowledged by its system, whatever its process does: if nothing is for
 * TRI_HEARTBEAT_MS, the host is lost.
 *
 * Networks recover by themselves: a switch or a bond that fails over, or a virtual machine that is
 * moved, drops everything for seconds. Then the system sends again after pauses that double, so the
 * first bytes after an outage may come when it has lasted twice as long. Only silence is waited out
 * like that: a connection that the other host resets is lost at once.
 */
/* build: leaf */
#include "os/clock.h"
#include "os/socket.h"

#define PROBES_UNANSWERED 2 /* of a full peer: after 0.2 and 0.4 s more */

bool trii_socket_is_silent(const trii_socket_health *health, int64_t now_ns, int64_t silence_ns,
                           int64_t *unacked_since_ns)
{
    int64_t acked_ns = now_ns - health->last_ack_ms * TRII_NS_PER_MS;

    if (!health->owed) {
        *unacked_since_ns = 0;
        return false;
    }
    if (*unacked_since_ns == 0)
        *unacked_since_ns = now_ns;
    if (*unacked_since_ns < acked_ns)
        *unacked_since_ns = acked_ns;
    /* The probes whether a full peer has room again are ever further apart: their age says nothing,
     * but each is answered at once. */
    if (health->full && health->unanswered_probes < PROBES_UNANSWERED)
        return false;
    return silence_ns > 0 && now_ns - *unacked_since_ns >= silence_ns;
}
