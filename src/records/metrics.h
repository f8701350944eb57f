/*
 * metrics.h - how numbers are written into metrics.
 */
#ifndef TRII_METRICS_H
#define TRII_METRICS_H

#include "base/compiler.h"

/* Makes a point of what a locale puts between the digits of a number; returns the new length. */
int trii_decimal_point(char *text, int length);

#endif
