/*
 * event_file.c - see event_file.h.
 */
#include "train/records/event_file.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/file.h"
#include "os/forked.h"
#include "os/thread.h"
#include "train/records/crc32c.h"

#define WORTH_WRITING ((size_t)1 << 18) /* bytes that wait for no others */
#define FULL_AFTER 16                   /* records in a row that a disk did not take */

struct trii_event_file {
    trii_event_file_options options;
    char *path;
    int fd;
    int fork_level; /* of the process that has the thread */
    trii_thread thread;

    trii_mutex mutex;
    trii_cond work; /* for the thread */
    trii_cond done; /* for the others */
    /* guarded by mutex */
    uint8_t *fill; /* records that wait; their checksums are still missing */
    size_t used, room;
    size_t writing;      /* bytes that the thread has taken */
    uint64_t put, ended; /* bytes, ever: those that came, and those that are written or lost */
    int64_t first_ns;    /* when the first of those that wait came */
    int in_a_hurry;      /* callers who wait for the disk */
    bool stop;
    int64_t lost;             /* records, in all */
    char why[TRII_ERR_BYTES]; /* the last failure that nobody was told of; "" = none */
};

/* --- the thread ----------------------------------------------------------- */

static size_t frame_bytes(const uint8_t *frame)
{
    uint64_t n;

    memcpy(&n, frame, sizeof(n));
    return TRII_EVENT_HEAD + (size_t)n + TRII_EVENT_TAIL;
}

static void seal(uint8_t *frames, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += frame_bytes(frames + at)) {
        size_t n = frame_bytes(frames + at) - TRII_EVENT_HEAD - TRII_EVENT_TAIL;
        uint8_t *data = frames + at + TRII_EVENT_HEAD;
        uint32_t head = trii_crc32c_masked(frames + at, 8), tail = trii_crc32c_masked(data, n);

        memcpy(frames + at + 8, &head, sizeof(head));
        memcpy(data + n, &tail, sizeof(tail));
    }
}

/* As many whole records as the disk takes; returns how many it did not. A small one may fit where a
 * large one does not; but each of the millions that may wait is not tried. */
static int64_t write_frames(const trii_event_file *file, uint8_t *frames, size_t bytes)
{
    int64_t lost = 0;
    int refused = 0; /* in a row */

    seal(frames, bytes);
    if (trii_append_whole(file->fd, file->path, frames, bytes) == TRI_OK)
        return 0;
    for (size_t at = 0, n; at < bytes; at += n) {
        n = frame_bytes(frames + at);
        if (refused < FULL_AFTER &&
            trii_append_whole(file->fd, file->path, frames + at, n) == TRI_OK) {
            refused = 0;
        } else {
            refused += refused < FULL_AFTER;
            lost++;
        }
    }
    return lost;
}

/* Until it is time to write what waits. Locked. False: nothing is left, and nothing more comes. */
static bool wait_for_work(trii_event_file *file)
{
    while (file->used == 0 && !file->stop)
        trii_cond_wait(&file->work, &file->mutex);
    while (!file->stop && file->in_a_hurry == 0 && file->used < WORTH_WRITING) {
        if (!trii_cond_wait_until(&file->work, &file->mutex,
                                  file->first_ns + file->options.flush_ns))
            break;
    }
    return file->used > 0;
}

static void thread_main(void *arg)
{
    trii_event_file *file = arg;

    trii_mutex_lock(&file->mutex);
    while (wait_for_work(file)) {
        uint8_t *frames = file->fill;
        size_t bytes = file->used;
        int64_t lost;

        file->fill = NULL;
        file->used = file->room = 0;
        file->writing = bytes;
        trii_mutex_unlock(&file->mutex);
        lost = write_frames(file, frames, bytes);
        trii_free(frames);
        trii_mutex_lock(&file->mutex);
        file->writing = 0;
        file->ended += bytes;
        if (lost > 0)
            snprintf(file->why, sizeof(file->why), "%s", tri_last_error());
        file->lost += lost;
        trii_cond_broadcast(&file->done);
    }
    trii_mutex_unlock(&file->mutex);
}

/* --- the callers ---------------------------------------------------------- */

tri_status trii_event_file_open(const char *path, const trii_event_file_options *options,
                                trii_event_file **file_out)
{
    trii_event_file *file = trii_alloc(1, sizeof(*file), "event file");
    tri_status status;

    if (file == NULL)
        return TRI_ERR_NO_MEMORY;
    file->options = *options;
    file->fd = -1;
    file->path = trii_strdup(path, "path");
    status = file->path != NULL ? trii_append_open(path, &file->fd) : TRI_ERR_NO_MEMORY;
    if (status != TRI_OK)
        goto err_file;
    trii_fork_level_watch();
    file->fork_level = atomic_load(&trii_fork_level);
    trii_mutex_init(&file->mutex);
    trii_cond_init(&file->work);
    trii_cond_init(&file->done);
    status = trii_thread_start(&file->thread, "tri-events", thread_main, file);
    if (status != TRI_OK)
        goto err_locks;
    *file_out = file;
    return TRI_OK;

err_locks:
    trii_cond_fini(&file->done);
    trii_cond_fini(&file->work);
    trii_mutex_fini(&file->mutex);
err_file:
    trii_fd_close(file->fd);
    trii_free(file->path);
    trii_free(file);
    return status;
}

static bool is_forked(const trii_event_file *file)
{
    return atomic_load_explicit(&trii_fork_level, memory_order_relaxed) != file->fork_level;
}

static tri_status fail_forked(const trii_event_file *file)
{
    return TRII_FAIL(
        TRI_ERR_STATE,
        "%s was opened before a fork, and its thread is the parent's: open another one "
        "in this process",
        file->path);
}

/* What the thread has met since somebody was told. Locked. */
static tri_status take_failure(trii_event_file *file)
{
    if (file->why[0] == '\0')
        return TRI_OK;
    trii_err_set("%s", file->why);
    file->why[0] = '\0';
    return TRI_ERR_IO;
}

/* Until there is room for so many bytes. Locked. */
static tri_status wait_for_room(trii_event_file *file, size_t bytes)
{
    const size_t most = file->options.max_waiting;
    int64_t deadline;

    if (file->used + file->writing == 0 || file->used + file->writing + bytes <= most)
        return TRI_OK;
    deadline = trii_now_ns() + file->options.max_ns;
    file->in_a_hurry++;
    trii_cond_signal(&file->work);
    while (file->used + file->writing > 0 && file->used + file->writing + bytes > most) {
        if (!trii_cond_wait_until(&file->done, &file->mutex, deadline))
            break;
    }
    file->in_a_hurry--;
    if (file->used + file->writing == 0 || file->used + file->writing + bytes <= most)
        return TRI_OK;
    file->lost++;
    return TRII_FAIL(TRI_ERR_IO,
                     "%s: %zu bytes of records wait for the disk, which took none for %lld s, so "
                     "this one is left out",
                     file->path, file->used + file->writing,
                     (long long)(file->options.max_ns / TRII_NS_PER_S));
}

static tri_status append(trii_event_file *file, const void *data, size_t bytes)
{
    const size_t frame = TRII_EVENT_HEAD + bytes + TRII_EVENT_TAIL;
    const uint64_t n = bytes;
    uint8_t *at;

    if (frame > file->room - file->used) {
        size_t room = file->room > 0 ? file->room : 1024;

        while (room - file->used < frame)
            room *= 2;
        at = trii_realloc(file->fill, room, 1, "records");
        if (at == NULL)
            return TRI_ERR_NO_MEMORY;
        file->fill = at;
        file->room = room;
    }
    if (file->used == 0) {
        file->first_ns = trii_now_ns();
        trii_cond_signal(&file->work);
    }
    at = file->fill + file->used;
    memcpy(at, &n, sizeof(n));
    memcpy(at + TRII_EVENT_HEAD, data, bytes);
    file->used += frame;
    file->put += frame;
    if (file->used >= WORTH_WRITING && file->used - frame < WORTH_WRITING)
        trii_cond_signal(&file->work);
    return TRI_OK;
}

tri_status trii_event_file_put(trii_event_file *file, const void *data, size_t bytes)
{
    tri_status status;

    if (is_forked(file))
        return fail_forked(file);
    trii_mutex_lock(&file->mutex);
    status = take_failure(file);
    if (status == TRI_OK)
        status = wait_for_room(file, bytes);
    if (status == TRI_OK)
        status = append(file, data, bytes);
    trii_mutex_unlock(&file->mutex);
    return status;
}

tri_status trii_event_file_flush(trii_event_file *file)
{
    tri_status status;
    uint64_t wanted;

    if (is_forked(file))
        return fail_forked(file);
    trii_mutex_lock(&file->mutex);
    wanted = file->put;
    file->in_a_hurry++;
    trii_cond_signal(&file->work);
    while (file->ended < wanted)
        trii_cond_wait(&file->done, &file->mutex);
    file->in_a_hurry--;
    status = take_failure(file);
    trii_mutex_unlock(&file->mutex);
    return status;
}

tri_status trii_event_file_close(trii_event_file *file)
{
    tri_status status = TRI_OK;

    if (file == NULL)
        return TRI_OK;
    if (!is_forked(file)) {
        trii_mutex_lock(&file->mutex);
        file->stop = true;
        trii_cond_signal(&file->work);
        trii_mutex_unlock(&file->mutex);
        trii_thread_join(&file->thread);
        if (file->lost > 0) {
            char why[TRII_ERR_BYTES];

            snprintf(why, sizeof(why), "%s", file->why[0] != '\0' ? file->why : "told before");
            status = TRII_FAIL(TRI_ERR_IO, "%s: %lld records were not written: %s", file->path,
                               (long long)file->lost, why);
        }
        trii_cond_fini(&file->done);
        trii_cond_fini(&file->work);
        trii_mutex_fini(&file->mutex);
        trii_free(file->fill);
    } /* else another thread may have been about to change it when the process forked */
    trii_fd_close(file->fd);
    trii_free(file->path);
    trii_free(file);
    return status;
}
