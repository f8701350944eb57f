/*
 * etcd_lease.c - a client's beginning and end, and its leases: one for what belongs to the job,
 * which all agents keep alive together, and one of its own.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "rendezvous-etcd/etcd_internal.h"
#include "os/clock.h"

#define OWN_LEASE_S 10
#define GOODBYE_MS 2000

/* --- leases --------------------------------------------------------------- */

static tri_status lease_call(trii_etcd_client *client, const char *path, const char *field,
                             int64_t number, int64_t deadline_ns, trii_etcd_reply *reply_out)
{
    trii_wire_buffer body = {0};
    tri_status status;

    trii_etcd_put_text(&body, "{\"");
    trii_etcd_put_text(&body, field);
    trii_etcd_put_text(&body, "\":");
    trii_etcd_put_int(&body, number);
    trii_etcd_put_text(&body, "}");
    status = trii_etcd_call(client, path, &body, deadline_ns, reply_out);
    trii_wire_buffer_fini(&body);
    return status;
}

static tri_status grant(trii_etcd_client *client, int64_t seconds, int64_t deadline_ns,
                        int64_t *lease_out)
{
    trii_etcd_reply reply = {0};
    tri_status status = lease_call(client, "/v3/lease/grant", "TTL", seconds, deadline_ns, &reply);

    if (status == TRI_OK && reply.lease == 0)
        status = TRII_FAIL(TRI_ERR_FORMAT, "etcd at %s granted no lease", client->where);
    if (status == TRI_OK)
        *lease_out = reply.lease;
    trii_etcd_reply_fini(&reply);
    return status;
}

/* *alive_out false: it has ended. */
static tri_status keep_alive(trii_etcd_client *client, int64_t lease, int64_t deadline_ns,
                             bool *alive_out)
{
    trii_etcd_reply reply = {0};
    tri_status status = lease_call(client, "/v3/lease/keepalive", "ID", lease, deadline_ns, &reply);

    if (status == TRI_OK)
        *alive_out = reply.ttl > 0;
    trii_etcd_reply_fini(&reply);
    return status;
}

static void revoke(trii_etcd_client *client, int64_t lease, int64_t deadline_ns)
{
    trii_etcd_reply reply = {0};
    tri_status status = lease_call(client, "/v3/lease/revoke", "ID", lease, deadline_ns, &reply);

    (void)status; /* then it ends by itself */
    trii_etcd_reply_fini(&reply);
}

/* Writes our lease's number where the others look, unless another number came there first. */
static tri_status publish(trii_etcd_client *client, int64_t lease, int64_t revision,
                          int64_t deadline_ns, bool *ours_out)
{
    trii_wire_buffer body = {0};
    trii_etcd_reply reply = {0};
    char text[24];
    tri_status status;

    snprintf(text, sizeof(text), "%lld", (long long)lease);
    trii_etcd_put_text(&body, "{\"compare\":[{\"target\":\"MOD\",\"result\":\"EQUAL\",\"key\":");
    trii_etcd_put_bytes(&body, client->lease_key, strlen(client->lease_key));
    trii_etcd_put_text(&body, ",\"mod_revision\":");
    trii_etcd_put_int(&body, revision);
    trii_etcd_put_text(&body, "}],\"success\":[{\"request_put\":{\"key\":");
    trii_etcd_put_bytes(&body, client->lease_key, strlen(client->lease_key));
    trii_etcd_put_text(&body, ",\"value\":");
    trii_etcd_put_bytes(&body, text, strlen(text));
    trii_etcd_put_text(&body, ",\"lease\":");
    trii_etcd_put_int(&body, lease);
    trii_etcd_put_text(&body, "}}],\"failure\":[{\"request_range\":{\"key\":");
    trii_etcd_put_bytes(&body, client->lease_key, strlen(client->lease_key));
    trii_etcd_put_text(&body, "}}]}");
    status = trii_etcd_call(client, "/v3/kv/txn", &body, deadline_ns, &reply);
    /* An answer to this client was lost: the lease that is there is its own. */
    if (status == TRI_OK)
        *ours_out = reply.succeeded || (reply.n_kvs == 1 && strcmp(reply.kvs[0].value, text) == 0);
    trii_etcd_reply_fini(&reply);
    trii_wire_buffer_fini(&body);
    return status;
}

/* The lease that the others keep, if it lives, else a new one. */
static tri_status find_job_lease(trii_etcd_client *client, int64_t deadline_ns, int64_t *lease_out)
{
    for (;;) {
        trii_etcd_reply reply = {0};
        int64_t lease = 0, revision = 0;
        bool good = false;
        tri_status status = trii_etcd_read(client, client->lease_key, &reply);

        if (status == TRI_OK && reply.n_kvs == 1) {
            lease = strtoll(reply.kvs[0].value, NULL, 10);
            revision = reply.kvs[0].mod_revision;
            status = keep_alive(client, lease, deadline_ns, &good);
        }
        trii_etcd_reply_fini(&reply);
        if (status == TRI_OK && !good) {
            status = grant(client, client->settings.lease_s, deadline_ns, &lease);
            if (status == TRI_OK)
                status = publish(client, lease, revision, deadline_ns, &good);
            if (status == TRI_OK && !good)
                revoke(client, lease, deadline_ns); /* somebody was faster: look again */
        }
        if (status == TRI_OK && !good && trii_now_ns() > deadline_ns)
            status = TRII_FAIL(TRI_ERR_TIMEOUT, "etcd at %s: no lease", client->where);
        if (status != TRI_OK || good) {
            if (status == TRI_OK)
                *lease_out = lease;
            return status;
        }
    }
}

tri_status trii_etcd_lease_renew(trii_etcd_client *client, int64_t seen, int64_t deadline_ns)
{
    int64_t lease = 0;
    tri_status status = TRI_OK;

    trii_mutex_lock(&client->lease_mutex);
    if (atomic_load(&client->job_lease) == seen) {
        if (seen != 0)
            TRII_LOG(TRII_LOG_WARN, "launch",
                     "the lease of job %s in etcd has expired: no agent renewed it for %lld s",
                     client->settings.run_id, (long long)client->settings.lease_s);
        status = find_job_lease(client, deadline_ns, &lease);
        if (status == TRI_OK)
            atomic_store(&client->job_lease, lease);
    }
    trii_mutex_unlock(&client->lease_mutex);
    return status;
}

static tri_status renew_own(trii_etcd_client *client, int64_t seen, int64_t deadline_ns)
{
    int64_t lease = 0;
    tri_status status = TRI_OK;

    trii_mutex_lock(&client->lease_mutex);
    if (atomic_load(&client->own_lease) == seen) {
        status = grant(client, OWN_LEASE_S, deadline_ns, &lease);
        if (status == TRI_OK)
            atomic_store(&client->own_lease, lease);
    }
    trii_mutex_unlock(&client->lease_mutex);
    return status;
}

tri_status trii_etcd_register(trii_etcd_client *client, int64_t deadline_ns)
{
    tri_status status;

    snprintf(client->seen, sizeof(client->seen), "%lld", (long long)++client->serial);
    do {
        trii_wire_buffer body = {0};
        trii_etcd_reply reply = {0};
        int64_t lease = atomic_load(&client->own_lease);

        trii_etcd_put_text(&body, "{\"key\":");
        trii_etcd_put_bytes(&body, client->agent_key, strlen(client->agent_key));
        trii_etcd_put_text(&body, ",\"value\":");
        trii_etcd_put_bytes(&body, client->seen, strlen(client->seen));
        trii_etcd_put_text(&body, ",\"lease\":");
        trii_etcd_put_int(&body, lease);
        trii_etcd_put_text(&body, "}");
        status = trii_etcd_call(client, "/v3/kv/put", &body, deadline_ns, &reply);
        trii_etcd_reply_fini(&reply);
        trii_wire_buffer_fini(&body);
        if (status == TRI_ERR_NOT_FOUND) { /* the lease has ended */
            status = renew_own(client, lease, deadline_ns);
            status = status == TRI_OK ? TRI_INPROGRESS : status;
        }
    } while (status == TRI_INPROGRESS && trii_now_ns() < deadline_ns);
    return status == TRI_INPROGRESS
               ? TRII_FAIL(TRI_ERR_TIMEOUT, "etcd at %s: leases end at once", client->where)
               : status;
}

static void beat_once(trii_etcd_client *client, int64_t period_ms)
{
    int64_t job = atomic_load(&client->job_lease), own = atomic_load(&client->own_lease);
    int64_t deadline = trii_deadline_ms(period_ms);
    bool alive = true;
    tri_status status = keep_alive(client, job, deadline, &alive);

    if (status == TRI_OK && !alive)
        status = trii_etcd_lease_renew(client, job, deadline);
    alive = true;
    if (status == TRI_OK)
        status = keep_alive(client, own, deadline, &alive);
    if (status == TRI_OK && !alive)
        status = renew_own(client, own, deadline); /* the next write puts our key again */
    if (status != TRI_OK && !atomic_load(&client->stop))
        TRII_LOG(TRII_LOG_INFO, "launch", "leases of job %s were not renewed",
                 client->settings.run_id);
}

static void beat_main(void *arg)
{
    trii_etcd_client *client = arg;
    int64_t shorter =
        client->settings.lease_s < OWN_LEASE_S ? client->settings.lease_s : OWN_LEASE_S;
    int64_t period_ms = shorter * 1000 / 4;

    trii_mutex_lock(&client->beat_mutex);
    while (!atomic_load(&client->stop)) {
        int64_t next = trii_deadline_ms(period_ms);

        while (!atomic_load(&client->stop) &&
               trii_cond_wait_until(&client->beat_stop, &client->beat_mutex, next))
            ;
        if (atomic_load(&client->stop))
            break;
        trii_mutex_unlock(&client->beat_mutex);
        beat_once(client, period_ms);
        trii_mutex_lock(&client->beat_mutex);
    }
    trii_mutex_unlock(&client->beat_mutex);
}

/* --- end ------------------------------------------------------------------ */

/* Unless another agent is there (one whose create_revision is not 0), the store's keys go; the
 * state stays until the lease ends, so that a late agent hears how it ended. */
static void clean_up(trii_etcd_client *client, int64_t deadline_ns)
{
    static const char *const parts[] = {
        "{\"compare\":[{\"target\":\"CREATE\",\"result\":\"EQUAL\",\"key\":", ",\"range_end\":",
        "}],\"success\":[{\"request_delete_range\":{\"key\":", ",\"range_end\":", "}}]}"};
    static const char *const ends[] = {"agent/", "agent0", "kv/", "kv0"}; /* '0' follows '/' */
    size_t n = strlen(client->root);
    char *key = trii_alloc(n + 8, 1, "etcd key");
    trii_wire_buffer body = {0};
    trii_etcd_reply reply = {0};
    tri_status status;

    if (key == NULL)
        return;
    for (size_t i = 0; i < TRII_COUNT_OF(parts); i++) {
        trii_etcd_put_text(&body, parts[i]);
        if (i < TRII_COUNT_OF(ends)) {
            snprintf(key, n + 8, "%s%s", client->root, ends[i]);
            trii_etcd_put_bytes(&body, key, strlen(key));
        }
    }
    revoke(client, atomic_load(&client->own_lease), deadline_ns); /* takes agent/NAME with it */
    status = trii_etcd_call(client, "/v3/kv/txn", &body, deadline_ns, &reply);
    (void)status; /* then the keys end with their lease */
    trii_etcd_reply_fini(&reply);
    trii_wire_buffer_fini(&body);
    trii_free(key);
}

static void destroy(trii_etcd_client *client)
{
    if (client->beating) {
        trii_mutex_lock(&client->beat_mutex);
        atomic_store(&client->stop, true);
        trii_cond_broadcast(&client->beat_stop);
        trii_mutex_unlock(&client->beat_mutex);
        trii_thread_join(&client->beat);
        atomic_store(&client->stop, false);
    }
    if (atomic_load(&client->own_lease) != 0)
        clean_up(client, trii_deadline_ms(GOODBYE_MS));
    for (int i = 0; i < client->n_idle; i++)
        trii_etcd_http_destroy(client->idle[i]);
    trii_cond_fini(&client->beat_stop);
    trii_mutex_fini(&client->beat_mutex);
    trii_mutex_fini(&client->lease_mutex);
    trii_mutex_fini(&client->write_mutex);
    trii_mutex_fini(&client->mutex);
    trii_free(client->texts);
    trii_free(client);
}

trii_etcd_client *trii_etcd_client_ref(trii_etcd_client *client)
{
    atomic_fetch_add(&client->refs, 1);
    return client;
}

void trii_etcd_client_unref(trii_etcd_client *client)
{
    if (client != NULL && atomic_fetch_sub(&client->refs, 1) == 1)
        destroy(client);
}

/* --- beginning ------------------------------------------------------------ */

static const char *keep(char **at, const char *text)
{
    char *copy = *at;

    if (text == NULL)
        return NULL;
    memcpy(copy, text, strlen(text) + 1);
    *at += strlen(text) + 1;
    return copy;
}

/* "PREFIX/ID/", with no slash inside the ID: no job's folder lies in another's. */
static char *write_root(char **at, const trii_etcd_settings *s)
{
    static const char hex[] = "0123456789ABCDEF";
    char *root = *at, *out = root;

    memcpy(out, s->prefix, strlen(s->prefix));
    out += strlen(s->prefix);
    if (out == root || out[-1] != '/')
        *out++ = '/';
    for (const char *c = s->run_id; *c != '\0'; c++) {
        if (*c != '/' && *c != '%') {
            *out++ = *c;
            continue;
        }
        *out++ = '%';
        *out++ = hex[(unsigned char)*c >> 4];
        *out++ = hex[(unsigned char)*c & 15];
    }
    *out++ = '/';
    *out++ = '\0';
    *at = out;
    return root;
}

static char *write_key(char **at, const char *root, const char *a, const char *b)
{
    size_t bytes = strlen(root) + strlen(a) + strlen(b) + 1;
    char *key = *at;

    snprintf(key, bytes, "%s%s%s", root, a, b);
    *at += bytes;
    return key;
}

static tri_status copy_settings(trii_etcd_client *client, const trii_etcd_settings *s)
{
    const char *const texts[] = {s->endpoints, s->protocol, s->ca_cert, s->cert,   s->key,
                                 s->user,      s->password, s->prefix,  s->run_id, s->name};
    size_t bytes = 256;
    char *at;

    for (size_t i = 0; i < TRII_COUNT_OF(texts); i++)
        bytes += texts[i] != NULL ? strlen(texts[i]) + 1 : 0;
    bytes += 3 * (strlen(s->prefix) + 3 * strlen(s->run_id)) + strlen(s->name);
    client->texts = at = trii_alloc(bytes, 1, "etcd settings");
    if (at == NULL)
        return TRI_ERR_NO_MEMORY;
    client->settings = *s;
    client->settings.endpoints = keep(&at, s->endpoints);
    client->settings.protocol = keep(&at, s->protocol);
    client->settings.ca_cert = keep(&at, s->ca_cert);
    client->settings.cert = keep(&at, s->cert);
    client->settings.key = keep(&at, s->key);
    client->settings.user = keep(&at, s->user);
    client->settings.password = keep(&at, s->password);
    client->settings.prefix = keep(&at, s->prefix);
    client->settings.run_id = keep(&at, s->run_id);
    client->settings.name = keep(&at, s->name);
    client->root = write_root(&at, s);
    client->agent_key = write_key(&at, client->root, "agent/", s->name);
    client->lease_key = write_key(&at, client->root, "lease", "");
    return TRI_OK;
}

static tri_status open_leases(trii_etcd_client *client)
{
    int64_t deadline = trii_deadline_ms(client->settings.open_timeout_ms), own = 0;
    tri_status status = grant(client, OWN_LEASE_S, deadline, &own);

    if (status == TRI_OK) {
        atomic_store(&client->own_lease, own);
        status = trii_etcd_lease_renew(client, 0, trii_deadline_ms(client->settings.timeout_ms));
    }
    if (status == TRI_OK) {
        trii_mutex_lock(&client->write_mutex);
        status = trii_etcd_register(client, trii_deadline_ms(client->settings.timeout_ms));
        trii_mutex_unlock(&client->write_mutex);
    }
    if (status == TRI_OK)
        status = trii_thread_start(&client->beat, "etcd-leases", beat_main, client);
    client->beating = status == TRI_OK;
    return status;
}

tri_status trii_etcd_client_create(const trii_etcd_settings *settings,
                                   trii_etcd_client **client_out)
{
    trii_etcd_client *client = trii_alloc(1, sizeof(*client), "etcd client");
    tri_status status;

    if (client == NULL)
        return TRI_ERR_NO_MEMORY;
    atomic_init(&client->refs, 1);
    trii_mutex_init(&client->mutex);
    trii_mutex_init(&client->write_mutex);
    trii_mutex_init(&client->lease_mutex);
    trii_mutex_init(&client->beat_mutex);
    trii_cond_init(&client->beat_stop);
    status = copy_settings(client, settings);
    if (status == TRI_OK)
        status = trii_etcd_read_endpoints(client);
    if (status == TRI_OK)
        status = open_leases(client);
    if (status == TRI_OK) {
        *client_out = client;
    } else {
        atomic_store(&client->own_lease, 0); /* it ends by itself; the error line stays */
        trii_etcd_client_unref(client);
    }
    return status;
}

const char *trii_etcd_client_root(const trii_etcd_client *client)
{
    return client->root;
}

int64_t trii_etcd_client_timeout_ms(const trii_etcd_client *client)
{
    return client->settings.timeout_ms;
}
