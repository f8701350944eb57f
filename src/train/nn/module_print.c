/*
 * module_print.c - a tree of modules as torch prints it (torch/nn/modules/module.py, __repr__).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "train/nn/module.h"

const char *trii_float_text(double value, char text[TRII_FLOAT_TEXT])
{
    char digits[TRII_FLOAT_TEXT];
    int precision = 0, exponent;
    char *point;

    if (!isfinite(value)) {
        snprintf(text, TRII_FLOAT_TEXT, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
        return text;
    }
    do
        snprintf(digits, sizeof(digits), "%.*e", precision, value);
    while (strtod(digits, NULL) != value && ++precision < 17);
    exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16)
        snprintf(text, TRII_FLOAT_TEXT, "%.*f", precision > exponent + 1 ? precision - exponent : 1,
                 value);
    else
        snprintf(text, TRII_FLOAT_TEXT, "%s", digits);
    point = strchr(text, ','); /* of a locale */
    if (point != NULL)
        *point = '.';
    return text;
}

/* The text between the brackets; "" for nothing. NULL: no memory. Release with trii_free. */
static char *extra_repr(tri_module *module)
{
    char small[256] = "", *text;
    int length = 0;

    if (module->type->extra_repr != NULL)
        length = module->type->extra_repr(module, small, sizeof(small));
    if (length < (int)sizeof(small))
        return trii_strdup(length > 0 ? small : "", "text of a module");
    text = trii_alloc((size_t)length + 1, 1, "text of a module");
    if (text != NULL)
        module->type->extra_repr(module, text, (size_t)length + 1);
    return text;
}

static void print_tree(tri_module *module, FILE *file, int level)
{
    char *extra = module->status != TRI_OK ? NULL : extra_repr(module);

    fprintf(file, "%s(", tri_module_type(module));
    if (extra == NULL)
        fprintf(file, "failed: %s", module->why != NULL ? module->why : "no memory");
    else if (module->n_children > 0 && *extra != '\0')
        fprintf(file, "\n%*s%s", 2 * (level + 1), "", extra);
    else
        fputs(extra, file);
    for (int i = 0; i < module->n_children && extra != NULL; i++) {
        fprintf(file, "\n%*s(%s): ", 2 * (level + 1), "", tri_module_name(module->children[i]));
        print_tree(module->children[i], file, level + 1);
    }
    if (module->n_children > 0 && extra != NULL)
        fprintf(file, "\n%*s", 2 * level, "");
    fputc(')', file);
    trii_free(extra);
}

void tri_module_print(tri_module *module, FILE *file)
{
    file = file != NULL ? file : stderr;
    if (module != NULL)
        print_tree(module, file, 0);
    else
        fputs("failed(failed: the module is NULL)", file);
    fputc('\n', file);
}
