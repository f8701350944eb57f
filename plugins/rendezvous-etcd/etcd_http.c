/*
 * etcd_http.c - see etcd_http.h: the only file that knows libcurl.
 */
#include "rendezvous-etcd/etcd_http.h"

#include <curl/curl.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/clock.h"
#include "os/thread.h"
#include "shared/plugin_socket.h"

#define CONNECT_MS 2000
#define DEAD_MS 5000 /* a server whose system does not answer for so long is gone */

struct trii_etcd_http {
    CURL *curl;
    struct curl_slist *headers; /* of the call that is on */
    const trii_etcd_post *post;
    trii_wire_buffer body; /* the answer, or the part of a line that has come */
    bool ended;            /* by post->line */
    char error[CURL_ERROR_SIZE];
};

static void init_library(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* Ours does not reach the workers, and notices a host that is gone. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)arg;
    (void)purpose;
    return trii_socket_make(address->family, address->socktype, address->protocol, DEAD_MS);
}

/* Hands out whole lines; keeps the rest. */
static bool take_lines(trii_etcd_http *http)
{
    char *data = http->body.data;
    size_t used = http->body.used, at = 0;

    for (size_t i = 0; i < used && !http->ended; i++) {
        if (data[i] != '\n')
            continue;
        http->ended = i > at && !http->post->line(http->post->arg, data + at, i - at);
        at = i + 1;
    }
    if (at > 0)
        memmove(data, data + at, used - at);
    http->body.used = used - at;
    return !http->ended;
}

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
    trii_etcd_http *http = arg;
    long code = 0;

    if (http->body.used + size * n > TRII_ETCD_MAX_ANSWER)
        return 0;
    trii_wire_put(&http->body, data, size * n);
    if (http->body.failed)
        return 0;
    curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &code);
    if (http->post->line != NULL && code == 200 && !take_lines(http))
        return 0;
    return size * n;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const trii_etcd_http *http = arg;

    (void)a, (void)b, (void)c, (void)d;
    return http->post->stop != NULL && atomic_load(http->post->stop);
}

static void set_tls(CURL *curl, const trii_etcd_settings *s)
{
    if (s->ca_cert != NULL)
        curl_easy_setopt(curl, CURLOPT_CAINFO, s->ca_cert);
    if (s->cert != NULL)
        curl_easy_setopt(curl, CURLOPT_SSLCERT, s->cert);
    if (s->key != NULL)
        curl_easy_setopt(curl, CURLOPT_SSLKEY, s->key);
}

tri_status trii_etcd_http_create(const trii_etcd_settings *settings, trii_etcd_http **http_out)
{
    static trii_once once = TRII_ONCE_INITIALIZER;
    trii_etcd_http *http = trii_alloc(1, sizeof(*http), "etcd connection");

    trii_once_run(&once, init_library);
    if (http == NULL)
        return TRI_ERR_NO_MEMORY;
    http->curl = curl_easy_init();
    if (http->curl == NULL) {
        trii_free(http);
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "libcurl gave no handle");
    }
    curl_easy_setopt(http->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(http->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(http->curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(http->curl, CURLOPT_PROXY, ""); /* etcd is a neighbour */
    curl_easy_setopt(http->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(http->curl, CURLOPT_ERRORBUFFER, http->error);
    curl_easy_setopt(http->curl, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(http->curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(http->curl, CURLOPT_WRITEDATA, http);
    curl_easy_setopt(http->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(http->curl, CURLOPT_XFERINFODATA, http);
    curl_easy_setopt(http->curl, CURLOPT_NOPROGRESS, 0L);
    set_tls(http->curl, settings);
    *http_out = http;
    return TRI_OK;
}

void trii_etcd_http_destroy(trii_etcd_http *http)
{
    if (http == NULL)
        return;
    curl_easy_cleanup(http->curl);
    trii_wire_buffer_fini(&http->body);
    trii_free(http);
}

static bool add_header(trii_etcd_http *http, const char *text)
{
    struct curl_slist *more = curl_slist_append(http->headers, text);

    if (more != NULL)
        http->headers = more;
    return more != NULL;
}

static bool set_headers(trii_etcd_http *http, int64_t left_ms)
{
    const char *token = http->post->token;
    char text[40], *login;
    size_t bytes;
    bool ok = add_header(http, "Content-Type: application/json") && add_header(http, "Expect:") &&
              add_header(http, "Grpc-Metadata-hasleader: true");

    if (http->post->line == NULL) { /* the server gives up when we do */
        snprintf(text, sizeof(text), "Grpc-Timeout: %lldm", (long long)left_ms);
        ok = ok && add_header(http, text);
    }
    if (token != NULL && *token != '\0') {
        bytes = strlen(token) + sizeof("Authorization: ");
        login = trii_alloc(1, bytes, "etcd token");
        if (login != NULL)
            snprintf(login, bytes, "Authorization: %s", token);
        ok = ok && login != NULL && add_header(http, login);
        trii_free(login);
    }
    curl_easy_setopt(http->curl, CURLOPT_HTTPHEADER, http->headers);
    return ok;
}

static tri_status meaning(const trii_etcd_http *http, CURLcode code, trii_etcd_answer *answer)
{
    if (code == CURLE_OK || http->ended)
        return TRI_OK;
    if (http->body.failed)
        return TRI_ERR_NO_MEMORY;
    snprintf(answer->why, sizeof(answer->why), "%s",
             http->error[0] != '\0' ? http->error : curl_easy_strerror(code));
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return TRI_ERR_STATE;
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CERTPROBLEM ||
        code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_ISSUER_ERROR)
        return TRI_ERR_INVALID_ARG;
    return code == CURLE_OPERATION_TIMEDOUT ? TRI_ERR_TIMEOUT : TRI_ERR_IO;
}

tri_status trii_etcd_http_post(trii_etcd_http *http, const trii_etcd_post *post,
                               trii_etcd_answer *answer_out)
{
    int64_t left_ms = trii_deadline_left_ms(post->deadline_ns);
    tri_status status = TRI_ERR_NO_MEMORY;
    const char *local = NULL;
    long code = 0;

    memset(answer_out, 0, sizeof(*answer_out));
    http->post = post;
    http->ended = false;
    http->error[0] = '\0';
    if (left_ms == 0)
        left_ms = 1; /* 0 would be: no limit */
    if (set_headers(http, left_ms)) {
        curl_easy_setopt(http->curl, CURLOPT_URL, post->url);
        curl_easy_setopt(http->curl, CURLOPT_POSTFIELDS, post->body);
        curl_easy_setopt(http->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)post->bytes);
        curl_easy_setopt(http->curl, CURLOPT_TIMEOUT_MS, left_ms > 0 ? (long)left_ms : 0L);
        status = meaning(http, curl_easy_perform(http->curl), answer_out);
        curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &code);
        answer_out->code = (int)code;
        if (curl_easy_getinfo(http->curl, CURLINFO_LOCAL_IP, &local) == CURLE_OK && local != NULL)
            snprintf(answer_out->local, sizeof(answer_out->local), "%s", local);
    }
    curl_slist_free_all(http->headers);
    http->headers = NULL;
    answer_out->body = http->body;
    memset(&http->body, 0, sizeof(http->body));
    return status;
}
