/*
 * imagenet_lines.h - what PyTorch's ImageNet examples print, as a callback of the trainer:
 *
 *     Epoch: [0][  10/3125]  Time  2.123 ( 2.123)  Data  0.500 ( 0.500)  Loss 6.98e+00 (6.98e+00)
 * .. Test: [ 10/79]  Time ..
 *      * Acc@1 12.300 Acc@5 33.400
 *     => saved checkpoint for epoch 0 at ..
 *
 * with tabs in the first two: a value of this batch, and in brackets the mean of the epoch, of rank
 * 0's samples. Nothing is fetched but what is printed. The best accuracy is kept in checkpoints.
 */
#ifndef EXAMPLES_IMAGENET_LINES_H
#define EXAMPLES_IMAGENET_LINES_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <trireme/trireme.h>

enum { LINES_LOSS, LINES_TOP1, LINES_TOP5, LINES_MEANS };

typedef struct lines {
    tri_callback base; /* cls is &lines_class */
    /* set before the fit: */
    int64_t print_freq;                             /* a line for each so many batches */
    int64_t epochs, start_epoch, batch, val_images; /* batch: of one worker */
    bool elastic;                                   /* it was to go on if there was something */
    /* the callback's own: */
    bool prints;
    tri_meter *means[LINES_MEANS];
    double sums[LINES_MEANS];                 /* before this batch, */
    int64_t weight;                           /* and how many samples they are of */
    int64_t batches, done;                    /* of the epoch, and those since it began here */
    double ended, loaded, time_sum, data_sum; /* seconds */
    int64_t saved_step;                       /* of the last checkpoint; -1: it was reported */
    double best_acc1;
    bool is_best;
} lines;

static inline double lines_clock(void)
{
    struct timespec now;

    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline void lines_reset(lines *l, int64_t batches)
{
    for (int i = 0; i < LINES_MEANS; i++) {
        if (l->means[i] == NULL)
            TRI_TRY(tri_meter_create(&l->means[i]));
        TRI_TRY(tri_meter_reset(l->means[i]));
    }
    l->batches = batches;
    l->done = 0;
    l->time_sum = l->data_sum = 0;
    l->ended = lines_clock();
}

static inline void lines_free(lines *l)
{
    for (int i = 0; i < LINES_MEANS; i++)
        tri_meter_destroy(l->means[i]);
}

/* In a step of the task: these belong to its batch. */
static inline void lines_add(lines *l, tri_tensor *loss, tri_tensor *top1, tri_tensor *top5,
                             int64_t samples)
{
    TRI_TRY(tri_meter_add_mean(l->means[LINES_LOSS], loss, samples));
    TRI_TRY(tri_meter_add_count(l->means[LINES_TOP1], top1, samples));
    TRI_TRY(tri_meter_add_count(l->means[LINES_TOP5], top5, samples));
}

static inline bool lines_is_due(const lines *l, int64_t batch)
{
    return l->prints && batch % l->print_freq == 0;
}

/* The batch is there, and nothing has been computed of it. */
static inline void lines_loaded(lines *l, int64_t batch)
{
    l->data_sum += l->loaded = lines_clock() - l->ended;
    for (int i = 0; i < LINES_MEANS && lines_is_due(l, batch); i++)
        l->sums[i] = tri_meter_sum(l->means[i]);
    l->weight = tri_meter_weight(l->means[LINES_LOSS]);
}

/* The batch has been computed. */
static inline void lines_print(lines *l, const char *what, int64_t batch, bool with_data)
{
    double took = lines_clock() - l->ended, n = (double)++l->done;
    int width = snprintf(NULL, 0, "%lld", (long long)l->batches);

    l->time_sum += took;
    l->ended += took;
    if (!lines_is_due(l, batch))
        return;
    printf("%s[%*lld/%lld]\tTime %6.3f (%6.3f)", what, width, (long long)batch,
           (long long)l->batches, took, l->time_sum / n);
    if (with_data)
        printf("\tData %6.3f (%6.3f)", l->loaded, l->data_sum / n);
    for (int i = 0; i < LINES_MEANS; i++) {
        double scale = i == LINES_LOSS ? 1 : 100; /* percent */
        double samples = (double)(tri_meter_weight(l->means[i]) - l->weight);
        double here = scale * (tri_meter_sum(l->means[i]) - l->sums[i]) / samples;
        double mean = scale * tri_meter_value(l->means[i]);

        if (i == LINES_LOSS)
            printf("\tLoss %.4e (%.4e)", here, mean);
        else
            printf("\tAcc@%d %6.2f (%6.2f)", i == LINES_TOP1 ? 1 : 5, here, mean);
    }
    printf("\n");
}

/* --- hooks ---------------------------------------------------------------- */

static inline tri_status lines_fit_begin(tri_callback *self, tri_trainer *t)
{
    long long world = tri_trainer_world_size(t);
    lines *l = (lines *)self;

    l->prints = tri_trainer_is_global_zero(t);
    l->saved_step = -1;
    if (!l->prints)
        return TRI_OK;
    if (l->elastic && tri_trainer_step(t) == 0)
        printf("=> no workers have checkpoints, starting from epoch 0\n");
    printf("=> start_epoch: %lld, best_acc1: %.3f\n",
           (long long)(l->start_epoch + tri_trainer_epoch(t)), l->best_acc1);
    printf("=> %lld x %lld workers = %lld samples per update\n", (long long)l->batch, world,
           (long long)l->batch * world);
    return TRI_OK;
}

/* A checkpoint is saved after epoch_end, so its lines come with what follows. */
static inline tri_status lines_report_saved(tri_callback *self, tri_trainer *t)
{
    lines *l = (lines *)self;
    long long epoch = l->start_epoch + tri_trainer_epoch(t) - 1;

    if (l->saved_step >= 0 && l->prints) {
        printf("=> saved checkpoint for epoch %lld at %s/checkpoints/step-%012lld\n", epoch,
               tri_trainer_run_dir(t), (long long)l->saved_step);
        if (l->is_best)
            printf("=> best model found at epoch %lld, Acc@1 %.3f: it is kept\n", epoch,
                   l->best_acc1);
    }
    l->saved_step = -1;
    return TRI_OK;
}

static inline tri_status lines_epoch_begin(tri_callback *self, tri_trainer *t)
{
    lines *l = (lines *)self;
    tri_status status = lines_report_saved(self, t);

    lines_reset(l, tri_trainer_total_steps(t) / (l->epochs - l->start_epoch));
    return status;
}

static inline tri_status lines_batch_begin(tri_callback *self, tri_trainer *t,
                                           const tri_batch *batch)
{
    (void)t;
    lines_loaded((lines *)self, batch->index);
    return TRI_OK;
}

static inline tri_status lines_batch_end(tri_callback *self, tri_trainer *t, const tri_batch *batch)
{
    lines *l = (lines *)self;
    char what[40];

    snprintf(what, sizeof(what), "Epoch: [%lld]",
             (long long)(l->start_epoch + tri_trainer_epoch(t)));
    lines_print(l, what, batch->index, true);
    return TRI_OK;
}

static inline tri_status lines_validation_begin(tri_callback *self, tri_trainer *t)
{
    lines *l = (lines *)self;

    l->prints = tri_trainer_is_global_zero(t) && !tri_trainer_is_sanity_checking(t);
    lines_reset(l, (l->val_images / tri_trainer_world_size(t) + l->batch - 1) / l->batch);
    return TRI_OK;
}

static inline tri_status lines_validation_end(tri_callback *self, tri_trainer *t)
{
    double acc1 = 100 * tri_trainer_value(t, "val_acc1");
    lines *l = (lines *)self;

    if (tri_trainer_is_sanity_checking(t))
        return TRI_OK;
    l->is_best = acc1 > l->best_acc1;
    l->best_acc1 = l->is_best ? acc1 : l->best_acc1;
    if (l->prints)
        printf(" * Acc@1 %.3f Acc@5 %.3f\n", acc1, 100 * tri_trainer_value(t, "val_acc5"));
    return TRI_OK;
}

static inline tri_status lines_epoch_end(tri_callback *self, tri_trainer *t)
{
    ((lines *)self)->saved_step = tri_trainer_step(t);
    return TRI_OK;
}

static inline tri_status lines_state_save(tri_callback *self, tri_trainer *t)
{
    char text[32];

    snprintf(text, sizeof(text), "%.17g", ((lines *)self)->best_acc1);
    return tri_trainer_set_state(t, "best_acc1", text);
}

static inline tri_status lines_state_load(tri_callback *self, tri_trainer *t)
{
    const char *text = tri_trainer_state(t, "best_acc1");

    ((lines *)self)->best_acc1 = text != NULL ? strtod(text, NULL) : 0;
    return TRI_OK;
}

static const tri_callback_class lines_class = {
    .name = "imagenet lines",
    .fit_begin = lines_fit_begin,
    .epoch_begin = lines_epoch_begin,
    .batch_begin = lines_batch_begin,
    .batch_end = lines_batch_end,
    .validation_begin = lines_validation_begin,
    .validation_end = lines_validation_end,
    .epoch_end = lines_epoch_end,
    .fit_end = lines_report_saved,
    .state_save = lines_state_save,
    .state_load = lines_state_load,
};

#endif
