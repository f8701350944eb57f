/*
 * group_agree.c - agreement of the ranks through the store while a group is made: whether a step
 * succeeded on all of them, and texts that all of them need. Between hosts each request to the
 * store may take 0.2 s, so a step is one exchange.
 *
 *   STEP/R     rank R's report, "STATUS TEXT": a status that is not 0 is a failure, TEXT its line
 *   STEP/said  where many ranks agree: how many have reported, and above them how many failed
 *   STEP/all   ... "1" if all succeeded, written by the last one to report
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/note.h"
#include "base/param.h"
#include "base/ranks_text.h"
#include "group/group_internal.h"
#include "os/clock.h"
#include "store/exchange.h"
#include "store/store_ops.h"

enum {
    MAX_NAMED = 1000, /* ranks that are looked at for a message */
    FEW = 32,         /* so many read what each of them says, more count */
    KEY = 96,
    LINE = TRII_ERR_BYTES + 16,
    TRIES = 3 /* of what others wait for, if memory is short */
};

#define ASK_NS (250 * TRII_NS_PER_MS) /* between two looks */
#define FAILED (INT64_C(1) << 32)     /* what a failure adds to the count */

int64_t trii_group_left_ms(const trii_group_args *args)
{
    int64_t left_ns;

    if (args->deadline_ns == TRII_NO_DEADLINE)
        return TRI_FOREVER;
    left_ns = args->deadline_ns - trii_now_ns();
    return left_ns < TRII_NS_PER_MS ? 1 : left_ns / TRII_NS_PER_MS;
}

/* STEP/0, STEP/1, ...: two arrays in one block. NULL = no memory. */
static const char **step_keys(const char *step, int n)
{
    const char **keys = trii_alloc((size_t)n, sizeof(*keys) + KEY, "ranks that agree");
    char(*text)[KEY] = (char(*)[KEY])(keys + n);

    for (int r = 0; keys != NULL && r < n; r++) {
        snprintf(text[r], KEY, "%s/%d", step, r);
        keys[r] = text[r];
    }
    return keys;
}

tri_status trii_agree_failure(const trii_group_args *args, int rank, char *text)
{
    char *line = strchr(text, ' ');
    int64_t reported = 0;
    tri_status status;

    if (line != NULL)
        *line++ = '\0';
    status = trii_parse_i64(text, "status", INT32_MIN, -1, &reported);
    return status == TRI_OK ? TRII_FAIL((tri_status)reported, "rank %d: %s",
                                        trii_rank_name(args->names, rank), line != NULL ? line : "")
                            : status;
}

static bool is_well(const char *text)
{
    return strncmp(text, "0 ", 2) == 0;
}

/* Those that have not said anything about `step`, `others` if all have. The failure of one that
 * has, OK if all is well. */
static tri_status name_missing(const trii_group_args *args, const char *step, const char *others,
                               char *text, size_t size)
{
    tri_status status = TRI_OK;
    int missing[MAX_NAMED], n = 0, n_ranks = args->size < MAX_NAMED ? args->size : MAX_NAMED;
    const char **keys = step_keys(step, n_ranks);
    trii_store_call *calls = trii_alloc((size_t)n_ranks, sizeof(*calls), "ranks that agree");

    for (int r = 0; r < n_ranks && keys != NULL && calls != NULL; r++)
        calls[r] = (trii_store_call){.kind = TRII_STORE_READ, .key = keys[r]};
    /* one that is silent would be waited for */
    if (keys != NULL && calls != NULL && !trii_store_is_silent(args->store) &&
        trii_store_exchange(args->store, calls, n_ranks, NULL, 0, 0, NULL, NULL) == TRI_OK) {
        for (int r = 0; r < n_ranks; r++) {
            if (calls[r].value == NULL)
                missing[n++] = r;
            else if (status == TRI_OK && !is_well(calls[r].value))
                status = trii_agree_failure(args, r, calls[r].value);
        }
        trii_store_calls_free(calls, n_ranks);
    }
    trii_free(calls);
    trii_free(keys);
    if (n > 0)
        (void)trii_ranks_text(missing, n, text, size);
    else
        snprintf(text, size, "%s", others != NULL ? others : "the others");
    return status;
}

/* Who failed, more than who did not come, is why there is no group; but the one may have failed
 * because of the other. */
static tri_status agree_timed_out(const trii_group_args *args, const char *step, const char *others,
                                  int64_t waited_ns)
{
    char missing[160], why[TRII_ERR_BYTES] = "";
    tri_status cause = name_missing(args, step, others, missing, sizeof(missing));

    if (cause != TRI_OK)
        snprintf(why, sizeof(why), " (%s)", tri_last_error());
    return TRII_FAIL(cause != TRI_OK ? cause : TRI_ERR_TIMEOUT,
                     "%s: rank %d of %d waited %.1f s for %s to join%s", args->name, args->rank,
                     args->size, (double)waited_ns / TRII_NS_PER_S, missing, why);
}

tri_status trii_group_is_over(const trii_group_args *args)
{
    return TRII_FAIL(TRI_ERR_PEER_LOST, "%s: a rank ended while the group was formed", args->name);
}

/* Twice, if memory is short: the others wait for this. */
static tri_status put(const trii_group_args *args, const char *step, const char *text)
{
    char key[KEY];
    tri_status status;

    snprintf(key, sizeof(key), "%s/%d", step, args->rank);
    status = tri_store_set(args->store, key, text, strlen(text));
    return status == TRI_ERR_NO_MEMORY ? tri_store_set(args->store, key, text, strlen(text))
                                       : status;
}

/* TIMEOUT if they are not there after so long. own: NULL = nothing is to be written before. */
static tri_status get(const trii_group_args *args, trii_store_call *own, const char *const *keys,
                      int n_keys, int64_t for_ns, char **values_out)
{
    return trii_store_exchange(args->store, own, own != NULL ? 1 : 0, keys, n_keys,
                               for_ns / TRII_NS_PER_MS + 1, (void **)values_out, NULL);
}

/* Not OK: nobody needs to wait any more, and line says why. */
static tri_status look(const trii_group_args *args, const trii_looks *looks,
                       char line[TRII_ERR_BYTES])
{
    tri_status status = looks->look != NULL ? looks->look(looks->arg) : TRI_OK;

    if (status == TRI_OK && args->is_over != NULL && args->is_over(args->is_over_arg))
        status = trii_group_is_over(args);
    snprintf(line, TRII_ERR_BYTES, "%s", tri_last_error());
    return status;
}

/* Waits for all keys, and logs which ranks are missing. own: this rank's report, which goes with
 * the first question, as each message wakes the server; NULL = it was put before. values_out: NULL
 * = they need only be there. */
static tri_status await(const trii_group_args *args, const char *step, const char *own,
                        const char *const *keys, int n_keys, const trii_looks *looks,
                        char **values_out)
{
    char own_key[KEY];
    trii_store_call report = {.kind = TRII_STORE_SET, .key = own_key, .text = own};
    const trii_looks none = {0};
    int64_t start = trii_now_ns(), note = start + TRII_NOTE_FIRST_NS, now = start, pause;
    char missing[160];
    int out_of_memory = 0;

    snprintf(own_key, sizeof(own_key), "%s/%d", step, args->rank);
    looks = looks != NULL ? looks : &none;
    pause = looks->first_ns > 0 ? looks->first_ns : ASK_NS;
    for (;;) {
        int64_t until = note < args->deadline_ns ? note : args->deadline_ns;
        bool silent;
        tri_status status;

        if ((looks->look != NULL || args->is_over != NULL) && until > now + pause)
            until = now + pause;
        pause = 2 * pause < ASK_NS ? 2 * pause : ASK_NS;
        status = get(args, own != NULL ? &report : NULL, keys, n_keys,
                     until > now ? until - now : 0, values_out);
        if (status == TRI_ERR_NO_MEMORY && ++out_of_memory < TRIES)
            continue; /* this rank reports success, so the others go on */
        if (status == TRI_ERR_NO_MEMORY && own != NULL)
            (void)put(args, step, own); /* at least that, for those who wait for it */
        own = NULL;
        now = trii_now_ns();
        if (status != TRI_ERR_TIMEOUT)
            return status;
        silent = trii_store_is_silent(args->store); /* to ask more would take longer than `until` */
        if (!silent) {
            char line[TRII_ERR_BYTES];
            tri_status over = look(args, looks, line);

            /* A rank that ended after success had waited for the same keys, so they are there. */
            status = over != TRI_OK ? get(args, NULL, keys, n_keys, 0, values_out) : status;
            if (over != TRI_OK)
                return status == TRI_ERR_TIMEOUT ? TRII_FAIL(over, "%s", line) : status;
        }
        if (now >= args->deadline_ns)
            return agree_timed_out(args, step, looks->whom, now - start);
        if (now < until)
            return status; /* the store itself gave up */
        if (now < note)
            continue;
        name_missing(args, step, looks->whom, missing, sizeof(missing));
        TRII_LOG(TRII_LOG_WARN, "group", "%s: rank %d of %d has waited %.1f s for %s to join",
                 args->name, args->rank, args->size, (double)(now - start) / TRII_NS_PER_S,
                 missing);
        note = trii_note_next(now);
    }
}

/* texts: [size], the reports of all ranks; freed here unless texts_out takes them. */
static tri_status judge(const trii_group_args *args, char **texts, char **texts_out)
{
    tri_status status = TRI_OK;
    int cause = -1;

    /* A rank that gave up because of another reports ABORTED. */
    for (int r = 0; r < args->size; r++) {
        if (!is_well(texts[r]) &&
            (cause < 0 || (strtol(texts[cause], NULL, 10) == TRI_ERR_ABORTED &&
                           strtol(texts[r], NULL, 10) != TRI_ERR_ABORTED)))
            cause = r;
    }
    if (cause >= 0)
        status = trii_agree_failure(args, cause, texts[cause]);
    for (int r = 0; r < args->size; r++) {
        if (status == TRI_OK && texts_out != NULL) {
            memmove(texts[r], texts[r] + 2, strlen(texts[r] + 2) + 1);
            texts_out[r] = texts[r];
        } else {
            tri_store_free(texts[r]);
        }
    }
    return status;
}

/* Room for the answers of all ranks, taken before this rank reports that it is well. */
typedef struct answers {
    const char **keys;
    char **texts;
} answers;

static tri_status answers_init(answers *h, const trii_group_args *args, const char *step)
{
    h->keys = step_keys(step, args->size);
    h->texts = trii_alloc((size_t)args->size, sizeof(*h->texts), "ranks that agree");
    return h->keys != NULL && h->texts != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

static void answers_fini(answers *h)
{
    trii_free(h->texts);
    trii_free(h->keys);
}

/* The reports of all ranks; own: as of await. */
static tri_status read_all(const trii_group_args *args, const char *step, const char *own,
                           const answers *h, char **texts_out)
{
    tri_status status = await(args, step, own, h->keys, args->size, NULL, h->texts);

    return status == TRI_OK ? judge(args, h->texts, texts_out) : status;
}

/* Some rank of many failed: the lowest one's status and line become everybody's. */
static tri_status find_failure(const trii_group_args *args, const char *step)
{
    answers h;
    tri_status status = answers_init(&h, args, step);

    if (status == TRI_OK)
        status = read_all(args, step, NULL, &h, NULL);
    answers_fini(&h);
    return status != TRI_OK
               ? status
               : TRII_FAIL(TRI_ERR_INTERNAL, "agreement on %s: a failure without a rank", step);
}

/* The report of this rank on a step: why it gave up before the first one, if it did. */
static tri_status own_result(const trii_group_args *args, tri_status mine)
{
    return args->refusal != NULL ? TRII_FAIL(args->refusal->status, "%s", args->refusal->line)
                                 : mine;
}

static void format_result(char text[LINE], tri_status mine)
{
    assert(mine <= TRI_OK); /* "not done" must have become a failure before */
    snprintf(text, LINE, "%d %s", (int)mine, mine != TRI_OK ? tri_last_error() : "");
}

/* The last of many to speak writes the verdict. */
tri_status trii_agree_report(const trii_group_args *args, const char *step, tri_status mine)
{
    char text[LINE], key[KEY];
    int64_t sum;
    tri_status status;

    format_result(text, own_result(args, mine));
    status = put(args, step, text);
    if (status != TRI_OK || args->size <= FEW)
        return status;
    snprintf(key, sizeof(key), "%s/said", step);
    status = tri_store_add(args->store, key, mine == TRI_OK ? 1 : 1 + FAILED, &sum);
    if (status != TRI_OK || sum % FAILED != args->size)
        return status;
    snprintf(key, sizeof(key), "%s/all", step);
    return tri_store_set(args->store, key, sum < FAILED ? "1" : "0", 1);
}

/* Of many. */
static tri_status await_verdict(const trii_group_args *args, const char *step)
{
    char key[KEY], *verdict = NULL;
    const char *keys[] = {key};
    tri_status status;

    snprintf(key, sizeof(key), "%s/all", step);
    status = await(args, step, NULL, keys, 1, NULL, &verdict);
    if (status == TRI_OK && verdict[0] != '1')
        status = find_failure(args, step);
    tri_store_free(verdict);
    return status;
}

tri_status trii_group_agree(const trii_group_args *args, const char *step, tri_status mine)
{
    char text[LINE];
    answers h = {0};
    bool room, few = args->size <= FEW;
    tri_status status = TRI_OK;

    if (args->size == 1)
        return mine;
    room = !few || answers_init(&h, args, step) == TRI_OK;
    if (!room && mine == TRI_OK)
        mine = TRI_ERR_NO_MEMORY;
    format_result(text, mine);
    if (!few || !room || args->refusal != NULL)
        status = trii_agree_report(args, step, mine);
    if (status == TRI_OK && (!room || args->refusal != NULL))
        status = own_result(args, mine);
    else if (status == TRI_OK)
        status = few ? read_all(args, step, text, &h, NULL) : await_verdict(args, step);
    answers_fini(&h);
    return status;
}

/* The keys that are there when all ranks have arrived; all: room for one of them. */
static const char **arrival_keys(const trii_group_args *args, const char *step, char all[KEY],
                                 int *n_out)
{
    const char **keys;

    *n_out = args->size <= FEW ? args->size : 1;
    keys = step_keys(step, *n_out);
    if (keys != NULL && args->size > FEW) {
        snprintf(all, KEY, "%s/all", step);
        keys[0] = all;
    }
    return keys;
}

tri_status trii_agree_arrive(const trii_group_args *args, const char *step, const trii_looks *looks)
{
    char all[KEY], text[LINE];
    bool few = args->size <= FEW;
    int n;
    const char **keys = arrival_keys(args, step, all, &n);
    tri_status status = keys != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK && !few)
        status = trii_agree_report(args, step, TRI_OK);
    format_result(text, own_result(args, TRI_OK));
    if (status == TRI_OK)
        status = await(args, step, few ? text : NULL, keys, n, looks, NULL);
    trii_free(keys);
    return status;
}

tri_status trii_agree_have_arrived(const trii_group_args *args, const char *step, bool *all_out)
{
    char all[KEY];
    int n;
    const char **keys = arrival_keys(args, step, all, &n);
    tri_status status = TRI_ERR_NO_MEMORY;

    if (keys != NULL)
        status = tri_store_check(args->store, keys, n, all_out);
    trii_free(keys);
    return status;
}

tri_status trii_agree_await(const trii_group_args *args, const char *step, const char *key,
                            const trii_looks *looks)
{
    const char **keys = key != NULL ? &key : step_keys(step, args->size);
    tri_status status = TRI_ERR_NO_MEMORY;

    if (keys != NULL)
        status = await(args, step, NULL, keys, key != NULL ? 1 : args->size, looks, NULL);
    if (key == NULL)
        trii_free(keys);
    return status;
}

/* "0 TEXT". NULL: no memory. */
static char *well(const char *text)
{
    size_t bytes = strlen(text) + 3;
    char *own = trii_alloc(bytes, 1, "ranks that agree");

    if (own != NULL)
        snprintf(own, bytes, "0 %s", text);
    return own;
}

tri_status trii_group_gather(const trii_group_args *args, const char *step, tri_status mine,
                             const char *text, char **texts_out)
{
    char failed[LINE], *own = NULL;
    answers h = {0};
    bool room = answers_init(&h, args, step) == TRI_OK, reads;
    tri_status status = TRI_OK;

    mine = own_result(args, mine);
    if (mine == TRI_OK && room)
        own = well(text);
    if (mine == TRI_OK && own == NULL)
        mine = TRI_ERR_NO_MEMORY;
    if (own == NULL)
        format_result(failed, mine);
    reads = room && args->refusal == NULL;
    if (!reads)
        status = put(args, step, own != NULL ? own : failed);
    if (status == TRI_OK)
        status = reads ? read_all(args, step, own != NULL ? own : failed, &h, texts_out) : mine;
    trii_free(own);
    answers_fini(&h);
    return status;
}

tri_status trii_group_view(const char *prefix, tri_store *store, tri_store **view_out)
{
    tri_status status = TRI_ERR_NO_MEMORY;

    for (int i = 0; i < TRIES && status == TRI_ERR_NO_MEMORY; i++)
        status = tri_store_prefix(prefix, store, view_out);
    return status;
}
