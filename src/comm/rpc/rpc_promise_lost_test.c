/*
 * rpc_promise_lost_test.c - calls on promises whose makers move from worker to worker, or are lost.
 */
#include "os/file.h"
#include "testing/rpc_promises.h"
#include "testing/scratch.h"

enum { CALLS = PROMISE_CALLS };

/* --- functions ------------------------------------------------------------ */

static const tri_rpc_function make = {.name = "make", .flags = TRI_RPC_IDEMPOTENT, .run = run_make};
static const tri_rpc_function make_once = {.name = "make_once", .run = run_make};
static const tri_rpc_function keep = {.name = "keep", .run = run_make};

typedef struct place {
    tri_rpc_ref *next; /* replied by `follow` */
    int notes[CALLS];
    atomic_int n;
} place;

static tri_status run_follow(tri_rpc_request *request, void *object)
{
    return tri_rpc_reply(request,
                         &(tri_rpc_message){.refs = &((place *)object)->next, .n_refs = 1});
}
static const tri_rpc_function follow = {.name = "follow", .run = run_follow};

static tri_status run_note(tri_rpc_request *request, void *object)
{
    place *p = object;

    memcpy(&p->notes[atomic_load(&p->n)], tri_rpc_request_message(request)->data, sizeof(int));
    atomic_fetch_add(&p->n, 1);
    return TRI_OK;
}
static const tri_rpc_object place_type = {.name = "place", .serial = true};
static const tri_rpc_function note = {
    .name = "note", .flags = TRI_RPC_IDEMPOTENT, .run = run_note, .of = &place_type};
static const tri_rpc_function *const all[] = {&make, &make_once, &keep, &follow, &note};

static void begin(workers *w, int n, const tri_rpc_options *opt)
{
    promises_begin(w, n, opt, all, (int)TRII_COUNT_OF(all));
}

/* --- cases ---------------------------------------------------------------- */

/* w1 makes what is w2's, which leads to w3, and so on to the last worker. The calls are made while
 * all that is still a promise, and while it moves. */
static void check_order(const tri_rpc_options *opt, int n_workers, int n_before)
{
    tri_rpc_ref *to, *made, *promises[WORKERS_MAX];
    tri_rpc_call *calls[CALLS];
    place places[WORKERS_MAX] = {{0}};
    int last = n_workers - 1;
    workers w;

    begin(&w, n_workers, opt);
    for (int i = 2; i <= last; i++) {
        tri_rpc_ref *self;

        CHECK_OK(tri_rpc_own(w.rpc[i], "place", &place_type, &places[i], &self));
        tri_rpc_ref_unref(self);
    }
    for (int i = 2; i < last; i++) {
        char name[] = {'w', (char)('0' + i + 1), '/', 'p', 'l', 'a', 'c', 'e', '\0'};

        places[i].next = worker_find(&w, i, name);
    }
    made = worker_find(&w, 1, "w2/place");
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_remote(to, &make, NULL, NULL, &promises[1]));
    for (int i = 2; i < last; i++)
        CHECK_OK(tri_rpc_remote(promises[i - 1], &follow, NULL, NULL, &promises[i]));
    for (int i = 0; i < n_before; i++)
        calls[i] = call_note(promises[last - 1], &note, i);
    worker_wait_for(&n_held, 1);
    answer(0, made);
    for (int i = n_before; i < CALLS; i++)
        calls[i] = call_note(promises[last - 1], &note, i);
    for (int i = 0; i < CALLS; i++)
        end_call(calls[i]);
    assert_int_equal(atomic_load(&places[last].n), CALLS);
    for (int i = 0; i < CALLS; i++)
        assert_int_equal(places[last].notes[i], i);
    for (int i = 1; i < last; i++)
        tri_rpc_ref_unref(promises[i]);
    for (int i = 2; i < last; i++)
        tri_rpc_ref_unref(places[i].next);
    tri_rpc_ref_unref(made);
    tri_rpc_ref_unref(to);
    workers_end(&w);
}

static void calls_start_in_order_after_any_number_of_third_workers(void **state)
{
    const int by = TEST_SANITIZED ? 2 : 1;

    (void)state;
    for (int n = 3; n <= WORKERS_MAX; n += by) {
        for (int before = 0; before <= CALLS; before += by * CALLS / 4) {
            check_order(NULL, n, before);
            check_order(&by_tcp, n, before);
        }
    }
}

static void what_a_lost_worker_was_to_make_is_made_by_the_next(void **state)
{
    const tri_rpc_options o = {.open = true};
    tri_rpc_ref *to, *promise, *self;
    tri_rpc_call *call, *plain;
    place p = {0};
    tri_store *store;
    tri_rpc *rpc[3];

    (void)state;
    atomic_store(&n_held, 0);
    CHECK_OK(tri_store_hash(&store));
    CHECK_OK(tri_rpc_create(store, "client", 0, 0, &o, &rpc[0]));
    CHECK_OK(tri_rpc_create(store, "server", 0, 0, &o, &rpc[1]));
    CHECK_OK(tri_rpc_serve(rpc[1], all, (int)TRII_COUNT_OF(all)));
    CHECK_OK(tri_rpc_find(rpc[0], "server", &to));
    CHECK_OK(tri_rpc_remote(to, &make, NULL, NULL, &promise));
    call = call_note(promise, &note, 1);
    CHECK_OK(tri_rpc_async(promise, &follow, NULL, NULL, &plain)); /* may not be run twice */
    wait_for_requests(rpc[1], 3);
    worker_wait_for(&n_held, 1);
    tri_rpc_abort(rpc[1], "it dies");
    tri_rpc_fail(held[0], TRI_ERR_ABORTED);
    tri_rpc_destroy(rpc[1]);
    CHECK_FAILS(tri_rpc_call_wait(plain, 0), TRI_ERR_PEER_LOST, "follow on server");
    CHECK_OK(tri_rpc_create(store, "server", 0, 0, &o, &rpc[2]));
    CHECK_OK(tri_rpc_serve(rpc[2], all, (int)TRII_COUNT_OF(all)));
    CHECK_OK(tri_rpc_own(rpc[2], NULL, &place_type, &p, &self));
    worker_wait_for(&n_held, 2);
    answer(1, self);
    end_call(call);
    assert_int_equal(atomic_load(&p.n), 1);
    tri_rpc_call_destroy(plain);
    tri_rpc_ref_unref(self);
    tri_rpc_ref_unref(promise);
    tri_rpc_ref_unref(to);
    tri_rpc_destroy(rpc[0]);
    tri_rpc_destroy(rpc[2]);
    tri_store_unref(store);
}

/* It says of a call that its target is another worker's, and has not said whose. */
static void a_worker_that_sends_back_what_it_should_run_is_lost(void **state)
{
    rpc_header h = {.magic = RPC_MAGIC, .kind = RPC_REPLY, .flags = RPC_OF_PROMISE};
    tri_rpc_ref *to, *promise;
    tri_rpc_call *call;
    rpc_peer *peer;
    workers w;

    (void)state;
    begin(&w, 2, NULL);
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_remote(to, &make_once, NULL, NULL, &promise));
    CHECK_OK(tri_rpc_async(promise, &follow, NULL, NULL, &call));
    wait_for_requests(w.rpc[1], 2);
    worker_wait_for(&n_held, 1);
    rpc_lock(w.rpc[1]);
    peer = rpc_peer_named(w.rpc[1], "w0");
    h.call = peer->requests->call; /* the youngest */
    rpc_send(peer, &h, sizeof(h), 0);
    rpc_unlock(w.rpc[1]);
    CHECK_FAILS(tri_rpc_call_wait(call, 0), TRI_ERR_PEER_LOST, "it sends back what it should run");
    tri_rpc_fail(held[0], TRI_ERR_ABORTED);
    tri_rpc_call_destroy(call);
    tri_rpc_ref_unref(promise);
    tri_rpc_ref_unref(to);
    workers_destroy(&w);
}

/* Whom w0's record of a call of `keep` names; "" = there is none. */
static void read_keep(const scratch *folder, char name_out[40], int *state_out)
{
    static rpc_record_file file;
    trii_mapping mapping = {0};
    char path[160];

    snprintf(path, sizeof(path), "%s/rpc-w0.rec", folder->dir);
    CHECK_OK(trii_mapping_open(path, &mapping));
    assert_int_equal(mapping.bytes, sizeof(file));
    memcpy((void *)&file, mapping.data, sizeof(file));
    trii_mapping_close(&mapping);
    name_out[0] = '\0';
    for (int i = 0; i < RPC_RECORDS; i++) {
        if (file.records[i].chain == 0 || strcmp(file.records[i].function, "keep") != 0)
            continue;
        snprintf(name_out, 40, "%.39s", file.records[i].to);
        *state_out = file.records[i].state;
    }
}

/* What `trireme why` says. */
static void the_record_of_a_call_names_the_worker_that_it_waits_for(void **state)
{
    tri_rpc_ref *to, *promise, *self, *made;
    tri_rpc_call *call;
    place p = {0};
    scratch folder;
    char name[40];
    int how = 0;
    workers w;

    (void)state;
    scratch_begin(&folder);
    setenv("TRI_RUN_DIR", folder.dir, 1);
    begin(&w, 3, NULL);
    CHECK_OK(tri_rpc_own(w.rpc[2], "place", &place_type, &p, &self));
    made = worker_find(&w, 1, "w2/place");
    tri_rpc_ref_unref(worker_find(&w, 0, "w2")); /* connected */
    to = worker_find(&w, 0, "w1");
    CHECK_OK(tri_rpc_remote(to, &make, NULL, NULL, &promise));
    CHECK_OK(tri_rpc_async(promise, &keep, NULL, NULL, &call));
    wait_for_requests(w.rpc[1], 2);
    read_keep(&folder, name, &how);
    assert_string_equal(name, "w1");
    assert_int_equal(how, RPC_RECORD_SENT);
    worker_wait_for(&n_held, 1);
    answer(0, made);
    worker_wait_for(&n_held, 2); /* at w2 */
    read_keep(&folder, name, &how);
    assert_string_equal(name, "w2");
    CHECK_OK(tri_rpc_reply(held[1], NULL));
    end_call(call);
    read_keep(&folder, name, &how);
    assert_string_equal(name, "");
    tri_rpc_ref_unref(self);
    tri_rpc_ref_unref(made);
    tri_rpc_ref_unref(promise);
    tri_rpc_ref_unref(to);
    workers_end(&w);
    scratch_end(&folder);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(calls_start_in_order_after_any_number_of_third_workers),
    cmocka_unit_test(what_a_lost_worker_was_to_make_is_made_by_the_next),
    cmocka_unit_test(a_worker_that_sends_back_what_it_should_run_is_lost),
    cmocka_unit_test(the_record_of_a_call_names_the_worker_that_it_waits_for),
};

TEST_MAIN(tests)
