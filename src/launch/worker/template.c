/*
 * template.c - see template.h. Called by worker_output.c for labels and by worker_command.c for
 * arguments.
 */
#include "launch/worker/template.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* The variable that "$name" or "${name}" at `at` stands for, and how long that text is; NULL: it
 * stands for none. */
static const trii_template_variable *
find_variable(const char *at, const trii_template_variable *variables, int n, size_t *taken_out)
{
    bool braces = at[1] == '{';
    const char *name = at + 1 + braces;
    size_t length = 0;

    while (isalnum((unsigned char)name[length]) || name[length] == '_')
        length++;
    for (int i = 0; i < n; i++) {
        if (strlen(variables[i].name) != length || memcmp(variables[i].name, name, length) != 0 ||
            (braces && name[length] != '}'))
            continue;
        *taken_out = 1 + length + 2 * (size_t)braces;
        return &variables[i];
    }
    return NULL;
}

size_t trii_template_fill(const char *text, const trii_template_variable *variables, int n,
                          char *out, size_t bytes)
{
    size_t used = 0;

    while (*text != '\0') {
        const trii_template_variable *variable = NULL;
        size_t taken = 1, length, room = used < bytes ? bytes - 1 - used : 0;

        if (text[0] == '$' && text[1] == '$')
            taken = 2;
        else if (text[0] == '$')
            variable = find_variable(text, variables, n, &taken);
        length = variable != NULL ? strlen(variable->value) : 1;
        if (room > 0)
            memcpy(out + used, variable != NULL ? variable->value : text,
                   length < room ? length : room);
        used += length;
        text += taken;
    }
    if (bytes > 0)
        out[used < bytes ? used : bytes - 1] = '\0';
    return used;
}
