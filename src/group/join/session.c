/*
 * session.c - see session.h.
 *
 * A key in the store does not prove that its writer is alive, so each side draws a number and waits
 * for the other to repeat it:
 *
 *   trireme/session    rank 0: S, the name of this run
 *   trireme/hello/R    rank R: its number N
 *   trireme/answer/R   rank 0, whenever hello/R changes: N and S
 *   trireme/S/come/R   rank R, once it has read its own N there
 *   trireme/S/come/all rank 0, when all have
 *
 * A stale hello gets an answer that nobody reads. Rank 0 goes on until all have joined, and then
 * deletes the keys that only joining needed.
 */
#include "group/join/session.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/note.h"
#include "base/ranks_text.h"
#include "group/group_internal.h"
#include "os/clock.h"
#include "os/random.h"

enum { NUMBER = TRII_SESSION_TEXT - 1, MAX_NAMED = 1000 };

typedef struct joining_rank {
    char answered[NUMBER]; /* the hello that we answered last */
    bool here;             /* come/R is there */
} joining_rank;

static void draw(char text[TRII_SESSION_TEXT])
{
    unsigned char bytes[NUMBER / 2] = {0};

    (void)trii_random_bytes(bytes, sizeof(bytes)); /* to be told apart, not a secret */
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

/* OK and the first `room` bytes of the value, INPROGRESS if the key is not there now. */
static tri_status read_now(tri_store *store, const char *key, char *text, size_t room)
{
    bool present = false;
    void *value = NULL;
    size_t bytes = 0;
    tri_status status = tri_store_check(store, &key, 1, &present);

    if (status != TRI_OK || !present)
        return status == TRI_OK ? TRI_INPROGRESS : status;
    status = tri_store_get(store, key, 1000, &value, &bytes);
    if (status == TRI_ERR_TIMEOUT)
        return TRI_INPROGRESS; /* taken away between the two */
    if (status != TRI_OK)
        return status;
    memset(text, 0, room);
    memcpy(text, value, bytes < room ? bytes : room);
    tri_store_free(value);
    return TRI_OK;
}

/* A loop that looks again and again. */
typedef struct looks {
    int64_t start_ns, deadline_ns, note_ns; /* note: when the log says next for whom */
    int64_t pause_ns, max_pause_ns;
} looks;

/* Many ranks look less often: the store has to answer them all. */
static looks start_looking(int size, int64_t deadline_ns)
{
    int64_t now = trii_now_ns();

    return (looks){.start_ns = now,
                   .deadline_ns = deadline_ns,
                   .note_ns = now + TRII_NOTE_FIRST_NS,
                   .pause_ns = TRII_NS_PER_MS / 4,
                   .max_pause_ns = (10 + size / 4) * TRII_NS_PER_MS};
}

static double waited_s(const looks *l)
{
    return (double)(trii_now_ns() - l->start_ns) / (double)TRII_NS_PER_S;
}

/* One pause; false after the deadline. */
static bool look_again(looks *l)
{
    int64_t now = trii_now_ns();

    if (now >= l->deadline_ns)
        return false;
    trii_sleep_until(l->deadline_ns - now < l->pause_ns ? l->deadline_ns : now + l->pause_ns);
    l->pause_ns = l->pause_ns * 3 / 2 < l->max_pause_ns ? l->pause_ns * 3 / 2 : l->max_pause_ns;
    return true;
}

static void note_wait(looks *l, int rank, int size, const char *whom)
{
    TRII_LOG(TRII_LOG_WARN, "group", "world: rank %d of %d has waited %.1f s for %s to join", rank,
             size, waited_s(l), whom);
    l->note_ns = trii_note_next(trii_now_ns());
}

static tri_status answer_rank(tri_store *store, const char *session, int rank, joining_rank *g)
{
    char hello[NUMBER], answer[2 * NUMBER], key[96];
    tri_status status;

    snprintf(key, sizeof(key), "trireme/hello/%d", rank);
    status = read_now(store, key, hello, sizeof(hello));
    if (status == TRI_OK && memcmp(hello, g->answered, sizeof(hello)) != 0) {
        memcpy(answer, hello, NUMBER);
        memcpy(answer + NUMBER, session, NUMBER);
        snprintf(key, sizeof(key), "trireme/answer/%d", rank);
        status = tri_store_set(store, key, answer, sizeof(answer));
        memcpy(g->answered, hello, sizeof(hello));
    }
    if (status >= 0) {
        const char *here = key;

        snprintf(key, sizeof(key), "trireme/%s/come/%d", session, rank);
        status = tri_store_check(store, &here, 1, &g->here);
    }
    return status;
}

static void name_missing(const joining_rank *ranks, int size, char *text, size_t room)
{
    int missing[MAX_NAMED], n = 0;

    for (int r = 1; r < size && n < MAX_NAMED; r++) {
        if (!ranks[r].here)
            missing[n++] = r;
    }
    (void)trii_ranks_text(missing, n, text, room);
}

static tri_status check_session(tri_store *store, const char *session)
{
    char now[NUMBER];
    tri_status status = read_now(store, "trireme/session", now, sizeof(now));

    if (status == TRI_OK && memcmp(now, session, NUMBER) != 0)
        return TRII_FAIL(TRI_ERR_STATE, "another process claims to be rank 0 here: two jobs "
                                        "at one place, or one rank started twice");
    return status;
}

static tri_status confirm(tri_store *store, const char *session, int rank)
{
    char key[96];

    snprintf(key, sizeof(key), "trireme/%s/come/%d", session, rank);
    return tri_store_set(store, key, "", 0);
}

static tri_status await_ranks(tri_store *store, int size, int64_t deadline_ns, const char *session,
                              joining_rank *ranks)
{
    looks l = start_looking(size, deadline_ns);
    tri_status status = tri_store_set(store, "trireme/session", session, NUMBER);
    char whom[160];

    while (status == TRI_OK) {
        int here = 1;

        for (int r = 1; r < size && status >= 0; r++) {
            if (!ranks[r].here)
                status = answer_rank(store, session, r, &ranks[r]);
            here += ranks[r].here;
        }
        if (status >= 0)
            status = check_session(store, session);
        if (status < 0)
            break;
        if (here == size)
            return TRI_OK;
        status = TRI_OK;
        if (look_again(&l) && trii_now_ns() < l.note_ns)
            continue;
        name_missing(ranks, size, whom, sizeof(whom));
        if (trii_now_ns() >= deadline_ns)
            return TRII_FAIL(TRI_ERR_TIMEOUT, "world: rank 0 of %d waited %.1f s for %s to join",
                             size, waited_s(&l), whom);
        note_wait(&l, 0, size, whom);
    }
    return status;
}

/* Keys that only joining needed. */
static tri_status clean(tri_store *store, int size)
{
    static const char *const names[] = {"hello", "answer"};
    char key[96];
    tri_status status = tri_store_delete(store, "trireme/session", NULL);

    for (int r = 1; r < size && status == TRI_OK; r++) {
        for (int i = 0; i < 2 && status == TRI_OK; i++) {
            snprintf(key, sizeof(key), "trireme/%s/%d", names[i], r);
            status = tri_store_delete(store, key, NULL);
        }
    }
    return status;
}

static tri_status join_as_rank_0(tri_store *store, int size, int64_t deadline_ns,
                                 char session_out[TRII_SESSION_TEXT])
{
    char session[TRII_SESSION_TEXT], key[96];
    joining_rank *ranks = trii_alloc((size_t)size, sizeof(*ranks), "ranks that meet");
    tri_status status;

    if (ranks == NULL)
        return TRI_ERR_NO_MEMORY;
    draw(session);
    status = confirm(store, session, 0);
    if (status == TRI_OK)
        status = await_ranks(store, size, deadline_ns, session, ranks);
    trii_free(ranks);
    if (status == TRI_OK)
        status = clean(store, size);
    if (status == TRI_OK) {
        snprintf(key, sizeof(key), "trireme/%s/come/all", session);
        status = tri_store_set(store, key, "", 0);
    }
    if (status == TRI_OK)
        memcpy(session_out, session, sizeof(session));
    return status;
}

static tri_status join_rank_0(tri_store *store, int rank, int size, int64_t deadline_ns,
                              char session[TRII_SESSION_TEXT])
{
    char number[TRII_SESSION_TEXT], hello_key[48], answer_key[48];
    char hello[NUMBER], answer[2 * NUMBER];
    looks l = start_looking(size, deadline_ns);
    tri_status status;

    draw(number);
    snprintf(hello_key, sizeof(hello_key), "trireme/hello/%d", rank);
    snprintf(answer_key, sizeof(answer_key), "trireme/answer/%d", rank);
    status = tri_store_set(store, hello_key, number, NUMBER);
    while (status == TRI_OK) {
        status = read_now(store, answer_key, answer, sizeof(answer));
        if (status == TRI_OK && memcmp(answer, number, NUMBER) == 0)
            break;
        if (status >= 0)
            status = read_now(store, hello_key, hello, sizeof(hello));
        if (status == TRI_OK && memcmp(hello, number, NUMBER) != 0)
            return TRII_FAIL(TRI_ERR_STATE,
                             "another process claims to be rank %d here: two "
                             "jobs at one place, or one rank started twice",
                             rank);
        if (status == TRI_INPROGRESS) /* the store was made anew by an earlier run that ended */
            status = tri_store_set(store, hello_key, number, NUMBER);
        if (status == TRI_OK && !look_again(&l))
            return TRII_FAIL(TRI_ERR_TIMEOUT,
                             "world: rank %d of %d waited %.1f s for rank 0 to join", rank, size,
                             waited_s(&l));
        if (status == TRI_OK && trii_now_ns() >= l.note_ns && trii_now_ns() < deadline_ns)
            note_wait(&l, rank, size, "rank 0");
    }
    if (status != TRI_OK)
        return status;
    snprintf(session, TRII_SESSION_TEXT, "%.*s", NUMBER, answer + NUMBER);
    return confirm(store, session, rank);
}

/* Until rank 0 has seen all of us. */
static tri_status wait_for_all(tri_store *store, int rank, int size, int64_t deadline_ns,
                               const char *session)
{
    const trii_group_args args = {
        .store = store, .rank = rank, .size = size, .name = "world", .deadline_ns = deadline_ns};
    char step[64], *verdict = NULL;
    tri_status status;

    snprintf(step, sizeof(step), "trireme/%s/come", session);
    status = trii_agree_wait(&args, step, &verdict);
    tri_store_free(verdict);
    return status;
}

tri_status trii_session_agree(tri_store *store, int rank, int size, int64_t deadline_ns,
                              char session_out[TRII_SESSION_TEXT])
{
    char session[TRII_SESSION_TEXT];
    tri_status status;

    if (rank == 0)
        return join_as_rank_0(store, size, deadline_ns, session_out);
    status = join_rank_0(store, rank, size, deadline_ns, session);
    if (status == TRI_OK)
        status = wait_for_all(store, rank, size, deadline_ns, session);
    if (status == TRI_OK)
        memcpy(session_out, session, sizeof(session));
    return status;
}
