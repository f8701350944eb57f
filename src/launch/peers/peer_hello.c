/*
 * peer_hello.c - see peer_hello.h. Written by peer_dialer.c, read by peer_links.c on the side that
 * is dialed.
 */
#include "launch/peers/peer_hello.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "launch/peers/peer_messages.h"

static const char magic[] = "TRA1 ";

void trii_peer_hello_write(const char *token, int64_t round, int rank,
                           char text_out[TRII_PEER_HELLO_BYTES])
{
    char text[2 * TRII_PEER_HELLO_BYTES];
    int used =
        snprintf(text, sizeof(text), "%s%.16s %lld %d", magic, token, (long long)round, rank);

    memset(text_out, ' ', TRII_PEER_HELLO_BYTES);
    memcpy(text_out, text,
           (size_t)used < TRII_PEER_HELLO_BYTES ? (size_t)used : TRII_PEER_HELLO_BYTES);
}

/* Every byte counts: nothing but blanks behind it. */
static bool parse_hello(trii_peer_hello *hello, const char *token)
{
    char text[TRII_PEER_HELLO_BYTES + 1] = "";
    size_t length = strlen(token);
    const char *at = text + sizeof(magic) - 1;
    int64_t rank;

    memcpy(text, hello->text, TRII_PEER_HELLO_BYTES);
    if (memcmp(text, magic, sizeof(magic) - 1) != 0 || length != TRII_PEER_TOKEN_BYTES - 1 ||
        memcmp(at, token, length) != 0 || at[length] != ' ')
        return false;
    at = trii_peer_read_number(at + length + 1, INT64_MAX, &hello->round);
    if (at == NULL || *at != ' ')
        return false;
    at = trii_peer_read_number(at + 1, INT32_MAX, &rank);
    if (at == NULL || at + strspn(at, " ") != text + TRII_PEER_HELLO_BYTES)
        return false;
    hello->rank = (int)rank;
    return true;
}

tri_status trii_peer_hello_feed(trii_peer_hello *hello, const trii_job_key *key, const char *token,
                                const void *data, size_t bytes, size_t *used_out,
                                unsigned char answer_out[TRII_ANSWER_BYTES],
                                size_t *answer_bytes_out)
{
    tri_status status = trii_handshake_feed(&hello->shake, key, TRII_PEER_PURPOSE, data, bytes,
                                            used_out, answer_out, answer_bytes_out);
    size_t room, n;

    if (status != TRI_OK)
        return status;
    room = TRII_PEER_HELLO_BYTES - hello->got;
    n = bytes - *used_out < room ? bytes - *used_out : room;
    memcpy(hello->text + hello->got, (const char *)data + *used_out, n);
    hello->got += n;
    *used_out += n;
    /* no need to wait for the rest of what is not a hello */
    if (memcmp(hello->text, magic, hello->got < 5 ? hello->got : 5) != 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "the peer is not an agent of trirun");
    if (hello->got < TRII_PEER_HELLO_BYTES)
        return TRI_INPROGRESS;
    return parse_hello(hello, token)
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_FORMAT, "the peer is not an agent of this job");
}
