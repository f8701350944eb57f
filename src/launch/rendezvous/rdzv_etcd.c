/*
 * rdzv_etcd.c - the back end in etcd of rdzv_backend.h: loads the plug-in
 * (plugins/rendezvous-etcd), and knows what --rdzv-conf means to it. Called by rdzv_dynamic.c.
 */
#include "launch/rendezvous/rdzv_backend.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/param.h"
#include "launch/rendezvous/etcd.h"
#include "os/library.h"
#include "os/random.h"

#define OPEN_MS 15000
#define LEASE_S 30

static const trii_etcd_host host = {.abi = TRII_ETCD_ABI,
                                    .size = sizeof(trii_etcd_host),
                                    .alloc = trii_alloc,
                                    .realloc = trii_realloc,
                                    .free = trii_free,
                                    .err_set = trii_err_set,
                                    .err_prepend = trii_err_prepend,
                                    .log_enabled = trii_log_enabled,
                                    .log_write = trii_log_write,
                                    .store_init = trii_store_init,
                                    .store_copy = trii_store_copy,
                                    .store_unref = tri_store_unref,
                                    .key_list_add = trii_key_list_add};

static tri_status load(trii_etcd_entry *entry_out)
{
    char places[300];
    void *library = NULL, *symbol;
    tri_status status =
        trii_library_load_plugin(TRII_ETCD_PLUGIN, places, sizeof(places), &library);

    if (status == TRI_ERR_NOT_FOUND)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "--rdzv-backend=etcd needs the plug-in %s, which is not in%s: it is built "
                         "where libcurl's development files are (Debian: libcurl4-openssl-dev); "
                         "TRI_PLUGIN_PATH names more folders",
                         TRII_ETCD_PLUGIN, places);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(TRI_ERR_UNSUPPORTED, "--rdzv-backend=etcd");
    symbol = trii_library_symbol(library, TRII_ETCD_ENTRY);
    if (symbol == NULL)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "%s has no function %s", TRII_ETCD_PLUGIN,
                         TRII_ETCD_ENTRY);
    memcpy(entry_out, &symbol, sizeof(*entry_out)); /* ISO C has no cast for this */
    return TRI_OK;
}

/* One text of --rdzv-conf, by either of its names; NULL = not given. */
static const char *conf(const trii_launch_options *o, const char *name, const char *other,
                        char *text, size_t bytes)
{
    bool there = trii_rdzv_conf(o, name, text, bytes) ||
                 (other != NULL && trii_rdzv_conf(o, other, text, bytes));

    return there ? text : NULL;
}

tri_status trii_rdzv_etcd_create(const trii_launch_options *options, const char *run_id,
                                 int64_t timeout_ms, trii_rdzv_backend **backend_out)
{
    trii_etcd_entry entry;
    char texts[8][300], name[33] = "";
    unsigned char any[16];
    trii_etcd_settings s = {.endpoints = options->rdzv_endpoint,
                            .run_id = run_id,
                            .name = name,
                            .timeout_ms = timeout_ms,
                            .open_timeout_ms = timeout_ms < OPEN_MS ? timeout_ms : OPEN_MS,
                            .lease_s = LEASE_S};
    const char *lease = conf(options, "lease_ttl", NULL, texts[7], sizeof(texts[7]));
    tri_status status = load(&entry);

    if (status == TRI_OK && lease != NULL)
        status = trii_parse_i64(lease, "lease_ttl of --rdzv-conf", 2, 1000000, &s.lease_s);
    if (status != TRI_OK)
        return status;
    s.protocol = conf(options, "protocol", NULL, texts[0], sizeof(texts[0]));
    s.cert = conf(options, "ssl_cert", "cert", texts[1], sizeof(texts[1]));
    s.key = conf(options, "ssl_cert_key", "key", texts[2], sizeof(texts[2]));
    s.ca_cert = conf(options, "ca_cert", "cacert", texts[3], sizeof(texts[3]));
    s.user = conf(options, "user", NULL, texts[4], sizeof(texts[4]));
    s.password = conf(options, "password", NULL, texts[5], sizeof(texts[5]));
    s.prefix = conf(options, "etcd_prefix", NULL, texts[6], sizeof(texts[6]));
    s.protocol = s.protocol != NULL ? s.protocol : "http";
    s.prefix = s.prefix != NULL ? s.prefix : "/trireme";
    if (strcmp(s.protocol, "http") != 0 && strcmp(s.protocol, "https") != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "--rdzv-conf: protocol=%s is neither http nor https",
                         s.protocol);
    if (!trii_random_bytes(any, sizeof(any)))
        return TRII_FAIL(TRI_ERR_IO, "the system gives no random bytes");
    for (size_t i = 0; i < sizeof(any); i++)
        snprintf(name + 2 * i, 3, "%02x", any[i]);
    return entry(&host, &s, backend_out);
}
