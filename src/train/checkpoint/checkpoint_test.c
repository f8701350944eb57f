/* checkpoint_test.c - state of modules and optimizers: there and back, and a run that goes on. */
#include <math.h>
#include <stdlib.h>

#include <trireme/checkpoint.h>
#include <trireme/nn.h>
#include <trireme/ops.h>
#include <trireme/optim.h>

#include "base/alloc.h"
#include "testing/scratch.h"

static tri_module *make_net(void)
{
    return tri_nn_sequential(tri_nn_linear(6, 8, NULL), tri_nn_relu(), tri_nn_dropout(0.3),
                             tri_nn_linear(8, 3, NULL));
}

static uint64_t hash_of(tri_module *module)
{
    uint64_t hash = 0;

    CHECK_OK(tri_module_hash(module, &hash));
    return hash;
}

static void weights_go_into_a_file_and_back(void **state)
{
    tri_module *a, *b, *other;
    tri_safetensors *file;
    uint64_t before;
    scratch s;

    (void)state;
    scratch_begin(&s);
    tri_manual_seed(1);
    a = make_net();
    b = make_net();
    other = tri_nn_sequential(tri_nn_linear(6, 7, NULL));
    assert_true(hash_of(a) != hash_of(b));
    CHECK_OK(tri_save(a, scratch_path(&s, "w")));
    CHECK_OK(tri_load(b, scratch_path(&s, "w"), NULL));
    assert_true(hash_of(a) == hash_of(b));

    CHECK_OK(tri_safetensors_open(scratch_path(&s, "w"), &file));
    assert_int_equal(tri_safetensors_count(file), 4);
    assert_int_equal(tri_safetensors_find(file, "3.weight")->shape[1], 8);
    assert_string_equal(tri_safetensors_metadata(file, "format"), "pt");
    tri_safetensors_close(file);

    before = hash_of(other);
    CHECK_FAILS(tri_load(other, scratch_path(&s, "w"), NULL), TRI_ERR_FORMAT,
                scratch_path(&s, "w"));
    assert_true(hash_of(other) == before);
    CHECK_FAILS(tri_load(other, scratch_path(&s, "none"), NULL), TRI_ERR_NOT_FOUND, "none");
    tri_module_destroy(a);
    tri_module_destroy(b);
    tri_module_destroy(other);
    scratch_end(&s);
}

/* As torch.save'd from DistributedDataParallel: every name begins with "module.". */
static void a_leading_module_is_dropped(void **state)
{
    static const float weight[6] = {1, 2, 3, 4, 5, 6}, bias[2] = {7, 8};
    tri_safetensors_entry entries[] = {
        {.name = "module.0.weight",
         .dtype = TRI_DTYPE_F32,
         .ndim = 2,
         .shape = {2, 3},
         .data = weight,
         .bytes = sizeof(weight)},
        {.name = "module.0.bias",
         .dtype = TRI_DTYPE_F32,
         .ndim = 1,
         .shape = {2},
         .data = bias,
         .bytes = sizeof(bias)},
    };
    tri_module *net = tri_nn_sequential(tri_nn_linear(3, 2, NULL));
    float out[6];
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_safetensors_write(scratch_path(&s, "w"), entries, 2, NULL, 0));
    CHECK_OK(tri_load(net, scratch_path(&s, "w"), NULL));
    CHECK_OK(tri_tensor_copy_out(tri_module_find(net, "0.weight"), out, sizeof(out)));
    assert_memory_equal(out, weight, sizeof(out));
    tri_module_destroy(net);
    scratch_end(&s);
}

static void tensors_come_out_of_files(void **state)
{
    static const int64_t values[2] = {5, -6};
    tri_safetensors_entry entry = {.name = "y",
                                   .dtype = TRI_DTYPE_I64,
                                   .ndim = 1,
                                   .shape = {2},
                                   .data = values,
                                   .bytes = sizeof(values)};
    tri_safetensors *file;
    tri_tensor *y, *none;
    int64_t out[2];
    scratch s;

    (void)state;
    scratch_begin(&s);
    CHECK_OK(tri_safetensors_write(scratch_path(&s, "d"), &entry, 1, NULL, 0));
    CHECK_OK(tri_safetensors_open(scratch_path(&s, "d"), &file));
    y = tri_safetensors_tensor(file, "y");
    CHECK_OK(tri_tensor_copy_out(y, out, sizeof(out)));
    assert_memory_equal(out, values, sizeof(out));
    none = tri_safetensors_tensor(file, "z");
    CHECK_FAILS(tri_tensor_status(none), TRI_ERR_NOT_FOUND, "no tensor z");
    tri_tensor_unref(none);
    tri_tensor_unref(y);
    tri_safetensors_close(file);
    scratch_end(&s);
}

static void train(tri_module *net, tri_optimizer *opt, int64_t first, int64_t end)
{
    tri_tensor *x = tri_tensor_create((const int64_t[]){4, 6}, 2, TRI_DTYPE_F32);
    tri_tensor *y = tri_tensor_create((const int64_t[]){4}, 1, TRI_DTYPE_I64);

    for (int64_t step = first; step < end; step++) {
        float rows[24];
        int64_t labels[4];

        for (int i = 0; i < 24; i++)
            rows[i] = (float)((step * 7 + i * 5) % 11) / 5 - 1;
        for (int i = 0; i < 4; i++)
            labels[i] = (step + i) % 3;
        CHECK_OK(tri_tensor_copy_in(x, rows, sizeof(rows)));
        CHECK_OK(tri_tensor_copy_in(y, labels, sizeof(labels)));
        tri_backward(tri_cross_entropy(tri_forward(net, x), y, NULL));
        CHECK_OK(tri_optimizer_step(opt));
        tri_step_end();
    }
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

static tri_optimizer *make_sgd(tri_module *net)
{
    return tri_sgd(net, 0.1,
                   &(tri_sgd_options){.momentum = 0.9, .nesterov = true, .weight_decay = 1e-3});
}

static tri_optimizer *make_adamw(tri_module *net)
{
    return tri_adamw(net, 0.01, &(tri_adam_options){.amsgrad = true});
}

static void check_resume(tri_optimizer *(*make)(tri_module *net))
{
    tri_checkpoint *checkpoint;
    tri_optimizer *opt;
    tri_module *net;
    uint64_t want;
    scratch s;

    scratch_begin(&s);
    tri_manual_seed(7);
    tri_rng_state_set(&(tri_rng){.seed = 7});
    net = make_net();
    opt = make(net);
    train(net, opt, 0, 5);
    CHECK_OK(tri_checkpoint_save(
        s.dir, net, opt,
        &(tri_checkpoint_info){
            .step = 5, .epoch = 1, .meta = &(tri_metadata){"best", "0.5"}, .n_meta = 1},
        NULL));
    train(net, opt, 5, 12);
    want = hash_of(net);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);

    tri_manual_seed(999); /* another process, other draws */
    tri_rng_state_set(&(tri_rng){.seed = 999, .step = 1234});
    net = make_net();
    opt = make(net);
    CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
    assert_int_equal(tri_checkpoint_step(checkpoint), 5);
    assert_string_equal(tri_checkpoint_metadata(checkpoint, "best"), "0.5");
    assert_null(tri_checkpoint_metadata(checkpoint, "worst"));
    assert_non_null(strstr(tri_checkpoint_path(checkpoint), "step-000000000005"));
    CHECK_OK(tri_checkpoint_restore(checkpoint, net, opt));
    tri_checkpoint_close(checkpoint);
    train(net, opt, 5, 12);
    assert_true(hash_of(net) == want);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    scratch_end(&s);
}

static void train_scaled(tri_module *net, tri_optimizer *opt, tri_grad_scaler *scaler,
                         int64_t first, int64_t end)
{
    for (int64_t step = first; step < end; step++) {
        tri_tensor *x = tri_tensor_create(TRI_SHAPE(8, 6), TRI_DTYPE_F32), *loss;

        CHECK_OK(tri_init_constant(x, 0.1 * (double)step));
        loss = tri_mean(tri_square(tri_forward(net, x)), NULL, 0, false);
        loss = step % 4 == 2 ? tri_mul_scalar(loss, (double)INFINITY) : loss;
        tri_backward(tri_grad_scaler_scale(scaler, loss));
        CHECK_OK(tri_grad_scaler_step(scaler, opt));
        CHECK_OK(tri_grad_scaler_update(scaler));
        CHECK_OK(tri_step_end_status());
        tri_tensor_unref(x);
    }
}

/* Of a scaler two numbers are kept. */
static void a_resumed_run_has_the_scale_too(void **state)
{
    const tri_grad_scaler_options options = {.growth_interval = 3};
    tri_checkpoint *checkpoint;
    tri_grad_scaler *scaler;
    tri_module *net;
    tri_optimizer *opt;
    uint64_t want;
    double want_scale;
    float scale;
    int64_t tracker;
    char texts[2][32];
    scratch s;

    (void)state;
    scratch_begin(&s);
    tri_manual_seed(7);
    net = tri_nn_linear(6, 2, NULL);
    opt = make_adamw(net);
    CHECK_OK(tri_grad_scaler_create(&options, &scaler));
    train_scaled(net, opt, scaler, 0, 5);
    snprintf(texts[0], sizeof(texts[0]), "%.9g", tri_item(tri_grad_scaler_state(scaler, 0).tensor));
    snprintf(texts[1], sizeof(texts[1]), "%.0f", tri_item(tri_grad_scaler_state(scaler, 1).tensor));
    assert_string_equal(texts[1], "2");
    CHECK_OK(tri_checkpoint_save(
        s.dir, net, opt,
        &(tri_checkpoint_info){.step = 5,
                               .meta = (tri_metadata[]){{"scale", texts[0]}, {"tracker", texts[1]}},
                               .n_meta = 2},
        NULL));
    train_scaled(net, opt, scaler, 5, 12);
    want = hash_of(net);
    want_scale = tri_grad_scaler_current_scale(scaler);
    CHECK_OK(tri_step_end_status());
    tri_grad_scaler_destroy(scaler);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);

    net = tri_nn_linear(6, 2, NULL);
    opt = make_adamw(net);
    CHECK_OK(tri_grad_scaler_create(&options, &scaler));
    CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
    CHECK_OK(tri_checkpoint_restore(checkpoint, net, opt));
    scale = strtof(tri_checkpoint_metadata(checkpoint, "scale"), NULL);
    tracker = strtoll(tri_checkpoint_metadata(checkpoint, "tracker"), NULL, 10);
    CHECK_OK(tri_tensor_copy_in(tri_grad_scaler_state(scaler, 0).tensor, &scale, sizeof(scale)));
    CHECK_OK(
        tri_tensor_copy_in(tri_grad_scaler_state(scaler, 1).tensor, &tracker, sizeof(tracker)));
    tri_checkpoint_close(checkpoint);
    train_scaled(net, opt, scaler, 5, 12);
    assert_true(hash_of(net) == want);
    assert_true(tri_grad_scaler_current_scale(scaler) == want_scale);
    CHECK_OK(tri_step_end_status());
    tri_grad_scaler_destroy(scaler);
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    scratch_end(&s);
}

static void a_resumed_run_has_the_bits_of_one_that_never_stopped(void **state)
{
    (void)state;
    check_resume(make_sgd);
    check_resume(make_adamw);
}

/* One process of a run: trains from step `first` to `end`, after going on from what is in the
 * folder unless it begins there, and leaves a checkpoint. Its exit code is 0, its hash in
 * `hash`. */
static void run_process(scratch *s, int64_t first, int64_t end, uint64_t *hash)
{
    int result[2], status;
    pid_t pid;

    assert_int_equal(pipe(result), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        tri_checkpoint *checkpoint = NULL;
        tri_module *net;
        tri_optimizer *opt;
        float drawn[2];
        tri_tensor *t;

        if (first == 0)
            tri_manual_seed(42);
        net = make_net();
        opt = tri_sgd(net, 0.1, &(tri_sgd_options){.momentum = 0.9});
        if (first > 0 && (tri_checkpoint_open(s->dir, &checkpoint) != TRI_OK ||
                          tri_checkpoint_restore(checkpoint, net, opt) != TRI_OK))
            _exit(2);
        train(net, opt, first, end);
        if (tri_checkpoint_save(s->dir, net, opt, &(tri_checkpoint_info){.step = end}, NULL) !=
            TRI_OK)
            _exit(3);
        *hash = hash_of(net);
        /* What the program itself draws afterwards (a new head, say). */
        t = tri_tensor_create((const int64_t[]){2}, 1, TRI_DTYPE_F32);
        if (tri_init_uniform(t, 0, 1) != TRI_OK ||
            tri_tensor_copy_out(t, drawn, sizeof(drawn)) != TRI_OK)
            _exit(4);
        if (write(result[1], hash, sizeof(*hash)) != sizeof(*hash) ||
            write(result[1], drawn, sizeof(drawn)) != sizeof(drawn))
            _exit(5);
        _exit(0);
    }
    close(result[1]);
    assert_int_equal(read(result[0], hash, sizeof(*hash)), sizeof(*hash));
    assert_int_equal(read(result[0], hash + 1, sizeof(*hash)), sizeof(*hash));
    close(result[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* The program seeds its first process and says nothing of seeds later. */
static void random_numbers_go_on_in_another_process(void **state)
{
    uint64_t whole[2], parts[2];
    scratch a, b;

    (void)state;
    scratch_begin(&a);
    scratch_begin(&b);
    run_process(&a, 0, 9, whole);
    run_process(&b, 0, 4, parts);
    run_process(&b, 4, 6, parts);
    run_process(&b, 6, 9, parts);
    assert_true(parts[0] == whole[0]);
    assert_true(parts[1] == whole[1]);
    scratch_end(&b);
    scratch_end(&a);
}

/* Convolutions whose weights a step lays out for its kernels, in every combination of channels that
 * chooses them differently. */
static tri_module *make_image_net(int64_t width)
{
    static const tri_nn_conv2d_options same = {.padding = 1, .no_bias = true};

    return tri_nn_sequential(tri_nn_conv2d(1, width, 3, &same), tri_nn_batch_norm2d(width, NULL),
                             tri_nn_relu(), tri_nn_conv2d(width, 2 * width, 3, &same),
                             tri_nn_relu(), tri_nn_conv2d(2 * width, 2 * width, 3, &same),
                             tri_nn_relu(), tri_nn_conv2d(2 * width, 4 * width, 3, &same),
                             tri_nn_adaptive_max_pool2d(1, 1), tri_nn_flatten(1),
                             tri_nn_linear(4 * width, 3, NULL));
}

static void train_images(tri_module *net, tri_optimizer *opt, int64_t first, int64_t end)
{
    enum { PIXELS = 4 * 14 * 14 };
    tri_tensor *x = tri_tensor_create((const int64_t[]){4, 1, 14, 14}, 4, TRI_DTYPE_F32);
    tri_tensor *y = tri_tensor_create((const int64_t[]){4}, 1, TRI_DTYPE_I64);

    for (int64_t step = first; step < end; step++) {
        uint64_t random = (uint64_t)step;
        float pixels[PIXELS];
        int64_t labels[4];

        for (int i = 0; i < PIXELS; i++)
            pixels[i] = (float)(scratch_random(&random) % 1000) / 500 - 1;
        for (int i = 0; i < 4; i++)
            labels[i] = (step + i) % 3;
        CHECK_OK(tri_tensor_copy_in(x, pixels, sizeof(pixels)));
        CHECK_OK(tri_tensor_copy_in(y, labels, sizeof(labels)));
        tri_backward(tri_cross_entropy(tri_forward(net, x), y, NULL));
        CHECK_OK(tri_optimizer_step(opt));
        tri_step_end();
    }
    tri_tensor_unref(x);
    tri_tensor_unref(y);
}

static void evaluate_images(tri_module *net)
{
    tri_tensor *x = tri_tensor_create((const int64_t[]){3, 1, 14, 14}, 4, TRI_DTYPE_F32);

    tri_module_train(net, false);
    tri_no_grad_begin();
    (void)tri_keep(tri_forward(net, x));
    CHECK_OK(tri_run());
    tri_no_grad_end();
    tri_step_end();
    tri_module_train(net, true);
    tri_tensor_unref(x);
}

/* What an earlier step of the process made of the weights' layout is not in a file, so nothing may
 * depend on it: not on the steps before, not on an evaluation that comes first. */
static void layouts_of_earlier_steps_change_no_bit_of_later_ones(void **state)
{
    static const tri_sgd_options sgd = {.momentum = 0.9, .weight_decay = 1e-3};
    static const int64_t widths[] = {1, 2, 3, 4, 5, 6, 8, 12, 16};
    scratch s;

    (void)state;
    scratch_begin(&s);
    assert_int_equal(setenv("TRI_NUM_THREADS", "1", 1), 0);
    for (size_t w = 0; w < TRII_COUNT_OF(widths); w++) {
        for (int evaluated = 0; evaluated < 2; evaluated++) {
            int64_t width = widths[w];
            tri_module *net = make_image_net(width);
            tri_optimizer *opt = tri_sgd(net, 0.1, &sgd);
            tri_checkpoint *checkpoint;
            uint64_t want;

            train_images(net, opt, 0, 3);
            CHECK_OK(tri_checkpoint_save(s.dir, net, opt, &(tri_checkpoint_info){.step = 3}, NULL));
            train_images(net, opt, 3, 6);
            want = hash_of(net);
            tri_optimizer_destroy(opt);
            tri_module_destroy(net);

            net = make_image_net(width);
            opt = tri_sgd(net, 0.1, &sgd);
            CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
            CHECK_OK(tri_checkpoint_restore(checkpoint, net, opt));
            tri_checkpoint_close(checkpoint);
            if (evaluated)
                evaluate_images(net);
            train_images(net, opt, 3, 6);
            if (hash_of(net) != want)
                fail_msg("width %d%s: other bits", (int)width,
                         evaluated ? ", evaluated first" : "");
            tri_optimizer_destroy(opt);
            tri_module_destroy(net);
        }
    }
    scratch_end(&s);
}

static void state_of_another_structure_is_refused(void **state)
{
    tri_checkpoint *checkpoint;
    tri_optimizer *opt, *plain;
    tri_module *net, *other;
    uint64_t before;
    scratch s;

    (void)state;
    scratch_begin(&s);
    net = make_net();
    opt = tri_sgd(net, 0.1, &(tri_sgd_options){.momentum = 0.9});
    plain = tri_sgd(net, 0.1, NULL);
    other = tri_nn_sequential(tri_nn_linear(2, 2, NULL));
    train(net, opt, 0, 1);
    CHECK_OK(tri_checkpoint_save(s.dir, net, opt, &(tri_checkpoint_info){.step = 1}, NULL));
    CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
    train(net, opt, 1, 2);
    before = hash_of(net);
    tri_manual_seed(5);
    tri_rng_state_set(&(tri_rng){.seed = 5, .stream = 9, .step = 77});
    assert_int_equal(tri_checkpoint_restore(checkpoint, other, NULL), TRI_ERR_FORMAT);
    CHECK_FAILS(tri_checkpoint_restore(checkpoint, net, plain), TRI_ERR_FORMAT,
                "optimizer.safetensors");
    assert_true(hash_of(net) == before); /* all of it, or nothing */
    assert_int_equal(tri_rng_state().step, 77);
    assert_int_equal(tri_rng_state().stream, 9);
    assert_int_equal(unlink(scratch_path(&s, "step-000000000001/optimizer.safetensors")), 0);
    CHECK_FAILS(tri_checkpoint_restore(checkpoint, net, opt), TRI_ERR_FORMAT,
                "optimizer.safetensors");
    assert_true(hash_of(net) == before);
    tri_checkpoint_close(checkpoint);
    CHECK_OK(tri_checkpoint_save(s.dir, net, NULL, &(tri_checkpoint_info){.step = 2}, NULL));
    CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
    CHECK_FAILS(tri_checkpoint_restore(checkpoint, net, opt), TRI_ERR_FORMAT, "holds no optimizer");
    assert_true(hash_of(net) == before);
    CHECK_FAILS(tri_checkpoint_save(s.dir, net, opt, &(tri_checkpoint_info){.step = -1}, NULL),
                TRI_ERR_INVALID_ARG, "step -1");
    tri_checkpoint_close(checkpoint);
    tri_optimizer_destroy(plain);
    tri_optimizer_destroy(opt);
    tri_module_destroy(other);
    tri_module_destroy(net);
    scratch_end(&s);
}

/* As deep as names get where a model is generated. */
static void names_of_any_length_are_saved(void **state)
{
    tri_module *net = tri_nn_linear(2, 2, NULL), *other = tri_nn_linear(2, 2, NULL);
    tri_optimizer *opt, *rest;
    tri_checkpoint *checkpoint;
    tri_safetensors *file;
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int depth = 0; depth < 700; depth++) {
        net = tri_nn_sequential(net);
        other = tri_nn_sequential(other);
    }
    opt = tri_sgd(net, 0.1, &(tri_sgd_options){.momentum = 0.9});
    rest = tri_sgd(other, 0.1, &(tri_sgd_options){.momentum = 0.9});
    CHECK_OK(tri_save(net, scratch_path(&s, "w")));
    CHECK_OK(tri_safetensors_open(scratch_path(&s, "w"), &file));
    assert_int_equal(tri_safetensors_count(file), 2);
    assert_int_equal(strlen(tri_safetensors_at(file, 0)->name), 2 * 700 + strlen("bias"));
    tri_safetensors_close(file);
    CHECK_OK(tri_checkpoint_save(s.dir, net, opt, &(tri_checkpoint_info){.step = 1}, NULL));
    CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
    CHECK_OK(tri_checkpoint_restore(checkpoint, other, rest));
    assert_true(hash_of(net) == hash_of(other));
    tri_checkpoint_close(checkpoint);
    tri_optimizer_destroy(rest);
    tri_optimizer_destroy(opt);
    tri_module_destroy(other);
    tri_module_destroy(net);
    scratch_end(&s);
}

static void arguments_that_cannot_be_are_named(void **state)
{
    static const tri_checkpoint_info info = {.step = 1};
    static const float value = 1;
    tri_safetensors_entry entry = {
        .name = "w", .dtype = TRI_DTYPE_F32, .data = &value, .bytes = sizeof(value)};
    tri_module *net = make_net();
    tri_optimizer *opt = tri_sgd(net, 0.1, NULL);
    tri_checkpoint *checkpoint = NULL;
    tri_safetensors *file = NULL;
    tri_tensor *none;
    const char *path;
    scratch s;

    (void)state;
    scratch_begin(&s);
    path = scratch_path(&s, "w");
#define REFUSED(call, what) CHECK_FAILS(call, TRI_ERR_INVALID_ARG, what)
    REFUSED(tri_save(NULL, path), "module");
    REFUSED(tri_save(net, NULL), "path is NULL");
    REFUSED(tri_load(NULL, path, NULL), "module");
    REFUSED(tri_load(net, NULL, NULL), "path is NULL");
    REFUSED(tri_safetensors_write(NULL, &entry, 1, NULL, 0), "path is NULL");
    REFUSED(tri_safetensors_write(path, NULL, 1, NULL, 0), "entries is NULL");
    REFUSED(tri_safetensors_write(path, &entry, -1, NULL, 0), "-1 entries");
    REFUSED(tri_safetensors_write(path, &entry, 1, NULL, 1), "meta is NULL");
    REFUSED(tri_safetensors_write(path, &entry, 1, NULL, -1), "-1 texts");
    REFUSED(tri_safetensors_write(path, &entry, 1, &(tri_metadata){"a", NULL}, 1), "metadata");
    REFUSED(tri_safetensors_write(path, &entry, 1, &(tri_metadata){NULL, "a"}, 1), "metadata");
    entry.name = NULL;
    REFUSED(tri_safetensors_write(path, &entry, 1, NULL, 0), "entry 0 has no name");
    entry.name = "w";
    entry.data = NULL;
    REFUSED(tri_safetensors_write(path, &entry, 1, NULL, 0), "tensor w: data is NULL");
    REFUSED(tri_safetensors_open(NULL, &file), "path is NULL");
    REFUSED(tri_safetensors_open(path, NULL), "file_out is NULL");
    assert_int_equal(tri_safetensors_count(NULL), 0);
    assert_null(tri_safetensors_at(NULL, 0));
    assert_null(tri_safetensors_find(NULL, "w"));
    assert_null(tri_safetensors_metadata(NULL, "w"));
    none = tri_safetensors_tensor(NULL, "w");
    REFUSED(tri_tensor_status(none), "file is NULL");
    tri_tensor_unref(none);
    entry.data = &value;
    CHECK_OK(tri_safetensors_write(path, &entry, 1, NULL, 0));
    CHECK_OK(tri_safetensors_open(path, &file));
    assert_null(tri_safetensors_find(file, NULL));
    assert_null(tri_safetensors_metadata(file, NULL));
    assert_null(tri_safetensors_at(file, -1));
    none = tri_safetensors_tensor(file, NULL);
    REFUSED(tri_tensor_status(none), "name is NULL");
    tri_tensor_unref(none);
    tri_safetensors_close(file);

    REFUSED(tri_checkpoint_save(NULL, net, opt, &info, NULL), "folder is NULL");
    REFUSED(tri_checkpoint_save("", net, opt, &info, NULL), "folder is empty");
    REFUSED(tri_checkpoint_save(s.dir, NULL, opt, &info, NULL), "module");
    REFUSED(tri_checkpoint_save(s.dir, net, opt, NULL, NULL), "info is NULL");
    REFUSED(tri_checkpoint_save(s.dir, net, opt, &info, &(tri_checkpoint_save_options){.keep = -1}),
            "keep -1");
    REFUSED(tri_checkpoint_save(s.dir, net, opt, &(tri_checkpoint_info){.n_meta = -1}, NULL),
            "-1 texts");
    REFUSED(tri_checkpoint_save(s.dir, net, opt, &(tri_checkpoint_info){.n_meta = 1}, NULL),
            "meta is NULL");
    REFUSED(tri_checkpoint_save(s.dir, net, opt,
                                &(tri_checkpoint_info){
                                    .meta = (tri_metadata[]){{"a", "1"}, {"a", "2"}}, .n_meta = 2},
                                NULL),
            "metadata a occurs twice");
    REFUSED(tri_checkpoint_open(NULL, &checkpoint), "folder is NULL");
    REFUSED(tri_checkpoint_open("", &checkpoint), "folder is empty");
    REFUSED(tri_checkpoint_open(s.dir, NULL), "checkpoint_out is NULL");
    REFUSED(tri_checkpoint_restore(NULL, net, opt), "checkpoint is NULL");
    assert_int_equal(tri_checkpoint_step(NULL), -1);
    assert_int_equal(tri_checkpoint_epoch(NULL), -1);
    assert_null(tri_checkpoint_path(NULL));
    assert_null(tri_checkpoint_metadata(NULL, "a"));
    CHECK_OK(tri_checkpoint_save(s.dir, net, opt, &info, NULL));
    CHECK_OK(tri_checkpoint_open(s.dir, &checkpoint));
    REFUSED(tri_checkpoint_restore(checkpoint, NULL, opt), "module");
    assert_null(tri_checkpoint_metadata(checkpoint, NULL));
    tri_checkpoint_close(checkpoint);
#undef REFUSED
    tri_optimizer_destroy(opt);
    tri_module_destroy(net);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(weights_go_into_a_file_and_back),
    cmocka_unit_test(a_leading_module_is_dropped),
    cmocka_unit_test(tensors_come_out_of_files),
    cmocka_unit_test(a_resumed_run_has_the_bits_of_one_that_never_stopped),
    cmocka_unit_test(a_resumed_run_has_the_scale_too),
    cmocka_unit_test(random_numbers_go_on_in_another_process),
    cmocka_unit_test(names_of_any_length_are_saved),
    cmocka_unit_test(arguments_that_cannot_be_are_named),
    cmocka_unit_test(layouts_of_earlier_steps_change_no_bit_of_later_ones),
    cmocka_unit_test(state_of_another_structure_is_refused),
};
TEST_MAIN(tests)
