/*
 * metrics.h - how numbers are written into metrics.
 */
#ifndef TRII_METRICS_H
#define TRII_METRICS_H

#include <stddef.h>

/* Makes a point of what a locale puts between the digits of a number; returns the new length. */
int trii_decimal_point(char *text, int length);
/* A finite number as it is written; returns the length, at most 24. */
int trii_format_metric(double value, char *out, size_t bytes);

#endif
