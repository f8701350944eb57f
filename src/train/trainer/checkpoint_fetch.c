/*
 * checkpoint_fetch.c - all ranks open the newest checkpoint that any of them has; see
 * tri_checkpoint_fetch.
 *
 * Each rank says which one it has (identity). If all have the best one, that is all. Otherwise the
 * lowest rank that has it broadcasts its files in chunks. Of ranks that lack it and share a folder
 * one writes: each leaves a marker, a file whose name no other call has, in the folder that it
 * sees, and the lowest rank of which a marker is seen there is the writer. What has come is
 * verified by the checksums in it, and after damage all begin again: what is damaged on the
 * sender's disk has no identity then.
 */
#include "train/trainer/checkpoint_fetch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/transfer.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/folder.h"

#define CALL "tri_checkpoint_fetch"
#define ROUNDS 3
#define CHUNK ((size_t)4 << 20)
#define MAX_FILES 2048 /* ranks that have pieces write a file each */
#define NAME_BYTES 64
#define MARKER ".tmp-fetch-"

/* What each rank says first. */
typedef struct identity {
    int64_t status; /* of tri_checkpoint_open */
    int64_t sequence, step;
    int64_t checksum;
} identity;

/* What the sender says of its files. */
typedef struct announcement {
    int64_t status; /* whether it can be read */
    int64_t n_files;
    int64_t nonce;
    int64_t bytes[MAX_FILES];
    char names[MAX_FILES][NAME_BYTES];
} announcement;

typedef struct fetch {
    tri_group *group;
    int rank, size;
    const char *folder;
    int64_t step;        /* which one; -1: the newest */
    tri_checkpoint *own; /* NULL: none that is whole */
    char *dir; /* where the best one is on this rank; NULL: in a folder that is to be found */
    identity best;
    int sender;
    announcement *files;
    trii_incoming *incoming; /* of a rank that writes */
    bool again;              /* what has come is damaged */
    char *chunk;
} fetch;

static tri_status gather(fetch *f, const int64_t *mine, int64_t *all, size_t n)
{
    if (f->size > 1)
        return tri_all_gather(f->group, mine, all, n, TRI_DTYPE_I64, NULL);
    memcpy(all, mine, n * sizeof(*all));
    return TRI_OK;
}

/* All ranks return the same: OK, or the failure of the lowest rank that has one, in its words. */
static tri_status agree(fetch *f, tri_status status)
{
    int64_t *all = trii_alloc((size_t)f->size, sizeof(*all), CALL);
    char line[TRII_ERR_BYTES] = "";
    int failed = -1;
    tri_status first = TRI_OK, told;

    if (all == NULL) {
        if (f->size > 1)
            tri_group_abort(f->group, CALL ": out of memory");
        return TRI_ERR_NO_MEMORY;
    }
    told = gather(f, &(int64_t){status}, all, 1);
    for (int r = f->size - 1; r >= 0 && told == TRI_OK; r--) {
        if (all[r] != TRI_OK) {
            failed = r;
            first = (tri_status)all[r];
        }
    }
    trii_free(all);
    if (told != TRI_OK || failed < 0)
        return told;
    if (failed == f->rank)
        snprintf(line, sizeof(line), "%s", tri_last_error());
    if (f->size > 1)
        told = tri_broadcast(f->group, line, sizeof(line), TRI_DTYPE_U8, failed, NULL);
    return told != TRI_OK ? told : TRII_FAIL(first, CALL ": rank %d: %s", failed, line);
}

/* --- who has which -------------------------------------------------------- */

static bool is_newer(const identity *a, const identity *b)
{
    return a->sequence != b->sequence ? a->sequence > b->sequence : a->step > b->step;
}

static bool is_same(const identity *a, const identity *b)
{
    return a->status == TRI_OK && a->sequence == b->sequence && a->step == b->step &&
           a->checksum == b->checksum;
}

static identity identify(const tri_checkpoint *checkpoint)
{
    trii_checkpoint_id id = trii_checkpoint_identify(checkpoint);

    return (identity){TRI_OK, id.sequence, id.step, (int64_t)id.checksum};
}

static bool is_best(const fetch *f, const tri_checkpoint *checkpoint) /* NULL: not */
{
    identity id = {.status = TRI_ERR_NOT_FOUND};

    if (checkpoint != NULL)
        id = identify(checkpoint);
    return is_same(&id, &f->best);
}

static tri_status open_step(const fetch *f, int64_t step, tri_checkpoint **checkpoint_out)
{
    char name[64], *dir;
    tri_status status;

    snprintf(name, sizeof(name), "step-%012" PRId64, step);
    dir = trii_path_join(f->folder, name);
    status = dir != NULL ? tri_checkpoint_open(dir, checkpoint_out) : TRI_ERR_NO_MEMORY;
    trii_free(dir);
    return status;
}

static identity look(fetch *f)
{
    tri_status status =
        f->step < 0 ? tri_checkpoint_open(f->folder, &f->own) : open_step(f, f->step, &f->own);

    return status == TRI_OK ? identify(f->own) : (identity){.status = status};
}

/* Finds the best one and its sender; *all_out: whether all ranks have it. */
static tri_status compare(fetch *f, bool *all_out)
{
    const size_t words = sizeof(identity) / sizeof(int64_t);
    identity mine = look(f), *all = trii_alloc((size_t)f->size, sizeof(*all), CALL);
    tri_status status = TRI_OK;

    if (all == NULL) {
        if (f->size > 1)
            tri_group_abort(f->group, CALL ": out of memory");
        return TRI_ERR_NO_MEMORY;
    }
    if (mine.status != TRI_OK && mine.status != TRI_ERR_NOT_FOUND)
        TRII_LOG(TRII_LOG_WARN, "checkpoint", "%s", tri_last_error());
    status = gather(f, (const int64_t *)&mine, (int64_t *)all, words);
    f->sender = -1;
    for (int r = 0; r < f->size && status == TRI_OK; r++) {
        if (all[r].status == TRI_OK && (f->sender < 0 || is_newer(&all[r], &f->best))) {
            f->best = all[r];
            f->sender = r;
        }
    }
    *all_out = status == TRI_OK;
    for (int r = 0; r < f->size; r++)
        *all_out = *all_out && is_same(&all[r], &f->best);
    trii_free(all);
    if (status != TRI_OK || f->sender >= 0)
        return status;
    /* No rank has one. "There is none" only where all say so: the program would begin again. */
    status = agree(f, mine.status == TRI_ERR_NOT_FOUND ? TRI_OK : (tri_status)mine.status);
    return status != TRI_OK ? status
                            : TRII_FAIL(TRI_ERR_NOT_FOUND,
                                        CALL ": no checkpoint found in %s, nor "
                                             "on any other rank",
                                        f->folder);
}

/* --- who writes ----------------------------------------------------------- */

static int marker_rank(const char *name, int64_t nonce)
{
    char prefix[64];
    size_t n;

    snprintf(prefix, sizeof(prefix), MARKER "%016" PRIx64 "-", (uint64_t)nonce);
    n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 ? (int)strtol(name + n, NULL, 10) : -1;
}

static tri_status lowest_marker(const fetch *f, int *rank_out)
{
    char **names;
    int n;
    tri_status status = trii_folder_list(f->folder, INT32_MAX, &names, &n);

    if (status != TRI_OK)
        return status;
    *rank_out = f->rank;
    for (int i = 0; i < n; i++) {
        int rank = marker_rank(names[i], f->files->nonce);

        if (rank >= 0 && rank < *rank_out)
            *rank_out = rank;
    }
    trii_folder_free_names(names, n);
    return TRI_OK;
}

/* Opens f->incoming on those ranks that are to write. */
static tri_status choose_writers(fetch *f, bool lacks)
{
    char path[1200];
    int writer = -1;
    tri_status status = TRI_OK;

    if (lacks) {
        snprintf(path, sizeof(path), "%.1024s/" MARKER "%016" PRIx64 "-%d", f->folder,
                 (uint64_t)f->files->nonce, f->rank);
        status = trii_folder_create_above(path);
        if (status == TRI_OK)
            status = trii_file_replace(path, "", 0);
    }
    status = agree(f, status);
    if (status == TRI_OK) {
        if (lacks)
            status = lowest_marker(f, &writer);
        status = agree(f, status); /* all have looked */
    }
    if (lacks && trii_path_remove(path) != TRI_OK)
        TRII_LOG(TRII_LOG_WARN, "checkpoint", "%s", tri_last_error());
    if (status == TRI_OK && writer == f->rank)
        status = trii_incoming_open(f->folder, f->best.step, &f->incoming);
    return agree(f, status);
}

/* --- the files ------------------------------------------------------------ */

/* Of the sender; zeros where the file is not what it was. */
static tri_status open_file(const fetch *f, int index, trii_mapping *map)
{
    char *path = trii_path_join(tri_checkpoint_path(f->own), trii_checkpoint_file(f->own, index));
    tri_status status = path != NULL ? trii_mapping_open(path, map) : TRI_ERR_NO_MEMORY;

    trii_free(path);
    return status;
}

static tri_status describe(fetch *f)
{
    announcement *a = f->files;
    tri_status status = TRI_OK;

    a->n_files = trii_checkpoint_file_count(f->own);
    a->nonce = trii_wall_ns() ^ (int64_t)((uint64_t)f->best.checksum << 1);
    if (a->n_files > MAX_FILES)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED, CALL ": %s has %" PRId64 " files, at most %d can be",
                         tri_checkpoint_path(f->own), a->n_files, MAX_FILES);
    for (int i = 0; i < a->n_files && status == TRI_OK; i++) {
        trii_mapping map = {0};

        snprintf(a->names[i], NAME_BYTES, "%s", trii_checkpoint_file(f->own, i));
        status = open_file(f, i, &map);
        a->bytes[i] = (int64_t)map.bytes;
        trii_mapping_close(&map);
    }
    return status;
}

static tri_status announce(fetch *f)
{
    tri_status status = f->rank == f->sender ? describe(f) : TRI_OK;

    status = agree(f, status);
    return status == TRI_OK
               ? tri_broadcast(f->group, f->files, sizeof(*f->files), TRI_DTYPE_U8, f->sender, NULL)
               : status;
}

/* A failure of this rank's own is in *mine; the others go on, and so does it. */
static tri_status send_file(fetch *f, int index, tri_status *mine)
{
    size_t bytes = (size_t)f->files->bytes[index], n;
    tri_status status = TRI_OK;
    trii_mapping map = {0};

    if (f->rank == f->sender && *mine == TRI_OK) {
        *mine = open_file(f, index, &map);
        if (*mine == TRI_OK && map.bytes != bytes)
            *mine = TRII_FAIL(TRI_ERR_FORMAT, "%s in %s has changed", f->files->names[index],
                              tri_checkpoint_path(f->own));
    }
    if (f->incoming != NULL && *mine == TRI_OK)
        *mine = trii_incoming_file(f->incoming, f->files->names[index]);
    for (size_t at = 0; at < bytes && status == TRI_OK; at += n) {
        n = bytes - at < CHUNK ? bytes - at : CHUNK;
        if (f->rank == f->sender && *mine == TRI_OK)
            memcpy(f->chunk, (const char *)map.data + at, n);
        status = tri_broadcast(f->group, f->chunk, n, TRI_DTYPE_U8, f->sender, NULL);
        if (status == TRI_OK && f->incoming != NULL && *mine == TRI_OK)
            *mine = trii_incoming_put(f->incoming, f->chunk, n);
    }
    trii_mapping_close(&map);
    return status;
}

/* All files, and what has come is a checkpoint where it was written. FORMAT: it is damaged. */
static tri_status send_files(fetch *f)
{
    trii_incoming *incoming;
    tri_status status = TRI_OK, mine = TRI_OK;

    for (int i = 0; i < f->files->n_files && status == TRI_OK; i++)
        status = send_file(f, i, &mine);
    incoming = f->incoming;
    f->incoming = NULL;
    if (incoming != NULL && status == TRI_OK && mine == TRI_OK)
        mine = trii_incoming_commit(incoming, &f->dir);
    else
        trii_incoming_abort(incoming);
    if (status == TRI_OK)
        status = agree(f, mine);
    f->again = status == TRI_ERR_FORMAT;
    return status;
}

/* --- all of it ------------------------------------------------------------ */

/* The copy in this rank's folder, which this or another rank has written. */
static tri_status open_copy(fetch *f, tri_checkpoint **checkpoint_out)
{
    tri_status status = open_step(f, f->best.step, checkpoint_out);

    if (status != TRI_OK || is_best(f, *checkpoint_out))
        return status;
    tri_checkpoint_close(*checkpoint_out);
    *checkpoint_out = NULL;
    return TRII_FAIL(TRI_ERR_STATE, "%s/step-%012" PRId64 ": another process has replaced it",
                     f->folder, f->best.step);
}

static tri_status take_round(fetch *f, tri_checkpoint **checkpoint_out)
{
    tri_checkpoint *copy = NULL;
    bool all = false, lacks;
    tri_status status = compare(f, &all);

    if (status != TRI_OK)
        return status;
    lacks = !is_best(f, f->own);
    if (!all) {
        f->files = trii_alloc(1, sizeof(*f->files), CALL);
        f->chunk = trii_alloc(CHUNK, 1, CALL);
        status = agree(f, f->files != NULL && f->chunk != NULL ? TRI_OK : TRI_ERR_NO_MEMORY);
        if (status != TRI_OK || f->files == NULL) /* one follows from the other */
            return status;
        status = announce(f);
        if (status == TRI_OK)
            status = choose_writers(f, lacks);
        if (status == TRI_OK)
            status = send_files(f);
        if (status == TRI_OK)
            status = agree(f, lacks ? open_copy(f, &copy) : TRI_OK);
    }
    if (status == TRI_OK && !lacks) {
        copy = f->own;
        f->own = NULL;
    }
    if (status == TRI_OK)
        *checkpoint_out = copy;
    else
        tri_checkpoint_close(copy);
    return status;
}

static void clean(fetch *f)
{
    char why[TRII_ERR_BYTES];

    snprintf(why, sizeof(why), "%s", tri_last_error());
    trii_incoming_abort(f->incoming);
    tri_checkpoint_close(f->own);
    trii_free(f->files);
    trii_free(f->chunk);
    trii_free(f->dir);
    f->incoming = NULL;
    f->own = NULL;
    f->files = NULL;
    f->chunk = NULL;
    f->dir = NULL;
    trii_err_set("%s", why);
}

tri_status trii_checkpoint_fetch_step(tri_group *group, const char *folder, int64_t step,
                                      tri_checkpoint **checkpoint_out)
{
    bool alone = group == NULL && !tri_is_initialized();
    fetch f = {.group = group, .folder = folder, .step = step, .size = 1};
    tri_status status = trii_need_text(folder, CALL, "folder");

    if (status == TRI_OK)
        status = trii_need(checkpoint_out, CALL, "checkpoint_out");
    if (status == TRI_OK && strlen(folder) > 1000)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, CALL ": folder has %zu bytes, at most 1000 can be",
                           strlen(folder));
    if (status != TRI_OK)
        return status;
    if (!alone) {
        f.rank = group != NULL ? tri_group_rank(group) : tri_rank();
        f.size = group != NULL ? tri_group_size(group) : tri_world_size();
    }
    f.again = true;
    for (int round = 0; round < ROUNDS && f.again; round++) {
        f.again = false;
        status = take_round(&f, checkpoint_out);
        clean(&f);
    }
    return status;
}

tri_status(tri_checkpoint_fetch)(tri_group *group, const char *folder,
                                 tri_checkpoint **checkpoint_out)
{
    return trii_checkpoint_fetch_step(group, folder, -1, checkpoint_out);
}
