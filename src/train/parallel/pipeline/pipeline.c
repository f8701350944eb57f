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
#include "train/nn/module.h"
#include "train/parallel/pipeline/pipeline_internal.h"

/* --- the module ----------------------------------------------------------- */

/* For norms, which would be those of one rank (train/optim/square_norm.c). */
static void mark_stages(const trii_pipeline *p, bool in_stage)
{
    for (int k = 0; k < p->n_local && p->shape.ranks > 1 && p->stages != NULL; k++)
        for (int64_t i = 0; p->stages[k] != NULL && i < tri_module_state_count(p->stages[k]); i++)
            tri_module_state(p->stages[k], i).tensor->in_stage = in_stage;
}

static void pipeline_destroy(tri_module *self)
{
    trii_pipeline *p = self->data;

    mark_stages(p, false);
    tri_group_unref(p->group);
    trii_free(p->stages);
    trii_free(p->actions);
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
        trii_forward_refused(status, out, n_out);
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
    const trii_pipeline_shape *shape;
    const char *why; /* this rank's call has failed; NULL: it has not */
} request;

static void describe(void *ctx, int64_t index, char line[TRII_AGREE_LINE])
{
    const request *r = ctx;

    (void)index;
    if (r->why != NULL)
        snprintf(line, TRII_AGREE_LINE, "a call that fails (%.140s)", r->why);
    else
        snprintf(line, TRII_AGREE_LINE, "schedule %s with %d stages and %d micro-batches",
                 trii_pipeline_schedule_name(r->shape->schedule), r->shape->stages,
                 r->shape->microbatches);
}

static tri_status hash_request(void *ctx, int64_t index, uint64_t *hash_out)
{
    char line[TRII_AGREE_LINE];

    describe(ctx, index, line);
    *hash_out = trii_hash_text(TRII_HASH_SEED, line);
    return TRI_OK;
}

/* status: of this rank so far, with its line. */
static tri_status agree(tri_group *group, const trii_pipeline_shape *shape, tri_status status)
{
    char line[TRII_ERR_BYTES];
    request r = {.shape = shape};
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
    return TRII_FAIL(TRI_ERR_MISMATCH, "rank %d has %s; rank 0 has %s", found.rank, found.line,
                     found.line_of_0);
}

/* --- making it ------------------------------------------------------------ */

/* Takes this rank's stages, and destroys the others. */
static tri_status take_stages(tri_module *model, trii_pipeline *p, tri_module *const *stages, int n,
                              tri_status status)
{
    int local = 0;

    for (int s = 0; s < n && stages != NULL; s++) {
        bool is_mine = status == TRI_OK && trii_pipeline_rank_of(&p->shape, s) == p->rank;
        char name[16];

        if (!is_mine) {
            if (stages[s] != NULL && stages[s]->parent == NULL)
                tri_module_destroy(stages[s]);
            continue;
        }
        snprintf(name, sizeof(name), "%d", s);
        if (stages[s] == NULL) {
            status = TRII_FAIL(TRI_ERR_INVALID_ARG, "stage %d is NULL on rank %d, whose it is", s,
                               p->rank);
            continue;
        }
        if (trii_module_wrapper(stages[s], NULL) != NULL) {
            status = TRII_FAIL(TRI_ERR_UNSUPPORTED,
                               "stage %d is %s, or has one inside: stages are plain networks", s,
                               tri_module_type(trii_module_wrapper(stages[s], NULL)));
            tri_module_destroy(stages[s]);
            continue;
        }
        trii_module_adopt(model, name, stages[s]);
        status = tri_module_status(model);
        if (status == TRI_OK)
            p->stages[local++] = stages[s];
    }
    return status;
}

/* A tensor of two stages would be two of different values on two ranks. */
static tri_status check_shared(const trii_pipeline_shape *shape, tri_module *const *stages, int a,
                               int b)
{
    for (int64_t i = 0; i < tri_module_state_count(stages[a]); i++)
        for (int64_t k = 0; k < tri_module_state_count(stages[b]); k++) {
            tri_state_entry one = tri_module_state(stages[a], i);
            tri_state_entry other = tri_module_state(stages[b], k);

            if (one.tensor == other.tensor)
                return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                                 "%s of stage %d on rank %d is %s of stage %d on rank %d: it "
                                 "cannot be in stages of different ranks",
                                 one.name, a, trii_pipeline_rank_of(shape, a), other.name, b,
                                 trii_pipeline_rank_of(shape, b));
        }
    return TRI_OK;
}

static tri_status check_all_shared(const trii_pipeline_shape *shape, tri_module *const *stages)
{
    tri_status status = TRI_OK;

    for (int a = 0; a < shape->stages; a++)
        for (int b = a + 1; b < shape->stages && status == TRI_OK; b++)
            if (stages[a] != NULL && stages[b] != NULL &&
                trii_pipeline_rank_of(shape, a) != trii_pipeline_rank_of(shape, b))
                status = check_shared(shape, stages, a, b);
    return status;
}

static tri_status check_options(const trii_pipeline_shape *shape, tri_module *const *stages)
{
    tri_status status;

    if (stages == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "own_stages is NULL");
    if (shape->schedule == TRI_PIPELINE_ZERO_BUBBLE || shape->schedule == TRI_PIPELINE_ZBV)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "schedule %s has no execution yet: 1f1b, gpipe, interleaved or looped_bfs",
                         trii_pipeline_schedule_name(shape->schedule));
    status = trii_pipeline_shape_check(shape);
    return status == TRI_OK ? check_all_shared(shape, stages) : status;
}

static tri_status take_room(trii_pipeline *p)
{
    p->n_local = p->shape.stages / p->shape.ranks;
    p->n_actions = trii_pipeline_action_count(&p->shape);
    p->stages = trii_alloc((size_t)p->n_local, sizeof(tri_module *), "stages");
    p->actions = trii_alloc((size_t)p->n_actions, sizeof(*p->actions), "schedule");
    if (p->stages == NULL || p->actions == NULL)
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

static tri_status make(tri_module *model, tri_module *const *own_stages, int n,
                       const tri_pipeline_options *opt, tri_status status)
{
    trii_pipeline *p = model->data;
    tri_group *group = NULL;
    tri_status found = find_group(opt, &group);

    if (found != TRI_OK)
        return take_stages(model, p, own_stages, n, found);
    p->rank = tri_group_rank(group);
    p->shape = (trii_pipeline_shape){
        .schedule = opt->schedule,
        .ranks = tri_group_size(group),
        .stages = n,
        .microbatches = opt->n_microbatches != 0 ? opt->n_microbatches : tri_group_size(group)};
    if (status == TRI_OK)
        status = check_options(&p->shape, own_stages);
    if (status == TRI_OK)
        status = take_room(p);
    status = take_stages(model, p, own_stages, n, status);
    if (tri_group_size(group) == 1)
        return status;
    status = agree(group, &p->shape, status);
    if (status == TRI_OK)
        status = tri_group_split(group, 0, p->rank, NULL, &p->group);
    if (status == TRI_OK)
        mark_stages(p, true);
    return status;
}

tri_module *(tri_pipeline)(tri_module *const *own_stages, int n, const tri_pipeline_options *opt)
{
    static const tri_pipeline_options defaults;
    tri_module *model = tri_module_create(&pipeline_class);
    tri_status status = TRII_CHECK_RESERVED(tri_pipeline_options, opt);

    opt = opt != NULL ? opt : &defaults;
    if (trii_pipeline_of(model) == NULL || trii_module_is_shared(model)) {
        if (opt->group != NULL)
            tri_group_abort(opt->group, "tri_pipeline: out of memory");
        for (int s = 0; s < n && own_stages != NULL; s++)
            tri_module_destroy(own_stages[s]);
        return model;
    }
    status = make(model, own_stages, n, opt, status);
    if (status != TRI_OK) {
        (void)TRII_FAIL_CTX(status, "tri_pipeline");
        trii_module_fail(model, status);
    }
    return model;
}

tri_tensor *(tri_pipeline_step)(tri_module *pipe, tri_tensor *x, tri_tensor *target,
                                tri_pipeline_loss_fn loss, void *arg)
{
    trii_step *step = trii_step_current();
    trii_pipeline *p = trii_pipeline_of(pipe);
    tri_status status = tri_module_status(pipe);

    if (step == NULL)
        return trii_handle_failed(step, TRI_ERR_NO_MEMORY);
    if (status == TRI_OK && p == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "the module is a %s; tri_pipeline makes pipelines",
                           tri_module_type(pipe));
    if (status != TRI_OK) {
        tri_tensor *failed = trii_handle_refused(step, "pipeline_step", NULL, 0, status);

        trii_step_fail(step, status);
        return failed;
    }
    return trii_pipeline_pass(
        p, trii_step_modes(step).no_grad ? TRII_PIPELINE_LOSS : TRII_PIPELINE_TRAIN,
        &(trii_pipeline_inputs){x, target, loss, arg});
}
