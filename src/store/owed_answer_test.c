/*
 * owed_answer_test.c - waits that are called off while the answer to that is late, as during an
 * outage of the network: the next request finds the stream where it should be.
 */
#include <string.h>

#include <trireme/store.h>

#include "os/clock.h"
#include "os/socket.h"
#include "os/thread.h"
#include "testing/check.h"

#define SOON trii_deadline_ms(20000)
#define U64(n) n, 0, 0, 0, 0, 0, 0, 0

/* Takes and says parts in turn: length, bytes; 255 ends. Part number `held` waits for the test. */
typedef struct late_server {
    int listener, port;
    const unsigned char *script;
    int held;
    trii_mutex mutex;
    trii_cond cond;
    bool released;
    const char *failure; /* NULL = all as scripted */
    trii_thread thread;
} late_server;

static void await_release(late_server *s)
{
    trii_mutex_lock(&s->mutex);
    while (!s->released && trii_cond_wait_until(&s->cond, &s->mutex, SOON))
        ;
    trii_mutex_unlock(&s->mutex);
}

static void release(late_server *s)
{
    trii_mutex_lock(&s->mutex);
    s->released = true;
    trii_cond_signal(&s->cond);
    trii_mutex_unlock(&s->mutex);
}

static const char *play(late_server *s, int fd)
{
    const unsigned char *p = s->script;
    unsigned char got[256];

    if (trii_socket_recv_all(fd, got, 5 + 5, SOON) != TRI_OK)
        return "no handshake";
    if (trii_socket_send_all(fd, got + 6, 4, SOON) != TRI_OK)
        return "ping";
    for (int part = 0; *p != 255; part++) {
        size_t n = *p++;

        if (part == s->held)
            await_release(s);
        if (part % 2 == 0 && trii_socket_recv_all(fd, got, n, SOON) != TRI_OK)
            return "the client did not send all";
        if (part % 2 == 0 && memcmp(got, p, n) != 0)
            return "the client sent other bytes";
        if (part % 2 == 1 && trii_socket_send_all(fd, p, n, SOON) != TRI_OK)
            return "reply";
        p += n;
    }
    return NULL;
}

static void late_main(void *arg)
{
    late_server *s = arg;
    int fd;

    s->failure = "nobody came";
    if (trii_socket_wait(s->listener, TRII_READABLE, SOON) != TRI_OK ||
        trii_socket_accept(s->listener, &fd) != TRI_OK)
        return;
    s->failure = play(s, fd);
    trii_socket_close(fd);
}

static tri_store *begin(late_server *s)
{
    tri_store *store = NULL;

    trii_mutex_init(&s->mutex);
    trii_cond_init(&s->cond);
    CHECK_OK(trii_socket_listen("127.0.0.1", 0, &s->listener, &s->port));
    CHECK_OK(trii_thread_start(&s->thread, "late store", late_main, s));
    CHECK_OK(tri_store_tcp("127.0.0.1", s->port, NULL, &store));
    return store;
}

static void end(late_server *s, tri_store *store)
{
    tri_store_unref(store);
    trii_thread_join(&s->thread);
    trii_socket_close(s->listener);
    trii_cond_fini(&s->cond);
    trii_mutex_fini(&s->mutex);
    if (s->failure != NULL)
        fail_msg("%s", s->failure);
}

static void check_goes_on(tri_store *store)
{
    const char *k = "k";
    bool there = false;

    CHECK_OK(tri_store_check(store, &k, 1, &there));
    assert_true(there);
}

/* WAIT for one key, and CANCEL_WAIT; CHECK, and that the key is there. */
#define WAIT_AND_END 20, 6, U64(1), U64(2), '/', 'k', 12
#define CHECKS 19, 5, U64(1), U64(2), '/', 'k', 1, 0

static void a_wait_that_is_called_off_late_leaves_the_store_whole(void **state)
{
    static const unsigned char script[] = {WAIT_AND_END, 1, 1, CHECKS, 255};
    late_server s = {.script = script, .held = 1};
    tri_store *store = begin(&s);
    const char *k = "k";

    (void)state;
    CHECK_FAILS(tri_store_wait(store, &k, 1, 5), TRI_ERR_TIMEOUT, "no answer from the store");
    CHECK_FAILS(tri_store_wait(store, &k, 1, 5), TRI_ERR_TIMEOUT,
                "no answer from the store"); /* asks nothing */
    release(&s);
    check_goes_on(store);
    end(&s, store);
}

static void an_answer_that_comes_after_its_wait_is_let_go(void **state)
{
    static const unsigned char script[] = {WAIT_AND_END, 2, 0, 1, CHECKS, 255};
    late_server s = {.script = script, .held = 1};
    tri_store *store = begin(&s);
    void *value = NULL;

    (void)state;
    CHECK_FAILS(tri_store_get(store, "k", 5, &value, NULL), TRI_ERR_TIMEOUT,
                "no answer from the store");
    release(&s);
    check_goes_on(store);
    end(&s, store);
}

/* The answer to the end of its wait comes later still. */
static void a_value_that_comes_at_the_last_moment_is_taken(void **state)
{
    static const unsigned char script[] = {
        WAIT_AND_END, 2, 0, 1, 19, 10, U64(1), U64(2), '/', 'k', 9, U64(1), 'v', CHECKS, 255};
    late_server s = {.script = script, .held = -1};
    tri_store *store = begin(&s);
    void *value = NULL;

    (void)state;
    CHECK_OK(tri_store_get(store, "k", 5, &value, NULL));
    assert_string_equal(value, "v");
    tri_store_free(value);
    check_goes_on(store);
    end(&s, store);
}

/* The server that owes the answer is gone, or says something else. */
static void what_is_owed_and_never_comes_breaks_the_store(void **state)
{
    static const unsigned char nothing[] = {WAIT_AND_END, 255}, wrong[] = {WAIT_AND_END, 1, 2, 255};
    late_server s = {.script = nothing, .held = 1}, t = {.script = wrong, .held = 1};
    tri_store *store = begin(&s);
    const char *k = "k";

    (void)state;
    CHECK_FAILS(tri_store_wait(store, &k, 1, 5), TRI_ERR_IO, "closed");
    end(&s, store);
    store = begin(&t);
    release(&t);
    CHECK_FAILS(tri_store_wait(store, &k, 1, 5), TRI_ERR_FORMAT, "answer 2");
    CHECK_FAILS(tri_store_set(store, "k", "v", 1), TRI_ERR_FORMAT, "answer 2");
    end(&t, store);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_wait_that_is_called_off_late_leaves_the_store_whole),
    cmocka_unit_test(an_answer_that_comes_after_its_wait_is_let_go),
    cmocka_unit_test(a_value_that_comes_at_the_last_moment_is_taken),
    cmocka_unit_test(what_is_owed_and_never_comes_breaks_the_store),
};

TEST_MAIN(tests)
