/*
 * sharded_optim_test.c - optimizers of parameters of which each rank updates a piece: what they do
 * has the bits of one that has the whole parameters.
 */
/* ctest: also=TRI_EAGER=1 */
#include "base/err.h"
#include "testing/sharded.h"
#include "train/optim/optimizer.h"

#define UPDATES 3
#define ALL 0u     /* are divided */
#define SOME 0x2au /* 1, 3 and 5 are not */

/* --- optimizers ----------------------------------------------------------- */

typedef struct kind {
    const char *name;
    tri_optimizer *(*make)(const tri_param_group *group);
} kind;

static tri_optimizer *sgd(const tri_param_group *g)
{
    return tri_sgd_of(g, 1, 0.1, NULL);
}

static tri_optimizer *momentum(const tri_param_group *g)
{
    return tri_sgd_of(g, 1, 0.1,
                      &(tri_sgd_options){.momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01});
}

static tri_optimizer *adam(const tri_param_group *g)
{
    return tri_adam_of(g, 1, 1e-2, &(tri_adam_options){.amsgrad = true});
}

static tri_optimizer *adamw(const tri_param_group *g)
{
    return tri_adamw_of(g, 1, 1e-2, NULL);
}

static tri_optimizer *rmsprop(const tri_param_group *g)
{
    return tri_rmsprop_of(g, 1, 1e-2, &(tri_rmsprop_options){.momentum = 0.5, .centered = true});
}

static tri_optimizer *adagrad(const tri_param_group *g)
{
    return tri_adagrad_of(g, 1, 1e-2, &(tri_adagrad_options){.initial_accumulator_value = 0.1});
}

static const kind kinds[] = {{"sgd", sgd},     {"momentum", momentum}, {"adam", adam},
                             {"adamw", adamw}, {"rmsprop", rmsprop},   {"adagrad", adagrad}};

static tri_optimizer *make(const kind *of, tri_tensor *const *params)
{
    return of->make(&(tri_param_group){.params = params, .n_params = PARAMS});
}

/* Whether checkpoints are told which range of parameter i's state it is; -1: it is whole. */
static bool is_held(const sharded *s, const tri_tensor *state, int i)
{
    const trii_held *held = state->held;

    if (i < 0 || held == NULL)
        return i < 0 && held == NULL;
    return held->ndim == s->params[i]->ndim && held->piece.ndim == 1 &&
           memcmp(held->shape, s->params[i]->shape, (size_t)held->ndim * sizeof(int64_t)) == 0 &&
           held->piece.offset[0] == s->start[i] && held->piece.size[0] == tri_tensor_numel(state);
}

static tri_status check_states(sharded *s, tri_optimizer *whole, tri_optimizer *pieces)
{
    int64_t n = tri_optimizer_state_count(whole), each = (n - 1) / PARAMS;

    if (tri_optimizer_state_count(pieces) != n)
        return TRII_FAIL(TRI_ERR_MISMATCH, "another number of states");
    for (int64_t k = 0; k < n; k++) {
        tri_state_entry a = tri_optimizer_state(whole, k), b = tri_optimizer_state(pieces, k);
        int i = k < n - 1 ? (int)(k / each) : -1;
        bool divided = i >= 0 && s->placed[i].piece != NULL;

        if (strcmp(a.name, b.name) != 0 || !is_held(s, b.tensor, divided ? i : -1))
            return TRII_FAIL(TRI_ERR_MISMATCH, "state %s is listed as %s", a.name, b.name);
        TRY(sharded_same(a.tensor, b.tensor, divided ? s->start[i] : 0, b.name, i));
    }
    return TRI_OK;
}

/* --- updates -------------------------------------------------------------- */

static tri_status train_with(rank *r, const kind *of, cut how, unsigned undivided)
{
    sharded s;
    tri_optimizer *whole, *pieces;

    TRY(sharded_make(&s, r, how, undivided));
    whole = make(of, s.whole);
    pieces = make(of, s.params);
    for (int u = 0; u < UPDATES; u++) {
        for (int i = 0; i < PARAMS; i++)
            if (u != 1 || i % 2 == 0) /* some have no gradient, on any rank */
                TRY(sharded_grad(&s, i, (uint64_t)u + 2));
        TRY(tri_optimizer_step(whole));
        TRY(tri_optimizer_step(pieces));
        TRY(tri_step_end_status());
        TRY(sharded_check_params(&s));
        TRY(check_states(&s, whole, pieces));
    }
    tri_optimizer_destroy(whole);
    tri_optimizer_destroy(pieces);
    sharded_destroy(&s);
    return TRI_OK;
}

static tri_status train_all(rank *r)
{
    for (size_t k = 0; k < TRII_COUNT_OF(kinds); k++)
        for (cut how = 0; how < CUTS; how++) {
            tri_status status = train_with(r, &kinds[k], how, how % 2 != 0 ? SOME : ALL);

            if (status != TRI_OK)
                return TRII_FAIL_CTX(status, "%s, cut %d", kinds[k].name, (int)how);
        }
    return TRI_OK;
}

static void pieces_are_updated_as_the_whole(void **state)
{
    (void)state;
    for (int size = 1; size <= MAX_RANKS; size++) {
        rank ranks[MAX_RANKS];

        ranks_succeed(ranks, size, train_all, NULL);
    }
}

static tri_status expect(tri_status status, tri_status wanted, const char *text)
{
    if (status == wanted && strstr(tri_last_error(), text) != NULL)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_MISMATCH, "%s (%s) in place of: %s", tri_last_error(),
                     tri_status_name(status), text);
}

/* --- averages ------------------------------------------------------------- */

static tri_tensor *same(tri_module *self, tri_tensor *x)
{
    (void)self;
    return x;
}

static tri_module *module_of(tri_tensor *const *params)
{
    tri_module *module = tri_module_simple("parameters", 0, same);

    for (int i = 0; i < PARAMS; i++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "p%d", i);
        (void)tri_module_add_parameter(module, name, tri_tensor_ref(params[i]));
    }
    return module;
}

static tri_status check_averages(sharded *s, tri_ema *whole, tri_ema *pieces)
{
    int64_t n = tri_ema_state_count(whole);

    if (n != PARAMS + 1 || tri_ema_state_count(pieces) != n)
        return TRII_FAIL(TRI_ERR_MISMATCH, "another number of averages");
    for (int64_t k = 0; k < n; k++) {
        tri_state_entry a = tri_ema_state(whole, k), b = tri_ema_state(pieces, k);
        bool divided = k < PARAMS && s->placed[k].piece != NULL;

        if (strcmp(a.name, b.name) != 0 || !is_held(s, b.tensor, divided ? (int)k : -1))
            return TRII_FAIL(TRI_ERR_MISMATCH, "average %s is listed as %s", a.name, b.name);
        TRY(sharded_same(a.tensor, b.tensor, divided ? s->start[k] : 0, b.name, (int)k));
    }
    return TRI_OK;
}

static tri_status average_with(rank *r, cut how, unsigned undivided)
{
    sharded s;
    tri_module *modules[2];
    tri_optimizer *opts[2];
    tri_ema *emas[2];

    TRY(sharded_make(&s, r, how, undivided));
    for (int k = 0; k < 2; k++) {
        modules[k] = module_of(k == 0 ? s.whole : s.params);
        opts[k] = tri_adam(modules[k], 1e-2, NULL);
        TRY(tri_ema_create(modules[k], 0.75, &emas[k]));
    }
    for (int u = 0; u < UPDATES; u++) {
        for (int i = 0; i < PARAMS; i++)
            TRY(sharded_grad(&s, i, (uint64_t)u + 2));
        for (int k = 0; k < 2; k++) {
            TRY(tri_optimizer_step(opts[k]));
            TRY(tri_ema_update(emas[k]));
        }
        TRY(tri_step_end_status());
        TRY(check_averages(&s, emas[0], emas[1]));
    }
    for (int twice = 0; twice < 2; twice++) {
        TRY(tri_ema_swap(emas[0]));
        TRY(tri_ema_swap(emas[1]));
        TRY(tri_step_end_status());
        TRY(sharded_check_params(&s));
        TRY(check_averages(&s, emas[0], emas[1]));
    }
    s.params[0]->placed = NULL; /* the model is gone */
    TRY(expect(tri_ema_swap(emas[1]), (undivided & 1) != 0 ? TRI_OK : TRI_ERR_STATE, ""));
    tri_step_end();
    for (int k = 0; k < 2; k++) {
        tri_ema_destroy(emas[k]);
        tri_optimizer_destroy(opts[k]);
        tri_module_destroy(modules[k]);
    }
    sharded_destroy(&s);
    return TRI_OK;
}

static tri_status average_all(rank *r)
{
    for (cut how = 0; how < CUTS; how++) {
        tri_status status = average_with(r, how, how % 2 != 0 ? SOME : ALL);

        if (status != TRI_OK)
            return TRII_FAIL_CTX(status, "cut %d", (int)how);
    }
    return TRI_OK;
}

static void pieces_are_averaged_as_the_whole(void **state)
{
    (void)state;
    for (int size = 1; size <= MAX_RANKS; size++) {
        rank ranks[MAX_RANKS];

        ranks_succeed(ranks, size, average_all, NULL);
    }
}

/* --- refusals ------------------------------------------------------------- */

static tri_status misuse(rank *r)
{
    sharded s;
    tri_optimizer *before, *opt;
    const trii_placed *placed;
    tri_tensor *grad = sharded_numbers(1, 9);

    TRY(sharded_make(&s, r, EVENLY, ALL));
    placed = s.params[1]->placed;
    s.params[1]->placed = NULL;
    before = make(&kinds[2], s.params);
    s.params[1]->placed = placed;
    opt = make(&kinds[2], s.params);
    TRY(sharded_grad(&s, 1, 2));
    TRY(expect(tri_optimizer_step(before), TRI_ERR_STATE,
               "adam was made before tri_zero divided its parameters (param_1)"));
    tri_step_end();

    /* a gradient that is not averaged */
    TRY(sharded_bind(trii_step_current(), grad, s.params[1]));
    TRY(expect(tri_optimizer_step(opt), TRI_ERR_STATE,
               "param_1 has a gradient of this rank's losses alone"));
    tri_step_end();
    TRY(sharded_bind(trii_step_current(), grad, s.params[1]));
    TRY(sharded_grad(&s, 1, 2));
    TRY(tri_step_end_status());
    tri_optimizer_zero_grad(opt);
    if (trii_has_grad(s.params[1]) || trii_has_grad(s.placed[1].piece))
        return TRII_FAIL(TRI_ERR_MISMATCH, "a gradient is left");
    TRY(tri_optimizer_step(opt));
    tri_step_end();
    TRY(expect(trii_optimizer_step_given(opt, &(trii_given){.grads = s.params}),
               TRI_ERR_UNSUPPORTED, "param_0 is divided over ranks"));

    /* the model is gone */
    s.params[1]->placed = NULL;
    TRY(expect(tri_optimizer_step(opt), TRI_ERR_STATE,
               "the model that divided param_1 was destroyed"));
    tri_step_end();
    s.params[1]->placed = placed;
    TRY(sharded_grad(&s, 1, 2));
    TRY(tri_optimizer_step(opt));
    tri_step_end();
    tri_tensor_unref(grad);
    tri_optimizer_destroy(before);
    tri_optimizer_destroy(opt);
    sharded_destroy(&s);
    return TRI_OK;
}

static void what_is_not_divided_as_it_was_is_refused(void **state)
{
    rank ranks[2];

    (void)state;
    ranks_succeed(ranks, 2, misuse, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pieces_are_updated_as_the_whole),
    cmocka_unit_test(pieces_are_averaged_as_the_whole),
    cmocka_unit_test(what_is_not_divided_as_it_was_is_refused),
};

TEST_MAIN(tests)
