/*
 * training_memory_test.c - what each rank keeps of a network, its gradients and its optimizer's
 * state, by tri_memory, against the formulas of ZeRO: P parameters of f32 over N ranks.
 * ctest: timeout=120
 */
#define MAX_RANKS 8
#include "testing/ddp_ranks.h"

#include <trireme/models.h>

#define CONTEXT 16
#define VOCABULARY 61
#define BLOCK 4096

enum { SGD, MOMENTUM, ADAM, OPTIMIZERS };
static const int n_states[OPTIMIZERS] = {0, 1, 2};

/* What of it a rank has: everything, or its part. */
typedef struct strategy {
    const char *name;
    bool divides_parameters, divides_gradients, divides_states;
    int stage; /* of tri_zero; 0: tri_ddp; -1: the plain network */
} strategy;

static const strategy strategies[] = {{"plain", false, false, false, -1},
                                      {"ddp", false, false, false, 0},
                                      {"zero 1", false, false, true, 1},
                                      {"zero 2", false, true, true, 2},
                                      {"zero 3", true, true, true, 3}};

typedef struct wanted {
    const strategy *how;
    int optimizer;
} wanted;

/* Of each rank, before the first step and after it. */
static tri_memory_stats held[MAX_RANKS][2];
static int n_tensors, n_units;

static tri_module *wrapped(const rank *r, const strategy *how)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    net = tri_model_by_name("gpt:3,192,4,16,61", 0);
    trii_mutex_unlock(&drawing);
    if (how->stage < 0)
        return net;
    if (how->stage == 0)
        return tri_ddp(net, &(tri_ddp_options){.group = r->group,
                                               .bucket_cap_bytes = 1000000,
                                               .first_bucket_bytes = 5000});
    return tri_zero(net, &(tri_zero_options){.group = r->group,
                                             .stage = how->stage,
                                             .bucket_cap_bytes = 1000000,
                                             .first_bucket_bytes = 5000});
}

static tri_optimizer *optimizer_of(tri_module *model, int kind)
{
    if (kind == ADAM)
        return tri_adam(model, 1e-3, NULL);
    return tri_sgd(model, 1e-3, &(tri_sgd_options){.momentum = kind == MOMENTUM ? 0.9 : 0});
}

static tri_status train_once(tri_module *model, tri_optimizer *opt)
{
    int64_t tokens[2 * CONTEXT];
    tri_tensor *x, *out;
    tri_status status;

    for (int i = 0; i < 2 * CONTEXT; i++)
        tokens[i] = i * 7 % VOCABULARY;
    x = tri_tensor_from(TRI_SHAPE(2, CONTEXT), TRI_DTYPE_I64, tokens);
    out = tri_reshape(tri_forward(model, x), TRI_SHAPE(-1, VOCABULARY));
    tri_backward(tri_cross_entropy(out, tri_flatten(x, 0), NULL));
    status = tri_optimizer_step(opt);
    if (status == TRI_OK)
        status = tri_step_end_status();
    tri_step_end();
    tri_tensor_unref(x);
    return status;
}

static tri_status look(rank *r)
{
    const wanted *want = r->arg;
    tri_module *model = wrapped(r, want->how);
    tri_optimizer *opt = optimizer_of(model, want->optimizer);
    tri_ddp_pass_stats passes = {0};

    TRY(tri_memory(model, opt, NULL, &held[r->index][0]));
    TRY(train_once(model, opt));
    TRY(tri_memory(model, opt, NULL, &held[r->index][1]));
    if (want->how->stage >= 0)
        TRY(tri_ddp_stats(model, &passes, NULL, 0));
    if (r->index == 0) {
        n_tensors = (int)tri_module_state_count(model);
        n_units = passes.n_buckets;
    }
    if (held[r->index][0].whole_parameters !=
        (size_t)tri_module_parameter_count(model) * sizeof(float))
        return TRI_ERR_INTERNAL;
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

/* `copies` of P, or of this rank's part of it. */
static void check_share(const char *what, size_t got, int copies, bool divided, int n)
{
    const double whole = (double)held[0][0].whole_parameters * copies;
    const double formula = divided ? whole / n : whole;
    const double room = (64.0 * n_tensors + 4.0 * BLOCK * (divided ? n_units : 0)) * copies;

    if (fabs((double)got - formula) > room + 8.0 * n_tensors)
        fail_msg("%s: %zu bytes in place of %.0f, of which %.0f may be more or less", what, got,
                 formula, room);
}

static void check_rank(const tri_memory_stats *s, const wanted *want, int n)
{
    const strategy *how = want->how;
    const double room = 64.0 * n_tensors * (2 + n_states[want->optimizer]) + 8.0 * n_tensors;

    check_share("parameters", s->parameters, 1, how->divides_parameters && n > 1, n);
    check_share("gradients", s->gradients, 1, how->divides_gradients && n > 1, n);
    check_share("states", s->states, n_states[want->optimizer], how->divides_states && n > 1, n);
    if (fabs((double)s->with_ddp - (double)s->whole_parameters * (2 + n_states[want->optimizer])) >
        room)
        fail_msg("with ddp: %zu bytes", s->with_ddp);
    if (how->divides_gradients && n > 1 ? s->messages == 0 || s->messages > 2 * 4000000
                                        : s->messages != 0)
        fail_msg("messages: %zu bytes", s->messages);
    assert_int_equal(s->averages, 0);
    assert_int_equal(s->total, s->parameters + s->gradients + s->states + s->buffers + s->messages +
                                   s->values);
}

static void check(const strategy *how, int optimizer, int n)
{
    static rank ranks[MAX_RANKS];
    const wanted want = {how, optimizer};

    ranks_succeed(ranks, n, look, &want);
    /* blocks count little */
    assert_true(how->stage < 0 || n == 1 || (n_units >= 6 && n_units <= 9));
    for (int r = 0; r < n; r++) {
        check_rank(&held[r][0], &want, n);
        check_rank(&held[r][1], &want, n);
        assert_true(held[r][1].values > 0);
    }
}

static void each_rank_keeps_what_the_formula_says(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof(strategies) / sizeof(*strategies); k++) {
        const bool alone = strategies[k].stage < 0;

        for (int n = 1; n <= (alone ? 1 : MAX_RANKS); n *= 2)
            check(&strategies[k], ADAM, n);
        check(&strategies[k], SGD, alone ? 1 : 4);
        check(&strategies[k], MOMENTUM, alone ? 1 : 4);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_rank_keeps_what_the_formula_says),
};

TEST_MAIN(tests)
