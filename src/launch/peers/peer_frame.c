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
        return frame->value >= 0 && frame->number >= 0;
    case TRII_PEER_HELLO:
        return frame->rank >= 0 && frame->value >= 0;
    case TRII_PEER_PREEMPTION:
        return frame->rank >= 0 && frame->number > 0 && frame->value >= -1;
    case TRII_PEER_NEWS:
        return frame->rank >= -1 && frame->value >= 0 && frame->value < TRII_PEER_TEXT_BYTES;
    default:
        return true;
    }
}

static size_t text_bytes(const trii_peer_frame *frame)
{
    return frame->kind == TRII_PEER_NEWS ? (size_t)frame->value : 0;
}

tri_status trii_peer_reader_feed(trii_peer_reader *reader, const trii_job_key *key,
                                 const void *data, size_t bytes, size_t *used_out,
                                 unsigned char answer_out[TRII_ANSWER_BYTES],
                                 size_t *answer_bytes_out)
{
    tri_status status = trii_handshake_feed(&reader->shake, key, TRII_PEER_PURPOSE, data, bytes,
                                            used_out, answer_out, answer_bytes_out);
    bool in_text = reader->got >= sizeof(reader->frame);
    size_t end = sizeof(reader->frame) + (in_text ? text_bytes(&reader->frame) : 0), n;
    char *to = in_text ? reader->text + (reader->got - sizeof(reader->frame))
                       : (char *)&reader->frame + reader->got;

    if (status != TRI_OK)
        return status;
    n = bytes - *used_out < end - reader->got ? bytes - *used_out : end - reader->got;
    memcpy(to, (const char *)data + *used_out, n);
    *used_out += n;
    reader->got += n;
    if (reader->got < end)
        return TRI_INPROGRESS;
    if (!is_valid(&reader->frame)) {
        reader->got = 0;
        return TRII_FAIL(TRI_ERR_FORMAT, "this is not a frame of an agent");
    }
    end = sizeof(reader->frame) + text_bytes(&reader->frame);
    if (reader->got < end)
        return TRI_INPROGRESS;
    reader->text[text_bytes(&reader->frame)] = '\0';
    reader->got = 0;
    return TRI_OK;
}
