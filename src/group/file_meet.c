/*
 * file_meet.c - see file_meet.h.
 *
 * Nothing that stands in the file proves that its writer lives, so each side asks for an answer
 * to a number that it has just drawn:
 *
 *   trireme/session    rank 0: S, the name of this run
 *   trireme/hello/R    rank R: its number N
 *   trireme/answer/R   rank 0, whenever hello/R changes: N and S
 *   trireme/S/here/R   rank R, once it has read its own N there
 *
 * A stale hello gets an answer that nobody reads. Rank 0 goes on until all are here, and then
 * takes away what only the meeting needed.
 */
#include "group/file_meet.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/clock.h"
#include "os/unix.h" /* random bytes */

enum { NUMBER = TRII_SESSION_TEXT - 1, MAX_NAMED = 8 };

typedef struct guest {
    char answered[NUMBER]; /* the hello that we answered last */
    bool here;
} guest;

static void draw(char text[TRII_SESSION_TEXT])
{
    unsigned char bytes[NUMBER / 2] = {0};

    (void)trii_random_bytes(bytes, sizeof(bytes)); /* to be told apart, not a secret */
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

/* OK and the first `room` bytes of the value, INPROGRESS if the key is not there now. */
static tri_status peek(tri_store *store, const char *key, char *text, size_t room)
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

/* One pause of a loop that looks again; false after the deadline. */
static bool pause_until(int64_t deadline_ns, int64_t *pause_io)
{
    int64_t now = trii_now_ns();

    if (now >= deadline_ns)
        return false;
    trii_sleep_until(deadline_ns - now < *pause_io ? deadline_ns : now + *pause_io);
    *pause_io = *pause_io < 10 * TRII_NS_PER_MS ? *pause_io * 3 / 2 : *pause_io;
    return true;
}

static tri_status serve_guest(tri_store *store, const char *session, int rank, guest *g)
{
    char hello[NUMBER], answer[2 * NUMBER], key[96];
    tri_status status;

    snprintf(key, sizeof(key), "trireme/hello/%d", rank);
    status = peek(store, key, hello, sizeof(hello));
    if (status == TRI_OK && memcmp(hello, g->answered, sizeof(hello)) != 0) {
        memcpy(answer, hello, NUMBER);
        memcpy(answer + NUMBER, session, NUMBER);
        snprintf(key, sizeof(key), "trireme/answer/%d", rank);
        status = tri_store_set(store, key, answer, sizeof(answer));
        memcpy(g->answered, hello, sizeof(hello));
    }
    if (status >= 0) {
        const char *here = key;

        snprintf(key, sizeof(key), "trireme/%s/here/%d", session, rank);
        status = tri_store_check(store, &here, 1, &g->here);
    }
    return status;
}

static tri_status name_missing(const guest *guests, int size)
{
    char names[96] = "";
    size_t used = 0;
    int missing = 0;

    for (int r = 1; r < size; r++) {
        if (!guests[r].here && missing++ < MAX_NAMED)
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%d",
                                     missing > 1 ? ", " : "", r);
    }
    return TRII_FAIL(TRI_ERR_TIMEOUT, "%d of %d ranks did not come in time: %s%s", missing, size,
                     names, missing > MAX_NAMED ? ", ..." : "");
}

static tri_status check_session(tri_store *store, const char *session)
{
    char now[NUMBER];
    tri_status status = peek(store, "trireme/session", now, sizeof(now));

    if (status == TRI_OK && memcmp(now, session, NUMBER) != 0)
        return TRII_FAIL(TRI_ERR_STATE, "another process says that it is rank 0 here: two jobs "
                                        "with one file, or one rank twice");
    return status;
}

static tri_status host(tri_store *store, int size, int64_t deadline_ns, const char *session,
                       guest *guests)
{
    int64_t pause = TRII_NS_PER_MS / 2;
    tri_status status = tri_store_set(store, "trireme/session", session, NUMBER);

    while (status == TRI_OK) {
        int here = 1;

        for (int r = 1; r < size && status >= 0; r++) {
            if (!guests[r].here)
                status = serve_guest(store, session, r, &guests[r]);
            here += guests[r].here;
        }
        if (status >= 0)
            status = check_session(store, session);
        if (status < 0)
            break;
        if (here == size)
            return TRI_OK;
        status = TRI_OK;
        if (!pause_until(deadline_ns, &pause))
            status = name_missing(guests, size);
    }
    return status;
}

static tri_status clean(tri_store *store, const char *session, int size)
{
    static const char *const names[] = {"hello", "answer"};
    char key[96];
    tri_status status = tri_store_delete(store, "trireme/session", NULL);

    for (int r = 1; r < size && status == TRI_OK; r++) {
        for (int i = 0; i < 2 && status == TRI_OK; i++) {
            snprintf(key, sizeof(key), "trireme/%s/%d", names[i], r);
            status = tri_store_delete(store, key, NULL);
        }
        snprintf(key, sizeof(key), "trireme/%s/here/%d", session, r);
        if (status == TRI_OK)
            status = tri_store_delete(store, key, NULL);
    }
    return status;
}

static tri_status meet_all(tri_store *store, int size, int64_t deadline_ns,
                           char session_out[TRII_SESSION_TEXT])
{
    char session[TRII_SESSION_TEXT];
    guest *guests = trii_alloc((size_t)size, sizeof(*guests), "ranks that meet");
    tri_status status;

    if (guests == NULL)
        return TRI_ERR_NO_MEMORY;
    draw(session);
    status = host(store, size, deadline_ns, session, guests);
    trii_free(guests);
    if (status == TRI_OK)
        status = clean(store, session, size);
    if (status == TRI_OK)
        memcpy(session_out, session, sizeof(session));
    return status;
}

static tri_status meet_host(tri_store *store, int rank, int64_t deadline_ns,
                            char session_out[TRII_SESSION_TEXT])
{
    char number[TRII_SESSION_TEXT], hello_key[48], answer_key[48], key[96];
    char hello[NUMBER], answer[2 * NUMBER];
    int64_t pause = TRII_NS_PER_MS / 2;
    tri_status status;

    draw(number);
    snprintf(hello_key, sizeof(hello_key), "trireme/hello/%d", rank);
    snprintf(answer_key, sizeof(answer_key), "trireme/answer/%d", rank);
    status = tri_store_set(store, hello_key, number, NUMBER);
    while (status == TRI_OK) {
        status = peek(store, answer_key, answer, sizeof(answer));
        if (status == TRI_OK && memcmp(answer, number, NUMBER) == 0)
            break;
        if (status >= 0)
            status = peek(store, hello_key, hello, sizeof(hello));
        if (status == TRI_OK && memcmp(hello, number, NUMBER) != 0)
            return TRII_FAIL(TRI_ERR_STATE,
                             "another process says that it is rank %d here: two "
                             "jobs with one file, or one rank twice",
                             rank);
        if (status == TRI_INPROGRESS) /* the file was made anew by an earlier run that ended */
            status = tri_store_set(store, hello_key, number, NUMBER);
        if (status == TRI_OK && !pause_until(deadline_ns, &pause))
            return TRII_FAIL(TRI_ERR_TIMEOUT, "rank 0 did not come in time");
    }
    if (status != TRI_OK)
        return status;
    snprintf(key, sizeof(key), "trireme/%.*s/here/%d", NUMBER, answer + NUMBER, rank);
    status = tri_store_set(store, key, "", 0);
    if (status == TRI_OK)
        snprintf(session_out, TRII_SESSION_TEXT, "%.*s", NUMBER, answer + NUMBER);
    return status;
}

tri_status trii_file_meet(tri_store *store, int rank, int size, int64_t deadline_ns,
                          char session_out[TRII_SESSION_TEXT])
{
    return rank == 0 ? meet_all(store, size, deadline_ns, session_out)
                     : meet_host(store, rank, deadline_ns, session_out);
}
