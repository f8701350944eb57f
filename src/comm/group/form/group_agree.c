/*
 * group_agree.c - agreement of the ranks through the store while a group is made: whether a step
 * succeeded on all of them, and texts that all of them need. Between hosts each request to the
 * store may take 0.2 s, so a step that succeeds is one exchange, and a second one reads texts.
 *
 *   STEP/R       rank R has done its part. Where texts are gathered its report, "STATUS TEXT": a
 *                status that is not 0 is a failure, TEXT its line
 *   STEP/said    where many ranks agree: how many have done it
 *   STEP/all     ... written by the last of them
 *   STEP/failed  there is a rank that could not do its part: now all gather reports, in STEP/end
 *
 * The first step of every engine is "engine", with texts "WHAT|BUILD|TEXT": all ranks must
 * have one WHAT and one BUILD.
 */
/* build: leaf */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/note.h"
#include "base/param.h"
#include "base/ranks_text.h"
#include "comm/group/group_internal.h"
#include "os/clock.h"
#include "store/exchange.h"
#include "store/store_ops.h"

enum {
    MAX_NAMED = 1000, /* ranks that are looked at for a message */
    FEW = 32,         /* so many wait for each of them, more count */
    KEY = 96,
    LINE = TRII_ERR_BYTES + 16,
    TRIES = 3 /* of what others wait for, if memory is short */
};

#define WELL "0 "                        /* how the report of a success begins */
#define ASK_NS (250 * TRII_NS_PER_MS)    /* between two looks */
#define FAILURE_NS (16 * TRII_NS_PER_MS) /* the first look for a failure */

int64_t trii_group_left_ms(const trii_group_args *args)
{
    int64_t left_ns;

    if (args->deadline_ns == TRII_NO_DEADLINE)
        return TRI_FOREVER;
    left_ns = args->deadline_ns - trii_now_ns();
    return left_ns < TRII_NS_PER_MS ? 1 : left_ns / TRII_NS_PER_MS;
}

/* Two arrays in one block. */
const char **trii_agree_keys(const char *step, int n)
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
    return strncmp(text, WELL, strlen(WELL)) == 0;
}

/* Those that have not said anything about `step`, `others` if all have. The failure of one that
 * has, OK if all is well. */
static tri_status name_missing(const trii_group_args *args, const char *step, const char *others,
                               char *text, size_t size)
{
    tri_status status = TRI_OK;
    int missing[MAX_NAMED], n = 0, n_ranks = args->size < MAX_NAMED ? args->size : MAX_NAMED;
    const char **keys = trii_agree_keys(step, n_ranks);
    trii_store_call *calls = trii_alloc((size_t)n_ranks, sizeof(*calls), "ranks that agree");

    /* one that is silent would be waited for */
    if (keys != NULL && calls != NULL && !trii_store_is_silent(args->store) &&
        trii_store_peek(args->store, keys, calls, n_ranks) == TRI_OK) {
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

/* A rank that failed, more than one that did not come, is why there is no group; but it may have
 * failed because of the other. */
static tri_status agree_timed_out(const trii_group_args *args, const char *step, const char *others,
                                  int64_t waited_ns)
{
    char missing[160], why[TRII_ERR_BYTES] = "";
    tri_status cause;

    if (args->give_up != NULL)
        args->give_up(args->is_over_arg);
    cause = name_missing(args, step, others, missing, sizeof(missing));
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
static tri_status put(const trii_group_args *args, const char *key, const char *text)
{
    tri_status status = tri_store_set(args->store, key, text, strlen(text));

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

/* Not OK: nobody needs to wait any more, and line says why. A rank that ended may have said before
 * why there is no group. */
static tri_status look(const trii_group_args *args, const char *step, const trii_looks *looks,
                       char line[TRII_ERR_BYTES])
{
    tri_status status = looks->look != NULL ? looks->look(looks->arg) : TRI_OK;
    char missing[160];

    if (status == TRI_OK && args->is_over != NULL && args->is_over(args->is_over_arg)) {
        status = name_missing(args, step, NULL, missing, sizeof(missing));
        status = status != TRI_OK ? status : trii_group_is_over(args);
    }
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
            (void)put(args, own_key, own); /* at least that, for those who wait for it */
        own = NULL;
        now = trii_now_ns();
        if (status != TRI_ERR_TIMEOUT)
            return status;
        silent = trii_store_is_silent(args->store); /* to ask more would take longer than `until` */
        if (!silent) {
            char line[TRII_ERR_BYTES];
            tri_status over = look(args, step, looks, line);

            if (over == TRI_END)
                return over;
            /* A rank that ended after success had waited for the same keys, so they are there. */
            if (over != TRI_OK)
                return get(args, NULL, keys, n_keys, 0, values_out) == TRI_OK
                           ? TRI_OK
                           : TRII_FAIL(over, "%s", line);
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
    h->keys = trii_agree_keys(step, args->size);
    h->texts = trii_alloc((size_t)args->size, sizeof(*h->texts), "ranks that agree");
    return h->keys != NULL && h->texts != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

static void answers_fini(answers *h)
{
    trii_free(h->texts);
    trii_free(h->keys);
}

/* WELL and the text. NULL: no memory. */
static char *well(const char *text)
{
    size_t bytes = strlen(WELL) + strlen(text) + 1;
    char *own = trii_alloc(bytes, 1, "ranks that agree");

    if (own != NULL)
        snprintf(own, bytes, WELL "%s", text);
    return own;
}

tri_status trii_group_gather(const trii_group_args *args, const char *step, tri_status mine,
                             const char *text, char **texts_out)
{
    char failed[LINE], key[KEY], *own = NULL;
    answers h = {0};
    bool room = answers_init(&h, args, step) == TRI_OK;
    tri_status status;

    assert(mine <= TRI_OK); /* "not done" must have become a failure before */
    if (mine == TRI_OK && room)
        own = well(text);
    if (mine == TRI_OK && own == NULL)
        mine = TRI_ERR_NO_MEMORY;
    if (own == NULL)
        snprintf(failed, LINE, "%d %s", (int)mine, tri_last_error());
    if (room) {
        status = await(args, step, own != NULL ? own : failed, h.keys, args->size, NULL, h.texts);
        if (status == TRI_OK)
            status = judge(args, h.texts, texts_out);
    } else {
        snprintf(key, sizeof(key), "%s/%d", step, args->rank);
        status = put(args, key, own != NULL ? own : failed);
        status = status == TRI_OK ? mine : status;
    }
    trii_free(own);
    answers_fini(&h);
    return status;
}

/* The part before the first bar must be the same. The first rank that has not what rank 0 has is
 * named on all ranks alike. */
static tri_status compare_wants(const trii_group_args *args, char *const *texts)
{
    size_t length = strcspn(texts[0], "|");
    int odd = 1;

    while (odd < args->size && strncmp(texts[0], texts[odd], length + 1) == 0)
        odd++;
    if (odd == args->size)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "the ranks want different groups: rank %d has %.*s, rank %d has %.*s",
                     trii_rank_name(args->names, 0), (int)length, texts[0],
                     trii_rank_name(args->names, odd), (int)strcspn(texts[odd], "|"), texts[odd]);
}

/* Compares the part before the second bar, and leaves what follows. */
static tri_status compare_builds(const trii_group_args *args, const char *build, char **texts)
{
    tri_status status = TRI_OK;

    for (int r = 0; r < args->size && status == TRI_OK; r++) {
        char *theirs = strchr(texts[r], '|') + 1, *text = strchr(theirs, '|');

        *(text != NULL ? text : theirs) = '\0'; /* another build may have none */
        status = trii_build_check(args, r, theirs, build);
        if (status == TRI_OK && text != NULL)
            memmove(texts[r], text + 1, strlen(text + 1) + 1);
    }
    return status;
}

tri_status trii_group_begin(const trii_group_args *args, const trii_engine_id *id, tri_status mine,
                            const char *text, char **texts_out)
{
    char build[TRII_BUILD_TEXT], *own = NULL;
    size_t bytes;
    tri_status status;

    trii_build_text(id, build);
    if (mine == TRI_OK) {
        bytes = strlen(id->what) + strlen(build) + strlen(text) + 3;
        own = trii_alloc(bytes, 1, "ranks that agree");
        if (own != NULL)
            snprintf(own, bytes, "%s|%s|%s", id->what, build, text);
        else
            mine = TRI_ERR_NO_MEMORY;
    }
    status = trii_group_gather(args, "engine", mine, own, texts_out);
    trii_free(own);
    if (status != TRI_OK)
        return status;
    status = compare_wants(args, texts_out);
    if (status == TRI_OK)
        status = compare_builds(args, build, texts_out);
    for (int r = 0; r < args->size && status != TRI_OK; r++) {
        tri_store_free(texts_out[r]);
        texts_out[r] = NULL;
    }
    return status;
}

tri_status trii_agree_refuse(const trii_group_args *args, tri_status why, const char *line)
{
    char key[KEY], report[LINE];

    snprintf(key, sizeof(key), "engine/%d", args->rank);
    snprintf(report, sizeof(report), "%d %s", (int)why, line);
    return put(args, key, report);
}

/* --- whether a step succeeded --------------------------------------------- */

typedef struct arrival {
    const trii_group_args *args;
    char failed[KEY]; /* STEP/failed */
} arrival;

/* INPROGRESS: not all will arrive. A rank without memory for a look looks again. */
static tri_status look_for_failure(void *arg)
{
    const arrival *a = arg;
    const char *const keys[] = {a->failed};
    bool there = false;
    tri_status status = tri_store_check(a->args->store, keys, 1, &there);

    if (status == TRI_OK && there)
        return TRI_INPROGRESS;
    return status == TRI_ERR_NO_MEMORY ? TRI_OK : status;
}

/* One of many has done its part. */
static tri_status count_in(const trii_group_args *args, const char *step, const char *all)
{
    char key[KEY];
    int64_t n = 0;
    tri_status status;

    snprintf(key, sizeof(key), "%s/%d", step, args->rank);
    status = put(args, key, WELL);
    snprintf(key, sizeof(key), "%s/said", step);
    if (status == TRI_OK)
        status = tri_store_add(args->store, key, 1, &n);
    return status == TRI_OK && n == args->size ? put(args, all, "") : status;
}

tri_status trii_group_agree(const trii_group_args *args, const char *step, tri_status mine)
{
    arrival a = {.args = args};
    const trii_looks looks = {.look = look_for_failure, .arg = &a, .first_ns = FAILURE_NS};
    char all[KEY], end[KEY], line[TRII_ERR_BYTES];
    const char *const last[] = {all};
    const char **keys = NULL;
    bool few = args->size <= FEW;
    tri_status status;

    if (args->size == 1)
        return mine;
    snprintf(a.failed, sizeof(a.failed), "%s/failed", step);
    snprintf(all, sizeof(all), "%s/all", step);
    if (mine == TRI_OK && !few)
        mine = count_in(args, step, all); /* else the others would wait for it */
    else if (mine == TRI_OK && (keys = trii_agree_keys(step, args->size)) == NULL)
        mine = TRI_ERR_NO_MEMORY;
    if (mine == TRI_OK) {
        status = await(args, step, few ? WELL : NULL, few ? keys : last, few ? args->size : 1,
                       &looks, NULL);
        trii_free(keys);
        if (status != TRI_INPROGRESS)
            return status;
    } else {
        snprintf(line, sizeof(line), "%s", tri_last_error());
        (void)put(args, a.failed, "");
        trii_err_set("%s", line);
    }
    snprintf(end, sizeof(end), "%s/end", step);
    status = trii_group_gather(args, end, mine, "", NULL);
    return status != TRI_OK
               ? status
               : TRII_FAIL(TRI_ERR_INTERNAL, "agreement on %s: a failure without a rank", step);
}

tri_status trii_agree_await(const trii_group_args *args, const char *step, const char *own,
                            const char *key, const trii_looks *looks)
{
    const char **keys = key != NULL ? &key : trii_agree_keys(step, args->size);
    tri_status status = TRI_ERR_NO_MEMORY;

    if (keys != NULL)
        status = await(args, step, own, keys, key != NULL ? 1 : args->size, looks, NULL);
    if (key == NULL)
        trii_free(keys);
    return status;
}

tri_status trii_group_view(const char *prefix, tri_store *store, tri_store **view_out)
{
    tri_status status = TRI_ERR_NO_MEMORY;

    for (int i = 0; i < TRIES && status == TRI_ERR_NO_MEMORY; i++)
        status = tri_store_prefix(prefix, store, view_out);
    return status;
}
