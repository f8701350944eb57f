/*
 * etcd_call.c - one call to a cluster: the servers are asked one after the other until one answers;
 * what a server says that will be over soon (no leader, overload) counts as no answer.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "rendezvous-etcd/etcd_internal.h"
#include "os/clock.h"

#define ALONE_MS 7000 /* one attempt at the only server */
#define ONE_MS 2000   /* ... where there are others */
#define PAUSE_MS 20   /* after all have failed, at first */
#define PAUSE_MAX_MS 500
#define NOT_NEEDED "-" /* a token: this etcd has no users */

/* --- servers -------------------------------------------------------------- */

static tri_status add_endpoint(trii_etcd_client *client, const char *text, size_t n)
{
    const char *protocol = client->settings.protocol, *port, *end;
    char one[256];

    if (n >= 7 && memcmp(text, "http://", 7) == 0)
        protocol = "http", text += 7, n -= 7;
    else if (n >= 8 && memcmp(text, "https://", 8) == 0)
        protocol = "https", text += 8, n -= 8;
    while (n > 0 && (text[n - 1] == '/' || text[n - 1] == ' '))
        n--;
    while (n > 0 && *text == ' ')
        text++, n--;
    if (n == 0)
        return TRI_OK;
    if (n >= sizeof(one) || client->n_endpoints == TRII_ETCD_MAX_ENDPOINTS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--rdzv-endpoint: more than %d servers, or too long",
                         TRII_ETCD_MAX_ENDPOINTS);
    memcpy(one, text, n);
    one[n] = '\0';
    end = strchr(one, ']');
    port = strchr(end != NULL ? end : one, ':');
    if (strspn(one, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:-_[]%") != n ||
        (*one == '[') != (end != NULL))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--rdzv-endpoint: %s is not HOST:PORT", one);
    snprintf(client->endpoints[client->n_endpoints], sizeof(client->endpoints[0]),
             port != NULL ? "%s://%s" : "%s://%s:%d", protocol, one, TRII_ETCD_PORT);
    client->has_scheme[client->n_endpoints] = protocol != client->settings.protocol;
    client->n_endpoints++;
    return TRI_OK;
}

tri_status trii_etcd_read_endpoints(trii_etcd_client *client)
{
    const char *at = client->settings.endpoints;
    tri_status status = TRI_OK;
    size_t used = 0;

    while (status == TRI_OK && *at != '\0') {
        size_t n = strcspn(at, ",");

        status = add_endpoint(client, at, n);
        at += n + (at[n] == ',');
    }
    if (status == TRI_OK && client->n_endpoints == 0)
        status = add_endpoint(client, "localhost", 9);
    for (int i = 0; i < client->n_endpoints && used < sizeof(client->where); i++)
        used += (size_t)snprintf(client->where + used, sizeof(client->where) - used, "%s%s",
                                 i > 0 ? ", " : "", client->endpoints[i]);
    return status;
}

int trii_etcd_endpoint(trii_etcd_client *client)
{
    int endpoint;

    trii_mutex_lock(&client->mutex);
    endpoint = client->current;
    trii_mutex_unlock(&client->mutex);
    return endpoint;
}

void trii_etcd_avoid(trii_etcd_client *client, int endpoint)
{
    trii_mutex_lock(&client->mutex);
    if (client->current == endpoint)
        client->current = (endpoint + 1) % client->n_endpoints;
    trii_mutex_unlock(&client->mutex);
}

/* --- one attempt ---------------------------------------------------------- */

tri_status trii_etcd_attempt(trii_etcd_client *client, int endpoint, const char *path,
                             trii_etcd_post *post, trii_etcd_answer *answer_out)
{
    char url[400], token[sizeof(client->token)];
    trii_etcd_http *http = NULL;
    tri_status status = TRI_OK;

    memset(answer_out, 0, sizeof(*answer_out));
    trii_mutex_lock(&client->mutex);
    memcpy(token, client->token, sizeof(token));
    if (client->n_idle > 0)
        http = client->idle[--client->n_idle];
    trii_mutex_unlock(&client->mutex);
    if (http == NULL)
        status = trii_etcd_http_create(&client->settings, &http);
    if (status != TRI_OK)
        return status;
    snprintf(url, sizeof(url), "%s%s", client->endpoints[endpoint], path);
    post->url = url;
    post->token = strcmp(token, NOT_NEEDED) == 0 ? "" : token;
    post->stop = &client->stop;
    status = trii_etcd_http_post(http, post, answer_out);
    trii_mutex_lock(&client->mutex);
    if (answer_out->local[0] != '\0')
        memcpy(client->local, answer_out->local, sizeof(client->local));
    if (client->n_idle < TRII_ETCD_IDLE) {
        client->idle[client->n_idle++] = http;
        http = NULL;
    }
    trii_mutex_unlock(&client->mutex);
    trii_etcd_http_destroy(http);
    return status;
}

void trii_etcd_client_address(trii_etcd_client *client, char *text_out, size_t bytes)
{
    trii_mutex_lock(&client->mutex);
    snprintf(text_out, bytes, "%s", client->local);
    trii_mutex_unlock(&client->mutex);
}

/* --- users ---------------------------------------------------------------- */

static bool is_login_asked(int code, const trii_etcd_reply *reply)
{
    return code == 401 || reply->code == 16 ||
           strstr(reply->message, "user name is empty") != NULL ||
           strstr(reply->message, "invalid auth token") != NULL;
}

/* INPROGRESS: the server did not answer; why says what came instead. */
static tri_status login(trii_etcd_client *client, int endpoint, int64_t deadline_ns, char *why)
{
    trii_wire_buffer body = {0};
    trii_etcd_answer answer;
    trii_etcd_reply reply = {0};
    trii_etcd_post post = {.deadline_ns = deadline_ns};
    tri_status status;

    trii_etcd_put_text(&body, "{\"name\":");
    trii_etcd_put_string(&body, client->settings.user);
    trii_etcd_put_text(&body, ",\"password\":");
    trii_etcd_put_string(&body, client->settings.password != NULL ? client->settings.password : "");
    trii_etcd_put_text(&body, "}");
    post.body = body.data;
    post.bytes = body.used;
    status = body.failed
                 ? TRI_ERR_NO_MEMORY
                 : trii_etcd_attempt(client, endpoint, "/v3/auth/authenticate", &post, &answer);
    if (!body.failed && status == TRI_OK)
        status = trii_etcd_reply_read(answer.body.data != NULL ? answer.body.data : "",
                                      answer.body.used, &reply);
    if (!body.failed)
        trii_wire_buffer_fini(&answer.body);
    trii_wire_buffer_fini(&body);
    if (status == TRI_ERR_NO_MEMORY)
        return status;
    if (answer.code != 0)
        snprintf(why, TRII_ETCD_WHY, "HTTP status %d to the login of user %s", answer.code,
                 client->settings.user);
    else
        snprintf(why, TRII_ETCD_WHY, "%s", answer.why);
    if (status != TRI_OK || answer.code >= 500)
        status = TRI_INPROGRESS;
    else if (strstr(reply.message, "not enabled") != NULL)
        status = TRI_OK; /* everybody may do everything */
    else if (reply.token[0] == '\0')
        status = TRII_FAIL(TRI_ERR_IO,
                           "etcd at %s does not let in user %s: %s; see user and "
                           "password of --rdzv-conf",
                           client->endpoints[endpoint], client->settings.user, reply.message);
    trii_mutex_lock(&client->mutex);
    if (status == TRI_OK)
        snprintf(client->token, sizeof(client->token), "%s",
                 reply.token[0] != '\0' ? reply.token : NOT_NEEDED);
    trii_mutex_unlock(&client->mutex);
    trii_etcd_reply_fini(&reply);
    return status;
}

static bool is_logged_in(trii_etcd_client *client)
{
    bool is;

    trii_mutex_lock(&client->mutex);
    is = client->settings.user == NULL || client->token[0] != '\0';
    trii_mutex_unlock(&client->mutex);
    return is;
}

static void log_out(trii_etcd_client *client)
{
    trii_mutex_lock(&client->mutex);
    client->token[0] = '\0';
    trii_mutex_unlock(&client->mutex);
}

/* --- a call --------------------------------------------------------------- */

static bool will_pass(int code, const trii_etcd_reply *reply)
{
    return code == 429 || code >= 500 || reply->code == 14 || reply->code == 4;
}

/* What a server said, judged. INPROGRESS: ask again, perhaps another; why says what is wrong. */
static tri_status judge(trii_etcd_client *client, int endpoint, const char *path,
                        const trii_etcd_answer *answer, trii_etcd_reply *reply, char *why)
{
    const char *text = answer->body.data != NULL ? answer->body.data : "";
    tri_status status = trii_etcd_reply_read(text, answer->body.used, reply);

    if (status == TRI_ERR_NO_MEMORY)
        return status;
    if (status != TRI_OK && answer->code >= 500) {
        size_t line = strcspn(text, "\r\n");

        snprintf(why, TRII_ETCD_WHY, "HTTP status %d and \"%.*s\"", answer->code,
                 (int)(line < 80 ? line : 80), text);
        return TRI_INPROGRESS;
    }
    if (status != TRI_OK)
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s answers %s with HTTP status %d and \"%.*s\": this is not etcd's v3 "
                         "gateway (etcd 3.4 or later), or not its protocol (--rdzv-conf "
                         "protocol=http or https)",
                         client->endpoints[endpoint], path, answer->code,
                         (int)(answer->body.used < 80 ? answer->body.used : 80), text);
    if (!reply->failed && answer->code == 200)
        return TRI_OK;
    snprintf(why, TRII_ETCD_WHY, "%s (HTTP status %d)", reply->message, answer->code);
    if (is_login_asked(answer->code, reply) && client->settings.user != NULL) {
        log_out(client);
        return TRI_INPROGRESS;
    }
    if (is_login_asked(answer->code, reply))
        return TRII_FAIL(TRI_ERR_IO,
                         "etcd at %s wants a user: %s; give --rdzv-conf "
                         "user=NAME,password=WORD",
                         client->endpoints[endpoint], reply->message);
    if (will_pass(answer->code, reply))
        return TRI_INPROGRESS;
    return TRII_FAIL(reply->code == 5 ? TRI_ERR_NOT_FOUND : TRI_ERR_IO, "etcd at %s refuses %s: %s",
                     client->endpoints[endpoint], path, why);
}

/* Why a server did not do what was asked. */
typedef struct refusal {
    int endpoint;
    bool cut; /* our deadline ended the attempt: that says nothing of the server */
    char why[TRII_ETCD_WHY];
} refusal;

static tri_status try_one(trii_etcd_client *client, const char *path, const trii_wire_buffer *body,
                          int64_t deadline_ns, trii_etcd_reply *reply_out, refusal *refusal_out)
{
    const int endpoint = refusal_out->endpoint;
    char *why = refusal_out->why;
    int64_t one = trii_deadline_ms(client->n_endpoints > 1 ? ONE_MS : ALONE_MS);
    trii_etcd_post post = {.body = body->data,
                           .bytes = body->used,
                           .deadline_ns = one < deadline_ns ? one : deadline_ns};
    trii_etcd_answer answer;
    trii_etcd_reply reply = {0};
    tri_status status = TRI_OK;

    if (!is_logged_in(client))
        status = login(client, endpoint, post.deadline_ns, why);
    if (status != TRI_OK) {
        refusal_out->cut = trii_now_ns() >= deadline_ns;
        return status;
    }
    status = trii_etcd_attempt(client, endpoint, path, &post, &answer);
    if (status == TRI_OK) {
        status = judge(client, endpoint, path, &answer, &reply, why);
    } else if (status == TRI_ERR_IO || status == TRI_ERR_TIMEOUT) {
        snprintf(why, TRII_ETCD_WHY, "%s", answer.why);
        refusal_out->cut = (status == TRI_ERR_TIMEOUT && post.deadline_ns == deadline_ns) ||
                           trii_now_ns() >= deadline_ns;
        status = TRI_INPROGRESS;
    } else if (status == TRI_ERR_INVALID_ARG) {
        status = TRII_FAIL(status,
                           "etcd at %s: %s; see ca_cert, ssl_cert and ssl_cert_key of --rdzv-conf "
                           "(without ca_cert the system's authorities are asked: Debian's package "
                           "ca-certificates)",
                           client->endpoints[endpoint], answer.why);
    }
    trii_wire_buffer_fini(&answer.body);
    if (status == TRI_OK)
        *reply_out = reply;
    else
        trii_etcd_reply_fini(&reply);
    return status;
}

static tri_status nobody_answered(const trii_etcd_client *client, const refusal *cause,
                                  int64_t start_ns)
{
    const char *url = client->endpoints[cause->endpoint];
    const char *way = client->has_scheme[cause->endpoint] ? "as --rdzv-endpoint says"
                                                          : "by protocol of --rdzv-conf";

    return TRII_FAIL(TRI_ERR_TIMEOUT,
                     "etcd at %s: no server answered within %.1f s; the last one, %s: %s. "
                     "Check --rdzv-endpoint, that %.*s is what is spoken there (%s), and that a "
                     "majority of etcd's servers runs",
                     client->where, (double)(trii_now_ns() - start_ns) / TRII_NS_PER_S, url,
                     cause->why, (int)strcspn(url, ":"), url, way);
}

tri_status trii_etcd_call(trii_etcd_client *client, const char *path, const trii_wire_buffer *body,
                          int64_t deadline_ns, trii_etcd_reply *reply_out)
{
    int64_t start = trii_now_ns(), latest = trii_deadline_ms(client->settings.timeout_ms);
    int64_t pause_ms = PAUSE_MS;
    refusal cause = {.cut = true};
    int failed = 0;

    if (body->failed)
        return TRI_ERR_NO_MEMORY;
    if (deadline_ns > latest)
        deadline_ns = latest;
    for (;;) {
        refusal last = {.endpoint = trii_etcd_endpoint(client)};
        tri_status status = try_one(client, path, body, deadline_ns, reply_out, &last);

        if (status == TRI_ERR_STATE && atomic_load(&client->stop))
            return TRII_FAIL(status, "etcd: stopped");
        if (status != TRI_INPROGRESS)
            return status;
        TRII_LOG(TRII_LOG_DEBUG, "launch", "etcd %s at %s: %s", path,
                 client->endpoints[last.endpoint], last.why);
        if (!last.cut || cause.cut)
            cause = last;
        trii_etcd_avoid(client, last.endpoint);
        if (trii_now_ns() >= deadline_ns)
            return nobody_answered(client, &cause, start);
        if (++failed % client->n_endpoints == 0) {
            int64_t until = trii_deadline_ms(pause_ms);

            trii_sleep_until(until < deadline_ns ? until : deadline_ns);
            pause_ms = 2 * pause_ms > PAUSE_MAX_MS ? PAUSE_MAX_MS : 2 * pause_ms;
        }
    }
}
