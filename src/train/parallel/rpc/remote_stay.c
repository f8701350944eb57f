/*
 * remote_stay.c - results of remote calls that do not come here, since other remote calls of the
 * step alone read them: they stay at their owner (served_stay.c), and the calls that read them say
 * where instead of sending them. A call knows who makes its operands from when it is recorded, and
 * what of its own results stays from when its segment runs (trii_host_kind.stays).
 *
 * The owner of a reader gets a reference to the module of the maker with the first such call; what
 * it has been given is noted when that call has ended well.
 */
#include <string.h>

#include "train/parallel/rpc/remote_op.h"

/* --- who makes what ------------------------------------------------------- */

void trii_remote_note_maker(trii_remote_op *r, const trii_step *step, int i, trii_vid in)
{
    const trii_value *value = &step->values[in];
    trii_host_op *op = value->state == TRII_VALUE_PENDING ? step->nodes[value->node].host : NULL;
    trii_remote_op *maker = (trii_remote_op *)op;

    if (op == NULL || op->kind->stays != trii_remote_stays)
        return;
    if (maker->remote->rpc != r->remote->rpc) {
        maker->only_here |= (uint64_t)1 << value->output;
        return;
    }
    r->from[i].op = maker;
    r->from[i].result = value->output;
    maker->n_readers[value->output]++;
    maker->n_open++;
}

void trii_remote_stays(trii_host_op *op, uint64_t results)
{
    trii_remote_op *r = (trii_remote_op *)op;

    for (int o = 0; o < r->n_out; o++) {
        uint64_t bit = (uint64_t)1 << o;

        if ((results & bit & ~r->only_here) == 0 || trii_type_bytes(&r->out[o]) == 0)
            continue;
        r->unsent |= bit;
        if (r->n_readers[o] > 0)
            r->stay |= bit;
    }
}

bool trii_remote_is_elsewhere(const trii_remote_op *r, int i)
{
    const trii_remote_op *maker = r->from[i].op;

    return maker != NULL && (maker->stay >> r->from[i].result & 1) != 0;
}

uint64_t trii_remote_elsewhere(const trii_remote_op *r)
{
    uint64_t bits = 0;

    for (int i = 0; i < r->n_in; i++)
        bits |= (uint64_t)trii_remote_is_elsewhere(r, i) << i;
    return bits;
}

static bool is_only_reader(const trii_remote_op *r, int i)
{
    return r->from[i].op->n_readers[r->from[i].result] == 1;
}

uint64_t trii_remote_as_sent(const trii_remote_op *r, uint64_t results)
{
    uint64_t bits = 0;
    int o = 0;

    if (!r->is_backward)
        return results;
    for (int i = 0; i < TRI_REMOTE_TENSORS; i++) {
        if ((r->wanted >> i & 1) != 0)
            bits |= (results >> o++ & 1) << i;
    }
    return bits;
}

/* The same for one result. */
static uint32_t number_as_sent(const trii_remote_op *r, int o)
{
    uint64_t bits = trii_remote_as_sent(r, (uint64_t)1 << o);
    uint32_t number = 0;

    while (bits >> number > 1)
        number++;
    return number;
}

/* --- sources -------------------------------------------------------------- */

/* Of a session; whether its owner has been given references to the module of another one. */
static bool knows(trii_remote *remote, uint64_t session)
{
    bool found = false;

    trii_mutex_lock(&remote->lock);
    for (int k = 0; k < TRII_REMOTE_KNOWN; k++)
        found = found || remote->known[k] == session;
    trii_mutex_unlock(&remote->lock);
    return found;
}

static void learns(trii_remote *remote, const tri_rpc_ref *of, uint64_t session)
{
    bool known = knows(remote, session);

    trii_mutex_lock(&remote->lock);
    if (!known && remote->session == of)
        remote->known[remote->n_known++ % TRII_REMOTE_KNOWN] = session;
    trii_mutex_unlock(&remote->lock);
}

size_t trii_remote_put_sources(const trii_remote_op *r, unsigned char *to,
                               tri_rpc_ref *refs[TRI_REMOTE_TENSORS], int *n_refs)
{
    size_t used = 0;

    for (int i = 0; i < r->n_in; i++) {
        const trii_remote_op *maker = r->from[i].op;
        trii_remote_source source = {.magic = TRII_REMOTE_MAGIC};

        if (!trii_remote_is_elsewhere(r, i))
            continue;
        if (maker->is_backward && (maker->reached >> r->from[i].result & 1) == 0)
            source.flags |= TRII_REMOTE_ZEROS;
        if (is_only_reader(r, i))
            source.flags |= TRII_REMOTE_LAST;
        if (!knows(r->remote, maker->session_number)) {
            source.flags |= TRII_REMOTE_WITH_REF;
            refs[(*n_refs)++] = maker->remote->found;
        }
        source.session = maker->session_number;
        source.number = maker->stay_number;
        source.result = number_as_sent(maker, r->from[i].result);
        memcpy(to + used, &source, sizeof(source));
        used += sizeof(source);
    }
    return used;
}

void trii_remote_end_reading(trii_remote_op *r)
{
    for (int i = 0; i < r->n_in; i++) {
        trii_remote_op *maker = r->from[i].op;

        if (maker == NULL)
            continue;
        maker->n_open--;
        if (!trii_remote_is_elsewhere(r, i))
            continue;
        learns(r->remote, r->session, maker->session_number);
        if (is_only_reader(r, i))
            maker->left &= ~((uint64_t)1 << r->from[i].result);
    }
}
