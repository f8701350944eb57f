/*
 * parallelize.c - tri_parallelize: each rank of a group keeps its part of the parameters that rules
 * name, and their modules get a forward that puts the ranks' results together. First each rank
 * looks at what it has, without a change; then all agree that it is the same; then rank 0's values
 * go to all, the parts are copied, and only when all ranks have theirs do they take their place.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <trireme/parallel.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/option.h"
#include "comm/group/join/world.h"
#include "comm/reducer/agreement.h"
#include "train/parallel/tensor/tensor_parallel.h"
#include "train/tensor/device_memory.h"
#include "train/tensor/elsewhere.h"
#include "train/tensor/persistent.h"
#include "train/tensor/rank_text.h"

typedef struct parallelizing {
    tri_module *root;
    tri_group *group;
    const tri_parallel_rule *rules;
    trii_parallel_matches matches;
    trii_parallel_cut **cuts; /* [matches.n] */
    tri_status failed;        /* of this rank, before the ranks meet */
} parallelizing;

static void cut_release(trii_module_cut *base)
{
    trii_parallel_cut *cut = (trii_parallel_cut *)(void *)base;

    for (int i = 0; i < cut->n_parts; i++) {
        trii_storage_unref(cut->parts[i].storage);
        if (cut->parts[i].tensor->held == &cut->parts[i].held)
            cut->parts[i].tensor->held = NULL; /* it may outlive the module */
    }
    tri_group_unref(cut->group);
    tri_group_unref(cut->sharers);
    trii_free(cut);
}

/* --- what each rank finds for itself -------------------------------------- */

/* head: what a head that shares the parameter is made by, as a sentence; else "". */
static tri_status check_part(const trii_parallel_part *part, const char *head)
{
    const tri_tensor *tensor = part->tensor;

    if (tensor->status != TRI_OK)
        return tri_tensor_status(tensor);
    if (trii_tensor_is_cut(tensor))
        return TRII_FAIL(TRI_ERR_STATE, "it is cut already");
    if (tensor->placed != NULL)
        return TRII_FAIL(TRI_ERR_STATE, "tri_ddp or tri_zero is around it: wrap it afterwards");
    if (tensor->grad != NULL)
        return TRII_FAIL(TRI_ERR_STATE, "it has had a gradient: cut it before the first "
                                        "tri_backward");
    if (atomic_load(&tensor->refs) != 1 || tensor->shares || tensor->stays_plain)
        return TRII_FAIL(TRI_ERR_STATE,
                         "something else refers to it (an optimizer, another module, a step that "
                         "has not ended, the program): cut it before%s",
                         head);
    return TRI_OK;
}

static tri_status plan_one(parallelizing *p, int i)
{
    const trii_parallel_match *match = &p->matches.list[i];
    const tri_parallel_rule *rule = &p->rules[match->rule];
    trii_parallel_cut *cut;
    tri_status status = TRI_OK;
    const char *head = trii_embedding_options_of(match->module) == NULL
                           ? ""
                           : "; a head that has the same weight calls tri_nn_embedding_scores "
                             "instead, or leave both whole";

    if (match->module->cut != NULL)
        return TRII_FAIL(TRI_ERR_STATE, "it is cut already");
    cut = trii_alloc(1, sizeof(*cut), "cut of a module");
    if (cut == NULL)
        return TRI_ERR_NO_MEMORY;
    p->cuts[i] = cut;
    cut->group = tri_group_ref(p->group);
    cut->base.release = cut_release;
    cut->style = match->is_output ? TRI_ROWWISE : rule->style;
    cut->tokens = (trii_tokens){.group = p->group, .dim = (int)trii_option(rule->dim, 1)};
    if (match->is_output)
        status = trii_parallel_output(match->module, rule, cut);
    else if (rule->style == TRI_HEADS)
        status = trii_parallel_attention(match->module, rule, cut);
    else if (rule->style == TRI_SEQUENCE)
        status = trii_parallel_sequence(match->module, rule, cut);
    else if (rule->style == TRI_PREPARE)
        status = trii_parallel_prepare(rule, cut);
    else if (trii_parallel_is_dropout(match->module))
        status = trii_parallel_dropout(rule, cut);
    else if (trii_embedding_options_of(match->module) != NULL)
        status = trii_parallel_embedding(match->module, rule, cut);
    else
        status = trii_parallel_linear(match->module, rule, cut);
    for (int k = 0; k < cut->n_parts && status == TRI_OK; k++) {
        status = check_part(&cut->parts[k], head);
        if (status != TRI_OK)
            status = TRII_FAIL_CTX(status, k == 0 ? "weight" : "bias");
    }
    return status;
}

/* Rank 0's values are to go to all, and of some each rank has another part. */
static tri_status check_earlier_calls(const parallelizing *p)
{
    for (int64_t i = 0; i < tri_module_state_count(p->root); i++) {
        const tri_state_entry entry = tri_module_state(p->root, i);

        if (tri_group_size(p->group) > 1 && trii_tensor_is_cut(entry.tensor) &&
            trii_group_meets(entry.tensor->held->group, p->group))
            return TRII_FAIL(TRI_ERR_STATE,
                             "%s has been cut by an earlier call over ranks of this group: give "
                             "one call all rules of a network, or call it for each of its parts",
                             entry.name);
    }
    return TRI_OK;
}

static bool has_copies(const trii_parallel_cut *cut)
{
    return cut->out.copies > 1;
}

/* Whether each rank has keys for its queries: of all, these are a part of what those are. */
static bool share_heads(const trii_share *queries, const trii_share *keys)
{
    for (int r = 0; r < tri_group_size(keys->group); r++) {
        const trii_share q = trii_share_at(queries, r), k = trii_share_at(keys, r);

        if (q.start * k.whole < k.start * q.whole ||
            (q.start + q.n) * k.whole > (k.start + k.n) * q.whole)
            return false;
    }
    return true;
}

static bool has_blocks(const parallelizing *p, int i)
{
    const trii_parallel_cut *cut = p->cuts[i];

    return cut->style == TRI_COLWISE && cut->weight != NULL && cut->gives == TRI_SHARDED &&
           p->rules[p->matches.list[i].rule].block > 0;
}

/* Queries that are cut otherwise would meet other keys than theirs. Which layer has the queries
 * nothing says: it is beside that of the keys, and in blocks. What is elsewhere tri_attention sees,
 * unless the program itself repeats keys. */
static tri_status check_beside(const parallelizing *p, int i)
{
    const trii_share *keys = &p->cuts[i]->out;
    int64_t heads = keys->whole / keys->block;

    for (int k = 0; k < p->matches.n; k++) {
        const trii_share *out = &p->cuts[k]->out;

        if (!has_blocks(p, k) ||
            p->matches.list[k].module->parent != p->matches.list[i].module->parent ||
            out->whole <= keys->whole || out->whole % heads != 0 || share_heads(out, keys))
            continue;
        if (!has_copies(p->cuts[i]))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s is cut in blocks of %" PRId64 ", and %s, beside it, in blocks of "
                             "%" PRId64 ": heads of queries would meet others than those of keys "
                             "that they share. Blocks of %" PRId64 " do not part these",
                             p->matches.list[k].path, out->block, p->matches.list[i].path,
                             keys->block, out->whole / heads);
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s, beside %s, of which ranks have copies, has %" PRId64
                         " blocks of %" PRId64 " outputs, which %d ranks do not divide: make them "
                         "smaller, down to the width of one head of queries",
                         p->matches.list[k].path, p->matches.list[i].path, out->whole / out->block,
                         out->block, tri_group_size(keys->group));
    }
    return TRI_OK;
}

static tri_status plan_all(parallelizing *p, int n)
{
    tri_status status = tri_module_status(p->root);

    if (status == TRI_OK && tri_module_unwrapped(p->root)->stages != NULL)
        status = TRII_FAIL(TRI_ERR_STATE, "the module is a pipeline: cut the network before "
                                          "tri_pipeline or tri_pipeline_split");
    if (status == TRI_OK)
        status = trii_parallel_match_all(p->root, p->rules, n, &p->matches);
    if (status != TRI_OK)
        return status;
    p->cuts = trii_alloc((size_t)p->matches.n + 1, sizeof(trii_parallel_cut *), "cuts of modules");
    if (p->cuts == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < p->matches.n && status == TRI_OK; i++) {
        status = plan_one(p, i);
        if (status != TRI_OK && p->matches.list[i].path[0] != '\0')
            status = TRII_FAIL_CTX(status, "%s", p->matches.list[i].path);
    }
    for (int i = 0; i < p->matches.n && status == TRI_OK; i++) {
        if (has_blocks(p, i))
            status = check_beside(p, i);
    }
    return status == TRI_OK ? check_earlier_calls(p) : status;
}

/* --- the same on all ranks ------------------------------------------------ */

/* "whole", "sharded", "sharded by tokens"; to what it is made, if that says anything. */
static const char *value_text(tri_parallel_value value)
{
    static const char *const texts[] = {"as it is", "whole", "sharded", "sharded by tokens"};

    return texts[value];
}

static void describe_cut(const trii_parallel_cut *cut, const char *path, char line[TRII_AGREE_LINE])
{
    static const char *const styles[] = {"", "columns", "rows", "heads"};

    if (cut->style == TRI_PREPARE)
        snprintf(line, TRII_AGREE_LINE, "%s prepared (%s to %s, %s to %s, dim %d)", path,
                 value_text(cut->takes), value_text(cut->wanted[0]), value_text(cut->gives),
                 value_text(cut->wanted[1]), cut->tokens.dim);
    else if (cut->style == TRI_SEQUENCE)
        snprintf(line, TRII_AGREE_LINE, "%s by tokens (%s to %s, dim %d)", path,
                 value_text(cut->takes), value_text(cut->gives), cut->tokens.dim);
    else
        snprintf(line, TRII_AGREE_LINE,
                 "%s by %s (%" PRId64 " to %d x %" PRId64 ", %s to %s, dim %d, blocks of %" PRId64
                 ")",
                 path, styles[cut->style], cut->in.whole, cut->out.parts, cut->out.whole,
                 value_text(cut->takes), value_text(cut->gives), cut->tokens.dim,
                 cut->style == TRI_ROWWISE ? cut->in.block : cut->out.block);
}

static void describe(void *ctx, int64_t index, char line[TRII_AGREE_LINE])
{
    const parallelizing *p = ctx;

    if (p->failed != TRI_OK) {
        snprintf(line, TRII_AGREE_LINE, "a call that fails");
        return;
    }
    if (index >= p->matches.n) {
        snprintf(line, TRII_AGREE_LINE, "%d modules to cut", p->matches.n);
        return;
    }
    describe_cut(p->cuts[index], trii_agree_name(p->matches.list[index].path), line);
}

static tri_status hash_entry(void *ctx, int64_t index, uint64_t *hash_out)
{
    char line[TRII_AGREE_LINE];

    describe(ctx, index, line);
    *hash_out = trii_hash_text(TRII_HASH_SEED, line);
    return TRI_OK;
}

/* The status of this rank, unless the ranks differ. */
static tri_status agree(parallelizing *p)
{
    char line[TRII_ERR_BYTES];
    const trii_agreement agreement = {.group = p->group,
                                      .n = p->failed == TRI_OK ? p->matches.n + 1 : 1,
                                      .ctx = p,
                                      .hash = hash_entry,
                                      .describe = describe};
    trii_difference found;
    tri_status status;

    snprintf(line, sizeof(line), "%s", p->failed != TRI_OK ? tri_last_error() : "");
    status = trii_agree(&agreement, &found);
    if (status == TRI_OK && p->failed != TRI_OK)
        trii_err_set("%s", line);
    if (status != TRI_OK || p->failed != TRI_OK || found.rank == 0)
        return status != TRI_OK ? status : p->failed;
    return TRII_FAIL(TRI_ERR_MISMATCH, "%s has %s; rank 0 has %s",
                     trii_rank_text_of(p->group, found.rank).text, found.line, found.line_of_0);
}

/* --- parts ---------------------------------------------------------------- */

static tri_status copy_part(trii_parallel_part *part)
{
    const tri_tensor *tensor = part->tensor;
    size_t size = tri_dtype_size(tensor->dtype), bytes = trii_tensor_bytes(tensor);
    size_t part_bytes;
    trii_piece *piece = &part->held.piece, all = {.ndim = tensor->ndim};
    trii_runs from, to;
    char *whole, *own;
    tri_status status;

    part->held = (trii_held){.group = part->share.group, .ndim = tensor->ndim};
    if (part->share.copies > 1)
        part->held.is_copy = tri_group_rank(part->share.group) % part->share.copies != 0;
    memcpy(part->held.shape, tensor->shape, sizeof(part->held.shape));
    memcpy(all.size, tensor->shape, sizeof(all.size));
    *piece = all;
    piece->offset[part->dim] = part->share.start;
    piece->size[part->dim] = part->share.n;
    piece->parts = part->share.parts;
    piece->along = part->dim;
    part_bytes = (size_t)trii_piece_count(piece) * size;
    from = trii_piece_runs(&all, tensor->shape, tensor->ndim);
    to = trii_piece_runs(piece, tensor->shape, tensor->ndim);
    whole = trii_alloc(1, bytes, "a parameter");
    own = trii_alloc(1, part_bytes, "part of a parameter");
    status = whole != NULL && own != NULL ? tri_tensor_copy_out(part->tensor, whole, bytes)
                                          : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK)
        status = trii_storage_create_on(tensor->device, part_bytes, &part->storage);
    if (status == TRI_OK) {
        trii_piece_copy(&from, whole, &to, own, size);
        status = trii_memory_copy(tensor->device, part->storage->data, TRI_CPU(0), own, part_bytes);
    }
    trii_free(whole);
    trii_free(own);
    return status;
}

static tri_status copy_parts(const parallelizing *p)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < p->matches.n; i++) {
        for (int k = 0; k < p->cuts[i]->n_parts && status == TRI_OK; k++)
            status = copy_part(&p->cuts[i]->parts[k]);
    }
    return status;
}

/* The ranks that have the same copies, whose gradients are added up. */
static tri_status find_sharers(const parallelizing *p, int i)
{
    trii_parallel_cut *cut = p->cuts[i];
    int rank = tri_group_rank(p->group), size = tri_group_size(p->group);

    for (int k = 0; k < i && cut->sharers == NULL; k++) {
        if (has_copies(p->cuts[k]) && p->cuts[k]->out.copies == cut->out.copies)
            cut->sharers = tri_group_ref(p->cuts[k]->sharers);
    }
    if (cut->sharers != NULL)
        return TRI_OK;
    if (cut->out.copies < size)
        return tri_group_split(p->group, rank / cut->out.copies, rank, NULL, &cut->sharers);
    cut->sharers = tri_group_ref(p->group);
    return TRI_OK;
}

static tri_status find_all_sharers(const parallelizing *p)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < p->matches.n && status == TRI_OK; i++) {
        if (has_copies(p->cuts[i])) /* before any of them goes on to the next group */
            status = trii_ranks_agree(p->group, find_sharers(p, i));
    }
    return status;
}

static void take_place(const parallelizing *p)
{
    for (int i = 0; i < p->matches.n; i++) {
        trii_parallel_cut *cut = p->cuts[i];

        for (int k = 0; k < cut->n_parts; k++) {
            trii_parallel_part *part = &cut->parts[k];
            int64_t shape[TRI_MAX_DIMS];

            for (int d = 0; d < part->tensor->ndim; d++)
                shape[d] = trii_piece_size(&part->held.piece, d);
            trii_tensor_become(part->tensor, shape, part->storage);
            trii_storage_unref(part->storage);
            part->storage = NULL;
            part->tensor->held = &part->held;
        }
        p->matches.list[i].module->cut = &cut->base;
        if (cut->kept != NULL)
            cut->kept(p->matches.list[i].module);
        p->cuts[i] = NULL; /* the module's */
    }
}

/* --- the call ------------------------------------------------------------- */

static tri_status parallelize(parallelizing *p)
{
    tri_status status = agree(p);

    if (status != TRI_OK || tri_group_size(p->group) == 1)
        return status;
    status = tri_module_broadcast(p->root, p->group, 0);
    if (status == TRI_OK) {
        status = find_all_sharers(p);
        status = trii_ranks_agree(p->group, status == TRI_OK ? copy_parts(p) : status);
    }
    if (status == TRI_OK)
        take_place(p);
    return status;
}

tri_status tri_parallelize(tri_module *module, tri_group *group, const tri_parallel_rule *rules,
                           int n)
{
    parallelizing p = {.root = module, .rules = rules};
    tri_status status = TRI_OK;

    if (group == NULL && !tri_is_initialized())
        status = tri_init(NULL);
    if (status == TRI_OK)
        status = trii_group_resolve(&group, "tri_parallelize");
    if (status != TRI_OK)
        return status;
    p.group = group;
    p.failed = plan_all(&p, n);
    status = parallelize(&p);
    for (int i = 0; p.cuts != NULL && i < p.matches.n; i++) {
        if (p.cuts[i] != NULL)
            cut_release(&p.cuts[i]->base);
    }
    trii_free(p.cuts);
    trii_parallel_matches_fini(&p.matches);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "tri_parallelize");
}
