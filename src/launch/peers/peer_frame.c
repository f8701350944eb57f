/*
 * peer_frame.c - see peer_frame.h. Called by peer_links.c for what comes.
 */
#include "launch/peers/peer_frame.h"

#include <string.h>

#include "base/err.h"

static bool is_valid(const trii_peer_frame *frame)
{
    if (frame->magic != TRII_PEER_MAGIC)
        return false;
    switch (frame->kind) {
    case TRII_PEER_HEARTBEAT:
        return frame->value >= 0;
    case TRII_PEER_HELLO:
        return frame->rank >= 0 && frame->value >= 0;
    case TRII_PEER_PREEMPTION:
        return frame->rank >= 0 && frame->number > 0 && frame->value >= -1;
    default:
        return true;
    }
}

tri_status trii_peer_reader_feed(trii_peer_reader *reader, const trii_job_key *key,
                                 const void *data, size_t bytes, size_t *used_out,
                                 unsigned char answer_out[TRII_ANSWER_BYTES],
                                 size_t *answer_bytes_out)
{
    tri_status status = trii_handshake_feed(&reader->shake, key, TRII_PEER_PURPOSE, data, bytes,
                                            used_out, answer_out, answer_bytes_out);
    size_t room = sizeof(reader->frame) - reader->got, n;

    if (status != TRI_OK)
        return status;
    n = bytes - *used_out < room ? bytes - *used_out : room;
    memcpy((char *)&reader->frame + reader->got, (const char *)data + *used_out, n);
    *used_out += n;
    reader->got += n;
    if (reader->got < sizeof(reader->frame))
        return TRI_INPROGRESS;
    reader->got = 0;
    return is_valid(&reader->frame) ? TRI_OK
                                    : TRII_FAIL(TRI_ERR_FORMAT, "this is not a frame of an agent");
}
