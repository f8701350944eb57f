/*
 * killed_fit.h - a fit that is killed somewhere, and what it has left behind. Tests only.
 *
 * Each run is a process of its own, with one worker or several. Its disk never waits: what a killed
 * process has written stays, since the machine runs on.
 */
#ifndef TEST_KILLED_FIT_H
#define TEST_KILLED_FIT_H

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>

#include <trireme/launch.h>

#include "base/err.h"
#include "os/clock.h"
#include "testing/fit_problem.h"

/* Where a run kills its rank 0; 0 = not there. */
typedef struct kill_plan {
    int64_t batch;      /* after so many batches of this process */
    int64_t validation; /* in so many a batch of validation of this process */
    int64_t sync;       /* when so many files were to be synced */
    int64_t full_after; /* instead, the disk is full after so many */
    int64_t after_ns;   /* by then, wherever it is */
    int64_t term_sync;  /* instead, SIGTERM comes when so many were to be synced */
} kill_plan;

typedef struct killed_fit {
    const char *root;
    int devices;
    int64_t samples, batch_size, max_epochs;
    tri_fit_checkpoint_options checkpoint;
    const tri_fit_early_stopping_options *early;
    const tri_fit_ema_options *ema;
    const char *ckpt_path, *precision, *strategy;
    int64_t accumulate, val_check_interval;
    uint64_t seed;
    double lr;        /* 0 = 0.2 */
    double clip;      /* gradient_clip_val */
    bool warm_up;     /* from a rate of 0 */
    const char *said; /* a file for what goes to stderr; NULL = none */
    bool resume_anyway;
    kill_plan kill;
    int64_t fail_at;            /* a callback fails after so many batches; 0 = never */
    int64_t fail_validation_at; /* and at the end of so many validations */
    int64_t term_at;            /* SIGTERM comes after so many batches */
    bool term_twice;            /* and again */
    int64_t nan_at;             /* the loss is NaN in so many a batch of rank 1 */
    bool detect_anomaly;
    bool as_user;   /* whom the rights of files concern */
    bool to_parent; /* to the process that has started rank 0, which waits until it hears of it */
    int64_t max_steps, limit_train_batches;
    bool validate;  /* tri_validate instead */
    bool no_val;    /* without a validation set */
    int64_t sanity; /* num_sanity_val_steps */
    /* of the process that runs it */
    int64_t n_batches, n_validations, n_validated;
    fit_samples *train;
} killed_fit;

typedef struct killed_result {
    int how; /* as waitpid tells it */
    tri_status status;
    uint64_t hash;
    tri_fit_result result;
    char line[512];
} killed_result;

static int64_t killed_syncs; /* until the process is killed; 0 = never */
static int64_t full_syncs;   /* until the disk is full; 0 = never, -1 = it is */
static int64_t term_syncs;   /* until SIGTERM comes; 0 = never */

/* In place of libc's. */
int fsync(int fd)
{
    (void)fd;
    if (killed_syncs > 0 && --killed_syncs == 0)
        (void)raise(SIGKILL);
    if (term_syncs > 0 && --term_syncs == 0)
        (void)kill(getpid(), SIGTERM);
    if (full_syncs > 0 && --full_syncs == 0)
        full_syncs = -1;
    errno = ENOSPC;
    return full_syncs == -1 ? -1 : 0;
}

typedef struct killer {
    tri_callback base;
    killed_fit *fit;
    int64_t said; /* a state of its own, which counts updates */
    uint64_t hash;
} killer;

/* Which samples each rank has seen: "epoch batch rank id id ..". */
static inline tri_status killer_batch_begin(tri_callback *self, tri_trainer *t,
                                            const tri_batch *batch)
{
    const killed_fit *f = ((killer *)self)->fit;
    float rows[FIT_MAX][FIT_IN];
    char path[512];
    FILE *file;

    TRY(tri_tensor_copy_out(batch->fields[0], rows, (size_t)batch->size * sizeof(rows[0])));
    snprintf(path, sizeof(path), "%s/seen", f->root);
    file = fopen(path, "a");
    if (file == NULL)
        return TRI_ERR_IO;
    setvbuf(file, NULL, _IOFBF, 4096); /* one write */
    fprintf(file, "%lld %lld %d", (long long)tri_trainer_epoch(t), (long long)batch->index,
            tri_trainer_rank(t));
    for (int64_t i = 0; i < batch->size; i++) {
        for (int k = 0; k < FIT_MAX; k++)
            if (memcmp(f->train->x[k], rows[i], sizeof(rows[i])) == 0)
                fprintf(file, " %d", k);
    }
    fprintf(file, "\n");
    return fclose(file) == 0 ? TRI_OK : TRI_ERR_IO;
}

static inline tri_status killer_batch_end(tri_callback *self, tri_trainer *t,
                                          const tri_batch *batch)
{
    killer *k = (killer *)self;

    (void)batch;
    k->said++;
    if (++k->fit->n_batches == k->fit->kill.batch && tri_trainer_rank(t) == 0)
        (void)raise(SIGKILL);
    if (k->fit->n_batches == k->fit->term_at && !k->fit->to_parent)
        (void)raise(SIGTERM);
    if (k->fit->n_batches == k->fit->term_at && k->fit->term_twice)
        (void)raise(SIGTERM);
    if (k->fit->n_batches == k->fit->term_at && k->fit->to_parent && tri_trainer_rank(t) == 0) {
        (void)kill(getppid(), SIGTERM);
        for (int64_t end = trii_now_ns() + 20 * TRII_NS_PER_S;
             tri_stop_signal() == 0 && trii_now_ns() < end;)
            sched_yield();
    }
    if (k->fit->n_batches == k->fit->fail_at)
        return TRII_FAIL(TRI_ERR_NOT_FOUND, "batch %lld fails", (long long)k->fit->fail_at);
    return TRI_OK;
}

static inline tri_status killer_validation_end(tri_callback *self, tri_trainer *t)
{
    killed_fit *f = ((killer *)self)->fit;

    (void)t;
    if (++f->n_validated == f->fail_validation_at)
        return TRII_FAIL(TRI_ERR_NOT_FOUND, "validation %lld fails",
                         (long long)f->fail_validation_at);
    return TRI_OK;
}

static inline tri_status killer_save(tri_callback *self, tri_trainer *t)
{
    char text[32];

    snprintf(text, sizeof(text), "%lld", (long long)((killer *)self)->said);
    return tri_trainer_set_state(t, "killer", text);
}

static inline tri_status killer_load(tri_callback *self, tri_trainer *t)
{
    const char *text = tri_trainer_state(t, "killer");

    ((killer *)self)->said = text != NULL ? strtoll(text, NULL, 10) : -1;
    return TRI_OK;
}

static inline tri_status killer_end(tri_callback *self, tri_trainer *t)
{
    return tri_module_hash(tri_trainer_model(t), &((killer *)self)->hash);
}

static inline void killer_validation_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    killed_fit *f = (killed_fit *)arg;
    tri_tensor *logits = tri_forward(tri_trainer_model(t), batch->fields[0]);

    if (++f->n_validations == f->kill.validation && tri_trainer_rank(t) == 0)
        (void)raise(SIGKILL);
    tri_trainer_log(t, "val_loss", tri_cross_entropy(logits, batch->fields[1], NULL), NULL);
}

static inline tri_tensor *killer_training_step(tri_trainer *t, const tri_batch *batch, void *arg)
{
    const tri_trainer_log_options both = {.on_step = TRI_SET(1), .on_epoch = TRI_SET(1)};
    const killed_fit *f = (const killed_fit *)arg;
    tri_tensor *logits =
        tri_forward(tri_trainer_model(t), tri_dropout(batch->fields[0], 0.1, true));
    tri_tensor *loss = tri_cross_entropy(logits, batch->fields[1], NULL);

    if (f->nan_at == f->n_batches + 1 && tri_trainer_rank(t) == 1)
        loss = tri_mul_scalar(loss, (double)NAN);
    tri_trainer_log(t, "train", loss, &both);
    tri_trainer_log(
        t, "least", loss,
        &(tri_trainer_log_options){.reduce = "min", .on_step = TRI_SET(0), .on_epoch = TRI_SET(1)});
    return loss;
}

static inline tri_module *killer_model(void *arg)
{
    (void)arg;
    return fit_model(&(fit_arg){.lr = 0.2});
}

static inline tri_optimizer *killer_optimizer(tri_module *model, void *arg)
{
    const killed_fit *f = (const killed_fit *)arg;

    return tri_sgd(model, f->lr > 0 ? f->lr : 0.2, &(tri_sgd_options){.momentum = 0.9});
}

static inline double killed_warm_up(double lr, int64_t step, int64_t total, void *arg)
{
    (void)total;
    (void)arg;
    return step < 10 ? lr * (double)step / 10 : lr;
}

/* In this process; it exits with what was found. */
static inline void killed_fit_child(killed_fit *f, int out)
{
    static const tri_callback_class class = {.name = "killer",
                                             .batch_begin = killer_batch_begin,
                                             .batch_end = killer_batch_end,
                                             .validation_end = killer_validation_end,
                                             .fit_end = killer_end,
                                             .state_save = killer_save,
                                             .state_load = killer_load};
    tri_task task = {.name = "killed",
                     .model = killer_model,
                     .optimizer = killer_optimizer,
                     .training_step = killer_training_step,
                     .validation_step = killer_validation_step,
                     .lr = fit_lr};
    killed_result found = {.status = TRI_OK};
    killer k = {.base = {.cls = &class}, .fit = f};
    tri_callback *callbacks[] = {&k.base};
    tri_fit_options options = fit_quiet(f->root);
    fit_samples train, val;

    fit_samples_make(&train, f->samples, 1);
    fit_samples_make(&val, 21, 2);
    f->train = &train;
    options.run_name = "run";
    options.devices = f->devices;
    options.max_epochs = f->max_epochs;
    options.max_steps = f->max_steps;
    options.limit_train_batches = f->limit_train_batches;
    options.seed = f->seed;
    options.log_every_n_steps = 2;
    options.callbacks = callbacks;
    options.n_callbacks = 1;
    options.checkpoint = &f->checkpoint;
    options.early_stopping = f->early;
    options.ema = f->ema;
    options.ckpt_path = f->ckpt_path;
    options.precision = f->precision;
    options.strategy = f->strategy;
    options.accumulate_grad_batches = f->accumulate;
    options.val_check_interval = f->val_check_interval;
    options.resume_anyway = f->resume_anyway;
    options.gradient_clip_val = f->clip;
    options.detect_anomaly = f->detect_anomaly;
    options.num_sanity_val_steps = TRI_SET((double)f->sanity);
    if (f->warm_up)
        task.lr = killed_warm_up;
    options.no_progress = f->said == NULL;
    if (f->said != NULL)
        assert_non_null(freopen(f->said, "w", stderr));
    killed_syncs = f->kill.sync;
    full_syncs = f->kill.full_after;
    term_syncs = f->kill.term_sync;
    if (f->as_user && geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        _exit(3);
    found.status = (f->validate ? tri_validate
                                : tri_fit)(&task,
                                           &(tri_fit_data){.train = train.dataset,
                                                           .val = f->no_val ? NULL : val.dataset,
                                                           .batch_size = f->batch_size},
                                           &options, f, &found.result);
    killed_syncs = term_syncs = 0;
    snprintf(found.line, sizeof(found.line), "%s", tri_last_error());
    found.hash = k.hash;
    for (size_t at = 0; at < sizeof(found);) {
        ssize_t n = write(out, (const char *)&found + at, sizeof(found) - at);

        if (n <= 0)
            _exit(2);
        at += (size_t)n;
    }
    _exit(0);
}

/* Runs it, until it ends or is killed. */
static inline killed_result killed_fit_run(const killed_fit *fit)
{
    killed_result found = {.status = TRI_ERR_INTERNAL};
    int out[2], how = 0;
    size_t at = 0;
    pid_t pid;

    assert_int_equal(pipe(out), 0);
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        killed_fit own = *fit;

        alarm(20);
        close(out[0]);
        killed_fit_child(&own, out[1]);
    }
    close(out[1]);
    if (fit->kill.after_ns > 0) {
        const struct timespec t = {fit->kill.after_ns / TRII_NS_PER_S,
                                   fit->kill.after_ns % TRII_NS_PER_S};

        if (ppoll(&(struct pollfd){.fd = out[0], .events = POLLIN}, 1, &t, NULL) == 0)
            (void)kill(pid, SIGKILL);
    }
    for (ssize_t n = 1; n > 0 && at<sizeof(found); at += n> 0 ? (size_t)n : 0)
        n = read(out[0], (char *)&found + at, sizeof(found) - at);
    close(out[0]);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    found.how = how;
    return found;
}

#endif
