/*
 * matching.c - see matching.h.
 */
/* build: hot leaf */
#include "comm/engines/matching.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"

void trii_kept_describe(const char *who, size_t kept, char *text, size_t size)
{
    /* Nearly all of it: what is refused is a little less than what would fit. */
    size_t mib = (kept + 1024) >> 20;

    text[0] = '\0';
    if (mib >= TRII_KEPT_EAGER >> 20)
        snprintf(text, size, "; %s keeps %zu MiB of messages that it has not received", who, mib);
}

/* --- tables by tag -------------------------------------------------------- */

static size_t chains_of(const trii_tags *tags)
{
    return tags->n_chains > 0 ? tags->n_chains : TRII_TAG_CHAINS;
}

static const trii_tag_chain *first_chain(const trii_tags *tags)
{
    return tags->n_chains > 0 ? tags->chains : tags->few;
}

/* Users count their tags from 0: neighbours get chains of their own. */
static trii_tag_chain *chain_of(const trii_tags *tags, uint64_t tag)
{
    uint64_t mixed = tag ^ tag >> 16;

    return (trii_tag_chain *)(uintptr_t)first_chain(tags) + (mixed & (chains_of(tags) - 1));
}

static void append(trii_tag_chain *chain, trii_tagged *one)
{
    one->next = NULL;
    if (chain->first != NULL)
        chain->last->next = one;
    else
        chain->first = one;
    chain->last = one;
}

/* More chains, in which those of one tag keep their order; without memory it stays as it is. */
static void grow(trii_tags *tags)
{
    trii_tags larger = {.n_chains = 8 * chains_of(tags), .count = tags->count};

    larger.chains = trii_alloc(larger.n_chains, sizeof(*larger.chains), "table of messages");
    if (larger.chains == NULL)
        return;
    for (size_t i = 0; i < chains_of(tags); i++) {
        for (trii_tagged *one = first_chain(tags)[i].first, *next; one != NULL; one = next) {
            next = one->next;
            append(chain_of(&larger, one->tag), one);
        }
    }
    trii_free(tags->chains);
    *tags = larger;
}

void trii_tags_add(trii_tags *tags, trii_tagged *one)
{
    if (TRII_UNLIKELY(tags->count >= 2 * chains_of(tags)))
        grow(tags);
    append(chain_of(tags, one->tag), one);
    tags->count++;
}

trii_tagged *trii_tags_find(const trii_tags *tags, uint64_t tag)
{
    trii_tagged *one = tags->count > 0 ? chain_of(tags, tag)->first : NULL;

    while (one != NULL && one->tag != tag)
        one = one->next;
    return one;
}

trii_tagged *trii_tags_next(const trii_tagged *one)
{
    uint64_t tag = one->tag;
    trii_tagged *next = one->next;

    while (next != NULL && next->tag != tag)
        next = next->next;
    return next;
}

void trii_tags_remove(trii_tags *tags, trii_tagged *one)
{
    trii_tag_chain *chain = chain_of(tags, one->tag);
    trii_tagged *before = NULL, **link = &chain->first;

    while (*link != one) {
        before = *link;
        link = &before->next;
    }
    *link = one->next;
    if (chain->last == one)
        chain->last = before;
    tags->count--;
}

trii_tagged *trii_tags_walk(const trii_tags *tags, const trii_tagged *after)
{
    const trii_tag_chain *chains = first_chain(tags);
    size_t i = 0;

    if (after != NULL && after->next != NULL)
        return after->next;
    if (after != NULL)
        i = (size_t)(chain_of(tags, after->tag) - chains) + 1;
    while (i < chains_of(tags) && chains[i].first == NULL)
        i++;
    return i < chains_of(tags) ? chains[i].first : NULL;
}

void trii_tags_clear(trii_tags *tags)
{
    trii_free(tags->chains);
    *tags = (trii_tags){0};
}

/* --- receives ------------------------------------------------------------- */

void trii_recv_wait(trii_tags *recvs, trii_op *op, uint64_t posted)
{
    trii_waiting *waiting = trii_waiting_of(op);

    _Static_assert(sizeof(*waiting) <= sizeof(op->scratch), "the scratch holds it");
    waiting->tagged.tag = trii_tag_of(&op->call);
    waiting->posted = posted;
    trii_tags_add(recvs, &waiting->tagged);
}

trii_op *trii_recv_take(trii_tags *recvs, trii_tags *any_recvs, uint64_t tag, int from)
{
    trii_tagged *one = trii_tags_find(recvs, tag);
    trii_op *own = one != NULL ? trii_waiting_op(one) : NULL;

    for (one = trii_tags_find(any_recvs, tag); one != NULL; one = trii_tags_next(one)) {
        trii_op *any = trii_waiting_op(one);

        if (own != NULL && trii_waiting_of(own)->posted < trii_waiting_of(any)->posted)
            break;
        if (!trii_op_win(any))
            continue;
        trii_tags_remove(any_recvs, one);
        any->peer = from;
        return any;
    }
    if (own != NULL)
        trii_tags_remove(recvs, &trii_waiting_of(own)->tagged);
    return own;
}

trii_op *trii_waiting_pop(trii_tags *tags)
{
    trii_tagged *one = trii_tags_walk(tags, NULL);

    if (one != NULL)
        trii_tags_remove(tags, one);
    else
        trii_tags_clear(tags);
    return one != NULL ? trii_waiting_op(one) : NULL;
}

bool trii_recv_cancel(trii_tags *recvs, const trii_op *op)
{
    trii_tagged *one = trii_tags_find(recvs, trii_tag_of(&op->call));

    while (one != NULL && trii_waiting_op(one) != op)
        one = trii_tags_next(one);
    if (one != NULL)
        trii_tags_remove(recvs, one);
    return one != NULL;
}

bool trii_recv_fits(trii_op *op, const trii_message *message, char why[TRII_ERR_BYTES])
{
    if (message->count > op->count || message->bytes > op->bytes) {
        snprintf(why, TRII_ERR_BYTES,
                 "the message from rank %d has %zu %s, the receive has room for %zu; the message "
                 "stays for a receive with more room",
                 trii_rank_name(op->names, op->peer), message->count,
                 tri_dtype_name(message->dtype), op->count);
        return false;
    }
    op->count = message->count;
    op->bytes = message->bytes;
    return true;
}
