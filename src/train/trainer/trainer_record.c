/*
 * trainer_record.c - see trainer_record.h.
 */
#include "train/trainer/trainer_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/group.h>

#include "train/checkpoint/json.h"
#include "train/trainer/json_double.h"
#include "train/trainer/log_book.h"
#include "train/trainer/trainer_policy.h"

/* --- making it ------------------------------------------------------------ */

/* Sums of all ranks, as rank 0 wants them: a list of lists. They are only there within an epoch. */
static tri_status gather_sums(tri_trainer *t, json_t *all)
{
    json_t *mine = trii_book_sums(t->book);
    char *text = mine != NULL ? trii_json_text(mine) : NULL;
    size_t *bytes = trii_alloc((size_t)t->size, sizeof(*bytes), "sums of ranks");
    void *texts = NULL;
    const char *at;
    tri_status status = TRI_OK;

    if (text == NULL || bytes == NULL)
        status = TRII_FAIL(TRI_ERR_NO_MEMORY, "sums of an epoch: out of memory");
    else if (t->size == 1)
        status = json_array_append(all, mine) == 0 ? TRI_OK : TRI_ERR_NO_MEMORY;
    else
        status = tri_gather_object(t->group, text, strlen(text) + 1, 0, &texts, bytes);
    at = texts;
    for (int r = 0; r < t->size && at != NULL && status == TRI_OK; at += bytes[r++]) {
        if (json_array_append_new(all, json_loads(at, 0, NULL)) != 0)
            status = TRII_FAIL(TRI_ERR_NO_MEMORY, "sums of rank %d: out of memory", r);
    }
    tri_object_free(texts);
    trii_free(bytes);
    trii_free(text);
    json_decref(mine);
    return status;
}

static json_t *callbacks_to_json(const tri_trainer *t)
{
    json_t *object = json_object();

    for (int i = 0; i < t->saves.n; i++) {
        if (!trii_json_put(object, t->saves.at[i].key, json_string(t->saves.at[i].value))) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static bool put_counters(const tri_trainer *t, json_t *root)
{
    return trii_json_put(root, "version", json_integer(1)) &&
           trii_json_put(root, "epoch", json_integer(t->epoch)) &&
           trii_json_put(root, "step", json_integer(t->step)) &&
           trii_json_put(root, "batch", json_integer(t->batch)) &&
           trii_json_put(root, "batches_ever", json_integer(t->batches_ever)) &&
           trii_json_put(root, "validated", json_boolean(t->validated_here)) &&
           trii_json_put(root, "seconds", trii_json_double(trii_fit_seconds(t))) &&
           trii_json_put(root, "world", json_integer(t->size)) &&
           trii_json_put(root, "batch_size", json_integer(t->train.batch_size));
}

static bool put_states(tri_trainer *t, json_t *policy, json_t *root)
{
    return trii_json_put(root, "config", trii_config_make(t)) &&
           trii_json_put(root, "values", trii_book_values(t->book)) &&
           trii_json_put(root, "callbacks", callbacks_to_json(t)) &&
           json_object_update(root, policy) == 0 && trii_early_put(t, root);
}

tri_status trii_record_make(tri_trainer *t, bool alone, json_t *policy, char **text_out)
{
    json_t *root = json_object(), *sums = json_array();
    tri_status status = TRI_OK;

    *text_out = NULL;
    if (root == NULL || sums == NULL)
        status = TRII_FAIL(TRI_ERR_NO_MEMORY, "trainer.json: out of memory");
    /* Of several ranks that have failed there are none: those of one would count for all. */
    if (status == TRI_OK && t->batch > 0 && !(alone && t->size > 1))
        status = gather_sums(t, sums);
    if (status == TRI_OK && t->rank == 0)
        status = trii_state_collect(t);
    if (status == TRI_OK && t->rank == 0) {
        if (put_counters(t, root) && put_states(t, policy, root) &&
            json_object_set(root, "sums", sums) == 0)
            *text_out = trii_json_text(root);
        if (*text_out == NULL)
            status = TRII_FAIL(TRI_ERR_NO_MEMORY, "trainer.json: out of memory, or a text of a "
                                                  "callback is not UTF-8");
    }
    json_decref(sums);
    json_decref(root);
    return status;
}

/* --- reading it ----------------------------------------------------------- */

static bool get(const json_t *record, const char *key, int64_t *value_out)
{
    uint64_t value;

    if (!trii_json_size(json_object_get(record, key), &value))
        return false;
    *value_out = (int64_t)value;
    return true;
}

/* As many whole batches of all ranks as fit into what was seen of the epoch: samples are dealt out
 * in turn, so what b batches of all ranks have seen is the beginning of the epoch's order. */
static void place(tri_trainer *t, int64_t batch, int64_t world, int64_t batch_size)
{
    int64_t seen = batch * world * batch_size;

    t->batch = batch < t->train.n_batches ? batch : t->train.n_batches; /* there may be fewer */
    if (world == t->size && batch_size == t->train.batch_size)
        return;
    t->batch = seen / (t->size * t->train.batch_size);
    t->batch -= t->batch % t->set.accumulate;
    if (t->batch > t->train.n_batches)
        t->batch = t->train.n_batches;
    t->batches_ever = t->epoch * t->train.n_batches + t->batch;
    trii_fit_say(t,
                 "the checkpoint is of %" PRId64 " ranks with batches of %" PRId64
                 ", and here are %d with %" PRId64 ": epoch %" PRId64 " continues at batch %" PRId64
                 ", other samples are in each batch",
                 world, batch_size, t->size, t->train.batch_size, t->epoch + 1, t->batch);
}

tri_status trii_record_read(tri_trainer *t, const char *text, json_t **record_out)
{
    json_error_t error;
    json_t *record = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    int64_t version, batch, world, batch_size;

    if (!get(record, "version", &version) || version != 1 || !get(record, "epoch", &t->epoch) ||
        !get(record, "step", &t->step) || !get(record, "batch", &batch) ||
        !get(record, "batches_ever", &t->batches_ever) || !get(record, "world", &world) ||
        !get(record, "batch_size", &batch_size)) {
        json_decref(record);
        return TRII_FAIL(TRI_ERR_FORMAT, "its trainer.json is not of version 1, or lacks counters");
    }
    t->validated_here = json_is_true(json_object_get(record, "validated"));
    t->seconds_before = trii_json_double_value(json_object_get(record, "seconds"));
    if (!(t->seconds_before >= 0))
        t->seconds_before = 0;
    place(t, batch, world, batch_size);
    *record_out = record;
    return TRI_OK;
}

/* This rank's sums; of other ranks' runs rank 0 takes all. A position that has moved has none. */
static tri_status apply_sums(tri_trainer *t, const json_t *record)
{
    const json_t *all = json_object_get(record, "sums");
    int n = (int)json_array_size(all);
    int64_t batch = 0;
    tri_status status = TRI_OK;

    if (!get(record, "batch", &batch) || batch != t->batch)
        return TRI_OK;
    if (n == 0 && batch > 0)
        trii_fit_say(t,
                     "the checkpoint is of ranks that failed, and has no sums of theirs: what this "
                     "epoch logs is of the batches from %" PRId64 " on",
                     batch);
    if (n == t->size)
        return trii_book_add_sums(t->book, json_array_get(all, (size_t)t->rank), true);
    for (int r = 0; r < n && t->rank == 0 && status == TRI_OK; r++)
        status = trii_book_add_sums(t->book, json_array_get(all, (size_t)r), false);
    return status;
}

tri_status trii_record_apply(tri_trainer *t, const json_t *record)
{
    json_t *callbacks = json_object_get(record, "callbacks"), *value;
    tri_status status = trii_book_take_values(t->book, json_object_get(record, "values"));
    const char *key;

    if (status == TRI_OK)
        status = apply_sums(t, record);
    if (status == TRI_OK)
        trii_early_take(t, record);
    json_object_foreach(callbacks, key, value)
    {
        if (status == TRI_OK && json_is_string(value))
            status = trii_state_add(&t->loaded, key, json_string_value(value));
    }
    return status == TRI_OK ? trii_hooks(t, state_load) : status;
}
