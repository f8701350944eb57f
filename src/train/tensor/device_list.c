/*
 * device_list.c - see device_list.h and trireme/device.h: counts and names devices, reads
 * TRI_CPU_DEVICES and TRI_VISIBLE_DEVICES, and keeps the device modes of a thread.
 */
#include "train/tensor/device_list.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/group.h>

#include "base/err.h"
#include "base/log.h"
#include "base/param.h"

/* --- names ---------------------------------------------------------------- */

#define TEN(text)                                                                                  \
    text "0", text "1", text "2", text "3", text "4", text "5", text "6", text "7", text "8",      \
        text "9"
#define HUNDRED(text)                                                                              \
    TEN(text "0"), TEN(text "1"), TEN(text "2"), TEN(text "3"), TEN(text "4"), TEN(text "5"),      \
        TEN(text "6"), TEN(text "7"), TEN(text "8"), TEN(text "9")
#define THOUSAND(kind)                                                                             \
    TEN(kind), TEN(kind "1"), TEN(kind "2"), TEN(kind "3"), TEN(kind "4"), TEN(kind "5"),          \
        TEN(kind "6"), TEN(kind "7"), TEN(kind "8"), TEN(kind "9"), HUNDRED(kind "1"),             \
        HUNDRED(kind "2"), HUNDRED(kind "3"), HUNDRED(kind "4"), HUNDRED(kind "5"),                \
        HUNDRED(kind "6"), HUNDRED(kind "7"), HUNDRED(kind "8"), HUNDRED(kind "9")

static const char texts[TRII_DEVICE_KINDS][TRI_MAX_DEVICES][9] = {
    [TRI_DEVICE_CPU] = {THOUSAND("cpu:")},
    [TRI_DEVICE_CUDA] = {THOUSAND("cuda:")},
};
static const char *const kinds[TRII_DEVICE_KINDS] = {"cpu", "cuda"};

static bool is_device(tri_device device)
{
    return device >= 0 && trii_device_kind_of(device) < TRII_DEVICE_KINDS &&
           trii_device_index_of(device) < TRI_MAX_DEVICES;
}

const char *tri_device_text(tri_device device)
{
    return is_device(device) ? texts[trii_device_kind_of(device)][trii_device_index_of(device)]
                             : "no device";
}

/* --- how many ------------------------------------------------------------- */

static atomic_int n_cpus; /* 0 = not read yet */

static void warn_once(atomic_bool *warned)
{
    if (!atomic_exchange(warned, true))
        TRII_LOG(TRII_LOG_WARN, "device", "%s; ignored", tri_last_error());
}

int trii_cpu_devices(void)
{
    static atomic_bool warned;
    int n = atomic_load_explicit(&n_cpus, memory_order_relaxed), expected = 0;
    int64_t asked = 1;

    if (n > 0)
        return n;
    if (trii_param_i64(TRII_PARAM_CPU_DEVICES, 1, &asked) != TRI_OK) {
        warn_once(&warned);
        asked = 1;
    }
    return atomic_compare_exchange_strong(&n_cpus, &expected, (int)asked) ? (int)asked : expected;
}

tri_status tri_cpu_devices_set(int n)
{
    int now = 0;

    if (n < 1 || n > TRI_MAX_DEVICES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_cpu_devices_set: n is %d, 1 to %d are allowed",
                         n, TRI_MAX_DEVICES);
    if (atomic_compare_exchange_strong(&n_cpus, &now, n) || now == n)
        return TRI_OK;
    return TRII_FAIL(
        TRI_ERR_STATE,
        "tri_cpu_devices_set(%d): the cpu devices are in use already, and there are %d: "
        "call it before anything else, or set TRI_CPU_DEVICES",
        n, now);
}

static atomic_int n_threads_asked;
static _Thread_local int n_threads_pinned_plus_1; /* 0 = not pinned */

int trii_threads_asked(void)
{
    return n_threads_pinned_plus_1 > 0
               ? n_threads_pinned_plus_1 - 1
               : atomic_load_explicit(&n_threads_asked, memory_order_relaxed);
}

void trii_threads_ask(int n_threads)
{
    atomic_store_explicit(&n_threads_asked, n_threads, memory_order_relaxed);
}

int trii_threads_pin(int pinned)
{
    int before = n_threads_pinned_plus_1 - 1;

    n_threads_pinned_plus_1 = pinned + 1;
    return before;
}

int trii_cpu_count(void)
{
    static atomic_bool warned;
    const char *launcher = trii_param_text(TRII_PARAM_LOCAL_WORLD_SIZE);
    int64_t n = trii_cpu_devices(), ranks = 1;

    if (launcher == NULL)
        ranks = tri_local_world_size();
    else if (trii_parse_i64(launcher, "LOCAL_WORLD_SIZE", 1, INT32_MAX, &ranks) != TRI_OK)
        warn_once(&warned);
    n = ranks > n ? ranks : n;
    return n < TRI_MAX_DEVICES ? (int)n : TRI_MAX_DEVICES;
}

/* Before TRI_VISIBLE_DEVICES. */
static int count_all(int kind)
{
    return trii_device_kinds[kind] != NULL ? trii_device_kinds[kind]->count() : 0;
}

/* One "cpu:1" of the list, or "1", a cpu device; its number is below `all`, or it is of another
 * kind. */
static tri_status parse_visible(const char **at, int *kind_out, int *place_out)
{
    const char *text = *at;
    size_t length = strcspn(text, ",");

    *at = text + length + (text[length] == ',');
    for (int kind = 0; kind < TRII_DEVICE_KINDS; kind++) {
        size_t n = strlen(kinds[kind]);
        const char *number;
        char *end;
        long place;

        if (kind == TRI_DEVICE_CPU && text[0] >= '0' && text[0] <= '9')
            number = text; /* as in CUDA_VISIBLE_DEVICES */
        else if (length > n + 1 && strncmp(text, kinds[kind], n) == 0 && text[n] == ':' &&
                 text[n + 1] >= '0' && text[n + 1] <= '9')
            number = text + n + 1;
        else
            continue;
        place = strtol(number, &end, 10);
        if (end != text + length)
            break;
        if (trii_device_kinds[kind] == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "TRI_VISIBLE_DEVICES names %.*s, but this build has no %s devices, "
                             "only cpu devices",
                             (int)length, text, kinds[kind]);
        if (place >= count_all(kind))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "TRI_VISIBLE_DEVICES names %.*s, but there are %d devices of %s",
                             (int)length, text, count_all(kind), kinds[kind]);
        *kind_out = kind;
        *place_out = (int)place;
        return TRI_OK;
    }
    return TRII_FAIL(TRI_ERR_INVALID_ARG,
                     "TRI_VISIBLE_DEVICES: \"%.*s\" is not understood; expected a list such as "
                     "\"cpu:1,cpu:0\" or \"1,0\"",
                     (int)length, text);
}

/* The numbers of the kind's visible devices, in their order; -1: the list names none of it. */
static tri_status list_visible(int kind, int *places, int *n_out)
{
    const char *text = trii_param_text(TRII_PARAM_VISIBLE_DEVICES);
    int n = 0;

    while (text != NULL && *text != '\0') {
        int of = 0, place = 0;
        tri_status status = parse_visible(&text, &of, &place);

        if (status != TRI_OK)
            return status;
        for (int i = 0; of == kind && i < n; i++) {
            if (places[i] == place)
                return TRII_FAIL(TRI_ERR_INVALID_ARG, "TRI_VISIBLE_DEVICES names %s twice",
                                 texts[kind][place]);
        }
        if (of == kind)
            places[n++] = place;
    }
    *n_out = n > 0 ? n : -1;
    return TRI_OK;
}

static int visible(int kind, int places[TRI_MAX_DEVICES])
{
    static atomic_bool warned;
    int n = -1;

    if (list_visible(kind, places, &n) != TRI_OK)
        warn_once(&warned);
    return n;
}

int tri_device_count(tri_device_kind kind)
{
    int places[TRI_MAX_DEVICES], n;

    if ((int)kind < 0 || kind >= TRII_DEVICE_KINDS)
        return 0;
    n = visible(kind, places);
    return n >= 0 ? n : count_all(kind);
}

int trii_cpu_device_place(int index)
{
    int places[TRI_MAX_DEVICES];
    int n = visible(TRI_DEVICE_CPU, places);

    return index < n ? places[index] : index;
}

tri_status trii_device_check(tri_device device)
{
    int kind = trii_device_kind_of(device), n;

    if (device == TRI_CPU(0))
        return TRI_OK;
    if (!is_device(device))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "device %d does not exist: TRI_CPU(i) and TRI_CUDA(i) name devices",
                         (int)device);
    n = tri_device_count((tri_device_kind)kind);
    if (trii_device_index_of(device) < n)
        return TRI_OK;
    if (n < count_all(kind))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s does not exist: there are %d %s devices (those of "
                         "TRI_VISIBLE_DEVICES)",
                         tri_device_text(device), n, kinds[kind]);
    if (kind == TRI_DEVICE_CPU)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s does not exist: there are %d cpu devices (TRI_CPU_DEVICES=N or "
                         "tri_cpu_devices_set make more)",
                         tri_device_text(device), n);
    if (trii_device_kinds[kind] == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s does not exist: this build has no %s devices, only cpu devices "
                         "(TRI_CPU(i), shares of the process's threads)",
                         tri_device_text(device), kinds[kind]);
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s does not exist: there are %d %s devices",
                     tri_device_text(device), n, kinds[kind]);
}

/* --- of this thread ------------------------------------------------------- */

static _Thread_local trii_device_modes own;
static _Thread_local trii_device_modes *used; /* NULL: the thread's own */

static trii_device_modes *mine(void)
{
    return used != NULL ? used : &own;
}

void trii_device_modes_use(trii_device_modes *modes)
{
    used = modes;
}

tri_device tri_current_device(void)
{
    const trii_device_modes *m = mine();
    int depth = m->depth < TRII_DEVICE_SCOPES ? m->depth : TRII_DEVICE_SCOPES;

    return depth > 0 ? m->scopes[depth - 1] : m->device;
}

tri_status tri_set_device(tri_device device)
{
    tri_status status = trii_device_check(device);

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "tri_set_device");
    mine()->device = device;
    return TRI_OK;
}

tri_status trii_device_push(tri_device device)
{
    trii_device_modes *m = mine();
    tri_device before = tri_current_device();
    tri_status status = trii_device_check(device);

    if (m->depth < TRII_DEVICE_SCOPES)
        m->scopes[m->depth] = status == TRI_OK ? device : before;
    else if (status == TRI_OK)
        status = TRII_FAIL(TRI_ERR_STATE, "nested more than %d deep", TRII_DEVICE_SCOPES);
    m->depth++;
    return status;
}

tri_status trii_device_pop(void)
{
    if (mine()->depth == 0)
        return TRII_FAIL(TRI_ERR_STATE, "tri_device_end without tri_device_begin");
    mine()->depth--;
    return TRI_OK;
}
