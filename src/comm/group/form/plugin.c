/*
 * plugin.c - see plugin.h: finding an engine by name, loading it, and the table that it gets.
 */
#include "comm/group/plugin.h"

#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/dtype.h"
#include "base/log.h"
#include "base/param.h"
#include "comm/group/group_limits.h"
#include "comm/group/reduce/reduce.h"
#include "os/clock.h"
#include "os/host.h"
#include "os/library.h"

/* --- what a plug-in may use ----------------------------------------------- */

static TRII_PRINTF(2, 3) tri_status host_fail(tri_status status, const char *format, ...)
{
    char text[TRII_ERR_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    trii_err_set("%s", text);
    return status;
}

static TRII_PRINTF(3, 4) void host_log(int level, const char *component, const char *format, ...)
{
    char text[TRII_ERR_BYTES];
    va_list args;

    if (!trii_log_enabled((trii_log_level)level, component))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    trii_log_write((trii_log_level)level, component, "%s", text);
}

static TRII_PRINTF(3, 4) bool host_fault_raise(trii_fault *fault, tri_status status,
                                               const char *format, ...)
{
    char text[TRII_ERR_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return trii_fault_raise(fault, status, "%s", text);
}

static void host_reduce(const char *parts, int n_parts, void *dst, size_t count, tri_dtype dtype,
                        tri_redop op)
{
    const void *src[TRII_GROUP_MAX_RANKS];
    size_t bytes = count * tri_dtype_size(dtype);

    for (int r = 0; r < n_parts; r++)
        src[r] = parts + bytes * (size_t)r;
    trii_reduce(src, n_parts, dst, count, dtype, op);
}

static const trii_host host = {
    .abi = TRII_HOST_ABI,
    .size = sizeof(trii_host),
    .alloc = trii_alloc,
    .free = trii_free,
    .fail = host_fail,
    .last_error = tri_last_error,
    .log = host_log,
    .thread_start = trii_thread_start,
    .thread_join = trii_thread_join,
    .mutex_init = trii_mutex_init,
    .mutex_fini = trii_mutex_fini,
    .mutex_lock = trii_mutex_lock,
    .mutex_unlock = trii_mutex_unlock,
    .cond_init = trii_cond_init,
    .cond_fini = trii_cond_fini,
    .cond_signal = trii_cond_signal,
    .cond_broadcast = trii_cond_broadcast,
    .cond_wait = trii_cond_wait,
    .now_ns = trii_now_ns,
    .sleep_until = trii_sleep_until,
    .host_name = trii_host_name,
    .store_set = tri_store_set,
    .store_get = tri_store_get,
    .store_free = tri_store_free,
    .group_agree = trii_group_agree,
    .group_left_ms = trii_group_left_ms,
    .fault_raise = host_fault_raise,
    .op_finish = trii_op_finish,
    .op_sleep = trii_op_sleep,
    .describe = trii_collective_describe,
    .dtype_size = tri_dtype_size,
    .f32_to_f16 = trii_f32_to_f16,
    .reduce = host_reduce,
};

/* --- finding -------------------------------------------------------------- */

#define MAX_PLUGINS 8
#define NAME_BYTES 16

static struct {
    trii_mutex mutex;
    int n; /* guard: mutex, as what follows */
    char names[MAX_PLUGINS][NAME_BYTES];
    const trii_engine *engines[MAX_PLUGINS];
} loaded = {.mutex = TRII_MUTEX_INITIALIZER};

/* Names are parts of file names: nothing but letters, digits and _. */
static bool is_name(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");

    return length > 0 && length < NAME_BYTES && name[length] == '\0';
}

/* Names that programs bring along from PyTorch and MPI, where one has to be named, and the package
 * that a build of the plug-in needs. */
static const struct {
    const char *name, *package;
} packages[] = {{"gloo", "libgloo-dev"},
                {"mpi", "libopenmpi-dev"},
                {"mpich", "libmpich-dev"},
                {"nccl", "NCCL and CUDA"}};

static tri_status no_such_engine(const char *name, const char *places)
{
    char known[128] = "";

    for (size_t i = 0; i < TRII_COUNT_OF(packages); i++) {
        if (strcmp(name, packages[i].name) == 0)
            return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                             "engine %s (tri_group_options or TRI_ENGINE) is a plug-in that is not "
                             "here: leave the engine out, since this library has its own (shm, "
                             "tcp); or install %s and build again (looked for engine-%s.so in%s)",
                             name, packages[i].package, name, places);
    }
    for (const trii_engine *const *e = trii_engines(); *e != NULL; e++)
        snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s",
                 known[0] != '\0' ? ", " : "", (*e)->name);
    return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                     "engine %s (tri_group_options or TRI_ENGINE) is not one of this library's: "
                     "%s; nor is there a plug-in engine-%s.so in%s",
                     name, known, name, places);
}

static tri_status load(const char *name, const trii_engine **engine_out)
{
    void *library = NULL, *symbol;
    char file[64], places[300];
    trii_plugin_entry entry;
    const trii_engine *engine;
    tri_status status;

    snprintf(file, sizeof(file), "engine-%s.so", name);
    status = trii_library_load_plugin(file, places, sizeof(places), &library);
    if (status == TRI_ERR_NOT_FOUND)
        return no_such_engine(name, places);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(TRI_ERR_UNSUPPORTED, "engine %s", name);
    symbol = trii_library_symbol(library, TRII_PLUGIN_ENTRY);
    if (symbol == NULL)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, "engine %s: %s has no function %s", name, file,
                         TRII_PLUGIN_ENTRY);
    memcpy(&entry, &symbol, sizeof(entry)); /* ISO C has no cast for this */
    engine = entry(&host);
    if (engine == NULL)
        return TRII_FAIL_CTX(TRI_ERR_UNSUPPORTED, "engine %s: %s", name, file);
    /* Of another version nothing else lies where this one looks. */
    if (engine->abi != TRII_ENGINE_ABI || engine->size != sizeof(*engine))
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "engine %s: %s was built for another version of the library (abi %u, "
                         "here %u): build it again",
                         name, file, engine->abi, TRII_ENGINE_ABI);
    *engine_out = engine;
    return TRI_OK;
}

tri_status trii_engine_find(const char *name, const trii_engine **engine_out)
{
    tri_status status = TRI_INPROGRESS;

    for (const trii_engine *const *e = trii_engines(); *e != NULL; e++) {
        if (strcmp((*e)->name, name) == 0) {
            TRII_LOG(TRII_LOG_TRACE, "group", "engine %s is built in", name);
            *engine_out = *e;
            return TRI_OK;
        }
    }
    if (!is_name(name))
        return no_such_engine(name, " any place: that is not a name");
    trii_mutex_lock(&loaded.mutex);
    for (int i = 0; i < loaded.n && status == TRI_INPROGRESS; i++) {
        if (strcmp(loaded.names[i], name) == 0) {
            *engine_out = loaded.engines[i];
            status = TRI_OK;
        }
    }
    if (status == TRI_INPROGRESS) {
        status = load(name, engine_out);
        if (status == TRI_OK && loaded.n < MAX_PLUGINS) {
            snprintf(loaded.names[loaded.n], NAME_BYTES, "%s", name);
            loaded.engines[loaded.n++] = *engine_out;
        }
    }
    trii_mutex_unlock(&loaded.mutex);
    return status;
}

bool tri_engine_is_available(const char *engine)
{
    const trii_engine *found = NULL;

    if (engine == NULL || *engine == '\0') {
        trii_err_set("is_available: the engine has no name");
        return false;
    }
    return trii_engine_find(engine, &found) == TRI_OK;
}
