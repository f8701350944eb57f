/*
 * summary.c - a table of the modules of a network, their outputs and parameters.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "train/nn/module.h"

#define SHAPE_TEXT 96
#define COUNT_TEXT 32

typedef struct row {
    tri_module *module;
    const char *path; /* owned by the table */
    char shape[SHAPE_TEXT];
    int64_t hook;
    bool training;
} row;

typedef struct table {
    row *rows;
    int n;
} table;

/* 11,689,512 */
static const char *count_text(int64_t count, char text[COUNT_TEXT])
{
    char plain[COUNT_TEXT];
    int length = snprintf(plain, sizeof(plain), "%lld", (long long)count), used = 0;

    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = plain[i];
    }
    text[used] = '\0';
    return text;
}

static void note_shape(tri_module *self, tri_tensor **in, int n_in, tri_tensor **out, int n_out,
                       void *arg)
{
    row *r = arg;
    size_t used = 1;

    (void)self, (void)in, (void)n_in;
    if (n_out < 1 || out[0] == NULL || tri_tensor_status(out[0]) < 0)
        return;
    snprintf(r->shape, sizeof(r->shape), "[");
    for (int d = 0; d < tri_tensor_ndim(out[0]) && used < sizeof(r->shape); d++)
        used += (size_t)snprintf(r->shape + used, sizeof(r->shape) - used,
                                 d > 0 ? ", %lld" : "%lld", (long long)tri_tensor_size(out[0], d));
    if (used < sizeof(r->shape))
        snprintf(r->shape + used, sizeof(r->shape) - used, "]");
}

static int count_modules(const tri_module *module)
{
    int n = 1;

    for (int i = 0; i < module->n_children; i++)
        n += count_modules(module->children[i]);
    return n;
}

/* `path` is NULL for the root. */
static tri_status add_rows(table *t, tri_module *module, const char *path)
{
    row *r = &t->rows[t->n++];
    const char *name = path != NULL ? path : "";

    *r = (row){.module = module, .training = module->training, .shape = "-"};
    r->path = trii_strdup(name, "path of a module");
    if (r->path == NULL)
        return TRI_ERR_NO_MEMORY;
    for (int i = 0; i < module->n_children; i++) {
        const char *child = tri_module_name(module->children[i]);
        size_t bytes = strlen(name) + strlen(child) + 2;
        char *below = trii_alloc(bytes, 1, "path of a module");
        tri_status status = TRI_ERR_NO_MEMORY;

        if (below != NULL) {
            snprintf(below, bytes, "%s%s%s", name, *name != '\0' ? "." : "", child);
            status = add_rows(t, module->children[i], below);
        }
        trii_free(below);
        if (status != TRI_OK)
            return status;
    }
    return TRI_OK;
}

static void table_fini(table *t)
{
    for (int i = 0; i < t->n; i++) {
        row *r = &t->rows[i];

        if (r->hook != 0)
            (void)tri_module_remove_hook(r->module, r->hook);
        r->module->training = r->training;
        trii_free((void *)(uintptr_t)r->path);
    }
    trii_free(t->rows);
}

/* Puts the shapes into the rows; the network is in evaluation until table_fini. */
static tri_status look(table *t, tri_module *module, tri_tensor *const *in, int n_in)
{
    tri_tensor *out = NULL;
    tri_status status = TRI_OK;

    for (int i = 0; i < t->n && status == TRI_OK; i++)
        status = tri_module_add_forward_hook(t->rows[i].module, note_shape, &t->rows[i],
                                             &t->rows[i].hook);
    if (status != TRI_OK)
        return status;
    tri_module_train(module, false);
    tri_no_grad_begin();
    tri_forward_n(module, in, n_in, &out, 1);
    tri_no_grad_end();
    return tri_tensor_status(out);
}

static int64_t own_parameters(const tri_module *module)
{
    int64_t n = 0;

    for (int i = 0; i < module->parameters.n; i++)
        n += tri_tensor_numel(module->parameters.items[i].tensor);
    return n;
}

static void write_table(const table *t, tri_module *module, FILE *file)
{
    int path_width = (int)strlen("module"), type_width = (int)strlen("type");
    int shape_width = (int)strlen("output");
    int64_t all = 0, bytes = 0;
    char count[COUNT_TEXT], trained[COUNT_TEXT];

    for (int i = 0; i < t->n; i++) {
        const row *r = &t->rows[i];
        int path = (int)strlen(r->path), type = (int)strlen(tri_module_type(r->module));
        int shape = (int)strlen(r->shape);

        path_width = path > path_width ? path : path_width;
        type_width = type > type_width ? type : type_width;
        shape_width = shape > shape_width ? shape : shape_width;
    }
    fprintf(file, "%-*s  %-*s  %-*s  %14s\n", path_width, "module", type_width, "type", shape_width,
            "output", "parameters");
    for (int i = 0; i < t->n; i++) {
        const row *r = &t->rows[i];
        int64_t own = own_parameters(r->module);

        all += own;
        fprintf(file, "%-*s  %-*s  %-*s  %14s\n", path_width, r->path, type_width,
                tri_module_type(r->module), shape_width, r->shape,
                own > 0 ? count_text(own, count) : "-");
    }
    for (int64_t i = 0; i < tri_module_state_count(module); i++) {
        tri_state_entry e = tri_module_state(module, i);

        if (e.parameter)
            bytes +=
                tri_tensor_numel(e.tensor) * (int64_t)tri_dtype_size(tri_tensor_dtype(e.tensor));
    }
    fprintf(file, "%s parameters, %s of them trained, %.1f MiB\n", count_text(all, count),
            count_text(tri_module_parameter_count(module), trained), (double)bytes / 0x1p20);
}

tri_status(tri_module_summary)(tri_module *module, tri_tensor *const *in, int n_in, FILE *file)
{
    tri_status status = tri_module_status(module);
    table t = {.n = 0};

    if (status == TRI_OK && n_in > 0)
        status = trii_need(in, "with inputs", "in");
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "tri_module_summary");
    t.rows = trii_alloc((size_t)count_modules(module), sizeof(*t.rows), "summary of a module");
    status = t.rows != NULL ? add_rows(&t, module, NULL) : TRI_ERR_NO_MEMORY;
    if (status == TRI_OK && n_in > 0)
        status = look(&t, module, in, n_in);
    if (status == TRI_OK) {
        file = file != NULL ? file : stderr;
        write_table(&t, module, file);
        if (fflush(file) != 0 || ferror(file))
            status = TRII_FAIL(TRI_ERR_IO, "tri_module_summary: the file cannot be written");
    }
    table_fini(&t);
    return status;
}
