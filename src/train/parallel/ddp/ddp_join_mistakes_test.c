/*
 * ddp_join_mistakes_test.c - what goes wrong in tri_ddp_join, and ranks that run out of data where
 * that is a mistake: all ranks hear of it in the same step.
 */
/* ctest: also=TRI_CHECK=order */
#include <trireme/sync_batch_norm.h>

#include "testing/ddp_join.h"

static tri_status refuse(void *arg)
{
    (void)arg;
    return TRII_FAIL(TRI_ERR_UNSUPPORTED, "refused on purpose");
}

static tri_status end(void *arg)
{
    (void)arg;
    return TRI_END;
}

static tri_tensor *trained_loss(void *arg)
{
    tri_tensor *loss = loss_of_nothing(arg);

    tri_backward(loss);
    return loss;
}

static tri_tensor *no_loss(void *arg)
{
    (void)arg;
    return NULL;
}

typedef struct mistake {
    tri_tensor *(*loss)(void *arg);
    tri_status (*update)(void *arg);
    tri_status status;
    const char *text;
} mistake;

/* Rank 0 joins and makes a mistake; rank 1 trains. */
static tri_status join_and_fail(rank *r)
{
    const plan p = {.steps = {0, 3}};
    const mistake *m = r->arg;
    trainer t = {.p = &p, .from = r->index, .to = r->index + 1};
    tri_status status;

    t.model = tri_ddp(build(&p, r->group), &(tri_ddp_options){.group = r->group});
    t.opt = tri_sgd(t.model, 0.05, NULL);
    status = tri_module_status(t.model);
    if (status == TRI_OK && r->index == 0)
        status = tri_ddp_join(t.model, m->loss, m->update, &t, NULL);
    for (int step = 0; step < 3 && status == TRI_OK && r->index == 1; step++) {
        tri_backward(loss_of_step(&t, step));
        status = update(&t);
        if (status == TRI_OK)
            status = tri_step_end_status();
    }
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.model);
    return status;
}

static void check_mistakes(const mistake *cases, size_t n)
{
    static rank ranks[2];

    make_data();
    for (size_t i = 0; i < n; i++) {
        run_ranks(ranks, 2, join_and_fail, &cases[i]);
        for (int k = 0; k < 2; k++)
            if (ranks[k].status != (k == 0 ? cases[i].status : TRI_ERR_ABORTED) ||
                strstr(ranks[k].line, cases[i].text) == NULL)
                fail_msg("case %zu, rank %d: %s: %s", i, k, tri_status_name(ranks[k].status),
                         ranks[k].line);
    }
}

static void a_mistake_in_the_join_is_told_to_peers(void **state)
{
    const mistake cases[] = {
        {loss_of_nothing, refuse, TRI_ERR_UNSUPPORTED, "refused on purpose"},
        {loss_of_nothing, end, TRI_ERR_INVALID_ARG, "ddp_join: update returned END"},
        {trained_loss, update, TRI_ERR_INVALID_ARG, "ddp_join: loss calls tri_backward"},
        {no_loss, update, TRI_ERR_INVALID_ARG, "the loss is NULL"},
    };

    (void)state;
    check_mistakes(cases, TRII_COUNT_OF(cases));
}

/* Ranks run out where the plan says; all of them fail in the same step, before its update. */
static tri_status run_out(rank *r)
{
    const plan *p = r->arg;
    trainer t = {.p = p, .from = r->index, .to = r->index + 1};
    tri_status status;

    t.model = tri_ddp(build(p, r->group), &(tri_ddp_options){.group = r->group});
    t.opt = tri_sgd(t.model, 0.05, NULL);
    status = tri_module_status(t.model);
    for (int step = 0; step < p->steps[r->index] && status == TRI_OK; step++) {
        tri_backward(loss_of_step(&t, step));
        status = tri_optimizer_step(t.opt);
        if (status == TRI_OK)
            status = tri_step_end_status();
        t.updates += status == TRI_OK;
    }
    if (status == TRI_OK)
        status = tri_ddp_join(t.model, loss_of_nothing, update, &t,
                              &(tri_ddp_join_options){.throw_on_early_termination = true});
    if (status == TRI_OK && r->index == 0) { /* the next epoch, without */
        tri_backward(loss_of_step(&t, 0));
        status = tri_optimizer_step(t.opt);
        if (status == TRI_OK)
            status = tri_step_end_status();
    }
    if (status == TRI_OK) {
        const int before = t.updates;

        status = tri_ddp_join(t.model, loss_of_nothing, update, &t, NULL);
        t.updates = before;
    }
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    r->n_weights = t.updates;
    tri_optimizer_destroy(t.opt);
    tri_module_destroy(t.model);
    return status;
}

static void all_fail_when_some_run_out(void **state)
{
    static const struct {
        plan p;
        int size, updates;
        const char *who; /* NULL: nobody fails */
    } cases[] = {{{.steps = {2, 4}}, 2, 2, "no data left on rank 0, and others have some"},
                 {{.steps = {3, 1}}, 2, 1, "no data left on rank 1, and others have some"},
                 {{.steps = {2, 3, 2}, .norm = true}, 3, 2, "no data left on ranks 0, 2, and"},
                 {{.steps = {3, 0, 1}}, 3, 0, "no data left on rank 1, and others have some"},
                 {{.steps = {2, 2, 2}}, 3, 2, NULL}};
    static rank ranks[MAX_RANKS];

    (void)state;
    make_data();
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        run_ranks(ranks, cases[i].size, run_out, &cases[i].p);
        for (int k = 0; k < cases[i].size; k++) {
            const rank *r = &ranks[k];
            bool failed = r->status == TRI_ERR_MISMATCH || r->status == TRI_ERR_ABORTED;

            if (failed != (cases[i].who != NULL) || (!failed && r->status != TRI_OK) ||
                (failed && strstr(r->line, cases[i].who) == NULL) ||
                r->n_weights != cases[i].updates)
                fail_msg("case %zu, rank %d: %d updates, %s: %s", i, k, r->n_weights,
                         tri_status_name(r->status), r->line);
        }
    }
}

/* Of a parameter that is not the model's. */
static tri_tensor *another_loss(void *arg)
{
    tri_tensor *x = tri_tensor_from(NULL, 0, TRI_DTYPE_F64, x_data), *loss;

    (void)arg;
    tri_requires_grad(x, true);
    loss = tri_square(x);
    tri_tensor_unref(x);
    return loss;
}

static tri_tensor *loss_then_another(void *arg)
{
    const trainer *t = arg;

    return t->updates == 0 ? loss_of_nothing(arg) : another_loss(NULL);
}

static tri_status update_once(void *arg)
{
    const trainer *t = arg;

    return t->updates == 0 ? update(arg) : TRII_FAIL(TRI_ERR_INTERNAL, "the loss was taken");
}

/* At once, or only in the second pass. */
static void a_loss_that_is_not_the_models_is_refused(void **state)
{
    static const char text[] = "is not one of the model in training mode";
    const mistake cases[] = {{another_loss, update_once, TRI_ERR_INVALID_ARG, text},
                             {loss_then_another, update_once, TRI_ERR_INVALID_ARG, text}};

    (void)state;
    check_mistakes(cases, TRII_COUNT_OF(cases));
}

/* --- after a backward that failed when its weight was recorded ------------ */

typedef struct joint {
    tri_module *model;
    tri_tensor *other, *none; /* of no row */
} joint;

static tri_tensor *joint_loss(void *arg)
{
    const joint *j = arg;
    tri_tensor *out = tri_forward(j->model, j->none);

    return tri_add(tri_sum(tri_square(out), NULL, 0, false), tri_sum(j->other, NULL, 0, false));
}

static tri_status nothing(void *arg)
{
    (void)arg;
    return TRI_OK;
}

static tri_module *build_synchronised(tri_group *group)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(1);
    tri_set_default_dtype(TRI_DTYPE_F64);
    net = tri_nn_sequential(
        tri_nn_linear(IN, OUT, NULL),
        tri_nn_sync_batch_norm(OUT, &(tri_nn_sync_batch_norm_options){.group = group}));
    tri_set_default_dtype(TRI_DTYPE_F32);
    trii_mutex_unlock(&drawing);
    return net;
}

/* The second backward through what has run is refused, but the first part of it is recorded. */
static tri_status fail_and_join(rank *r)
{
    tri_module *model =
        tri_ddp(build_synchronised(r->group), &(tri_ddp_options){.group = r->group});
    tri_tensor *x = rows_of(x_data, IN, 4 * r->index, 4), *loss;
    joint j = {model, tri_tensor_create((int64_t[]){2}, 1, TRI_DTYPE_F64),
               rows_of(x_data, IN, 0, 0)};
    tri_status status;

    TRY(tri_module_status(model));
    tri_requires_grad(j.other, true);
    tri_ddp_no_sync_begin(model);
    loss = tri_mean(tri_square(tri_forward(model, x)), NULL, 0, false);
    tri_backward(loss);
    TRY(tri_run());
    tri_backward(loss);
    if (tri_step_end_status() != TRI_ERR_STATE)
        return TRII_FAIL(TRI_ERR_INTERNAL, "a second backward: %s", tri_last_error());
    tri_ddp_no_sync_end(model);
    status = tri_ddp_join(model, joint_loss, nothing, &j, NULL);
    snprintf(r->line, sizeof(r->line), "%s", tri_last_error());
    tri_step_end();
    tri_module_destroy(model);
    tri_tensor_unref(j.other);
    tri_tensor_unref(j.none);
    tri_tensor_unref(x);
    return status;
}

static void a_weight_that_was_recorded_in_vain_is_forgotten(void **state)
{
    static rank ranks[2];

    (void)state;
    make_data();
    run_ranks(ranks, 2, fail_and_join, NULL);
    for (int i = 0; i < 2; i++)
        if (ranks[i].status != TRI_ERR_UNSUPPORTED && ranks[i].status != TRI_ERR_INVALID_ARG)
            fail_msg("rank %d: %d, %s", i, ranks[i].status, ranks[i].line);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_mistake_in_the_join_is_told_to_peers),
    cmocka_unit_test(all_fail_when_some_run_out),
    cmocka_unit_test(a_loss_that_is_not_the_models_is_refused),
    cmocka_unit_test(a_weight_that_was_recorded_in_vain_is_forgotten),
};

TEST_MAIN(tests)
