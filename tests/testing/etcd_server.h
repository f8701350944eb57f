/*
 * etcd_server.h - an etcd of one or of three nodes, on free ports of loopback, or of an address of
 * this host, and in a folder of its own. Tests only.
 */
#ifndef TEST_ETCD_SERVER_H
#define TEST_ETCD_SERVER_H

#include <signal.h>

#include "testing/check.h"
#include "testing/spawn.h"

#define ETCD_MAX_NODES 3

typedef struct etcd_cluster {
    int n;
    spawn nodes[ETCD_MAX_NODES];
    bool runs[ETCD_MAX_NODES];
    int client_port[ETCD_MAX_NODES], peer_port[ETCD_MAX_NODES];
    char folder[256];
    char host[64];       /* 127.0.0.1 */
    char endpoints[200]; /* "127.0.0.1:PORT,..." */
} etcd_cluster;

/* Its process ends with ours, whatever ends us. more: one more flag, or NULL. */
static inline void etcd_start_node(etcd_cluster *c, int i, const char *more)
{
    const char *s = more != NULL && strcmp(more, "--auto-tls") == 0 ? "s" : "";
    char text[6][64], all[400] = "", data[300], log[300];
    const char *const argv[] = {"setpriv",
                                "--pdeathsig",
                                "KILL",
                                "etcd",
                                "--name",
                                text[0],
                                "--data-dir",
                                data,
                                "--listen-client-urls",
                                text[1],
                                "--advertise-client-urls",
                                text[1],
                                "--listen-peer-urls",
                                text[2],
                                "--initial-advertise-peer-urls",
                                text[2],
                                "--initial-cluster",
                                all,
                                "--initial-cluster-token",
                                text[3],
                                "--logger=zap",
                                "--log-outputs",
                                log,
                                "--heartbeat-interval=50",
                                "--election-timeout=500",
                                more,
                                NULL};
    size_t used = 0;

    snprintf(text[0], sizeof(text[0]), "n%d", i);
    snprintf(text[1], sizeof(text[1]), "http%s://%s:%d", s, c->host, c->client_port[i]);
    snprintf(text[2], sizeof(text[2]), "http://127.0.0.1:%d", c->peer_port[i]);
    snprintf(text[3], sizeof(text[3]), "t%d", c->peer_port[0]);
    snprintf(data, sizeof(data), "%s/n%d", c->folder, i);
    snprintf(log, sizeof(log), "%s/n%d.log", c->folder, i);
    for (int k = 0; k < c->n; k++)
        used += (size_t)snprintf(all + used, sizeof(all) - used, "%sn%d=http://127.0.0.1:%d",
                                 k > 0 ? "," : "", k, c->peer_port[k]);
    spawn_start(&c->nodes[i], argv, NULL);
    c->runs[i] = true;
}

static inline void etcd_start_at(etcd_cluster *c, const char *host, int n, const char *more)
{
    size_t used = 0;

    memset(c, 0, sizeof(*c));
    c->n = n;
    snprintf(c->host, sizeof(c->host), "%s", host);
    spawn_make_folder(c->folder, sizeof(c->folder));
    for (int i = 0; i < n; i++) {
        c->client_port[i] = spawn_free_port();
        c->peer_port[i] = spawn_free_port();
        used += (size_t)snprintf(c->endpoints + used, sizeof(c->endpoints) - used, "%s%s:%d",
                                 i > 0 ? "," : "", c->host, c->client_port[i]);
    }
    for (int i = 0; i < n; i++)
        etcd_start_node(c, i, more);
}

static inline void etcd_start_with(etcd_cluster *c, int n, const char *more)
{
    etcd_start_at(c, "127.0.0.1", n, more);
}

static inline void etcd_start(etcd_cluster *c, int n)
{
    etcd_start_with(c, n, NULL);
}

static inline void etcd_kill(etcd_cluster *c, int i)
{
    if (c->runs[i]) {
        spawn_signal(&c->nodes[i], SIGKILL);
        (void)spawn_wait(&c->nodes[i]);
        spawn_free(&c->nodes[i]);
    }
    c->runs[i] = false;
}

static inline void etcd_stop(etcd_cluster *c)
{
    for (int i = 0; i < c->n; i++)
        etcd_kill(c, i);
    spawn_remove_folder(c->folder);
}

#endif
