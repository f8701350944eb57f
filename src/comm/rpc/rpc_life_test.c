/*
 * rpc_life_test.c - workers that are threads come together, join, leave and come again; names that
 * are taken, workers that do not come, and calls at the wrong time.
 */
#include "os/socket.h"
#include "os/unix.h"
#include "comm/rpc/rpc_internal.h"
#include "comm/rpc/rpc_meeting.h"
#include "testing/rpc_workers.h"

#define PATIENT_MS 20000

/* --- threads that make a worker ------------------------------------------- */

typedef struct maker {
    tri_store *store;
    const char *name;
    int rank, size;
    int64_t timeout_ms;
    tri_rpc *rpc;
    tri_status status;
    char error[512];
    trii_thread thread;
} maker;

static void maker_main(void *arg)
{
    maker *m = arg;
    const tri_rpc_options o = {.timeout_ms = m->timeout_ms};

    m->status = tri_rpc_create(m->store, m->name, m->rank, m->size, &o, &m->rpc);
    if (m->status != TRI_OK)
        snprintf(m->error, sizeof(m->error), "%s", tri_last_error());
}

static void make(maker *m, int n)
{
    for (int i = 0; i < n; i++)
        CHECK_OK(trii_thread_start(&m[i].thread, "maker", maker_main, &m[i]));
    for (int i = 0; i < n; i++)
        trii_thread_join(&m[i].thread);
}

/* --- events --------------------------------------------------------------- */

typedef struct told {
    tri_rpc *other;                     /* ends while it is told that it has come */
    atomic_int tells, n_lost, n_failed; /* the last: threads that were not to be had */
    bool was_amid;                      /* the end was told meanwhile */
} told;

static void end_other(void *arg)
{
    tri_rpc_abort(arg, "the test ends it");
}

static void tell(tri_rpc *rpc, const tri_rpc_event *event, void *arg)
{
    const int64_t enough = trii_deadline_ms(200);
    told *t = arg;
    trii_thread thread;

    (void)rpc;
    t->was_amid = t->was_amid || atomic_load(&t->tells) > 0;
    if (event->kind != TRI_RPC_CAME) {
        atomic_fetch_add(&t->n_lost, 1);
        return;
    }
    atomic_store(&t->tells, 1);
    if (trii_thread_start(&thread, "ends", end_other, t->other) == TRI_OK) {
        while (trii_now_ns() < enough && atomic_load(&t->n_lost) == 0)
            trii_thread_yield();
        trii_thread_join(&thread);
    } else {
        atomic_fetch_add(&t->n_failed, 1);
    }
    atomic_store(&t->tells, 0);
}

typedef struct sitter {
    tri_rpc *rpc;
    tri_status (*sit)(tri_rpc *rpc);
    tri_status status;
    trii_thread thread;
} sitter;

static tri_status sit_in_join(tri_rpc *rpc)
{
    return tri_rpc_join(rpc, TRI_FOREVER);
}

static tri_status sit_in_find(tri_rpc *rpc)
{
    tri_rpc_ref *ref;

    return tri_rpc_find(rpc, "nobody", &ref);
}

static void sitter_main(void *arg)
{
    sitter *s = arg;

    s->status = s->sit(s->rpc);
}

static bool has_sitter(tri_rpc *rpc)
{
    bool has;

    rpc_lock(rpc);
    has = rpc->n_jobs > 0;
    rpc_unlock(rpc);
    return has;
}

static void a_destroyed_worker_ends_the_calls_of_other_threads(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        sitter s = {.sit = i == 0 ? sit_in_find : sit_in_join};
        long live = trii_alloc_live();
        tri_store *store;

        CHECK_OK(tri_store_hash(&store));
        CHECK_OK(tri_rpc_create(store, "a", 0, 0, &(tri_rpc_options){.open = true}, &s.rpc));
        CHECK_OK(trii_thread_start(&s.thread, "sits", sitter_main, &s));
        while (!has_sitter(s.rpc))
            trii_thread_yield();
        tri_rpc_destroy(s.rpc);
        trii_thread_join(&s.thread);
        assert_true(s.status == TRI_ERR_ABORTED || s.status == TRI_ERR_STATE);
        tri_store_unref(store);
        assert_int_equal(trii_alloc_live(), live);
    }
}

static void events_are_told_one_after_the_other(void **state)
{
    told t = {0};
    const tri_rpc_options o = {.open = true, .event = tell, .arg = &t};
    long live = trii_alloc_live();
    tri_store *store;
    tri_rpc_ref *ref;
    tri_rpc *rpc;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_rpc_create(store, "a", 0, 0, &o, &rpc));
    CHECK_OK(tri_rpc_create(store, "b", 0, 0, &(tri_rpc_options){.open = true}, &t.other));
    CHECK_OK(tri_rpc_find(rpc, "b", &ref)); /* and this thread is told that it has come */
    assert_int_equal(atomic_load(&t.n_failed), 0);
    worker_wait_for(&t.n_lost, 1);
    assert_false(t.was_amid);
    tri_rpc_ref_unref(ref);
    tri_rpc_destroy(rpc);
    tri_rpc_destroy(t.other);
    tri_store_unref(store);
    assert_int_equal(trii_alloc_live(), live);
}

/* --- coming --------------------------------------------------------------- */

static void a_rank_that_has_not_come_is_named(void **state)
{
    maker m[2] = {{.name = "w0", .rank = 0, .size = 4}, {.name = "w2", .rank = 2, .size = 4}};
    tri_store *store;
    long live = trii_alloc_live();
    int n_right = 0;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    m[0].store = m[1].store = store;
    /* either may be over before the other has begun: then they get twice the time */
    for (int64_t ms = 50; n_right < 2 && ms < 4000; ms *= 2) {
        n_right = 0;
        m[0].timeout_ms = m[1].timeout_ms = ms;
        make(m, 2);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(m[i].status, TRI_ERR_TIMEOUT);
            n_right += strstr(m[i].error, "ranks 1, 3 of 4 have not come in time") != NULL;
        }
    }
    if (n_right < 2)
        fail_msg("%s; %s", m[0].error, m[1].error);
    tri_store_unref(store);
    assert_int_equal(trii_alloc_live(), live);
}

static void a_name_that_two_have_is_heard_of_by_all_at_once(void **state)
{
    maker m[3] = {{.name = "same", .rank = 0, .size = 3, .timeout_ms = PATIENT_MS},
                  {.name = "same", .rank = 1, .size = 3, .timeout_ms = PATIENT_MS},
                  {.name = "other", .rank = 2, .size = 3, .timeout_ms = PATIENT_MS}};
    int64_t began = trii_now_ns();
    tri_store *store;
    int n_takers = 0;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    for (int i = 0; i < 3; i++)
        m[i].store = store;
    make(m, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(m[i].status, TRI_ERR_STATE);
        if (strstr(m[i].error, "the name same belongs to rank ") == NULL)
            fail_msg("%s", m[i].error);
        n_takers +=
            strstr(m[i].error, "rank 0: ") != NULL || strstr(m[i].error, "rank 1: ") != NULL;
    }
    assert_int_equal(n_takers, 2); /* who hear it of the third */
    assert_true(trii_now_ns() - began < PATIENT_MS / 2 * TRII_NS_PER_MS);
    /* and the next time it is forgotten */
    m[1].name = "right";
    make(m, 3);
    for (int i = 0; i < 3; i++) {
        if (m[i].status != TRI_OK)
            fail_msg("%s", m[i].error);
        tri_rpc_destroy(m[i].rpc);
    }
    tri_store_unref(store);
}

/* As often as they start, no key more is left of it. */
static void a_meeting_leaves_nothing_in_the_store(void **state)
{
    maker m[2] = {{.name = "w0", .rank = 0, .size = 2, .timeout_ms = PATIENT_MS},
                  {.name = "w1", .rank = 1, .size = 2, .timeout_ms = PATIENT_MS}};
    int64_t n_keys[3];
    tri_store *store;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    m[0].store = m[1].store = store;
    for (int i = 0; i < 3; i++) {
        make(m, 2);
        for (int k = 0; k < 2; k++) {
            if (m[k].status != TRI_OK)
                fail_msg("%s", m[k].error);
        }
        for (int k = 0; k < 2; k++) {
            CHECK_OK(tri_rpc_leave(m[k].rpc, 0));
            tri_rpc_destroy(m[k].rpc);
        }
        CHECK_OK(tri_store_num_keys(store, &n_keys[i]));
        assert_int_equal(n_keys[i], 4); /* a count and the name of each */
    }
    tri_store_unref(store);
}

/* By mistake: the second one is told, the first one goes on, and all start again afterwards. */
static void a_rank_that_is_started_twice_is_told(void **state)
{
    maker again = {.rank = 0, .size = 2, .timeout_ms = 100};
    maker next[2] = {{.name = "w0", .rank = 0, .size = 2, .timeout_ms = PATIENT_MS},
                     {.name = "w1", .rank = 1, .size = 2, .timeout_ms = PATIENT_MS}};
    tri_rpc_ref *to;
    workers w;

    (void)state;
    workers_begin(&w, 2, NULL);
    again.store = w.store;
    again.name = "w0";
    make(&again, 1);
    assert_int_equal(again.status, TRI_ERR_TIMEOUT);
    if (strstr(again.error, "rank 1 of 2 has not come in time") == NULL)
        fail_msg("%s", again.error);
    again.name = "other";
    make(&again, 1);
    assert_int_equal(again.status, TRI_ERR_TIMEOUT);
    to = worker_find(&w, 1, "w0");
    assert_string_equal(tri_rpc_ref_owner(to), "w0");
    CHECK_OK(tri_rpc_ref_status(to));
    tri_rpc_ref_unref(to);
    for (int i = 0; i < 2; i++)
        CHECK_OK(tri_rpc_leave(w.rpc[i], 0));
    next[0].store = next[1].store = w.store;
    make(next, 2);
    for (int i = 0; i < 2; i++) {
        if (next[i].status != TRI_OK)
            fail_msg("%s", next[i].error);
        tri_rpc_destroy(next[i].rpc);
    }
    workers_destroy(&w);
}

/* The worker of the record is gone, and its port has been given to another one. */
static void a_name_is_free_though_its_port_is_anothers(void **state)
{
    const tri_rpc_options open = {.open = true, .tcp_only = true};
    char record[640], moved[700], *port;
    tri_store *store;
    tri_rpc *first, *other, *next;
    rpc_address a, b;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_rpc_create(store, "ps", 0, 0, &open, &first));
    CHECK_OK(tri_rpc_create(store, "other", 0, 0, &open, &other));
    CHECK_OK(rpc_read_record(other, "other", false, 0, record));
    CHECK_OK(rpc_parse_record(record, &b));
    CHECK_OK(rpc_read_record(other, "ps", false, 0, record));
    CHECK_OK(rpc_parse_record(record, &a));
    assert_true(rpc_probe(other, &a, trii_deadline_ms(PATIENT_MS)));
    tri_rpc_destroy(first); /* killed, as it were: its record stays */
    assert_false(rpc_probe(other, &a, trii_deadline_ms(PATIENT_MS)));
    a.port = b.port;
    assert_false(rpc_probe(other, &a, trii_deadline_ms(PATIENT_MS)));
    port = record;
    for (int i = 0; i < 4; i++)
        port = strchr(port, ' ') + 1;
    snprintf(moved, sizeof(moved), "%.*s%d%s", (int)(port - record), record, b.port,
             strchr(port, ' '));
    CHECK_OK(tri_store_set(store, "rpc/worker/ps", moved, strlen(moved)));
    CHECK_OK(tri_rpc_create(store, "ps", 0, 0, &open, &next));
    tri_rpc_destroy(next);
    tri_rpc_destroy(other);
    tri_store_unref(store);
}

/* It takes no connection any more, and closes when somebody comes. */
static void die_when_asked(void *arg)
{
    int *listener = arg;

    if (trii_socket_wait(*listener, TRII_READABLE, trii_deadline_ms(PATIENT_MS)) == TRI_OK)
        trii_unix_close(*listener);
}

/* It has a tenth of a second to die once it is asked, which a busy machine may take from it. */
static void a_name_is_free_whose_process_is_ending(void **state)
{
    const tri_rpc_options open = {.open = true};
    char record[640], name[TRII_UNIX_NAME], dying[900], *at;
    tri_status status = TRI_ERR_STATE;
    int listener;
    trii_thread thread;
    rpc_address a;
    tri_store *store;
    tri_rpc *first, *next;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_rpc_create(store, "ps", 0, 0, &open, &first));
    CHECK_OK(rpc_read_record(first, "ps", false, 0, record));
    CHECK_OK(rpc_parse_record(record, &a));
    at = strstr(record, a.unix_name);
    tri_rpc_destroy(first);
    for (int i = 0; i < 10 && status == TRI_ERR_STATE; i++) {
        CHECK_OK(trii_unix_listen(&listener, name));
        snprintf(dying, sizeof(dying), "%.*s%s%s", (int)(at - record), record, name,
                 at + strlen(a.unix_name));
        CHECK_OK(tri_store_set(store, "rpc/worker/ps", dying, strlen(dying)));
        CHECK_OK(trii_thread_start(&thread, "dies", die_when_asked, &listener));
        status = tri_rpc_create(store, "ps", 0, 0, &open, &next);
        trii_thread_join(&thread);
    }
    CHECK_OK(status);
    tri_rpc_destroy(next);
    tri_store_unref(store);
}

static void a_second_life_waits_for_the_others_again(void **state)
{
    maker m[2] = {{.name = "w0", .rank = 0, .size = 2, .timeout_ms = PATIENT_MS},
                  {.name = "w1", .rank = 1, .size = 2, .timeout_ms = PATIENT_MS}};
    tri_store *store;

    (void)state;
    CHECK_OK(tri_store_hash(&store));
    m[0].store = m[1].store = store;
    for (int life = 0; life < 3; life++) {
        make(m, 2);
        for (int i = 0; i < 2; i++) {
            if (m[i].status != TRI_OK)
                fail_msg("life %d: %s", life, m[i].error);
            CHECK_OK(tri_rpc_leave(m[i].rpc, PATIENT_MS));
            tri_rpc_destroy(m[i].rpc);
        }
        if (life == 1)
            continue;
        m[0].timeout_ms = 50; /* alone: what the last life has left does not count */
        make(m, 1);
        assert_int_equal(m[0].status, TRI_ERR_TIMEOUT);
        assert_non_null(strstr(m[0].error, "rank 1 of 2 has not come in time"));
        m[0].timeout_ms = PATIENT_MS;
    }
    tri_store_unref(store);
}

static void finding_ends_with_the_worker(void **state)
{
    tri_rpc_ref *ref = NULL;
    workers w;

    (void)state;
    for (int how = 0; how < 2; how++) {
        const tri_rpc_options patient = {.timeout_ms = TRI_FOREVER};

        workers_begin(&w, 1, &patient);
        tri_rpc_abort(w.rpc[0], "enough");
        CHECK_FAILS(tri_rpc_find(w.rpc[0], how == 0 ? "nobody" : "nobody/at", &ref),
                    TRI_ERR_ABORTED, "enough");
        workers_destroy(&w);
    }
}

typedef struct finder {
    tri_rpc *rpc;
    atomic_int began;
    tri_status status;
    trii_thread thread;
} finder;

static void finder_main(void *arg)
{
    finder *f = arg;
    tri_rpc_ref *ref = NULL;

    atomic_store(&f->began, 1);
    f->status = tri_rpc_find(f->rpc, "nobody", &ref);
}

static void a_search_under_way_ends_with_the_worker(void **state)
{
    const tri_rpc_options patient = {.open = true, .timeout_ms = TRI_FOREVER};
    finder f = {0};
    workers w;

    (void)state;
    workers_begin(&w, 1, &patient);
    f.rpc = w.rpc[0];
    CHECK_OK(trii_thread_start(&f.thread, "finder", finder_main, &f));
    worker_wait_for(&f.began, 1);
    tri_rpc_abort(w.rpc[0], "enough");
    trii_thread_join(&f.thread);
    assert_int_equal(f.status, TRI_ERR_ABORTED);
    workers_destroy(&w);
}

/* All names are known: nobody waits for one that is misspelt. */
static void a_closed_set_has_no_other_names(void **state)
{
    const tri_rpc_options patient = {.timeout_ms = 20000};
    const tri_rpc_options open = {.open = true};
    tri_rpc_ref *ref = NULL;
    tri_rpc *late;
    workers w;

    (void)state;
    workers_begin(&w, 2, &patient);
    CHECK_FAILS(tri_rpc_find(w.rpc[0], "ww1", &ref), TRI_ERR_NOT_FOUND,
                "rpc_find: ww1: no worker ww1; there are w1, w0");
    CHECK_FAILS(tri_rpc_find(w.rpc[1], "ps/server", &ref), TRI_ERR_NOT_FOUND, "no worker ps");
    CHECK_OK(tri_rpc_create(w.store, "late", 0, 0, &open, &late)); /* it is there all the same */
    CHECK_OK(tri_rpc_find(w.rpc[0], "late", &ref));
    tri_rpc_ref_unref(ref);
    CHECK_OK(tri_rpc_leave(late, 20000));
    tri_rpc_destroy(late);
    workers_end(&w);
    workers_begin(&w, 1, &patient);
    CHECK_FAILS(tri_rpc_find(w.rpc[0], "w1", &ref), TRI_ERR_NOT_FOUND,
                "w0 (was it started without a launcher?)");
    workers_end(&w);
}

/* --- going ---------------------------------------------------------------- */

static tri_rpc_ref *to_last; /* as w1 calls it */

static tri_status run_ping(tri_rpc_request *request, void *object)
{
    (void)request;
    (void)object;
    return TRI_OK;
}
static const tri_rpc_function ping = {.name = "ping", .run = run_ping};

/* Calls the last worker, once all others could have left. */
static tri_status run_late(tri_rpc_request *request, void *object)
{
    int64_t until = trii_now_ns() + 100 * TRII_NS_PER_MS;

    (void)request;
    (void)object;
    while (trii_now_ns() < until)
        trii_thread_yield();
    return tri_rpc_sync(to_last, &ping, NULL, NULL, NULL);
}
static const tri_rpc_function late = {.name = "late", .run = run_late};

typedef struct leaver {
    tri_rpc *rpc;
    tri_status status;
    char error[512];
    trii_thread thread;
} leaver;

static void leaver_main(void *arg)
{
    leaver *l = arg;

    l->status = tri_rpc_join(l->rpc, PATIENT_MS);
    if (l->status == TRI_OK)
        l->status = tri_rpc_leave(l->rpc, PATIENT_MS);
    if (l->status != TRI_OK)
        snprintf(l->error, sizeof(l->error), "%s", tri_last_error());
}

static void nobody_leaves_whom_a_call_under_way_still_needs(void **state)
{
    leaver l[3] = {{0}};
    tri_rpc_ref *to_second;
    tri_rpc_call *call;
    workers w;

    (void)state;
    workers_begin(&w, 3, NULL);
    worker_serve(&w, 1, &late);
    worker_serve(&w, 2, &ping);
    to_second = worker_find(&w, 0, "w1");
    to_last = worker_find(&w, 1, "w2");
    CHECK_OK(tri_rpc_async(to_second, &late, NULL, NULL, &call));
    for (int i = 0; i < 3; i++) {
        l[i].rpc = w.rpc[i];
        CHECK_OK(trii_thread_start(&l[i].thread, "leaver", leaver_main, &l[i]));
    }
    for (int i = 0; i < 3; i++) {
        trii_thread_join(&l[i].thread);
        if (l[i].status != TRI_OK)
            fail_msg("w%d: %s", i, l[i].error);
    }
    CHECK_OK(tri_rpc_call_wait(call, 0));
    tri_rpc_call_destroy(call);
    tri_rpc_ref_unref(to_second);
    tri_rpc_ref_unref(to_last);
    workers_destroy(&w);
}

static atomic_int n_inside, may_end;

static tri_status run_stay(tri_rpc_request *request, void *object)
{
    int answer = 42;

    (void)object;
    atomic_fetch_add(&n_inside, 1);
    while (atomic_load(&may_end) == 0)
        trii_thread_yield();
    return tri_rpc_reply(request, &(tri_rpc_message){.data = &answer, .bytes = sizeof(answer)});
}
static const tri_rpc_function stay = {.name = "stay", .run = run_stay};

static void a_join_names_the_calls_that_it_waits_for(void **state)
{
    tri_rpc_ref *to;
    tri_rpc_call *call;
    workers w;

    (void)state;
    workers_begin(&w, 2, NULL);
    worker_serve(&w, 1, &stay);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_async(to, &stay, NULL, NULL, &call));
    CHECK_FAILS(tri_rpc_join(w.rpc[0], 20), TRI_ERR_TIMEOUT,
                "rpc_join: unfinished after 20 ms: call stay on w1");
    atomic_store(&may_end, 1);
    CHECK_OK(tri_rpc_call_wait(call, 0));
    tri_rpc_call_destroy(call);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

static void go_away_main(void *arg)
{
    leaver *l = arg;

    l->status = tri_rpc_leave(l->rpc, PATIENT_MS);
}

static void a_worker_that_leaves_ends_what_runs_and_takes_nothing_new(void **state)
{
    for (int t = 0; t < 2; t++) {
        const tri_rpc_options o = {.threads = 2, .tcp_only = t == 1}; /* `stay` has one */
        leaver l = {0};
        tri_rpc_message reply;
        tri_rpc_ref *to;
        tri_rpc_call *call;
        tri_status status;
        workers w;

        (void)state;
        atomic_store(&may_end, 0);
        atomic_store(&n_inside, 0);
        workers_begin(&w, 2, &o);
        worker_serve(&w, 1, &stay);
        worker_serve(&w, 1, &ping);
        to = worker_find(&w, 0, "w1");
        CHECK_OK(tri_rpc_async(to, &stay, NULL, NULL, &call));
        worker_wait_for(&n_inside, 1);
        l.rpc = w.rpc[1];
        CHECK_OK(trii_thread_start(&l.thread, "leaver", go_away_main, &l));
        do /* until it has heard of that */
            status = tri_rpc_sync(to, &ping, NULL, NULL, NULL);
        while (status == TRI_OK);
        assert_int_equal(status, TRI_ERR_STATE);
        assert_non_null(strstr(tri_last_error(), "worker w1 is leaving"));
        assert_int_equal(tri_rpc_call_test(call), TRI_INPROGRESS);
        atomic_store(&may_end, 1);
        CHECK_OK(tri_rpc_call_wait(call, 0));
        CHECK_OK(tri_rpc_call_take_reply(call, &reply));
        assert_int_equal(*(const int *)reply.data, 42);
        tri_rpc_message_free(&reply);
        trii_thread_join(&l.thread);
        assert_int_equal(l.status, TRI_OK);
        do /* until its goodbye has come */
            status = tri_rpc_sync(to, &ping, NULL, NULL, NULL);
        while (status == TRI_ERR_STATE);
        assert_int_equal(status, TRI_ERR_PEER_LOST);
        assert_non_null(strstr(tri_last_error(), "has left"));
        tri_rpc_call_destroy(call);
        tri_rpc_ref_unref(to);
        CHECK_OK(tri_rpc_leave(w.rpc[0], 0));
        workers_destroy(&w);
    }
}

/* --- at the wrong time ---------------------------------------------------- */

static void what_has_no_worker_says_so(void **state)
{
    const tri_rpc_function *function = &ping;
    tri_rpc_ref *ref = NULL;
    tri_rpc_object type = {.name = "x"};

    (void)state;
    CHECK_FAILS(tri_rpc_find(NULL, "ps", &ref), TRI_ERR_STATE, "this process is not a worker");
    CHECK_FAILS(tri_rpc_serve(NULL, &function, 1), TRI_ERR_STATE, "this process is not a worker");
    CHECK_FAILS(tri_rpc_own(NULL, "x", &type, NULL, &ref), TRI_ERR_STATE, "is not a worker");
    CHECK_FAILS(tri_rpc_join(NULL, 0), TRI_ERR_STATE, "this process is not a worker");
    CHECK_FAILS(tri_rpc_leave(NULL, 0), TRI_ERR_STATE, "this process is not a worker");
    CHECK_FAILS(tri_rpc_fini(), TRI_ERR_STATE, "this process is not a worker");
    assert_null(tri_rpc_alloc(NULL, 8));
    assert_string_equal(tri_rpc_name(NULL), "");
    tri_rpc_abort(NULL, "nothing");
    tri_rpc_destroy(NULL);
    tri_rpc_free(NULL, NULL);
}

static void after_the_end_all_fail_and_nothing_hangs(void **state)
{
    const tri_rpc_function *function = &ping;
    tri_rpc_object type = {.name = "x"};
    tri_rpc_ref *to, *ref = NULL;
    tri_rpc_call *call = NULL;
    workers w;

    (void)state;
    workers_begin(&w, 2, NULL);
    worker_serve(&w, 1, &ping);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_sync(to, &ping, NULL, NULL, NULL));
    CHECK_OK(tri_rpc_leave(w.rpc[0], 0));
    CHECK_FAILS(tri_rpc_sync(to, &ping, NULL, NULL, NULL), TRI_ERR_ABORTED, "worker w0 has left");
    CHECK_FAILS(tri_rpc_async(to, &ping, NULL, NULL, &call), TRI_ERR_ABORTED, "has left");
    CHECK_FAILS(tri_rpc_remote(to, &ping, NULL, NULL, &ref), TRI_ERR_ABORTED, "has left");
    CHECK_FAILS(tri_rpc_find(w.rpc[0], "w1", &ref), TRI_ERR_ABORTED, "has left");
    CHECK_FAILS(tri_rpc_own(w.rpc[0], "x", &type, NULL, &ref), TRI_ERR_STATE, "is leaving");
    CHECK_OK(tri_rpc_serve(w.rpc[0], &function, 1));
    tri_rpc_destroy(w.rpc[0]);
    w.rpc[0] = NULL;
    /* what outlives it is released later, and is of no use */
    CHECK_FAILS(tri_rpc_sync(to, &ping, NULL, NULL, NULL), TRI_ERR_ABORTED, "has left");
    tri_rpc_ref_unref(to);
    CHECK_OK(tri_rpc_leave(w.rpc[1], 0));
    workers_destroy(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(events_are_told_one_after_the_other),
    cmocka_unit_test(a_destroyed_worker_ends_the_calls_of_other_threads),
    cmocka_unit_test(a_rank_that_has_not_come_is_named),
    cmocka_unit_test(a_name_that_two_have_is_heard_of_by_all_at_once),
    cmocka_unit_test(a_meeting_leaves_nothing_in_the_store),
    cmocka_unit_test(a_rank_that_is_started_twice_is_told),
    cmocka_unit_test(a_name_is_free_though_its_port_is_anothers),
    cmocka_unit_test(a_name_is_free_whose_process_is_ending),
    cmocka_unit_test(a_second_life_waits_for_the_others_again),
    cmocka_unit_test(finding_ends_with_the_worker),
    cmocka_unit_test(a_search_under_way_ends_with_the_worker),
    cmocka_unit_test(a_closed_set_has_no_other_names),
    cmocka_unit_test(nobody_leaves_whom_a_call_under_way_still_needs),
    cmocka_unit_test(a_join_names_the_calls_that_it_waits_for),
    cmocka_unit_test(a_worker_that_leaves_ends_what_runs_and_takes_nothing_new),
    cmocka_unit_test(what_has_no_worker_says_so),
    cmocka_unit_test(after_the_end_all_fail_and_nothing_hangs),
};

TEST_MAIN(tests)
