/*
 * ddp.c - data-parallel training as a module around the network. See ddp.h for how it works.
 */
#include "train/parallel/ddp/ddp.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/option.h"
#include "base/site.h"
#include "comm/group/join/world.h"
#include "os/forked.h"
#include "train/graph/values/contents.h"
#include "train/tensor/device_list.h"

static void ddp_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                        int n_out);
static void ddp_destroy(tri_module *self);

static const tri_module_class ddp_class = {.name = "DistributedDataParallel",
                                           .size = sizeof(trii_ddp),
                                           .forward = ddp_forward,
                                           .destroy = ddp_destroy};

static const tri_module_class zero_class = {
    .name = "ZeRO", .size = sizeof(trii_ddp), .forward = ddp_forward, .destroy = ddp_destroy};

trii_ddp *trii_ddp_of(const tri_module *model)
{
    return model != NULL && model->status == TRI_OK &&
                   (model->type == &ddp_class || model->type == &zero_class)
               ? model->data
               : NULL;
}

tri_status trii_ddp_need(const tri_module *model, const char *call, trii_ddp **ddp_out)
{
    tri_status status = tri_module_status(model);

    *ddp_out = trii_ddp_of(model);
    if (status == TRI_OK && *ddp_out == NULL)
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG,
                      "%s: the module was not made by tri_ddp, tri_zero or tri_fully_shard", call);
    return status;
}

/* --- construction --------------------------------------------------------- */

static tri_status join_group(trii_ddp *ddp)
{
    tri_group *group = ddp->options.group;
    tri_status status = TRI_OK;

    if (group == NULL && !tri_is_initialized())
        status = tri_init(NULL);
    if (status == TRI_OK)
        status = trii_group_resolve(&group, "options.group");
    if (status == TRI_OK && tri_group_size(group) > 1)
        status = trii_group_takes_host_memory(group);
    if (status != TRI_OK)
        return status;
    ddp->unit.size = tri_group_size(group);
    ddp->unit.rank = tri_group_rank(group);
    trii_random_stream_set((uint64_t)ddp->unit.rank);
    if (ddp->is_bare) { /* on all ranks, which have the same stages */
        ddp->bare_group = ddp->unit.size > 1 ? tri_group_ref(group) : NULL;
        ddp->unit.size = 1;
    }
    if (ddp->unit.size > 1) {
        ddp->unit.group = tri_group_ref(group);
        trii_forked_watch();
    } else {
        ddp->unit.stage = 0;
    }
    ddp->unit.averager = (trii_averager){.group = ddp->unit.group,
                                         .hook = ddp->options.hook,
                                         .hook_state = ddp->options.hook_state,
                                         .within = ddp->unit.within,
                                         .across = ddp->unit.across,
                                         .pass = -1};
    return status;
}

static tri_status set_up(trii_ddp *ddp)
{
    tri_status status = trii_ddp_compare(ddp, false, true);

    if (status == TRI_OK && ddp->unit.stage == 3)
        status = tri_group_split(trii_unit_parts(&ddp->unit), 0, 0, NULL, &ddp->unit.apart);
    if (status == TRI_OK)
        status = trii_unit_called(&ddp->unit, trii_replica_send(ddp->net, ddp->unit.group, 0));
    if (status == TRI_OK)
        status = trii_unit_set_up(&ddp->unit);
    return status == TRI_OK ? trii_ddp_buffers_make(ddp) : status;
}

/* Of what the ranks do together; where they find that they differ all of them say so. */
static inline tri_status met(trii_ddp *ddp, tri_status status)
{
    return TRII_LIKELY(status == TRI_OK || status == TRI_ERR_MISMATCH)
               ? status
               : trii_unit_tell(&ddp->unit, status);
}

/* A child of fork() would take its parent's turn, for which the parent would then wait for ever. */
static inline tri_status check_parent(const trii_ddp *ddp)
{
    return TRII_LIKELY(!atomic_load_explicit(&trii_forked, memory_order_relaxed))
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_STATE,
                           "%s: this is a child of fork(), and the group is its parent's: "
                           "tri_spawn starts processes that train",
                           ddp->unit.call);
}

/* Before the ranks meet in something that is not recorded: what pends runs. */
static tri_status run_before(trii_ddp *ddp)
{
    trii_step *step = trii_step_current();
    tri_status status = check_parent(ddp);

    if (status != TRI_OK)
        return status;
    status = step != NULL ? trii_unit_settle(&ddp->unit, step) : TRI_ERR_NO_MEMORY;
    return TRII_LIKELY(status == TRI_OK) ? status : trii_unit_tell(&ddp->unit, status);
}

/* Parameters were unfrozen: all ranks make their buckets again. Collective. */
static tri_status relist(trii_ddp *ddp)
{
    tri_status status = run_before(ddp);

    if (status == TRI_OK)
        status = trii_ddp_compare(ddp, false, true);
    if (status == TRI_OK && ddp->unit.stage > 0)
        status =
            TRII_FAIL(TRI_ERR_UNSUPPORTED,
                      "the ranks' parts do not move: unfreeze them before %s divides the network",
                      ddp->unit.call);
    if (status == TRI_OK)
        status = trii_unit_list(&ddp->unit);
    if (status != TRI_OK)
        return met(ddp,
                   TRII_FAIL_CTX(status, "%s, whose parameters were unfrozen", ddp->unit.call));
    return met(ddp, trii_unit_buckets_make(&ddp->unit));
}

/* Its gradients are averaged already. */
static tri_status check_inside(const trii_ddp *ddp)
{
    const tri_module *inside = trii_module_wrapper(ddp->net, &ddp_class);

    if (inside == NULL)
        inside = trii_module_wrapper(ddp->net, &zero_class);
    if (inside != NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "the network has a model of %s inside (%s), whose gradients are "
                         "averaged already: wrap all of it, or parts that have nothing in common%s",
                         ((const trii_ddp *)inside->data)->unit.call,
                         inside->name[0] != '\0' ? inside->name : "itself",
                         ddp->unit.stage == 3 ? " (tri_zero_options.units says which modules are "
                                                "gathered one by one)"
                                              : "");
    return TRI_OK;
}

static tri_group *asked_for(const tri_ddp_options *opt)
{
    return opt->group != NULL ? opt->group : trii_group_get_world();
}

/* Where device_ids says that the network lies, it does. */
static tri_status check_devices(trii_ddp *ddp)
{
    const tri_ddp_options *o = &ddp->options;
    tri_status status = TRI_OK;

    if (o->device_ids != NULL && o->n_devices == 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "device_ids is set, but n_devices is 0: set it to 1");
    if (o->device_ids == NULL && o->n_devices != 0)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "n_devices is %d, but device_ids is NULL",
                         o->n_devices);
    if (o->n_devices != (o->device_ids != NULL ? 1 : 0))
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%d device_ids: one, where the whole network lies, or none (tri_data_"
                         "parallel takes several)",
                         o->n_devices);
    if (o->device_ids != NULL) {
        ddp->devices[0] = o->device_ids[0];
        ddp->device = &ddp->devices[0];
        status = trii_device_check(ddp->devices[0]);
    }
    if (o->output_device != NULL && status == TRI_OK) {
        ddp->devices[1] = *o->output_device;
        ddp->output = &ddp->devices[1];
        status = trii_device_check(ddp->devices[1]);
    }
    for (int64_t i = 0; i < tri_module_state_count(ddp->net) && status == TRI_OK; i++) {
        tri_state_entry entry = tri_module_state(ddp->net, i);
        char home[16];

        if (ddp->device == NULL || tri_tensor_device(entry.tensor) == *ddp->device)
            continue;
        snprintf(home, sizeof(home), "%s", tri_device_text(*ddp->device));
        status =
            TRII_FAIL(TRI_ERR_INVALID_ARG,
                      "%s lies on %s, and device_ids[0] is %s: tri_module_to moves the network "
                      "there, and a network on several devices has no device_ids",
                      entry.name, tri_device_text(tri_tensor_device(entry.tensor)), home);
    }
    return status;
}

/* Stages of a pipeline need not have any: other ranks of it do. */
static bool trains_nothing(tri_module *net)
{
    for (int64_t i = 0; i < tri_module_state_count(net); i++)
        if (tri_module_state(net, i).parameter && tri_module_state(net, i).tensor->requires_grad)
            return false;
    return true;
}

static tri_status add_parameters(trii_ddp *ddp)
{
    int64_t total = tri_module_state_count(ddp->net);
    tri_status status;

    ddp->is_bare = tri_module_unwrapped(ddp->net)->stages != NULL && trains_nothing(ddp->net);
    if (ddp->is_bare)
        return TRI_OK;
    status = trii_unit_room(&ddp->unit, (size_t)total);
    for (int64_t i = 0; i < total && status == TRI_OK; i++) {
        tri_state_entry entry = tri_module_state(ddp->net, i);

        if (entry.parameter)
            trii_unit_add(&ddp->unit, entry.name, entry.tensor);
    }
    if (status == TRI_OK)
        status = trii_ddp_set_units(ddp);
    return status == TRI_OK ? trii_unit_list(&ddp->unit) : status;
}

/* What each rank finds for itself. */
static tri_status look_at_network(trii_ddp *ddp)
{
    tri_status status = trii_module_flatten(ddp->net);

    if (status == TRI_OK)
        status = check_inside(ddp);
    if (status == TRI_OK)
        status = trii_replica_check(ddp->net, asked_for(&ddp->options));
    if (status == TRI_OK)
        status = check_devices(ddp);
    return status == TRI_OK ? add_parameters(ddp) : status;
}

/* status: of this rank so far. One that has no network says so where the others compare theirs. */
static tri_status meet(trii_ddp *ddp, tri_status status)
{
    char line[TRII_ERR_BYTES];
    tri_status joined;

    if (status == TRI_ERR_NO_MEMORY)
        return status;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    joined = join_group(ddp);
    if (status == TRI_OK && joined == TRI_OK && ddp->unit.group != NULL)
        return met(ddp, set_up(ddp));
    if (status == TRI_OK)
        return joined;
    if (joined == TRI_OK && ddp->unit.group != NULL)
        trii_replica_failed(ddp->unit.group, line);
    trii_err_set("%s", line);
    return status;
}

/* The group's own numbers of ranks stand in the line. */
static tri_status name_call(const trii_ddp *ddp, tri_status status)
{
    if (ddp->unit.group != NULL && ddp->unit.group != trii_group_get_world() &&
        status <= TRI_ERR_PEER_LOST)
        trii_err_prepend("over a group of %d, in which this is rank %d", ddp->unit.size,
                         ddp->unit.rank);
    return trii_contents_fail(status, ddp->unit.call);
}

tri_module *trii_ddp_make(tri_module *own_net, const trii_ddp_recipe *recipe)
{
    const tri_ddp_options *opt = &recipe->options;
    const trii_site site = trii_site_take(); /* none of a call by the library itself */
    tri_module *model = tri_module_create(recipe->stage > 0 ? &zero_class : &ddp_class);
    trii_ddp *ddp = trii_ddp_of(model);
    tri_status status = recipe->known;
    char line[TRII_ERR_BYTES];

    tri_site_set(site.file, site.line);
    if (ddp == NULL) {
        (void)trii_ddp_tell(asked_for(opt), TRI_ERR_NO_MEMORY);
        tri_module_destroy(own_net);
        return model;
    }
    ddp->unit.call = recipe->call;
    ddp->unit.stage = recipe->stage;
    ddp->unit.prefetch = recipe->prefetch;
    ddp->unit.prefetch_bytes = recipe->prefetch_bytes;
    ddp->unit.gather_dtype = recipe->gather_dtype;
    ddp->unit.keep_after_forward = recipe->keep_after_forward;
    ddp->units = recipe->units;
    ddp->n_units = recipe->stage == 3 ? recipe->n_units : 0;
    ddp->unit.keep_below = recipe->stage == 3 ? recipe->keep_below : 0;
    ddp->unit.within = recipe->within != NULL ? tri_group_ref(recipe->within) : NULL;
    ddp->unit.across = recipe->across != NULL ? tri_group_ref(recipe->across) : NULL;
    ddp->unit.axis = recipe->axis != NULL ? tri_group_ref(recipe->axis) : NULL;
    ddp->options = status == TRI_OK ? *opt : (tri_ddp_options){.group = opt->group};
    trii_bucket_defaults(&ddp->options.first_bucket_bytes, &ddp->options.bucket_cap_bytes);
    ddp->unit.first_bucket_bytes = ddp->options.first_bucket_bytes;
    ddp->unit.bucket_cap_bytes = ddp->options.bucket_cap_bytes;
    if (status == TRI_OK && own_net == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "own_net is NULL");
    snprintf(line, sizeof(line), "%s", tri_last_error());
    if (status != TRI_OK)
        trii_module_fail(model, trii_contents_fail(status, recipe->call));
    ddp->net = trii_module_adopt(model, "", own_net);
    if (status != TRI_OK)
        trii_err_set("%s", line); /* the others hear it without this rank's line */
    else
        status = tri_module_status(model);
    if (status == TRI_OK)
        status = look_at_network(ddp);
    if (!recipe->is_lost)
        status = meet(ddp, status);
    if (status == TRI_ERR_NO_MEMORY)
        status = trii_ddp_tell(asked_for(opt), status);
    ddp->units = NULL; /* the caller's */
    if (status == TRI_OK)
        trii_unit_place(&ddp->unit);
    if (status != TRI_OK)
        trii_module_fail(model, name_call(ddp, status));
    return model;
}

tri_module *(tri_ddp)(tri_module *own_net, const tri_ddp_options *opt)
{
    trii_ddp_recipe recipe = {.call = "tri_ddp",
                              .known = TRII_CHECK_RESERVED(tri_ddp_options, opt)};

    recipe.is_lost = recipe.known != TRI_OK;
    if (opt != NULL)
        recipe.options = *opt;
    return trii_ddp_make(own_net, &recipe);
}

static void ddp_destroy(tri_module *self)
{
    trii_ddp *ddp = self->data;

    trii_ddp_buffers_free(ddp);
    tri_group_unref(ddp->bare_group);
    trii_unit_free(&ddp->unit);
}

/* --- forward -------------------------------------------------------------- */

/* From here to the last bucket of the backward a failure is told to the peers. */
static tri_status open_pass(trii_ddp *ddp)
{
    trii_step *step = trii_step_current();
    tri_status status;

    if (step != NULL && TRII_UNLIKELY(step->failed != TRI_OK))
        return run_before(ddp); /* which fails: nothing that is recorded now will run */
    status = step != NULL ? trii_unit_open_pass(&ddp->unit, step) : TRI_ERR_NO_MEMORY;
    return TRII_LIKELY(status == TRI_OK) ? status : trii_unit_tell(&ddp->unit, status);
}

/* What comes before the network's own forward in training. */
static tri_status before_forward(trii_ddp *ddp)
{
    tri_status status;

    if (ddp->unit.no_sync > 0)
        return TRI_OK;
    status = check_parent(ddp);
    if (status == TRI_OK && trii_unit_grew(&ddp->unit))
        status = relist(ddp);
    if (status == TRI_OK && ddp->unit.has_observed && !ddp->unit.rebuilt) {
        status = run_before(ddp);
        if (status == TRI_OK)
            status = met(ddp, trii_unit_buckets_rebuild(&ddp->unit));
    }
    trii_unit_place(&ddp->unit); /* a model that watched some of them may be gone */
    if (status == TRI_OK)
        status = open_pass(ddp);
    if (status == TRI_OK && ddp->n_buffers > 0 && !ddp->options.no_buffer_sync)
        status = trii_ddp_buffers_record(ddp, trii_step_current());
    return status;
}

/* With device_ids or output_device. */
static void forward_there(const trii_ddp *ddp, tri_tensor *const *in, int n_in, tri_tensor **out,
                          int n_out)
{
    tri_tensor **there = trii_alloc((size_t)n_in, sizeof(tri_tensor *), "inputs");

    for (int i = 0; i < n_in && there != NULL; i++)
        there[i] = in[i] != NULL && ddp->device != NULL ? tri_to(in[i], *ddp->device) : in[i];
    if (there != NULL)
        tri_forward_n(ddp->net, there, n_in, out, n_out);
    for (int o = 0; o < n_out; o++) {
        if (there == NULL)
            out[o] = trii_forward_failed(TRI_ERR_NO_MEMORY);
        else if (ddp->output != NULL)
            out[o] = tri_to(out[o], *ddp->output);
    }
    trii_free(there);
}

tri_status trii_ddp_enter(tri_module *model)
{
    trii_ddp *ddp = model->data;

    trii_random_stream_set((uint64_t)ddp->unit.rank);
    return ddp->unit.group != NULL && model->training ? before_forward(ddp) : TRI_OK;
}

static void ddp_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                        int n_out)
{
    const trii_ddp *ddp = self->data;
    tri_status status = trii_ddp_enter(self);

    if (TRII_UNLIKELY(status != TRI_OK)) {
        for (int i = 0; i < n_out; i++)
            out[i] = trii_forward_failed(status);
        return;
    }
    if (TRII_LIKELY(ddp->device == NULL && ddp->output == NULL))
        tri_forward_n(ddp->net, in, n_in, out, n_out);
    else
        forward_there(ddp, in, n_in, out, n_out);
}

/* --- the rest of parallel.h ----------------------------------------------- */

void tri_ddp_no_sync_begin(tri_module *model)
{
    trii_ddp *ddp = trii_ddp_of(model);

    if (ddp != NULL)
        ddp->unit.no_sync++;
}

void tri_ddp_no_sync_end(tri_module *model)
{
    trii_ddp *ddp = trii_ddp_of(model);

    if (ddp != NULL && ddp->unit.no_sync > 0)
        ddp->unit.no_sync--;
}

void tri_ddp_vote_stop(tri_module *model)
{
    trii_ddp *ddp = trii_ddp_of(model);

    if (ddp == NULL)
        return;
    ddp->unit.tally.vote_stop = true;
    if (ddp->unit.group == NULL)
        ddp->unit.stopped = true;
}

bool tri_ddp_is_stopped(const tri_module *model)
{
    const trii_ddp *ddp = trii_ddp_of(model);

    return ddp != NULL && ddp->unit.stopped;
}

int64_t tri_ddp_sample_count(const tri_module *model)
{
    const trii_ddp *ddp = trii_ddp_of(model);

    return ddp != NULL ? ddp->unit.tally.sample_count : 0;
}

tri_status(tri_ddp_verify)(tri_module *model, bool buffers)
{
    trii_ddp *ddp;
    tri_status status = trii_ddp_need(model, "ddp_verify", &ddp);

    if (status != TRI_OK || ddp->unit.group == NULL)
        return status;
    status = run_before(ddp);
    if (status != TRI_OK)
        return status;
    status = trii_ddp_compare(ddp, true, buffers);
    return status == TRI_OK ? TRI_OK : met(ddp, TRII_FAIL_CTX(status, "ddp_verify"));
}

tri_status(tri_ddp_sync_buffers)(tri_module *model)
{
    trii_ddp *ddp;
    trii_step *step = trii_step_current();
    tri_status status = trii_ddp_need(model, "ddp_sync_buffers", &ddp);

    if (status != TRI_OK)
        return status;
    if (step == NULL)
        return TRI_ERR_NO_MEMORY;
    status = run_before(ddp);
    if (status != TRI_OK || ddp->unit.group == NULL)
        return status;
    status = trii_ddp_buffers_record(ddp, step);
    return status == TRI_OK ? trii_step_run(step) : status;
}
