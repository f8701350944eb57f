/*
 * classy_schedule.h - Classy Vision's param_schedulers, as it evaluates them: functions of the
 * share of the training that is done.
 *
 *     {"name": "composite", "lengths": [0.1, 0.9], "schedulers": [
 *         {"name": "linear", "start_value": 0, "end_value": 0.1},
 *         {"name": "cosine", "start_value": 0.1, "end_value": 0}]}
 */
#ifndef EXAMPLES_CLASSY_SCHEDULE_H
#define EXAMPLES_CLASSY_SCHEDULE_H

#include <math.h>

#include "json_config.h"

static inline double schedule_part(const json_t *list, size_t i)
{
    size_t n = json_array_size(list);

    return n == 0 ? NAN : json_number_value(json_array_get(list, i < n ? i : n - 1));
}

/* The value when the share `where` (0 to 1) of num_epochs epochs is done. */
static inline double schedule(const config *c, double where, double num_epochs)
{
    const char *name =
        CONFIG_NAME(c, "constant", "step", "multistep", "linear", "cosine", "composite");
    const json_t *values = json_object_get(c->object, "values");
    double n = (double)json_array_size(values), past = where + 1e-6, first = 0, length;
    size_t i = 0;

    if (strcmp(name, "constant") == 0)
        return config_number(c, "value", NAN, 0, 1e9);
    if (strcmp(name, "step") == 0)
        return schedule_part(values, (size_t)(past * n));
    if (strcmp(name, "multistep") == 0) {
        const json_t *milestones = json_object_get(c->object, "milestones");
        double width = ceil(num_epochs / n), epoch = floor(past * num_epochs);

        while ((double)i + 1 < n && epoch >= (milestones != NULL ? schedule_part(milestones, i)
                                                                 : width * (double)(i + 1)))
            i++;
        return schedule_part(values, i);
    }
    if (strcmp(name, "composite") == 0) {
        const json_t *lengths = json_object_get(c->object, "lengths"), *scaling;
        config part;

        for (length = schedule_part(lengths, 0); past > first + length; i++) {
            if (i + 1 == json_array_size(lengths))
                break;
            first += length;
            length = schedule_part(lengths, i + 1);
        }
        scaling = json_array_get(json_object_get(c->object, "interval_scaling"), i);
        part = config_child(c, "schedulers", (int)i);
        if (scaling == NULL || strcmp(json_string_value(scaling), "fixed") != 0)
            where = (where - first) / length;
        return schedule(&part, where, num_epochs);
    }
    double start = config_number(c, "start_value", NAN, 0, 1e9);
    double end = config_number(c, "end_value", NAN, 0, 1e9);

    if (strcmp(name, "linear") == 0)
        return end * where + start * (1 - where);
    return end + (start - end) * (1 + cos(acos(-1) * where)) / 2;
}

/* Ends the program if something in it is wrong; num_epochs: of the whole training. */
static inline void schedule_check(const config *c, double num_epochs)
{
    const char *name = config_text(c, "name", NULL);
    size_t n = 0;

    CONFIG_KEYS(c, "name", "value", "values", "start_value", "end_value", "milestones",
                "num_epochs", "schedulers", "lengths", "interval_scaling", "update_interval");
    (void)config_number(c, "num_epochs", num_epochs, num_epochs, num_epochs);
    if (strstr(name, "step") != NULL)
        n = config_numbers(c, "values", 1, 1000);
    if (json_object_get(c->object, "milestones") != NULL)
        (void)config_numbers(c, "milestones", n - 1, n - 1);
    if (strcmp(name, "composite") == 0) {
        double sum = 0;

        n = config_numbers(c, "lengths", 1, 100);
        config_list(c, "schedulers", n, n);
        if (json_object_get(c->object, "interval_scaling") != NULL)
            config_words(c, "interval_scaling", n, "rescaled", "fixed");
        for (size_t i = 0; i < n; i++) {
            config part = config_child(c, "schedulers", (int)i);

            schedule_check(&part, num_epochs);
            sum += schedule_part(json_object_get(c->object, "lengths"), i);
        }
        if (fabs(sum - 1) > 1e-3)
            config_mistake(c, "lengths", "must add up to 1, not to %g", sum);
    }
    (void)schedule(c, 0, num_epochs);
}

/* Whether it is evaluated for each update, or once an epoch. */
static inline bool schedule_is_by_step(const config *c)
{
    const char *name = config_text(c, "name", NULL);
    bool smooth = strcmp(name, "linear") == 0 || strcmp(name, "cosine") == 0 ||
                  strcmp(name, "composite") == 0;

    return strcmp(config_text(c, "update_interval", smooth ? "step" : "epoch"), "step") == 0;
}

#endif
