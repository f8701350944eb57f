/*
 * snapshot.c - see snapshot.h. Called by checkpoint_save.c, whose saves copy the state first, so
 * that training can go on while the copy is written.
 */
#include "train/checkpoint/snapshot.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include <trireme/group.h>
#include <trireme/optim.h>

#include "base/alloc.h"
#include "base/err.h"
#include "os/pages.h"
#include "train/nn/module.h"
#include "train/optim/staged_updates.h"
#include "train/tensor/elsewhere.h"
#include "train/tensor/persistent.h"

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

const trii_held *trii_held_of(const tri_tensor *tensor)
{
    return tensor != NULL && !trii_is_handle(tensor) ? tensor->held : NULL;
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
    int64_t entries, boxes; /* boxes: so many of the entries are pieces */
    int pairs;
} need;

/* The lists of one save, and the files that they become. */
typedef struct lists {
    trii_state_list list[2 + TRII_MAX_EXTRAS];
    const char *name[2 + TRII_MAX_EXTRAS]; /* of the file, without its suffix */
    int n;
    tri_group *group;   /* over which tensors are in pieces, or NULL */
    tri_group *sharers; /* over which some are in ranges that are put together first, or NULL */
    /* Of a pipeline: each rank saves what its stages have, as pieces; or NULL. Then: over which
     * tensors are cut, which are put together, too, or NULL; what the last tensor that was
     * described is; the optimizer's numbers of updates, of the parameters of all stages. */
    trii_stages *stages;
    tri_group *cut;
    trii_held *room;
    tri_optimizer *optimizer;
    int64_t *updates, n_updates;
    bool has_whole;  /* this rank saves those that are whole */
    bool only_gives; /* it has nothing but what others put together */
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

/* Whether others have a part of this rank's piece, or of what is whole on the ranks that save. */
static bool is_shared(const lists *all, const trii_held *held)
{
    return held != NULL && all->sharers != NULL &&
           (held->shared_by == all->sharers || held->group == all->sharers);
}

static void make_whole(const trii_held *held, tri_safetensors_entry *entry)
{
    entry->ndim = held->ndim;
    memcpy(entry->shape, held->shape, sizeof(entry->shape));
    entry->bytes = tri_dtype_size(entry->dtype);
    for (int d = 0; d < entry->ndim; d++)
        entry->bytes *= (size_t)entry->shape[d];
}

/* The optimizer's numbers of updates, which rank 0 saves for all stages. */
static bool is_updates(const lists *all, const tri_tensor *tensor)
{
    return all->updates != NULL && trii_optimizer_counts(all->optimizer, tensor);
}

/* Of a pipeline: all of a tensor is a piece, that of the rank whose stage has it. */
static const trii_held *describe_staged(const lists *all, tri_state_entry state,
                                        const trii_held *held, tri_safetensors_entry *entry)
{
    if (held != NULL)
        make_whole(held, entry);
    if (is_updates(all, state.tensor)) {
        entry->shape[0] = all->n_updates;
        entry->bytes = (size_t)all->n_updates * sizeof(*all->updates);
        return NULL;
    }
    *all->room = (trii_held){.group = all->stages->group, .ndim = entry->ndim};
    memcpy(all->room->shape, entry->shape, sizeof(entry->shape));
    all->room->piece = trii_piece_range(0, (int64_t)(entry->bytes / tri_dtype_size(entry->dtype)));
    return all->room;
}

/* What its entry is once the ranks that share it have put it together, and what this rank has of
 * that then: NULL, all of it. */
static const trii_held *describe_shared(const lists *all, tri_state_entry state,
                                        tri_safetensors_entry *entry)
{
    const trii_held *held = trii_held_of(state.tensor);

    if (held != NULL && held->tensor != NULL)
        state.tensor = held->tensor;
    trii_state_describe(state, entry);
    if (held == NULL || !is_shared(all, held))
        return held;
    entry->bytes = tri_dtype_size(entry->dtype);
    if (held->shared_by != NULL) {
        entry->bytes *= (size_t)trii_piece_count(&held->piece);
        return held;
    }
    make_whole(held, entry);
    return NULL;
}

static const trii_held *describe(const lists *all, tri_state_entry state,
                                 tri_safetensors_entry *entry)
{
    const trii_held *held = describe_shared(all, state, entry);

    return all->stages == NULL ? held : describe_staged(all, state, held, entry);
}

static void count_list(need *n, const lists *all, int k)
{
    int64_t entries = all->list[k].count(&all->list[k]);

    n->strings += strlen(all->name[k]) + sizeof(TRII_TENSORS_SUFFIX);
    for (int64_t i = 0; i < entries; i++) {
        tri_safetensors_entry entry;
        const trii_held *held = describe(all, all->list[k].at(&all->list[k], i), &entry);

        if (all->only_gives || (held == NULL && !all->has_whole))
            continue;
        n->data += aligned(entry.bytes);
        count_text(n, entry.name);
        n->entries++;
        if (held != NULL) {
            n->strings += strlen(all->name[k]) + 1;
            n->boxes++;
        }
    }
}

static need count(const lists *all, const tri_metadata *texts, int n_texts,
                  const tri_checkpoint_info *info)
{
    need n = {0};

    for (int k = 0; k < all->n; k++)
        count_list(&n, all, k);
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
    if (s->boxes == NULL || n->boxes > s->n_boxes) {
        trii_free(s->boxes);
        s->n_boxes = n->boxes;
        s->boxes = trii_alloc((size_t)n->boxes, sizeof(*s->boxes), "pieces of the state");
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
    return s->entries != NULL && s->boxes != NULL && s->strings != NULL && s->pairs != NULL
               ? TRI_OK
               : TRI_ERR_NO_MEMORY;
}

/* Where the next of each goes. */
typedef struct cursor {
    char *data, *text;
    tri_safetensors_entry *entry, *piece; /* of a whole tensor, of a piece */
    trii_box *box;
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

/* All elements that the ranks share of a tensor, on those that want them: the others say NULL. */
static tri_status put_together(const lists *all, tri_tensor *tensor, size_t bytes, void *to)
{
    const trii_held *held = trii_held_of(tensor);
    tri_tensor *here = held->tensor != NULL ? held->tensor : tensor;
    size_t size = tri_dtype_size(tri_tensor_dtype(tensor)), own = trii_tensor_bytes(here);
    int64_t from = held->shared_by != NULL ? held->from : held->piece.offset[0];
    char *room = to != NULL ? to : trii_alloc(1, bytes, "state that ranks share");
    tri_status status = room != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    if (status == TRI_OK) {
        memset(room, 0, bytes); /* each byte is one rank's: their sum is it */
        if (!held->is_replica)
            status = tri_tensor_copy_out(here, room + (size_t)from * size, own);
    }
    status = trii_ranks_agree(all->sharers, status);
    if (status == TRI_OK)
        status = tri_all_reduce(all->sharers, room, room, bytes, TRI_DTYPE_U8, TRI_REDOP_SUM, NULL);
    if (room != to)
        trii_free(room);
    return status;
}

/* The whole of a tensor that is cut over ranks, each of which has put its part together before. */
static tri_status join_parts(const lists *all, tri_tensor *tensor, void *part, void *to)
{
    const trii_held *held = trii_held_of(tensor);
    trii_piece whole = {.ndim = held->ndim};
    size_t size = tri_dtype_size(tri_tensor_dtype(tensor)), bytes;
    trii_runs own = trii_piece_runs(&held->piece, held->shape, held->ndim), runs;
    char *room = to;
    tri_status status = TRI_OK;

    memcpy(whole.size, held->shape, sizeof(whole.size));
    runs = trii_piece_runs(&whole, held->shape, held->ndim);
    bytes = size * (size_t)trii_piece_count(&whole);
    if (room == NULL)
        room = trii_alloc(1, bytes, "state that ranks share");
    if (room == NULL)
        status = TRI_ERR_NO_MEMORY;
    status = trii_ranks_agree(all->cut, status);
    if (status == TRI_OK) {
        assert(room != NULL);   /* this rank has succeeded, too */
        memset(room, 0, bytes); /* each byte is one rank's: their sum is it */
        if (!held->is_copy)
            trii_piece_copy(&own, part, &runs, room, size);
        status = tri_all_reduce(all->cut, room, room, bytes, TRI_DTYPE_U8, TRI_REDOP_SUM, NULL);
    }
    if (room != to)
        trii_free(room);
    return status;
}

static tri_status put_cut(const lists *all, tri_tensor *tensor, void *to)
{
    const trii_held *held = trii_held_of(tensor);
    size_t bytes =
        tri_dtype_size(tri_tensor_dtype(tensor)) * (size_t)trii_piece_count(&held->piece);
    void *part = trii_alloc(1, bytes + 1, "part of a tensor");
    tri_status status = part != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;

    if (is_shared(all, held)) {
        tri_status together = put_together(all, tensor, bytes, part);

        status = status == TRI_OK ? together : status;
    } else if (status == TRI_OK) {
        status = tri_tensor_copy_out(tensor, part, bytes);
    }
    if (all->sharers == NULL || tri_group_rank(all->sharers) == 0) {
        tri_status met = trii_ranks_agree(all->cut, status);

        status = met == TRI_OK ? join_parts(all, tensor, part, to) : met;
    }
    trii_free(part);
    return status;
}

/* All that the entry has, on a rank that saves it (else NULL), and in which others have a part. */
static tri_status fetch(const lists *all, tri_tensor *tensor, size_t bytes, void *to)
{
    const trii_held *held = trii_held_of(tensor);

    if (to != NULL && is_updates(all, tensor))
        memcpy(to, all->updates, bytes);
    if (is_updates(all, tensor))
        return TRI_OK;
    if (all->cut != NULL && held != NULL && held->group == all->cut)
        return put_cut(all, tensor, to);
    if (is_shared(all, held))
        return put_together(all, tensor, bytes, to);
    if (held != NULL && held->tensor != NULL)
        tensor = held->tensor;
    return to != NULL ? tri_tensor_copy_out(tensor, to, bytes) : TRI_OK;
}

static tri_status put_data(cursor *at, const lists *all, tri_tensor *tensor,
                           tri_safetensors_entry *entry)
{
    tri_status status;

    entry->data = at->data;
    status = fetch(all, tensor, entry->bytes, at->data);
    at->data += aligned(entry->bytes);
    return status == TRI_OK ? status : TRII_FAIL_CTX(status, "state %s", entry->name);
}

/* "PART/NAME". */
static const char *put_name(cursor *at, const char *part, const char *name)
{
    const char *both = put_text(at, part);

    at->text[-1] = '/';
    (void)put_text(at, name);
    return both;
}

/* The elements of a piece of several boxes, box by box. */
static tri_status separate(const trii_box *box, const tri_safetensors_entry *entry)
{
    char *to = (char *)(uintptr_t)entry->data, *mixed = trii_alloc(1, entry->bytes, "boxes");
    trii_runs from = trii_piece_runs(&box->piece, box->shape, box->ndim);

    if (mixed == NULL)
        return TRI_ERR_NO_MEMORY;
    memcpy(mixed, to, entry->bytes);
    for (int k = 0; k < box->piece.parts; k++) {
        trii_piece one = trii_piece_part(&box->piece, box->shape, k);
        trii_runs runs = trii_piece_runs(&one, box->shape, box->ndim);

        trii_piece_copy(&from, mixed, &runs, to, tri_dtype_size(entry->dtype));
        to += entry->bytes / (size_t)box->piece.parts;
    }
    trii_free(mixed);
    return TRI_OK;
}

static tri_status put_piece(cursor *at, const lists *all, const char *part, tri_state_entry state)
{
    tri_safetensors_entry *entry = at->piece++;
    trii_box *box = at->box++;
    const trii_held *held = describe(all, state, entry);
    int64_t here = (int64_t)(entry->bytes / tri_dtype_size(entry->dtype));
    tri_status status = TRI_OK;

    entry->name = put_name(at, part, state.name);
    *box = (trii_box){.ndim = held->ndim, .piece = held->piece};
    memcpy(box->shape, held->shape, sizeof(box->shape));
    if (!trii_piece_fits(&box->piece, box->shape, box->ndim) ||
        trii_piece_count(&box->piece) != here) {
        (void)!fetch(all, state.tensor, entry->bytes, NULL); /* others wait for this rank's part */
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "state %s: piece %s of the whole does not fit it, or is not the %lld "
                         "elements that are here",
                         entry->name, trii_piece_text(&box->piece, (char[TRII_PIECE_TEXT]){""}),
                         (long long)here);
    }
    /* In the file it has the shape of the box; of several, one after the other. */
    entry->ndim = box->piece.ndim;
    for (int d = 0; d < entry->ndim; d++)
        entry->shape[d] = trii_piece_size(&box->piece, d);
    if (held->is_replica || held->is_copy) {
        /* of a copy others may have parts, which they give: they do not know that it is one */
        if (is_shared(all, held))
            status = fetch(all, state.tensor, entry->bytes, NULL);
        box->piece = trii_piece_range(0, 0);
        entry->ndim = 1;
        entry->shape[0] = 0;
        entry->bytes = 0;
        return status;
    }
    status = put_data(at, all, state.tensor, entry);
    return status == TRI_OK && box->piece.parts > 1 ? separate(box, entry) : status;
}

static tri_status put_entry(cursor *at, const lists *all, int k, tri_state_entry state,
                            trii_part *part)
{
    tri_safetensors_entry entry;
    const trii_held *held = describe(all, state, &entry);

    if (held != NULL && held->group != all->group) {
        (void)!fetch(all, state.tensor, entry.bytes, NULL);
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "state %s: its pieces are over another group than those of tensors "
                         "before it",
                         state.name);
    }
    if (all->only_gives || (held == NULL && !all->has_whole))
        return fetch(all, state.tensor, entry.bytes, NULL);
    if (held != NULL)
        return put_piece(at, all, all->name[k], state);
    part->n++;
    *at->entry = entry;
    at->entry->name = put_text(at, state.name);
    return put_data(at, all, state.tensor, at->entry++);
}

/* After a failure, too: what ranks share they put together entry by entry, and those that have not
 * failed wait for this one in each. */
static tri_status put_list(cursor *at, const lists *all, int k, trii_part *part, tri_status status)
{
    const trii_state_list *list = &all->list[k];
    int64_t n = list->count(list);

    *part = (trii_part){.file = at->text, .entries = at->entry};
    (void)put_text(at, all->name[k]);
    at->text--;
    (void)put_text(at, TRII_TENSORS_SUFFIX);
    for (int64_t i = 0; i < n && (status == TRI_OK || all->sharers != NULL || all->cut != NULL);
         i++) {
        char line[TRII_ERR_BYTES];
        tri_status put;

        if (status != TRI_OK)
            snprintf(line, sizeof(line), "%s", tri_last_error());
        put = put_entry(at, all, k, list->at(list, i), part);
        if (status != TRI_OK)
            trii_err_set("%s", line); /* the first one */
        else
            status = put;
    }
    return status;
}

static void add_list(lists *all, trii_state_list list, const char *name)
{
    all->list[all->n] = list;
    all->name[all->n++] = name;
}

static tri_group *group_of_list(trii_state_list list)
{
    for (int64_t i = 0; i < list.count(&list); i++) {
        const trii_held *held = trii_held_of(list.at(&list, i).tensor);

        if (held != NULL)
            return held->group;
    }
    return NULL;
}

tri_group *trii_group_of_state(tri_module *module, tri_optimizer *optimizer,
                               const tri_checkpoint_info *info)
{
    tri_group *group = module != NULL ? trii_group_of_cuts(module) : NULL;

    if (group == NULL && module != NULL) /* what is sharded in other ways has its own */
        group = group_of_list(trii_state_of_module(module));
    if (group == NULL && optimizer != NULL)
        group = group_of_list(trii_state_of_optimizer(optimizer));
    for (int i = 0; info != NULL && i < info->n_extras && group == NULL; i++)
        group = group_of_list(trii_state_of_extra(&info->extras[i]));
    return group;
}

/* Collective over the pipeline's ranks: what they save together. All of its ranks only give where
 * one of them does: a stage may have nothing that says which of several pipelines saves. */
static tri_status look_at_stages(lists *all, tri_module *module, tri_optimizer *optimizer)
{
    int32_t gives;
    tri_status status;

    all->cut = trii_group_of_cuts(module);
    all->group = all->stages->group;
    all->optimizer = optimizer;
    gives = all->only_gives || (all->cut != NULL && tri_group_rank(all->cut) > 0);
    status = tri_all_reduce(all->group, &gives, &gives, 1, TRI_DTYPE_I32, TRI_REDOP_MAX, NULL);
    all->only_gives = gives != 0;
    if (status == TRI_OK && optimizer != NULL)
        status = trii_optimizer_gather_counts(optimizer, &all->updates, &all->n_updates);
    return status;
}

/* Before they put tensors together: that all ranks can. */
static tri_status agree(const lists *all, tri_module *module, tri_status status)
{
    return all->stages != NULL ? trii_stages_agree(module, all->sharers, status)
                               : trii_ranks_agree(all->sharers, status);
}

tri_status trii_snapshot_take(trii_snapshot *s, tri_module *module, tri_optimizer *optimizer,
                              const tri_checkpoint_info *info, tri_group *ranks, tri_group *sharers)
{
    tri_metadata texts[TRII_MAX_EXTRAS];
    trii_held room;
    lists all = {.n = 0, .room = &room};
    int n_texts = 0;
    tri_status status = TRI_OK;
    cursor at;
    need n;

    s->ranks = ranks;
    all.group = trii_group_of_state(module, optimizer, info);
    all.sharers = sharers;
    all.only_gives = sharers != NULL && tri_group_rank(sharers) > 0;
    all.has_whole = ranks == NULL || tri_group_rank(ranks) == 0;
    if (ranks != NULL && tri_module_unwrapped(module)->stages != NULL)
        all.stages = tri_module_unwrapped(module)->stages;
    if (!all.has_whole || sharers != NULL || all.stages != NULL)
        status = tri_run(); /* copies of rank 0 run its steps, in which we take part */
    status = agree(&all, module, status);
    if (status == TRI_OK && all.stages != NULL)
        status = agree(&all, module, look_at_stages(&all, module, optimizer));
    s->only_gives = all.only_gives;
    s->pieces = (trii_piece_list){.group = all.group};
    if (all.group != NULL)
        s->pieces.rank = tri_group_rank(all.group);
    if (status != TRI_OK) {
        trii_free(all.updates);
        return status;
    }
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
    status = agree(&all, module, make_room(s, &n));
    if (status != TRI_OK) {
        trii_free(all.updates);
        return status;
    }
    s->pieces.n = n.boxes;
    s->pieces.boxes = s->boxes;
    s->pieces.entries = s->entries + (n.entries - n.boxes);
    at = (cursor){.data = s->data,
                  .text = s->strings,
                  .entry = s->entries,
                  .piece = s->entries + (n.entries - n.boxes),
                  .box = s->boxes,
                  .pair = s->pairs};
    for (int k = 0; k < all.n; k++)
        status = put_list(&at, &all, k, &s->parts[k], status);
    trii_free(all.updates);
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
    trii_free(s->boxes);
    trii_free(s->strings);
    trii_free(s->pairs);
    *s = (trii_snapshot){0};
}
