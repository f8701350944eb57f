/*
 * remote_beside_test.c - remote modules within networks that the trainer trains, and beside norms
 * of all ranks' batches. A module there has the bits of a frozen one here.
 */
#include "testing/fit_problem.h"
#include "testing/remote_workers.h"

#define WIDE 8
#define RANKS 2

static void fill(tri_module *module)
{
    for (int64_t i = 0; i < tri_module_state_count(module); i++) {
        tri_state_entry entry = tri_module_state(module, i);
        int64_t n = tri_tensor_numel(entry.tensor);
        float values[WIDE * WIDE];

        for (int64_t k = 0; k < n; k++)
            values[k] = (float)remote_spread(k, (int)i) / 2;
        if (entry.parameter)
            CHECK_OK(tri_tensor_copy_in(entry.tensor, values, (size_t)n * sizeof(float)));
    }
}

static tri_module *middle_here(void)
{
    tri_module *middle = tri_nn_linear(WIDE, WIDE, NULL);

    fill(middle);
    for (int64_t i = 0; i < tri_module_state_count(middle); i++)
        tri_requires_grad(tri_module_state(middle, i).tensor, false);
    return middle;
}

/* rpc NULL: all of it is here. */
static tri_module *network(tri_rpc *rpc, tri_module *norm)
{
    tri_module *first = tri_nn_linear(FIT_IN, WIDE, NULL),
               *last = tri_nn_linear(WIDE, FIT_OUT, NULL);

    fill(first);
    fill(last);
    return tri_nn_sequential(
        first, rpc != NULL ? tri_remote_module(rpc, "w2/middle", NULL) : middle_here(), norm,
        tri_nn_tanh(), last);
}

typedef struct weights {
    float first[WIDE * FIT_IN], last[FIT_OUT * WIDE];
} weights;

static tri_status read_ends(tri_module *net, weights *to)
{
    TRY(tri_tensor_copy_out(tri_module_find(net, "0.weight"), to->first, sizeof(to->first)));
    return tri_tensor_copy_out(tri_module_find(net, "4.weight"), to->last, sizeof(to->last));
}

static void serve_middle(remote_workers *r, tri_module **served)
{
    remote_begin(r, 3, NULL);
    *served = middle_here();
    CHECK_OK(tri_remote_serve(r->w.rpc[2], "middle", *served, NULL, NULL));
}

static void end_middle(remote_workers *r, tri_module *served)
{
    CHECK_OK(tri_remote_withdraw(r->w.rpc[2], "middle"));
    tri_module_destroy(served);
    remote_end(r);
}

/* --- the trainer ---------------------------------------------------------- */

typedef struct fit_with {
    fit_arg fit; /* first */
    tri_rpc *rpc;
} fit_with;

static tri_module *fit_network(void *arg)
{
    const fit_with *f = arg;

    return network(f->rpc, tri_nn_identity());
}

typedef struct keeper {
    tri_callback base;
    weights end;
} keeper;

static tri_status keep_weights(tri_callback *self, tri_trainer *t)
{
    return read_ends(tri_trainer_model(t), &((keeper *)self)->end);
}

static const tri_callback_class keeper_class = {.name = "keeper", .fit_end = keep_weights};

static void fit(tri_rpc *rpc, weights *out)
{
    fit_with arg = {.fit.lr = 0.2, .rpc = rpc};
    keeper keep = {.base = {.cls = &keeper_class}};
    tri_callback *callbacks[] = {&keep.base};
    tri_task task = fit_task;
    tri_fit_options options;
    fit_samples train;
    scratch s;

    scratch_begin(&s);
    fit_samples_make(&train, 22, 1);
    task.model = fit_network;
    options = fit_quiet(s.dir);
    options.max_epochs = 2;
    options.seed = 5;
    options.callbacks = callbacks;
    options.n_callbacks = 1;
    CHECK_OK(tri_fit(&task,
                     &(tri_fit_data){.train = train.dataset, .val = train.dataset, .batch_size = 4},
                     &options, &arg, NULL));
    *out = keep.end;
    tri_dataset_destroy(train.dataset);
    scratch_end(&s);
}

static void the_trainer_trains_around_a_remote_module(void **state)
{
    weights here, there;
    tri_module *served;
    remote_workers r;

    (void)state;
    fit(NULL, &here);
    serve_middle(&r, &served);
    fit(r.w.rpc[0], &there);
    end_middle(&r, served);
    assert_memory_equal(&here, &there, sizeof(here));
}

/* --- norms ---------------------------------------------------------------- */

typedef struct ranks_with {
    tri_rpc *const *rpc; /* NULL: all is here */
    weights *end;        /* of each rank */
} ranks_with;

static tri_status train_rank(rank *r)
{
    const ranks_with *w = r->arg;
    tri_module *net;
    tri_optimizer *opt;

    net = tri_ddp(
        network(w->rpc != NULL ? w->rpc[r->index] : NULL,
                tri_nn_sync_batch_norm(WIDE, &(tri_nn_sync_batch_norm_options){.group = r->group})),
        &(tri_ddp_options){.group = r->group});
    opt = tri_sgd(net, 0.1, &(tri_sgd_options){.momentum = 0.9});
    for (int step = 0; step < 4; step++) {
        float data[3][FIT_IN];
        tri_tensor *x;

        for (int i = 0; i < 3 * FIT_IN; i++)
            data[i / FIT_IN][i % FIT_IN] = (float)remote_spread(i + step, r->index);
        x = tri_tensor_from((int64_t[]){3, FIT_IN}, 2, TRI_DTYPE_F32, data);
        tri_backward(remote_loss(tri_forward(net, x)));
        tri_tensor_unref(x);
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
    }
    TRY(read_ends(net, &w->end[r->index]));
    tri_step_end();
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    trii_step_release();
    return TRI_OK;
}

static void train_ranks(tri_rpc *const *rpc, weights *end)
{
    const ranks_with w = {rpc, end};
    rank ranks[RANKS];

    ranks_succeed(ranks, RANKS, train_rank, &w);
    assert_memory_equal(&end[0], &end[1], sizeof(end[0]));
}

static void norms_of_all_ranks_follow_remote_modules(void **state)
{
    weights here[RANKS], there[RANKS];
    tri_module *served;
    remote_workers r;

    (void)state;
    train_ranks(NULL, here);
    serve_middle(&r, &served);
    train_ranks(r.w.rpc, there);
    end_middle(&r, served);
    assert_memory_equal(here, there, sizeof(here));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_trainer_trains_around_a_remote_module),
    cmocka_unit_test(norms_of_all_ranks_follow_remote_modules),
};

TEST_MAIN(tests)
