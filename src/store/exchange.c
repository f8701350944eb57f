/*
 * exchange.c - see exchange.h. Called by the rendezvous (src/launch/rendezvous), by
 * comm/group/form/group_agree.c and by prefix_store.c. Passes several calls to a kind of store that
 * can send them together (tcp), and makes them one after the other for those that cannot. Most of
 * what brought a start of two hosts over a link of 200 ms there and back from 15 s to 4.2 s is that
 * the keys of a round go in one exchange.
 */
/* build: leaf */
#include "store/exchange.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/clock.h"
#include "store/store_ops.h"

static tri_status do_call(tri_store *store, trii_store_call *call)
{
    static const char absent[] = TRII_STORE_ABSENT;
    const size_t bytes = sizeof(absent) - 1;
    void **value_out = (void **)&call->value;
    bool there = false;
    tri_status status;

    switch (call->kind) {
    case TRII_STORE_SET:
        return tri_store_set(store, call->key, call->text, strlen(call->text));
    case TRII_STORE_ADD:
        return tri_store_add(store, call->key, call->number, &call->number);
    case TRII_STORE_READ:
        return tri_store_compare_set(store, call->key, absent, bytes, absent, bytes, value_out,
                                     &call->bytes);
    case TRII_STORE_CHECK:
        status = tri_store_check(store, &call->key, 1, &there);
        call->number = there;
        return status;
    case TRII_STORE_DELETE:
        status = tri_store_delete(store, call->key, &there);
        call->number = there;
        return status;
    case TRII_STORE_CLAIM:
        break;
    }
    return tri_store_compare_set(store, call->key, "", 0, call->text, strlen(call->text), value_out,
                                 &call->bytes);
}

static tri_status one_by_one(tri_store *store, trii_store_call *calls, int n_calls,
                             const char *const *keys, int n_keys, int64_t timeout_ms,
                             void **values_out, size_t *bytes_out)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < n_calls && status == TRI_OK; i++)
        status = do_call(store, &calls[i]);
    if (status != TRI_OK || n_keys == 0)
        return status;
    return values_out != NULL
               ? tri_store_multi_get(store, keys, n_keys, timeout_ms, values_out, bytes_out)
               : tri_store_wait(store, keys, n_keys, timeout_ms);
}

/* Aside, so that a failure leaves the caller's arrays alone. */
static tri_status in_one(tri_store *store, trii_store_call *calls, int n_calls,
                         const char *const *keys, int n_keys, int64_t timeout_ms, void **values_out,
                         size_t *bytes_out)
{
    size_t n = values_out != NULL ? (size_t)n_keys : 0;
    void **values = NULL;
    size_t *bytes = NULL;
    tri_status status;

    if (n > 0) {
        values = trii_alloc(n, sizeof(*values) + sizeof(*bytes), "store values");
        if (values == NULL)
            return TRI_ERR_NO_MEMORY;
        bytes = (size_t *)(values + n);
    }
    status = store->ops->exchange(
        store, calls, n_calls, keys, n_keys,
        trii_deadline_ms(timeout_ms != 0 ? timeout_ms : store->timeout_ms), values, bytes);
    for (size_t i = 0; i < n && status == TRI_OK; i++) {
        values_out[i] = values[i];
        if (bytes_out != NULL)
            bytes_out[i] = bytes[i];
    }
    trii_free(values);
    return status;
}

static tri_status check_key(const char *key)
{
    return strlen(key) <= TRI_STORE_MAX_KEY
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_INVALID_ARG, "store: key \"%.40s...\" is too long", key);
}

tri_status trii_store_exchange(tri_store *store, trii_store_call *calls, int n_calls,
                               const char *const *keys, int n_keys, int64_t timeout_ms,
                               void **values_out, size_t *bytes_out)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < n_calls; i++)
        calls[i].value = NULL;
    for (int i = 0; i < n_calls && status == TRI_OK; i++)
        status = check_key(calls[i].key);
    for (int i = 0; i < n_keys && status == TRI_OK; i++)
        status = check_key(keys[i]);
    if (status != TRI_OK)
        return status;
    status = (store->ops->exchange != NULL ? in_one : one_by_one)(
        store, calls, n_calls, keys, n_keys, timeout_ms, values_out, bytes_out);
    if (status != TRI_OK)
        trii_store_calls_free(calls, n_calls);
    for (int i = 0; i < n_calls; i++) {
        if (calls[i].kind == TRII_STORE_READ && calls[i].value != NULL &&
            strcmp(calls[i].value, TRII_STORE_ABSENT) == 0)
            trii_store_calls_free(&calls[i], 1);
    }
    return status;
}

tri_status trii_store_calls(tri_store *store, trii_store_call *calls, int n_calls)
{
    return trii_store_exchange(store, calls, n_calls, NULL, 0, 0, NULL, NULL);
}

tri_status trii_store_read(tri_store *store, const char *key, char **value_out)
{
    trii_store_call call = {.kind = TRII_STORE_READ, .key = key};
    tri_status status = trii_store_calls(store, &call, 1);

    *value_out = call.value;
    return status;
}

tri_status trii_store_peek(tri_store *store, const char *const *keys, trii_store_call *calls, int n)
{
    tri_status status;
    int n_there = 0;

    for (int r = 0; r < n; r++)
        calls[r] = (trii_store_call){.kind = TRII_STORE_CHECK, .key = keys[r]};
    status = trii_store_calls(store, calls, n);
    for (int r = 0; r < n && status == TRI_OK; r++) {
        if (calls[r].number != 0)
            calls[n_there++] = (trii_store_call){.kind = TRII_STORE_READ, .key = keys[r]};
    }
    if (status == TRI_OK && n_there > 0)
        status = trii_store_calls(store, calls, n_there);
    for (int r = n - 1; r >= 0 && status == TRI_OK; r--) { /* each to its place */
        bool there = n_there > 0 && calls[n_there - 1].key == keys[r];
        char *value = there ? calls[n_there - 1].value : NULL;

        n_there -= there;
        calls[r] = (trii_store_call){.key = keys[r], .value = value};
    }
    return status;
}

void trii_store_calls_free(trii_store_call *calls, int n_calls)
{
    for (int i = 0; i < n_calls; i++) {
        tri_store_free(calls[i].value);
        calls[i].value = NULL;
    }
}
