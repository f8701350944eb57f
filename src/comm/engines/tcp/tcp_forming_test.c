/*
 * tcp_forming_test.c - how ranks of the tcp engine find each other: addresses, other programs that
 * connect, a rank that never comes, lack of memory.
 */
#include <trireme/comm.h>

#include "base/alloc.h"
#include "os/clock.h"
#include "os/socket.h"
#include "os/thread.h"
#include "testing/check.h"
#include "testing/tcp_ranks.h"

static tri_status nothing_main(rank_arg *a)
{
    (void)a;
    return TRI_OK;
}

static tri_status sum_main(rank_arg *a)
{
    int32_t x = a->rank + 1;
    tri_status status = tri_all_reduce(a->group, &x, &x, 1, TRI_DTYPE_I32, TRI_REDOP_SUM, NULL);

    if (status == TRI_OK && x != a->size * (a->size + 1) / 2)
        status = failed("all_reduce has another sum");
    return status;
}

static void a_rank_that_never_comes_is_named(void **state)
{
    tri_store *store = NULL;
    tri_group *group = NULL;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    CHECK_FAILS(tri_group_create(store, 0, 2,
                                 &(tri_group_options){.engine = "tcp", .timeout_ms = 50}, &group),
                TRI_ERR_TIMEOUT, "rank 1");
    assert_null(group);
    tri_store_unref(store);
}

/* Where rank 0 listens, as it was published. */
static void published_address(tri_store *store, char *host, int *port_out)
{
    void *value = NULL;

    CHECK_OK(tri_store_get(store, "tri_group/1/1/addr/0", 20000, &value, NULL));
    assert_int_equal(sscanf(value, "0 %*s %d %63s", port_out, host), 2);
    tri_store_free(value);
}

/* The hello of a rank (tcp_connect.c), but with another token. */
typedef struct impostor {
    uint32_t magic;
    int32_t rank, size;
    char token[33];
} impostor;

static void one_host_listens_on_loopback_and_accepts_ranks_only(void **state)
{
    static const impostor lie = {.magic = 0x54524931, .rank = 1, .size = 2, .token = "0123"};
    char host[64], hosts[4][TRII_ADDR_TEXT];
    int port;

    (void)state;
    for (int round = 0; round < 12; round++) {
        rank_arg ranks[2];
        tri_store *store = NULL;
        int scanner = -1, other = -1;

        CHECK_OK(tri_store_hash(&store));
        for (int r = 0; r < 2; r++) {
            ranks[r] = (rank_arg){.rank = r,
                                  .size = 2,
                                  .store = store,
                                  .main = sum_main,
                                  .options = {.engine = "tcp", .timeout_ms = 20000}};
            CHECK_OK(trii_thread_start(&ranks[r].thread, "rank", run_rank, &ranks[r]));
        }
        published_address(store, host, &port);
        assert_string_equal(host, "127.0.0.1");
        /* it comes at any moment of the forming, or too late: it makes no difference; the
         * first says nothing, the second what a scanner says */
        if (trii_socket_connect(host, port, trii_deadline_ms(5000), false, &scanner) == TRI_OK &&
            round > 0 &&
            trii_socket_send_all(scanner, round > 1 ? (const void *)&lie : "GET / HTTP/1.0 please",
                                 round > 1 ? sizeof(lie) : 21, trii_deadline_ms(5000)) != TRI_OK)
            assert_true(strlen(tri_last_error()) > 0);
        if (trii_socket_addresses(hosts, 4) > 0)
            assert_int_not_equal(
                trii_socket_connect(hosts[0], port, trii_deadline_ms(1000), false, &other), TRI_OK);
        for (int r = 0; r < 2; r++) {
            trii_thread_join(&ranks[r].thread);
            expect_failure(&ranks[r], TRI_OK, "");
        }
        trii_socket_close(scanner);
        tri_store_unref(store);
    }
}

static void addresses_of_all_kinds_are_found(void **state)
{
    static const char *const binds[] = {"127.0.0.2", "::1", "0.0.0.0"};

    (void)state;
    for (size_t b = 0; b < sizeof(binds) / sizeof(binds[0]); b++) {
        rank_arg ranks[3];
        tri_store *store = NULL;

        CHECK_OK(tri_store_hash(&store));
        for (int r = 0; r < 3; r++) {
            ranks[r] = (rank_arg){
                .rank = r,
                .size = 3,
                .store = store,
                .main = sum_main,
                .options = {.engine = "tcp", .timeout_ms = 20000, .bind_host = binds[b]}};
            CHECK_OK(trii_thread_start(&ranks[r].thread, "rank", run_rank, &ranks[r]));
        }
        for (int r = 0; r < 3; r++) {
            trii_thread_join(&ranks[r].thread);
            expect_failure(&ranks[r], TRI_OK, "");
        }
        tri_store_unref(store);
    }
}

static void every_allocation_may_fail_while_forming(void **state)
{
    long live = trii_alloc_live();
    bool done = false;

    (void)state;
    for (long n = 1; !done; n++) {
        rank_arg ranks[MAX_RANKS];
        tri_store *store = NULL;

        CHECK_OK(tri_store_hash(&store));
        for (int r = 0; r < 2; r++)
            ranks[r] = (rank_arg){.rank = r,
                                  .size = 2,
                                  .store = store,
                                  .main = nothing_main,
                                  .options = {.engine = "tcp", .timeout_ms = 100}};
        trii_alloc_fail_at(n);
        for (int r = 0; r < 2; r++) {
            if (trii_thread_start(&ranks[r].thread, "rank", run_rank, &ranks[r]) != TRI_OK) {
                ranks[r].size = 0; /* could not start: the thread's own allocation failed */
                trii_alloc_fail_at(0);
            }
        }
        done = true;
        for (int r = 0; r < 2; r++) {
            if (ranks[r].size > 0)
                trii_thread_join(&ranks[r].thread);
            done = done && ranks[r].size > 0 && ranks[r].status == TRI_OK;
            /* the other, without memory, may close its port without an answer */
            if (ranks[r].size > 0 && ranks[r].status != TRI_OK &&
                ranks[r].status != TRI_ERR_NO_MEMORY && ranks[r].status != TRI_ERR_TIMEOUT &&
                strstr(ranks[r].error, "s for rank ") == NULL)
                fail_msg("allocation %ld, rank %d: %s: %s", n, r, tri_status_name(ranks[r].status),
                         ranks[r].error);
        }
        trii_alloc_fail_at(0);
        tri_store_unref(store);
        assert_int_equal(trii_alloc_live(), live);
        assert_in_range(n, 1, 2000);
    }
}

/* All see it, so none waits for another. */
static void another_build_is_named(void **state)
{
    static const struct {
        const char *engine, *text, *says;
    } builds[] = {
        {"tcp", "0 engine tcp|0.0.9/3-18-60|boot ns",
         "rank 1 runs Trireme 0.0.9 (layout 3-18-60), this rank 0.1.0 (layout "},
        {"tcp", "0 engine tcp|boot ns", "rank 1 runs another Trireme than this rank (0.1.0/"},
        {"shm", "0 engine shm|0.0.9/3-18-60|boot/ns @sock 77", "rank 1 runs Trireme 0.0.9 (layout"},
        {"shm", "0 engine shm|boot/ns @sock 77", "rank 1 runs another Trireme"},
        {NULL, "0 engine shm|0.1.0/4-1-2-3|boot/ns @sock 77", "one build of the library"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(builds) / sizeof(builds[0]); i++) {
        const tri_group_options options = {.engine = builds[i].engine, .timeout_ms = 20000};
        tri_store *store = NULL;
        tri_group *group = NULL;

        CHECK_OK(tri_store_hash(&store));
        CHECK_OK(
            tri_store_set(store, "tri_group/1/1/engine/1", builds[i].text, strlen(builds[i].text)));
        CHECK_FAILS(tri_group_create(store, 0, 2, &options, &group), TRI_ERR_STATE, builds[i].says);
        tri_store_unref(store);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(another_build_is_named),
    cmocka_unit_test(a_rank_that_never_comes_is_named),
    cmocka_unit_test(one_host_listens_on_loopback_and_accepts_ranks_only),
    cmocka_unit_test(addresses_of_all_kinds_are_found),
    cmocka_unit_test(every_allocation_may_fail_while_forming),
};

TEST_MAIN(tests)
