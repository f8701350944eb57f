/*
 * template.h - $name and ${name} in labels of lines and in arguments of workers, filled in as
 * Python's string.Template.safe_substitute does it.
 */
#ifndef TRII_LAUNCH_TEMPLATE_H
#define TRII_LAUNCH_TEMPLATE_H

#include <stddef.h>

typedef struct trii_template_variable {
    const char *name, *value;
} trii_template_variable;

/* As snprintf: returns the length of the whole, and writes what fits. "$$" becomes "$"; a variable
 * that is not among the n given ones stays as it is. */
size_t trii_template_fill(const char *text, const trii_template_variable *variables, int n,
                          char *out, size_t bytes);

#endif
