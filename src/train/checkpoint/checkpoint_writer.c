/*
 * checkpoint_writer.c - checkpoints that a thread writes while training goes on:
 * tri_checkpoint_writer_*. The caller copies the state (snapshot.c), the thread writes the copy
 * (commit.c). There is one copy, so that a save waits for the one before it.
 */
#include <stdio.h>
#include <string.h>

#include <trireme/group.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "comm/group/join/world.h"
#include "train/checkpoint/snapshot.h"
#include "train/nn/module.h"
#include "train/tensor/elsewhere.h"
#include "os/clock.h"
#include "os/process.h"
#include "os/thread.h"

/* A group of the writers' own: its calls run beside those of training, in an order that nobody
 * knows. */
typedef struct own_group {
    tri_group *group; /* NULL: none yet, */
    uint64_t of;      /* made of that one: its number, since it may be gone */
} own_group;

struct tri_checkpoint_writer {
    char *folder;
    trii_thread thread;
    int process; /* the process that has the thread: a child of fork() has none */

    /* The caller's while no save is in flight, the thread's while one is. */
    trii_snapshot snapshot;
    tri_checkpoint_save_options opt; /* its steps are ours */
    int64_t *steps;                  /* [steps_room] */
    int steps_room;
    own_group saving;   /* of the writers of all ranks that save together */
    own_group replicas; /* of those with replicas of parts, of which the first saves */
    bool saves, tells;  /* the save in flight: this rank has a part in it; replicas hear of it */

    trii_mutex mutex;
    trii_cond changed;
    bool in_flight, ending; /* guarded, as all that follows */
    tri_status status;      /* of the last save, until somebody is told; its line: */
    char why[TRII_ERR_BYTES];
    int64_t write_ns;
};

/* The lock is held, and given up while the files are written. */
static void write_one(tri_checkpoint_writer *w)
{
    tri_status status;
    int64_t begin_ns;

    trii_mutex_unlock(&w->mutex);
    begin_ns = trii_now_ns();
    status = w->saves ? trii_snapshot_write(&w->snapshot, w->folder, &w->opt) : TRI_OK;
    if (w->tells)
        status = trii_ranks_agree(w->replicas.group, status);
    trii_mutex_lock(&w->mutex);
    w->write_ns = trii_now_ns() - begin_ns;
    w->status = status;
    if (status != TRI_OK)
        snprintf(w->why, sizeof(w->why), "%s", tri_last_error());
    w->in_flight = false;
    trii_cond_broadcast(&w->changed);
}

static void run(void *arg)
{
    tri_checkpoint_writer *w = arg;

    trii_mutex_lock(&w->mutex);
    while (w->in_flight || !w->ending) {
        if (w->in_flight)
            write_one(w);
        else
            trii_cond_wait(&w->changed, &w->mutex);
    }
    trii_mutex_unlock(&w->mutex);
}

tri_status tri_checkpoint_writer_create(const char *folder, tri_checkpoint_writer **writer_out)
{
    const char *call = "tri_checkpoint_writer_create";
    tri_status status = trii_need_text(folder, call, "folder");
    tri_checkpoint_writer *w;

    if (status == TRI_OK)
        status = trii_need(writer_out, call, "writer_out");
    if (status != TRI_OK)
        return status;
    w = trii_alloc(1, sizeof(*w), "checkpoint writer");
    if (w == NULL)
        return TRI_ERR_NO_MEMORY;
    w->folder = trii_strdup(folder, "path");
    if (w->folder == NULL) {
        trii_free(w);
        return TRI_ERR_NO_MEMORY;
    }
    trii_mutex_init(&w->mutex);
    trii_cond_init(&w->changed);
    w->process = trii_process_id();
    status = trii_thread_start(&w->thread, "tri-checkpoint", run, w);
    if (status != TRI_OK)
        goto err_thread;
    *writer_out = w;
    return TRI_OK;

err_thread:
    trii_cond_fini(&w->changed);
    trii_mutex_fini(&w->mutex);
    trii_free(w->folder);
    trii_free(w);
    return status;
}

/* A child of fork() has no thread, and a lock that may have been held by it. */
static bool is_forked(const tri_checkpoint_writer *w)
{
    return w->process != trii_process_id();
}

void tri_checkpoint_writer_destroy(tri_checkpoint_writer *writer)
{
    if (writer == NULL)
        return;
    if (!is_forked(writer)) {
        trii_mutex_lock(&writer->mutex);
        writer->ending = true;
        trii_cond_broadcast(&writer->changed);
        trii_mutex_unlock(&writer->mutex);
        trii_thread_join(&writer->thread);
        if (writer->status != TRI_OK)
            TRII_LOG(TRII_LOG_WARN, "checkpoint", "not saved: %s", writer->why);
        trii_cond_fini(&writer->changed);
        trii_mutex_fini(&writer->mutex);
        tri_group_unref(writer->saving.group); /* in a child they are the parent's */
        tri_group_unref(writer->replicas.group);
    }
    trii_snapshot_fini(&writer->snapshot);
    trii_free(writer->steps);
    trii_free(writer->folder);
    trii_free(writer);
}

static tri_status check_writer(const char *call, const tri_checkpoint_writer *writer)
{
    tri_status status = trii_need(writer, call, "writer");

    if (status == TRI_OK && is_forked(writer))
        status = TRII_FAIL(TRI_ERR_STATE,
                           "%s: the writer's thread is in the process that forked this one: create "
                           "one here",
                           call);
    return status;
}

/* Until nothing is in flight. Tells of a failure once. */
static tri_status wait_for_last(tri_checkpoint_writer *w)
{
    tri_status status;

    trii_mutex_lock(&w->mutex);
    while (w->in_flight)
        trii_cond_wait(&w->changed, &w->mutex);
    status = w->status;
    w->status = TRI_OK;
    trii_mutex_unlock(&w->mutex);
    return status == TRI_OK ? TRI_OK : TRII_FAIL(status, "%s", w->why);
}

static tri_status take_options(tri_checkpoint_writer *w, const tri_checkpoint_save_options *opt)
{
    int n = opt != NULL ? opt->n_keep_steps : 0;

    w->opt = opt != NULL ? *opt : (tri_checkpoint_save_options){.keep = 0};
    if (n > w->steps_room) {
        int64_t *steps = trii_realloc(w->steps, (size_t)n, sizeof(*steps), "steps that stay");

        if (steps == NULL)
            return TRI_ERR_NO_MEMORY;
        w->steps = steps;
        w->steps_room = n;
    }
    if (n > 0)
        memcpy(w->steps, opt->keep_steps, (size_t)n * sizeof(*w->steps));
    w->opt.keep_steps = w->steps;
    return TRI_OK;
}

/* Made by the first save, and again after it has failed. */
static tri_status meet(own_group *own, tri_group *group)
{
    int64_t ready = own->group != NULL && own->of == trii_group_number(group) &&
                    tri_group_status(own->group) == TRI_OK;
    tri_status status =
        tri_all_reduce(group, &ready, &ready, 1, TRI_DTYPE_I64, TRI_REDOP_MIN, NULL);

    if (status != TRI_OK || ready != 0)
        return status;
    tri_group_unref(own->group);
    *own = (own_group){.of = trii_group_number(group)};
    return tri_group_split(group, 0, tri_group_rank(group), NULL, &own->group);
}

/* status: of this rank so far. */
static tri_status meet_replicas(tri_checkpoint_writer *w, tri_group *group, tri_status status)
{
    if (status == TRI_OK)
        status = wait_for_last(w);
    status = trii_ranks_agree(group, status);
    return status == TRI_OK ? meet(&w->replicas, group) : status;
}

static void start(tri_checkpoint_writer *w, bool saves, const trii_replicas *replicas)
{
    w->saves = saves;
    w->tells = replicas->group != NULL;
    trii_mutex_lock(&w->mutex);
    w->in_flight = true;
    trii_cond_broadcast(&w->changed);
    trii_mutex_unlock(&w->mutex);
}

/* The copy is taken: the thread writes it. */
static tri_status hand_over(tri_checkpoint_writer *w, tri_group *ranks,
                            const trii_replicas *replicas)
{
    tri_status status = ranks != NULL ? meet(&w->saving, ranks) : TRI_OK;

    if (ranks != NULL) {
        w->snapshot.ranks = w->saving.group;
        if (w->snapshot.pieces.group != NULL)
            w->snapshot.pieces.group = w->saving.group;
    }
    if (status == TRI_OK)
        start(w, true, replicas);
    return status;
}

static tri_status save(const char *call, tri_checkpoint_writer *writer, tri_module *module,
                       tri_optimizer *optimizer, const tri_checkpoint_info *info,
                       const tri_checkpoint_save_options *opt, const trii_replicas *replicas,
                       tri_status status)
{
    bool is_made = tri_module_status(module) == TRI_OK;
    tri_group *ranks, *sharers = is_made ? trii_sharers(module) : NULL;

    if (status == TRI_OK)
        status = trii_check_save(call, module, optimizer, info, opt);
    ranks = trii_savers(module, optimizer, status == TRI_OK ? info : NULL, opt);
    if (status == TRI_OK)
        status = wait_for_last(writer);
    if (status == TRI_OK)
        status = take_options(writer, opt);
    /* As tri_checkpoint_save. */
    if (is_made && tri_module_unwrapped(module)->stages != NULL) {
        status = trii_stages_take(writer != NULL ? &writer->snapshot : NULL, call, module,
                                  optimizer, info, status);
        if (status != TRI_OK || writer == NULL)
            return status;
        if (!writer->snapshot.only_gives)
            return hand_over(writer, ranks, replicas);
        if (replicas->group != NULL) /* replicas of it wait to hear, too */
            start(writer, false, replicas);
        return TRI_OK;
    }
    if (sharers != NULL)
        status = trii_ranks_meet(sharers, call, status);
    if (status == TRI_OK)
        status = trii_snapshot_take(&writer->snapshot, module, optimizer, info, ranks, sharers);
    if (sharers != NULL)
        status = trii_ranks_agree(sharers, status);
    if (sharers != NULL && tri_group_rank(sharers) > 0)
        return status; /* the first of them writes */
    status = trii_ranks_meet(ranks, call, status);
    return status == TRI_OK ? hand_over(writer, ranks, replicas) : status;
}

tri_status(tri_checkpoint_writer_save)(tri_checkpoint_writer *writer, tri_module *module,
                                       tri_optimizer *optimizer, const tri_checkpoint_info *info,
                                       const tri_checkpoint_save_options *opt)
{
    const char *call = "tri_checkpoint_writer_save";
    trii_replicas replicas;
    tri_status status = trii_replicas_begin(&replicas, call, module, opt);
    bool saves = status == TRI_OK && replicas.saves;

    if (status == TRI_OK)
        status = check_writer(call, writer);
    if (replicas.group != NULL) /* their writers tell each other how the save ends */
        status = meet_replicas(writer, replicas.group, status);
    if (saves)
        status = save(call, writer, module, optimizer, info, opt, &replicas, status);
    if (replicas.group != NULL)
        status = trii_ranks_agree(replicas.group, status);
    if (status == TRI_OK && replicas.group != NULL && !replicas.saves)
        start(writer, false, &replicas);
    return trii_replicas_end(&replicas, module, status);
}

tri_status tri_checkpoint_writer_wait(tri_checkpoint_writer *writer)
{
    tri_status status = check_writer("tri_checkpoint_writer_wait", writer);

    return status == TRI_OK ? wait_for_last(writer) : status;
}

bool tri_checkpoint_writer_is_busy(tri_checkpoint_writer *writer)
{
    bool busy;

    if (writer == NULL || is_forked(writer))
        return false;
    trii_mutex_lock(&writer->mutex);
    busy = writer->in_flight;
    trii_mutex_unlock(&writer->mutex);
    return busy;
}

double tri_checkpoint_writer_seconds(tri_checkpoint_writer *writer)
{
    int64_t ns;

    if (writer == NULL || is_forked(writer))
        return 0;
    trii_mutex_lock(&writer->mutex);
    ns = writer->write_ns;
    trii_mutex_unlock(&writer->mutex);
    return (double)ns / 1e9;
}
