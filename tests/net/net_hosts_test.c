/*
 * net_hosts_test.c - worlds of several hosts, in network namespaces: how they find each other, and
 * what a rank is told when a network does not do what it should. Where a system gives us no
 * namespaces, the same with addresses of the loopback interface, as far as these go.
 */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <trireme/comm.h>

#include "testing/check.h"
#include "testing/hosts.h"
#include "testing/spawn.h"

/* A cut is known within TRI_HEARTBEAT_MS and a little more; a machine that is busy gets longer. */
enum { MAX_RANKS = 8, CUT_MS = TEST_SANITIZED ? 6000 : 3000, OUTAGE_MS = 2500 };

static const char *own_path;                       /* of this program */
static const char *heartbeat = "TRI_HEARTBEAT_MS"; /* of the ranks: an entry of the environment */

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* --- what this program does as a worker ----------------------------------- */

/* Sums until one of them took as long as an outage: all end with the same one. */
static int go_through_outage(void)
{
    bool slept = false;
    double begun;
    float x;

    puts("begins");
    fflush(stdout);
    do {
        x = slept ? 1 : 0;
        begun = now_ms();
        TRI_TRY(tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
        slept = slept || now_ms() - begun > (double)OUTAGE_MS / 2;
    } while (x == 0);
    puts("has slept through it");
    fflush(stdout);
    pause(); /* who leaves first ends the other's calls */
    return 0;
}

/* sum: a sum over the ranks. calls: sums until one fails. wait: rank 0 waits in one, others do not
 * come. goes: sums that go on after an outage. */
static int worker(const char *what, const char *timeout_ms, const char *bind_host)
{
    const tri_init_options options = {
        .group = {.timeout_ms = strtol(timeout_ms, NULL, 10), .bind_host = bind_host}};
    tri_status status;
    float x;

    TRI_TRY(tri_init(&options));
    x = (float)(1 << tri_rank());
    TRI_TRY(tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    printf("rank %d of %d: %g\n", tri_rank(), tri_world_size(), (double)x);
    fflush(stdout);
    if (strcmp(what, "sum") == 0) {
        tri_finalize();
        return 0;
    }
    if (strcmp(what, "goes") == 0)
        return go_through_outage();
    if (strcmp(what, "wait") == 0 && tri_rank() > 0)
        pause();
    do {
        x = 1;
        status = tri_all_reduce(NULL, &x, &x, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    } while (status == TRI_OK);
    printf("at %.3f %s: %s\n", now_ms(), tri_status_name(status), tri_last_error());
    fflush(stdout);
    _exit(3);
}

typedef struct job {
    spawn s[MAX_RANKS];
    int size;
} job;

/* One rank on a host (-1: here), which binds to `bind_host` unless that is NULL. */
static void start_rank(job *j, int host, int rank, const char *what, const char *address, int port,
                       const char *timeout_ms, const char *bind_host)
{
    const char *const argv[] = {own_path, what, timeout_ms, bind_host, NULL};
    char text[4][100];
    const char *const env[] = {
        text[0],      text[1], text[2], text[3], heartbeat, "LOCAL_RANK", "LOCAL_WORLD_SIZE",
        "TRI_ENGINE", NULL};

    snprintf(text[0], sizeof(text[0]), "RANK=%d", rank);
    snprintf(text[1], sizeof(text[1]), "WORLD_SIZE=%d", j->size);
    snprintf(text[2], sizeof(text[2]), "MASTER_ADDR=%s", address);
    snprintf(text[3], sizeof(text[3]), "MASTER_PORT=%d", port);
    if (host < 0)
        spawn_start(&j->s[rank], argv, env);
    else
        hosts_spawn(host, &j->s[rank], argv, env);
}

static void check_sums(job *j)
{
    for (int rank = 0; rank < j->size; rank++) {
        char want[100];

        if (spawn_wait(&j->s[rank]) != 0)
            fail_msg("rank %d: status %d: %s", rank, j->s[rank].status, SPAWN_ERR(&j->s[rank]));
        snprintf(want, sizeof(want), "rank %d of %d: %d\n", rank, j->size, (1 << j->size) - 1);
        assert_string_equal(SPAWN_OUT(&j->s[rank]), want);
        spawn_free(&j->s[rank]);
    }
}

/* Two ranks on each of two hosts. */
static void check_two_hosts(const char *address)
{
    job j = {.size = 4};

    for (int rank = 0; rank < 4; rank++)
        start_rank(&j, 1 + rank / 2, rank, "sum", address, 29500, "20000", NULL);
    check_sums(&j);
}

/* Two hosts with an address in one network each. */
static bool two_hosts(void)
{
    if (!hosts_begin(2))
        return false;
    for (int host = 1; host <= 2; host++) {
        hosts_plug(host);
        hosts_ip(host, "addr add 10.77.0.%d/24 dev eth0", host);
    }
    return true;
}

/* --- finding each other --------------------------------------------------- */

/* Where there are no namespaces: ranks on addresses of their own, and none of them is the
 * store's. */
static void check_addresses_of_loopback(void)
{
    static const char *const binds[3] = {"127.0.0.2", "127.0.0.3", "127.0.0.4"};
    job j = {.size = 3};
    int port = spawn_free_port();

    for (int rank = 0; rank < 3; rank++)
        start_rank(&j, -1, rank, "sum", "127.0.0.1", port, "20000", binds[rank]);
    check_sums(&j);
}

static void ranks_meet_on_addresses_of_loopback(void **state)
{
    (void)state;
    check_addresses_of_loopback();
}

/* Each host has a network that the other has too but which is not the same one (as containers'
 * bridges are), one that the other cannot reach and that swallows what is sent there, and at last
 * the one that joins them. No name can be resolved: answers to that are swallowed as well. */
static void hosts_with_several_interfaces_meet(void **state)
{
    double start;

    (void)state;
    if (!hosts_begin(2)) {
        check_addresses_of_loopback();
        return;
    }
    for (int host = 1; host <= 2; host++) {
        hosts_ip(host, "link add docker0 type bridge");
        hosts_ip(host, "link set docker0 up");
        hosts_ip(host, "addr add 172.17.0.1/16 dev docker0");
        hosts_ip(host, "link add lan0 type bridge");
        hosts_ip(host, "link set lan0 up");
        hosts_ip(host, "addr add 192.168.%d.1/24 dev lan0", 10 + host);
        hosts_plug(host);
        hosts_ip(host, "addr add 10.77.0.%d/24 dev eth0", host);
        hosts_ip(host, "route add default via 10.77.0.254");
    }
    hosts_ip(0, "addr add 10.77.0.254/24 dev switch");
    start = now_ms();
    check_two_hosts("10.77.0.1");
    if (now_ms() - start > 8000)
        fail_msg("it took %.1f s", (now_ms() - start) / 1e3);
    hosts_end();
}

static void check_ipv6_of_loopback(void)
{
    job j = {.size = 2};
    int port = spawn_free_port();

    for (int rank = 0; rank < 2; rank++)
        start_rank(&j, -1, rank, "sum", "::1", port, "20000", "::1");
    check_sums(&j);
}

static void hosts_meet_with_ipv6_only(void **state)
{
    (void)state;
    if (!hosts_begin(2)) {
        check_ipv6_of_loopback();
        return;
    }
    for (int host = 1; host <= 2; host++) {
        hosts_plug(host);
        hosts_ip(host, "addr add fd77::%d/64 dev eth0 nodad", host);
        hosts_ip(host, "addr del 127.0.0.1/8 dev lo");
    }
    check_two_hosts("fd77::1");
    hosts_end();
}

/* The same port on two hosts is not the same place. */
static void two_jobs_with_one_port_on_two_hosts_do_not_meet(void **state)
{
    job a = {.size = 2}, b = {.size = 2};
    bool spread = two_hosts();
    int port = spread ? 29500 : spawn_free_port();

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        if (spread) {
            start_rank(&a, 1 + rank, rank, "sum", "10.77.0.1", port, "20000", NULL);
            start_rank(&b, 2 - rank, rank, "sum", "10.77.0.2", port, "20000", NULL);
        } else { /* an address each */
            start_rank(&a, -1, rank, "sum", "127.0.0.1", port, "20000", "127.0.0.1");
            start_rank(&b, -1, rank, "sum", "127.0.0.2", port, "20000", "127.0.0.2");
        }
    }
    check_sums(&a);
    check_sums(&b);
    if (spread)
        hosts_end();
}

/* --- failures ------------------------------------------------------------- */

/* A rank alone, which must fail within the deadline of one second, with words. */
static void check_no_way(int host, const char *address, int port, const char *words)
{
    const char *const argv[] = {own_path, "sum", "1000", NULL};
    char text[2][100];
    const char *const env[] = {text[0], text[1], "RANK=1", "WORLD_SIZE=2", "TRI_ENGINE", NULL};
    double start = now_ms();
    spawn s;

    snprintf(text[0], sizeof(text[0]), "MASTER_ADDR=%s", address);
    snprintf(text[1], sizeof(text[1]), "MASTER_PORT=%d", port);
    if (host < 0)
        spawn_start(&s, argv, env);
    else
        hosts_spawn(host, &s, argv, env);
    assert_int_equal(spawn_wait(&s), 1);
    if (strstr(SPAWN_ERR(&s), address) == NULL || strstr(SPAWN_ERR(&s), words) == NULL)
        fail_msg("%s: \"%s\" expected: %s", address, words, SPAWN_ERR(&s));
    if (now_ms() - start > 5000)
        fail_msg("%s: it took %.1f s: %s", address, (now_ms() - start) / 1e3, SPAWN_ERR(&s));
    spawn_free(&s);
}

/* Nobody listens there; the host is not there; what is sent there is swallowed. */
static void a_wrong_address_is_told_in_time(void **state)
{
    bool spread = two_hosts();

    (void)state;
    check_no_way(-1, "127.0.0.1", spawn_free_port(), "refused");
    if (!spread)
        return;
    hosts_ip(0, "addr add 10.77.0.254/24 dev switch");
    hosts_ip(2, "route add default via 10.77.0.254");
    check_no_way(2, "10.77.0.1", 29500, "refused");
    check_no_way(2, "10.77.0.99", 29500, "is this the address of");
    check_no_way(2, "192.168.99.1", 29500, "is this the address of");
    hosts_end();
}

/* What a worker said of its failure: after CUT_MS at most, and it names the other's rank and
 * host. */
static void check_loss(spawn *s, int rank, double cut_ms, const char *lost, const char *host)
{
    const char *line;
    double at = 0;

    assert_int_equal(spawn_wait(s), 3);
    line = strstr(SPAWN_OUT(s), "at ");
    assert_non_null(line);
    assert_int_equal(sscanf(line, "at %lf", &at), 1);
    if (strstr(line, "PEER_LOST") == NULL || strstr(line, lost) == NULL ||
        strstr(line, host) == NULL || at - cut_ms > CUT_MS)
        fail_msg("rank %d, after %.0f ms: %s", rank, at - cut_ms, line);
    spawn_free(s);
}

/* Without namespaces no link can be cut: the connection breaks, and that is known as well. */
static void check_broken_connection(void)
{
    const char *const argv[] = {own_path, "calls", "20000", "127.0.0.2", NULL};
    char rank_text[20], port_text[40];
    const char *const env[] = {
        rank_text,        port_text,    "WORLD_SIZE=2",     "MASTER_ADDR=127.0.0.1",
        "TRI_ENGINE=tcp", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL};
    double cut_ms;
    spawn s[2];

    snprintf(port_text, sizeof(port_text), "MASTER_PORT=%d", spawn_free_port());
    for (int rank = 0; rank < 2; rank++) {
        snprintf(rank_text, sizeof(rank_text), "RANK=%d", rank);
        spawn_start(&s[rank], argv, env);
    }
    for (int rank = 0; rank < 2; rank++)
        spawn_expect(&s[rank], "rank ");
    cut_ms = now_ms();
    spawn_signal(&s[1], SIGKILL);
    check_loss(&s[0], 0, cut_ms, "rank 1", "127.0.0.");
    assert_int_equal(spawn_wait(&s[1]), -SIGKILL);
    spawn_free(&s[1]);
}

static void a_killed_rank_on_another_address_is_named(void **state)
{
    (void)state;
    check_broken_connection();
}

static void check_cut(const char *what)
{
    job j = {.size = 2};
    double cut_ms;

    if (!two_hosts()) {
        check_broken_connection();
        return;
    }
    heartbeat = "TRI_HEARTBEAT_MS=1000";
    for (int rank = 0; rank < 2; rank++)
        start_rank(&j, 1 + rank, rank, what, "10.77.0.1", 29500, "20000", NULL);
    for (int rank = 0; rank < 2; rank++)
        spawn_expect(&j.s[rank], "rank ");
    heartbeat = "TRI_HEARTBEAT_MS";
    cut_ms = now_ms();
    hosts_ip(0, "link set port2 nomaster"); /* nobody is told: all is swallowed */
    check_loss(&j.s[0], 0, cut_ms, "rank 1", "10.77.0.2");
    if (strcmp(what, "calls") == 0)
        check_loss(&j.s[1], 1, cut_ms, "rank 0", "10.77.0.1");
    else
        spawn_free(&j.s[1]);
    hosts_end();
}

static void a_link_that_is_cut_during_calls_is_known(void **state)
{
    (void)state;
    check_cut("calls");
}

/* Nothing is under way on the link: the peer has not come yet. */
static void a_link_that_is_cut_during_a_wait_is_known(void **state)
{
    (void)state;
    check_cut("wait");
}

/* The link comes back after longer than any default of a second or two would have borne. */
static void a_link_that_comes_back_costs_only_time(void **state)
{
    job j = {.size = 2};

    (void)state;
    if (!two_hosts()) {
        check_addresses_of_loopback();
        return;
    }
    for (int rank = 0; rank < 2; rank++)
        start_rank(&j, 1 + rank, rank, "goes", "10.77.0.1", 29500, "20000", NULL);
    for (int rank = 0; rank < 2; rank++)
        spawn_expect(&j.s[rank], "begins");
    hosts_ip(0, "link set port2 nomaster");
    spawn_read(&j.s[0], OUTAGE_MS);
    hosts_ip(0, "link set port2 master switch");
    for (int rank = 0; rank < 2; rank++)
        spawn_expect(&j.s[rank], "has slept through it");
    for (int rank = 0; rank < 2; rank++) /* not before: its last words may be on their way */
        spawn_free(&j.s[rank]);
    hosts_end();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_meet_on_addresses_of_loopback),
    cmocka_unit_test(hosts_with_several_interfaces_meet),
    cmocka_unit_test(hosts_meet_with_ipv6_only),
    cmocka_unit_test(two_jobs_with_one_port_on_two_hosts_do_not_meet),
    cmocka_unit_test(a_wrong_address_is_told_in_time),
    cmocka_unit_test(a_killed_rank_on_another_address_is_named),
    cmocka_unit_test(a_link_that_is_cut_during_calls_is_known),
    cmocka_unit_test(a_link_that_is_cut_during_a_wait_is_known),
    cmocka_unit_test(a_link_that_comes_back_costs_only_time),
};

int main(int argc, char **argv)
{
    own_path = argv[0];
    if (argc > 2 && (strcmp(argv[1], "sum") == 0 || strcmp(argv[1], "calls") == 0 ||
                     strcmp(argv[1], "wait") == 0 || strcmp(argv[1], "goes") == 0))
        return worker(argv[1], argv[2], argc > 3 ? argv[3] : NULL);
    return test_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
