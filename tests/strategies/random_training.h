/*
 * random_training.h - trains a random program on ranks that are threads, by tri_ddp or by a stage
 * of tri_zero, and keeps what each rank has seen of it. Tests only.
 */
#ifndef TEST_RANDOM_TRAINING_H
#define TEST_RANDOM_TRAINING_H

#include <math.h>

#include "strategies/random_net.h"
#include "testing/ranks.h"
#include "testing/scratch.h"
#include "train/checkpoint/snapshot.h"

#define SEEN 256
#define PROGRAM_RANKS 4

/* --- what a rank has seen ------------------------------------------------- */

typedef struct seen {
    struct {
        const char *what;
        int step;
        uint64_t bits;
    } list[SEEN];
    int n;
} seen;

typedef struct training {
    program p;
    int stage; /* that it begins with; 0 = tri_ddp */
    const char *folder;
    seen ranks[PROGRAM_RANKS];
} training;

/* A rank. */
typedef struct learner {
    const program *p;
    seen *seen;
    const char *folder;
    tri_group *group;
    int rank, stage, step;
    tri_module *model;
    tri_optimizer *opt[2];
    int n_opts;
    tri_ema *ema;
    tri_grad_scaler *scaler;
} learner;

static void see(learner *l, const char *what, uint64_t bits)
{
    if (l->seen->n == SEEN)
        return;
    l->seen->list[l->seen->n].what = what;
    l->seen->list[l->seen->n].step = l->step;
    l->seen->list[l->seen->n++].bits = bits;
}

static void see_number(learner *l, const char *what, double number)
{
    uint64_t bits;

    if (number != number) /* whatever it came from */
        number = NAN;
    memcpy(&bits, &number, sizeof(bits));
    see(l, what, bits);
}

#define L_TRY(call)                                                                                \
    do {                                                                                           \
        tri_status l_status_ = (call);                                                             \
        if (l_status_ != TRI_OK)                                                                   \
            return l_status_;                                                                      \
    } while (0)

/* --- the model ------------------------------------------------------------ */

/* What tri_ddp does without a hook. */
static tri_status own_sum_hook(void *state, tri_bucket *bucket, int stage, tri_work **work_out)
{
    (void)state;
    return stage > 0 ? TRI_OK
                     : tri_all_reduce(bucket->group, bucket->data, bucket->data, bucket->count,
                                      bucket->dtype, TRI_REDOP_SUM, work_out);
}

static tri_status divide(learner *l, tri_module *net, const tri_zero_options *options)
{
    const program *p = l->p;
    const int64_t sizes[2] = {p->copies, p->ranks / p->copies};
    tri_zero_options opt = *options;
    tri_mesh *mesh = NULL;

    opt.stage = l->stage;
    opt.group = l->group;
    if (l->stage == 3) {
        opt.prefetch = p->prefetch;
        opt.keep_after_forward = p->keeps;
        opt.keep_below = p->keep_below;
    }
    if (p->copies > 1) {
        L_TRY(tri_mesh_create(l->group, sizes, 2, (const char *[]){"copies", "parts"}, &mesh));
        opt.group = NULL;
        opt.mesh = mesh;
    }
    l->model = tri_zero(net, &opt);
    tri_mesh_destroy(mesh);
    return tri_module_status(l->model);
}

static tri_status wrap(learner *l, tri_module *net)
{
    const program *p = l->p;
    const tri_zero_options opt = {.bucket_cap_bytes = p->bucket,
                                  .first_bucket_bytes = p->first_bucket,
                                  .no_buffer_sync = p->own_buffers,
                                  .hook = p->own_hook ? own_sum_hook : p->hook};

    if (l->stage > 0)
        return divide(l, net, &opt);
    l->model = tri_ddp(net, &(tri_ddp_options){.group = l->group,
                                               .bucket_cap_bytes = opt.bucket_cap_bytes,
                                               .first_bucket_bytes = opt.first_bucket_bytes,
                                               .no_buffer_sync = opt.no_buffer_sync,
                                               .hook = opt.hook});
    return tri_module_status(l->model);
}

static tri_status make(learner *l)
{
    const program *p = l->p;
    tri_module *net = random_net_build(p);

    if (p->shared)
        (void)tri_convert_sync_batch_norm(net, l->group);
    L_TRY(wrap(l, net));
    l->n_opts = random_optimizers(p, l->model, l->opt);
    for (int i = 0; i < l->n_opts; i++)
        L_TRY(tri_optimizer_status(l->opt[i]));
    if (p->averages)
        L_TRY(tri_ema_create(l->model, 0.8, &l->ema));
    if (p->scales)
        L_TRY(tri_grad_scaler_create(
            &(tri_grad_scaler_options){.init_scale = TRI_SET(p->scale), .growth_interval = 2},
            &l->scaler));
    return TRI_OK;
}

static void unmake(learner *l)
{
    tri_grad_scaler_destroy(l->scaler);
    tri_ema_destroy(l->ema);
    for (int i = 0; i < l->n_opts; i++)
        tri_optimizer_destroy(l->opt[i]);
    tri_module_destroy(l->model);
    l->model = NULL;
    l->n_opts = 0;
    l->ema = NULL;
    l->scaler = NULL;
}

/* --- checkpoints ---------------------------------------------------------- */

#define EXTRA_ENTRIES 256

/* What a checkpoint has beside the model and the first optimizer. */
typedef struct extras {
    tri_state_entry entries[3][EXTRA_ENTRIES];
    tri_checkpoint_extra list[3];
    int n;
} extras;

static void add_extra(extras *e, const char *name, int64_t n)
{
    e->list[e->n] = (tri_checkpoint_extra){.name = name, .entries = e->entries[e->n], .n = n};
    e->n++;
}

static void list_extras(const learner *l, extras *e)
{
    e->n = 0;
    if (l->n_opts > 1) {
        for (int64_t i = 0; i < tri_optimizer_state_count(l->opt[1]); i++)
            e->entries[e->n][i] = tri_optimizer_state(l->opt[1], i);
        add_extra(e, "second", tri_optimizer_state_count(l->opt[1]));
    }
    if (l->ema != NULL) {
        for (int64_t i = 0; i < tri_ema_state_count(l->ema); i++)
            e->entries[e->n][i] = tri_ema_state(l->ema, i);
        add_extra(e, "ema", tri_ema_state_count(l->ema));
    }
    if (l->scaler != NULL) {
        for (int64_t i = 0; i < tri_grad_scaler_state_count(l->scaler); i++)
            e->entries[e->n][i] = tri_grad_scaler_state(l->scaler, i);
        add_extra(e, "scaler", tri_grad_scaler_state_count(l->scaler));
    }
}

static tri_status save(learner *l, extras *e)
{
    const tri_checkpoint_info info = {.step = l->step + 1, .extras = e->list, .n_extras = e->n};

    /* Where nothing is in pieces, one rank saves. */
    if (l->rank == 0 || trii_group_of_state(l->model, l->opt[0], &info) != NULL)
        L_TRY(tri_checkpoint_save(l->folder, l->model, l->opt[0], &info, NULL));
    return tri_barrier(l->group, NULL);
}

static tri_status restore(learner *l, extras *e)
{
    tri_checkpoint *checkpoint;
    tri_status status;

    L_TRY(tri_checkpoint_open(l->folder, &checkpoint));
    status = tri_checkpoint_restore(checkpoint, l->model, l->opt[0]);
    for (int i = 0; i < e->n && status == TRI_OK; i++)
        status = tri_checkpoint_restore_extra(checkpoint, e->list[i].name, e->list[i].entries,
                                              e->list[i].n);
    tri_checkpoint_close(checkpoint);
    return status == TRI_OK ? tri_barrier(l->group, NULL) : status;
}

#define PROGRAM_STAGES 3 /* of tri_zero that random programs go through */

/* Hooks of the program want whole gradients, replicas whole parameters, and what a rank gathers the
 * others gather, too. */
static int last_stage(const program *p)
{
    if (p->own_hook)
        return 1;
    return p->own_branches || has_layer(p, PIECES) ? 2 : PROGRAM_STAGES;
}

/* Begins anew, by the next stage. */
static tri_status start_again(learner *l)
{
    tri_step_end();
    unmake(l);
    if (l->stage > 0)
        l->stage = l->stage % last_stage(l->p) + 1;
    return make(l);
}

static tri_status use_checkpoint(learner *l, checkpoint_use use)
{
    extras *e = calloc(1, sizeof(*e));
    tri_status status = TRI_OK;

    if (use == START_AGAIN)
        status = start_again(l);
    list_extras(l, e);
    if (status == TRI_OK)
        status = use == SAVE ? save(l, e) : restore(l, e);
    free(e);
    return status;
}

/* --- a step --------------------------------------------------------------- */

static tri_status see_weights(learner *l)
{
    uint64_t hash;

    L_TRY(tri_module_hash(l->model, &hash));
    see(l, "hash of the state", hash);
    return TRI_OK;
}

/* Of the step: 0 to 9. */
static uint64_t batch_of(const learner *l, int number)
{
    return (uint64_t)l->step * 100 + (uint64_t)l->rank * 10 + (uint64_t)number;
}

static tri_status evaluate(learner *l, bool swaps)
{
    tri_tensor *loss;
    double number;

    if (swaps)
        L_TRY(tri_ema_swap(l->ema));
    tri_module_train(l->model, false);
    tri_no_grad_begin();
    loss = random_loss(l->p, l->model, batch_of(l, 9));
    tri_no_grad_end();
    L_TRY(tri_item_status(loss, &number));
    see_number(l, "loss of an evaluation", number);
    tri_module_train(l->model, true);
    L_TRY(tri_step_end_status());
    if (swaps)
        L_TRY(tri_ema_swap(l->ema));
    return TRI_OK;
}

static tri_tensor *limit(learner *l)
{
    tri_tensor *params[NET_PARAMS], *norm = NULL;

    switch (l->p->limit) {
    case BY_NORM:
        for (int i = 0; i < l->n_opts; i++)
            norm = tri_clip_grad_norm(l->opt[i], 0.05);
        break;
    case BY_VALUE:
        for (int i = 0; i < l->n_opts; i++)
            tri_clip_grad_value(l->opt[i], 0.01);
        break;
    case BY_NORM_OF_LIST:
        norm = tri_clip_grad_norm_of(params, some_params(l->model, 0, 1, params), 0.05);
        break;
    default:
        break;
    }
    return norm != NULL ? tri_keep(norm) : NULL;
}

static tri_status update(learner *l)
{
    tri_tensor *norm;

    for (int i = 0; i < l->n_opts && l->scaler != NULL; i++)
        tri_grad_scaler_unscale(l->scaler, l->opt[i]);
    norm = limit(l);
    for (int i = 0; i < l->n_opts; i++)
        L_TRY(l->scaler != NULL ? tri_grad_scaler_step(l->scaler, l->opt[i])
                                : tri_optimizer_step(l->opt[i]));
    if (l->scaler != NULL)
        L_TRY(tri_grad_scaler_update(l->scaler));
    if (norm != NULL)
        see_number(l, "norm", tri_item(norm));
    if (l->scaler != NULL)
        see_number(l, "scale", tri_grad_scaler_current_scale(l->scaler));
    return l->ema != NULL ? tri_ema_update(l->ema) : TRI_OK;
}

static tri_tensor *backwards(learner *l, const program_step *s)
{
    tri_tensor *sum = NULL;

    for (int b = 0; b < s->batches; b++) {
        tri_tensor *loss;

        if (b < s->local)
            tri_ddp_no_sync_begin(l->model);
        loss = random_loss(l->p, l->model, batch_of(l, b));
        tri_backward(l->scaler != NULL ? tri_grad_scaler_scale(l->scaler, loss) : loss);
        if (b < s->local)
            tri_ddp_no_sync_end(l->model);
        sum = sum != NULL ? tri_add(sum, loss) : loss;
    }
    return tri_keep(sum);
}

/* On all ranks; what pends of the step is undone. */
static tri_status fail_step(learner *l, bool updates)
{
    tri_tensor *x = tri_ones(TRI_SHAPE(2, 3), l->p->dtype);

    (void)tri_matmul(x, x);
    if (updates)
        see(l, "status of an update that fails", (uint64_t)-update(l));
    see(l, "status of a step that fails", (uint64_t)-tri_step_end_status());
    return TRI_OK;
}

static tri_status end_step(learner *l, const program_step *s, tri_tensor *loss)
{
    switch (s->end) {
    case FAIL:
    case FAIL_UPDATE:
        return fail_step(l, s->end == FAIL_UPDATE);
    case UPDATE:
        L_TRY(update(l));
        break;
    case DROP:
        for (int i = 0; i < l->n_opts; i++)
            tri_optimizer_zero_grad(l->opt[i]);
        break;
    default:
        break;
    }
    see_number(l, "loss", tri_item(loss));
    L_TRY(tri_step_end_status());
    see(l, "samples", (uint64_t)tri_ddp_sample_count(l->model));
    return TRI_OK;
}

static tri_status train_step(learner *l, const program_step *s)
{
    if (s->evaluates || s->swaps)
        L_TRY(evaluate(l, s->swaps));
    L_TRY(end_step(l, s, backwards(l, s)));
    for (int i = 0; i < l->n_opts && s->slower; i++)
        tri_optimizer_set_lr(l->opt[i], tri_optimizer_lr(l->opt[i]) / 2);
    if (s->freezes)
        tri_module_requires_grad(tri_module_submodule(l->model, "first"), false);
    if (s->verifies)
        L_TRY(tri_ddp_verify(l->model, false));
    L_TRY(see_weights(l));
    return s->checkpoint != NO_CHECKPOINT ? use_checkpoint(l, s->checkpoint) : TRI_OK;
}

static tri_status train_program(learner *l)
{
    L_TRY(make(l));
    for (; l->step < l->p->n_steps; l->step++)
        L_TRY(train_step(l, &l->p->steps[l->step]));
    L_TRY(see_weights(l));
    if (l->ema != NULL)
        L_TRY(evaluate(l, true));
    return TRI_OK;
}

/* --- all ranks ------------------------------------------------------------ */

static const char *learner_main(rank_env *env)
{
    training *t = env->arg;
    learner l = {.p = &t->p,
                 .seen = &t->ranks[env->rank],
                 .folder = t->folder,
                 .rank = env->rank,
                 .stage = t->stage};
    const char *failure = NULL;
    tri_status status;

    l.seen->n = 0;
    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &l.group));
    status = train_program(&l);
    if (status != TRI_OK) {
        failure = RANK_FAIL(env, "rank %d, stage %d, step %d: %s: %s", env->rank, l.stage, l.step,
                            tri_status_name(status), tri_last_error());
        tri_group_abort(l.group, "the rank has failed");
    }
    tri_step_end();
    unmake(&l);
    tri_group_unref(l.group);
    return failure;
}

static bool train_by(training *t, int stage, char failure[RANKS_TEXT])
{
    const tri_group_options options = {.timeout_ms = 20000};
    scratch folder;
    bool trained;

    scratch_begin(&folder);
    t->stage = stage;
    t->folder = folder.dir;
    trained = ranks_run(t->p.ranks, &options, learner_main, t, failure);
    scratch_end(&folder);
    return trained;
}

/* The first thing that a rank has seen otherwise: false, and a line about it. */
static bool saw_the_same(const training *ddp, const training *zero, char *line, size_t bytes)
{
    for (int r = 0; r < ddp->p.ranks; r++) {
        const seen *a = &ddp->ranks[r], *b = &zero->ranks[r];

        for (int i = 0; i < a->n || i < b->n; i++) {
            if (i < a->n && i < b->n && a->list[i].bits == b->list[i].bits &&
                strcmp(a->list[i].what, b->list[i].what) == 0)
                continue;
            snprintf(line, bytes, "rank %d of %d, step %d: %s is not that of tri_ddp", r,
                     ddp->p.ranks, i < b->n ? b->list[i].step : -1,
                     i < b->n ? b->list[i].what : "the end");
            return false;
        }
    }
    return true;
}

/* Against tri_ddp: each stage, or the one that is this number's turn. */
static void check_program(uint64_t number, bool each)
{
    static training ddp, zero;
    char text[2048], failure[RANKS_TEXT];

    ddp.p = program_of(number);
    zero.p = ddp.p;
    program_text(&ddp.p, text, sizeof(text));
    if (!train_by(&ddp, 0, failure))
        fail_msg("%s: tri_ddp: %s", text, failure);
    for (int stage = 1; stage <= last_stage(&ddp.p); stage++) {
        if (!each && stage != 1 + (int)(number % (uint64_t)last_stage(&ddp.p)))
            continue;
        if (!train_by(&zero, stage, failure) ||
            !saw_the_same(&ddp, &zero, failure, sizeof(failure)))
            fail_msg("%s: stage %d: %s", text, stage, failure);
    }
}

/* With TRI_TEST_PROGRAM=NUMBER that one alone. */
static void check_programs(uint64_t first, uint64_t n, bool each)
{
    const char *one = getenv("TRI_TEST_PROGRAM");

    CHECK_OK(tri_cpu_devices_set(2));
    if (one != NULL)
        check_program(strtoull(one, NULL, 10), true);
    for (uint64_t i = first; i < first + n && one == NULL; i++)
        check_program(i, each);
}

#endif
