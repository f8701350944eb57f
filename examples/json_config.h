/*
 * json_config.h - a JSON file of settings for the examples, read strictly: a key that is not known,
 * of the wrong type or out of range ends the program with 2 and one line, which names the file and
 * the key. Here alone the examples use Jansson.
 */
#ifndef EXAMPLES_JSON_CONFIG_H
#define EXAMPLES_JSON_CONFIG_H

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command_line.h"

/* An object of the file, and its place in it: "dataset.train". */
typedef struct config {
    const char *path;
    char where[128];
    json_t *object;
} config;

static inline _Noreturn void config_mistake(const config *c, const char *key, const char *format,
                                            ...) TRI_PRINTF(3, 4);
static inline _Noreturn void config_mistake(const config *c, const char *key, const char *format,
                                            ...)
{
    va_list args;

    mistake_begin();
    fprintf(stderr, "%s: %s: %s%s%s: ", program_name, c->path, c->where,
            c->where[0] != '\0' && key[0] != '\0' ? "." : "", key);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    mistake_end();
}

static inline config config_read(const char *path)
{
    config c = {.path = path};
    json_error_t error;

    c.object = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(c.object)) {
        const char *why = c.object != NULL ? "is not an object" : error.text;

        json_decref(c.object);
        options_refuse("%s: line %d: %s", path, error.line, why);
    }
    return c;
}

/* Letters to change, add or take away to make b of a; long words count as different. */
static inline int config_distance(const char *a, const char *b)
{
    int row[64];
    size_t n = strlen(b);

    if (n >= 64)
        return 64;
    for (size_t j = 0; j <= n; j++)
        row[j] = (int)j;
    for (size_t i = 0; a[i] != '\0'; i++) {
        int corner = row[0];

        row[0] = (int)i + 1;
        for (size_t j = 1; j <= n; j++) {
            int change = corner + (a[i] != b[j - 1]);

            corner = row[j];
            row[j] = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
            row[j] = change < row[j] ? change : row[j];
        }
    }
    return row[n];
}

/* The word of the list that is nearest to `word`, or NULL; the list ends with NULL. */
static inline const char *config_nearest(const char *word, const char *const *list)
{
    const char *best = NULL;
    int least = strlen(word) < 6 ? ((int)strlen(word) + 3) / 2 : 5; /* more is another word */

    for (; *list != NULL; list++) {
        int distance = config_distance(word, *list);

        if (distance < least) {
            least = distance;
            best = *list;
        }
    }
    return best;
}

/* Every key of the object is one of the list. */
static inline void config_check_keys(const config *c, const char *const *known)
{
    const char *key;
    json_t *value;

    json_object_foreach(c->object, key, value)
    {
        const char *const *k = known;

        while (*k != NULL && strcmp(*k, key) != 0)
            k++;
        if (*k == NULL && config_nearest(key, known) != NULL)
            config_mistake(c, key, "no such key: did you mean %s?", config_nearest(key, known));
        else if (*k == NULL)
            config_mistake(c, key, "no such key");
    }
}
#define CONFIG_KEYS(c, ...) config_check_keys(c, (const char *const[]){__VA_ARGS__, NULL})

/* Missing and null are the default; NAN as a default: it must be there. */
static inline double config_number(const config *c, const char *key, double otherwise, double min,
                                   double max)
{
    json_t *value = json_object_get(c->object, key);

    if ((value == NULL || json_is_null(value)) && otherwise == otherwise)
        return otherwise;
    if (value == NULL)
        config_mistake(c, key, "is missing");
    if (!json_is_number(value) || !(json_number_value(value) >= min) ||
        !(json_number_value(value) <= max))
        config_mistake(c, key, "must be a number from %g to %g", min, max);
    return json_number_value(value);
}

static inline int64_t config_integer(const config *c, const char *key, double otherwise, double min)
{
    double value = config_number(c, key, otherwise, min, OPTION_MAX);

    if (value != (double)(int64_t)value)
        config_mistake(c, key, "must be a whole number");
    return (int64_t)value;
}

static inline bool config_flag(const config *c, const char *key, bool otherwise)
{
    json_t *value = json_object_get(c->object, key);

    if (value != NULL && !json_is_boolean(value) && !json_is_null(value))
        config_mistake(c, key, "must be true or false");
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

/* NULL as a default: it must be there. */
static inline const char *config_text(const config *c, const char *key, const char *otherwise)
{
    json_t *value = json_object_get(c->object, key);

    if (value == NULL && otherwise == NULL)
        config_mistake(c, key, "is missing");
    if (value != NULL && !json_is_string(value))
        config_mistake(c, key, "must be a text");
    return value != NULL ? json_string_value(value) : otherwise;
}

static inline json_t *config_list(const config *c, const char *key, size_t min, size_t max)
{
    json_t *value = json_object_get(c->object, key);

    if (!json_is_array(value) || json_array_size(value) < min || json_array_size(value) > max)
        config_mistake(c, key, "must be a list of %zu to %zu entries", min, max);
    return value;
}

/* A list of numbers, none below 0; returns how many. */
static inline size_t config_numbers(const config *c, const char *key, size_t min, size_t max)
{
    json_t *list = config_list(c, key, min, max);

    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!(json_number_value(json_array_get(list, i)) >= 0) ||
            !json_is_number(json_array_get(list, i)))
            config_mistake(c, key, "must be numbers, none below 0");
    }
    return json_array_size(list);
}

/* A list of n words, each one of these two. */
static inline void config_words(const config *c, const char *key, size_t n, const char *one,
                                const char *other)
{
    json_t *list = config_list(c, key, n, n);

    for (size_t i = 0; i < n; i++) {
        const char *word = json_string_value(json_array_get(list, i));

        if (word == NULL || (strcmp(word, one) != 0 && strcmp(word, other) != 0))
            config_mistake(c, key, "each must be \"%s\" or \"%s\"", one, other);
    }
}

/* The object below a key, or, with `index`, in the list there. */
static inline config config_child(const config *c, const char *key, int index)
{
    config child = {.path = c->path, .object = json_object_get(c->object, key)};

    if (index >= 0)
        child.object = json_array_get(child.object, (size_t)index);
    if (child.object == NULL)
        config_mistake(c, key, "is missing");
    if (!json_is_object(child.object))
        config_mistake(c, key, "must be an object: {\"name\": ..}");
    snprintf(child.where, sizeof(child.where), "%.60s%s%.40s", c->where,
             c->where[0] != '\0' ? "." : "", key);
    if (index >= 0)
        snprintf(child.where + strlen(child.where), 16, "[%d]", index);
    return child;
}

/* "name" of the object, which must be one of the list. */
static inline const char *config_check_name(const config *c, const char *const *known)
{
    const char *name = config_text(c, "name", NULL), *const *k = known, *near;

    while (*k != NULL && strcmp(*k, name) != 0)
        k++;
    if (*k != NULL)
        return name;
    near = config_nearest(name, known);
    mistake_begin();
    fprintf(stderr, "%s: %s: %s.name \"%s\": is not known here%s%s%s: it may be", program_name,
            c->path, c->where, name, near != NULL ? " (did you mean " : "",
            near != NULL ? near : "", near != NULL ? "?)" : "");
    for (k = known; *k != NULL; k++)
        fprintf(stderr, "%s %s", k != known ? "," : "", *k);
    fputc('\n', stderr);
    mistake_end();
}
#define CONFIG_NAME(c, ...) config_check_name(c, (const char *const[]){__VA_ARGS__, NULL})

#endif
