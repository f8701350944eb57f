/*
 * etcd_keys.c - reads, writes that happen once, watches.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "rendezvous-etcd/etcd_internal.h"
#include "os/clock.h"

tri_status trii_etcd_read(trii_etcd_client *client, const char *key, trii_etcd_reply *reply_out)
{
    trii_wire_buffer body = {0};
    tri_status status;

    trii_etcd_put_text(&body, "{\"key\":");
    trii_etcd_put_bytes(&body, key, strlen(key));
    trii_etcd_put_text(&body, "}");
    status = trii_etcd_call(client, "/v3/kv/range", &body, TRII_NO_DEADLINE, reply_out);
    trii_wire_buffer_fini(&body);
    return status;
}

/* --- writes ------------------------------------------------------------------
 *
 * if agent/NAME is what we wrote last, and the key is as expected:
 *     write; agent/NAME = the number of this write
 * else
 *     read agent/NAME; read the key
 *
 * The number tells an earlier attempt that was done from a key that is not as expected. */

static void put_write(trii_wire_buffer *body, const trii_etcd_write *w, int64_t lease)
{
    trii_etcd_put_text(body, w->remove ? "{\"request_delete_range\":{\"key\":"
                                       : "{\"request_put\":{\"key\":");
    trii_etcd_put_bytes(body, w->key, strlen(w->key));
    if (!w->remove) {
        trii_etcd_put_text(body, ",\"value\":");
        trii_etcd_put_bytes(body, w->value, w->bytes);
        trii_etcd_put_text(body, ",\"lease\":");
        trii_etcd_put_int(body, lease);
    }
    trii_etcd_put_text(body, "}}");
}

static void put_transaction(const trii_etcd_client *client, const trii_etcd_write *w,
                            const char *number, int64_t lease, trii_wire_buffer *body)
{
    const char *agent = client->agent_key;

    trii_etcd_put_text(body, "{\"compare\":[{\"target\":\"VALUE\",\"result\":\"EQUAL\",\"key\":");
    trii_etcd_put_bytes(body, agent, strlen(agent));
    trii_etcd_put_text(body, ",\"value\":");
    trii_etcd_put_bytes(body, client->seen, strlen(client->seen));
    if (w->when == TRII_ETCD_IF_SAME) {
        trii_etcd_put_text(body, "},{\"target\":\"MOD\",\"result\":\"EQUAL\",\"key\":");
        trii_etcd_put_bytes(body, w->key, strlen(w->key));
        trii_etcd_put_text(body, ",\"mod_revision\":");
        trii_etcd_put_int(body, w->revision);
    }
    trii_etcd_put_text(body, "}],\"success\":[");
    put_write(body, w, lease);
    trii_etcd_put_text(body, ",{\"request_put\":{\"ignore_lease\":true,\"key\":");
    trii_etcd_put_bytes(body, agent, strlen(agent));
    trii_etcd_put_text(body, ",\"value\":");
    trii_etcd_put_bytes(body, number, strlen(number));
    trii_etcd_put_text(body, "}}],\"failure\":[{\"request_range\":{\"key\":");
    trii_etcd_put_bytes(body, agent, strlen(agent));
    trii_etcd_put_text(body, "}},{\"request_range\":{\"key\":");
    trii_etcd_put_bytes(body, w->key, strlen(w->key));
    trii_etcd_put_text(body, "}}]}");
}

typedef enum verdict { DONE, NOT_DONE, AGAIN, UNREGISTERED } verdict;

static verdict judge(trii_etcd_client *client, const char *number, const trii_etcd_reply *reply)
{
    const char *there = reply->n_kvs > 0 && reply->kvs[0].op == 0 ? reply->kvs[0].value : NULL;

    if (reply->succeeded || (there != NULL && strcmp(there, number) == 0)) {
        snprintf(client->seen, sizeof(client->seen), "%s", number);
        return DONE;
    }
    if (there == NULL)
        return UNREGISTERED; /* our lease has ended */
    if (strcmp(there, client->seen) == 0)
        return NOT_DONE;
    /* An earlier write that we had given up came late. */
    snprintf(client->seen, sizeof(client->seen), "%.*s", (int)sizeof(client->seen) - 1, there);
    return AGAIN;
}

/* Without agent/NAME, which the caller knows nothing of. */
static void drop_first(trii_etcd_reply *reply)
{
    if (reply->n_kvs == 0 || reply->kvs[0].op != 0)
        return;
    trii_free(reply->kvs[0].key);
    trii_free(reply->kvs[0].value);
    reply->n_kvs--;
    memmove(reply->kvs, reply->kvs + 1, (size_t)reply->n_kvs * sizeof(*reply->kvs));
}

static tri_status write_locked(trii_etcd_client *client, const trii_etcd_write *w, bool *done_out,
                               trii_etcd_reply *reply_out)
{
    int64_t deadline = trii_deadline_ms(client->settings.timeout_ms);
    char number[24];

    snprintf(number, sizeof(number), "%lld", (long long)++client->serial);
    for (;;) {
        trii_wire_buffer body = {0};
        trii_etcd_reply reply = {0};
        int64_t lease = atomic_load(&client->job_lease);
        verdict what = AGAIN;
        tri_status status;

        put_transaction(client, w, number, lease, &body);
        status = trii_etcd_call(client, "/v3/kv/txn", &body, deadline, &reply);
        trii_wire_buffer_fini(&body);
        if (status == TRI_OK)
            what = judge(client, number, &reply);
        else if (status == TRI_ERR_NOT_FOUND) /* the job's lease */
            status = trii_etcd_lease_renew(client, lease, deadline);
        if (status == TRI_OK && what == UNREGISTERED)
            status = trii_etcd_register(client, deadline);
        if (status == TRI_OK && (what == DONE || what == NOT_DONE)) {
            drop_first(&reply);
            *done_out = what == DONE;
            *reply_out = reply;
            return TRI_OK;
        }
        trii_etcd_reply_fini(&reply);
        if (status == TRI_OK && trii_now_ns() > deadline)
            status = TRII_FAIL(TRI_ERR_TIMEOUT, "etcd at %s: a write was not done", client->where);
        if (status != TRI_OK)
            return status;
    }
}

tri_status trii_etcd_write_once(trii_etcd_client *client, const trii_etcd_write *write,
                                bool *done_out, trii_etcd_reply *reply_out)
{
    tri_status status;

    trii_mutex_lock(&client->write_mutex);
    status = write_locked(client, write, done_out, reply_out);
    trii_mutex_unlock(&client->write_mutex);
    return status;
}

/* --- watches -------------------------------------------------------------- */

typedef struct watching {
    bool (*event)(void *arg, const trii_etcd_kv *kv);
    void *arg;
    bool found;  /* the caller has what it wants */
    bool failed; /* in the stream: no leader, or the revision is not there any more */
} watching;

static bool on_line(void *arg, const char *text, size_t bytes)
{
    watching *w = arg;
    trii_etcd_reply reply = {0};
    tri_status status = trii_etcd_reply_read(text, bytes, &reply);

    w->failed = status != TRI_OK || reply.failed || reply.canceled || reply.compact_revision > 0;
    for (int i = 0; i < reply.n_kvs && !w->found && !w->failed; i++)
        w->found = !w->event(w->arg, &reply.kvs[i]);
    trii_etcd_reply_fini(&reply);
    return !w->found && !w->failed;
}

tri_status trii_etcd_watch(trii_etcd_client *client, const char *first, const char *last,
                           int64_t revision, int64_t deadline_ns,
                           bool (*event)(void *arg, const trii_etcd_kv *kv), void *arg)
{
    watching w = {.event = event, .arg = arg};
    int endpoint = trii_etcd_endpoint(client);
    trii_wire_buffer body = {0};
    trii_etcd_answer answer;
    trii_etcd_post post = {.deadline_ns = deadline_ns, .line = on_line, .arg = &w};
    tri_status status;

    trii_etcd_put_text(&body, "{\"create_request\":{\"key\":");
    trii_etcd_put_bytes(&body, first, strlen(first));
    trii_etcd_put_text(&body, ",\"range_end\":");
    trii_etcd_put_bytes(&body, last, strlen(last) + 1); /* with its zero byte: what follows it */
    trii_etcd_put_text(&body, ",\"start_revision\":");
    trii_etcd_put_int(&body, revision + 1);
    trii_etcd_put_text(&body, "}}");
    if (body.failed)
        return TRI_ERR_NO_MEMORY;
    post.body = body.data;
    post.bytes = body.used;
    status = trii_etcd_attempt(client, endpoint, "/v3/watch", &post, &answer);
    trii_wire_buffer_fini(&answer.body);
    trii_wire_buffer_fini(&body);
    if (status == TRI_ERR_NO_MEMORY)
        return status;
    if (w.found)
        return TRI_OK;
    if (trii_now_ns() >= deadline_ns)
        return TRI_ERR_TIMEOUT;
    if (w.failed || status == TRI_ERR_IO || status == TRI_ERR_TIMEOUT)
        trii_etcd_avoid(client, endpoint);
    return TRI_INPROGRESS;
}
