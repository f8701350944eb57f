/*
 * escape.h - texts of users (names, ids, messages) for JSON, Prometheus and a terminal. What is not
 * UTF-8 is replaced, and no character is cut in two. `out` has room for `bytes`, 16
 * at least; what does not fit is left out. All return out.
 */
#ifndef TRII_LAUNCH_ESCAPE_H
#define TRII_LAUNCH_ESCAPE_H

#include <stddef.h>

/* A JSON string with its quotes; U+FFFD for each byte that is no UTF-8. */
char *trii_json_quote(const char *text, char *out, size_t bytes);
/* The value of a label in Prometheus' format, with its quotes: of escapes it knows three. */
char *trii_metrics_quote(const char *text, char *out, size_t bytes);
/* One line for a terminal: control characters and what is no UTF-8 as \n, \t or \xNN. */
char *trii_text_plain(const char *text, char *out, size_t bytes);

#endif
