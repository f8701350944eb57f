/*
 * snapshot.c - see snapshot.h. Called by checkpoint_save.c, whose saves copy the state first, so
 * that training can go on while the copy is written.
 */
#include "train/checkpoint/snapshot.h"

#include <string.h>

#include <trireme/optim.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/pages.h"

/* --- lists of named tensors ----------------------------------------------- */

static int64_t module_count(const trii_state_list *list)
{
    return tri_module_state_count(list->module);
}

static tri_state_entry module_at(const trii_state_list *list, int64_t index)
{
    return tri_module_state(list->module, index);
}

static int64_t optimizer_count(const trii_state_list *list)
{
    return tri_optimizer_state_count(list->optimizer);
}

static tri_state_entry optimizer_at(const trii_state_list *list, int64_t index)
{
    return tri_optimizer_state(list->optimizer, index);
}

static int64_t extra_count(const trii_state_list *list)
{
    return list->extra->n;
}

static tri_state_entry extra_at(const trii_state_list *list, int64_t index)
{
    return list->extra->entries[index];
}

trii_state_list trii_state_of_module(tri_module *module)
{
    return (trii_state_list){.count = module_count, .at = module_at, .module = module};
}

trii_state_list trii_state_of_optimizer(tri_optimizer *optimizer)
{
    return (trii_state_list){.count = optimizer_count, .at = optimizer_at, .optimizer = optimizer};
}

trii_state_list trii_state_of_extra(const tri_checkpoint_extra *extra)
{
    return (trii_state_list){.count = extra_count, .at = extra_at, .extra = extra};
}

void trii_state_describe(tri_state_entry state, tri_safetensors_entry *entry)
{
    *entry = (tri_safetensors_entry){.name = state.name,
                                     .dtype = tri_tensor_dtype(state.tensor),
                                     .ndim = tri_tensor_ndim(state.tensor)};
    entry->bytes = tri_dtype_size(entry->dtype) * (size_t)tri_tensor_numel(state.tensor);
    for (int d = 0; d < entry->ndim; d++)
        entry->shape[d] = tri_tensor_size(state.tensor, d);
}

/* --- the copy ------------------------------------------------------------- */

/* What a snapshot takes: counted first, so that memory is asked for once. */
typedef struct need {
    size_t data, strings;
    int64_t entries;
    int pairs;
} need;

/* The lists of one save, and the files that they become. */
typedef struct lists {
    trii_state_list list[2 + TRII_MAX_EXTRAS];
    const char *name[2 + TRII_MAX_EXTRAS]; /* of the file, without its suffix */
    int n;
} lists;

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static void count_text(need *n, const char *text)
{
    n->strings += strlen(text) + 1;
}

static void count_pairs(need *n, const tri_metadata *pairs, int n_pairs)
{
    for (int i = 0; i < n_pairs; i++) {
        count_text(n, pairs[i].key);
        count_text(n, pairs[i].value);
    }
    n->pairs += n_pairs;
}

static need count(const lists *all, const tri_metadata *texts, int n_texts,
                  const tri_checkpoint_info *info)
{
    need n = {0};

    for (int k = 0; k < all->n; k++) {
        int64_t entries = all->list[k].count(&all->list[k]);

        n.strings += strlen(all->name[k]) + sizeof(TRII_TENSORS_SUFFIX);
        n.entries += entries;
        for (int64_t i = 0; i < entries; i++) {
            tri_safetensors_entry entry;

            trii_state_describe(all->list[k].at(&all->list[k], i), &entry);
            n.data += aligned(entry.bytes);
            count_text(&n, entry.name);
        }
    }
    if (info != NULL)
        count_pairs(&n, info->meta, info->n_meta);
    count_pairs(&n, texts, n_texts);
    return n;
}

/* What is too small is freed before the larger one is asked for: the old contents are not needed,
 * and both together may be too much. */
static tri_status make_room(trii_snapshot *s, const need *n)
{
    tri_status status = TRI_OK;

    if (n->data > s->data_bytes) {
        trii_pages_free(s->data, s->data_bytes);
        s->data = NULL;
        s->data_bytes = 0;
        status = trii_pages_alloc(n->data, &s->data);
        if (status != TRI_OK)
            return TRII_FAIL_CTX(status, "a copy of the state");
        s->data_bytes = n->data;
    }
    if (s->entries == NULL || n->entries > s->n_entries) {
        trii_free(s->entries);
        s->n_entries = n->entries;
        s->entries = trii_alloc((size_t)n->entries, sizeof(*s->entries), "state entries");
    }
    if (s->strings == NULL || n->strings > s->string_bytes) {
        trii_free(s->strings);
        s->string_bytes = n->strings;
        s->strings = trii_alloc(n->strings, 1, "names of the state");
    }
    if (s->pairs == NULL || n->pairs > s->n_pairs) {
        trii_free(s->pairs);
        s->n_pairs = n->pairs;
        s->pairs = trii_alloc((size_t)n->pairs, sizeof(*s->pairs), "metadata");
    }
    return s->entries != NULL && s->strings != NULL && s->pairs != NULL ? TRI_OK
                                                                        : TRI_ERR_NO_MEMORY;
}

/* Where the next of each goes. */
typedef struct cursor {
    char *data, *text;
    tri_safetensors_entry *entry;
    tri_metadata *pair;
} cursor;

static const char *put_text(cursor *at, const char *text)
{
    char *copy = at->text;
    size_t bytes = strlen(text) + 1;

    memcpy(copy, text, bytes);
    at->text += bytes;
    return copy;
}

static const tri_metadata *put_pairs(cursor *at, const tri_metadata *pairs, int n)
{
    const tri_metadata *first = at->pair;

    for (int i = 0; i < n; i++) {
        at->pair->key = put_text(at, pairs[i].key);
        at->pair->value = put_text(at, pairs[i].value);
        at->pair++;
    }
    return first;
}

static tri_status put_list(cursor *at, const trii_state_list *list, const char *name,
                           trii_part *part)
{
    tri_status status = TRI_OK;

    *part = (trii_part){.file = at->text, .entries = at->entry, .n = list->count(list)};
    (void)put_text(at, name);
    at->text--;
    (void)put_text(at, TRII_TENSORS_SUFFIX);
    for (int64_t i = 0; i < part->n && status == TRI_OK; i++) {
        tri_state_entry state = list->at(list, i);

        trii_state_describe(state, at->entry);
        at->entry->name = put_text(at, state.name);
        at->entry->data = at->data;
        status = tri_tensor_copy_out(state.tensor, at->data, at->entry->bytes);
        if (status != TRI_OK)
            status = TRII_FAIL_CTX(status, "state %s", at->entry->name);
        at->data += aligned(at->entry->bytes);
        at->entry++;
    }
    return status;
}

static void add_list(lists *all, trii_state_list list, const char *name)
{
    all->list[all->n] = list;
    all->name[all->n++] = name;
}

tri_status trii_snapshot_take(trii_snapshot *s, tri_module *module, tri_optimizer *optimizer,
                              const tri_checkpoint_info *info)
{
    tri_metadata texts[TRII_MAX_EXTRAS];
    lists all = {.n = 0};
    int n_texts = 0;
    tri_status status;
    cursor at;
    need n;

    add_list(&all, trii_state_of_module(module), TRII_MODEL_NAME);
    if (optimizer != NULL)
        add_list(&all, trii_state_of_optimizer(optimizer), TRII_OPTIMIZER_NAME);
    for (int i = 0; info != NULL && i < info->n_extras; i++) {
        const tri_checkpoint_extra *extra = &info->extras[i];

        if (extra->text != NULL)
            texts[n_texts++] = (tri_metadata){extra->name, extra->text};
        else
            add_list(&all, trii_state_of_extra(extra), extra->name);
    }
    n = count(&all, texts, n_texts, info);
    status = make_room(s, &n);
    if (status != TRI_OK)
        return status;
    at = (cursor){s->data, s->strings, s->entries, s->pairs};
    for (int k = 0; k < all.n && status == TRI_OK; k++)
        status = put_list(&at, &all.list[k], all.name[k], &s->parts[k]);
    s->n_parts = all.n;
    s->info = (tri_checkpoint_info){0};
    if (status == TRI_OK && info != NULL) {
        s->info.step = info->step;
        s->info.epoch = info->epoch;
        s->info.n_meta = info->n_meta;
        s->info.meta = put_pairs(&at, info->meta, info->n_meta);
    }
    s->n_texts = n_texts;
    s->texts = put_pairs(&at, texts, n_texts);
    trii_random_state_get(&s->random);
    return status;
}

void trii_snapshot_fini(trii_snapshot *s)
{
    trii_pages_free(s->data, s->data_bytes);
    trii_free(s->entries);
    trii_free(s->strings);
    trii_free(s->pairs);
    *s = (trii_snapshot){0};
}
