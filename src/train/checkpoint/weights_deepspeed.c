/*
 * weights_deepspeed.c - the weights in a folder that DeepSpeed's save_checkpoint wrote: DIR with
 * `latest`, or the folder of a tag. Where ZeRO divided the optimizer, the f32 weights are those of
 * its flat groups, as DeepSpeed's own zero_to_fp32.py puts them together:
 *
 *     stages 1, 2   single_partition_of_fp32_groups: the ranks' shares of a group follow each
 *                   other; parameters lie there in the order of param_shapes
 *     stage 3       fp32_flat_groups: of each parameter every rank has ceil(n / ranks) elements
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/weights.h"
#include "train/torch/pickle.h"
#include "train/torch/strided.h"
#include "train/torch/torch_storages.h"

#define MAX_RANKS 65536
#define OPTIM "zero_pp_rank_%d_mp_rank_00_optim_states.pt"
#define MODEL "zero_pp_rank_%d_mp_rank_00_model_states.pt"

/* Elements of a tensor of a file. */
typedef struct span {
    tri_torch_file *file;
    const tri_torch_tensor *tensor;
    int64_t first, n;
    struct span *next;
} span;

typedef struct weight {
    const char *name;
    const tri_torch_value *shape; /* NULL: that of the tensor of its one span */
    span *spans, **end;
} weight;

typedef struct deepspeed_weights {
    char *folder; /* of the tag */
    trii_arena arena;
    tri_torch_file **models, **optims; /* [ranks] */
    int ranks;                         /* that divided the optimizer; 0: none did */
    bool is_stage3;
    weight *divided; /* [n_divided] */
    int64_t n_divided;
    weight **chosen; /* [n]: of each source */
    void *room;      /* for one tensor */
    size_t room_bytes;
} deepspeed_weights;

static tri_status copy(const weight *of, char *to)
{
    tri_status status = TRI_OK;

    for (const span *s = of->spans; s != NULL && status == TRI_OK; s = s->next) {
        size_t element = s->tensor->element_bytes;
        const void *from = NULL;

        if (s->n == 0)
            continue;
        status = trii_torch_data(s->file, s->tensor, &from);
        if (status != TRI_OK || to == NULL) /* NULL: only the checksums */
            continue;
        if (of->shape == NULL)
            trii_strided_copy(to, from, s->tensor);
        else
            memcpy(to, (const char *)from + (size_t)s->first * element, (size_t)s->n * element);
        to += (size_t)s->n * element;
    }
    return status;
}

static tri_status data(trii_weights *weights, int64_t index, const void **data_out)
{
    deepspeed_weights *w = weights->file;
    const weight *of = w->chosen[index];
    size_t bytes = 0;

    for (const span *s = of->spans; s != NULL; s = s->next)
        bytes += (size_t)s->n * s->tensor->element_bytes;
    if (bytes > w->room_bytes) {
        trii_free(w->room);
        w->room = trii_alloc_aligned(64, bytes, "elements of a tensor");
        w->room_bytes = w->room != NULL ? bytes : 0;
        if (w->room == NULL)
            return TRI_ERR_NO_MEMORY;
    }
    *data_out = w->room;
    return copy(of, w->room);
}

static tri_status check(trii_weights *weights, int64_t index)
{
    deepspeed_weights *w = weights->file;

    return copy(w->chosen[index], NULL);
}

static tri_status run(trii_weights *weights, int64_t index, int64_t k, trii_weights_run *run_out)
{
    deepspeed_weights *w = weights->file;
    const span *s = w->chosen[index]->spans;

    *run_out = (trii_weights_run){.type_name = tri_dtype_name(weights->sources[index].dtype)};
    for (; s != NULL && k > 0; k--)
        s = s->next;
    if (s == NULL)
        return TRI_OK;
    run_out->type_name = s->tensor->type_name;
    run_out->path = trii_torch_path(s->file);
    run_out->at = (uint64_t)s->first * s->tensor->element_bytes;
    run_out->bytes = (uint64_t)s->n * s->tensor->element_bytes;
    run_out->torch = s->file;
    run_out->tensor = s->tensor;
    return TRI_OK;
}

static void close_folder(trii_weights *weights)
{
    deepspeed_weights *w = weights->file;

    for (int r = 0; w->models != NULL && (r == 0 || r < w->ranks); r++)
        tri_torch_close(w->models[r]);
    for (int r = 0; w->optims != NULL && (r == 0 || r < w->ranks); r++)
        tri_torch_close(w->optims[r]);
    trii_arena_fini(&w->arena);
    trii_free(w->folder);
    trii_free(w->room);
    trii_free(w);
}

static const trii_weights_kind deepspeed = {"DeepSpeed", data, check, run, close_folder};

/* --- what the files say --------------------------------------------------- */

static bool is_kind(const tri_torch_value *value, tri_torch_kind wanted)
{
    return value != NULL && value->kind == wanted;
}

static const tri_torch_value *of_model(const deepspeed_weights *w, int rank, const char *key)
{
    return tri_torch_item(tri_torch_root(w->models[rank]), key);
}

static const tri_torch_value *of_optimizer(const deepspeed_weights *w, int rank, const char *key)
{
    return tri_torch_item(tri_torch_item(tri_torch_root(w->optims[rank]), "optimizer_state_dict"),
                          key);
}

/* The shape's elements; -1: it is none. */
static int64_t numel_of(const tri_torch_value *shape)
{
    int64_t numel = 1;

    if (!is_kind(shape, TRI_TORCH_TUPLE) || shape->n > TRI_MAX_DIMS)
        return -1;
    for (int64_t d = 0; d < shape->n; d++)
        if (shape->items[d]->kind != TRI_TORCH_INT || shape->items[d]->integer < 0 ||
            __builtin_mul_overflow(numel, shape->items[d]->integer, &numel))
            return -1;
    return numel;
}

static tri_status damaged(const deepspeed_weights *w, const char *name, const char *what)
{
    return TRII_FAIL(TRI_ERR_FORMAT, "%s: parameter %.200s: %s", w->folder, name, what);
}

/* --- pieces of parameters ------------------------------------------------- */

static tri_status add_span(deepspeed_weights *w, weight *to, const span *from)
{
    span *s = trii_arena_take(&w->arena, 1, sizeof(*s));

    if (s == NULL)
        return TRI_ERR_NO_MEMORY;
    *s = *from;
    s->next = NULL;
    *to->end = s;
    to->end = &s->next;
    return TRI_OK;
}

/* A flat tensor that follows others of *before_inout elements: what it has of elements [at, at + n)
 * of all. */
static tri_status cut(deepspeed_weights *w, weight *to, tri_torch_file *file,
                      const tri_torch_value *flat, int64_t *before_inout, int64_t at, int64_t *n)
{
    int64_t first = at - *before_inout, size, taken;

    if (!is_kind(flat, TRI_TORCH_TENSOR) || flat->tensor->ndim != 1 ||
        !trii_is_contiguous(flat->tensor))
        return damaged(w, to->name, "the share of a rank is not a flat tensor");
    size = flat->tensor->shape[0];
    *before_inout += size;
    if (*n == 0 || first < 0 || first >= size)
        return TRI_OK;
    if (to->spans != NULL && to->spans->tensor->element_bytes != flat->tensor->element_bytes)
        return damaged(w, to->name, "the shares of its ranks have several dtypes");
    taken = *n < size - first ? *n : size - first;
    *n -= taken;
    return add_span(w, to, &(span){file, flat->tensor, first, taken, NULL});
}

/* Elements [at, at + n) of a group whose shares follow each other. */
static tri_status cut_group(deepspeed_weights *w, weight *to, int64_t group, int64_t at, int64_t n)
{
    int64_t before = 0;
    tri_status status = TRI_OK;

    for (int r = 0; r < w->ranks && status == TRI_OK; r++) {
        const tri_torch_value *groups = of_optimizer(w, r, "single_partition_of_fp32_groups");
        int64_t left = n;

        if (!is_kind(groups, TRI_TORCH_LIST) || group >= groups->n)
            return damaged(w, to->name, "a rank has no share of its group");
        status = cut(w, to, w->optims[r], groups->items[group], &before, at, &n);
        at += left - n;
    }
    return status == TRI_OK && n > 0 ? damaged(w, to->name, "no rank has some of its elements")
                                     : status;
}

/* Each rank has its part at the same place of all its groups. */
static tri_status cut_ranks(deepspeed_weights *w, weight *to, int64_t at, int64_t numel)
{
    int64_t share = (numel + w->ranks - 1) / w->ranks, left = numel;
    tri_status status = TRI_OK;

    for (int r = 0; r < w->ranks && status == TRI_OK; r++) {
        const tri_torch_value *groups = of_optimizer(w, r, "fp32_flat_groups");
        int64_t n = left < share ? left : share, before = 0, from = at;

        left -= n;
        if (!is_kind(groups, TRI_TORCH_LIST))
            return damaged(w, to->name, "a rank has no share of it");
        for (int64_t g = 0; g < groups->n && status == TRI_OK; g++) {
            int64_t rest = n;

            status = cut(w, to, w->optims[r], groups->items[g], &before, from, &n);
            from += rest - n;
        }
        if (status == TRI_OK && n > 0)
            status = damaged(w, to->name, "no rank has some of its elements");
    }
    return status;
}

static int64_t padding_of(const tri_torch_value *paddings, int64_t group, int64_t index)
{
    const tri_torch_value *of =
        is_kind(paddings, TRI_TORCH_LIST) && group < paddings->n ? paddings->items[group] : NULL;

    of = is_kind(of, TRI_TORCH_LIST) && index < of->n ? of->items[index] : NULL;
    return is_kind(of, TRI_TORCH_INT) && of->integer > 0 && of->integer < INT32_MAX ? of->integer
                                                                                    : 0;
}

/* Shares of several saves have several lengths, and nobody could tell whose elements are where. All
 * of a group are equally long, or have its elements and no more: an elastic checkpoint leaves out
 * what fills up the last ones. numel: the group's; -1: it leaves out nothing. */
static tri_status check_shares(const deepspeed_weights *w, const char *key, int64_t group,
                               int64_t numel)
{
    int64_t first = 0, sum = 0;
    bool equal = true;

    for (int r = 0; r < w->ranks; r++) {
        const tri_torch_value *groups = of_optimizer(w, r, key), *share = NULL;
        int64_t n = 0;

        if (is_kind(groups, TRI_TORCH_LIST) && group < groups->n)
            share = groups->items[group];
        if (share != NULL && share->kind == TRI_TORCH_TENSOR && share->tensor->ndim == 1)
            n = share->tensor->shape[0];
        first = r == 0 ? n : first;
        equal = equal && n == first;
        sum += n;
    }
    if (equal || sum == numel)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_FORMAT,
                     "%s: the ranks' shares of group %" PRId64 " of the parameters have several "
                     "lengths: are their files of several saves?",
                     w->folder, group);
}

static tri_status check_all_shares(const deepspeed_weights *w)
{
    const tri_torch_value *groups = of_optimizer(w, 0, "fp32_flat_groups");
    tri_status status = TRI_OK;

    for (int64_t g = 0; is_kind(groups, TRI_TORCH_LIST) && g < groups->n && status == TRI_OK; g++)
        status = check_shares(w, "fp32_flat_groups", g, -1);
    return status;
}

static tri_status divide(deepspeed_weights *w)
{
    const tri_torch_value *groups = of_model(w, 0, "param_shapes"),
                          *paddings = of_optimizer(w, 0, "param_alignment_paddings");
    int64_t n = 0, at = 0;
    tri_status status = TRI_OK;

    if (!is_kind(groups, TRI_TORCH_LIST))
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: its model states have no list param_shapes",
                         w->folder);
    for (int64_t g = 0; g < groups->n; g++)
        n += groups->items[g]->n / 2;
    w->divided = trii_arena_take(&w->arena, (size_t)n, sizeof(*w->divided));
    if (w->divided == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t g = 0; g < groups->n && status == TRI_OK; g++) {
        const tri_torch_value *shapes = groups->items[g];

        at = w->is_stage3 ? at : 0;
        for (int64_t i = 0; i + 1 < shapes->n && status == TRI_OK; i += 2) {
            weight *to = &w->divided[w->n_divided++];
            int64_t numel = numel_of(shapes->items[i + 1]);

            *to = (weight){.name = "(?)", .shape = shapes->items[i + 1], .end = &to->spans};
            if (shapes->kind != TRI_TORCH_DICT || shapes->items[i]->kind != TRI_TORCH_TEXT ||
                numel < 0 || numel > INT64_MAX / 16 || at > INT64_MAX / 4)
                return damaged(w, to->name, "param_shapes has no name or no shape for it");
            to->name = shapes->items[i]->text;
            status = w->is_stage3 ? cut_ranks(w, to, at, numel) : cut_group(w, to, g, at, numel);
            at += w->is_stage3 ? (numel + w->ranks - 1) / w->ranks
                               : numel + padding_of(paddings, g, i / 2);
        }
        if (status == TRI_OK && !w->is_stage3)
            status = check_shares(w, "single_partition_of_fp32_groups", g, at);
    }
    return status == TRI_OK && w->is_stage3 ? check_all_shares(w) : status;
}

/* --- the module's state --------------------------------------------------- */

/* *from_inout: where the next is likely. NULL: it is not divided. */
static weight *find_divided(const deepspeed_weights *w, const char *name, int64_t *from_inout)
{
    for (int64_t i = 0; i < w->n_divided; i++) {
        int64_t at = (*from_inout + i) % w->n_divided;

        if (strcmp(w->divided[at].name, name) == 0) {
            *from_inout = at + 1;
            return &w->divided[at];
        }
    }
    return NULL;
}

/* One that is not trained, in stage 3: each rank has a fragment of it. */
static tri_status join_frozen(deepspeed_weights *w, const tri_torch_value *shape, weight *to)
{
    int64_t left = numel_of(shape);
    tri_status status = TRI_OK;

    to->shape = shape;
    if (left < 0)
        return damaged(w, to->name, "frozen_param_shapes has no shape for it");
    for (int r = 0; r < w->ranks && status == TRI_OK; r++) {
        const tri_torch_value *fragment =
            tri_torch_item(of_model(w, r, "frozen_param_fragments"), to->name);
        int64_t before = 0;

        status = cut(w, to, w->models[r], fragment, &before, 0, &left);
    }
    return status == TRI_OK && left > 0 ? damaged(w, to->name, "no rank has some of its elements")
                                        : status;
}

static tri_status choose(deepspeed_weights *w, const char *name, const tri_torch_value *value,
                         int64_t *from_inout, weight **weight_out)
{
    const tri_torch_value *same = tri_torch_item(of_model(w, 0, "shared_params"), name), *shape;
    weight *to = find_divided(w, name, from_inout);

    if (to == NULL && is_kind(same, TRI_TORCH_TEXT))
        to = find_divided(w, same->text, from_inout);
    *weight_out = to;
    if (to != NULL)
        return TRI_OK;
    *weight_out = to = trii_arena_take(&w->arena, 1, sizeof(*to));
    if (to == NULL)
        return TRI_ERR_NO_MEMORY;
    *to = (weight){.name = name, .end = &to->spans};
    shape = tri_torch_item(of_model(w, 0, "frozen_param_shapes"), name);
    if (w->is_stage3 && shape != NULL)
        return join_frozen(w, shape, to);
    return add_span(w, to,
                    &(span){w->models[0], value->tensor, 0,
                            (int64_t)(value->tensor->bytes / value->tensor->element_bytes), NULL});
}

static tri_status list(deepspeed_weights *w, trii_weights *weights)
{
    const tri_torch_value *module = of_model(w, 0, "module");
    int64_t from = 0;
    tri_status status;

    if (!is_kind(module, TRI_TORCH_DICT))
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: its model states have no \"module\"", w->folder);
    w->chosen = trii_arena_take(&w->arena, (size_t)module->n / 2 + 1, sizeof(*w->chosen));
    status = trii_weights_room(weights, module->n / 2 + 1);
    if (w->chosen == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i + 1 < module->n && status == TRI_OK; i += 2) {
        const tri_torch_value *name = module->items[i], *value = module->items[i + 1];
        tri_state_source *source = &weights->sources[weights->n];
        weight *of = NULL;

        if (name->kind != TRI_TORCH_TEXT || value->kind != TRI_TORCH_TENSOR)
            continue;
        status = choose(w, name->text, value, &from, &of);
        if (status != TRI_OK)
            break;
        *source = (tri_state_source){.name = name->text};
        source->dtype = of->spans != NULL ? of->spans->tensor->dtype : value->tensor->dtype;
        source->ndim = of->shape != NULL ? (int)of->shape->n : value->tensor->ndim;
        for (int d = 0; d < source->ndim; d++)
            source->shape[d] =
                of->shape != NULL ? of->shape->items[d]->integer : value->tensor->shape[d];
        w->chosen[weights->n++] = of;
    }
    return status;
}

/* --- files ---------------------------------------------------------------- */

static tri_status look(const deepspeed_weights *w, const char *name, bool *there_out)
{
    char *path = trii_path_join(w->folder, name);

    *there_out = path != NULL && trii_path_is_file(path);
    trii_free(path);
    return path != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

static tri_status open_states(const deepspeed_weights *w, const char *name,
                              tri_torch_file **file_out)
{
    char *path = trii_path_join(w->folder, name);
    tri_status status = path != NULL ? tri_torch_open(path, file_out) : TRI_ERR_NO_MEMORY;

    trii_free(path);
    if (status == TRI_ERR_NOT_FOUND) /* a crash or a full disk leaves such folders */
        status = TRII_FAIL_CTX(TRI_ERR_FORMAT, "%s: not all ranks' files are there", w->folder);
    return status;
}

/* How many ranks divided the optimizer; one number, or one for each group. */
static int count_ranks(const tri_torch_value *count)
{
    int64_t most = 0;

    if (is_kind(count, TRI_TORCH_INT))
        most = count->integer;
    for (int64_t i = 0; is_kind(count, TRI_TORCH_LIST) && i < count->n; i++)
        if (count->items[i]->kind == TRI_TORCH_INT && count->items[i]->integer > most)
            most = count->items[i]->integer;
    return most > 0 && most <= MAX_RANKS ? (int)most : 0;
}

static tri_status open_ranks(deepspeed_weights *w)
{
    static const char *const marks[] = {"", "bf16_"};
    const char *mark = NULL;
    char name[96];
    int ranks;
    tri_status status = TRI_OK;

    for (size_t i = 0; i < TRII_COUNT_OF(marks) && mark == NULL && status == TRI_OK; i++) {
        bool there;

        snprintf(name, sizeof(name), "%s" OPTIM, marks[i], 0);
        status = look(w, name, &there);
        mark = there ? marks[i] : NULL;
    }
    if (status != TRI_OK)
        return status;
    if (mark == NULL && (w->is_stage3 || is_kind(of_model(w, 0, "param_shapes"), TRI_TORCH_LIST)))
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: the optimizer states of rank 0 are missing, which have the f32 "
                         "weights%s",
                         w->folder,
                         w->is_stage3 ? ""
                                      : "; mp_rank_00_model_states.pt, loaded as a file, has those "
                                        "that were trained");
    if (mark == NULL) /* stage 0 */
        return TRI_OK;
    status = open_states(w, name, &w->optims[0]);
    if (status != TRI_OK)
        return status;
    ranks = count_ranks(of_optimizer(w, 0, "partition_count"));
    if (ranks == 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s/%s: no partition_count", w->folder, name);
    w->ranks = 1;
    for (int r = 1; r < ranks && status == TRI_OK; r++) {
        snprintf(name, sizeof(name), "%s" OPTIM, mark, r);
        status = open_states(w, name, &w->optims[r]);
        if (status == TRI_OK && w->is_stage3) {
            snprintf(name, sizeof(name), MODEL, r);
            status = open_states(w, name, &w->models[r]);
        }
        w->ranks = r + 1;
        if (status == TRI_OK && count_ranks(of_optimizer(w, r, "partition_count")) != ranks)
            status =
                TRII_FAIL(TRI_ERR_FORMAT,
                          "%s: rank %d's optimizer states are of a run of %d ranks, those of "
                          "rank 0 of %d",
                          w->folder, r, count_ranks(of_optimizer(w, r, "partition_count")), ranks);
    }
    return status;
}

static tri_status open_all(deepspeed_weights *w)
{
    bool parallel = false, parallel3 = false;
    char first[96];
    tri_status status;

    snprintf(first, sizeof(first), MODEL, 0);
    status = look(w, first, &w->is_stage3);
    if (status == TRI_OK)
        status = look(w, "mp_rank_01_model_states.pt", &parallel);
    if (status == TRI_OK)
        status = look(w, "zero_pp_rank_0_mp_rank_01_model_states.pt", &parallel3);
    if (status != TRI_OK)
        return status;
    if (parallel || parallel3)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: of several model-parallel ranks: merge it by ds_to_universal first",
                         w->folder);
    w->models = trii_arena_take(&w->arena, MAX_RANKS, sizeof(tri_torch_file *));
    w->optims = trii_arena_take(&w->arena, MAX_RANKS, sizeof(tri_torch_file *));
    if (w->models == NULL || w->optims == NULL)
        return TRI_ERR_NO_MEMORY;
    status = open_states(w, w->is_stage3 ? first : "mp_rank_00_model_states.pt", &w->models[0]);
    if (status == TRI_OK)
        status = open_ranks(w);
    return status == TRI_OK && w->ranks > 0 ? divide(w) : status;
}

/* The folder that `latest` names; that of the file itself, if it is another. */
static tri_status find_folder(deepspeed_weights *w, const char *path)
{
    const char *name = strrchr(path, '/');
    trii_mapping map = {.data = NULL};
    char tag[256] = "";
    size_t n = 0;
    tri_status status;

    w->folder = trii_path_beside(path, "");
    if (w->folder == NULL)
        return TRI_ERR_NO_MEMORY;
    if (strcmp(name != NULL ? name + 1 : path, "latest") != 0)
        return TRI_OK;
    status = trii_mapping_open(path, &map);
    if (status != TRI_OK)
        return status;
    if (map.bytes < sizeof(tag)) {
        memcpy(tag, map.data, map.bytes);
        n = strlen(tag);
        while (n > 0 && strchr(" \t\r\n", tag[n - 1]) != NULL) /* as DeepSpeed does it */
            tag[--n] = '\0';
        n = strspn(tag, " \t\r\n");
        memmove(tag, tag + n, strlen(tag + n) + 1);
        n = strlen(tag);
    }
    trii_mapping_close(&map);
    if (n == 0 || trii_weights_leads_out(tag))
        return TRII_FAIL(TRI_ERR_FORMAT, "%s: not the tag of a checkpoint in this folder", path);
    trii_free(w->folder);
    w->folder = trii_path_beside(path, tag);
    return w->folder != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

tri_status trii_weights_deepspeed(const char *path, trii_weights_scope scope, trii_weights *weights)
{
    deepspeed_weights *w = trii_alloc(1, sizeof(*w), "folder of DeepSpeed");
    tri_status status;

    (void)scope; /* what is no weight has no name here */
    if (w == NULL)
        return TRI_ERR_NO_MEMORY;
    weights->kind = &deepspeed;
    weights->file = w;
    status = find_folder(w, path);
    if (status == TRI_OK)
        status = open_all(w);
    if (status == TRI_OK)
        status = list(w, weights);
    return status;
}
