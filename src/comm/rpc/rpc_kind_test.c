/*
 * rpc_kind_test.c - functions that are for one kind of object are not run on anything else; lists
 * of functions.
 */
#include "comm/rpc/rpc_internal.h"
#include "testing/rpc_workers.h"

static atomic_int n_run;

static tri_status run_count(tri_rpc_request *request, void *object)
{
    (void)request;
    atomic_fetch_add(&n_run, 1);
    ++*(int *)object;
    return TRI_OK;
}

static const tri_rpc_object counter = {.name = "counter"};
static const tri_rpc_object same_counter = {.name = "counter", .serial = true};
static const tri_rpc_object table = {.name = "table"};
static const tri_rpc_object nameless = {.serial = true};
static const tri_rpc_object nameless_too = {.serial = true};
static const tri_rpc_function count = {.name = "counter.count", .run = run_count, .of = &counter};
static const tri_rpc_function count_inline = {
    .name = "counter.count_inline", .run = run_count, .of = &counter, .flags = TRI_RPC_INLINE};
static const tri_rpc_function count_nameless = {
    .name = "nameless.count", .run = run_count, .of = &nameless};

static void own(workers *w, const char *name, const tri_rpc_object *type, int *object)
{
    tri_rpc_ref *ref;

    CHECK_OK(tri_rpc_own(w->rpc[1], name, type, object, &ref));
    tri_rpc_ref_unref(ref);
}

static void call(workers *w, const char *name, const tri_rpc_function *function,
                 const char *refusal)
{
    tri_rpc_ref *to = worker_find(w, 0, name);

    if (refusal == NULL)
        CHECK_OK(tri_rpc_sync(to, function, NULL, NULL, NULL));
    else
        CHECK_FAILS(tri_rpc_sync(to, function, NULL, NULL, NULL), TRI_ERR_INVALID_ARG, refusal);
    tri_rpc_ref_unref(to);
}

static void a_function_runs_on_its_kind_of_object_only(void **state)
{
    int n = 0;
    workers w;

    (void)state;
    workers_begin(&w, 2, NULL);
    worker_serve(&w, 1, &count);
    worker_serve(&w, 1, &count_inline);
    worker_serve(&w, 1, &count_nameless);
    own(&w, "counter", &counter, &n);
    own(&w, "same", &same_counter, &n);
    own(&w, "table", &table, NULL);
    own(&w, "nameless", &nameless, &n);
    own(&w, "nameless_too", &nameless_too, NULL);
    for (int i = 0; i < 2; i++) {
        const tri_rpc_function *f = i == 0 ? &count : &count_inline;

        call(&w, "w1/counter", f, NULL);
        call(&w, "w1/same", f, NULL);
        call(&w, "w1/table", f,
             "it is for objects of the kind \"counter\", not for one of the kind \"table\"");
        call(&w, "w1/nameless", f, "not for one of the kind \"(without a name)\"");
        call(&w, "w1", f, "it is for objects of the kind \"counter\", not for a worker");
    }
    call(&w, "w1/nameless", &count_nameless, NULL);
    call(&w, "w1/nameless_too", &count_nameless, "\"(without a name)\"");
    assert_int_equal(atomic_load(&n_run), 5);
    assert_int_equal(n, 5);
    workers_end(&w);
}

/* Of a list of which one is refused, none is served. */
static void a_list_is_served_as_a_whole(void **state)
{
    static const tri_rpc_function first = {.name = "first", .run = run_count};
    static const tri_rpc_function other_count = {.name = "counter.count", .run = run_count};
    const tri_rpc_function *const list[] = {&first, &other_count};
    const tri_rpc_function *const twice[] = {&first, &count, &first};
    workers w;

    (void)state;
    workers_begin(&w, 2, NULL);
    worker_serve(&w, 1, &count);
    CHECK_FAILS(tri_rpc_serve(w.rpc[1], list, 2), TRI_ERR_STATE,
                "counter.count is another function already");
    for (int i = 0; i < 2; i++) {
        tri_rpc_ref *to = worker_find(&w, 0, "w1");

        CHECK_FAILS(tri_rpc_sync(to, &first, NULL, NULL, NULL), TRI_ERR_NOT_FOUND, "first");
        tri_rpc_ref_unref(to);
    }
    CHECK_OK(tri_rpc_serve(w.rpc[1], twice, 3));
    workers_end(&w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_function_runs_on_its_kind_of_object_only),
    cmocka_unit_test(a_list_is_served_as_a_whole),
};

TEST_MAIN(tests)
