/*
 * csv_read.c - see csv_read.h.
 */
#include "train/records/csv_read.h"

#include <stdlib.h>
#include <string.h>

bool trii_csv_next(const char **at_inout, const char *end, trii_csv_record *out)
{
    bool quoted = false;

    for (const char *at = *at_inout; at < end; at++) {
        if (*at == '"')
            quoted = !quoted;
        if (*at != '\n' || quoted)
            continue;
        out->start = *at_inout;
        out->end = at > out->start && at[-1] == '\r' ? at - 1 : at;
        *at_inout = at + 1;
        return true;
    }
    return false;
}

size_t trii_csv_cell(trii_csv_record *record, char *out, size_t bytes)
{
    const char *at = record->start;
    bool quoted = false;
    size_t n = 0;

    for (; at < record->end && (quoted || *at != ','); at++) {
        if (*at == '"') {
            quoted = !quoted;
            if (!quoted || at == record->start || at[-1] != '"')
                continue; /* else the second of two */
        }
        if (n + 1 < bytes)
            out[n] = *at;
        n++;
    }
    if (bytes > 0)
        out[n < bytes ? n : bytes - 1] = '\0';
    record->start = at < record->end ? at + 1 : NULL;
    return n;
}

bool trii_csv_number(const char *cell, double *value_out)
{
    char *end;

    while (*cell == ' ')
        cell++;
    if (*cell == '\0')
        return false;
    *value_out = strtod(cell, &end);
    while (*end == ' ')
        end++;
    return *end == '\0';
}
