/* prometheus.c - see prometheus.h. */
#include "testing/prometheus.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "testing/check.h"

enum { MAX_METRICS = 64, MAX_SERIES = 4096, NAME_BYTES = 128 };

typedef struct reader {
    char metrics[MAX_METRICS][NAME_BYTES]; /* whose heads have come; the last one is open */
    int n_metrics;
    bool has_type, is_counter, has_sample;
    char *series[MAX_SERIES];
    int n_series;
} reader;

static size_t name_length(const char *at, bool colons)
{
    size_t n = 0;

    while (isalpha((unsigned char)at[n]) || at[n] == '_' || (colons && at[n] == ':') ||
           (n > 0 && isdigit((unsigned char)at[n])))
        n++;
    return n;
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

static void read_help(reader *r, const char *line, const char *at)
{
    size_t n = name_length(at, true);

    if (n == 0 || n >= NAME_BYTES || at[n] != ' ' || at[n + 1] == '\0')
        fail_msg("HELP without a text: %s", line);
    if (r->n_metrics > 0 && !r->has_type)
        fail_msg("%s has no TYPE", r->metrics[r->n_metrics - 1]);
    for (int i = 0; i < r->n_metrics; i++) {
        if (strlen(r->metrics[i]) == n && strncmp(r->metrics[i], at, n) == 0)
            fail_msg("a second time: %s", line);
    }
    assert_true(r->n_metrics < MAX_METRICS);
    snprintf(r->metrics[r->n_metrics++], NAME_BYTES, "%.*s", (int)n, at);
    r->has_type = r->has_sample = false;
}

static void read_type(reader *r, const char *line, const char *at)
{
    const char *name = r->n_metrics > 0 ? r->metrics[r->n_metrics - 1] : "";
    size_t n = strlen(name);

    if (n == 0 || strncmp(at, name, n) != 0 || at[n] != ' ' || r->has_type || r->has_sample)
        fail_msg("TYPE does not follow its HELP: %s", line);
    r->is_counter = strcmp(at + n + 1, "counter") == 0;
    if (!r->is_counter && strcmp(at + n + 1, "gauge") != 0)
        fail_msg("an unknown type: %s", line);
    if (r->is_counter != ends_in(name, "_total"))
        fail_msg("counters end in _total, and nothing else: %s", line);
    r->has_type = true;
}

/* After `{label="value",...}`. */
static const char *read_labels(const char *line, const char *at)
{
    do {
        size_t n = name_length(++at, false);

        if (n == 0 || at[n] != '=' || at[n + 1] != '"')
            fail_msg("a label is NAME=\"VALUE\": %s", line);
        for (at += n + 2; *at != '"'; at++) {
            if (*at == '\\' && strchr("\\n\"", *++at) == NULL)
                fail_msg("an unknown escape: %s", line);
            if (*at == '\0')
                fail_msg("a label that does not end: %s", line);
        }
    } while (*++at == ',');
    if (*at != '}')
        fail_msg("labels that do not end: %s", line);
    return at + 1;
}

static void read_sample(reader *r, const char *line)
{
    const char *name = r->n_metrics > 0 ? r->metrics[r->n_metrics - 1] : "", *at;
    size_t n = name_length(line, true);
    double value;
    char *end;

    if (n == 0 || strlen(name) != n || strncmp(name, line, n) != 0 || !r->has_type)
        fail_msg("a sample that does not follow its HELP and TYPE: %s", line);
    at = line[n] == '{' ? read_labels(line, line + n) : line + n;
    for (int i = 0; i < r->n_series; i++) {
        if (strlen(r->series[i]) == (size_t)(at - line) &&
            strncmp(r->series[i], line, (size_t)(at - line)) == 0)
            fail_msg("a series that came before: %s", line);
    }
    assert_true(r->n_series < MAX_SERIES);
    r->series[r->n_series++] = strndup(line, (size_t)(at - line));
    value = strtod(at, &end);
    if (*at != ' ' || end == at || *end != '\0' || (r->is_counter && value < 0))
        fail_msg("not a value: %s", line);
    r->has_sample = true;
}

void prometheus_check(const char *text)
{
    char *copy = strdup(text), *line = copy;
    reader *r = calloc(1, sizeof(*r));

    assert_true(copy != NULL && r != NULL && *text != '\0');
    while (*line != '\0') {
        char *end = strchr(line, '\n');

        if (end == NULL)
            fail_msg("the last line is not ended: %s", line);
        *end = '\0';
        if (strncmp(line, "# HELP ", 7) == 0)
            read_help(r, line, line + 7);
        else if (strncmp(line, "# TYPE ", 7) == 0)
            read_type(r, line, line + 7);
        else
            read_sample(r, line);
        line = end + 1;
    }
    for (int i = 0; i < r->n_series; i++)
        free(r->series[i]);
    free(r);
    free(copy);
}

double prometheus_value(const char *text, const char *series)
{
    size_t n = strlen(series);

    for (const char *at = strstr(text, series); at != NULL; at = strstr(at + 1, series)) {
        if ((at == text || at[-1] == '\n') && at[n] == ' ')
            return strtod(at + n, NULL);
    }
    fail_msg("%s is missing in:\n%s", series, text);
    return 0;
}
