/*
 * collective_text.c - calls in words, for messages.
 */
/* build: leaf */
#include <inttypes.h>
#include <string.h>

#include "comm/group/engine.h"

#define KIND_NAME(NAME, name, properties, arg) [TRII_KIND_##NAME] = name,

const char *trii_kind_name(trii_kind kind)
{
    static const char *const names[TRII_KIND_COUNT] = {"no call", TRII_KIND_LIST(KIND_NAME, )};

    return (unsigned)kind < TRII_KIND_COUNT ? names[kind] : "unknown call";
}

/* " of 100 f32, sum, to rank 0": what follows the number of a call. */
static void describe_detail(const trii_collective *call, char *text, size_t size)
{
    const uint32_t any_count = 1u << TRII_KIND_ALL_TO_ALL_V, any_peer = 1u << TRII_KIND_RECV_ANY;
    const uint32_t to_peer = TRII_KINDS_TO_ROOT | 1u << TRII_KIND_SEND;
    uint32_t kind = (unsigned)call->kind < TRII_KIND_COUNT ? 1u << call->kind : 0;
    size_t used;

    if ((kind & TRII_KINDS_ALL & ~TRII_KINDS_WITH(TRII_NO_DATA)) == 0)
        return;
    used = (size_t)snprintf(text, size, " of ");
    if ((kind & any_count) == 0)
        used += (size_t)snprintf(text + used, size - used, "%zu ", call->count);
    used += (size_t)snprintf(text + used, size - used, "%s", tri_dtype_name(call->dtype));
    if ((kind & TRII_KINDS_REDUCING) != 0)
        used += (size_t)snprintf(text + used, size - used, ", %s", tri_redop_name(call->op));
    if ((kind & (TRII_KINDS_ROOTED | TRII_KINDS_PAIR) & ~any_peer) != 0)
        used += (size_t)snprintf(text + used, size - used, "%s %s rank %d",
                                 (kind & TRII_KINDS_REDUCING) != 0 ? "," : "",
                                 (kind & to_peer) != 0 ? "to" : "from", call->root);
    if ((kind & TRII_KINDS_PAIR) != 0)
        snprintf(text + used, size - used, ", tag %d", call->tag);
}

void trii_collective_describe(const trii_collective *call, char *text, size_t size)
{
    const char *slash = call->site.file != NULL ? strrchr(call->site.file, '/') : NULL;
    const char *file = slash != NULL ? slash + 1 : call->site.file;
    char detail[96] = "";
    char site[128] = "", number[24] = "";

    if (call->seq > 0) /* else it has not been made */
        snprintf(number, sizeof(number), " #%" PRIu64, call->seq);
    if (file != NULL)
        snprintf(site, sizeof(site), " (%s:%d)", file, call->site.line);
    describe_detail(call, detail, sizeof(detail));
    snprintf(text, size, "%s%s%s%s", trii_kind_name(call->kind), number, detail, site);
}

void trii_op_describe(const trii_op *op, char *text, size_t size)
{
    trii_collective_describe(trii_collective_whole(&op->call), text, size);
}

void trii_collective_disagree(int rank_a, const trii_collective *a, int rank_b,
                              const trii_collective *b, char *text, size_t size)
{
    const uint32_t lists = 1u << TRII_KIND_ALL_GATHER_V | 1u << TRII_KIND_REDUCE_SCATTER_V;
    bool swap = rank_b < rank_a, same = a->kind == b->kind && a->count == b->count;
    char first[240], second[240];

    trii_collective_describe(swap ? b : a, first, sizeof(first));
    trii_collective_describe(swap ? a : b, second, sizeof(second));
    snprintf(text, size, "the ranks disagree: rank %d calls %s; rank %d calls %s%s",
             swap ? rank_b : rank_a, first, swap ? rank_a : rank_b, second,
             same && (lists >> a->kind & 1) != 0 && a->root != b->root
                 ? "; their lists of counts differ, though not in sum, or what they gather does"
                 : "");
}
