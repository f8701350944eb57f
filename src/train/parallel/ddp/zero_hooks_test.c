/* zero_hooks_test.c - what hooks of 16 bits give each rank under tri_zero: the averages of its part
 * alone. That these have the bits of tri_ddp is tests/bits/zero_bits_test.sh's. */
#define MAX_RANKS 6
#include "testing/ddp_ranks.h"
#include "base/hash.h"
#include "train/parallel/ddp/ddp.h"

#define WIDTH 100 /* its square is more than two blocks of 4,096 elements */

typedef struct way {
    int stage;  /* of tri_zero */
    int copies; /* along the first axis of a mesh; 0: no mesh */
    tri_bucket_hook hook;
} way;

static tri_status wrap(const rank *r, const way *w, tri_module **model_out)
{
    tri_mesh *mesh = NULL;
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(1);
    net = tri_nn_linear(WIDTH, WIDTH, NULL);
    trii_mutex_unlock(&drawing);
    if (w->copies > 0)
        TRY(tri_mesh_create(r->group, TRI_SHAPE(w->copies, r->size / w->copies),
                            (const char *[]){"copies", "parts"}, &mesh));
    *model_out = tri_zero(net, &(tri_zero_options){.group = mesh == NULL ? r->group : NULL,
                                                   .mesh = mesh,
                                                   .stage = w->stage,
                                                   .hook = w->hook});
    tri_mesh_destroy(mesh);
    return tri_module_status(*model_out);
}

/* r->hash: of what the first bucket holds after a backward. */
static tri_status look_at_a_bucket(rank *r)
{
    const way *w = r->arg;
    const tri_bucket *bucket;
    tri_module *model;
    tri_tensor *x;

    TRY(wrap(r, w, &model));
    x = tri_tensor_create(TRI_SHAPE(4, WIDTH), TRI_DTYPE_F32);
    TRY(tri_init_constant(x, 1.0 + r->index));
    tri_backward(tri_mean(tri_square(tri_forward(model, x)), NULL, 0, false));
    TRY(tri_step_end_status());
    bucket = &trii_ddp_of(model)->unit.averager.buckets[0].bucket;
    r->hash = trii_hash_bytes(1, bucket->data, bucket->count * tri_dtype_size(bucket->dtype));
    tri_tensor_unref(x);
    tri_module_destroy(model);
    return TRI_OK;
}

/* Needs all averages. */
static tri_status own_hook(void *state, tri_bucket *bucket, int stage, tri_work **work_out)
{
    return tri_bucket_hook_bf16(state, bucket, stage, work_out);
}

static void each_rank_gets_the_averages_of_its_part(void **state)
{
    static const struct {
        way how;
        bool all; /* averages on all ranks */
    } cases[] = {
        {{1, 0, tri_bucket_hook_f16}, false},
        {{1, 0, tri_bucket_hook_bf16}, false},
        {{2, 0, tri_bucket_hook_bf16}, false},
        {{1, 2, tri_bucket_hook_f16}, false},
        {{2, 1, tri_bucket_hook_bf16}, false},
        {{1, 0, own_hook}, true},
        {{1, 2, own_hook}, true},
    };
    static rank ranks[4];

    (void)state;
    for (size_t c = 0; c < TRII_COUNT_OF(cases); c++) {
        int n = cases[c].how.copies > 1 ? 4 : 2;

        ranks_succeed(ranks, n, look_at_a_bucket, &cases[c].how);
        for (int r = 1; r < n; r++)
            if ((ranks[r].hash == ranks[0].hash) != cases[c].all)
                fail_msg("case %zu: the buckets of ranks 0 and %d are %s", c, r,
                         cases[c].all ? "not the same" : "the same");
    }
}

/* --- over a mesh ---------------------------------------------------------- */

static tri_status train(rank *r)
{
    const way *w = r->arg;
    tri_module *model;
    tri_optimizer *opt;

    TRY(wrap(r, w, &model));
    opt = tri_adam(model, 0.01, NULL);
    for (int s = 0; s < 3; s++) {
        tri_tensor *x = tri_tensor_create(TRI_SHAPE(1 + r->index, WIDTH), TRI_DTYPE_F32);

        TRY(tri_init_constant(x, 0.1 + r->index + s));
        tri_backward(tri_mean(tri_square(tri_forward(model, x)), NULL, 0, false));
        TRY(tri_optimizer_step(opt));
        TRY(tri_step_end_status());
        tri_tensor_unref(x);
    }
    TRY(tri_module_hash(model, &r->hash));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    return TRI_OK;
}

/* Sums are rounded to 16 bits once, whatever the shape: along each axis they would be twice. */
static void any_mesh_has_the_bits_of_one_axis(void **state)
{
    static const tri_bucket_hook hooks[] = {tri_bucket_hook_f16, tri_bucket_hook_bf16};
    static rank ranks[6];

    (void)state;
    for (size_t h = 0; h < TRII_COUNT_OF(hooks); h++) {
        uint64_t hash = 0;

        for (int copies = 0; copies <= 6; copies++) {
            if (copies > 0 && 6 % copies != 0)
                continue;
            for (int stage = 1; stage <= 2; stage++) {
                ranks_succeed(ranks, 6, train, &(way){stage, copies, hooks[h]});
                hash = hash == 0 ? ranks[0].hash : hash;
                for (int r = 0; r < 6; r++)
                    if (ranks[r].hash != hash)
                        fail_msg("%d copies, stage %d: rank %d", copies, stage, r);
            }
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_rank_gets_the_averages_of_its_part),
    cmocka_unit_test(any_mesh_has_the_bits_of_one_axis),
};

TEST_MAIN(tests)
