/*
 * etcd_store_test.c - what every store promises, over an etcd.
 */
/* ctest: labels=quick timeout=60 */
#include <trireme/store.h>

static tri_status open_etcd(const char *kind, tri_store **base_out);
#define STORE_TEST_OPEN open_etcd
#define STORE_TEST_KINDS "etcd", "prefix of etcd"
#include "../../src/store/store_test.c" /* NOLINT(bugprone-suspicious-include): its cases */

#include "testing/etcd_calls.h"

static etcd_cluster cluster;

static void stop(void)
{
    etcd_stop(&cluster);
}

static tri_status open_etcd(const char *kind, tri_store **base_out)
{
    static int n;
    trii_rdzv_backend *backend = NULL;
    trii_etcd_settings settings;
    char run_id[16];
    tri_status status;

    (void)kind;
    if (cluster.n == 0) {
        etcd_start(&cluster, 1);
        atexit(stop);
    }
    snprintf(run_id, sizeof(run_id), "run%d", n++);
    settings = etcd_settings(&cluster, run_id);
    status = trii_etcd_create(&settings, &backend);
    if (status != TRI_OK)
        return status;
    *base_out = tri_store_ref(backend->store);
    backend->ops->destroy(backend);
    return TRI_OK;
}

static void values_have_the_limit_of_etcd(void **state)
{
    size_t bytes = (size_t)1 << 20;
    char *value = calloc(1, bytes + 1);
    tri_store *store = NULL;
    void *got = NULL;
    size_t got_bytes = 0;

    (void)state;
    assert_non_null(value);
    for (size_t i = 0; i < bytes; i++)
        value[i] = (char)(i * 7 + i / 251);
    CHECK_OK(open_etcd("etcd", &store));
    CHECK_OK(tri_store_set(store, "big", value, bytes));
    CHECK_OK(tri_store_get(store, "big", 0, &got, &got_bytes));
    assert_int_equal(got_bytes, bytes);
    assert_memory_equal(got, value, bytes);
    tri_store_free(got);
    CHECK_FAILS(tri_store_set(store, "big", value, bytes + 1), TRI_ERR_INVALID_ARG,
                "takes 1048576 at most");
    CHECK_FAILS(tri_store_append(store, "big", value, 1), TRI_ERR_INVALID_ARG, "1048577 bytes");
    CHECK_OK(tri_store_set(store, "text", "no number", 9));
    CHECK_FAILS(tri_store_add(store, "text", 1, NULL), TRI_ERR_FORMAT, "\"no number\"");
    tri_store_unref(store);
    free(value);
}

/* Not with a look that comes every ten seconds. */
static void a_wait_ends_with_the_write(void **state)
{
    const char *key = "late";
    tri_store *store = NULL;

    (void)state;
    CHECK_OK(open_etcd("etcd", &store));
    for (int i = 0; i < 5; i++) {
        writer w = {.store = store, .key = key, .not_before_ns = trii_deadline_ms(50)};

        CHECK_OK(tri_store_delete(store, key, NULL));
        CHECK_OK(trii_thread_start(&w.thread, "w", write_key, &w));
        CHECK_OK(tri_store_wait(store, &key, 1, 30000));
        assert_true(trii_now_ns() - w.not_before_ns < 5 * TRII_NS_PER_S);
        trii_thread_join(&w.thread);
        CHECK_OK(w.status);
    }
    tri_store_unref(store);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(values_are_set_replaced_appended_and_deleted),
    cmocka_unit_test(counters_add_and_stay_text),
    cmocka_unit_test(compare_set_follows_c10d),
    cmocka_unit_test(many_values_come_in_one_exchange),
    cmocka_unit_test(several_values_go_in_one_exchange),
    cmocka_unit_test(keys_are_listed),
    cmocka_unit_test(queues_give_each_value_once_in_order),
    cmocka_unit_test(a_wait_ends_when_the_last_key_comes),
    cmocka_unit_test(a_timeout_names_the_missing_keys_and_the_store_goes_on),
    cmocka_unit_test(short_timeouts_and_empty_values_take_no_longer),
    cmocka_unit_test(clones_share_keys_and_outlive_each_other),
    cmocka_unit_test(a_barrier_opens_when_all_have_come),
    cmocka_unit_test(a_wait_ends_with_the_write),
    cmocka_unit_test(values_have_the_limit_of_etcd),
};

TEST_MAIN(tests)
