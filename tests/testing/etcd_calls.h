/*
 * etcd_calls.h - the etcd back end, and calls to a server past it. Tests only.
 */
#ifndef TEST_ETCD_CALLS_H
#define TEST_ETCD_CALLS_H

#include "rendezvous-etcd/etcd_client.h"
#include "rendezvous-etcd/etcd_http.h"
#include "os/clock.h"
#include "testing/etcd_server.h"

static inline trii_etcd_settings etcd_settings(const etcd_cluster *c, const char *run_id)
{
    static int n;
    static char names[32][16];
    char *name = names[n++ % 32];

    snprintf(name, sizeof(names[0]), "client%d", n);
    return (trii_etcd_settings){.endpoints = c->endpoints,
                                .protocol = "http",
                                .prefix = "/test",
                                .run_id = run_id,
                                .name = name,
                                .timeout_ms = 20000,
                                .open_timeout_ms = 30000,
                                .lease_s = 30};
}

/* What the server says, or "": a text of the test's. */
static inline const char *etcd_post(const char *protocol, int port, const char *path,
                                    const char *body)
{
    static char text[8192];
    const trii_etcd_settings none = {.protocol = protocol};
    trii_etcd_http *http = NULL;
    trii_etcd_answer answer;
    char url[128];
    const trii_etcd_post post = {
        .url = url, .body = body, .bytes = strlen(body), .deadline_ns = trii_deadline_ms(8000)};
    tri_status status;

    snprintf(url, sizeof(url), "%s://127.0.0.1:%d%s", protocol, port, path);
    CHECK_OK(trii_etcd_http_create(&none, &http));
    status = trii_etcd_http_post(http, &post, &answer);
    snprintf(text, sizeof(text), "%.*s", status == TRI_OK ? (int)answer.body.used : 0,
             answer.body.data != NULL ? answer.body.data : "");
    trii_wire_buffer_fini(&answer.body);
    trii_etcd_http_destroy(http);
    return text;
}

/* Number of the node that leads; waits until there is one. */
static inline int etcd_leader(const etcd_cluster *c)
{
    int64_t deadline = trii_deadline_ms(20000);

    while (trii_now_ns() < deadline) {
        for (int i = 0; i < c->n; i++) {
            const char *text =
                c->runs[i] ? etcd_post("http", c->client_port[i], "/v3/maintenance/status", "{}")
                           : "";
            const char *self = strstr(text, "\"member_id\":\""),
                       *leader = strstr(text, "\"leader\":\"");

            if (self != NULL && leader != NULL &&
                strtoull(self + 13, NULL, 10) == strtoull(leader + 10, NULL, 10))
                return i;
        }
        trii_sleep_until(trii_deadline_ms(20));
    }
    fail_msg("no leader");
    return -1;
}

#endif
