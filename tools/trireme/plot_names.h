/*
 * plot_names.h - what the curves of several files are called.
 */
#ifndef TRIREME_PLOT_NAMES_H
#define TRIREME_PLOT_NAMES_H

#include <stddef.h>

/* What tells files[index] from the others: its path without the folders that all begin with and
 * the names that all end in; its last name if nothing is left. */
void plot_name_file(const char *const *files, int n_files, int index, char *out, size_t bytes);
/* Makes UTF-8 of a text that may be none or was cut in a character: '?' for what is wrong. */
void plot_make_utf8(char *text);

#endif
