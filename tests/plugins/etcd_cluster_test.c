/*
 * etcd_cluster_test.c - the back end's own promises: one wins a swap, writes happen once although
 * answers are lost, leases end with who held them, servers come and go, users and certificates.
 */
/* ctest: start=first labels=quick timeout=60 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "os/thread.h"
#include "testing/etcd_calls.h"

static etcd_cluster cluster;

static void stop(void)
{
    etcd_stop(&cluster);
}

static void start_etcd(int n)
{
    etcd_start(&cluster, n);
    atexit(stop);
    (void)etcd_leader(&cluster);
}

static trii_rdzv_backend *open_backend(const char *run_id)
{
    const trii_etcd_settings settings = etcd_settings(&cluster, run_id);
    trii_rdzv_backend *backend = NULL;

    CHECK_OK(trii_etcd_create(&settings, &backend));
    return backend;
}

static void check_state(trii_rdzv_backend *backend, const char *want)
{
    trii_wire_buffer state = {0};

    CHECK_OK(backend->ops->load(backend, &state));
    assert_int_equal(state.used, strlen(want));
    assert_memory_equal(state.data != NULL ? state.data : "", want, state.used);
    trii_wire_buffer_fini(&state);
}

static bool swap(trii_rdzv_backend *backend, const char *state)
{
    bool won = false;

    CHECK_OK(backend->ops->swap(backend, state, strlen(state), &won));
    return won;
}

static void an_agent_that_has_seen_the_state_may_replace_it(void **state)
{
    trii_rdzv_backend *a, *b, *other;

    (void)state;
    start_etcd(1);
    a = open_backend("job");
    b = open_backend("job");
    other = open_backend("job/2");
    check_state(a, "");
    check_state(b, "");
    assert_true(swap(a, "first"));
    assert_false(swap(b, "second")); /* it has not seen the first */
    check_state(b, "first");
    assert_true(swap(b, "second"));
    assert_false(swap(a, "third"));
    check_state(a, "second");
    check_state(other, "");
    a->ops->destroy(a);
    check_state(b, "second");
    b->ops->destroy(b);
    other->ops->destroy(other);
    assert_int_equal(trii_alloc_live(), 0);
}

/* --- a network that loses answers ----------------------------------------- */

enum { LINKS = 8 };

/* A connection through it; -1: none. */
typedef struct robbed_link {
    int client, server;
    bool rob; /* the answer that comes is kept */
} robbed_link;

/* Between a client and etcd: of every third write it keeps the answer to itself, and hangs up. */
typedef struct robber {
    int fd, port, to_port;
    int writes, robbed;
    bool lies; /* it answers itself, and is no etcd */
    atomic_bool stop;
    trii_thread thread;
} robber;

static int connect_to(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* What the client said goes on, or is answered with a lie. */
static bool pass_request(robber *r, robbed_link *l)
{
    static const char lie[] = "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope";
    char data[65536];
    ssize_t n = recv(l->client, data, sizeof(data) - 1, 0);

    if (n <= 0)
        return false;
    data[n] = '\0';
    if (r->lies) {
        assert_int_equal(send(l->client, lie, sizeof(lie) - 1, MSG_NOSIGNAL), sizeof(lie) - 1);
        return true;
    }
    if (strstr(data, "request_put") != NULL)
        l->rob = ++r->writes % 3 == 0;
    assert_int_equal(send(l->server, data, (size_t)n, MSG_NOSIGNAL), n);
    return true;
}

static bool pass_answer(robber *r, const robbed_link *l)
{
    char data[65536];
    ssize_t n = recv(l->server, data, sizeof(data), 0);

    if (n <= 0 || l->rob) {
        r->robbed += l->rob;
        return false;
    }
    assert_int_equal(send(l->client, data, (size_t)n, MSG_NOSIGNAL), n);
    return true;
}

static void link_close(robbed_link *l)
{
    close(l->client);
    if (l->server >= 0)
        close(l->server);
    *l = (robbed_link){-1, -1, false};
}

/* The client's calls have one connection, the renewal of its leases another. */
static void robber_main(void *arg)
{
    robber *r = arg;
    robbed_link links[LINKS];

    for (int i = 0; i < LINKS; i++)
        links[i] = (robbed_link){-1, -1, false};
    while (!atomic_load(&r->stop)) {
        struct pollfd ends[2 * LINKS + 1] = {[2 * LINKS] = {r->fd, POLLIN, 0}};
        int vacant = -1;

        for (int i = 0; i < LINKS; i++) {
            ends[2 * i] = (struct pollfd){links[i].client, POLLIN, 0};
            ends[2 * i + 1] = (struct pollfd){links[i].server, POLLIN, 0};
            vacant = links[i].client < 0 ? i : vacant;
        }
        assert_true(poll(ends, 2 * LINKS + 1, 50) >= 0);
        for (int i = 0; i < LINKS; i++) {
            if ((ends[2 * i].revents != 0 && !pass_request(r, &links[i])) ||
                (ends[2 * i + 1].revents != 0 && !pass_answer(r, &links[i])))
                link_close(&links[i]);
        }
        if (ends[2 * LINKS].revents != 0 && vacant >= 0)
            links[vacant] = (robbed_link){accept(r->fd, NULL, NULL),
                                          r->lies ? -1 : connect_to(r->to_port), false};
    }
    for (int i = 0; i < LINKS; i++) {
        if (links[i].client >= 0)
            link_close(&links[i]);
    }
}

static void robber_start(robber *r)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);

    r->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(r->fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(r->fd, 16), 0);
    assert_int_equal(getsockname(r->fd, (struct sockaddr *)&at, &bytes), 0);
    r->port = ntohs(at.sin_port);
    CHECK_OK(trii_thread_start(&r->thread, "robber", robber_main, r));
}

static void robber_stop(robber *r)
{
    atomic_store(&r->stop, true);
    trii_thread_join(&r->thread);
    close(r->fd);
}

static void a_write_whose_answer_is_lost_happens_once(void **state)
{
    robber r = {0};
    etcd_cluster seen;
    trii_etcd_settings settings;
    trii_rdzv_backend *backend = NULL;
    int64_t sum = 0;
    void *value = NULL;
    size_t bytes = 0;
    bool existed = false;

    (void)state;
    start_etcd(1);
    r.to_port = cluster.client_port[0];
    robber_start(&r);
    seen = cluster;
    snprintf(seen.endpoints, sizeof(seen.endpoints), "127.0.0.1:%d", r.port);
    settings = etcd_settings(&seen, "job");
    CHECK_OK(trii_etcd_create(&settings, &backend));
    for (int i = 1; i <= 20; i++) {
        char text[16];

        CHECK_OK(tri_store_add(backend->store, "n", 1, &sum));
        assert_int_equal(sum, i);
        CHECK_OK(tri_store_append(backend->store, "text", "x", 1));
        snprintf(text, sizeof(text), "state %d", i);
        check_state(backend, i == 1 ? "" : value);
        tri_store_free(value);
        assert_true(swap(backend, text)); /* although its answer may be lost */
        value = trii_strdup(text, "test");
        assert_false(swap(backend, "nobody has seen what is there"));
        CHECK_OK(tri_store_set(backend->store, "gone", "x", 1));
        CHECK_OK(tri_store_delete(backend->store, "gone", &existed));
        assert_true(existed);
    }
    tri_store_free(value);
    CHECK_OK(tri_store_get(backend->store, "text", 0, &value, &bytes));
    assert_int_equal(bytes, 20);
    tri_store_free(value);
    backend->ops->destroy(backend);
    robber_stop(&r);
    assert_true(r.robbed > 20);
}

/* --- leases --------------------------------------------------------------- */

static bool on_gone(void *arg, const trii_etcd_kv *kv)
{
    const char *key = arg;

    return !(kv->deleted && strcmp(kv->key, key) == 0);
}

static void what_a_dead_job_leaves_ends_with_its_lease(void **state)
{
    trii_etcd_settings settings;
    trii_etcd_client *watcher = NULL;
    int ready[2], pid, status = 0;
    char byte;

    (void)state;
    start_etcd(1);
    settings = etcd_settings(&cluster, "watcher");
    assert_int_equal(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        trii_etcd_settings mine = etcd_settings(&cluster, "job");
        trii_rdzv_backend *backend = NULL;
        bool won;

        mine.lease_s = 2;
        if (trii_etcd_create(&mine, &backend) != TRI_OK ||
            tri_store_set(backend->store, "k", "v", 1) != TRI_OK ||
            backend->ops->swap(backend, "s", 1, &won) != TRI_OK || write(ready[1], "!", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    CHECK_OK(trii_etcd_client_create(&settings, &watcher));
    assert_non_null(strstr(etcd_post("http", cluster.client_port[0], "/v3/kv/range",
                                     "{\"key\":\"L3Rlc3Qvam9iLw==\",\"range_end\":"
                                     "\"L3Rlc3Qvam9iMA==\",\"count_only\":true}"),
                           "\"count\":\"4\""));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    {
        char key[] = "/test/job/kv/k";

        CHECK_OK(trii_etcd_watch(watcher, "/test/job/", "/test/job0", 0, trii_deadline_ms(20000),
                                 on_gone, key));
    }
    trii_etcd_client_unref(watcher);
    close(ready[0]);
    close(ready[1]);
}

static void a_lease_lives_as_long_as_its_agent(void **state)
{
    trii_etcd_settings settings;
    trii_rdzv_backend *backend = NULL;
    const char *key = "k", *never = "never";
    bool present = false;

    (void)state;
    start_etcd(1);
    settings = etcd_settings(&cluster, "job");
    settings.lease_s = 3; /* a machine may be busy for two of them */
    CHECK_OK(trii_etcd_create(&settings, &backend));
    CHECK_OK(tri_store_set(backend->store, key, "v", 1));
    CHECK_FAILS(tri_store_wait(backend->store, &never, 1, 4500), TRI_ERR_TIMEOUT, "never");
    CHECK_OK(tri_store_check(backend->store, &key, 1, &present));
    assert_true(present);
    backend->ops->destroy(backend);
}

static void an_agent_that_leaves_in_order_leaves_the_state_alone(void **state)
{
    trii_rdzv_backend *a, *b;
    const char *key = "k";
    bool present = false;

    (void)state;
    start_etcd(1);
    a = open_backend("job");
    b = open_backend("job");
    check_state(a, "");
    assert_true(swap(a, "closed"));
    CHECK_OK(tri_store_set(a->store, "k", "v", 1));
    a->ops->destroy(a); /* b is there, and needs them */
    CHECK_OK(tri_store_check(b->store, &key, 1, &present));
    assert_true(present);
    b->ops->destroy(b);
    /* the state and the lease's number */
    assert_non_null(strstr(etcd_post("http", cluster.client_port[0], "/v3/kv/range",
                                     "{\"key\":\"L3Rlc3Qvam9iLw==\",\"range_end\":"
                                     "\"L3Rlc3Qvam9iMA==\",\"count_only\":true}"),
                           "\"count\":\"2\""));
    b = open_backend("job");
    check_state(b, "closed"); /* who is late sees how it ended */
    b->ops->destroy(b);
}

static void a_client_whose_leases_ended_goes_on(void **state)
{
    trii_rdzv_backend *a;
    char body[64];
    const char *text, *key = "k";
    int64_t sum = 0;

    (void)state;
    start_etcd(1);
    a = open_backend("job");
    CHECK_OK(tri_store_set(a->store, "k", "v", 1));
    /* as if etcd had not heard of us for long */
    for (;;) {
        text = strstr(etcd_post("http", cluster.client_port[0], "/v3/lease/leases", "{}"),
                      "\"ID\":\"");
        if (text == NULL)
            break;
        snprintf(body, sizeof(body), "{\"ID\":\"%lld\"}", strtoll(text + 6, NULL, 10));
        (void)etcd_post("http", cluster.client_port[0], "/v3/lease/revoke", body);
    }
    CHECK_OK(tri_store_add(a->store, "n", 2, &sum));
    assert_int_equal(sum, 2);
    CHECK_FAILS(tri_store_wait(a->store, &key, 1, 5), TRI_ERR_TIMEOUT, "missing");
    a->ops->destroy(a);
}

/* --- servers that go ------------------------------------------------------ */

typedef struct adder {
    tri_store *store;
    int n;
    tri_status status;
    trii_thread thread;
} adder;

static void add_many(void *arg)
{
    adder *a = arg;

    for (int i = 0; i < a->n && a->status == TRI_OK; i++)
        a->status = tri_store_add(a->store, "n", 1, NULL);
}

static void wait_for_flag(void *arg)
{
    adder *a = arg;
    const char *key = "flag";

    a->status = tri_store_wait(a->store, &key, 1, 30000);
}

static void a_leader_that_dies_costs_no_write(void **state)
{
    trii_rdzv_backend *backends[3];
    adder adders[3] = {{0}}, waiter = {0};
    int64_t sum = 0;
    int leader;

    (void)state;
    start_etcd(3);
    leader = etcd_leader(&cluster); /* everybody asks it first */
    snprintf(cluster.endpoints, sizeof(cluster.endpoints), "127.0.0.1:%d,127.0.0.1:%d",
             cluster.client_port[leader], cluster.client_port[(leader + 1) % 3]);
    for (int i = 0; i < 3; i++)
        backends[i] = open_backend("job");
    waiter.store = backends[0]->store;
    CHECK_OK(trii_thread_start(&waiter.thread, "waiter", wait_for_flag, &waiter));
    for (int i = 0; i < 3; i++) {
        adders[i].store = backends[i]->store;
        adders[i].n = 40;
        CHECK_OK(trii_thread_start(&adders[i].thread, "adder", add_many, &adders[i]));
    }
    /* in the middle of it */
    while (sum < 20)
        CHECK_OK(tri_store_add(backends[0]->store, "n", 0, &sum));
    etcd_kill(&cluster, leader);
    for (int i = 0; i < 3; i++) {
        trii_thread_join(&adders[i].thread);
        CHECK_OK(adders[i].status);
    }
    CHECK_OK(tri_store_add(backends[1]->store, "n", 0, &sum));
    assert_int_equal(sum, 120);
    CHECK_OK(tri_store_set(backends[2]->store, "flag", "1", 1)); /* the wait has outlived it too */
    trii_thread_join(&waiter.thread);
    CHECK_OK(waiter.status);
    for (int i = 0; i < 3; i++)
        backends[i]->ops->destroy(backends[i]);
    assert_int_equal(trii_alloc_live(), 0);
}

static void a_cluster_without_majority_is_named(void **state)
{
    trii_etcd_settings settings;
    trii_rdzv_backend *backend = NULL;

    (void)state;
    start_etcd(3);
    settings = etcd_settings(&cluster, "job");
    settings.timeout_ms = 5000;
    CHECK_OK(trii_etcd_create(&settings, &backend));
    CHECK_OK(tri_store_set(backend->store, "k", "v", 1));
    etcd_kill(&cluster, 0);
    etcd_kill(&cluster, 1);
    CHECK_FAILS(tri_store_set(backend->store, "k", "w", 1), TRI_ERR_TIMEOUT,
                "no server answered within 5.");
    assert_non_null(strstr(tri_last_error(), "that a majority of etcd's servers runs"));
    etcd_start_node(&cluster, 0, NULL); /* and it goes on when they are back */
    (void)etcd_leader(&cluster);
    CHECK_OK(tri_store_set(backend->store, "k", "w", 1));
    backend->ops->destroy(backend);
}

static void a_server_that_is_not_etcd_is_named(void **state)
{
    robber r = {.lies = true};
    trii_etcd_settings settings = etcd_settings(&cluster, "job");
    trii_rdzv_backend *backend = NULL;
    char endpoints[64];

    (void)state;
    robber_start(&r);
    snprintf(endpoints, sizeof(endpoints), "127.0.0.1:%d", r.port);
    settings.endpoints = endpoints;
    CHECK_FAILS(trii_etcd_create(&settings, &backend), TRI_ERR_FORMAT,
                "HTTP status 404 and \"nope\": this is not etcd's v3 gateway");
    robber_stop(&r);
    snprintf(endpoints, sizeof(endpoints), "127.0.0.1:%d", spawn_free_port());
    settings.open_timeout_ms = 300;
    CHECK_FAILS(trii_etcd_create(&settings, &backend), TRI_ERR_TIMEOUT, endpoints);
    settings.endpoints = "a b:1";
    CHECK_FAILS(trii_etcd_create(&settings, &backend), TRI_ERR_INVALID_ARG, "is not HOST:PORT");
    assert_null(backend);
    assert_int_equal(trii_alloc_live(), 0);
}

/* --- users and certificates ----------------------------------------------- */

static void users_log_in(void **state)
{
    static const char *const steps[][2] = {
        {"/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"a \\\"secret\\\"\"}"},
        {"/v3/auth/role/add", "{\"name\":\"root\"}"},
        {"/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}"},
        {"/v3/auth/enable", "{}"}};
    trii_etcd_settings settings;
    trii_rdzv_backend *backend = NULL;

    (void)state;
    start_etcd(1);
    settings = etcd_settings(&cluster, "job");
    settings.user = "root"; /* asked for, not needed yet */
    settings.password = "a \"secret\"";
    CHECK_OK(trii_etcd_create(&settings, &backend));
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        assert_non_null(
            strstr(etcd_post("http", cluster.client_port[0], steps[i][0], steps[i][1]), "header"));
    CHECK_OK(tri_store_set(backend->store, "k", "v", 1));
    backend->ops->destroy(backend);
    backend = NULL;
    settings.user = NULL;
    CHECK_FAILS(trii_etcd_create(&settings, &backend), TRI_ERR_IO, "wants a user");
    settings.user = "root";
    settings.password = "wrong";
    CHECK_FAILS(trii_etcd_create(&settings, &backend), TRI_ERR_IO, "does not let in user root");
    settings.password = "a \"secret\"";
    CHECK_OK(trii_etcd_create(&settings, &backend));
    CHECK_OK(tri_store_set(backend->store, "k", "v", 1));
    backend->ops->destroy(backend);
}

static void certificates_are_checked(void **state)
{
    trii_etcd_settings settings;
    trii_rdzv_backend *backend = NULL;
    char ca[400];

    (void)state;
    etcd_start_with(&cluster, 1, "--auto-tls");
    atexit(stop);
    settings = etcd_settings(&cluster, "job");
    settings.protocol = "https";
    settings.open_timeout_ms = 20000;
    snprintf(ca, sizeof(ca), "%s/n0/fixtures/client/cert.pem", cluster.folder);
    while (access(ca, R_OK) != 0)
        trii_sleep_until(trii_deadline_ms(10));
    settings.ca_cert = ca;
    CHECK_OK(trii_etcd_create(&settings, &backend));
    CHECK_OK(tri_store_set(backend->store, "k", "v", 1));
    backend->ops->destroy(backend);
    settings.ca_cert = NULL; /* nobody vouches for it */
    CHECK_FAILS(trii_etcd_create(&settings, &backend), TRI_ERR_INVALID_ARG, "certificate");
    settings.protocol = "http";
    settings.open_timeout_ms = 500;
    CHECK_FAILS(trii_etcd_create(&settings, &backend), TRI_ERR_TIMEOUT,
                "Check --rdzv-endpoint, that http is what is spoken there");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_agent_that_has_seen_the_state_may_replace_it),
    cmocka_unit_test(a_write_whose_answer_is_lost_happens_once),
    cmocka_unit_test(what_a_dead_job_leaves_ends_with_its_lease),
    cmocka_unit_test(a_lease_lives_as_long_as_its_agent),
    cmocka_unit_test(an_agent_that_leaves_in_order_leaves_the_state_alone),
    cmocka_unit_test(a_client_whose_leases_ended_goes_on),
    cmocka_unit_test(a_leader_that_dies_costs_no_write),
    cmocka_unit_test(a_cluster_without_majority_is_named),
    cmocka_unit_test(a_server_that_is_not_etcd_is_named),
    cmocka_unit_test(users_log_in),
    cmocka_unit_test(certificates_are_checked),
};

TEST_MAIN(tests)
