/*
 * csv_read.h - records and cells of CSV files (RFC 4180): cells are separated by commas, records by
 * line ends (CRLF or LF), and a cell in quotes may hold both, with a quote written twice.
 */
#ifndef TRII_CSV_READ_H
#define TRII_CSV_READ_H

#include <stdbool.h>
#include <stddef.h>

typedef struct trii_csv_record {
    const char *start, *end; /* without its line end */
} trii_csv_record;

/* The record at *at_inout, which moves to the next one. False: there is none, or only one that is
 * cut short: without its line end. */
bool trii_csv_next(const char **at_inout, const char *end, trii_csv_record *out);
/* The cell at record->start, which moves to the next one, or to NULL after the last; without its
 * quotes, and cut to bytes - 1. Returns the bytes that it has uncut. Not to be called at NULL. */
size_t trii_csv_cell(trii_csv_record *record, char *out, size_t bytes);
/* Whether the cell is a number with the decimal mark of the locale: a whole one in any locale.
 * Infinities and NaN are numbers. */
bool trii_csv_number(const char *cell, double *value_out);

#endif
