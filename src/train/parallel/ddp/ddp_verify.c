/*
 * ddp_verify.c - checks that all ranks have the same model. If not, every rank's error names the
 * first rank that differs, and where; if they do, one rank's values are broadcast to all.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "comm/group/join/world.h"
#include "train/tensor/pipeline_stages.h"
#include "train/parallel/ddp/ddp.h"
#include "comm/reducer/agreement.h"
#include "train/tensor/piece.h"

/* What is compared. */
typedef struct comparison {
    tri_module *net;
    tri_group *group;
    const trii_ddp *ddp; /* whose options are compared too; NULL = none */
    int root;            /* without them: whose values all get */
    const char *failed;  /* this rank has no network, and why */
    bool contents, buffers;
} comparison;

#define OPTIONS_LINE (2 * TRII_AGREE_LINE) /* of which a message shows the beginning */

/* Of stage 3: those that are set. */
static int describe_sharding(const trii_ddp *ddp, char *line, size_t room)
{
    const trii_unit *unit = &ddp->unit;
    char bytes[40] = "", keeps[40] = "", units[64] = "";

    if (unit->prefetch_bytes > 0)
        snprintf(bytes, sizeof(bytes), " of %zu bytes", unit->prefetch_bytes);
    if (unit->keep_below > 0)
        snprintf(keeps, sizeof(keeps), ", keep_below %lld", (long long)unit->keep_below);
    for (int k = 0; k < ddp->n_units && ddp->units != NULL; k++)
        snprintf(units + strlen(units), sizeof(units) - strlen(units), "%s%s",
                 k == 0 ? ", units " : " ", ddp->units[k]);
    return snprintf(line, room, ", stage 3, prefetch %d%s%s%s%s%s%s", unit->prefetch, bytes, keeps,
                    unit->keep_after_forward ? ", keep_after_forward" : "", units,
                    unit->gather_dtype != TRI_DTYPE_NONE ? ", gathered in " : "",
                    unit->gather_dtype != TRI_DTYPE_NONE ? tri_dtype_name(unit->gather_dtype) : "");
}

static void describe_options(const trii_ddp *ddp, char line[OPTIONS_LINE])
{
    const tri_ddp_options *o = &ddp->options;
    int used = snprintf(line, OPTIONS_LINE, "options: buckets of %zu and %zu bytes",
                        o->first_bucket_bytes, o->bucket_cap_bytes);

    if (ddp->unit.stage == 3)
        used += describe_sharding(ddp, line + used, (size_t)(OPTIONS_LINE - used));
    else if (ddp->unit.stage > 0)
        used += snprintf(line + used, (size_t)(OPTIONS_LINE - used), ", divided by %s, stage %d",
                         ddp->unit.call, ddp->unit.stage);
    snprintf(line + used, (size_t)(OPTIONS_LINE - used), "%s%s",
             o->hook == NULL                        ? ""
             : o->hook == tri_bucket_hook_f16       ? ", hook f16"
             : o->hook == tri_bucket_hook_bf16      ? ", hook bf16"
             : o->hook == tri_bucket_hook_power_sgd ? ", hook power_sgd"
                                                    : ", a hook",
             o->no_buffer_sync ? ", no_buffer_sync" : "");
}

/* What tells a layer from another one with the same tensors. */
static void describe_owner(tri_module *net, const char *name, char line[TRII_AGREE_LINE])
{
    const char *dot = strrchr(name, '.');
    char path[TRI_STATE_NAME_MAX];

    snprintf(path, sizeof(path), "%.*s", dot != NULL ? (int)(dot - name) : 0, name);
    snprintf(line, TRII_AGREE_LINE, "%s in a %s", trii_agree_name(name),
             tri_module_type(tri_module_unwrapped(tri_module_submodule(net, path))));
}

/* The options come first, then of each entry of the state what it is, and in which layer. */
static tri_state_entry entry_of(const comparison *c, int64_t index)
{
    return tri_module_state(c->net, index > 0 ? (index - 1) / 2 : -1);
}

static void describe(void *ctx, int64_t index, char line[TRII_AGREE_LINE])
{
    const comparison *c = ctx;
    tri_state_entry entry = entry_of(c, index);
    char options[OPTIONS_LINE];
    int used;

    if (index == 0 && c->failed != NULL) {
        snprintf(line, TRII_AGREE_LINE, "none: %s", c->failed);
        return;
    }
    if (index == 0 && c->ddp != NULL) {
        describe_options(c->ddp, options);
        snprintf(line, TRII_AGREE_LINE, "%.*s", TRII_AGREE_LINE - 1, options);
        return;
    }
    if (index == 0) {
        snprintf(line, TRII_AGREE_LINE, "root %d", c->root);
        return;
    }
    if (entry.name == NULL) {
        snprintf(line, TRII_AGREE_LINE, "nothing more (%lld entries)",
                 (long long)tri_module_state_count(c->net));
        return;
    }
    if (index % 2 == 0) {
        describe_owner(c->net, entry.name, line);
        return;
    }
    used = snprintf(line, TRII_AGREE_LINE, "%s %s[", trii_agree_name(entry.name),
                    tri_dtype_name(entry.tensor->dtype));
    for (int d = 0; d < entry.tensor->ndim && used < TRII_AGREE_LINE; d++)
        used += snprintf(line + used, (size_t)(TRII_AGREE_LINE - used), d > 0 ? ", %lld" : "%lld",
                         (long long)entry.tensor->shape[d]);
    if (used < TRII_AGREE_LINE)
        snprintf(line + used, (size_t)(TRII_AGREE_LINE - used), "]%s",
                 entry.tensor->requires_grad || !entry.parameter ? "" : " without gradient");
}

static tri_status hash(void *ctx, int64_t index, uint64_t *hash_out)
{
    const comparison *c = ctx;
    tri_state_entry entry = entry_of(c, index);
    char line[OPTIONS_LINE] = {0};
    uint64_t mixed;
    tri_status status = TRI_OK;

    *hash_out = 0;
    if (entry.tensor != NULL && !entry.parameter && !c->buffers)
        return TRI_OK;
    if (c->ddp == NULL && index > 0 && index % 2 == 0)
        return TRI_OK; /* contents fit into any layer that has such tensors */
    if (index == 0 && c->ddp != NULL && c->failed == NULL)
        describe_options(c->ddp, line);
    else
        describe(ctx, index, line);
    mixed = trii_hash_bytes(1, line, strlen(line));
    for (int k = 0; index == 0 && c->ddp != NULL && c->ddp->units != NULL && k < c->ddp->n_units;
         k++) /* of which the line may not have all */
        mixed = trii_hash_bytes(mixed, c->ddp->units[k], strlen(c->ddp->units[k]));
    if (entry.tensor != NULL) {
        mixed = trii_hash_bytes(mixed, entry.name, strlen(entry.name));
        mixed = trii_hash_bytes(mixed, entry.tensor->shape,
                                (size_t)entry.tensor->ndim * sizeof(*entry.tensor->shape));
    }
    if (c->contents && entry.tensor != NULL && index % 2 == 1 && entry.tensor->elsewhere == NULL)
        status = trii_hash_entry(&entry, &mixed);
    if (status == TRI_OK)
        *hash_out = mixed;
    return status;
}

static tri_status compare(comparison *c)
{
    const trii_agreement agreement = {
        .group = c->group,
        .n = c->failed != NULL ? 1 : 2 * tri_module_state_count(c->net) + 1,
        .ctx = c,
        .hash = hash,
        .describe = describe};
    trii_difference found;
    tri_status status = trii_agree(&agreement, &found);

    if (status != TRI_OK || found.rank == 0)
        return c->ddp != NULL ? trii_unit_called(&c->ddp->unit, status) : status;
    if (c->contents && strcmp(found.line, found.line_of_0) == 0)
        return TRII_FAIL(TRI_ERR_MISMATCH, "%s of rank %d differs from rank 0's in its bits",
                         found.line, found.rank);
    return TRII_FAIL(TRI_ERR_MISMATCH, "not the same model: rank %d has %s, rank 0 has %s",
                     found.rank, found.line, found.line_of_0);
}

tri_status trii_ddp_compare(trii_ddp *ddp, bool contents, bool buffers)
{
    return compare(&(comparison){.net = ddp->net,
                                 .group = ddp->unit.group,
                                 .ddp = ddp,
                                 .contents = contents,
                                 .buffers = buffers});
}

void trii_replica_failed(tri_group *group, const char *line)
{
    tri_status status = compare(&(comparison){.group = group, .failed = line});

    (void)status; /* the caller has the cause */
}

tri_status trii_replica_check(tri_module *net, const tri_group *group)
{
    for (int64_t i = 0; group != NULL && i < tri_module_state_count(net); i++) {
        tri_state_entry entry = tri_module_state(net, i);

        if (trii_tensor_is_cut(entry.tensor) && trii_group_meets(entry.tensor->held->group, group))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s is cut over ranks of this group (tri_parallelize), which have "
                             "other parts of it: give the group of another axis of the mesh",
                             entry.name);
        if (entry.tensor->staged != NULL &&
            trii_group_meets(entry.tensor->staged->of->group, group))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s is in a stage of a pipeline, of which other ranks of this group "
                             "have other stages: give the group of another axis of the mesh",
                             entry.name);
    }
    return TRI_OK;
}

static tri_status send_state(tri_module *net, tri_group *group, int root)
{
    tri_status status = TRI_OK;

    for (int64_t i = 0; i < tri_module_state_count(net) && status == TRI_OK; i++) {
        tri_state_entry entry = tri_module_state(net, i);
        size_t bytes = trii_tensor_bytes(entry.tensor);
        void *plain = trii_alloc(1, bytes, "values of a module");

        status =
            plain != NULL ? tri_tensor_copy_out(entry.tensor, plain, bytes) : TRI_ERR_NO_MEMORY;
        if (status == TRI_OK)
            status = tri_broadcast(group, plain, bytes, TRI_DTYPE_U8, root, NULL);
        if (status == TRI_OK && tri_group_rank(group) != root)
            status = tri_tensor_copy_in(entry.tensor, plain, bytes);
        if (status != TRI_OK)
            status = TRII_FAIL_CTX(status, "%s from rank %d", entry.name, root);
        trii_free(plain);
    }
    return status;
}

tri_status trii_replica_send(tri_module *net, tri_group *group, int root)
{
    tri_work *batch = trii_batch_set(NULL);
    tri_status status = send_state(net, group, root);

    trii_batch_set(batch);
    return status;
}

/* --- without DDP ---------------------------------------------------------- */

/* What pends in the module has run. */
static tri_status prepare(tri_module *module)
{
    tri_status status = tri_module_status(module);
    trii_step *step;

    if (status == TRI_OK)
        status = trii_module_flatten(module);
    if (status != TRI_OK)
        return status;
    step = trii_step_current();
    return step != NULL ? trii_step_run_and_keep(step) : TRI_ERR_NO_MEMORY;
}

static tri_status compare_and_send(tri_module *module, tri_group *group, int root)
{
    tri_status status =
        compare(&(comparison){.net = module, .group = group, .root = root, .buffers = true});

    if (status == TRI_OK)
        status = trii_replica_send(module, group, root);
    return status == TRI_OK || status == TRI_ERR_MISMATCH ? status : trii_ddp_tell(group, status);
}

/* The peers are where modules are compared; without memory this rank cannot go there. */
static tri_status say_failed(tri_group *group, tri_status status)
{
    char line[TRII_ERR_BYTES];

    if (status == TRI_ERR_NO_MEMORY)
        return trii_ddp_tell(group, status);
    snprintf(line, sizeof(line), "%s", tri_last_error());
    trii_replica_failed(group, line);
    trii_err_set("%s", line);
    return status;
}

tri_status(tri_module_broadcast)(tri_module *module, tri_group *group, int root)
{
    tri_status status = trii_need(module, "module_broadcast", "module");

    if (status == TRI_OK && group == NULL && !tri_is_initialized())
        status = tri_init(NULL);
    if (status == TRI_OK)
        status = trii_group_resolve(&group, "module_broadcast");
    if (status == TRI_OK && (root < 0 || root >= tri_group_size(group)))
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "module_broadcast: root %d is out of range (group of %d)", root,
                           tri_group_size(group));
    if (status != TRI_OK)
        return status;
    status = prepare(module);
    if (status == TRI_OK)
        status = trii_replica_check(module, group);
    if (tri_group_size(group) > 1)
        status =
            status == TRI_OK ? compare_and_send(module, group, root) : say_failed(group, status);
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "module_broadcast");
}

TRII_NOINLINE tri_status trii_ddp_tell(tri_group *group, tri_status status)
{
    char line[TRII_ERR_BYTES];

    if (group == NULL || tri_group_size(group) == 1)
        return status;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    tri_group_abort(group, line);
    trii_err_set("%s", line);
    return status;
}
