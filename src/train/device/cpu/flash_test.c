/*
 * flash_test.c - attention against the reference kernels: lengths around the size of a tile, every
 * kind of mask, shared heads, dropout, bf16, several threads.
 * ctest: start=first
 */
#include "testing/device_models.h"

typedef struct attention_case {
    tri_attention_options opt;
    const char *mask; /* NULL, "bool" or "added" */
    int64_t mask_shape[4];
} attention_case;

static tri_tensor *build_attention(tri_tensor *const *l, const void *options)
{
    const attention_case *c = options;
    tri_attention_options opt = c->opt;

    if (c->mask != NULL) {
        tri_requires_grad(l[3], false);
        opt.attn_mask = l[3];
    }
    if (c->mask != NULL && strcmp(c->mask, "bool") == 0)
        opt.attn_mask = tri_gt(l[3], tri_full(TRI_SHAPE(1), -1.2, TRI_DTYPE_F32));
    tri_rng_state_set(&(tri_rng){.step = 3}); /* the same random numbers each time */
    return tri_attention(l[0], l[1], l[2], &opt);
}

/* size: batch, heads, heads of k and v, queries, keys, depth, depth of v */
static const int64_t sizes[][7] = {
    {1, 1, 1, 1, 2, 1, 1},     {2, 3, 3, 5, 7, 4, 3},       {1, 2, 2, 63, 65, 16, 16},
    {1, 2, 1, 64, 64, 64, 64}, {2, 2, 1, 131, 131, 33, 17}, {1, 1, 1, 1, 200, 8, 8},
    {1, 1, 1, 200, 3, 8, 130}, {1, 2, 2, 129, 40, 7, 96},
};
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void check_attention(const int64_t size[7], const attention_case *c)
{
    model m = {.name = "attention",
               .n_leaves = 3,
               .shape = {{size[0], size[1], size[3], size[5]},
                         {size[0], size[2], size[4], size[5]},
                         {size[0], size[2], size[4], size[6]}},
               .ndim = {4, 4, 4},
               .build = build_attention,
               .options = c,
               .tolerance = 5 * TOLERANCE,
               .tolerance_bf16 = TOLERANCE_BF16_MODEL,
               .all_bf16 = true};

    /* A query that sees one key has gradients of 0, and rounding is all there would be. */
    if (c->opt.is_causal && size[3] == 1)
        return;
    if (c->mask != NULL) {
        m.n_leaves = 4;
        m.ndim[3] = 4;
        memcpy(m.shape[3], c->mask_shape, sizeof(c->mask_shape));
    }
    check_model(&m);
}

static void check_sizes(const attention_case *c)
{
    for (size_t i = 0; i < N_SIZES; i++)
        check_attention(sizes[i], c);
}

static void tiles_add_up_to_the_reference(void **state)
{
    const attention_case plain = {.opt = {.enable_gqa = true}};
    const attention_case causal = {
        .opt = {.enable_gqa = true, .is_causal = true, .scale = TRI_SET(0.3)}};

    (void)state;
    check_sizes(&plain);
    check_sizes(&causal);
}

static void masks_of_every_shape(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SIZES; i++) {
        const int64_t *z = sizes[i];
        attention_case c = {.opt = {.enable_gqa = true}, .mask = "bool"};

        for (int kind = 0; kind < 4; kind++) {
            const int64_t shapes[4][4] = {{1, 1, z[3], z[4]},
                                          {z[0], z[1], z[3], z[4]},
                                          {z[0], 1, 1, z[4]},
                                          {1, z[1], z[3], 1}};

            c.mask = kind % 2 == 0 ? "bool" : "added";
            c.opt.is_causal = kind == 3;
            memcpy(c.mask_shape, shapes[kind], sizeof(c.mask_shape));
            check_attention(z, &c);
        }
    }
}

static void dropout_drops_what_the_reference_drops(void **state)
{
    const attention_case c = {.opt = {.enable_gqa = true, .is_causal = true, .dropout_p = 0.3}};

    (void)state;
    check_sizes(&c);
}

static void bf16_attention_adds_in_f32(void **state)
{
    const attention_case causal = {.opt = {.enable_gqa = true, .is_causal = true}};
    const attention_case dropped = {.opt = {.enable_gqa = true, .dropout_p = 0.3}};

    (void)state;
    in_bf16 = true;
    check_sizes(&causal);
    check_sizes(&dropped);
    in_bf16 = false;
}

/* A row is one thread's, so the bits do not depend on how many there are. */
static void every_number_of_threads_has_the_same_bits(void **state)
{
    const attention_case c = {.opt = {.enable_gqa = true, .is_causal = true}};
    const model m = {.name = "attention",
                     .n_leaves = 3,
                     .shape = {{2, 4, 131, 33}, {2, 2, 131, 33}, {2, 2, 131, 17}},
                     .ndim = {4, 4, 4},
                     .build = build_attention,
                     .options = &c};

    (void)state;
    check_bits_of_threads(&m);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tiles_add_up_to_the_reference),
    cmocka_unit_test(masks_of_every_shape),
    cmocka_unit_test(dropout_drops_what_the_reference_drops),
    cmocka_unit_test(bf16_attention_adds_in_f32),
    cmocka_unit_test(every_number_of_threads_has_the_same_bits),
};

TEST_MAIN(tests)
