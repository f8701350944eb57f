/*
 * etcd_plugin.c - the plug-in's entry, and the functions of trirun that its sources call by their
 * names: they are trirun's own, by the table that it hands over. In the plug-in only; tests link
 * the other files with the library itself.
 */
#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "launch/rendezvous/etcd.h"
#include "store/store_ops.h"

static const trii_etcd_host *host; /* written before any other function is called */

void *trii_alloc(size_t n, size_t size, const char *what)
{
    return host->alloc(n, size, what);
}

void *trii_realloc(void *p, size_t n, size_t size, const char *what)
{
    return host->realloc(p, n, size, what);
}

void trii_free(void *p)
{
    host->free(p);
}

void trii_err_set(const char *format, ...)
{
    char text[TRII_ERR_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    host->err_set("%s", text);
}

void trii_err_prepend(const char *format, ...)
{
    char text[TRII_ERR_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    host->err_prepend("%s", text);
}

bool trii_log_enabled(trii_log_level level, const char *component)
{
    return host->log_enabled(level, component);
}

void trii_log_write(trii_log_level level, const char *component, const char *format, ...)
{
    char text[TRII_ERR_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    host->log_write(level, component, "%s", text);
}

/* --- the public functions of stores, passed on to trirun's table ---------- */

void trii_store_init(tri_store *store, const trii_store_ops *ops, int64_t timeout_ms)
{
    host->store_init(store, ops, timeout_ms);
}

void *trii_store_copy(const void *data, size_t bytes)
{
    return host->store_copy(data, bytes);
}

tri_status trii_key_list_add(trii_key_list *list, const char *key, size_t bytes)
{
    return host->key_list_add(list, key, bytes);
}

void tri_store_unref(tri_store *store)
{
    host->store_unref(store);
}

TRI_API tri_status trii_etcd_plugin(const trii_etcd_host *from, const trii_etcd_settings *settings,
                                    trii_rdzv_backend **backend_out)
{
    if (from->abi != TRII_ETCD_ABI || from->size != sizeof(*from)) {
        from->err_set("%s is of another version of Trireme", TRII_ETCD_PLUGIN);
        return TRI_ERR_UNSUPPORTED;
    }
    host = from;
    return trii_etcd_create(settings, backend_out);
}
