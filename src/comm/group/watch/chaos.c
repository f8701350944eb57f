/*
 * chaos.c - see chaos.h.
 */
#include "comm/group/watch/chaos.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/param.h"
#include "base/philox.h"
#include "os/clock.h"
#include "os/process.h"
#include "os/signal.h"
#include "os/thread.h"

#define DELAY_MS 10.0 /* where the text gives no other */
#define KILL_WITHIN_MS 1

typedef enum chaos_kind { DELAY, STOP, KILL, DROP, HALF, KINDS } chaos_kind;

static const char *const kind_names[KINDS] = {"delay", "stop", "kill", "drop", "half"};

/* When one kind of fault strikes. */
typedef struct chaos_when {
    double share; /* of the calls */
    uint64_t at;  /* this call; 0 = none */
} chaos_when;

struct trii_chaos {
    uint64_t seed;
    int rank;
    uint32_t group; /* hash of its name: groups of a rank have draws of their own */
    bool spared;    /* rank= names another one */
    chaos_when when[KINDS];
    double delay_ms;
    _Atomic uint64_t calls;
};

/* --- the text ------------------------------------------------------------- */

static tri_status bad(const char *part, const char *why)
{
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "TRI_CHAOS: %s: %s", part, why);
}

static bool read_number(const char *text, double max, double *value_out, const char **end_out)
{
    char *end;
    double value = strtod(text, &end);

    *end_out = end;
    *value_out = value;
    return end != text && value >= 0.0 && value <= max;
}

/* "0.1", "@7"; for delays also "0.1:20". */
static tri_status read_when(trii_chaos *chaos, chaos_kind kind, const char *part, const char *text)
{
    const char *end = text;
    int64_t at = 0;

    if (text[0] == '@') {
        if (trii_parse_i64(text + 1, kind_names[kind], 1, INT64_MAX, &at) != TRI_OK)
            return bad(part, "@N needs a number of a call, from 1");
        chaos->when[kind].at = (uint64_t)at;
        return TRI_OK;
    }
    if (!read_number(text, 1.0, &chaos->when[kind].share, &end))
        return bad(part, "needs a probability of 0 to 1, or @N");
    if (kind == DELAY && *end == ':' && !read_number(end + 1, 1e6, &chaos->delay_ms, &end))
        return bad(part, "the longest delay is a number of milliseconds");
    return *end == '\0' ? TRI_OK : bad(part, "something follows the value");
}

static tri_status read_part(trii_chaos *chaos, char *part)
{
    char *value = strchr(part, '=');
    char whole[64];
    int64_t number = 0;

    snprintf(whole, sizeof(whole), "%s", part);
    if (value == NULL)
        return bad(whole, "needs a value");
    *value++ = '\0';
    if (strcmp(part, "seed") == 0) {
        if (trii_parse_i64(value, "seed", 0, INT64_MAX, &number) != TRI_OK)
            return bad(whole, "needs a number");
        chaos->seed = (uint64_t)number;
        return TRI_OK;
    }
    if (strcmp(part, "rank") == 0) {
        if (trii_parse_i64(value, "rank", 0, INT32_MAX, &number) != TRI_OK)
            return bad(whole, "needs a rank");
        chaos->spared = number != chaos->rank;
        return TRI_OK;
    }
    for (chaos_kind k = 0; k < KINDS; k++) {
        if (strcmp(part, kind_names[k]) == 0)
            return read_when(chaos, k, whole, value);
    }
    return bad(whole, "there are seed, delay, stop, kill, drop, half and rank");
}

tri_status trii_chaos_create(int rank, const char *name, trii_chaos **chaos_out)
{
    const char *text = trii_param_text(TRII_PARAM_CHAOS);
    trii_chaos *chaos;
    tri_status status = TRI_OK;
    char copy[256];

    *chaos_out = NULL;
    if (text == NULL)
        return TRI_OK;
    if (strlen(text) >= sizeof(copy))
        return bad(text, "is too long");
    chaos = trii_alloc(1, sizeof(*chaos), "chaos");
    if (chaos == NULL)
        return TRI_ERR_NO_MEMORY;
    chaos->seed = 1;
    chaos->rank = rank;
    chaos->group = trii_hash32(name);
    chaos->delay_ms = DELAY_MS;
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *part = copy, *next; part != NULL && status == TRI_OK; part = next) {
        next = strchr(part, ',');
        if (next != NULL)
            *next++ = '\0';
        status = read_part(chaos, part);
    }
    if (status != TRI_OK || chaos->spared)
        trii_free(chaos);
    else
        *chaos_out = chaos;
    return status;
}

void trii_chaos_destroy(trii_chaos *chaos)
{
    trii_free(chaos);
}

/* --- the strikes ---------------------------------------------------------- */

static double unit(uint32_t draw)
{
    return (double)draw / 4294967296.0;
}

/* Lets the call begin, and kills in the middle of it. */
static void kill_soon(void *arg)
{
    int64_t moment_ns = (int64_t)(uintptr_t)arg;

    trii_sleep_until(trii_now_ns() + moment_ns);
    trii_process_signal_self(SIGKILL);
}

static void strike(const trii_chaos *chaos, chaos_kind kind, uint32_t draw,
                   const trii_engine *engine, void *self)
{
    trii_thread thread;
    int64_t moment_ns;

    switch (kind) {
    case DELAY:
        trii_sleep_until(trii_now_ns() +
                         (int64_t)(unit(draw) * chaos->delay_ms * (double)TRII_NS_PER_MS));
        break;
    case STOP:
        trii_process_signal_self(SIGSTOP);
        break;
    case KILL:
        /* Half of them at once. */
        moment_ns = (int64_t)((unit(draw) * 2.0 - 1.0) * KILL_WITHIN_MS * (double)TRII_NS_PER_MS);
        if (moment_ns <= 0 || trii_thread_start(&thread, "tri-chaos", kill_soon,
                                                (void *)(uintptr_t)moment_ns) != TRI_OK)
            trii_process_signal_self(SIGKILL);
        break;
    case DROP:
    case HALF:
        if (engine->disconnect != NULL)
            engine->disconnect(self, draw, kind == HALF);
        break;
    default:
        break;
    }
}

void trii_chaos_strike(trii_chaos *chaos, const trii_engine *engine, void *self,
                       const trii_collective *call)
{
    uint64_t n = atomic_fetch_add_explicit(&chaos->calls, 1, memory_order_relaxed) + 1;

    for (chaos_kind k = 0; k < KINDS; k++) {
        const chaos_when *when = &chaos->when[k];
        uint32_t counter[4] = {(uint32_t)n, (uint32_t)(n >> 32) ^ (uint32_t)k << 16,
                               (uint32_t)chaos->rank, chaos->group};
        uint32_t draw[4];

        if (when->share <= 0.0 && when->at == 0)
            continue;
        trii_philox(counter, chaos->seed, draw);
        if (when->at != 0 ? when->at != n : unit(draw[0]) >= when->share)
            continue;
        TRII_LOG(k == DELAY ? TRII_LOG_INFO : TRII_LOG_WARN, "group",
                 "chaos: %s of rank %d at its call %" PRIu64 ", %s (seed %" PRIu64 ")",
                 kind_names[k], chaos->rank, n, trii_kind_name(call->kind), chaos->seed);
        strike(chaos, k, draw[1], engine, self);
    }
}
