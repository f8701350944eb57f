/*
 * flight_recorder.c - see flight_recorder.h.
 */
/* build: hot leaf */
#include "comm/group/watch/flight_recorder.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "os/clock.h"
#include "os/host.h"
#include "os/process.h"
#include "os/shmem.h"
#include "os/thread.h"

struct trii_recorder {
    trii_recorder *next;
    int rank;
    int fd;
    int users;         /* guard: recorders_lock */
    uint16_t n_groups; /* guard: recorders_lock; so many there have been */
    trii_record_file *file;
    _Atomic(const char *) names[TRII_RECORD_FILES]; /* whose text is in the file table */
};

static trii_mutex recorders_lock = TRII_MUTEX_INITIALIZER;
static trii_recorder *recorders; /* guard: recorders_lock */

static trii_recorder *recorder_create(const char *folder, int rank, int size)
{
    trii_recorder *recorder = trii_alloc(1, sizeof(*recorder), "flight recorder");
    void *base = NULL;
    char path[512], wanted[512];

    if (recorder == NULL)
        return NULL;
    snprintf(path, sizeof(path), "%s/rank-%d.%d.rec", folder, rank, trii_process_id());
    snprintf(wanted, sizeof(wanted), "%s/rank-%d.rec", folder, rank);
    if (trii_shmem_map_file(path, sizeof(trii_record_file), &recorder->fd, &base) != TRI_OK) {
        TRII_LOG(TRII_LOG_WARN, "group", "no flight record: %s", tri_last_error());
        trii_free(recorder);
        return NULL;
    }
    recorder->rank = rank;
    recorder->file = base;
    recorder->file->rank = rank;
    recorder->file->size = size;
    recorder->file->pid = trii_process_id();
    recorder->file->n_records = TRII_RECORDS;
    recorder->file->monotonic_ns = trii_now_ns();
    recorder->file->wall_ns = trii_wall_ns();
    recorder->file->boot = trii_boot_number();
    recorder->file->state = TRII_RECORD_FILE_USED;
    trii_host_name(recorder->file->host, sizeof(recorder->file->host));
    trii_process_command_line(recorder->file->program, sizeof(recorder->file->program));
    memcpy(recorder->file->magic, TRII_RECORD_MAGIC, sizeof(TRII_RECORD_MAGIC));
    trii_shmem_name_file(path, wanted);
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
        recorder->file->state = TRII_RECORD_FILE_LEFT;
        trii_shmem_unmap_file(recorder->fd, recorder->file, sizeof(*recorder->file));
        trii_free(recorder);
    }
    trii_mutex_unlock(&recorders_lock);
}

/* The place of a group in the table; NULL if it has none. */
static trii_record_group *group_of(trii_recorder *recorder, uint16_t number)
{
    for (int i = 0; number != 0 && i < TRII_RECORD_GROUPS; i++) {
        if (recorder->file->groups[i].number == number)
            return &recorder->file->groups[i];
    }
    return NULL;
}

uint16_t trii_recorder_group_forms(trii_recorder *recorder, const trii_record_group *facts)
{
    trii_record_group *place = NULL;
    uint16_t number;

    trii_mutex_lock(&recorders_lock);
    do {
        recorder->n_groups = recorder->n_groups % (TRII_RECORD_UNLISTED - 1) + 1;
        number = recorder->n_groups;
    } while (group_of(recorder, number) != NULL); /* it has lived while 32,000 others came */
    for (int i = 0; i < TRII_RECORD_GROUPS && place == NULL; i++) {
        trii_record_group *at = &recorder->file->groups[i];

        if (at->number == 0 || (at->id == TRII_RECORD_MEETING && at->size == facts->size &&
                                memcmp(at->name, facts->name, sizeof(at->name)) == 0))
            place = at;
    }
    /* The table is full: take the place of a group that was left. Without one this is not listed.
     */
    for (int i = 0; i < TRII_RECORD_GROUPS && place == NULL; i++) {
        trii_record_group *at = &recorder->file->groups[(number + i) % TRII_RECORD_GROUPS];

        if (at->state == TRII_RECORD_GROUP_LEFT)
            place = at;
    }
    if (place != NULL) {
        atomic_store(&place->number, 0);
        place->id = facts->id;
        place->rank = facts->rank;
        place->size = facts->size;
        place->state = TRII_RECORD_GROUP_FORMING;
        memset(place->engine, 0, sizeof(place->engine));
        memcpy(place->name, facts->name, sizeof(place->name));
        place->since_ns = trii_now_ns();
        place->epoch = facts->epoch;
        atomic_store(&place->number, number);
    } else {
        number |= TRII_RECORD_UNLISTED;
        atomic_fetch_add(&recorder->file->unlisted, 1);
    }
    trii_mutex_unlock(&recorders_lock);
    return number;
}

void trii_recorder_group_state(trii_recorder *recorder, uint16_t number, int state,
                               const char *engine)
{
    trii_record_group *group;

    trii_mutex_lock(&recorders_lock);
    group = group_of(recorder, number);
    if (group != NULL && engine != NULL)
        snprintf(group->engine, sizeof(group->engine), "%s", engine);
    if (group != NULL)
        group->state = (uint8_t)state;
    else if (state == TRII_RECORD_GROUP_LEFT && (number & TRII_RECORD_UNLISTED) != 0)
        atomic_fetch_sub(&recorder->file->unlisted, 1);
    trii_mutex_unlock(&recorders_lock);
}

void trii_recorder_failed(trii_recorder *recorder, uint16_t group, tri_status status,
                          const char *text)
{
    trii_mutex_lock(&recorders_lock);
    if (atomic_load(&recorder->file->failed) == 0) {
        snprintf(recorder->file->failure, sizeof(recorder->file->failure), "%s", text);
        recorder->file->failed_group = group;
        atomic_store(&recorder->file->failed, (int)status);
    }
    trii_mutex_unlock(&recorders_lock);
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

static trii_record *place_of(trii_recorder *recorder, uint64_t number)
{
    return &recorder->file->records[(number - 1) % TRII_RECORDS];
}

static bool is_running(trii_record *record)
{
    return atomic_load_explicit(&record->state, memory_order_relaxed) == TRII_RECORD_RUNNING;
}

void trii_recorder_end(trii_recorder *recorder, uint64_t number, tri_status status)
{
    trii_record *record = place_of(recorder, number);

    if (atomic_load_explicit(&record->number, memory_order_relaxed) != number)
        return;
    record->status = (int32_t)status;
    atomic_store_explicit(&record->state, status == TRI_OK ? TRII_RECORD_DONE : TRII_RECORD_FAILED,
                          memory_order_relaxed);
}

/* The next number whose place is free: a call that does not end must still be found when its rank
 * has made a thousand others. */
static TRII_NOINLINE uint64_t pass_over(trii_recorder *recorder, uint64_t number)
{
    trii_record_file *file = recorder->file;

    for (int i = 0; i < TRII_RECORDS_PASSED; i++) {
        number = atomic_fetch_add_explicit(&file->begun, 1, memory_order_relaxed) + 1;
        atomic_fetch_add_explicit(&file->passed, 1, memory_order_relaxed);
        if (!is_running(place_of(recorder, number)))
            return number;
    }
    atomic_fetch_add_explicit(&file->lost, 1, memory_order_relaxed);
    return number;
}

uint64_t trii_recorder_begin(trii_recorder *recorder, const trii_collective *call, uint16_t group)
{
    trii_record_file *file = recorder->file;
    uint64_t number = atomic_fetch_add_explicit(&file->begun, 1, memory_order_relaxed) + 1;
    trii_record *record = place_of(recorder, number);

    if (TRII_UNLIKELY(is_running(record))) {
        number = pass_over(recorder, number);
        record = place_of(recorder, number);
    }
    atomic_store_explicit(&record->number, 0, memory_order_relaxed); /* half-written from here */
    record->began_ns = trii_coarse_ns();
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
    atomic_store_explicit(&record->state, TRII_RECORD_RUNNING, memory_order_relaxed);
    atomic_store_explicit(&record->number, number, memory_order_release);
    return number;
}
