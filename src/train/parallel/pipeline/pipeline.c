/*
 * pipeline.c - makes a pipeline: which stages are whose, and that all ranks mean the same.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/option.h"
#include "comm/group/join/world.h"
#include "comm/reducer/agreement.h"
#include "train/graph/values/contents.h"
#include "train/nn/module.h"
#include "train/parallel/pipeline/pipeline_ties.h"
#include "train/tensor/rank_text.h"

/* --- the module ----------------------------------------------------------- */

static void pipeline_destroy(tri_module *self)
{
    trii_pipeline *p = self->data;

    trii_pipeline_places_free(self);
    tri_group_unref(p->group);
    trii_free(p->parts);
    trii_free(p->first);
    trii_free(p->actions);
    trii_free(p->skips);
    trii_pipeline_ties_free(p);
    tri_module_destroy(p->taken_apart);
}

/* Peers that wait for this rank hear why. */
static tri_status give_up(const trii_pipeline *p, tri_status status)
{
    char line[TRII_ERR_BYTES];

    snprintf(line, sizeof(line), "%s", tri_last_error());
    trii_pipeline_abort(p, line);
    trii_err_set("%s", line);
    return status;
}

static void pipeline_forward(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out,
                             int n_out)
{
    const trii_step *step = trii_step_current();
    tri_status status = TRI_OK;

    if (n_in != 1 || n_out != 1)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG,
                           "a pipeline takes 1 input to 1 output, not %d to %d", n_in, n_out);
    else if (step == NULL)
        status = TRI_ERR_NO_MEMORY;
    else if (!trii_step_modes(step).no_grad)
        status = TRII_FAIL(TRI_ERR_STATE, "the forward of a pipeline has no gradients: put it in "
                                          "TRI_NO_GRAD { }, or train by tri_pipeline_step");
    if (status != TRI_OK)
        trii_forward_refused(give_up(self->data, status), out, n_out);
    else
        out[0] = trii_pipeline_pass(self->data, TRII_PIPELINE_OUTPUTS,
                                    &(trii_pipeline_inputs){.x = in[0]});
}

static const tri_module_class pipeline_class = {.name = "Pipeline",
                                                .size = sizeof(trii_pipeline),
                                                .forward = pipeline_forward,
                                                .destroy = pipeline_destroy};

trii_pipeline *trii_pipeline_of(tri_module *module)
{
    return module != NULL && module->type == &pipeline_class ? module->data : NULL;
}

/* --- what all ranks have -------------------------------------------------- */

typedef struct request {
    const trii_pipeline *p;
    const int *first; /* of the recipe */
    const char *why;  /* this rank's call has failed; NULL: it has not */
} request;

static void describe(void *ctx, int64_t index, char line[TRII_AGREE_LINE])
{
    const request *r = ctx;
    const trii_pipeline_shape *shape = &r->p->shape;
    char ties[48] = "";

    (void)index;
    if (r->p->n_ties > 0)
        snprintf(ties, sizeof(ties), ", which share %d parameters,", r->p->n_ties);
    if (r->why != NULL)
        snprintf(line, TRII_AGREE_LINE, "a call that fails (%.140s)", r->why);
    else
        snprintf(line, TRII_AGREE_LINE, "schedule %s with %d stages%s and %d micro-batches%s",
                 trii_pipeline_schedule_name(shape->schedule), shape->stages, ties,
                 shape->microbatches, r->p->count != NULL ? " and options.count" : "");
}

static tri_status hash_request(void *ctx, int64_t index, uint64_t *hash_out)
{
    const request *r = ctx;
    char line[TRII_AGREE_LINE];

    describe(ctx, index, line);
    *hash_out = trii_hash_text(TRII_HASH_SEED, line);
    if (r->why == NULL && r->first != NULL)
        *hash_out =
            trii_hash(*hash_out, r->first, ((size_t)r->p->shape.stages + 1) * sizeof(*r->first));
    if (r->why == NULL)
        *hash_out = trii_pipeline_ties_hash(r->p, *hash_out);
    return TRI_OK;
}

/* status: of this rank so far, with its line. */
static tri_status agree(tri_group *group, const trii_pipeline *p, const int *first,
                        tri_status status)
{
    char line[TRII_ERR_BYTES];
    request r = {.p = p, .first = first};
    const trii_agreement agreement = {
        .group = group, .n = 1, .ctx = &r, .hash = hash_request, .describe = describe};
    trii_difference found;
    tri_status met;

    snprintf(line, sizeof(line), "%s", tri_last_error());
    r.why = status != TRI_OK ? line : NULL;
    met = trii_agree(&agreement, &found);
    if (status != TRI_OK) {
        trii_err_set("%s", line);
        return status;
    }
    if (met != TRI_OK || found.rank == 0)
        return met;
    return TRII_FAIL(TRI_ERR_MISMATCH, "%s has %s%s; rank 0 has %s",
                     trii_rank_text_of(group, found.rank).text, found.line,
                     strcmp(found.line, found.line_of_0) == 0 ? ", cut at other modules" : "",
                     found.line_of_0);
}

/* --- making it ------------------------------------------------------------ */

/* The same module has been in the list before. */
static bool is_repeated(const trii_pipeline_recipe *r, int i)
{
    for (int k = 0; k < i; k++)
        if (r->modules[k] == r->modules[i])
            return true;
    return false;
}

static void destroy_module(const trii_pipeline_recipe *r, int i)
{
    if (r->modules[i] != NULL && !is_repeated(r, i))
        tri_module_destroy(r->modules[i]); /* unless a parent has it */
}

static tri_status check_part(const trii_pipeline_recipe *r, const trii_pipeline *p, int stage,
                             int i)
{
    const tri_module *wrapper;

    if (r->modules[i] == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "stage %d is NULL on rank %d, whose it is", stage,
                         p->rank);
    wrapper = trii_module_wrapper(r->modules[i], NULL);
    if (wrapper != NULL)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "stage %d is %s, or has one inside: stages are plain networks", stage,
                         tri_module_type(wrapper));
    return TRI_OK;
}

/* Under a path such as "h.2", below sequences that only name it: the pipeline runs its parts. */
static tri_status adopt_path(tri_module *model, const char *path, tri_module *own_module)
{
    const char *dot = strchr(path, '.');
    char name[TRI_STATE_NAME_MAX];
    tri_module *below;

    if (dot == NULL) {
        trii_module_adopt(model, path, own_module);
        return tri_module_status(model);
    }
    (void)snprintf(name, sizeof(name), "%.*s", (int)(dot - path), path);
    below = tri_module_submodule(model, name);
    if (below == NULL)
        below = trii_module_adopt(model, name, tri_nn_sequential_of(0, NULL));
    return adopt_path(below, dot + 1, own_module);
}

/* Adds a module to the pipeline, or destroys it. */
static tri_status take_part(tri_module *model, const trii_pipeline_recipe *r, trii_pipeline *p,
                            int stage, int i)
{
    tri_status status = check_part(r, p, stage, i);
    char number[16];

    if (status != TRI_OK) {
        destroy_module(r, i);
        return status;
    }
    snprintf(number, sizeof(number), "%d", stage);
    return adopt_path(model, r->names != NULL ? r->names[i] : number, r->modules[i]);
}

/* Takes this rank's stages, and destroys the others. */
static tri_status take_parts(tri_module *model, trii_pipeline *p, const trii_pipeline_recipe *r,
                             tri_status status)
{
    int local = 0, n = 0;

    for (int s = 0; s < r->stages && r->modules != NULL; s++) {
        bool is_mine = status == TRI_OK && trii_pipeline_rank_of(&p->shape, s) == p->rank;

        for (int i = trii_pipeline_first_of(r, s); i < trii_pipeline_first_of(r, s + 1); i++) {
            if (!is_mine || status != TRI_OK) {
                destroy_module(r, i);
                continue;
            }
            status = take_part(model, r, p, s, i);
            if (status == TRI_OK)
                p->parts[n++] = r->modules[i];
        }
        if (is_mine && status == TRI_OK)
            p->first[++local] = n;
    }
    return status;
}

/* Every rank of the group has another stage, and so none that it could run a layer with. */
static tri_status check_cuts(tri_module *module, const tri_group *group)
{
    for (int64_t i = 0; i < tri_module_state_count(module); i++) {
        const tri_state_entry entry = tri_module_state(module, i);

        if (trii_tensor_is_cut(entry.tensor) && trii_group_meets(entry.tensor->held->group, group))
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s of a %s is cut over ranks of this group (tri_parallelize), which "
                             "have other stages: give the group of another axis of the mesh",
                             entry.name, tri_module_type(module));
    }
    return TRI_OK;
}

static tri_status check_modules(const trii_pipeline_recipe *r, const tri_group *group)
{
    tri_status status = TRI_OK;

    for (int i = 0; i < trii_pipeline_first_of(r, r->stages) && status == TRI_OK; i++) {
        if (r->modules[i] != NULL && is_repeated(r, i))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "module %d is in the list twice", i);
        if (r->modules[i] != NULL && tri_module_status(r->modules[i]) == TRI_OK)
            status = check_cuts(r->modules[i], group);
    }
    return status;
}

static tri_status check_recipe(const trii_pipeline_shape *shape, const trii_pipeline_recipe *r,
                               const tri_group *group)
{
    tri_status status;

    if (r->modules == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "own_stages is NULL");
    status = trii_pipeline_shape_check(shape);
    return status == TRI_OK ? check_modules(r, group) : status;
}

static tri_status take_room(trii_pipeline *p, const trii_pipeline_recipe *r)
{
    p->n_local = p->shape.stages / p->shape.ranks;
    p->n_actions = trii_pipeline_action_count(&p->shape);
    p->parts = trii_alloc((size_t)trii_pipeline_first_of(r, r->stages) + 1, sizeof(tri_module *),
                          "stages");
    p->first = trii_alloc((size_t)p->n_local + 1, sizeof(*p->first), "stages");
    p->actions = trii_alloc((size_t)p->n_actions, sizeof(*p->actions), "schedule");
    if (p->parts == NULL || p->first == NULL || p->actions == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_pipeline_actions(&p->shape, p->rank, p->actions);
    return TRI_OK;
}

/* The group of the options, which the ranks meet in. */
static tri_status find_group(const tri_pipeline_options *opt, tri_group **group_out)
{
    tri_status status = TRI_OK;

    *group_out = opt->group;
    if (opt->group == NULL && !tri_is_initialized())
        status = tri_init(NULL);
    if (status == TRI_OK)
        status = trii_group_resolve(group_out, "options.group");
    return status == TRI_OK ? trii_group_takes_host_memory(*group_out) : status;
}

static tri_status make_together(tri_module *model, trii_pipeline *p)
{
    tri_status status = trii_pipeline_skips_make(p);

    if (status == TRI_OK)
        status = trii_pipeline_places_make(model);
    if (status != TRI_OK) /* anything but a lack of memory all ranks have found */
        return status == TRI_ERR_NO_MEMORY ? give_up(p, status) : status;
    status = trii_pipeline_ties_make(p);
    return status == TRI_OK ? TRI_OK : give_up(p, status);
}

static tri_status make(tri_module *model, const trii_pipeline_recipe *r,
                       const tri_pipeline_options *opt)
{
    trii_pipeline *p = model->data;
    tri_group *group = NULL;
    tri_status status = r->status, found;
    char line[TRII_ERR_BYTES];

    p->module = model;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    found = find_group(opt, &group);
    if (found != TRI_OK)
        return take_parts(model, p, r, found);
    if (status != TRI_OK)
        trii_err_set("%s", line);
    p->rank = tri_group_rank(group);
    p->count = opt->count;
    p->shape = (trii_pipeline_shape){
        .schedule = opt->schedule,
        .ranks = tri_group_size(group),
        .stages = r->stages,
        .microbatches = opt->n_microbatches != 0 ? opt->n_microbatches : tri_group_size(group)};
    if (status == TRI_OK)
        status = check_recipe(&p->shape, r, group);
    if (status == TRI_OK)
        status = take_room(p, r);
    if (status == TRI_OK)
        status = trii_pipeline_ties_find(p, r);
    status = take_parts(model, p, r, status);
    if (tri_group_size(group) == 1)
        return status == TRI_OK ? trii_pipeline_skips_make(p) : status;
    status = agree(group, p, r->first, status);
    if (status == TRI_OK)
        status = tri_group_split(group, 0, p->rank, NULL, &p->group);
    return status == TRI_OK ? make_together(model, p) : status;
}

tri_module *trii_pipeline_make(const trii_pipeline_recipe *r)
{
    static const tri_pipeline_options defaults;
    const tri_pipeline_options *opt = r->options != NULL ? r->options : &defaults;
    tri_module *model = tri_module_create(&pipeline_class);
    tri_status status;

    if (trii_pipeline_of(model) == NULL || trii_module_is_shared(model)) {
        if (opt->group != NULL)
            tri_group_abort(opt->group, "tri_pipeline: out of memory");
        for (int i = 0; r->modules != NULL && i < trii_pipeline_first_of(r, r->stages); i++)
            destroy_module(r, i);
        return model;
    }
    status = make(model, r, opt);
    if (status != TRI_OK)
        trii_module_fail(model, trii_contents_fail(status, r->call));
    return model;
}

tri_module *(tri_pipeline)(tri_module *const *own_stages, int n, const tri_pipeline_options *opt)
{
    return trii_pipeline_make(
        &(trii_pipeline_recipe){.call = "tri_pipeline",
                                .options = opt,
                                .modules = own_stages,
                                .stages = n,
                                .status = TRII_CHECK_RESERVED(tri_pipeline_options, opt)});
}

tri_tensor *(tri_pipeline_step)(tri_module *pipe, tri_tensor *x, tri_tensor *target,
                                tri_pipeline_loss_fn loss, void *arg)
{
    trii_step *step = trii_step_current();
    trii_pipeline *p = trii_pipeline_of(tri_module_unwrapped(pipe));
    tri_status status = tri_module_status(pipe);

    if (status == TRI_OK && step == NULL)
        status = TRI_ERR_NO_MEMORY;
    else if (status == TRI_OK && p == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "the module is a %s; tri_pipeline makes pipelines",
                           tri_module_type(pipe));
    if (status != TRI_OK) {
        tri_tensor *failed = trii_handle_refused(step, "pipeline_step", NULL, 0, status);

        if (p != NULL)
            (void)give_up(p, status);
        if (step != NULL)
            trii_step_fail(step, status);
        return failed;
    }
    return trii_pipeline_pass(
        p, trii_step_modes(step).no_grad ? TRII_PIPELINE_LOSS : TRII_PIPELINE_TRAIN,
        &(trii_pipeline_inputs){pipe, x, target, loss, arg});
}
