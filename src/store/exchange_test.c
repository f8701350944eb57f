/* exchange_test.c - several calls in one exchange: on every kind of store, and with a server that
 * does not know our request. */
#include <string.h>

#include "base/alloc.h"
#include "os/thread.h"
#include "store/exchange.h"
#include "store/tcp_client.h"
#include "testing/check.h"

/* Calls of every kind, some of them twice. */
static void check_calls(tri_store *store)
{
    static const char *const keys[] = {"set", "sum"};
    trii_store_call calls[] = {
        {.kind = TRII_STORE_READ, .key = "set"},
        {.kind = TRII_STORE_SET, .key = "set", .text = "value"},
        {.kind = TRII_STORE_READ, .key = "set"},
        {.kind = TRII_STORE_ADD, .key = "sum", .number = 3},
        {.kind = TRII_STORE_CLAIM, .key = "claim", .text = "mine"},
        {.kind = TRII_STORE_CLAIM, .key = "claim", .text = "theirs"},
        {.kind = TRII_STORE_DELETE, .key = "claim"},
        {.kind = TRII_STORE_DELETE, .key = "claim"},
    };
    void *values[2];
    size_t bytes[2];

    CHECK_OK(trii_store_exchange(store, calls, 8, keys, 2, 1000, values, bytes));
    assert_null(calls[0].value);
    assert_string_equal(calls[2].value, "value");
    assert_int_equal(calls[2].bytes, 5);
    assert_int_equal(calls[3].number, 3);
    assert_string_equal(calls[4].value, "mine");
    assert_string_equal(calls[5].value, "mine");
    assert_int_equal(calls[6].number, 1);
    assert_int_equal(calls[7].number, 0);
    assert_string_equal(calls[0].key, "set");
    assert_string_equal(values[0], "value");
    assert_string_equal(values[1], "3");
    assert_int_equal(bytes[1], 1);
    tri_store_free(values[0]);
    tri_store_free(values[1]);
    trii_store_calls_free(calls, 8);
}

/* What was done before a wait that timed out stays, its values do not, and the store still works.
 */
static void check_timeout(tri_store *store)
{
    const char *key = "nobody";
    trii_store_call calls[] = {{.kind = TRII_STORE_ADD, .key = "tried", .number = 1},
                               {.kind = TRII_STORE_READ, .key = "tried"}};
    void *value = NULL;

    for (int i = 1; i <= 2; i++) {
        calls[0].number = 1;
        assert_int_equal(trii_store_exchange(store, calls, 2, &key, 1, 20, &value, NULL),
                         TRI_ERR_TIMEOUT);
        assert_int_equal(calls[0].number, i);
        assert_null(calls[1].value);
        assert_null(value);
    }
}

/* For keys whose values are not asked for, which are there or not; the store still works. */
static void check_wait(tri_store *store)
{
    static const char *const keys[] = {"here", "nobody"};
    trii_store_call calls[] = {{.kind = TRII_STORE_SET, .key = "here", .text = "value"}};
    int64_t n = 0;

    CHECK_OK(trii_store_exchange(store, calls, 1, keys, 1, 20, NULL, NULL));
    CHECK_OK(trii_store_exchange(store, NULL, 0, keys, 1, 20, NULL, NULL));
    assert_int_equal(trii_store_exchange(store, calls, 1, keys, 2, 20, NULL, NULL),
                     TRI_ERR_TIMEOUT);
    CHECK_OK(tri_store_add(store, "after", 1, &n));
    assert_int_equal(n, 1);
}

/* Of either kind: refused before anything is done. */
static void check_long_keys(tri_store *store)
{
    static char text[TRI_STORE_MAX_KEY + 2];
    const char *key = memset(text, 'k', TRI_STORE_MAX_KEY + 1);
    trii_store_call calls[] = {{.kind = TRII_STORE_ADD, .key = "long", .number = 1},
                               {.kind = TRII_STORE_READ, .key = key}};
    void *value = NULL;
    int64_t n = 0;

    CHECK_FAILS(trii_store_calls(store, calls, 2), TRI_ERR_INVALID_ARG, "kkk");
    CHECK_FAILS(trii_store_exchange(store, calls, 1, &key, 1, 20, &value, NULL),
                TRI_ERR_INVALID_ARG, "kkk");
    CHECK_OK(tri_store_add(store, "long", 0, &n));
    assert_int_equal(n, 0);
}

static void check_store(tri_store *store)
{
    tri_store *view = NULL;

    check_calls(store);
    check_timeout(store);
    check_wait(store);
    check_long_keys(store);
    CHECK_OK(tri_store_prefix("view", store, &view));
    check_calls(view);
    check_timeout(view);
    check_wait(view);
    check_long_keys(view);
    tri_store_unref(view);
    tri_store_unref(store);
    assert_int_equal(trii_alloc_live(), 0);
}

static tri_store *serve(void)
{
    tri_store *store = NULL;

    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &(tri_store_tcp_options){.serve = true}, &store));
    return store;
}

static void a_store_without_them_does_one_after_the_other(void **state)
{
    tri_store *store = NULL;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    check_store(store);
}

static void a_server_does_all_in_two_exchanges(void **state)
{
    tri_store *store = serve();

    (void)state;
    check_store(store);
}

static void a_deletion_that_is_not_answered_is_named(void **state)
{
    trii_store_call calls[] = {{.kind = TRII_STORE_DELETE, .key = "key"}};
    tri_store *server = serve(), *client = NULL;
    const tri_store_tcp_options soon = {.timeout_ms = 2000};

    (void)state;
    CHECK_OK(tri_store_tcp("127.0.0.1", tri_store_port(server), &soon, &client));
    tri_store_unref(server);
    CHECK_FAILS(trii_store_calls(client, calls, 1), TRI_ERR_IO, ": delete: ");
    tri_store_unref(client);
    assert_int_equal(trii_alloc_live(), 0);
}

static void what_is_there_is_read_in_its_place(void **state)
{
    static const char *const keys[] = {"none", "one", "two", "nothing", "three", "no"};
    tri_store *stores[] = {NULL, serve()};

    (void)state;
    CHECK_OK(tri_store_hash(&stores[0]));
    for (int i = 0; i < 2; i++) {
        trii_store_call calls[6];
        tri_store *view = NULL;

        CHECK_OK(tri_store_prefix("view", stores[i], &view));
        CHECK_OK(tri_store_set(view, "one", "1", 1));
        CHECK_OK(tri_store_set(view, "two", "", 0));
        CHECK_OK(tri_store_set(view, "three", "3", 1));
        CHECK_OK(trii_store_peek(view, keys, calls, 6));
        assert_true(calls[0].value == NULL && calls[3].value == NULL && calls[5].value == NULL);
        assert_string_equal(calls[1].value, "1");
        assert_string_equal(calls[2].value, "");
        assert_string_equal(calls[4].value, "3");
        trii_store_calls_free(calls, 6);
        tri_store_unref(view);
        tri_store_unref(stores[i]);
    }
}

typedef struct waiter {
    tri_store *store;
    tri_status status;
    void *values[2];
} waiter;

/* What there is no memory for is passed over, and the connection stays. */
static void values_without_memory_do_not_end_the_connection(void **state)
{
    const tri_store_tcp_options options = {.serve = true};
    tri_store *store = NULL;
    int n_failed = 0;

    (void)state;
    CHECK_OK(tri_store_tcp("127.0.0.1", 0, &options, &store));
    CHECK_OK(tri_store_set(store, "key", "value", 5));
    for (int n = 0; n <= 3; n++) { /* 0: then the server, a thread here, has what it needs */
        trii_store_call calls[] = {{.kind = TRII_STORE_READ, .key = "key"},
                                   {.kind = TRII_STORE_READ, .key = "key"},
                                   {.kind = TRII_STORE_READ, .key = "key"}};
        tri_status status;

        trii_alloc_fail_at(n);
        status = trii_store_calls(store, calls, 3);
        trii_alloc_fail_at(0);
        if (status == TRI_OK) {
            trii_store_calls_free(calls, 3);
            continue;
        }
        assert_int_equal(status, TRI_ERR_NO_MEMORY);
        n_failed++;
    }
    check_calls(store);
    assert_int_equal(n_failed, 3);
    tri_store_unref(store);
}

static void wait_main(void *arg)
{
    static const char *const keys[] = {"a", "b"};
    waiter *w = arg;

    w->status = tri_store_multi_get(w->store, keys, 2, 20000, w->values, NULL);
}

/* One that is there from the beginning, and one that comes later: both are as they are then. */
static void values_come_when_the_last_key_does(void **state)
{
    waiter w = {0};
    tri_store *store = serve();
    trii_thread thread;

    (void)state;
    CHECK_OK(tri_store_set(store, "a", "1", 1));
    CHECK_OK(tri_store_clone(store, &w.store));
    CHECK_OK(trii_thread_start(&thread, "waiter", wait_main, &w));
    CHECK_OK(tri_store_set(store, "a", "22", 2));
    CHECK_OK(tri_store_set(store, "b", "", 0));
    trii_thread_join(&thread);
    CHECK_OK(w.status);
    assert_true(strcmp(w.values[0], "22") == 0);
    assert_string_equal(w.values[1], "");
    tri_store_free(w.values[0]);
    tri_store_free(w.values[1]);
    tri_store_unref(w.store);
    tri_store_unref(store);
    assert_int_equal(trii_alloc_live(), 0);
}

static void many_keys_come_at_once(void **state)
{
    enum { N = 1025 };
    tri_store *store = serve();
    static char text[N][16];
    static const char *keys[N];
    static void *values[N];

    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(text[i], sizeof(text[i]), "key/%d", i);
        keys[i] = text[i];
        CHECK_OK(tri_store_set(store, keys[i], text[i], strlen(text[i])));
    }
    for (int n = N - 1; n <= N; n++) {
        CHECK_OK(tri_store_multi_get(store, keys, n, 1000, values, NULL));
        for (int i = 0; i < n; i++) {
            assert_string_equal(values[i], text[i]);
            tri_store_free(values[i]);
        }
    }
    tri_store_unref(store);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_store_without_them_does_one_after_the_other),
    cmocka_unit_test(a_server_does_all_in_two_exchanges),
    cmocka_unit_test(a_deletion_that_is_not_answered_is_named),
    cmocka_unit_test(what_is_there_is_read_in_its_place),
    cmocka_unit_test(values_without_memory_do_not_end_the_connection),
    cmocka_unit_test(values_come_when_the_last_key_does),
    cmocka_unit_test(many_keys_come_at_once),
};

TEST_MAIN(tests)
