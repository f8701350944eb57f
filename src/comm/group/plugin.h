/*
 * plugin.h - engines that are loaded on demand: $libdir/trireme/engine-NAME.so, or the same in a
 * folder of TRI_PLUGIN_PATH.
 *
 * A plug-in links nothing of this library: it is handed a table of what it may use, and exports
 * one function, trii_engine_open. It is loaded when a group first asks for its engine by name, and
 * stays. `auto` never asks.
 */
#ifndef TRII_PLUGIN_H
#define TRII_PLUGIN_H

#include "comm/group/engine.h"
#include "os/thread.h"

#define TRII_HOST_ABI 2u

/* What a plug-in may use, with the contracts of the functions that they are named after. */
typedef struct trii_host {
    uint32_t abi;  /* TRII_HOST_ABI: a plug-in refuses another number */
    uint32_t size; /* sizeof(trii_host) of the library: only what it covers is there */

    /* base */
    void *(*alloc)(size_t n, size_t size, const char *what);
    void (*free)(void *p);
    /* The thread's line, "format"; returns status. */
    tri_status (*fail)(tri_status status, const char *format, ...) TRII_PRINTF(2, 3);
    const char *(*last_error)(void);
    /* level: trii_log_level. */
    void (*log)(int level, const char *component, const char *format, ...) TRII_PRINTF(3, 4);

    /* os */
    tri_status (*thread_start)(trii_thread *thread, const char *name, void (*run)(void *arg),
                               void *arg);
    void (*thread_join)(trii_thread *thread);
    void (*mutex_init)(trii_mutex *mutex);
    void (*mutex_fini)(trii_mutex *mutex);
    void (*mutex_lock)(trii_mutex *mutex);
    void (*mutex_unlock)(trii_mutex *mutex);
    void (*cond_init)(trii_cond *cond);
    void (*cond_fini)(trii_cond *cond);
    void (*cond_signal)(trii_cond *cond);
    void (*cond_broadcast)(trii_cond *cond);
    void (*cond_wait)(trii_cond *cond, trii_mutex *mutex);
    int64_t (*now_ns)(void);
    void (*sleep_until)(int64_t deadline_ns);
    void (*host_name)(char *name_out, size_t bytes);

    /* store */
    tri_status (*store_set)(tri_store *store, const char *key, const void *value, size_t bytes);
    tri_status (*store_get)(tri_store *store, const char *key, int64_t timeout_ms, void **value_out,
                            size_t *bytes_out);
    void (*store_free)(void *value);

    /* group */
    tri_status (*group_agree)(const trii_group_args *args, const char *step, tri_status mine);
    int64_t (*group_left_ms)(const trii_group_args *args);
    bool (*fault_raise)(trii_fault *fault, tri_status status, const char *format, ...)
        TRII_PRINTF(3, 4);
    void (*op_finish)(trii_op *op, tri_status status, const char *why);
    void (*op_sleep)(trii_op *op, int64_t until_ns);
    void (*describe)(const trii_collective *call, char *text, size_t size);
    size_t (*dtype_size)(tri_dtype dtype);
    uint16_t (*f32_to_f16)(float f);
    /* The canonical sum and its kin over parts that lie one after the other. */
    void (*reduce)(const char *parts, int n_parts, void *dst, size_t count, tri_dtype dtype,
                   tri_redop op);
} trii_host;

/* The cause of a failure that was raised here or elsewhere: the thread that came first may still be
 * writing its text. Nothing may be held that a raising thread needs. */
static inline tri_status trii_plugin_cause(const trii_host *host, const trii_fault *fault)
{
    tri_status status;

    while ((status = trii_fault_status(fault)) == TRI_OK)
        host->sleep_until(host->now_ns() + 10000);
    return status;
}

/* What engine-NAME.so exports. NULL: it does not fit this host, and has said why by host->fail. */
#define TRII_PLUGIN_ENTRY "trii_engine_open"
const trii_engine *trii_engine_open(const trii_host *host);
typedef const trii_engine *(*trii_plugin_entry)(const trii_host *host);

/* The engine of this name: built in, or of a plug-in.
 * Errors: UNSUPPORTED (there is none, or it cannot be loaded: the line says why). */
tri_status trii_engine_find(const char *name, const trii_engine **engine_out) TRI_MUST_CHECK;

#endif
