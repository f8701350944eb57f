/*
 * background.c - see background.h. Log files (log_file.c), plain files of a sink
 * (output_sink.c) and the files of report/ are written here: a write to NFS or to a full disk may
 * block for seconds, in which the agent would serve no store and see no death.
 */
#include "launch/output/background.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/descriptor.h"
#include "os/thread.h"

struct trii_background_file {
    trii_background *owner;
    const trii_background_kind *kind;
    void *target; /* the thread's, from the first bytes on */
    char *what;
    bool warned; /* that something was lost; the loop's */

    /* guarded by the owner's mutex */
    trii_background_file *next;
    bool closed, released;
    char *fill; /* what has come */
    size_t used, room;
    size_t writing;           /* bytes that the thread has taken and writes */
    char why[TRII_ERR_BYTES]; /* the last failure; "" = none */
};

struct trii_background {
    trii_loop *loop;
    void (*moved)(void *arg);
    void (*warn)(void *arg, const char *text);
    void *arg;
    trii_watch wakeup;
    int wakeup_fd;
    trii_thread thread;
    bool started;

    trii_mutex mutex;
    trii_cond work;
    /* guarded by mutex; only the loop changes the list, which it may read without */
    trii_background_file *files;
    bool stop;
};

/* --- the thread ----------------------------------------------------------- */

/* Writes what has come for a file, and releases it if it is closed. Locked, but not meanwhile. */
static void serve(trii_background_file *file)
{
    trii_background *b = file->owner;
    char *data = file->fill;
    size_t bytes = file->used;
    bool release = file->closed;
    tri_status status = TRI_OK;

    file->fill = NULL;
    file->used = file->room = 0;
    file->writing = bytes;
    trii_mutex_unlock(&b->mutex);
    if (bytes > 0)
        status = file->kind->put(file->target, data, bytes);
    trii_free(data);
    if (release) /* here, since to close a file may take as long as to write it */
        file->kind->release(file->target);
    trii_mutex_lock(&b->mutex);
    if (status != TRI_OK)
        snprintf(file->why, sizeof(file->why), "%s", tri_last_error());
    file->writing = 0;
    file->released = release;
    trii_wakeup_signal(b->wakeup_fd);
}

/* One turn of each file. Locked. False: there was nothing to do. */
static bool serve_all(trii_background *b)
{
    bool any = false;

    /* The loop frees none that is not released, and none while we hold the mutex. */
    for (trii_background_file *file = b->files; file != NULL; file = file->next) {
        if (file->released || (file->used == 0 && !file->closed))
            continue;
        serve(file);
        any = true;
    }
    return any;
}

static void write_files(void *arg)
{
    trii_background *b = arg;

    trii_mutex_lock(&b->mutex);
    for (;;) {
        if (serve_all(b))
            continue; /* there may be more now */
        if (b->stop)
            break;
        trii_cond_wait(&b->work, &b->mutex);
    }
    trii_mutex_unlock(&b->mutex);
}

/* --- the loop's side ------------------------------------------------------ */

static void file_free(trii_background_file *file)
{
    if (!file->released)
        file->kind->release(file->target);
    trii_free(file->fill);
    trii_free(file->what);
    trii_free(file);
}

static void warn_once(trii_background_file *file, const char *why)
{
    char text[TRII_ERR_BYTES + 512];

    if (file->warned)
        return;
    file->warned = true;
    snprintf(text, sizeof(text), "%s: %s", file->what, why);
    file->owner->warn(file->owner->arg, text);
}

static void collect_results(trii_background *b)
{
    for (trii_background_file **link = &b->files, *file; (file = *link) != NULL;) {
        char why[TRII_ERR_BYTES];
        bool released;

        trii_mutex_lock(&b->mutex);
        memcpy(why, file->why, sizeof(why));
        file->why[0] = '\0';
        released = file->released;
        if (released)
            *link = file->next;
        else
            link = &file->next;
        trii_mutex_unlock(&b->mutex);
        if (why[0] != '\0')
            warn_once(file, why);
        if (released)
            file_free(file);
    }
}

static void results_ready(trii_watch *watch, unsigned events)
{
    trii_background *b = TRII_CONTAINER(watch, trii_background, wakeup);

    (void)events;
    trii_wakeup_clear(b->wakeup_fd);
    collect_results(b);
    if (b->moved != NULL)
        b->moved(b->arg);
}

static tri_status start_thread(trii_background *b)
{
    tri_status status = trii_wakeup_create(&b->wakeup_fd);

    if (status != TRI_OK)
        return status;
    status = trii_loop_watch(b->loop, &b->wakeup, b->wakeup_fd, TRII_READABLE, results_ready);
    if (status == TRI_OK)
        status = trii_thread_start(&b->thread, "trirun files", write_files, b);
    if (status != TRI_OK) {
        trii_loop_unwatch(&b->wakeup);
        trii_fd_close(b->wakeup_fd);
        return status;
    }
    b->started = true;
    return TRI_OK;
}

tri_status trii_background_create(trii_loop *loop, void (*moved)(void *arg),
                                  void (*warn)(void *arg, const char *text), void *arg,
                                  trii_background **background_out)
{
    trii_background *b = trii_alloc(1, sizeof(*b), "writer of files");

    if (b == NULL)
        return TRI_ERR_NO_MEMORY;
    b->loop = loop;
    b->moved = moved;
    b->warn = warn;
    b->arg = arg;
    trii_mutex_init(&b->mutex);
    trii_cond_init(&b->work);
    *background_out = b;
    return TRI_OK;
}

tri_status trii_background_open(trii_background *background, const trii_background_kind *kind,
                                const char *what, void *own_target, trii_background_file **file_out)
{
    trii_background_file *file = trii_alloc(1, sizeof(*file), "file");

    if (file == NULL)
        goto err_release;
    file->what = trii_strdup(what, "name of a file");
    if (file->what == NULL)
        goto err_free;
    file->owner = background;
    file->kind = kind;
    file->target = own_target;
    trii_mutex_lock(&background->mutex);
    file->next = background->files;
    background->files = file;
    trii_mutex_unlock(&background->mutex);
    *file_out = file;
    return TRI_OK;

err_free:
    trii_free(file);
err_release:
    kind->release(own_target);
    return TRI_ERR_NO_MEMORY;
}

/* Locked. False: no memory. */
static bool append(trii_background_file *file, const char *data, size_t bytes)
{
    size_t used = file->kind->newest ? 0 : file->used;

    if (used + bytes > file->room) {
        size_t room = used + bytes < 4096 ? 8192 : 2 * (used + bytes);
        char *more = trii_realloc(file->fill, room, 1, "bytes for a file");

        if (more == NULL)
            return false;
        file->fill = more;
        file->room = room;
    }
    memcpy(file->fill + used, data, bytes);
    file->used = used + bytes;
    return true;
}

void trii_background_put(trii_background_file *file, const char *data, size_t bytes)
{
    trii_background *b = file->owner;
    bool filled;

    if (bytes == 0)
        return;
    if (!b->started && start_thread(b) != TRI_OK) { /* no descriptor or thread is left: wait here */
        if (file->kind->put(file->target, data, bytes) != TRI_OK)
            warn_once(file, tri_last_error());
        return;
    }
    trii_mutex_lock(&b->mutex);
    filled = append(file, data, bytes);
    trii_mutex_unlock(&b->mutex);
    trii_cond_signal(&b->work);
    if (!filled)
        warn_once(file, tri_last_error());
}

size_t trii_background_left(const trii_background_file *file)
{
    size_t left;

    if (file == NULL)
        return 0;
    trii_mutex_lock(&file->owner->mutex);
    left = file->used + file->writing;
    trii_mutex_unlock(&file->owner->mutex);
    return left;
}

size_t trii_background_left_in_all(const trii_background *background)
{
    size_t left = 0;

    if (background == NULL)
        return 0;
    for (const trii_background_file *file = background->files; file != NULL; file = file->next)
        left += trii_background_left(file);
    return left;
}

void trii_background_close(trii_background_file *file)
{
    trii_background *b = file != NULL ? file->owner : NULL;

    if (file == NULL)
        return;
    trii_mutex_lock(&b->mutex);
    file->closed = true;
    trii_mutex_unlock(&b->mutex);
    trii_cond_signal(&b->work);
    if (b->started)
        return;
    file->kind->release(file->target);
    file->released = true;
    collect_results(b);
}

/* Files that could not be written in time. */
static void warn_of_unwritten(trii_background *b)
{
    for (trii_background_file *file = b->files; file != NULL; file = file->next) {
        size_t left = trii_background_left(file);
        char why[80];

        snprintf(why, sizeof(why), "%zu bytes could not be written in time", left);
        if (left > 0)
            warn_once(file, why);
    }
}

void trii_background_destroy(trii_background *background)
{
    trii_background *b = background;
    trii_background_file *file;

    if (b == NULL)
        return;
    if (b->started)
        collect_results(b);
    if (trii_background_left_in_all(b) > 0) {
        warn_of_unwritten(b);
        trii_loop_unwatch(&b->wakeup);
        trii_thread_detach(&b->thread);
        return;
    }
    if (b->started) {
        trii_mutex_lock(&b->mutex);
        b->stop = true;
        trii_mutex_unlock(&b->mutex);
        trii_cond_signal(&b->work);
        trii_thread_join(&b->thread);
        trii_loop_unwatch(&b->wakeup);
        trii_fd_close(b->wakeup_fd);
    }
    while ((file = b->files) != NULL) {
        b->files = file->next;
        file_free(file);
    }
    trii_cond_fini(&b->work);
    trii_mutex_fini(&b->mutex);
    trii_free(b);
}
