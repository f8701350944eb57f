/* ckpt_pieces_test.c - `trireme ckpt` of checkpoints that several ranks have saved in pieces: stage
 * 3 of ZeRO, alone and within replicas. */
#include "testing/ckpt_run.h"
#include "testing/ddp_ranks.h"
#include "testing/scratch.h"
#include "train/checkpoint/format.h"

#define STEP "step-000000000003"
#define SHARED 20000 /* features: ranks have parts of a weight, which is several blocks */

typedef struct saved {
    char checkpoints[160], whole[160];
    int64_t hidden;
    bool has_replicas;
} saved;

static tri_module *network(uint64_t seed, int64_t hidden)
{
    tri_module *net;

    trii_mutex_lock(&drawing);
    tri_manual_seed(seed);
    net = tri_nn_sequential(tri_nn_linear(IN, hidden, NULL), tri_nn_linear(hidden, OUT, NULL));
    trii_mutex_unlock(&drawing);
    return net;
}

static tri_status train_and_save(rank *r)
{
    const saved *to = r->arg;
    tri_mesh *mesh = NULL;
    tri_module *model;
    tri_optimizer *opt;
    static const float ones[4 * IN] = {1, 1, 1, 1, 1, 1, 1};
    tri_tensor *x = tri_tensor_from(TRI_SHAPE(4, IN), TRI_DTYPE_F32, ones),
               *y = tri_tensor_from(TRI_SHAPE(4, OUT), TRI_DTYPE_F32, ones);

    if (to->has_replicas)
        TRY(tri_mesh_create(r->group, TRI_SHAPE(2, r->size / 2),
                            (const char *[]){"copies", "parts"}, &mesh));
    model = tri_fully_shard(network(1, to->hidden),
                            &(tri_zero_options){.group = mesh == NULL ? r->group : NULL,
                                                .mesh = mesh,
                                                .bucket_cap_bytes = 300,
                                                .first_bucket_bytes = 300});
    opt = tri_adam(model, 0.01, NULL);
    TRY(tri_optimizer_status(opt));
    tri_backward(tri_mse_loss(tri_forward(model, x), y, NULL));
    TRY(tri_optimizer_step(opt));
    tri_tensor_unref(x);
    tri_tensor_unref(y);
    TRY(tri_save(model, to->whole));
    TRY(tri_checkpoint_save(to->checkpoints, model, opt, &(tri_checkpoint_info){.step = 3}, NULL));
    tri_optimizer_destroy(opt);
    tri_module_destroy(model);
    tri_mesh_destroy(mesh);
    return TRI_OK;
}

static void save(scratch *s, saved *to, int64_t hidden, int ranks, bool has_replicas)
{
    static rank all[MAX_RANKS];

    *to = (saved){.hidden = hidden, .has_replicas = has_replicas};
    snprintf(to->checkpoints, sizeof(to->checkpoints), "%s", scratch_path(s, "checkpoints"));
    snprintf(to->whole, sizeof(to->whole), "%s", scratch_path(s, "whole.safetensors"));
    ranks_succeed(all, ranks, train_and_save, to);
}

static uint64_t hash_of(const char *path)
{
    tri_module *net = network(2, SHARED);
    uint64_t hash;

    CHECK_OK(tri_load(net, path, NULL));
    CHECK_OK(tri_module_hash(net, &hash));
    tri_module_destroy(net);
    return hash;
}

static void pieces_are_shown_verified_and_joined(void **state)
{
    static const struct {
        int ranks;
        bool has_replicas;
        const char *text;
    } rows[] = {{1, false, "model.safetensors"},
                {2, false, "  in 2 pieces\n"},
                {3, false, "  in 3 pieces\n"},
                {4, true, "  in 2 pieces\n"}};
    static const char *const kinds[] = {"--to=safetensors", "--to=torch", "--to=hub"};

    (void)state;
    for (size_t k = 0; k < TRII_COUNT_OF(rows); k++) {
        saved to;
        scratch s;

        scratch_begin(&s);
        save(&s, &to, SHARED, rows[k].ranks, rows[k].has_replicas);
        CKPT(0, ": a checkpoint of Trireme, the newest that is whole\nstep 3, ", "show",
             to.checkpoints);
        CKPT(0, rows[k].text, "show", to.checkpoints);
        CKPT(0, "\noptimizer\n", "show", to.checkpoints);
        CKPT(0, STEP ": whole, step 3\n", "verify", to.checkpoints);
        if (rows[k].ranks > 1)
            CKPT(0, STEP "/pieces.rank1.safetensors: ", "verify", to.checkpoints);
        for (size_t i = 0; i < TRII_COUNT_OF(kinds); i++) {
            const char *file = scratch_path(&s, kinds[i] + 5);

            CKPT(0, " tensors, ", "convert", to.checkpoints, file, kinds[i]);
            assert_int_equal(hash_of(file), hash_of(to.whole));
        }
        scratch_end(&s);
    }
}

/* What is wrong with pieces.rank1 is told by all three, with its name. */
static void expect_refused(const saved *to, scratch *s, const char *text)
{
    CKPT(1, text, "verify", to->checkpoints);
    CKPT(1, text, "show", to->checkpoints);
    CKPT(1, text, "convert", to->checkpoints, scratch_path(s, "x.pth"));
    CKPT(1, "pieces.rank1.safetensors", "verify", to->checkpoints);
}

static void pieces_that_are_damaged_are_named(void **state)
{
    char *bytes, dir[256];
    const char *name;
    saved to;
    scratch s;
    size_t n, header;

    (void)state;
    scratch_begin(&s);
    save(&s, &to, 8, 2, false);
    name = "checkpoints/" STEP "/pieces.rank1.safetensors";
    bytes = scratch_read(scratch_path(&s, name), &n);
    header = 8 + (size_t)(unsigned char)bytes[0] + 256 * (size_t)(unsigned char)bytes[1];
    assert_true(n > header + 100);
    snprintf(dir, sizeof(dir), "%s/" STEP, to.checkpoints);
    for (size_t at = header; at < n; at++) {
        trii_manifest manifest;

        bytes[at] ^= 4;
        scratch_file(&s, name, bytes, n);
        bytes[at] ^= 4;
        CHECK_FAILS(trii_manifest_read(dir, &manifest), TRI_ERR_FORMAT,
                    "pieces.rank1.safetensors: damaged: the checksum of tensor ");
    }
    expect_refused(&to, &s, "damaged: the checksum of tensor ");
    scratch_file(&s, name, bytes, n - 1);
    expect_refused(&to, &s, "pieces.rank1.safetensors");
    assert_int_equal(remove(scratch_path(&s, name)), 0);
    expect_refused(&to, &s, "pieces.rank1.safetensors");
    scratch_file(&s, name, bytes, n);
    CKPT(0, "whole, step 3", "verify", to.checkpoints);
    assert_int_equal(scratch_count(s.dir), 2);
    free(bytes);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pieces_are_shown_verified_and_joined),
    cmocka_unit_test(pieces_that_are_damaged_are_named),
};
TEST_MAIN(tests)
