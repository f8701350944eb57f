/*
 * bits_cases.h - what is trained for its bits: models and strategies, each of which a change of how
 * gradients are averaged could touch. Tests only.
 */
#ifndef TEST_BITS_CASES_H
#define TEST_BITS_CASES_H

#include "strategies/strategies.h"

#define UNFROZEN_AT 4
#define FROZEN_AT 7

typedef struct bits_case {
    const char *name;
    const kind *k; /* in f32, unless f64 */
    composition c; /* without the number of ranks */
    bool f64;
    bool some; /* uneven: no rank is without samples */
    bool ignored;
    bool scaler;
    bool power_sgd; /* its hook has a state */
    bool freezes;   /* a part is unfrozen after some steps, and later another one is frozen */
    bool looks;     /* gradients are read between backward and update */
} bits_case;

/* --- models that only this program has ------------------------------------ */

/* So large that sums have several blocks, and buckets go the way of large ones. */
static void wide_parts(tri_module **part)
{
    part[0] = tri_nn_sequential(tri_nn_linear(WIDTH, 300, NULL), tri_nn_tanh());
    part[1] = tri_nn_sequential(tri_nn_linear(300, 300, NULL), tri_nn_relu());
    part[2] = tri_nn_linear(300, OUT, NULL);
}

static tri_module *wide_build(void)
{
    tri_module *part[3];

    wide_parts(part);
    return tri_nn_sequential_of(3, part);
}

/* Of two branches a step takes one or both; nobody ever reaches the last part. */
typedef struct branches {
    tri_module *stem, *branch[2];
} branches;

static _Thread_local int taken; /* 0, 1; 2 = both */

static tri_tensor *branches_forward(tri_module *self, tri_tensor *x)
{
    const branches *b = tri_module_data(self);

    x = tri_tanh(tri_forward(b->stem, x));
    return taken < 2 ? tri_forward(b->branch[taken], x)
                     : tri_add(tri_forward(b->branch[0], x), tri_forward(b->branch[1], x));
}

static tri_module *branches_build(void)
{
    tri_module *self = tri_module_simple("Branches", sizeof(branches), branches_forward);
    branches *b = tri_module_data(self);

    b->stem = tri_module_add_child(self, "stem", tri_nn_linear(WIDTH, 12, NULL));
    b->branch[0] = tri_module_add_child(self, "branch0", tri_nn_linear(12, OUT, NULL));
    b->branch[1] = tri_module_add_child(self, "branch1", tri_nn_linear(12, OUT, NULL));
    (void)tri_module_add_child(self, "unreached", tri_nn_linear(5, 2, NULL));
    return self;
}

static tri_module *frozen_build(void)
{
    tri_module *net = mlp_build();

    tri_module_requires_grad(tri_module_submodule(net, "0"), false);
    return net;
}

static const kind wide = {
    .build = wide_build, .parts = wide_parts, .blocks = {"0", "1"}, .rest = {"2"}};
static const kind branching = {.build = branches_build, .blocks = {"stem", "branch1"}};
static const kind deep = {.build = deep_build, .blocks = {"1", "3"}};
static const kind frozen = {.build = frozen_build, .blocks = {"0", "1"}, .rest = {"2"}};

/* --- what is trained ------------------------------------------------------ */

static const bits_case cases[] = {
    {.name = "mlp", .k = &mlp, .c = {.update = SGD}},
    {.name = "mlp, f64", .k = &mlp, .c = {.update = ADAMW}, .f64 = true},
    {.name = "mlp, adamw", .k = &mlp, .c = {.update = ADAMW}},
    {.name = "wide", .k = &wide, .c = {.update = ADAMW}},
    {.name = "gpt", .k = &gpt, .c = {.update = ADAMW}},
    {.name = "dropout", .k = &dropout, .c = {.update = SGD}},
    {.name = "batch norm", .k = &batch_norm, .c = {.update = SGD}},
    {.name = "batch norm, own buffers",
     .k = &batch_norm,
     .c = {.update = SGD, .own_buffers = true}},

    {.name = "mlp, f16 hook", .k = &mlp, .c = {.hook = tri_bucket_hook_f16}},
    {.name = "wide, f16 hook, small buckets",
     .k = &wide,
     .c = {.hook = tri_bucket_hook_f16, .small_buckets = true}},
    {.name = "gpt, bf16 hook", .k = &gpt, .c = {.update = ADAMW, .hook = tri_bucket_hook_bf16}},
    {.name = "batch norm, bf16 hook, uneven",
     .k = &batch_norm,
     .c = {.hook = tri_bucket_hook_bf16, .small_buckets = true, .uneven = true}},
    {.name = "wide, power sgd",
     .k = &wide,
     .c = {.hook = tri_bucket_hook_power_sgd},
     .power_sgd = true},
    {.name = "wide, power sgd, small buckets",
     .k = &wide,
     .c = {.hook = tri_bucket_hook_power_sgd, .small_buckets = true, .update = ADAMW_CLIP},
     .power_sgd = true},
    {.name = "gpt, power sgd, uneven",
     .k = &gpt,
     .c = {.hook = tri_bucket_hook_power_sgd, .uneven = true},
     .power_sgd = true},
    {.name = "branches, power sgd",
     .k = &branching,
     .c = {.hook = tri_bucket_hook_power_sgd, .small_buckets = true},
     .power_sgd = true},
    {.name = "mlp, own hook", .k = &mlp, .c = {.hook = sum_hook}},
    {.name = "gpt, own hook, no_sync",
     .k = &gpt,
     .c = {.hook = sum_hook, .gather = NO_SYNC, .small_buckets = true}},

    {.name = "mlp, clipped", .k = &mlp, .c = {.update = SGD_CLIP}},
    {.name = "wide, clipped, small buckets",
     .k = &wide,
     .c = {.update = ADAMW_CLIP, .small_buckets = true}},
    {.name = "gpt, clipped, no_sync", .k = &gpt, .c = {.update = ADAMW_CLIP, .gather = NO_SYNC}},
    {.name = "mlp, f16 and scaler", .k = &mlp, .c = {.autocast = TRI_DTYPE_F16}, .scaler = true},
    {.name = "gpt, f16 and scaler, clipped",
     .k = &gpt,
     .c = {.autocast = TRI_DTYPE_F16, .update = ADAMW_CLIP},
     .scaler = true},
    {.name = "branches, scaler, two batches",
     .k = &branching,
     .c = {.gather = TWO_BATCHES},
     .scaler = true},
    {.name = "gpt, bf16", .k = &gpt, .c = {.autocast = TRI_DTYPE_BF16, .update = ADAMW}},
    {.name = "batch norm, bf16", .k = &batch_norm, .c = {.autocast = TRI_DTYPE_BF16}},
    {.name = "batch norm shared, bf16", .k = &sync_norm, .c = {.autocast = TRI_DTYPE_BF16}},

    {.name = "mlp, uneven", .k = &mlp, .c = {.uneven = true}, .some = true},
    {.name = "mlp, an empty rank", .k = &mlp, .c = {.uneven = true}},
    {.name = "gpt, ignored targets", .k = &gpt, .c = {.update = ADAMW}, .ignored = true},
    {.name = "gpt, ignored targets, uneven, no_sync",
     .k = &gpt,
     .c = {.update = ADAMW, .uneven = true, .gather = NO_SYNC},
     .ignored = true},
    {.name = "batch norm, uneven", .k = &batch_norm, .c = {.uneven = true}},
    {.name = "dropout, an empty rank, two batches",
     .k = &dropout,
     .c = {.uneven = true, .gather = TWO_BATCHES}},

    {.name = "branches", .k = &branching, .c = {.update = ADAMW}},
    {.name = "branches, clipped, small buckets",
     .k = &branching,
     .c = {.update = SGD_CLIP, .small_buckets = true}},
    {.name = "branches, own hook", .k = &branching, .c = {.hook = sum_hook}},
    {.name = "branches, an empty rank, no_sync",
     .k = &branching,
     .c = {.uneven = true, .gather = NO_SYNC}},
    {.name = "branches, join", .k = &branching, .c = {.join = true, .small_buckets = true}},

    {.name = "mlp, two batches", .k = &mlp, .c = {.gather = TWO_BATCHES}},
    {.name = "mlp, no_sync", .k = &mlp, .c = {.gather = NO_SYNC}},
    {.name = "batch norm, no_sync", .k = &batch_norm, .c = {.gather = NO_SYNC, .update = ADAMW}},
    {.name = "mlp, frozen and unfrozen", .k = &frozen, .c = {.update = ADAMW}, .freezes = true},
    {.name = "mlp, frozen and unfrozen, small buckets, own hook",
     .k = &frozen,
     .c = {.hook = sum_hook, .small_buckets = true},
     .freezes = true},
    {.name = "mlp, gradients are read", .k = &mlp, .c = {.update = ADAMW}, .looks = true},
    {.name = "branches, gradients are read",
     .k = &branching,
     .c = {.small_buckets = true},
     .looks = true},
    {.name = "gpt, gradients are read, no_sync",
     .k = &gpt,
     .c = {.gather = NO_SYNC},
     .looks = true},

    {.name = "mlp, join", .k = &mlp, .c = {.join = true}},
    {.name = "gpt, join, clipped", .k = &gpt, .c = {.join = true, .update = ADAMW_CLIP}},
    {.name = "dropout, join, no_sync", .k = &dropout, .c = {.join = true, .gather = NO_SYNC}},
    {.name = "batch norm shared, join", .k = &sync_norm, .c = {.join = true}},
    {.name = "mlp, join, f16 hook", .k = &mlp, .c = {.join = true, .hook = tri_bucket_hook_f16}},
    {.name = "mlp, join, scaler",
     .k = &mlp,
     .c = {.join = true, .autocast = TRI_DTYPE_BF16},
     .scaler = true},

    {.name = "batch norm shared", .k = &sync_norm, .c = {.update = ADAMW}},
    {.name = "batch norm shared, uneven",
     .k = &sync_norm,
     .c = {.uneven = true, .update = SGD_CLIP}},
    {.name = "batch norm shared, no_sync", .k = &sync_norm, .c = {.gather = NO_SYNC}},
    {.name = "batch norm shared, recomputed",
     .k = &sync_norm,
     .c = {.recompute = true, .small_buckets = true}},

    {.name = "gpt, recomputed", .k = &gpt, .c = {.recompute = true, .update = ADAMW}},
    {.name = "dropout, recomputed, no_sync",
     .k = &dropout,
     .c = {.recompute = true, .gather = NO_SYNC}},
    {.name = "batch norm, recomputed", .k = &batch_norm, .c = {.recompute = true}},

    {.name = "mlp, 2 devices", .k = &mlp, .c = {.place = CUT}},
    {.name = "gpt, 2 devices, clipped", .k = &gpt, .c = {.place = CUT, .update = ADAMW_CLIP}},
    {.name = "mlp, 3 devices", .k = &mlp, .c = {.place = CUT_IN_3, .update = SGD_CLIP}},
    {.name = "gpt, 3 devices, small buckets",
     .k = &gpt,
     .c = {.place = CUT_IN_3, .small_buckets = true}},
    {.name = "batch norm, 3 devices, own hook",
     .k = &batch_norm,
     .c = {.place = CUT_IN_3, .hook = sum_hook}},
    {.name = "batch norm shared, 3 devices",
     .k = &sync_norm,
     .c = {.place = CUT_IN_3, .recompute = true}},
    {.name = "mlp, DataParallel on 2", .k = &mlp, .c = {.place = REPLICAS_2}},
    {.name = "gpt, DataParallel on 3", .k = &gpt, .c = {.place = REPLICAS_3, .update = ADAMW_CLIP}},
    {.name = "batch norm, DataParallel on 2",
     .k = &batch_norm,
     .c = {.place = REPLICAS_2, .gather = NO_SYNC}},
    {.name = "mlp, DataParallel on 3, an empty rank",
     .k = &mlp,
     .c = {.place = REPLICAS_3, .uneven = true}},
    {.name = "mlp, a layer in DataParallel",
     .k = &mlp,
     .c = {.place = ONE_LAYER, .small_buckets = true}},
    {.name = "mlp, two models", .k = &mlp, .c = {.place = TWO_GROUPS, .update = SGD_CLIP}},
    {.name = "mlp, two models, no_sync",
     .k = &mlp,
     .c = {.place = TWO_GROUPS, .gather = NO_SYNC, .uneven = true}},

    {.name = "deep, in stages", .k = &deep, .c = {.place = IN_STAGES, .update = ADAMW}},
    {.name = "deep, in stages, zero bubble, clipped",
     .k = &deep,
     .c = {.place = IN_STAGES, .update = SGD_CLIP, .schedule = TRI_PIPELINE_ZERO_BUBBLE}},
    {.name = "deep, in stages, gpipe, recomputed, f64",
     .k = &deep,
     .c = {.place = IN_STAGES, .schedule = TRI_PIPELINE_GPIPE, .recompute = true},
     .f64 = true},
    {.name = "deep, in parts", .k = &deep, .c = {.place = IN_PARTS, .update = ADAMW_CLIP}},
    {.name = "deep, in parts, recomputed, bf16",
     .k = &deep,
     .c = {.place = IN_PARTS, .recompute = true, .autocast = TRI_DTYPE_BF16}},

    {.name = "mlp, small buckets", .k = &mlp, .c = {.small_buckets = true}},
    {.name = "gpt, small buckets", .k = &gpt, .c = {.small_buckets = true, .update = ADAMW_CLIP}},
    {.name = "batch norm, small buckets", .k = &batch_norm, .c = {.small_buckets = true}},
    {.name = "wide, small buckets, f64", .k = &wide, .c = {.small_buckets = true}, .f64 = true},
};

#endif
