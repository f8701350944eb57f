/* log_book_test.c - what steps log, over ranks that are threads. */
#define MAX_RANKS 8
#include <math.h>
#include <string.h>

#include <trireme/records.h>

#include "testing/fit_problem.h"

#define SAMPLES 10000

/* A task without anything to train: it logs what the case says. */
typedef struct log_case {
    void (*log)(tri_trainer *t, const tri_batch *batch, int64_t call);
    tri_dataset *val;
    int64_t batch_size;
    const char *names[4]; /* whose values the body leaves in weights, up to NULL */
} log_case;

typedef struct log_arg {
    const log_case *c;
    int64_t call; /* of this rank's step */
} log_arg;

static tri_module *log_model(void *arg)
{
    (void)arg;
    return tri_nn_linear(1, 1, NULL);
}

static void log_validation_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    log_arg *a = arg;

    a->c->log(t, batch, a->call++);
}

static const tri_task log_task = {
    .name = "log", .model = log_model, .validation_step = log_validation_step};

static tri_status run_validate(rank *r)
{
    const log_case *c = r->arg;
    const tri_fit_options options = {
        .ddp = &(tri_ddp_options){.group = r->group}, .no_progress = true, .no_summary = true};
    log_arg arg = {.c = c};
    tri_fit_result result;

    TRY(tri_validate(&log_task, &(tri_fit_data){.val = c->val, .batch_size = c->batch_size},
                     &options, &arg, &result));
    for (; r->n_weights < 4 && c->names[r->n_weights] != NULL; r->n_weights++)
        r->weights[r->n_weights] = tri_fit_result_value(&result, c->names[r->n_weights]);
    return TRI_OK;
}

static float values[SAMPLES];

static tri_dataset *make_samples(int64_t n)
{
    static const tri_field field = {TRI_DTYPE_F32, 1, {1}};
    const void *data[] = {values};
    tri_dataset *dataset = NULL;

    for (int64_t i = 0; i < n; i++)
        values[i] = (float)((i * 7919) % 1000) / 1000;
    CHECK_OK(tri_dataset_arrays(n, &field, data, 1, &dataset));
    return dataset;
}

/* Each value on each rank, with the same bits everywhere. */
static void check_values(const rank *ranks, int size, const double *wanted, int n)
{
    check_ranks(ranks, size);
    for (int r = 0; r < size; r++) {
        assert_int_equal(ranks[r].n_weights, n);
        for (int i = 0; i < n; i++) {
            bool same =
                isnan(wanted[i]) ? isnan(ranks[r].weights[i]) : ranks[r].weights[i] == wanted[i];

            if (!same)
                fail_msg("value %d on rank %d of %d: %.17g instead of %.17g", i, r, size,
                         ranks[r].weights[i], wanted[i]);
        }
    }
}

/* --- sums ----------------------------------------------------------------- */

static void log_right(tri_trainer *t, const tri_batch *batch, int64_t call)
{
    static const tri_trainer_log_options count = {.count = true}, sum = {.reduce = "sum"};
    tri_tensor *x = batch->fields[0];

    (void)call;
    tri_trainer_log(
        t, "accuracy",
        tri_sum(tri_cast(tri_lt(x, tri_full(NULL, 0, 0.3, TRI_DTYPE_F32)), TRI_DTYPE_F32), NULL, 0,
                false),
        &count);
    tri_trainer_log_value(t, "samples", (double)batch->size, &sum);
}

/* As one process, whatever the batches and ranks: what is counted is whole. */
static void counts_are_exact_over_ranks_and_batches(void **state)
{
    static const int64_t sizes[] = {7, 64, 3333, SAMPLES};
    log_case c = {.log = log_right, .val = make_samples(SAMPLES), .names = {"accuracy", "samples"}};
    int64_t right = 0;
    rank ranks[MAX_RANKS];

    (void)state;
    for (int64_t i = 0; i < SAMPLES; i++)
        right += values[i] < 0.3f;
    for (size_t b = 0; b < TRII_COUNT_OF(sizes); b++) {
        for (int size = 1; size <= MAX_RANKS; size += TEST_SANITIZED ? 3 : 1) {
            const double wanted[] = {(double)right / SAMPLES, SAMPLES};

            if (TEST_SANITIZED && sizes[b] < 64)
                continue;
            c.batch_size = sizes[b];
            run_ranks(ranks, size, run_validate, &c);
            check_values(ranks, size, wanted, 2);
        }
    }
    tri_dataset_destroy(c.val);
}

static void log_extremes(tri_trainer *t, const tri_batch *batch, int64_t call)
{
    static const tri_trainer_log_options least = {.reduce = "min"}, greatest = {.reduce = "max"};
    double own = 10 * tri_trainer_rank(t) + (double)call;

    tri_trainer_log_value(t, "least", -own, &least);
    tri_trainer_log(t, "greatest", tri_amax(batch->fields[0], NULL, 0, false), &greatest);
    tri_trainer_log_value(t, "nan", call == 1 && tri_trainer_rank(t) == 0 ? (double)NAN : own,
                          &least);
    tri_trainer_log_value(t, "nan_mean", call == 1 && tri_trainer_rank(t) == 0 ? (double)NAN : own,
                          NULL);
}

static void extremes_are_those_of_all_and_a_nan_stays(void **state)
{
    log_case c = {.log = log_extremes,
                  .val = make_samples(60),
                  .batch_size = 4,
                  .names = {"least", "greatest", "nan", "nan_mean"}};
    rank ranks[MAX_RANKS];
    float greatest = 0;

    (void)state;
    for (int i = 0; i < 60; i++)
        greatest = values[i] > greatest ? values[i] : greatest;
    for (int size = 1; size <= 3; size++) {
        double wanted[] = {-(10 * (size - 1) + (60 / size + 3) / 4 - 1), (double)greatest,
                           (double)NAN, (double)NAN};

        run_ranks(ranks, size, run_validate, &c);
        check_values(ranks, size, wanted, 4);
    }
    tri_dataset_destroy(c.val);
}

/* A rank without samples takes part, and learns the values. */
static void ranks_without_a_batch_know_the_values(void **state)
{
    log_case c = {.log = log_right,
                  .val = make_samples(2),
                  .batch_size = 4,
                  .names = {"accuracy", "samples", "never"}};
    rank ranks[MAX_RANKS];

    (void)state;
    run_ranks(ranks, 5, run_validate, &c);
    check_values(ranks, 5, (const double[]){0.5, 2, (double)NAN}, 3);
    tri_dataset_destroy(c.val);
}

static void log_nothing(tri_trainer *t, const tri_batch *batch, int64_t call)
{
    (void)t;
    (void)batch;
    (void)call;
}

static void steps_may_log_nothing(void **state)
{
    log_case c = {.log = log_nothing, .val = make_samples(9), .batch_size = 2, .names = {"x"}};
    rank ranks[MAX_RANKS];

    (void)state;
    run_ranks(ranks, 3, run_validate, &c);
    check_values(ranks, 3, (const double[]){(double)NAN}, 1);
    tri_dataset_destroy(c.val);
}

/* --- names ---------------------------------------------------------------- */

static void log_in_another_order(tri_trainer *t, const tri_batch *batch, int64_t call)
{
    static const char *const names[] = {"a", "b", "c"};
    int first = tri_trainer_rank(t) + (int)call;

    (void)batch;
    for (int i = 0; i < 3; i++)
        tri_trainer_log_value(t, names[(first + i) % 3], (first + i) % 3, NULL);
}

static void the_order_of_names_does_not_matter(void **state)
{
    log_case c = {.log = log_in_another_order,
                  .val = make_samples(50),
                  .batch_size = 5,
                  .names = {"a", "b", "c"}};
    rank ranks[MAX_RANKS];

    (void)state;
    run_ranks(ranks, 4, run_validate, &c);
    check_values(ranks, 4, (const double[]){0, 1, 2}, 3);
    tri_dataset_destroy(c.val);
}

static void log_one_more(tri_trainer *t, const tri_batch *batch, int64_t call)
{
    (void)batch;
    (void)call;
    tri_trainer_log_value(t, "common", 1, NULL);
    if (tri_trainer_rank(t) == 2)
        tri_trainer_log_value(t, "only_here", 1, NULL);
}

static void log_another(tri_trainer *t, const tri_batch *batch, int64_t call)
{
    (void)batch;
    (void)call;
    tri_trainer_log_value(t, tri_trainer_rank(t) == 1 ? "accuracy" : "acc", 1, NULL);
}

/* Each name ends as the line of the other does: "0 loss" and "0 a 0 loss". */
static void log_a_longer_name(tri_trainer *t, const tri_batch *batch, int64_t call)
{
    (void)batch;
    (void)call;
    tri_trainer_log_value(t, "a 0 loss", 1, NULL);
    if (tri_trainer_rank(t) == 0)
        tri_trainer_log_value(t, "loss", 2, NULL);
}

static void log_other_reduce(tri_trainer *t, const tri_batch *batch, int64_t call)
{
    (void)batch;
    (void)call;
    tri_trainer_log_value(
        t, "x", 1, &(tri_trainer_log_options){.reduce = tri_trainer_rank(t) == 0 ? "max" : "mean"});
}

static void all_ranks_are_told_who_logs_another_name(void **state)
{
    static const struct {
        void (*log)(tri_trainer *t, const tri_batch *batch, int64_t call);
        const char *says;
    } cases[] = {{log_one_more, "rank 2 logs \"only_here\" and rank 0 does not"},
                 {log_another, "rank 1 logs \"accuracy\" and rank 0 does not"},
                 {log_a_longer_name, "rank 0 logs \"loss\" and rank 1 does not"},
                 {log_other_reduce, "rank 1 logs \"x\" and rank 0 does not (or with another"}};
    rank ranks[MAX_RANKS];

    (void)state;
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        log_case c = {.log = cases[i].log, .val = make_samples(20), .batch_size = 5};

        run_ranks(ranks, 3, run_validate, &c);
        for (int r = 0; r < 3; r++) {
            if (ranks[r].status >= 0 || strstr(ranks[r].line, cases[i].says) == NULL)
                fail_msg("rank %d: %s: \"%s\" lacks \"%s\"", r, tri_status_name(ranks[r].status),
                         ranks[r].line, cases[i].says);
        }
        tri_dataset_destroy(c.val);
    }
}

static void log_local_values(tri_trainer *t, const tri_batch *batch, int64_t call)
{
    static const tri_trainer_log_options local = {.local = true},
                                         local_sum = {.local = true, .reduce = "sum"};

    tri_trainer_log_value(t, "common", 1, NULL);
    tri_trainer_log_value(t, "call", (double)call, &local);
    if (tri_trainer_rank(t) == 1)
        tri_trainer_log(t, "only",
                        tri_sum(tri_ones(TRI_SHAPE(batch->size), TRI_DTYPE_F32), NULL, 0, false),
                        &local_sum);
}

static void local_values_are_of_one_rank_and_known_to_all(void **state)
{
    log_case c = {.log = log_local_values,
                  .val = make_samples(24),
                  .batch_size = 4,
                  .names = {"common", "call/rank0", "call/rank1", "only/rank1"}};
    rank ranks[MAX_RANKS];

    (void)state;
    run_ranks(ranks, 2, run_validate, &c); /* 3 batches each: 0, 1, 2 */
    check_values(ranks, 2, (const double[]){1, 1, 1, 12}, 4);
    c.names[2] = "call";
    c.names[3] = "call/rank1";
    run_ranks(ranks, 1, run_validate, &c); /* 6: 0 to 5 */
    check_values(ranks, 1, (const double[]){1, 2.5, (double)NAN, (double)NAN}, 4);
    tri_dataset_destroy(c.val);
}

static void log_badly(tri_trainer *t, const tri_batch *batch, int64_t call)
{
    (void)batch;
    if (call == 1 && tri_trainer_rank(t) == 1)
        tri_trainer_log_value(t, "a\xffz", 1, NULL);
    else
        tri_trainer_log_value(t, "x", 1, NULL);
}

static void a_bad_name_on_one_rank_ends_all(void **state)
{
    log_case c = {.log = log_badly, .val = make_samples(30), .batch_size = 4};
    rank ranks[MAX_RANKS];

    (void)state;
    run_ranks(ranks, 3, run_validate, &c);
    for (int r = 0; r < 3; r++) {
        if (ranks[r].status >= 0 || strstr(ranks[r].line, "the name \"a\xffz\": 1 to 63") == NULL)
            fail_msg("rank %d: %s: %s", r, tri_status_name(ranks[r].status), ranks[r].line);
    }
    tri_dataset_destroy(c.val);
}

/* --- training ------------------------------------------------------------- */

/* Logs the sample's own value, so that a mean is known. */
static tri_tensor *log_training_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    const tri_trainer_log_options both = {.on_epoch = TRI_SET(true)},
                                  epoch = {.on_step = TRI_SET(false),
                                           .on_epoch = TRI_SET(true),
                                           .count = true};
    tri_tensor *x = batch->fields[0];

    (void)arg;
    tri_trainer_log(t, "mean", tri_mean(x, NULL, 0, false), &both);
    tri_trainer_log(t, "total", tri_sum(x, NULL, 0, false), &epoch);
    return tri_mean(tri_square(tri_forward(tri_trainer_model(t), x)), NULL, 0, false);
}

static tri_optimizer *log_optimizer(tri_module *model, void *arg)
{
    (void)arg;
    return tri_sgd(model, 0.01, NULL);
}

static const tri_task training_task = {.name = "log",
                                       .model = log_model,
                                       .optimizer = log_optimizer,
                                       .training_step = log_training_step};

typedef struct training_case {
    tri_dataset *train;
    const char *folder;
    int64_t every;
} training_case;

static tri_status run_training(rank *r)
{
    const training_case *c = r->arg;
    static const char *const names[] = {"mean_step", "mean_epoch", "total"};
    tri_fit_options options = fit_quiet(c->folder);
    tri_fit_result result;

    options.max_epochs = 2;
    options.log_every_n_steps = c->every;
    options.no_checkpoint = true;
    options.ddp = &(tri_ddp_options){.group = r->group};
    TRY(tri_fit(&training_task,
                &(tri_fit_data){.train = c->train, .batch_size = 4, .no_shuffle = true}, &options,
                NULL, &result));
    for (int i = 0; i < 3; i++)
        r->weights[r->n_weights++] = tri_fit_result_value(&result, names[i]);
    return TRI_OK;
}

/* Samples are dealt out in order: the batch of an update is of samples that follow each other. */
static void values_of_updates_and_epochs_are_of_all_ranks(void **state)
{
    static const tri_field field = {TRI_DTYPE_F32, 1, {1}};
    const void *data[] = {values};
    training_case c = {.every = 3};
    rank ranks[MAX_RANKS];
    scratch s;

    (void)state;
    scratch_begin(&s);
    for (int i = 0; i < 48; i++)
        values[i] = (float)i;
    CHECK_OK(tri_dataset_arrays(48, &field, data, 1, &c.train));
    c.folder = s.dir;
    for (int size = 1; size <= 4; size++) {
        /* of 48 / (4 * size) updates an epoch, the last that is a multiple of 3 */
        int updates = 48 / (4 * size), last = (2 * updates / 3 * 3 - 1) % updates;
        const double wanted[] = {4 * size * last + (4 * size - 1) / 2.0, 23.5, 23.5};

        run_ranks(ranks, size, run_training, &c);
        check_values(ranks, size, wanted, 3);
    }
    tri_dataset_destroy(c.train);
    scratch_end(&s);
}

/* --- files ---------------------------------------------------------------- */

typedef struct board_watch {
    tri_callback base;
    bool has_board;
} board_watch;

static tri_status look_for_board(tri_callback *self, tri_trainer *t)
{
    ((board_watch *)self)->has_board = tri_trainer_tensorboard(t) != NULL;
    return TRI_OK;
}

static const tri_callback_class board_class = {.name = "board", .fit_end = look_for_board};

static void records_go_to_all_files_that_are_wanted(void **state)
{
    fit_samples train;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&train, 40, 1);
    for (int more = 0; more < 2; more++) {
        board_watch watch = {.base = {.cls = &board_class}};
        tri_callback *callbacks[] = {&watch.base};
        tri_fit_options options = fit_quiet(s.dir);
        fit_arg arg = {.lr = 0.2};
        tri_fit_result result;
        char path[TRI_FIT_PATH_BYTES + 32], *text;
        size_t n;

        options.max_epochs = 2;
        options.log_every_n_steps = 2;
        options.csv = options.tensorboard = more;
        options.no_checkpoint = true;
        options.callbacks = callbacks;
        options.n_callbacks = 1;
        CHECK_OK(tri_fit(&fit_task, &(tri_fit_data){.train = train.dataset, .batch_size = 8},
                         &options, &arg, &result));
        assert_true(watch.has_board == more);
        snprintf(path, sizeof(path), "%s/metrics.jsonl", result.run_dir);
        text = scratch_read(path, &n);
        assert_memory_equal(text, "{\"step\":2,\"epoch\":1,", 20);
        free(text);
        assert_int_equal(scratch_count(result.run_dir), more ? 4 : 2); /* and config.json */
        if (!more)
            continue;
        snprintf(path, sizeof(path), "%s/metrics.csv", result.run_dir);
        text = scratch_read(path, &n);
        assert_memory_equal(text, "step,epoch,accuracy,loss,lr,samples_per_s\n2,1,", 46);
        free(text);
    }
    tri_dataset_destroy(train.dataset);
    scratch_end(&s);
}

/* One epoch more each time; the last two begin after a checkpoint that later records follow. */
static void a_resumed_fit_has_no_record_twice(void **state)
{
    fit_samples train;
    scratch s;

    (void)state;
    scratch_begin(&s);
    fit_samples_make(&train, 40, 1);
    for (int64_t epochs = 1; epochs <= 3; epochs++) {
        tri_fit_options options = fit_quiet(s.dir);
        fit_arg arg = {.lr = 0.2};
        char path[TRI_FIT_PATH_BYTES + 32], *text;
        tri_fit_result result;
        int64_t step = 0;
        size_t n;

        options.max_epochs = epochs;
        options.log_every_n_steps = 1;
        options.csv = options.tensorboard = true;
        options.resume_anyway = true; /* another max_epochs */
        options.run_name = "run";
        options.ckpt_path = "last";
        if (epochs > 1) { /* as of a run that was killed one update after its checkpoint */
            tri_csv *csv;

            snprintf(path, sizeof(path), "%s/run/metrics.csv", s.dir);
            CHECK_OK(tri_csv_open(path, INT64_MAX, &csv));
            CHECK_OK(tri_csv_write(
                csv, (const tri_metric[]){{"step", (double)(5 * epochs - 4)}, {"loss", 77}}, 2));
            tri_csv_close(csv);
        }
        CHECK_OK(tri_fit(&fit_task, &(tri_fit_data){.train = train.dataset, .batch_size = 8},
                         &options, &arg, &result));
        snprintf(path, sizeof(path), "%s/metrics.csv", result.run_dir);
        text = scratch_read(path, &n);
        for (const char *line = strchr(text, '\n') + 1; *line != '\0';
             line = strchr(line, '\n') + 1)
            assert_int_equal(strtol(line, NULL, 10), ++step);
        assert_int_equal(step, 5 * epochs);
        free(text);
    }
    tri_dataset_destroy(train.dataset);
    scratch_end(&s);
}

static tri_tensor *local_training_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    tri_trainer_log_value(
        t, "samples", (double)batch->size,
        &(tri_trainer_log_options){
            .local = true, .reduce = "sum", .on_step = TRI_SET(false), .on_epoch = TRI_SET(true)});
    return log_training_step(t, batch, arg);
}

static tri_status run_resumed(rank *r)
{
    const training_case *c = r->arg;
    tri_task task = training_task;

    task.training_step = local_training_step;
    for (int64_t epochs = 1; epochs <= 2; epochs++) {
        tri_fit_options options = fit_quiet(c->folder);
        tri_fit_result result;

        options.max_epochs = epochs;
        options.run_name = "run";
        options.ckpt_path = "last";
        options.resume_anyway = true; /* another max_epochs */
        options.ddp = &(tri_ddp_options){.group = r->group};
        TRY(tri_fit(&task, &(tri_fit_data){.train = c->train, .batch_size = 4}, &options, NULL,
                    &result));
        r->weights[r->n_weights++] = tri_fit_result_value(&result, "samples/rank0");
        r->weights[r->n_weights++] = tri_fit_result_value(&result, "samples/rank1");
    }
    return TRI_OK;
}

/* The checkpoint is rank 0's, and says how rank 1 adds up what is its own. */
static void a_local_sum_stays_a_sum_when_resumed(void **state)
{
    training_case c = {.train = make_samples(48)};
    rank ranks[MAX_RANKS];
    scratch s;

    (void)state;
    scratch_begin(&s);
    c.folder = s.dir;
    run_ranks(ranks, 2, run_resumed, &c);
    check_values(ranks, 2, (const double[]){24, 24, 24, 24}, 4);
    tri_dataset_destroy(c.train);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(counts_are_exact_over_ranks_and_batches),
    cmocka_unit_test(extremes_are_those_of_all_and_a_nan_stays),
    cmocka_unit_test(ranks_without_a_batch_know_the_values),
    cmocka_unit_test(steps_may_log_nothing),
    cmocka_unit_test(the_order_of_names_does_not_matter),
    cmocka_unit_test(all_ranks_are_told_who_logs_another_name),
    cmocka_unit_test(local_values_are_of_one_rank_and_known_to_all),
    cmocka_unit_test(a_bad_name_on_one_rank_ends_all),
    cmocka_unit_test(values_of_updates_and_epochs_are_of_all_ranks),
    cmocka_unit_test(records_go_to_all_files_that_are_wanted),
    cmocka_unit_test(a_resumed_fit_has_no_record_twice),
    cmocka_unit_test(a_local_sum_stays_a_sum_when_resumed),
};
TEST_MAIN(tests)
