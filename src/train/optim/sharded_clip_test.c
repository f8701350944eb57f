/*
 * sharded_clip_test.c - clips and scalers of gradients of which each rank has a piece: norms,
 * factors and updates have the bits of those of whole gradients.
 */
/* ctest: also=TRI_EAGER=1 also=TRI_CHECK=order */
#include "base/err.h"
#include "testing/sharded.h"
#include "train/optim/optimizer.h"

#define UPDATES 3
#define MANY 240 /* gradients, more than one operation takes */

typedef enum way { BY_NORM, BARELY, BY_VALUE, SEVERAL, OF_A_LIST, SCALED, UNSCALED, WAYS } way;

typedef struct side {
    tri_tensor *const *params;
    tri_optimizer *opt;
    tri_grad_scaler *scaler;
} side;

static side make(tri_tensor *const *params, int n)
{
    side s = {.params = params};
    const tri_param_group group = {.params = params, .n_params = n};

    s.opt = tri_adamw_of(&group, 1, 1e-2, NULL);
    if (tri_grad_scaler_create(&(tri_grad_scaler_options){.init_scale = TRI_SET(1024)},
                               &s.scaler) != TRI_OK)
        s.scaler = NULL;
    return s;
}

static void destroy(side *s)
{
    tri_optimizer_destroy(s->opt);
    tri_grad_scaler_destroy(s->scaler);
}

/* Clips in this way and updates. *norm_out: the norm, or the scaler's scale. */
static tri_status update(side *s, way how, double *norm_out)
{
    tri_tensor *norm = NULL;

    if (how == UNSCALED)
        tri_grad_scaler_unscale(s->scaler, s->opt);
    if (how == BY_NORM || how == SEVERAL || how == UNSCALED)
        norm = tri_clip_grad_norm(s->opt, 1.5);
    if (how == BARELY)
        norm = tri_clip_grad_norm(s->opt, 1e9);
    if (how == BY_VALUE || how == SEVERAL)
        tri_clip_grad_value(s->opt, 0.01);
    if (how == SEVERAL)
        norm = tri_clip_grad_norm(s->opt, 0.25);
    if (how == OF_A_LIST) {
        tri_clip_grad_value_of(s->params, PARAMS, 0.5);
        norm = tri_clip_grad_norm_of(s->params, PARAMS, 1.5);
    }
    if (how != SCALED && how != UNSCALED)
        TRY(tri_optimizer_step(s->opt));
    else
        TRY(tri_grad_scaler_step(s->scaler, s->opt));
    if (how == SCALED || how == UNSCALED)
        TRY(tri_grad_scaler_update(s->scaler));
    *norm_out = norm != NULL ? tri_item(norm) : tri_grad_scaler_current_scale(s->scaler);
    return TRI_OK;
}

static tri_status check_norms(double a, double b)
{
    return memcmp(&a, &b, sizeof(a)) == 0
               ? TRI_OK
               : TRII_FAIL(TRI_ERR_MISMATCH, "the norm of pieces is %a, of the whole %a", b, a);
}

/* wide: there are gradients in f64 too, which the cpu device leaves to reference kernels. */
static tri_status train_with(rank *r, way how, cut where, bool wide)
{
    sharded s;
    side whole, pieces;

    TRY(sharded_make(&s, r, where, where == UNEVENLY ? 0x24 : 0));
    whole = make(s.whole, PARAMS);
    pieces = make(s.params, PARAMS);
    for (int u = 0; u < UPDATES; u++) {
        double norm[2];
        /* in step 1 of a scaler the last block has an infinity, which one rank sees */
        bool overflows = u == 1 && (how == SCALED || how == UNSCALED);

        for (int i = 0; i < PARAMS; i++) {
            if ((u == 2 && i == 1) || (i == 3 && !wide))
                continue;
            TRY(sharded_grad_of(&s, i, (uint64_t)u + 2, overflows && i == 5));
        }
        TRY(update(&whole, how, &norm[0]));
        TRY(update(&pieces, how, &norm[1]));
        TRY(tri_step_end_status());
        TRY(check_norms(norm[0], norm[1]));
        TRY(sharded_check_params(&s));
    }
    if (how == SCALED && tri_grad_scaler_current_scale(pieces.scaler) != 512)
        return TRII_FAIL(TRI_ERR_MISMATCH, "the infinity was not found");
    destroy(&whole);
    destroy(&pieces);
    sharded_destroy(&s);
    return TRI_OK;
}

static tri_status train_all(rank *r)
{
    for (way how = 0; how < WAYS; how++)
        for (cut where = 0; where < CUTS; where++) {
            tri_status status = train_with(r, how, where, ((int)where + (int)how) % 2 == 0);

            if (status != TRI_OK)
                return TRII_FAIL_CTX(status, "way %d, cut %d", (int)how, (int)where);
        }
    return TRI_OK;
}

static void norms_of_pieces_are_those_of_the_whole(void **state)
{
    (void)state;
    for (int size = 1; size <= MAX_RANKS; size++) {
        rank ranks[MAX_RANKS];

        ranks_succeed(ranks, size, train_all, NULL);
    }
}

/* --- many, and over several groups ---------------------------------------- */

#define GROUPS 70

/* Small parameters, each of which one rank has; over r->group, and every third over one of the
 * others in turn. */
static tri_status train_many(rank *r, tri_group *const *others, int n)
{
    static _Thread_local trii_placed placed[MANY];
    tri_tensor *params[MANY], *whole[MANY];
    trii_unit unit[1 + GROUPS] = {
        {.group = r->group, .rank = r->index, .size = r->size, .id = 2 * GROUPS}};
    double norm[2];

    for (int g = 0; g < n; g++)
        unit[1 + g] = (trii_unit){.group = others[g],
                                  .rank = tri_group_rank(others[g]),
                                  .size = tri_group_size(others[g]),
                                  .id = (uint64_t)(GROUPS - g)};
    for (int i = 0; i < MANY; i++) {
        const trii_unit *over = &unit[n > 0 && i % 3 == 0 ? 1 + i / 3 % n : 0];
        float values[8];
        bool mine = i % over->size == over->rank;
        tri_tensor *grad;

        for (int k = 0; k < 8; k++)
            values[k] = (float)sharded_number((uint64_t)i, k);
        params[i] = tri_tensor_from(TRI_SHAPE(8), TRI_DTYPE_F32, values);
        whole[i] = tri_tensor_from(TRI_SHAPE(8), TRI_DTYPE_F32, values);
        grad = tri_tensor_from(TRI_SHAPE(8), TRI_DTYPE_F32, values);
        placed[i] = (trii_placed){.unit = &unit[over - unit],
                                  .tensor = params[i],
                                  .name = "p",
                                  .start = mine || over->rank < i % over->size ? 0 : 8};
        TRY(trii_tensor_range(params[i], placed[i].start, TRI_SHAPE(mine ? 8 : 0),
                              &placed[i].piece));
        params[i]->placed = &placed[i];
        TRY(sharded_bind(trii_step_current(), grad, whole[i]));
        TRY(sharded_bind(trii_step_current(), tri_narrow(grad, 0, placed[i].start, mine ? 8 : 0),
                         placed[i].piece));
        tri_tensor_unref(grad);
    }
    norm[0] = tri_item(tri_clip_grad_norm_of(whole, MANY, 1));
    norm[1] = tri_item(tri_clip_grad_norm_of(params, MANY, 1));
    TRY(tri_step_end_status());
    TRY(check_norms(norm[0], norm[1]));
    for (int i = 0; i < MANY; i++) {
        TRY(sharded_same(tri_grad(whole[i]), tri_grad(placed[i].piece), placed[i].start, "gradient",
                         i));
        params[i]->placed = NULL;
        tri_tensor_unref(placed[i].piece);
        tri_tensor_unref(params[i]);
        tri_tensor_unref(whole[i]);
    }
    return TRI_OK;
}

static tri_status train_over_one(rank *r)
{
    return train_many(r, NULL, 0);
}

static tri_status train_over_two(rank *r)
{
    tri_group *pair = NULL;
    tri_status status;

    TRY(tri_group_split(r->group, r->index / 2, r->index, NULL, &pair));
    status = train_many(r, &pair, 1);
    tri_group_unref(pair);
    return status;
}

/* More than an operation has operands. */
static tri_status train_over_many(rank *r)
{
    tri_group *groups[GROUPS];
    tri_status status;

    for (int g = 0; g < GROUPS; g++)
        TRY(tri_group_split(r->group, 0, r->index, NULL, &groups[g]));
    status = train_many(r, groups, GROUPS);
    for (int g = 0; g < GROUPS; g++)
        tri_group_unref(groups[g]);
    return status;
}

static void many_gradients_are_of_one_norm(void **state)
{
    rank ranks[MAX_RANKS];

    (void)state;
    ranks_succeed(ranks, 3, train_over_one, NULL);
}

static void a_norm_may_be_over_several_groups(void **state)
{
    rank ranks[MAX_RANKS];

    (void)state;
    ranks_succeed(ranks, 4, train_over_two, NULL);
    ranks_succeed(ranks, 2, train_over_many, NULL);
}

/* --- failures ------------------------------------------------------------- */

/* Rank 0's step fails before it has its part of the norm: a gradient depends on what fails. */
static tri_status fail_on_one(rank *r)
{
    sharded s;
    side pieces;
    int64_t label = r->index == 0 ? 99 : 0;
    tri_tensor *logits = tri_tensor_create((int64_t[]){1, 3}, 2, TRI_DTYPE_F32);
    tri_tensor *target = tri_tensor_from(TRI_SHAPE(1), TRI_DTYPE_I64, &label);
    tri_tensor *piece;
    tri_status status;

    TRY(sharded_make(&s, r, EVENLY, 0));
    pieces = make(s.params, PARAMS);
    piece = s.placed[1].piece;
    TRY(sharded_grad(&s, 0, 2));
    (void)sharded_bind(trii_step_current(), tri_mul(piece, tri_cross_entropy(logits, target, NULL)),
                       piece);
    (void)tri_clip_grad_norm(pieces.opt, 1);
    status = tri_optimizer_step(pieces.opt);
    if (r->index == 0 ? status != TRI_ERR_INVALID_ARG : status == TRI_OK)
        return TRII_FAIL(TRI_ERR_MISMATCH, "%s", tri_status_name(status));
    tri_step_end();
    TRY(sharded_check_params(&s));
    tri_tensor_unref(logits);
    tri_tensor_unref(target);
    destroy(&pieces);
    sharded_destroy(&s);
    return TRI_OK;
}

static void a_step_that_fails_on_one_rank_fails_on_all(void **state)
{
    rank ranks[MAX_RANKS];

    (void)state;
    ranks_succeed(ranks, 3, fail_on_one, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(norms_of_pieces_are_those_of_the_whole),
    cmocka_unit_test(many_gradients_are_of_one_norm),
    cmocka_unit_test(a_norm_may_be_over_several_groups),
    cmocka_unit_test(a_step_that_fails_on_one_rank_fails_on_all),
};

TEST_MAIN(tests)
