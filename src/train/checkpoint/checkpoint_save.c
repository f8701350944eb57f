/*
 * checkpoint_save.c - state of modules, optimizers and other tensors into files: tri_save,
 * tri_checkpoint_save. A save copies the whole state first (snapshot.c); commit.c writes the copy.
 */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include <trireme/group.h>
#include <trireme/optim.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "comm/group/join/world.h"
#include "os/pages.h"
#include "train/checkpoint/snapshot.h"
#include "train/tensor/pipeline_stages.h"
#include "train/dist/unit.h"
#include "train/nn/module.h"
#include "train/tensor/elsewhere.h"
#include "train/torch/torch_write.h"

tri_status trii_check_module(tri_module *module, const char *call)
{
    tri_status status = trii_module_flatten(module);

    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "%s", call);
}

static trii_stages *stages_of(tri_module *module)
{
    return tri_module_status(module) == TRI_OK ? tri_module_unwrapped(module)->stages : NULL;
}

/* --- of a module that is in pieces ---------------------------------------- */

/* What rank 0 writes of it. */
typedef struct whole {
    tri_safetensors_entry *entries; /* [n] */
    int64_t n;
    void *data;
    size_t bytes;
} whole;

static tri_status make_room(tri_module *module, whole *w)
{
    tri_status status;

    w->n = tri_module_state_count(module);
    w->entries = trii_alloc((size_t)w->n, sizeof(*w->entries), "state entries");
    if (w->entries == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int64_t i = 0; i < w->n; i++) {
        tri_state_entry state = tri_module_state(module, i);

        trii_state_describe(state, &w->entries[i]);
        memcpy(w->entries[i].shape, trii_whole_shape(state.tensor),
               (size_t)w->entries[i].ndim * sizeof(int64_t));
        w->entries[i].bytes = trii_whole_bytes(state.tensor);
        w->bytes += w->entries[i].bytes;
    }
    status = trii_pages_alloc(w->bytes, &w->data);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "a copy of the state");
}

/* All ranks make it whole, a part at a time, and rank 0 copies that. */
static tri_status copy_whole(tri_module *module, whole *w)
{
    trii_opened opened = {NULL, NULL, NULL};
    char *at = w->data;
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < tri_module_state_count(module); i++) {
        tri_tensor *tensor = tri_module_state(module, i).tensor;

        status = trii_opened_next(&opened, tensor, status);
        if (trii_tensor_is_cut(tensor))
            status = trii_whole_collect(tensor, w->entries != NULL ? at : NULL, status);
        else if (status == TRI_OK && trii_held_of(tensor) != NULL)
            status = trii_refuse_pieces("tri_save", "tri_checkpoint_save saves");
        if (status != TRI_OK || w->entries == NULL)
            continue;
        if (!trii_tensor_is_cut(tensor))
            status = tri_tensor_copy_out(tensor, at, w->entries[i].bytes);
        w->entries[i].data = at;
        at += w->entries[i].bytes;
    }
    return trii_opened_end(&opened, status);
}

static tri_status write_safetensors(const char *path, const tri_safetensors_entry *entries,
                                    int64_t n, const trii_feed *feed)
{
    const tri_metadata meta = {"format", "pt"};

    return feed != NULL ? trii_safetensors_write_fed(path, entries, n, &meta, 1, feed)
                        : tri_safetensors_write(path, entries, n, &meta, 1);
}

/* status: of this rank's arguments. */
static tri_status save_whole(tri_module *module, const char *path, const char *call,
                             tri_group *group, const trii_file_kind *kind, tri_status status)
{
    whole w = {NULL, 0, NULL, 0};

    if (status == TRI_OK && tri_group_rank(group) == 0)
        status = make_room(module, &w);
    status = trii_module_agree(module, trii_ranks_meet(group, call, status));
    if (status == TRI_OK) /* what pends, on all ranks alike */
        status = trii_module_agree(module, tri_run());
    if (status == TRI_OK)
        status = copy_whole(module, &w);
    if (status == TRI_OK && w.entries != NULL)
        status = kind->write(path, w.entries, w.n, NULL);
    trii_pages_free(w.data, w.bytes);
    trii_free(w.entries);
    return trii_module_agree(module, status);
}

/* --- of any module -------------------------------------------------------- */

static tri_status save(tri_module *module, const char *path, const char *call,
                       const trii_file_kind *kind)
{
    trii_snapshot s = {.n_parts = 0};
    tri_status status = trii_need_text(path, call, "path");
    tri_group *group;

    if (status == TRI_OK)
        status = trii_check_module(module, call);
    if (stages_of(module) != NULL)
        return trii_stages_save(module, path, call, kind, status);
    group = tri_module_status(module) == TRI_OK ? trii_group_of_state(module, NULL, NULL) : NULL;
    if (group != NULL) /* the others hear what is wrong here */
        return save_whole(module, path, call, group, kind, status);
    if (status == TRI_OK)
        status = trii_snapshot_take(&s, module, NULL, NULL, NULL, NULL);
    if (status == TRI_OK)
        status = kind->write(path, s.parts[0].entries, s.parts[0].n, NULL);
    trii_snapshot_fini(&s);
    return status;
}

tri_status(tri_save)(tri_module *module, const char *path)
{
    static const trii_file_kind safetensors = {write_safetensors, trii_safetensors_compare};

    return save(module, path, "tri_save", &safetensors);
}

tri_status(tri_torch_save)(tri_module *module, const char *path)
{
    static const trii_file_kind zip = {.write = trii_torch_write};

    return save(module, path, "tri_torch_save", &zip);
}

/* --- arguments ------------------------------------------------------------ */

static tri_status check_metadata(const char *call, const tri_metadata *meta, int n)
{
    tri_status status = TRI_OK;

    if (n < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: info has %d texts", call, n);
    if (n > 0)
        status = trii_need(meta, call, "info->meta");
    for (int i = 0; i < n && status == TRI_OK; i++) {
        if (meta[i].key == NULL || meta[i].value == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: metadata %d has no key or no value", call,
                             i);
        for (int k = 0; k < i; k++) {
            if (strcmp(meta[i].key, meta[k].key) == 0)
                return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: metadata %s occurs twice", call,
                                 meta[i].key);
        }
    }
    return status;
}

/* Of a file beside the module's and the optimizer's, so that it is one on every file system. */
static tri_status check_name(const char *call, const char *name)
{
    static const char *const taken[] = {TRII_MODEL_NAME, TRII_OPTIMIZER_NAME, "manifest"};
    size_t n = strlen(name);
    bool ok = n > 0 && n <= TRII_MAX_EXTRA_NAME;

    for (size_t i = 0; i < n; i++)
        ok = ok && (isalnum((unsigned char)name[i]) || name[i] == '-' || name[i] == '_');
    if (!ok)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: name %.60s: must be 1 to %d letters, digits, '-' and '_'", call, name,
                         TRII_MAX_EXTRA_NAME);
    for (size_t i = 0; i < TRII_COUNT_OF(taken); i++) {
        if (strcmp(name, taken[i]) == 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: name %s is taken", call, name);
    }
    return TRI_OK;
}

tri_status trii_check_extra(const char *call, const tri_checkpoint_extra *extra)
{
    tri_status status = TRI_OK;

    if (extra->n < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s has %" PRId64 " entries", call, extra->name,
                         extra->n);
    if (extra->n > 0)
        status = trii_need(extra->entries, call, "entries");
    for (int64_t i = 0; i < extra->n && status == TRI_OK; i++) {
        if (extra->entries[i].name == NULL || extra->entries[i].tensor == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s: entry %" PRId64 " of %s has no name or no tensor", call, i,
                             extra->name);
        status = tri_tensor_status(extra->entries[i].tensor);
        for (int64_t k = 0; k < i && status == TRI_OK; k++) {
            if (strcmp(extra->entries[i].name, extra->entries[k].name) == 0)
                status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: tensor %s of %s occurs twice", call,
                                   extra->entries[i].name, extra->name);
        }
    }
    return status;
}

static tri_status check_extras(const char *call, const tri_checkpoint_extra *extras, int n)
{
    tri_status status = TRI_OK;

    if (n < 0 || n > TRII_MAX_EXTRAS)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: info has %d extras: at most %d can be", call, n,
                         TRII_MAX_EXTRAS);
    if (n > 0)
        status = trii_need(extras, call, "info->extras");
    for (int i = 0; i < n && status == TRI_OK; i++) {
        const tri_checkpoint_extra *extra = &extras[i];

        status = TRII_CHECK_RESERVED(tri_checkpoint_extra, extra);
        if (status == TRI_OK)
            status = trii_need_text(extra->name, call, "name of an extra");
        if (status == TRI_OK)
            status = check_name(call, extra->name);
        for (int k = 0; k < i && status == TRI_OK; k++) {
            if (strcmp(extra->name, extras[k].name) == 0)
                status =
                    TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: extra %s occurs twice", call, extra->name);
        }
        if (status == TRI_OK && extra->text != NULL && extra->n != 0)
            status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: extra %s has both a text and tensors",
                               call, extra->name);
        if (status == TRI_OK)
            status = trii_check_extra(call, extra);
    }
    return status;
}

static tri_status check_info(const char *call, const tri_checkpoint_info *info)
{
    tri_status status = trii_need(info, call, "info");

    if (status == TRI_OK)
        status = TRII_CHECK_RESERVED(tri_checkpoint_info, info);
    if (status == TRI_OK && (info->step < 0 || info->epoch < 0))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "%s: step %" PRId64 ", epoch %" PRId64 ": neither may be negative", call,
                           info->step, info->epoch);
    if (status == TRI_OK)
        status = check_metadata(call, info->meta, info->n_meta);
    return status == TRI_OK ? check_extras(call, info->extras, info->n_extras) : status;
}

static tri_status check_options(const char *call, const tri_checkpoint_save_options *opt)
{
    tri_status status = TRII_CHECK_RESERVED(tri_checkpoint_save_options, opt);

    if (opt == NULL || status != TRI_OK)
        return status;
    if (opt->keep < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: keep %d: must be at least 1", call, opt->keep);
    if (opt->n_keep_steps < 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: n_keep_steps %d: must be at least 0", call,
                         opt->n_keep_steps);
    return opt->n_keep_steps > 0 ? trii_need(opt->keep_steps, call, "opt->keep_steps") : TRI_OK;
}

/* Ranks that have the same parts (tri_ddp around tri_parallelize) would write the same folder. */
static tri_status check_replica(const char *call, tri_module *module)
{
    for (int64_t i = 0; i < tri_module_state_count(module); i++) {
        tri_state_entry entry = tri_module_state(module, i);
        const trii_unit *unit = trii_unit_of(entry.tensor);

        if ((trii_tensor_is_cut(entry.tensor) || entry.tensor->staged != NULL) && unit != NULL &&
            unit->rank > 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s: %s is a part of what ranks save together, and ranks with "
                             "replicas have the same parts: only those that are first along the "
                             "other axis of the mesh save (its coordinate is 0), or all call it "
                             "with .all_ranks",
                             call, entry.name);
    }
    return TRI_OK;
}

tri_status trii_check_save(const char *call, tri_module *module, tri_optimizer *optimizer,
                           const tri_checkpoint_info *info, const tri_checkpoint_save_options *opt)
{
    tri_status status = check_info(call, info);

    if (status == TRI_OK)
        status = trii_check_module(module, call);
    if (status == TRI_OK && trii_sharers(module) == NULL)
        status = check_replica(call, module);
    if (status == TRI_OK)
        status = check_options(call, opt);
    return status == TRI_OK && optimizer != NULL ? tri_optimizer_status(optimizer) : status;
}

/* --- saving --------------------------------------------------------------- */

/* Of the strategy that made the module, the ranks that have replicas of it. */
static tri_group *group_of_replicas(tri_module *module)
{
    int64_t n = module != NULL ? tri_module_state_count(module) : 0;

    for (int64_t i = 0; i < n; i++) {
        const tri_tensor *tensor = tri_module_state(module, i).tensor;

        if (!trii_is_handle(tensor) && trii_unit_of(tensor) != NULL)
            return trii_unit_of(tensor)->group;
    }
    return trii_group_get_world();
}

tri_status trii_stages_take(trii_snapshot *snapshot, const char *call, tri_module *module,
                            tri_optimizer *optimizer, const tri_checkpoint_info *info,
                            tri_status status)
{
    tri_group *ranks = tri_module_unwrapped(module)->stages->group;
    tri_group *sharers = trii_sharers(module);

    status = trii_ranks_meet(ranks, call, status);
    status = trii_stages_optimize(module, sharers, optimizer, status);
    if (status == TRI_OK)
        status = trii_snapshot_take(snapshot, module, optimizer, info, ranks, sharers);
    return trii_stages_agree(module, sharers, status);
}

tri_group *trii_savers(tri_module *module, tri_optimizer *optimizer,
                       const tri_checkpoint_info *info, const tri_checkpoint_save_options *opt)
{
    const trii_stages *stages = stages_of(module);
    tri_group *group =
        stages != NULL ? stages->group : trii_group_of_state(module, optimizer, info);

    return group == NULL && opt != NULL && opt->all_ranks ? group_of_replicas(module) : group;
}

tri_status trii_snapshot_write(const trii_snapshot *snapshot, const char *folder,
                               const tri_checkpoint_save_options *opt)
{
    const trii_save save = {.info = &snapshot->info,
                            .random = &snapshot->random,
                            .parts = snapshot->parts,
                            .n_parts = snapshot->n_parts,
                            .texts = snapshot->texts,
                            .n_texts = snapshot->n_texts,
                            .ranks = snapshot->ranks,
                            .pieces = snapshot->pieces,
                            .keep = opt == NULL || opt->keep == 0 ? 3 : opt->keep,
                            .keep_steps = opt != NULL ? opt->keep_steps : NULL,
                            .n_keep_steps = opt != NULL ? opt->n_keep_steps : 0};

    return trii_checkpoint_commit(folder, &save);
}

/* --- of a pipeline -------------------------------------------------------- */

static tri_status save_stages(const char *folder, tri_module *module, tri_optimizer *optimizer,
                              const tri_checkpoint_info *info,
                              const tri_checkpoint_save_options *opt, tri_status status)
{
    tri_group *sharers = trii_sharers(module);
    trii_snapshot snapshot = {.n_parts = 0};

    status = trii_stages_take(&snapshot, "tri_checkpoint_save", module, optimizer, info, status);
    if (status == TRI_OK && !snapshot.only_gives)
        status = trii_snapshot_write(&snapshot, folder, opt);
    trii_snapshot_fini(&snapshot);
    return trii_stages_agree(module, sharers, status);
}

static tri_status save_checkpoint(const char *call, const char *folder, tri_module *module,
                                  tri_optimizer *optimizer, const tri_checkpoint_info *info,
                                  const tri_checkpoint_save_options *opt)
{
    trii_snapshot snapshot = {.n_parts = 0};
    tri_status status = trii_need_text(folder, call, "folder");
    tri_group *ranks, *sharers = tri_module_status(module) == TRI_OK ? trii_sharers(module) : NULL;

    if (status == TRI_OK)
        status = trii_check_save(call, module, optimizer, info, opt);
    if (stages_of(module) != NULL)
        return save_stages(folder, module, optimizer, info, opt, status);
    /* What is wrong here the others hear, too, unless it is what would tell who they are. */
    ranks = trii_savers(module, optimizer, status == TRI_OK ? info : NULL, opt);
    if (sharers != NULL)
        status = trii_ranks_meet(sharers, call, status);
    if (status == TRI_OK)
        status = trii_snapshot_take(&snapshot, module, optimizer, info, ranks, sharers);
    if (sharers != NULL)
        status = trii_ranks_agree(sharers, status);
    if (sharers == NULL || tri_group_rank(sharers) == 0) {
        status = trii_ranks_meet(ranks, call, status);
        if (status == TRI_OK)
            status = trii_snapshot_write(&snapshot, folder, opt);
    }
    trii_snapshot_fini(&snapshot);
    return sharers != NULL ? trii_ranks_agree(sharers, status) : status;
}

tri_status(tri_checkpoint_save)(const char *folder, tri_module *module, tri_optimizer *optimizer,
                                const tri_checkpoint_info *info,
                                const tri_checkpoint_save_options *opt)
{
    const char *call = "tri_checkpoint_save";
    trii_replicas replicas;
    tri_status status = trii_replicas_begin(&replicas, call, module, opt);

    if (status == TRI_OK && replicas.saves)
        status = save_checkpoint(call, folder, module, optimizer, info, opt);
    return trii_replicas_end(&replicas, module, status);
}
