/*
 * prometheus.h - a strict reader of Prometheus' text format (0.0.4), with the rules of `promtool
 * check metrics` beside those of the format. Tests only.
 */
#ifndef TEST_PROMETHEUS_H
#define TEST_PROMETHEUS_H

/* Fails the test with the line that breaks a rule:
 *   each metric has one HELP and one TYPE, before its samples, and all its lines in a row;
 *   names, labels, escapes and values are well formed, no series comes twice;
 *   counters, and only they, end in _total, and none is negative; the last line is ended. */
void prometheus_check(const char *text);
/* The value of a series as it is written, `name{label="value"}`; fails where there is none. */
double prometheus_value(const char *text, const char *series);

#endif
