/* resume_test.c - a fit that is killed anywhere, and goes on: the weights, values and records of
 * one that never stopped. */
/* ctest: program=own timeout=120 */
#include <inttypes.h>

#include "testing/killed_fit.h"

static killed_fit base(const char *root)
{
    static tri_fit_early_stopping_options early = {.monitor = "val_loss"};
    static tri_fit_ema_options ema;

    early.patience = TRI_SET(50);
    ema.decay = TRI_SET(0.5);
    return (killed_fit){.root = root,
                        .samples = 43,
                        .batch_size = 8,
                        .max_epochs = 3,
                        .seed = 5,
                        .checkpoint = {.monitor = "val_loss",
                                       .save_top_k = 2,
                                       .keep_last = 2,
                                       .every_n_train_steps = 4,
                                       .every_n_epochs = 1},
                        .early = &early,
                        .ema = &ema,
                        .val_check_interval = 4};
}

/* Records without what the clock says. */
static char *records(scratch *s)
{
    size_t n, to = 0;
    char *text = scratch_read(scratch_path(s, "run/metrics.jsonl"), &n);
    const char *mark = ",\"samples_per_s\":";

    for (size_t at = 0; at < n; at++) {
        if (strncmp(text + at, mark, strlen(mark)) == 0)
            at += strcspn(text + at, "}");
        text[to++] = text[at];
    }
    text[to] = '\0';
    return text;
}

/* For each batch of each epoch the samples that were seen in it last. */
typedef struct seen_rows {
    char row[3][64][4][256]; /* [epoch][batch][rank] */
} seen_rows;

static seen_rows *read_seen(scratch *s)
{
    seen_rows *seen = calloc(1, sizeof(*seen));
    size_t n;
    char *text = scratch_read(scratch_path(s, "seen"), &n);

    assert_non_null(seen);
    for (char *line = text; *line != '\0'; line += strlen(line) + 1) {
        int epoch, batch, of, at;

        line[strcspn(line, "\n")] = '\0';
        assert_int_equal(sscanf(line, "%d %d %d%n", &epoch, &batch, &of, &at), 3);
        assert_true(epoch < 3 && batch < 64 && of < 4);
        snprintf(seen->row[epoch][batch][of], 256, "%s", line + at);
    }
    free(text);
    return seen;
}

/* What the newest checkpoint holds in tensors, one file after the other. */
typedef struct tensors {
    char *bytes[4];
    size_t n[4];
} tensors;

static tensors read_tensors(scratch *s, int64_t step)
{
    static const char *const files[4] = {"model", "optimizer", "ema", "grad_scaler"};
    tensors t = {.n = {0}};

    for (int i = 0; i < 4; i++) {
        char name[128];

        snprintf(name, sizeof(name), "run/checkpoints/step-%012" PRId64 "/%s.safetensors", step,
                 files[i]);
        if (access(scratch_path(s, name), F_OK) == 0)
            t.bytes[i] = scratch_read(scratch_path(s, name), &t.n[i]);
    }
    assert_true(t.n[0] > 0 && t.n[1] > 0 && t.n[2] > 0);
    return t;
}

static void tensors_end(tensors *t)
{
    for (int i = 0; i < 4; i++)
        free(t->bytes[i]);
}

typedef struct reference {
    killed_result result;
    tensors tensors;
    char *records;
    seen_rows *seen;
} reference;

static reference make_reference(killed_fit fit)
{
    reference r;
    scratch s;

    scratch_begin(&s);
    fit.root = s.dir;
    r.result = killed_fit_run(&fit);
    if (r.result.how != 0 || r.result.status != TRI_OK)
        fail_msg("%x: %s", (unsigned)r.result.how, r.result.line);
    r.records = records(&s);
    r.tensors = read_tensors(&s, r.result.result.steps);
    r.seen = read_seen(&s);
    scratch_end(&s);
    return r;
}

static void reference_end(reference *r)
{
    free(r->records);
    free(r->seen);
    tensors_end(&r->tensors);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* Killed as the plan says, and resumed: all is as in the reference. Whether it was killed. */
static bool check(killed_fit fit, const reference *want)
{
    killed_result killed, resumed;
    seen_rows *seen;
    tensors t;
    char *found;
    scratch s;

    scratch_begin(&s);
    fit.root = s.dir;
    killed = killed_fit_run(&fit);
    if (killed.how == 0 && killed.status == TRI_OK && killed.result.reason != TRI_STOP_SIGNAL) {
        scratch_end(&s);
        return false;
    }
    fit.kill = (kill_plan){0};
    fit.term_at = fit.fail_validation_at = 0;
    fit.ckpt_path = "last";
    resumed = killed_fit_run(&fit);
    if (resumed.how != 0 || resumed.status != TRI_OK)
        fail_msg("%x: %s", (unsigned)resumed.how, resumed.line);
    found = records(&s);
    seen = read_seen(&s);
    assert_true(resumed.hash == want->result.hash);
    assert_string_equal(found, want->records);
    assert_memory_equal(seen, want->seen, sizeof(*seen));
    t = read_tensors(&s, resumed.result.steps);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(t.n[i], want->tensors.n[i]);
        if (t.n[i] > 0)
            assert_memory_equal(t.bytes[i], want->tensors.bytes[i], t.n[i]);
    }
    tensors_end(&t);
    assert_int_equal(resumed.result.steps, want->result.result.steps);
    assert_int_equal(resumed.result.n_values, want->result.result.n_values);
    for (int i = 0; i < resumed.result.n_values; i++) {
        const char *name = resumed.result.names[i];

        assert_true(resumed.result.values[i] == tri_fit_result_value(&want->result.result, name));
    }
    assert_true(resumed.result.best_value == want->result.result.best_value);
    assert_string_equal(base_name(resumed.result.best_path),
                        base_name(want->result.result.best_path));
    free(found);
    free(seen);
    scratch_end(&s);
    return true;
}

static void killed_after_any_batch(void **state)
{
    killed_fit fit = base(NULL);
    reference want = make_reference(fit);
    int n = 0;

    (void)state;
    for (fit.kill.batch = 1; check(fit, &want); fit.kill.batch++)
        n++;
    assert_int_equal(n, 18);
    reference_end(&want);
}

static void killed_in_any_batch_of_validation(void **state)
{
    killed_fit fit = base(NULL);
    reference want = make_reference(fit);
    int n = 0;

    (void)state;
    for (fit.kill.validation = 1; check(fit, &want); fit.kill.validation++)
        n++;
    assert_in_range(n, 9, 30);
    reference_end(&want);
}

static void killed_in_any_save(void **state)
{
    killed_fit fit = base(NULL);
    reference want = make_reference(fit);
    int n = 0;

    (void)state;
    for (int async = 0; async < 2; async++) {
        fit.checkpoint.async = async == 1;
        for (fit.kill.sync = 1; check(fit, &want); fit.kill.sync += 3)
            n++;
    }
    assert_in_range(n, 20, 200);
    reference_end(&want);
}

static void two_workers_killed_after_any_batch(void **state)
{
    killed_fit fit = base(NULL);
    reference want;
    int n = 0;

    (void)state;
    fit.devices = 2;
    fit.batch_size = 4;
    want = make_reference(fit);
    for (fit.kill.batch = 1; check(fit, &want); fit.kill.batch += 2)
        n++;
    assert_int_equal(n, 9);
    reference_end(&want);
}

/* Also where a validation was due that the signal has put off. */
static void stopped_by_a_signal_at_any_batch(void **state)
{
    (void)state;
    for (int interval = 0; interval <= 4; interval += 4) {
        killed_fit fit = base(NULL);
        reference want;
        int n = 0;

        fit.val_check_interval = interval;
        fit.checkpoint.async = interval == 0;
        want = make_reference(fit);
        for (fit.term_at = 1; check(fit, &want); fit.term_at++)
            n++;
        assert_int_equal(n, 17);
        reference_end(&want);
    }
}

/* The averages are in the parameters' place then, and go back before the state is saved. */
static void failed_at_the_end_of_a_validation(void **state)
{
    killed_fit fit = base(NULL);
    reference want;
    int n = 0;

    (void)state;
    fit.checkpoint.on_exception = true;
    want = make_reference(fit);
    for (fit.fail_validation_at = 1; check(fit, &want); fit.fail_validation_at++)
        n++;
    assert_int_equal(n, 3);
    reference_end(&want);
}

/* Micro-batches and a scale of the loss: what is saved is between updates. */
static void accumulated_and_scaled_it_is_the_same(void **state)
{
    killed_fit fit = base(NULL);
    reference want;
    int n = 0;

    (void)state;
    fit.accumulate = 4;
    fit.precision = "16-mixed";
    fit.checkpoint.every_n_train_steps = 1;
    want = make_reference(fit);
    for (fit.kill.batch = 1; check(fit, &want); fit.kill.batch++)
        n++;
    assert_int_equal(n, 18);
    reference_end(&want);
}

/* --- other numbers of workers --------------------------------------------- */

static void no_sample_is_lost_by_other_numbers_of_workers(void **state)
{
    (void)state;
    for (int devices = 1; devices <= 3; devices++) {
        killed_fit fit = base(NULL);
        bool in_epoch[3][FIT_MAX] = {{false}};
        killed_result r;
        seen_rows *seen;
        scratch s;

        if (devices == 2)
            continue;
        scratch_begin(&s);
        fit.root = s.dir;
        fit.devices = 2;
        fit.batch_size = 4;
        fit.kill.batch = 11; /* the checkpoint is of batch 4 of epoch 1 */
        r = killed_fit_run(&fit);
        assert_true(r.how != 0 || r.status != TRI_OK);
        seen = read_seen(&s);
        fit.kill.batch = 0;
        fit.devices = devices;
        fit.ckpt_path = "last";
        r = killed_fit_run(&fit);
        if (r.how != 0 || r.status != TRI_OK)
            fail_msg("%x: %s", (unsigned)r.how, r.line);
        assert_int_equal(r.result.epochs, 3);
        for (int run = 0; run < 2; run++) {
            for (int e = 0; e < 3; e++)
                for (int b = 0; b < 64; b++)
                    for (int k = 0; k < 4; k++) {
                        char *at = seen->row[e][b][k];

                        /* of the run that was killed only what is in its checkpoint */
                        for (; *at == ' ' && (run == 1 || e == 0 || b < 4);
                             at += 1 + strcspn(at + 1, " "))
                            in_epoch[e][strtol(at, NULL, 10)] = true;
                    }
            free(seen);
            if (run == 0) {
                FILE *file = fopen(scratch_path(&s, "seen"), "r");

                assert_non_null(file);
                fclose(file);
                seen = read_seen(&s);
            }
        }
        for (int e = 0; e < 3; e++)
            for (int k = 0; k < 43; k++)
                assert_true(in_epoch[e][k]);
        scratch_end(&s);
    }
}

/* --- what cannot be resumed ----------------------------------------------- */

static void another_seed_or_batch_is_refused(void **state)
{
    killed_fit fit, other;
    killed_result r;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    fit.kill.batch = 9;
    r = killed_fit_run(&fit);
    assert_true(r.how != 0);
    fit.kill.batch = 0;
    fit.ckpt_path = "last";
    other = fit;
    other.seed = 6;
    r = killed_fit_run(&other);
    assert_int_equal(r.status, TRI_ERR_INVALID_ARG);
    assert_non_null(strstr(r.line, "seed 6: the run was started with 5"));
    other = fit;
    other.batch_size = 4;
    r = killed_fit_run(&other);
    assert_int_equal(r.status, TRI_ERR_INVALID_ARG);
    assert_non_null(strstr(r.line, "batch_size 4: the run was started with 8"));
    other.resume_anyway = true;
    r = killed_fit_run(&other);
    assert_int_equal(r.status, TRI_OK);
    assert_int_equal(r.result.epochs, 3);
    scratch_end(&s);
}

static void other_data_are_refused(void **state)
{
    killed_fit fit, other;
    killed_result r;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    fit.kill.batch = 5; /* the checkpoint is of batch 4 */
    r = killed_fit_run(&fit);
    assert_true(r.how != 0);
    fit.kill.batch = 0;
    fit.ckpt_path = "last";
    other = fit;
    other.samples = 17;
    r = killed_fit_run(&other);
    assert_int_equal(r.status, TRI_ERR_INVALID_ARG);
    assert_non_null(strstr(r.line, "train_samples 17: the run was started with 43"));
    other.resume_anyway = true; /* 3 batches an epoch: the first is over */
    r = killed_fit_run(&other);
    assert_int_equal(r.how, 0);
    assert_int_equal(r.status, TRI_OK);
    assert_int_equal(r.result.epochs, 3);
    assert_int_equal(r.result.steps, 4 + 2 * 3);
    scratch_end(&s);
}

static void fewer_batches_end_the_epoch(void **state)
{
    killed_fit fit;
    killed_result r;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    fit.kill.batch = 5;
    r = killed_fit_run(&fit);
    assert_true(r.how != 0);
    fit.kill.batch = 0;
    fit.ckpt_path = "last";
    fit.limit_train_batches = 3;
    r = killed_fit_run(&fit);
    assert_int_equal(r.how, 0);
    assert_int_equal(r.status, TRI_OK);
    assert_int_equal(r.result.epochs, 3);
    assert_int_equal(r.result.steps, 4 + 2 * 3);
    scratch_end(&s);
}

/* max_steps ends the epoch at an update that was saved, and only then comes its value. */
static void the_last_value_counts_for_the_best(void **state)
{
    killed_fit fit;
    killed_result r;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    fit.val_check_interval = 0;
    fit.max_steps = 4;
    r = killed_fit_run(&fit);
    assert_int_equal(r.status, TRI_OK);
    assert_true(r.result.best_value == tri_fit_result_value(&r.result, "val_loss"));
    assert_string_equal(base_name(r.result.best_path), "step-000000000004");
    fit.ckpt_path = "best";
    fit.max_steps = 0;
    r = killed_fit_run(&fit);
    assert_int_equal(r.status, TRI_OK);
    assert_int_equal(r.result.epochs, 3);
    scratch_end(&s);
}

/* The best of another name is no best of this one. */
static void early_stopping_of_another_name_begins_again(void **state)
{
    tri_fit_early_stopping_options early = {.monitor = "least"};
    killed_fit fit;
    killed_result r;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    fit.max_epochs = 2;
    r = killed_fit_run(&fit);
    assert_int_equal(r.status, TRI_OK);
    early.mode = "max"; /* whatever val_loss was, it is no bound */
    early.patience = TRI_SET(1);
    fit.early = &early;
    fit.ckpt_path = "last";
    fit.max_epochs = 3;
    r = killed_fit_run(&fit);
    assert_int_equal(r.status, TRI_OK);
    assert_int_equal(r.result.reason, TRI_STOP_MAX_EPOCHS);
    scratch_end(&s);
}

static void another_learning_rate_is_told(void **state)
{
    killed_fit fit;
    killed_result r;
    char *text;
    size_t n;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    fit.kill.batch = 9;
    r = killed_fit_run(&fit);
    assert_true(r.how != 0);
    fit.kill.batch = 0;
    fit.ckpt_path = "last";
    fit.lr = 0.05;
    fit.said = scratch_path(&s, "said");
    r = killed_fit_run(&fit);
    assert_int_equal(r.status, TRI_OK);
    text = scratch_read(fit.said, &n);
    if (strstr(text, "resuming with lr 0.05, the run had 0.2") == NULL)
        fail_msg("%s", text);
    free(text);
    text = records(&s); /* and it counts: half of the way down */
    assert_non_null(strstr(text, "{\"step\":10,\"epoch\":2,"));
    assert_non_null(strstr(text, "\"lr\":0.025}"));
    free(text);
    scratch_end(&s);
}

/* What a fit that has been killed, if `killed`, says when it begins (again) with these options. */
static void expect_said(const killed_fit *given, bool killed, const char *line)
{
    killed_fit fit = *given;
    killed_result r;
    char *text;
    size_t n;
    scratch s;

    scratch_begin(&s);
    fit.root = s.dir;
    if (killed) {
        killed_fit first = base(s.dir);

        first.kill.batch = 9;
        r = killed_fit_run(&first);
        assert_true(r.how != 0);
        fit.ckpt_path = "last";
    }
    fit.said = scratch_path(&s, "said");
    r = killed_fit_run(&fit);
    assert_int_equal(r.status, TRI_OK);
    text = scratch_read(fit.said, &n);
    if (strstr(text, line) == NULL)
        fail_msg("%s", text);
    free(text);
    scratch_end(&s);
}

/* As when a default is another one in a later version. */
static void another_clipping_is_told(void **state)
{
    killed_fit fit = base(NULL);

    (void)state;
    fit.clip = 1;
    expect_said(&fit, true, "resuming with gradient_clip_val 1, the run had 0\n");
}

static void a_first_rate_of_0_is_told(void **state)
{
    killed_fit fit = base(NULL);

    (void)state;
    fit.warm_up = true;
    expect_said(&fit, false, "the learning rate of the first update is 0, so that it changes");
}

/* Nor is a folder made for a run that cannot begin. */
static void what_is_not_there_is_named(void **state)
{
    killed_fit fit;
    killed_result r;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    fit.ckpt_path = "best";
    r = killed_fit_run(&fit);
    assert_int_equal(r.status, TRI_ERR_NOT_FOUND);
    assert_non_null(strstr(r.line, "no run to continue"));
    fit.ckpt_path = scratch_path(&s, "nowhere");
    r = killed_fit_run(&fit);
    assert_int_equal(r.status, TRI_ERR_NOT_FOUND);
    assert_non_null(strstr(r.line, "nowhere: there is no such"));
    assert_int_equal(scratch_count(s.dir), 0);
    scratch_end(&s);
}

/* A run that is over says so, and changes nothing. */
static void a_complete_run_has_nothing_to_train(void **state)
{
    killed_fit fit;
    killed_result first, again;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    first = killed_fit_run(&fit);
    assert_int_equal(first.status, TRI_OK);
    fit.ckpt_path = "last";
    fit.max_epochs = 2;
    again = killed_fit_run(&fit);
    assert_int_equal(again.status, TRI_OK);
    assert_int_equal(again.result.steps, first.result.steps);
    assert_true(again.hash == first.hash);
    assert_non_null(strstr(again.result.why, "complete"));
    assert_string_equal(again.result.best_path, first.result.best_path);
    scratch_end(&s);
}

static void weights_alone_cannot_be_resumed(void **state)
{
    killed_fit fit;
    killed_result r;
    char path[512];
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    fit.checkpoint.weights_only = true;
    r = killed_fit_run(&fit);
    assert_int_equal(r.status, TRI_OK);
    snprintf(path, sizeof(path), "%s/model.safetensors", r.result.best_path);
    fit.ckpt_path = "last";
    r = killed_fit_run(&fit);
    assert_int_equal(r.status, TRI_ERR_FORMAT);
    assert_non_null(strstr(r.line, "weights only"));
    fit.ckpt_path = path; /* but a run can begin with them */
    fit.root = scratch_path(&s, "other");
    assert_int_equal(mkdir(fit.root, 0777), 0);
    r = killed_fit_run(&fit);
    assert_int_equal(r.status, TRI_OK);
    assert_int_equal(r.result.epochs, 3);
    scratch_end(&s);
}

static void what_stays_is_the_best_and_the_last(void **state)
{
    killed_fit fit;
    killed_result r;
    size_t n;
    char *text;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit = base(s.dir);
    fit.checkpoint.keep_last = 1;
    fit.checkpoint.save_top_k = 1;
    r = killed_fit_run(&fit);
    assert_int_equal(r.status, TRI_OK);
    assert_in_range(scratch_count(scratch_path(&s, "run/checkpoints")), 1, 2);
    assert_int_equal(access(r.result.best_path, F_OK), 0);
    text = scratch_read(scratch_path(&s, "run/best.json"), &n);
    assert_non_null(strstr(text, "\"name\":\"val_loss\""));
    free(text);
    assert_int_equal(access(scratch_path(&s, "run/config.json"), F_OK), 0);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(killed_after_any_batch),
    cmocka_unit_test(killed_in_any_batch_of_validation),
    cmocka_unit_test(killed_in_any_save),
    cmocka_unit_test(two_workers_killed_after_any_batch),
    cmocka_unit_test(stopped_by_a_signal_at_any_batch),
    cmocka_unit_test(failed_at_the_end_of_a_validation),
    cmocka_unit_test(accumulated_and_scaled_it_is_the_same),
    cmocka_unit_test(no_sample_is_lost_by_other_numbers_of_workers),
    cmocka_unit_test(another_seed_or_batch_is_refused),
    cmocka_unit_test(other_data_are_refused),
    cmocka_unit_test(fewer_batches_end_the_epoch),
    cmocka_unit_test(the_last_value_counts_for_the_best),
    cmocka_unit_test(early_stopping_of_another_name_begins_again),
    cmocka_unit_test(another_learning_rate_is_told),
    cmocka_unit_test(another_clipping_is_told),
    cmocka_unit_test(a_first_rate_of_0_is_told),
    cmocka_unit_test(what_is_not_there_is_named),
    cmocka_unit_test(a_complete_run_has_nothing_to_train),
    cmocka_unit_test(weights_alone_cannot_be_resumed),
    cmocka_unit_test(what_stays_is_the_best_and_the_last),
};
TEST_MAIN(tests)
