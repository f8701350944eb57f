/*
 * file_store.c - a store in one file that all processes can reach, in PyTorch's format
 * (file_log.h), so that PyTorch's FileStore and ours may share it.
 *
 * Each operation opens the file, takes its lock (shared to read, exclusive to write), reads
 * the records that came since, and adds its own: opening and locking are what makes NFS show
 * what others wrote. A writer that finds a torn record after the last whole one cuts it off:
 * its writer is dead, since it held the lock. Readers just stop in front of it.
 *
 * The descriptor of the last operation stays open, without its lock, so that a file that was
 * removed and made again is known by its identity; then everything is read again.
 */
/* build: leaf */
#include "store/store_ops.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/option.h"
#include "os/clock.h"
#include "os/shared_file.h"
#include "os/thread.h"
#include "store/file_log.h"

#define READ_BYTES ((size_t)64 << 10)
#define MAX_PAUSE_NS (10 * TRII_NS_PER_MS) /* between two looks of a wait */
#define LOCK_MS INT64_C(5000)              /* for the lock, beside what a wait may take */

typedef struct file_store {
    tri_store base;
    trii_mutex mutex; /* guards all below */
    trii_kv *kv;      /* what the first `done` bytes say */
    uint64_t done;
    int fd;       /* of the last operation, unlocked; -1 = none yet */
    bool counted; /* in the refcount of this file */
    int world_size;
    char *key; /* "-/" and the user's key; room for the longest */
    char path[];
} file_store;

/* --- the file ------------------------------------------------------------- */

static tri_status forget(file_store *store)
{
    trii_kv *kv = NULL;
    tri_status status = trii_kv_create(&kv);

    if (status != TRI_OK)
        return status;
    trii_kv_destroy(store->kv);
    store->kv = kv;
    store->done = 0;
    return TRI_OK;
}

/* Reads the records after `done`. *torn_out: bytes of an incomplete one follow. */
static tri_status catch_up(file_store *store, int fd, bool *torn_out)
{
    uint64_t size = 0;
    size_t room = READ_BYTES;
    char *data = NULL;
    tri_status status = trii_shared_file_size(fd, store->path, &size);

    *torn_out = false;
    if (status == TRI_OK && size < store->done)
        status = forget(store);
    while (status == TRI_OK && store->done < size && !*torn_out) {
        size_t got = 0, used = 0, need = 0;
        char *grown = trii_realloc(data, room, 1, "file store");

        if (grown == NULL) {
            status = TRI_ERR_NO_MEMORY;
            break;
        }
        data = grown;
        status = trii_shared_file_read(fd, store->path, store->done, data, room, &got);
        if (status != TRI_OK)
            break;
        status = trii_file_log_read(store->kv, data, got, &used, &need);
        store->done += used;
        if (status == TRI_ERR_FORMAT)
            status = TRII_FAIL_CTX(status, "%s is damaged at byte %llu; remove it and start again",
                                   store->path, (unsigned long long)store->done);
        if (status != TRI_OK)
            break;
        *torn_out = used == 0 && (need == 0 || store->done + need > size);
        if (used == 0 && need > room)
            room = need;
    }
    trii_free(data);
    return status;
}

/* Key and value in one write; `done` moves past them. After a failure the table is read
 * again, since it may be ahead of the file. */
static tri_status add_record(file_store *store, int fd, const char *key, size_t key_bytes,
                             const void *value, size_t value_bytes)
{
    const trii_file_lengths lengths = {(uint32_t)key_bytes, (uint32_t)value_bytes};
    const trii_span record[] = {{&lengths.key, sizeof(lengths.key)},
                                {key, key_bytes},
                                {&lengths.value, sizeof(lengths.value)},
                                {value, value_bytes}};
    tri_status status = trii_shared_file_write(fd, store->path, store->done, record, 4);

    if (status == TRI_OK)
        store->done += sizeof(lengths) + key_bytes + value_bytes;
    else
        store->done = UINT64_MAX; /* above any size: forget() at the next look */
    return status;
}

/* Adds to one of the two numbers that are not the user's. */
static tri_status count(file_store *store, int fd, const char *key, int delta, int64_t *sum_out)
{
    trii_slice name = {key, strlen(key)}, text = {0};
    tri_status status = trii_kv_add(store->kv, name, delta, sum_out);

    if (status == TRI_OK && trii_kv_get(store->kv, name, &text))
        status = add_record(store, fd, key, name.bytes, text.data, text.bytes);
    return status;
}

/* Makes `fd` the store's own; a file other than the last one is read from its beginning. */
static tri_status adopt_descriptor(file_store *store, int fd)
{
    if (!trii_shared_file_same(fd, store->fd)) {
        tri_status status = forget(store);

        if (status != TRI_OK)
            return status;
        store->counted = false;
    }
    trii_shared_file_close(store->fd);
    store->fd = fd;
    return TRI_OK;
}

/* Opens, locks and catches up; on OK the lock on store->fd is held. */
static tri_status open_locked(file_store *store, bool exclusive, bool create, int64_t deadline_ns)
{
    bool torn = false;
    int fd = -1;
    tri_status status;

    for (;;) {
        status = trii_shared_file_open(store->path, create, &fd);
        if (status != TRI_OK)
            return status;
        status = trii_shared_file_lock(fd, store->path, exclusive, deadline_ns);
        if (status != TRI_OK || trii_shared_file_is_at(fd, store->path))
            break;
        trii_shared_file_close(fd); /* removed while we waited */
    }
    if (status == TRI_OK)
        status = adopt_descriptor(store, fd);
    if (status != TRI_OK) {
        trii_shared_file_close(fd);
        return status;
    }
    status = catch_up(store, fd, &torn);
    if (status == TRI_OK && exclusive && torn) {
        TRII_LOG(TRII_LOG_WARN, "store",
                 "%s: cut off the record at byte %llu that a dead process "
                 "left unfinished",
                 store->path, (unsigned long long)store->done);
        status = trii_shared_file_cut(fd, store->path, store->done);
    }
    if (status != TRI_OK)
        trii_shared_file_unlock(fd);
    return status;
}

static void leave(file_store *store)
{
    trii_shared_file_unlock(store->fd);
    trii_mutex_unlock(&store->mutex);
}

/* On OK the caller ends with leave(). */
static tri_status enter_until(tri_store *self, bool exclusive, int64_t deadline_ns,
                              file_store **store_out)
{
    file_store *store = (file_store *)self;
    bool joins;
    int64_t n;
    tri_status status;

    trii_mutex_lock(&store->mutex);
    joins = !store->counted;
    status = open_locked(store, exclusive || joins, true, deadline_ns);
    /* a file that is new since our last look counts us at the next one if this lock is shared */
    if (status == TRI_OK && !store->counted && (exclusive || joins)) {
        status = count(store, store->fd, TRII_FILE_REFCOUNT, 1, &n);
        store->counted = status == TRI_OK;
        if (status != TRI_OK)
            trii_shared_file_unlock(store->fd);
    }
    if (status != TRI_OK) {
        trii_mutex_unlock(&store->mutex);
        return TRII_FAIL_CTX(status, "file store");
    }
    *store_out = store;
    return TRI_OK;
}

static tri_status enter(tri_store *self, bool exclusive, file_store **store_out)
{
    return enter_until(self, exclusive, trii_deadline_ms(self->timeout_ms), store_out);
}

/* "/" and the user's key; good until the next call. */
static trii_slice name_of(file_store *store, const char *key)
{
    size_t bytes = strlen(key);

    memcpy(store->key, "-/", 2);
    memcpy(store->key + 2, key, bytes);
    return (trii_slice){store->key + 1, bytes + 1};
}

/* --- operations ----------------------------------------------------------- */

/* Writes down what the table says of the key. */
static tri_status record_value(file_store *store, trii_slice name)
{
    trii_slice value = {"", 0};

    (void)trii_kv_get(store->kv, name, &value);
    return add_record(store, store->fd, name.data, name.bytes, value.data, value.bytes);
}

static tri_status change(tri_store *self, const char *key, trii_slice value,
                         tri_status (*how)(trii_kv *kv, trii_slice name, trii_slice value))
{
    file_store *store;
    tri_status status = enter(self, true, &store);
    trii_slice name;

    if (status != TRI_OK)
        return status;
    name = name_of(store, key);
    status = how(store->kv, name, value);
    if (status == TRI_OK)
        status = record_value(store, name);
    leave(store);
    return status;
}

static tri_status file_set(tri_store *self, const char *key, const void *value, size_t bytes)
{
    return change(self, key, (trii_slice){value, bytes}, trii_kv_set);
}

/* PyTorch's format knows no appending: the whole value is written again. */
static tri_status file_append(tri_store *self, const char *key, const void *value, size_t bytes)
{
    return change(self, key, (trii_slice){value, bytes}, trii_kv_append);
}

static tri_status file_add(tri_store *self, const char *key, int64_t delta, int64_t *sum_out)
{
    file_store *store;
    tri_status status = enter(self, true, &store);
    int64_t sum = 0;
    trii_slice name;

    if (status != TRI_OK)
        return status;
    name = name_of(store, key);
    status = trii_kv_add(store->kv, name, delta, &sum);
    if (status == TRI_OK)
        status = record_value(store, name);
    if (status == TRI_OK)
        *sum_out = sum;
    leave(store);
    return status;
}

static tri_status file_compare_set(tri_store *self, const char *key, const void *expected,
                                   size_t expected_bytes, const void *desired, size_t desired_bytes,
                                   void **value_out, size_t *bytes_out)
{
    file_store *store;
    tri_status status = enter(self, true, &store);
    trii_slice want = {expected, expected_bytes}, put = {desired, desired_bytes}, reply = {0};
    trii_slice name, before = {"", 0};
    bool stores;
    void *copy;

    if (status != TRI_OK)
        return status;
    name = name_of(store, key);
    (void)trii_kv_get(store->kv, name, &before);
    stores = before.bytes == want.bytes && memcmp(before.data, want.data, want.bytes) == 0;
    status = trii_kv_compare_set(store->kv, name, want, put, &reply);
    copy = status == TRI_OK ? trii_store_copy(reply.data, reply.bytes) : NULL;
    if (status == TRI_OK && copy == NULL) {
        status = TRI_ERR_NO_MEMORY;
        store->done = UINT64_MAX; /* the table is ahead */
    }
    if (status == TRI_OK && stores)
        status = record_value(store, name);
    if (status == TRI_OK) {
        *value_out = copy;
        *bytes_out = reply.bytes;
    } else {
        trii_free(copy);
    }
    leave(store);
    return status;
}

static bool all_present(file_store *store, const char *const *keys, int n_keys)
{
    for (int i = 0; i < n_keys; i++) {
        if (!trii_kv_has(store->kv, name_of(store, keys[i])))
            return false;
    }
    return true;
}

/* Whether a wait should look again: another thread has read what it waits for, or the file has
 * changed. Without a lock, but with an open, which is what makes NFS ask its server. */
static bool is_changed(file_store *store, const char *const *keys, int n_keys)
{
    uint64_t size = 0;
    int fd = -1;
    bool changed;

    trii_mutex_lock(&store->mutex);
    changed = all_present(store, keys, n_keys) ||
              trii_shared_file_open(store->path, false, &fd) != TRI_OK ||
              !trii_shared_file_same(fd, store->fd) ||
              trii_shared_file_size(fd, store->path, &size) != TRI_OK || size != store->done;
    trii_shared_file_close(fd);
    trii_mutex_unlock(&store->mutex);
    return changed;
}

/* On OK all keys are there and the lock is held: the caller ends with leave(). Other threads
 * may use the store between two looks. The lock has time of its own: others hold it for a moment
 * whenever they use the store, and a wait of a millisecond shall say whether the keys are there. */
static tri_status wait_locked(tri_store *self, const char *const *keys, int n_keys,
                              int64_t deadline_ns, file_store **store_out)
{
    bool impatient = self->timeout_ms >= 0 && self->timeout_ms < LOCK_MS;
    int64_t pause = TRII_NS_PER_MS / 5;
    bool changed = true;

    for (;;) {
        int64_t now;

        if (changed) {
            int64_t lock_ns = trii_deadline_ms(impatient ? self->timeout_ms : LOCK_MS);
            tri_status status =
                enter_until(self, false, lock_ns > deadline_ns ? lock_ns : deadline_ns, store_out);

            if (status == TRI_ERR_TIMEOUT)
                return TRI_ERR_IO; /* of the lock: the line says so, no key is missing */
            if (status != TRI_OK || all_present(*store_out, keys, n_keys))
                return status;
            leave(*store_out);
        }
        now = trii_now_ns();
        if (now >= deadline_ns)
            return TRI_ERR_TIMEOUT; /* the front names the keys */
        trii_sleep_until(deadline_ns - now < pause ? deadline_ns : now + pause);
        pause = pause * 3 / 2 < MAX_PAUSE_NS ? pause * 3 / 2 : MAX_PAUSE_NS;
        changed = is_changed((file_store *)self, keys, n_keys);
    }
}

static tri_status file_wait(tri_store *self, const char *const *keys, int n_keys,
                            int64_t deadline_ns)
{
    file_store *store;
    tri_status status = wait_locked(self, keys, n_keys, deadline_ns, &store);

    if (status == TRI_OK)
        leave(store);
    return status;
}

static tri_status file_multi_get(tri_store *self, const char *const *keys, int n_keys,
                                 int64_t deadline_ns, void **values_out, size_t *bytes_out)
{
    file_store *store;
    tri_status status = wait_locked(self, keys, n_keys, deadline_ns, &store);
    int n = 0;

    if (status != TRI_OK)
        return status;
    for (; n < n_keys; n++) {
        trii_slice value = {"", 0};

        (void)trii_kv_get(store->kv, name_of(store, keys[n]), &value);
        values_out[n] = trii_store_copy(value.data, value.bytes);
        bytes_out[n] = value.bytes;
        if (values_out[n] == NULL) {
            status = TRI_ERR_NO_MEMORY;
            break;
        }
    }
    while (status != TRI_OK && n > 0)
        trii_free(values_out[--n]);
    leave(store);
    return status;
}

static tri_status file_check(tri_store *self, const char *const *keys, int n_keys,
                             bool *present_out)
{
    file_store *store;
    tri_status status = enter(self, false, &store);

    if (status != TRI_OK)
        return status;
    *present_out = all_present(store, keys, n_keys);
    leave(store);
    return TRI_OK;
}

static tri_status file_remove(tri_store *self, const char *key, bool *existed_out)
{
    file_store *store;
    tri_status status = enter(self, true, &store);
    trii_slice name;

    if (status != TRI_OK)
        return status;
    name = name_of(store, key);
    *existed_out = trii_kv_delete(store->kv, name);
    if (*existed_out)
        status = add_record(store, store->fd, store->key, name.bytes + 1, "", 0);
    leave(store);
    return status;
}

static tri_status file_num_keys(tri_store *self, int64_t *n_out)
{
    static const trii_slice own[] = {{TRII_FILE_REFCOUNT, sizeof(TRII_FILE_REFCOUNT) - 1},
                                     {TRII_FILE_CLEANUP, sizeof(TRII_FILE_CLEANUP) - 1}};
    file_store *store;
    tri_status status = enter(self, false, &store);
    trii_slice value;

    if (status != TRI_OK)
        return status;
    *n_out = trii_kv_count(store->kv);
    for (int i = 0; i < 2; i++)
        *n_out -= trii_kv_get(store->kv, own[i], &value);
    leave(store);
    return TRI_OK;
}

typedef struct listing {
    trii_key_list *list;
    tri_status status;
} listing;

static bool list_one(void *arg, trii_slice key)
{
    listing *l = arg;

    if (key.data[0] == '/')
        l->status = trii_key_list_add(l->list, key.data + 1, key.bytes - 1);
    return l->status == TRI_OK;
}

static tri_status file_list(tri_store *self, trii_key_list *list)
{
    listing l = {list, TRI_OK};
    file_store *store;
    tri_status status = enter(self, false, &store);

    if (status != TRI_OK)
        return status;
    trii_kv_each(store->kv, list_one, &l);
    leave(store);
    return l.status;
}

/* --- life ----------------------------------------------------------------- */

/* The last of a world takes the file away, as PyTorch's does. */
static void sign_off(file_store *store)
{
    int64_t left = 0, users = 0;
    tri_status status = open_locked(store, true, false, trii_deadline_ms(store->base.timeout_ms));

    if (status == TRI_OK && store->counted) {
        status = count(store, store->fd, TRII_FILE_CLEANUP, 1, &left);
        if (status == TRI_OK)
            status = count(store, store->fd, TRII_FILE_REFCOUNT, -1, &users);
        if (status == TRI_OK && users == 0 && store->world_size > 0 && left >= store->world_size)
            status = trii_shared_file_remove(store->path);
    }
    if (status != TRI_OK && status != TRI_ERR_NOT_FOUND)
        TRII_LOG(TRII_LOG_WARN, "store", "leaving: %s", tri_last_error());
}

static void file_destroy(tri_store *self)
{
    file_store *store = (file_store *)self;

    if (store->counted)
        sign_off(store);
    trii_shared_file_close(store->fd);
    trii_kv_destroy(store->kv);
    trii_mutex_fini(&store->mutex);
    trii_free(store->key);
    trii_free(store);
}

static const trii_store_ops file_ops = {
    .abi = TRII_STORE_ABI,
    .size = sizeof(trii_store_ops),
    .name = "file",
    .destroy = file_destroy,
    .set = file_set,
    .multi_get = file_multi_get,
    .add = file_add,
    .compare_set = file_compare_set,
    .append = file_append,
    .wait = file_wait,
    .check = file_check,
    .remove = file_remove,
    .num_keys = file_num_keys,
    .list = file_list,
};

tri_status tri_store_file(const char *path, const tri_store_file_options *opt,
                          tri_store **store_out)
{
    static const tri_store_file_options defaults = {0};
    tri_status status = trii_need_text(path, "store_file", "path");
    file_store *store;

    opt = opt != NULL ? opt : &defaults;
    if (status == TRI_OK)
        status = trii_need(store_out, "store_file", "store_out");
    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_store_file_options, opt);
    if (status != TRI_OK)
        return status;
    store = trii_alloc(1, sizeof(*store) + strlen(path) + 1, "file store");
    if (store == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_store_init(&store->base, &file_ops, opt->timeout_ms);
    trii_mutex_init(&store->mutex);
    store->fd = -1;
    store->world_size = opt->world_size;
    memcpy(store->path, path, strlen(path));
    store->key = trii_alloc(TRI_STORE_MAX_KEY + 3, 1, "file store");
    status = store->key != NULL ? trii_kv_create(&store->kv) : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK)
        status = enter(&store->base, true, &store);
    if (status != TRI_OK) {
        file_destroy(&store->base);
        return status;
    }
    leave(store);
    *store_out = &store->base;
    return TRI_OK;
}
