/*
 * tcp_calls.c - the operations of a TCP store, each one exchange of wire.h's protocol.
 */
/* build: leaf */
#include "store/tcp_client.h"

#include <string.h>

#include "base/alloc.h"
#include "os/clock.h"
#include "store/exchange.h"

#define LOOK_NS TRII_NS_PER_S /* between two looks into a queue that is waited for */
#define CANCEL_MS 3000        /* for the answer that calls a wait off; later it is owed */

/* Sends the request, takes an answer of so many bytes, and leaves. */
static tri_status ask(trii_tcp_store *store, const char *op, void *answer, size_t bytes)
{
    tri_status status = trii_tcp_send(store, op);

    if (status == TRI_OK)
        status = trii_tcp_receive(store, op, answer, bytes);
    return trii_tcp_leave(store, status);
}

static tri_status tcp_set(tri_store *self, const char *key, const void *value, size_t bytes)
{
    trii_tcp_store *store = trii_tcp_enter(self);

    trii_wire_put_u8(&store->out, TRII_WIRE_SET);
    trii_tcp_put_key(store, key);
    trii_tcp_put_bytes(store, value, bytes);
    return trii_tcp_leave(store, trii_tcp_send(store, "set"));
}

static tri_status tcp_append(tri_store *self, const char *key, const void *value, size_t bytes)
{
    trii_tcp_store *store = trii_tcp_enter(self);

    trii_wire_put_u8(&store->out, TRII_WIRE_APPEND);
    trii_tcp_put_key(store, key);
    trii_tcp_put_bytes(store, value, bytes);
    return trii_tcp_leave(store, trii_tcp_send(store, "append"));
}

static tri_status tcp_add(tri_store *self, const char *key, int64_t delta, int64_t *sum_out)
{
    trii_tcp_store *store = trii_tcp_enter(self);
    int64_t sum = 0;
    tri_status status;

    trii_wire_put_u8(&store->out, TRII_WIRE_ADD);
    trii_tcp_put_key(store, key);
    trii_wire_put_i64(&store->out, delta);
    status = ask(store, "add", &sum, sizeof(sum));
    if (status == TRI_OK)
        *sum_out = sum;
    return status;
}

static tri_status tcp_compare_set(tri_store *self, const char *key, const void *expected,
                                  size_t expected_bytes, const void *desired, size_t desired_bytes,
                                  void **value_out, size_t *bytes_out)
{
    trii_tcp_store *store = trii_tcp_enter(self);
    tri_status status;

    trii_wire_put_u8(&store->out, TRII_WIRE_COMPARE_SET);
    trii_tcp_put_key(store, key);
    trii_tcp_put_bytes(store, expected, expected_bytes);
    trii_tcp_put_bytes(store, desired, desired_bytes);
    status = trii_tcp_send(store, "compare_set");
    if (status == TRI_OK)
        status = trii_tcp_receive_value(store, "compare_set", value_out, bytes_out);
    return trii_tcp_leave(store, status);
}

/* The deadline of a wait has passed: call it off, so that the stream can be used again. OK: its
 * answer came at the last moment. */
static tri_status cancel_wait(trii_tcp_store *store, const char *op)
{
    const uint8_t cancel = TRII_WIRE_CANCEL_WAIT;
    int64_t deadline = trii_deadline_ms(CANCEL_MS);
    uint8_t answer = 0;
    tri_status status = trii_socket_send_all(store->fd, &cancel, 1, deadline);

    if (status != TRI_OK)
        return trii_tcp_broken(store, op, status);
    store->owed = true;
    store->owed_wait = true;
    status = trii_tcp_take(store, &answer, 1, deadline);
    if (status == TRI_ERR_TIMEOUT)
        return status; /* a network may be repaired: it is not lost yet */
    if (status == TRI_OK && answer > 1)
        status = TRII_FAIL(TRI_ERR_FORMAT, "answer %u to a cancelled wait", answer);
    if (status != TRI_OK)
        return trii_tcp_broken(store, op, status);
    store->owed = answer == 0;
    store->owed_wait = false;
    return answer == 0 ? TRI_OK : TRI_ERR_TIMEOUT;
}

/* Of a request that is answered when others have come, or is called off. */
static tri_status await_answer(trii_tcp_store *store, const char *op, int64_t deadline_ns)
{
    uint8_t answer = 0;
    tri_status status = trii_tcp_take(store, &answer, 1, deadline_ns);

    if (status == TRI_ERR_TIMEOUT)
        return cancel_wait(store, op);
    if (status == TRI_OK && answer != 0)
        status = TRII_FAIL(TRI_ERR_FORMAT, "answer %u", answer);
    return status == TRI_OK ? TRI_OK : trii_tcp_broken(store, op, status);
}

/* A request that only waits need not be sent if what is owed does not come before its deadline. */
static tri_status send_wait(trii_tcp_store *store, const char *op, int64_t deadline_ns)
{
    tri_status status = trii_tcp_take_late_answer(store, op, deadline_ns);

    return status == TRI_OK ? trii_tcp_send(store, op) : status;
}

static tri_status send_and_wait(trii_tcp_store *store, const char *op, int64_t deadline_ns)
{
    tri_status status = send_wait(store, op, deadline_ns);

    return status == TRI_OK ? await_answer(store, op, deadline_ns) : status;
}

static tri_status wait_for(trii_tcp_store *store, const char *const *keys, int n_keys,
                           int64_t deadline_ns)
{
    trii_tcp_put_keys(store, TRII_WIRE_WAIT, keys, n_keys);
    return send_and_wait(store, "wait", deadline_ns);
}

static tri_status tcp_barrier(tri_store *self, const char *key, int64_t size, int64_t deadline_ns)
{
    trii_tcp_store *store = trii_tcp_enter(self);

    trii_wire_put_u8(&store->out, TRII_WIRE_BARRIER);
    trii_tcp_put_key(store, key);
    trii_wire_put_i64(&store->out, size);
    return trii_tcp_leave(store, send_and_wait(store, "barrier", deadline_ns));
}

static tri_status tcp_wait(tri_store *self, const char *const *keys, int n_keys,
                           int64_t deadline_ns)
{
    trii_tcp_store *store = trii_tcp_enter(self);

    return trii_tcp_leave(store, wait_for(store, keys, n_keys, deadline_ns));
}

static tri_status receive_values(trii_tcp_store *store, int n_keys, void **values_out,
                                 size_t *bytes_out)
{
    tri_status status = TRI_OK;
    int n = 0;

    for (; n < n_keys && store->fd >= 0; n++) {
        tri_status one = trii_tcp_receive_value(store, "get", &values_out[n], &bytes_out[n]);

        if (one != TRI_OK) {
            values_out[n] = NULL;
            status = one;
        }
    }
    while (status != TRI_OK && n > 0)
        trii_free(values_out[--n]);
    return status;
}

/* Of keys that are all there. */
static tri_status get_present(trii_tcp_store *store, const char *const *keys, int n_keys,
                              void **values_out, size_t *bytes_out)
{
    tri_status status;

    store->out.used = 0;
    trii_tcp_put_keys(store, TRII_WIRE_MULTI_GET, keys, n_keys);
    status = trii_tcp_send(store, "get");
    return status == TRI_OK ? receive_values(store, n_keys, values_out, bytes_out) : status;
}

static tri_status tcp_multi_get(tri_store *self, const char *const *keys, int n_keys,
                                int64_t deadline_ns, void **values_out, size_t *bytes_out)
{
    trii_tcp_store *store = trii_tcp_enter(self);
    tri_status status = wait_for(store, keys, n_keys, deadline_ns);

    if (status == TRI_OK)
        status = get_present(store, keys, n_keys, values_out, bytes_out);
    return trii_tcp_leave(store, status);
}

/* --- several in one exchange (exchange.h) --------------------------------- */

static void put_call(trii_tcp_store *store, const trii_store_call *call)
{
    static const char absent[] = TRII_STORE_ABSENT;

    switch (call->kind) {
    case TRII_STORE_SET:
        trii_wire_put_u8(&store->out, TRII_WIRE_SET);
        trii_tcp_put_key(store, call->key);
        trii_tcp_put_bytes(store, call->text, strlen(call->text));
        return;
    case TRII_STORE_ADD:
        trii_wire_put_u8(&store->out, TRII_WIRE_ADD);
        trii_tcp_put_key(store, call->key);
        trii_wire_put_i64(&store->out, call->number);
        return;
    case TRII_STORE_READ: /* GET would not tell an empty value from none */
        trii_wire_put_u8(&store->out, TRII_WIRE_COMPARE_SET);
        trii_tcp_put_key(store, call->key);
        trii_tcp_put_bytes(store, absent, sizeof(absent) - 1);
        trii_tcp_put_bytes(store, absent, sizeof(absent) - 1);
        return;
    case TRII_STORE_CHECK:
        trii_tcp_put_keys(store, TRII_WIRE_CHECK, &call->key, 1);
        return;
    case TRII_STORE_DELETE:
        trii_wire_put_u8(&store->out, TRII_WIRE_DELETE_KEY);
        trii_tcp_put_key(store, call->key);
        return;
    case TRII_STORE_CLAIM:
        trii_wire_put_u8(&store->out, TRII_WIRE_COMPARE_SET);
        trii_tcp_put_key(store, call->key);
        trii_tcp_put_bytes(store, "", 0);
        trii_tcp_put_bytes(store, call->text, strlen(call->text));
        return;
    }
}

static tri_status receive_call(trii_tcp_store *store, trii_store_call *call)
{
    uint8_t absent = 0;
    tri_status status;

    if (call->kind == TRII_STORE_SET)
        return TRI_OK;
    if (call->kind == TRII_STORE_ADD || call->kind == TRII_STORE_DELETE)
        return trii_tcp_receive(store, call->kind == TRII_STORE_ADD ? "add" : "delete",
                                &call->number, sizeof(call->number));
    if (call->kind != TRII_STORE_CHECK)
        return trii_tcp_receive_value(store, "compare_set", (void **)&call->value, &call->bytes);
    status = trii_tcp_receive(store, "check", &absent, sizeof(absent));
    if (status == TRI_OK && absent > 1)
        status = trii_tcp_broken(store, "check", TRII_FAIL(TRI_ERR_FORMAT, "answer %u", absent));
    call->number = absent == 0;
    return status;
}

/* Of those that there is no memory for, too: the connection shall not be lost with them. */
static tri_status receive_calls(trii_tcp_store *store, trii_store_call *calls, int n_calls)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < n_calls && store->fd >= 0; i++) {
        tri_status one = receive_call(store, &calls[i]);

        status = one != TRI_OK ? one : status;
    }
    return status;
}

static tri_status tcp_exchange(tri_store *self, trii_store_call *calls, int n_calls,
                               const char *const *keys, int n_keys, int64_t deadline_ns,
                               void **values_out, size_t *bytes_out)
{
    trii_tcp_store *store = trii_tcp_enter(self);
    tri_status status;

    for (int i = 0; i < n_calls; i++)
        put_call(store, &calls[i]);
    if (n_keys > 0)
        trii_tcp_put_keys(store, TRII_WIRE_WAIT, keys, n_keys);
    status =
        n_calls > 0 ? trii_tcp_send(store, "exchange") : send_wait(store, "exchange", deadline_ns);
    if (status == TRI_OK)
        status = receive_calls(store, calls, n_calls);
    if (status == TRI_ERR_NO_MEMORY && n_keys > 0 && store->fd >= 0) /* the wait's is to come */
        status = trii_tcp_broken(store, "exchange", status);
    if (status == TRI_OK && n_keys > 0)
        status = await_answer(store, "get", deadline_ns);
    if (status == TRI_OK && values_out != NULL && n_keys > 0)
        status = get_present(store, keys, n_keys, values_out, bytes_out);
    return trii_tcp_leave(store, status);
}

static tri_status tcp_check(tri_store *self, const char *const *keys, int n_keys, bool *present_out)
{
    trii_tcp_store *store = trii_tcp_enter(self);
    uint8_t answer = 0;
    tri_status status;

    trii_tcp_put_keys(store, TRII_WIRE_CHECK, keys, n_keys);
    status = trii_tcp_send(store, "check");
    if (status == TRI_OK)
        status = trii_tcp_receive(store, "check", &answer, sizeof(answer));
    if (status == TRI_OK && answer > 1)
        status = trii_tcp_broken(store, "check", TRII_FAIL(TRI_ERR_FORMAT, "answer %u", answer));
    if (status == TRI_OK)
        *present_out = answer == 0;
    return trii_tcp_leave(store, status);
}

static tri_status tcp_remove(tri_store *self, const char *key, bool *existed_out)
{
    trii_tcp_store *store = trii_tcp_enter(self);
    int64_t answer = 0;
    tri_status status;

    trii_wire_put_u8(&store->out, TRII_WIRE_DELETE_KEY);
    trii_tcp_put_key(store, key);
    status = ask(store, "delete", &answer, sizeof(answer));
    if (status == TRI_OK)
        *existed_out = answer != 0;
    return status;
}

static tri_status tcp_num_keys(tri_store *self, int64_t *n_out)
{
    trii_tcp_store *store = trii_tcp_enter(self);
    int64_t answer = 0;
    tri_status status;

    trii_wire_put_u8(&store->out, TRII_WIRE_GETNUMKEYS);
    status = ask(store, "num_keys", &answer, sizeof(answer));
    if (status == TRI_OK)
        *n_out = answer;
    return status;
}

static tri_status tcp_multi_set(tri_store *self, const char *const *keys, const void *const *values,
                                const size_t *bytes, int n_keys)
{
    trii_tcp_store *store = trii_tcp_enter(self);

    trii_wire_put_u8(&store->out, TRII_WIRE_MULTI_SET);
    trii_wire_put_u64(&store->out, (uint64_t)n_keys);
    for (int i = 0; i < n_keys; i++) {
        trii_tcp_put_key(store, keys[i]);
        trii_tcp_put_bytes(store, values[i] != NULL ? values[i] : "", bytes[i]);
    }
    return trii_tcp_leave(store, trii_tcp_send(store, "multi_set"));
}

/* Users' keys begin with a slash; `init/` is none of them. */
static tri_status receive_key(trii_tcp_store *store, trii_key_list *list)
{
    char key[TRII_WIRE_MAX_KEY];
    uint64_t bytes = 0;
    tri_status status = trii_tcp_receive(store, "list_keys", &bytes, sizeof(bytes));

    if (status == TRI_OK && bytes > sizeof(key))
        status = trii_tcp_broken(
            store, "list_keys",
            TRII_FAIL(TRI_ERR_FORMAT, "a key of %llu bytes", (unsigned long long)bytes));
    if (status == TRI_OK)
        status = trii_tcp_receive(store, "list_keys", key, (size_t)bytes);
    if (status == TRI_OK && bytes > 0 && key[0] == '/') {
        status = trii_key_list_add(list, key + 1, (size_t)bytes - 1);
        if (status != TRI_OK)
            status = trii_tcp_broken(store, "list_keys", status);
    }
    return status;
}

static tri_status tcp_list(tri_store *self, trii_key_list *list)
{
    trii_tcp_store *store = trii_tcp_enter(self);
    int64_t n = 0;
    tri_status status;

    trii_wire_put_u8(&store->out, TRII_WIRE_LIST_KEYS);
    status = trii_tcp_send(store, "list_keys");
    if (status == TRI_OK)
        status = trii_tcp_receive(store, "list_keys", &n, sizeof(n));
    for (int64_t i = 0; i < n && status == TRI_OK; i++)
        status = receive_key(store, list);
    return trii_tcp_leave(store, status);
}

static tri_status tcp_push(tri_store *self, const char *key, const void *value, size_t bytes)
{
    trii_tcp_store *store = trii_tcp_enter(self);

    trii_wire_put_u8(&store->out, TRII_WIRE_QUEUE_PUSH);
    trii_tcp_put_key(store, key);
    trii_tcp_put_bytes(store, value, bytes);
    return trii_tcp_leave(store, trii_tcp_send(store, "queue_push"));
}

/* OK, or INPROGRESS if the queue is empty. */
static tri_status pop_now(trii_tcp_store *store, const char *key, void **value_out,
                          size_t *bytes_out)
{
    int64_t length = 0;
    tri_status status;

    store->out.used = 0;
    trii_wire_put_u8(&store->out, TRII_WIRE_QUEUE_POP);
    trii_tcp_put_key(store, key);
    status = trii_tcp_send(store, "queue_pop");
    if (status == TRI_OK)
        status = trii_tcp_receive(store, "queue_pop", &length, sizeof(length));
    if (status == TRI_OK && length > 0)
        return trii_tcp_receive_value(store, "queue_pop", value_out, bytes_out);
    return status == TRI_OK ? TRI_INPROGRESS : status;
}

/* A push ends one wait, which may be that of a client that does not pop: so the wait is called off
 * now and then to look, also at the deadline. And it may end because others were quicker or because
 * a value has the same name: so it may have to be done again, and then not too often. */
static tri_status tcp_pop(tri_store *self, const char *key, int64_t deadline_ns, void **value_out,
                          size_t *bytes_out)
{
    trii_tcp_store *store = trii_tcp_enter(self);
    int64_t pause = TRII_NS_PER_MS, now = trii_now_ns();
    tri_status status = pop_now(store, key, value_out, bytes_out);

    while (status == TRI_INPROGRESS && now < deadline_ns) {
        tri_status waited;

        store->out.used = 0;
        waited =
            wait_for(store, &key, 1, deadline_ns - now > LOOK_NS ? now + LOOK_NS : deadline_ns);
        if (waited != TRI_OK && (waited != TRI_ERR_TIMEOUT || store->fd < 0)) {
            status = waited;
            break;
        }
        if (!store->owed) /* of a server that is silent nothing more is asked */
            status = pop_now(store, key, value_out, bytes_out);
        now = trii_now_ns();
        if (waited == TRI_OK && status == TRI_INPROGRESS && now < deadline_ns) {
            trii_sleep_until(deadline_ns - now < pause ? deadline_ns : now + pause);
            pause = pause < 16 * TRII_NS_PER_MS ? 2 * pause : pause;
            now = trii_now_ns();
        }
    }
    return trii_tcp_leave(store, status);
}

static tri_status tcp_queue_length(tri_store *self, const char *key, int64_t *n_out)
{
    trii_tcp_store *store = trii_tcp_enter(self);
    int64_t answer = 0;
    tri_status status;

    trii_wire_put_u8(&store->out, TRII_WIRE_QUEUE_LEN);
    trii_tcp_put_key(store, key);
    status = ask(store, "queue_length", &answer, sizeof(answer));
    if (status == TRI_OK)
        *n_out = answer;
    return status;
}

static bool tcp_is_silent(tri_store *self)
{
    trii_tcp_store *store = trii_tcp_enter(self);
    bool silent = store->owed;

    (void)trii_tcp_leave(store, TRI_OK);
    return silent;
}

const trii_store_ops trii_tcp_ops = {
    .abi = TRII_STORE_ABI,
    .size = sizeof(trii_store_ops),
    .name = "tcp",
    .destroy = trii_tcp_destroy,
    .clone = trii_tcp_clone,
    .port = trii_tcp_port,
    .set = tcp_set,
    .multi_get = tcp_multi_get,
    .add = tcp_add,
    .compare_set = tcp_compare_set,
    .append = tcp_append,
    .wait = tcp_wait,
    .barrier = tcp_barrier,
    .check = tcp_check,
    .remove = tcp_remove,
    .num_keys = tcp_num_keys,
    .list = tcp_list,
    .multi_set = tcp_multi_set,
    .exchange = tcp_exchange,
    .push = tcp_push,
    .pop = tcp_pop,
    .queue_length = tcp_queue_length,
    .others = trii_tcp_others,
    .is_silent = tcp_is_silent,
};
