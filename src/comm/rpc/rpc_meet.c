/*
 * rpc_meet.c - how the workers of a closed set meet, in the store:
 *
 *   meet/count/R   how often rank R has begun: so it finds the others that begin as often
 *   meet/N/KIND/R  rank R's word of a kind in meeting N, or "!..", why it is not there
 *   meet/N/over    a rank has waited for its whole timeout: ranks that come later, or again, take
 * the next number
 *   meet/N/left    how many have left, and so have read all; the last one removes what is above
 *
 * Without numbers a second tri_rpc_init would read what the first one has left.
 */
/* build: leaf */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/ranks_text.h"
#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_meeting.h"
#include "store/exchange.h"

#define KEY 48

static void make_key(const tri_rpc *rpc, const char *kind, int rank, char key[KEY])
{
    snprintf(key, KEY, "meet/%" PRId64 "/%s/%d", rpc->meeting, kind, rank);
}

tri_status rpc_meet_begin(tri_rpc *rpc)
{
    char count[KEY], over[KEY];
    bool is_over = true;
    tri_status status = TRI_OK;

    snprintf(count, sizeof(count), "meet/count/%d", rpc->rank);
    while (status == TRI_OK && is_over) {
        const char *const keys[] = {over};

        status = tri_store_add(rpc->store, count, 1, &rpc->meeting);
        snprintf(over, sizeof(over), "meet/%" PRId64 "/over", rpc->meeting);
        if (status == TRI_OK)
            status = tri_store_check(rpc->store, keys, 1, &is_over);
    }
    return status;
}

/* Whose word is not there. */
static tri_status name_missing(tri_rpc *rpc, const char *const *keys)
{
    trii_store_call *calls = trii_alloc((size_t)rpc->size, sizeof(*calls) + sizeof(int), "names");
    int *missing = (int *)(calls + rpc->size), n = 0;
    char text[160] = "some";

    for (int r = 0; r < rpc->size && calls != NULL; r++)
        calls[r] = (trii_store_call){.kind = TRII_STORE_CHECK, .key = keys[r]};
    if (calls != NULL && trii_store_calls(rpc->store, calls, rpc->size) == TRI_OK) {
        for (int r = 0; r < rpc->size; r++) {
            if (calls[r].number == 0)
                missing[n++] = r;
        }
    }
    if (n > 0)
        (void)trii_ranks_text(missing, n, text, sizeof(text));
    trii_free(calls);
    return TRII_FAIL(TRI_ERR_TIMEOUT, "%s of %d %s not come in time (tri_rpc_init)", text,
                     rpc->size, n == 1 ? "has" : "have");
}

tri_status rpc_meet(tri_rpc *rpc, const char *kind, const char *word, int64_t deadline_ns,
                    char **words)
{
    size_t n = (size_t)rpc->size;
    char(*text)[KEY] = trii_alloc(n, sizeof(*text), "names");
    const char **keys = trii_alloc(n, sizeof(*keys), "names");
    trii_store_call call = {.kind = TRII_STORE_SET, .text = word};
    int left_ms = trii_deadline_left_ms(deadline_ns);
    tri_status status = text != NULL && keys != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    for (int r = 0; r < rpc->size && status == TRI_OK; r++) {
        make_key(rpc, kind, r, text[r]);
        keys[r] = text[r];
    }
    if (status == TRI_OK) {
        call.key = keys[rpc->rank];
        status = trii_store_exchange(rpc->store, &call, 1, keys, rpc->size,
                                     left_ms < 0 ? TRI_FOREVER : left_ms + 1, (void **)words, NULL);
    }
    if (status == TRI_ERR_TIMEOUT) {
        status = name_missing(rpc, keys);
    } else if (status == TRI_OK) {
        for (int r = 0; r < rpc->size && status == TRI_OK; r++) {
            if (words[r][0] == '!')
                status = TRII_FAIL(TRI_ERR_STATE, "rank %d: %s", r, words[r] + 1);
        }
        for (int r = 0; r < rpc->size && status != TRI_OK; r++)
            tri_store_free(words[r]);
    }
    trii_free(text);
    trii_free(keys);
    return status;
}

void rpc_meet_end(tri_rpc *rpc)
{
    static const char *const kinds[] = {RPC_MEET_NET, RPC_MEET_NAME};
    char left[KEY], (*text)[KEY];
    trii_store_call *calls;
    int64_t n_left = 0;
    int n = 0;

    if (!rpc->has_read_all)
        return;
    snprintf(left, sizeof(left), "meet/%" PRId64 "/left", rpc->meeting);
    if (tri_store_add(rpc->store, left, 1, &n_left) != TRI_OK || n_left < rpc->size)
        return;
    calls = trii_alloc(2 * (size_t)rpc->size + 1, sizeof(*calls), "names");
    text = trii_alloc(2 * (size_t)rpc->size, sizeof(*text), "names");
    if (calls != NULL && text != NULL) {
        for (int i = 0; i < 2 * rpc->size; i++) {
            make_key(rpc, kinds[i % 2], i / 2, text[i]);
            calls[n++] = (trii_store_call){.kind = TRII_STORE_DELETE, .key = text[i]};
        }
        calls[n++] = (trii_store_call){.kind = TRII_STORE_DELETE, .key = left};
        if (trii_store_calls(rpc->store, calls, n) == TRI_OK)
            trii_store_calls_free(calls, n);
    }
    trii_free(calls);
    trii_free(text);
}

void rpc_meet_fail(tri_rpc *rpc, tri_status why)
{
    static const char *const kinds[] = {RPC_MEET_NET, RPC_MEET_NAME};
    char key[2][KEY], line[TRII_ERR_BYTES], word[TRII_ERR_BYTES];
    trii_store_call calls[2];

    if (rpc->meeting == 0)
        return;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    snprintf(word, sizeof(word), "!%.*s", (int)sizeof(word) - 2, line);
    for (int i = 0; i < 2; i++) {
        make_key(rpc, kinds[i], rpc->rank, key[i]);
        calls[i] = (trii_store_call){.kind = TRII_STORE_CLAIM, .key = key[i], .text = word};
    }
    if (why == TRI_ERR_TIMEOUT) {
        snprintf(key[0], KEY, "meet/%" PRId64 "/over", rpc->meeting);
        calls[0] = (trii_store_call){.kind = TRII_STORE_SET, .key = key[0], .text = "1"};
    }
    if (trii_store_calls(rpc->store, calls, why == TRI_ERR_TIMEOUT ? 1 : 2) == TRI_OK)
        trii_store_calls_free(calls, why == TRI_ERR_TIMEOUT ? 1 : 2);
    trii_err_set("%s", line);
}
