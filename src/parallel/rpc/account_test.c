/*
 * account_test.c - accounts of gradients without workers: what arrives in whatever order, from
 * several trainers, in steps that are given up, and what updates make of it.
 */
#include <math.h>

#include <trireme/context.h>
#include <trireme/trireme.h>

#include "base/alloc.h"
#include "parallel/rpc/account_internal.h"
#include "testing/check.h"

#define IN 3
#define HIDDEN 5
#define ROWS 4
#define MAX_PARAMS 8
#define BATCHES 8

typedef struct owner {
    tri_module *net;
    tri_optimizer *opt;
    tri_tensor *params[MAX_PARAMS];
    int n;
    trii_accounts *accounts;
} owner;

typedef enum { SGD, MOMENTUM, ADAM } rule;

static tri_module *make_net(void)
{
    tri_manual_seed(11);
    return tri_nn_sequential(tri_nn_linear(IN, HIDDEN, NULL), tri_nn_tanh(),
                             tri_nn_linear(HIDDEN, 1, NULL));
}

static tri_optimizer *make_optimizer(tri_module *net, rule r)
{
    if (r == ADAM)
        return tri_adam(net, 0.05, NULL);
    return tri_sgd(net, 0.1, &(tri_sgd_options){.momentum = r == MOMENTUM ? 0.9 : 0});
}

static void owner_begin_with(owner *o, rule r, tri_remote_versions versions)
{
    memset(o, 0, sizeof(*o));
    o->net = make_net();
    o->opt = make_optimizer(o->net, r);
    for (int64_t i = 0; i < tri_module_state_count(o->net); i++)
        o->params[o->n++] = tri_module_state(o->net, i).tensor;
    CHECK_OK(trii_accounts_create(o->params, o->n, o->opt, versions, &o->accounts));
}

static void owner_begin(owner *o)
{
    owner_begin_with(o, MOMENTUM, TRI_REMOTE_COPY);
}

static void owner_end(owner *o)
{
    trii_accounts_destroy(o->accounts);
    tri_optimizer_destroy(o->opt);
    tri_module_destroy(o->net);
}

/* Input or target of a batch: the same for the same number. */
static tri_tensor *batch_data(int batch, int64_t columns)
{
    float data[ROWS * IN];

    for (int i = 0; i < ROWS * columns; i++)
        data[i] = sinf((float)(i + 1) * 0.7f + (float)batch * 1.3f + (float)columns);
    return tri_tensor_from((int64_t[]){ROWS, columns}, 2, TRI_DTYPE_F32, data);
}

static double total_of(tri_tensor *tensor)
{
    return tri_item(tri_sum(tensor, NULL, 0, false));
}

static tri_tensor *loss_of(tri_module *net, tri_tensor *x, tri_tensor *y)
{
    return tri_mse_loss(tri_forward(net, x), y, NULL);
}

/* --- backwards ------------------------------------------------------------ */

/* A forward that has run, and waits. */
typedef struct graph {
    tri_context *context;
    tri_tensor *x, *y, *loss;
} graph;

static void forward(owner *o, graph *g, int batch)
{
    CHECK_OK(tri_context_create(&g->context));
    CHECK_OK(tri_context_enter(g->context));
    g->x = batch_data(batch, IN);
    g->y = batch_data(batch, 1);
    g->loss = tri_keep(loss_of(o->net, g->x, g->y));
    CHECK_OK(tri_run());
    trii_accounts_keep_read(o->accounts, trii_step_current());
    CHECK_OK(tri_context_leave());
}

static void graph_end(graph *g)
{
    tri_context_destroy(g->context);
    tri_tensor_unref(g->x);
    tri_tensor_unref(g->y);
}

/* skip: a parameter that the loss is said not to reach; -1 = none. */
static tri_status backward(owner *o, graph *g, const trii_remote_key *key,
                           const trii_remote_order *order, int skip)
{
    tri_tensor *grads[MAX_PARAMS];
    trii_vid vids[MAX_PARAMS];
    trii_step *step;
    tri_status status = tri_context_enter(g->context);

    if (status != TRI_OK)
        return status;
    step = trii_step_current();
    trii_accounts_read_again(o->accounts, step);
    status = tri_gradients(&g->loss, 1, o->params, o->n,
                           &(tri_gradients_options){.keep_graph = true}, grads);
    for (int i = 0; i < o->n && status == TRI_OK; i++) {
        vids[i] = TRII_NO_VALUE;
        if (i != skip)
            status = trii_resolve(step, grads[i], &vids[i]);
    }
    if (status == TRI_OK)
        status = trii_account_add(o->accounts, key, order, step, vids);
    if (status == TRI_OK)
        status = tri_run();
    trii_account_added(o->accounts, key, status);
    CHECK_OK(tri_context_leave());
    return status;
}

static tri_status add_with(owner *o, const trii_remote_key *key, const trii_remote_order *order,
                           int batch)
{
    graph g;
    tri_status status;

    forward(o, &g, batch);
    status = backward(o, &g, key, order, -1);
    graph_end(&g);
    return status;
}

static trii_remote_key key_of(const char *trainer, int64_t number, int attempt)
{
    trii_remote_key key = {
        .incarnation = 7, .optimizer = 1, .step = number * TRII_ACCOUNT_FIRST + attempt};

    snprintf(key.trainer, sizeof(key.trainer), "%s", trainer);
    return key;
}

static tri_status add(owner *o, const trii_remote_key *key, uint32_t seq, int batch)
{
    return add_with(o, key, &(trii_remote_order){.seq = seq}, batch);
}

/* --- updates -------------------------------------------------------------- */

static tri_status ask(owner *o, trii_remote_kind kind, const trii_remote_key *key,
                      uint64_t n_backwards, trii_remote_updated *reply_out)
{
    const trii_remote_update update = {
        .magic = TRII_REMOTE_MAGIC, .kind = kind, .key = *key, .n_backwards = n_backwards};
    trii_remote_updated reply;

    return trii_account_update(o->accounts, &update, sizeof(update),
                               reply_out != NULL ? reply_out : &reply);
}

static tri_status prepare(owner *o, const trii_remote_key *key, uint64_t n_backwards)
{
    return ask(o, TRII_REMOTE_PREPARE, key, n_backwards, NULL);
}

static tri_status commit(owner *o, const trii_remote_key *key)
{
    return ask(o, TRII_REMOTE_COMMIT, key, 0, NULL);
}

static tri_status drop(owner *o, const trii_remote_key *key)
{
    return ask(o, TRII_REMOTE_DROP, key, 0, NULL);
}

static void update(owner *o, const trii_remote_key *key, uint64_t n_backwards)
{
    CHECK_OK(prepare(o, key, n_backwards));
    CHECK_OK(commit(o, key));
}

static uint64_t hash_of(tri_module *net)
{
    uint64_t hash = 0;

    CHECK_OK(tri_module_hash(net, &hash));
    return hash;
}

/* A model that one process trains with the same batches: passes[p] of them in backward pass p. */
static uint64_t hash_of_one_process(rule r, int steps, const int *passes, int n_passes)
{
    tri_module *net = make_net();
    tri_optimizer *opt = make_optimizer(net, r);
    uint64_t hash;

    for (int step = 0; step < steps; step++) {
        tri_tensor *x[BATCHES], *y[BATCHES];
        int batch = 0;

        for (int p = 0; p < n_passes; p++) {
            tri_tensor *sum = NULL;

            for (int i = 0; i < passes[p]; i++, batch++) {
                x[batch] = batch_data(step * BATCHES + batch, IN);
                y[batch] = batch_data(step * BATCHES + batch, 1);
                sum = sum == NULL ? loss_of(net, x[batch], y[batch])
                                  : tri_add(sum, loss_of(net, x[batch], y[batch]));
            }
            tri_backward(sum);
        }
        CHECK_OK(tri_optimizer_step(opt));
        tri_step_end();
        while (batch-- > 0) {
            tri_tensor_unref(x[batch]);
            tri_tensor_unref(y[batch]);
        }
    }
    hash = hash_of(net);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    return hash;
}

/* The same by an account: a process goes back from the last batch of a pass to its first. `turn`:
 * backwards arrive in another order. */
static uint64_t hash_by_account(rule r, int steps, const int *passes, int n_passes, int turn)
{
    owner o;
    uint64_t hash;

    owner_begin_with(&o, r, TRI_REMOTE_COPY);
    for (int step = 0; step < steps; step++) {
        trii_remote_key key = key_of("t0", step + 1, 0);
        struct {
            trii_remote_order order;
            int batch;
        } all[BATCHES];
        int n = 0;

        for (int p = 0; p < n_passes; p++) {
            int first = n;

            for (int i = 0; i < passes[p]; i++, n++) {
                all[n].order = (trii_remote_order){.seq = (uint32_t)n, .pass = (uint32_t)p};
                all[n].batch = step * BATCHES + first + passes[p] - 1 - i;
            }
        }
        for (int i = 0; i < n; i++) {
            int k = turn > 0 ? (i * 3 + turn) % n : i; /* 3 divides no n here */

            CHECK_OK(add_with(&o, &key, &all[k].order, all[k].batch));
        }
        update(&o, &key, (uint64_t)n);
    }
    hash = hash_of(o.net);
    owner_end(&o);
    return hash;
}

/* --- cases ---------------------------------------------------------------- */

static void a_step_has_the_bits_of_one_process(void **state)
{
    static const int one[] = {1}, four[] = {4}, passes[] = {2, 1, 2};

    (void)state;
    for (rule r = SGD; r <= ADAM; r++) {
        assert_true(hash_by_account(r, 3, one, 1, 0) == hash_of_one_process(r, 3, one, 1));
        assert_true(hash_by_account(r, 3, four, 1, 0) == hash_of_one_process(r, 3, four, 1));
        assert_true(hash_by_account(r, 3, passes, 3, 0) == hash_of_one_process(r, 3, passes, 3));
    }
}

static void the_order_of_arrival_changes_no_bit(void **state)
{
    static const int five[] = {5}, passes[] = {2, 3, 2};
    uint64_t in_order = hash_by_account(ADAM, 2, five, 1, 0);
    uint64_t of_passes = hash_by_account(ADAM, 2, passes, 3, 0);

    (void)state;
    assert_true(in_order != of_passes);
    for (int turn = 1; turn < 5; turn++) {
        assert_true(hash_by_account(ADAM, 2, five, 1, turn) == in_order);
        assert_true(hash_by_account(ADAM, 2, passes, 3, turn) == of_passes);
    }
}

/* Backwards that come through other workers, in any order among direct ones. */
static void nested_backwards_are_added_in_their_own_order(void **state)
{
    static const trii_remote_order orders[6] = {
        {.seq = 0},
        {.seq = 1},
        {.seq = 0, .n_nested = 1, .nested = {0}},
        {.seq = 0, .n_nested = 1, .nested = {1}},
        {.seq = 0, .n_nested = 2, .nested = {1, 0}},
        {.seq = 0, .module = 1, .n_nested = 1, .nested = {0}},
    };
    static const int turns[4][6] = {
        {0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {2, 0, 5, 1, 4, 3}, {4, 1, 3, 5, 0, 2}};
    uint64_t hash = 0;

    (void)state;
    for (int t = 0; t < 4; t++) {
        trii_remote_key key = key_of("t0", 1, 0);
        owner o;

        owner_begin(&o);
        for (int i = 0; i < 6; i++)
            CHECK_OK(add_with(&o, &key, &orders[turns[t][i]], turns[t][i]));
        update(&o, &key, 2); /* direct ones */
        assert_true(t == 0 || hash_of(o.net) == hash);
        hash = hash_of(o.net);
        owner_end(&o);
    }
}

static void parameters_show_no_gradient_and_keep_their_own(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0);
    tri_tensor *x = batch_data(9, IN), *y = batch_data(9, 1);
    float own[IN * HIDDEN], after[IN * HIDDEN];
    owner o;

    (void)state;
    owner_begin(&o);
    CHECK_OK(add(&o, &key, 0, 0));
    update(&o, &key, 1);
    for (int i = 0; i < o.n; i++)
        assert_null(tri_grad(o.params[i]));
    tri_backward(loss_of(o.net, x, y));
    CHECK_OK(tri_run());
    CHECK_OK(tri_tensor_copy_out(tri_grad(o.params[0]), own, sizeof(own)));
    tri_step_end();
    key = key_of("t0", 2, 0);
    CHECK_OK(add(&o, &key, 0, 0));
    update(&o, &key, 1);
    CHECK_OK(tri_tensor_copy_out(tri_grad(o.params[0]), after, sizeof(after)));
    assert_memory_equal(own, after, sizeof(own));
    tri_step_end();
    owner_end(&o);
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

static void what_is_not_complete_is_refused_and_changes_nothing(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0), unknown = key_of("t9", 3, 0);
    uint64_t before;
    owner o;

    (void)state;
    owner_begin(&o);
    before = hash_of(o.net);
    CHECK_FAILS(prepare(&o, &key, 1), TRI_ERR_STATE, "gradients of 0 of 1 backwards of t0");
    CHECK_FAILS(commit(&o, &unknown), TRI_ERR_STATE, "no gradients of t9 are ready");
    CHECK_OK(add(&o, &key, 0, 0));
    CHECK_FAILS(commit(&o, &key), TRI_ERR_STATE, "no gradients of t0 are ready");
    CHECK_FAILS(prepare(&o, &key, 2), TRI_ERR_STATE, "gradients of 1 of 2 backwards of t0");
    CHECK_OK(add(&o, &key, 2, 0)); /* the second one is missing */
    CHECK_FAILS(prepare(&o, &key, 3), TRI_ERR_STATE, "gradients of 1 of 3 backwards of t0");
    CHECK_FAILS(add(&o, &key, 2, 0), TRI_ERR_INVALID_ARG, "backward 2 of a step came twice");
    CHECK_FAILS(prepare(&o, &key, 3), TRI_ERR_INVALID_ARG, "backward 2 of a step came twice");
    assert_true(hash_of(o.net) == before);
    owner_end(&o);
}

static void a_step_that_nothing_reaches_changes_nothing(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0);
    uint64_t before;
    owner o;

    (void)state;
    owner_begin(&o);
    before = hash_of(o.net);
    update(&o, &key, 0);
    assert_true(hash_of(o.net) == before);
    assert_int_equal(trii_accounts_last_step(o.accounts, "t0", 7, 1), 1);
    owner_end(&o);
}

/* A parameter that the loss does not reach stays as it is, momentum too. */
static void parameters_without_a_gradient_stay_as_they_are(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0);
    float before[HIDDEN * IN], after[HIDDEN * IN];
    graph g;
    owner o;

    (void)state;
    owner_begin(&o);
    CHECK_OK(tri_tensor_copy_out(o.params[0], before, sizeof(before)));
    forward(&o, &g, 0);
    CHECK_OK(backward(&o, &g, &key, &(trii_remote_order){.seq = 0}, 0));
    graph_end(&g);
    update(&o, &key, 1);
    CHECK_OK(tri_tensor_copy_out(o.params[0], after, sizeof(after)));
    assert_memory_equal(before, after, sizeof(before));
    CHECK_OK(tri_tensor_copy_out(o.params[1], after, HIDDEN * sizeof(float)));
    tri_step_end();
    owner_end(&o);
}

/* Several backwards of one graph, between which others write the sums. */
static void a_graph_that_is_kept_adds_more_than_once(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0);
    uint64_t hash;
    graph g[2];
    owner o;

    (void)state;
    owner_begin(&o);
    for (uint32_t i = 0; i < 4; i++)
        CHECK_OK(add(&o, &key, i, (int)i % 2));
    update(&o, &key, 4);
    hash = hash_of(o.net);
    owner_end(&o);
    owner_begin(&o);
    forward(&o, &g[0], 0);
    forward(&o, &g[1], 1);
    for (uint32_t i = 0; i < 4; i++)
        CHECK_OK(backward(&o, &g[i % 2], &key, &(trii_remote_order){.seq = i}, -1));
    update(&o, &key, 4);
    assert_true(hash_of(o.net) == hash);
    key = key_of("t0", 2, 0); /* the sums have been used since, and begin again */
    CHECK_OK(backward(&o, &g[0], &key, &(trii_remote_order){.seq = 0}, -1));
    update(&o, &key, 1);
    graph_end(&g[0]);
    graph_end(&g[1]);
    owner_end(&o);
}

static void a_repeated_commit_updates_once(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0), again = key_of("t0", 1, 1);
    trii_remote_updated reply;
    uint64_t once;
    owner o;

    (void)state;
    owner_begin(&o);
    CHECK_OK(add(&o, &key, 0, 0));
    update(&o, &key, 1);
    once = hash_of(o.net);
    CHECK_OK(ask(&o, TRII_REMOTE_COMMIT, &key, 0, &reply));
    assert_int_equal(reply.done, 1);
    /* another owner was lost, so that the trainer repeats the step */
    assert_false(trii_account_wants(o.accounts, &again));
    CHECK_OK(add(&o, &again, 0, 0));
    CHECK_OK(ask(&o, TRII_REMOTE_PREPARE, &again, 1, &reply));
    assert_int_equal(reply.done, 1);
    CHECK_OK(ask(&o, TRII_REMOTE_COMMIT, &again, 0, &reply));
    assert_int_equal(reply.done, 1);
    assert_true(hash_of(o.net) == once);
    /* the same of a trainer whose connection was gone in between */
    trii_accounts_forget(o.accounts, "t0", 7);
    CHECK_OK(ask(&o, TRII_REMOTE_COMMIT, &again, 0, &reply));
    assert_int_equal(reply.done, 1);
    assert_true(hash_of(o.net) == once);
    key = key_of("t0", 2, 0);
    assert_true(trii_account_wants(o.accounts, &key));
    owner_end(&o);
}

static void a_later_attempt_takes_nothing_of_an_earlier_one(void **state)
{
    trii_remote_key first = key_of("t0", 1, 0), second = key_of("t0", 1, 1);
    owner o;

    (void)state;
    owner_begin(&o);
    CHECK_OK(add(&o, &first, 0, 5));
    CHECK_OK(drop(&o, &first));
    CHECK_OK(add(&o, &first, 1, 6)); /* under way when the trainer gave up */
    CHECK_FAILS(prepare(&o, &first, 2), TRI_ERR_STATE, "t0 has given up the step");
    CHECK_OK(add(&o, &second, 0, 0));
    CHECK_OK(add(&o, &first, 2, 7));
    assert_false(trii_account_wants(o.accounts, &first));
    update(&o, &second, 1);
    assert_true(hash_of(o.net) == hash_of_one_process(MOMENTUM, 1, (int[]){1}, 1));
    owner_end(&o);
}

static void a_backward_that_fails_is_why_the_step_is_refused(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0);
    owner o;

    (void)state;
    owner_begin(&o);
    CHECK_OK(add(&o, &key, 0, 0));
    trii_account_spoil(o.accounts, &key, tri_status_fail(TRI_ERR_NAN, "a NaN for this test"));
    assert_non_null(strstr(tri_last_error(), "a NaN for this test"));
    assert_false(trii_account_wants(o.accounts, &key));
    CHECK_OK(add(&o, &key, 1, 0));
    CHECK_FAILS(prepare(&o, &key, 2), TRI_ERR_NAN, "a NaN for this test");
    owner_end(&o);
}

static void the_gradients_of_a_lost_trainer_go(void **state)
{
    trii_remote_key lost = key_of("t0", 1, 0), other = key_of("t1", 1, 0);
    owner o;

    (void)state;
    owner_begin(&o);
    CHECK_OK(add(&o, &lost, 0, 3));
    CHECK_OK(add(&o, &other, 0, 0));
    trii_accounts_forget(o.accounts, "t0", 8); /* another start of it */
    CHECK_OK(prepare(&o, &lost, 1));
    trii_accounts_forget(o.accounts, "t0", 7);
    CHECK_FAILS(commit(&o, &lost), TRI_ERR_STATE, "no gradients of t0 are ready");
    update(&o, &other, 1);
    assert_true(hash_of(o.net) == hash_of_one_process(MOMENTUM, 1, (int[]){1}, 1));
    owner_end(&o);
}

static void trainers_that_come_and_go_cost_no_memory_for_ever(void **state)
{
    trii_remote_key key = key_of("t0", 1, 0);
    long live = 0;
    owner o;

    (void)state;
    owner_begin(&o);
    CHECK_OK(add(&o, &key, 0, 0));
    update(&o, &key, 1);
    for (int i = 0; i < 3000; i++) {
        char name[16];

        snprintf(name, sizeof(name), "n%d", i);
        key = key_of(name, 1, 0);
        update(&o, &key, 0);
        if (i == 1500)
            live = trii_alloc_live();
        assert_true(i <= 1500 || trii_alloc_live() == live);
    }
    owner_end(&o);
}

static void steps_use_the_same_memory(void **state)
{
    long live = 0;
    owner o;

    (void)state;
    owner_begin(&o);
    for (int step = 1; step <= 40; step++) {
        trii_remote_key key = key_of("t0", step, 0), other = key_of("t1", step, 0);

        CHECK_OK(add(&o, &key, 1, 0));
        CHECK_OK(add(&o, &other, 0, 0));
        CHECK_OK(add(&o, &key, 0, 0));
        update(&o, &key, 2);
        CHECK_OK(drop(&o, &other));
        if (step == 20)
            live = trii_alloc_live();
        assert_true(step <= 20 || trii_alloc_live() == live);
    }
    owner_end(&o);
}

/* --- several trainers ----------------------------------------------------- */

/* Gradients of batch 1, whose forward was before the update with batch 0, and whose backward is
 * after it. */
static tri_status race(owner *o, tri_remote_versions versions, double *sum_out)
{
    trii_remote_key key = key_of("t0", 1, 0), late = key_of("t1", 1, 0);
    graph g;
    tri_status status;

    owner_begin_with(o, SGD, versions);
    forward(o, &g, 1);
    CHECK_OK(add(o, &key, 0, 0));
    update(o, &key, 1);
    status = backward(o, &g, &late, &(trii_remote_order){.seq = 0}, -1);
    *sum_out = 0;
    if (status == TRI_OK) {
        CHECK_OK(prepare(o, &late, 1));
        for (int i = 0; i < o->n; i++) {
            trii_account *account = trii_account_find(o->accounts, &late);

            *sum_out += (i + 1) * total_of(account->total->tensor[i]);
        }
        tri_step_end();
        CHECK_OK(commit(o, &late));
    }
    graph_end(&g);
    return status;
}

/* The same without the other trainer; renewed: with its update before the forward. */
static double gradients_alone(bool updated)
{
    trii_remote_key key = key_of("t0", 1, 0), late = key_of("t1", 1, 0);
    double sum = 0;
    owner o;

    owner_begin_with(&o, SGD, TRI_REMOTE_COPY);
    if (updated) {
        CHECK_OK(add(&o, &key, 0, 0));
        update(&o, &key, 1);
    }
    CHECK_OK(add(&o, &late, 0, 1));
    CHECK_OK(prepare(&o, &late, 1));
    for (int i = 0; i < o.n; i++) {
        trii_account *account = trii_account_find(o.accounts, &late);

        sum += (i + 1) * total_of(account->total->tensor[i]);
    }
    tri_step_end();
    owner_end(&o);
    return sum;
}

static void a_graph_keeps_the_parameters_that_it_has_read(void **state)
{
    double sum;
    owner o;

    (void)state;
    CHECK_OK(race(&o, TRI_REMOTE_COPY, &sum));
    assert_true(sum == gradients_alone(false));
    assert_true(sum != gradients_alone(true));
    owner_end(&o);
}

static void a_graph_may_read_the_new_parameters(void **state)
{
    double sum;
    owner o;

    (void)state;
    CHECK_OK(race(&o, TRI_REMOTE_STALE, &sum));
    assert_true(sum != gradients_alone(false)); /* the new weights, the old activations */
    owner_end(&o);
}

static void a_graph_may_be_refused(void **state)
{
    double sum;
    owner o;

    (void)state;
    CHECK_FAILS(race(&o, TRI_REMOTE_REFUSE, &sum), TRI_ERR_STATE, "has overwritten");
    owner_end(&o);
}

static void old_parameters_live_as_long_as_their_graphs(void **state)
{
    graph g[3];
    long live = 0;
    owner o;

    (void)state;
    owner_begin(&o);
    for (int step = 1; step <= 30; step++) {
        trii_remote_key key = key_of("t0", step, 0);

        for (int i = 0; i < 3; i++)
            forward(&o, &g[i], i);
        CHECK_OK(add(&o, &key, 0, 0));
        update(&o, &key, 1);
        for (int i = 0; i < 3; i++)
            graph_end(&g[i]);
        if (step == 15)
            live = trii_alloc_live();
        assert_true(step <= 15 || trii_alloc_live() == live);
    }
    owner_end(&o);
}

/* --- options of an update ------------------------------------------------- */

typedef struct long_request {
    trii_account_request request;
    trii_account_member members[5];
} long_request;

static tri_status send(owner *o, trii_remote_kind kind, long_request *r, trii_remote_updated *reply)
{
    r->request.head.magic = TRII_REMOTE_MAGIC;
    r->request.head.kind = kind;
    return trii_account_update(o->accounts, &r->request.head,
                               sizeof(r->request) + r->request.n_members * sizeof(r->members[0]),
                               reply);
}

static void the_rate_and_a_factor_come_with_the_update(void **state)
{
    long_request r = {0};
    trii_remote_updated reply;
    float before[HIDDEN], after[HIDDEN], grad[HIDDEN];
    const trii_account *account;
    double squares = 0;
    owner o;

    (void)state;
    owner_begin_with(&o, SGD, TRI_REMOTE_COPY);
    r.request.head.key = key_of("t0", 1, 0);
    r.request.head.n_backwards = 1;
    r.request.flags = TRII_ACCOUNT_LR | TRII_ACCOUNT_NORM;
    r.request.lr = 0.5;
    CHECK_OK(add(&o, &r.request.head.key, 0, 0));
    CHECK_OK(send(&o, TRII_REMOTE_PREPARE, &r, &reply));
    account = trii_account_find(o.accounts, &r.request.head.key);
    for (int i = 0; i < o.n; i++) {
        tri_tensor *g = account->total->tensor[i];

        squares += total_of(tri_mul(g, g));
    }
    tri_step_end();
    CHECK_NEAR(reply.squares, squares, 1e-6 * squares);
    CHECK_OK(tri_tensor_copy_out(o.params[1], before, sizeof(before)));
    CHECK_OK(tri_tensor_copy_out(account->total->tensor[1], grad, sizeof(grad)));
    tri_step_end();
    r.request.factor[0] = r.request.factor[1] = 0.25;
    CHECK_OK(send(&o, TRII_REMOTE_COMMIT, &r, &reply));
    CHECK_OK(tri_tensor_copy_out(o.params[1], after, sizeof(after)));
    tri_step_end();
    for (int i = 0; i < HIDDEN; i++)
        CHECK_NEAR(after[i], before[i] - 0.5f * (0.25f * grad[i]), 1e-7);
    assert_true(tri_optimizer_lr(o.opt) == 0.5);
    r.request.head.key = key_of("t0", 2, 0);
    r.request.head.n_backwards = 0;
    r.request.lr = (double)NAN;
    CHECK_FAILS(send(&o, TRII_REMOTE_PREPARE, &r, &reply), TRI_ERR_INVALID_ARG, "learning rate");
    CHECK_OK(tri_optimizer_status(o.opt));
    owner_end(&o);
}

static void accounts_of_several_trainers_become_one_update(void **state)
{
    static const double weights[5] = {0.125, 0.25, 0.125, 0.25, 0.25};
    long_request r = {0};
    trii_remote_updated reply;
    float sum = 0, parts[5];
    owner o;

    (void)state;
    owner_begin_with(&o, SGD, TRI_REMOTE_COPY);
    r.request.n_members = 5;
    for (int i = 4; i >= 0; i--) {
        char name[8];
        trii_account *account;

        snprintf(name, sizeof(name), "t%d", i);
        r.members[i] = (trii_account_member){key_of(name, i + 1, 0), 1, weights[i]};
        CHECK_OK(add(&o, &r.members[i].key, 0, i));
        account = trii_account_find(o.accounts, &r.members[i].key);
        CHECK_OK(tri_tensor_copy_out(account->pass->tensor[3], &parts[i], sizeof(float)));
        parts[i] *= (float)weights[i];
        tri_step_end();
    }
    r.request.head.key = r.members[0].key;
    CHECK_OK(send(&o, TRII_REMOTE_PREPARE, &r, &reply));
    CHECK_OK(tri_tensor_copy_out(trii_account_find(o.accounts, &r.members[0].key)->total->tensor[3],
                                 &sum, sizeof(sum)));
    tri_step_end();
    assert_true(sum == ((parts[0] + parts[1]) + (parts[2] + parts[3])) + parts[4]);
    CHECK_OK(send(&o, TRII_REMOTE_COMMIT, &r, &reply));
    for (int i = 0; i < 5; i++)
        assert_int_equal(trii_accounts_last_step(o.accounts, r.members[i].key.trainer, 7, 1),
                         i + 1);
    CHECK_OK(send(&o, TRII_REMOTE_COMMIT, &r, &reply));
    assert_int_equal(reply.done, 1);
    r.request.n_members = 2;
    r.members[1] = r.members[0];
    r.members[0].key.step = r.members[1].key.step = 9 * TRII_ACCOUNT_FIRST;
    r.members[0].n_backwards = r.members[1].n_backwards = 0;
    CHECK_FAILS(send(&o, TRII_REMOTE_PREPARE, &r, &reply), TRI_ERR_FORMAT, "damaged");
    owner_end(&o);
}

static void damaged_requests_are_refused(void **state)
{
    long_request r = {0};
    trii_remote_updated reply;
    owner o;

    (void)state;
    owner_begin(&o);
    r.request.head.kind = TRII_REMOTE_PREPARE;
    r.request.head.key = key_of("t0", 1, 0);
    for (size_t bytes = 0; bytes < sizeof(r.request) + sizeof(r.members[0]); bytes++) {
        if (bytes == sizeof(r.request.head) || bytes == sizeof(r.request))
            continue;
        CHECK_FAILS(trii_account_update(o.accounts, &r.request.head, bytes, &reply), TRI_ERR_FORMAT,
                    "damaged");
    }
    r.request.n_members = 1;
    CHECK_FAILS(trii_account_update(o.accounts, &r.request.head, sizeof(r.request), &reply),
                TRI_ERR_FORMAT, "damaged");
    memset(r.request.head.key.trainer, 'x', sizeof(r.request.head.key.trainer));
    CHECK_FAILS(trii_account_update(o.accounts, &r.request.head, sizeof(r.request.head), &reply),
                TRI_ERR_FORMAT, "damaged");
    owner_end(&o);
}

/* --- without memory ------------------------------------------------------- */

/* Whatever fails, parameters are those of before or of the update, and the next attempt works. */
static void without_memory_the_update_is_whole_or_none(void **state)
{
    uint64_t before, after;
    owner o;
    bool failed = true;

    (void)state;
    after = hash_of_one_process(MOMENTUM, 1, (int[]){2}, 1);
    for (long n = 1; failed; n += TEST_SANITIZED ? 7 : 1) {
        trii_remote_key key = key_of("t0", 1, 0), again = key_of("t0", 1, 1);
        graph g[3];
        tri_status status;

        trii_step_release(); /* plans, so that they are made again */
        owner_begin(&o);
        before = hash_of(o.net);
        for (int i = 0; i < 3; i++)
            forward(&o, &g[i], i);
        trii_alloc_fail_at(n);
        status = backward(&o, &g[0], &key, &(trii_remote_order){.seq = 1}, -1);
        if (status == TRI_OK)
            status = backward(&o, &g[1], &key, &(trii_remote_order){.seq = 0}, -1);
        if (status == TRI_OK)
            status = prepare(&o, &key, 2);
        if (status == TRI_OK)
            status = commit(&o, &key); /* the third graph has read the parameters */
        trii_alloc_fail_at(0);
        failed = status != TRI_OK;
        assert_true(hash_of(o.net) == (failed ? before : after));
        if (failed) {
            assert_int_equal(status, TRI_ERR_NO_MEMORY);
            CHECK_OK(add(&o, &again, 0, 1));
            CHECK_OK(add(&o, &again, 1, 0));
            update(&o, &again, 2);
            assert_true(hash_of(o.net) == after);
        }
        for (int i = 0; i < 3; i++)
            graph_end(&g[i]);
        owner_end(&o);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_has_the_bits_of_one_process),
        cmocka_unit_test(the_order_of_arrival_changes_no_bit),
        cmocka_unit_test(nested_backwards_are_added_in_their_own_order),
        cmocka_unit_test(parameters_show_no_gradient_and_keep_their_own),
        cmocka_unit_test(what_is_not_complete_is_refused_and_changes_nothing),
        cmocka_unit_test(a_step_that_nothing_reaches_changes_nothing),
        cmocka_unit_test(parameters_without_a_gradient_stay_as_they_are),
        cmocka_unit_test(a_graph_that_is_kept_adds_more_than_once),
        cmocka_unit_test(a_repeated_commit_updates_once),
        cmocka_unit_test(a_later_attempt_takes_nothing_of_an_earlier_one),
        cmocka_unit_test(a_backward_that_fails_is_why_the_step_is_refused),
        cmocka_unit_test(the_gradients_of_a_lost_trainer_go),
        cmocka_unit_test(trainers_that_come_and_go_cost_no_memory_for_ever),
        cmocka_unit_test(steps_use_the_same_memory),
        cmocka_unit_test(a_graph_keeps_the_parameters_that_it_has_read),
        cmocka_unit_test(a_graph_may_read_the_new_parameters),
        cmocka_unit_test(a_graph_may_be_refused),
        cmocka_unit_test(old_parameters_live_as_long_as_their_graphs),
        cmocka_unit_test(the_rate_and_a_factor_come_with_the_update),
        cmocka_unit_test(accounts_of_several_trainers_become_one_update),
        cmocka_unit_test(damaged_requests_are_refused),
        cmocka_unit_test(without_memory_the_update_is_whole_or_none),
    };

    return test_main(argc, argv, tests, TRII_COUNT_OF(tests));
}
