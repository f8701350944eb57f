/*
 * flight_recorder.c - see flight_recorder.h.
 */
#include "group/flight_recorder.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "os/clock.h"
#include "os/cpu.h"
#include "os/process.h"
#include "os/shmem.h"
#include "os/thread.h"

struct trii_recorder {
    trii_recorder *next;
    int rank;
    int users; /* guard: recorders_lock */
    atomic_uint groups;
    trii_record_file *file;
    _Atomic(const char *) names[TRII_RECORD_FILES]; /* whose text is in the file table */
};

static trii_mutex recorders_lock = TRII_MUTEX_INITIALIZER;
static trii_recorder *recorders; /* guard: recorders_lock */

static trii_recorder *recorder_create(const char *folder, int rank, int size)
{
    trii_recorder *recorder = trii_alloc(1, sizeof(*recorder), "flight recorder");
    void *base = NULL;
    char path[512];

    if (recorder == NULL)
        return NULL;
    snprintf(path, sizeof(path), "%s/rank-%d.rec", folder, rank);
    if (trii_shmem_map_file(path, sizeof(trii_record_file), &base) != TRI_OK) {
        TRII_LOG(TRII_LOG_WARN, "group", "no flight record: %s", tri_last_error());
        trii_free(recorder);
        return NULL;
    }
    recorder->rank = rank;
    recorder->file = base;
    *recorder->file = (trii_record_file){.magic = TRII_RECORD_MAGIC,
                                         .rank = rank,
                                         .size = size,
                                         .pid = trii_process_id(),
                                         .n_records = TRII_RECORDS,
                                         .ticks = trii_ticks(),
                                         .monotonic_ns = trii_now_ns(),
                                         .wall_ns = trii_wall_ns()};
    recorder->file->ticks_per_s = trii_ticks_per_s();
    recorder->next = recorders;
    recorders = recorder;
    return recorder;
}

trii_recorder *trii_recorder_open(int rank, int size)
{
    const char *folder = trii_param_text(TRII_PARAM_RUN_DIR);
    trii_recorder *r;

    if (folder == NULL)
        return NULL;
    trii_mutex_lock(&recorders_lock);
    for (r = recorders; r != NULL && r->rank != rank;)
        r = r->next;
    if (r == NULL)
        r = recorder_create(folder, rank, size);
    if (r != NULL)
        r->users++;
    trii_mutex_unlock(&recorders_lock);
    return r;
}

void trii_recorder_close(trii_recorder *recorder)
{
    if (recorder == NULL)
        return;
    trii_mutex_lock(&recorders_lock);
    if (--recorder->users == 0) {
        trii_recorder **at = &recorders;

        while (*at != recorder)
            at = &(*at)->next;
        *at = recorder->next;
        trii_shmem_unmap_file(recorder->file, sizeof(*recorder->file));
        trii_free(recorder);
    }
    trii_mutex_unlock(&recorders_lock);
}

uint16_t trii_recorder_group(trii_recorder *recorder)
{
    return (uint16_t)(atomic_fetch_add(&recorder->groups, 1) + 1);
}

/* Index of the file's text in the table. Files whose names fall on one place take turns. */
static uint16_t name_index(trii_recorder *recorder, const char *name)
{
    unsigned i = (unsigned)(((uintptr_t)name >> 3) * 0x9e3779b1u >> 7) % TRII_RECORD_FILES;
    const char *slash;

    if (name == NULL)
        return UINT16_MAX;
    if (TRII_UNLIKELY(atomic_load_explicit(&recorder->names[i], memory_order_relaxed) != name)) {
        slash = strrchr(name, '/');
        trii_mutex_lock(&recorders_lock);
        snprintf(recorder->file->files[i], TRII_RECORD_FILE_BYTES, "%s",
                 slash != NULL ? slash + 1 : name);
        atomic_store(&recorder->names[i], name);
        trii_mutex_unlock(&recorders_lock);
    }
    return (uint16_t)i;
}

void trii_recorder_end(trii_recorder *recorder, uint64_t number, tri_status status)
{
    trii_record *record = &recorder->file->records[(number - 1) % TRII_RECORDS];

    if (atomic_load_explicit(&record->number, memory_order_relaxed) != number)
        return;
    record->status = (int32_t)status;
    record->state = status == TRI_OK ? TRII_RECORD_DONE : TRII_RECORD_FAILED;
}

uint64_t trii_recorder_begin(trii_recorder *recorder, const trii_collective *call, uint16_t group)
{
    trii_record_file *file = recorder->file;
    uint64_t number = atomic_fetch_add_explicit(&file->begun, 1, memory_order_relaxed) + 1;
    trii_record *record = &file->records[(number - 1) % TRII_RECORDS];

    atomic_store_explicit(&record->number, 0, memory_order_relaxed); /* half-written from here */
    record->ticks = trii_ticks();
    record->seq = call->seq;
    record->count = call->count;
    record->line = call->site.line;
    record->root = call->root;
    record->tag = call->tag;
    record->group = group;
    record->file = name_index(recorder, call->site.file);
    record->kind = (uint8_t)call->kind;
    record->dtype = (uint8_t)call->dtype;
    record->op = (uint8_t)call->op;
    record->state = TRII_RECORD_RUNNING;
    record->status = 0;
    atomic_store_explicit(&record->number, number, memory_order_release);
    return number;
}
