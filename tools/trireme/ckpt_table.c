/*
 * ckpt_table.c - tensors as a table (ckpt.h).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ckpt.h"

#define SHAPE_BYTES (TRI_MAX_DIMS * 24)

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

static bool is_control(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7f;
}

void ckpt_print_text(const char *text, size_t most)
{
    size_t n = strlen(text);
    bool is_cut = most > 0 && n > most;

    for (n = is_cut ? most : n; is_cut && n > 0 && is_continuation(text[n]);)
        n--;
    for (size_t i = 0; i < n; i++)
        putchar(is_control(text[i]) ? '?' : text[i]);
    if (is_cut)
        fputs("...", stdout);
}

void ckpt_print_bytes(uint64_t bytes)
{
    static const char *const units[] = {"KB", "MB", "GB", "TB"};
    double value = (double)bytes;
    int unit = -1;

    while (value >= 1000 && unit < 3) {
        value /= 1000;
        unit++;
    }
    if (unit < 0)
        printf("%" PRIu64 " bytes", bytes);
    else
        printf("%.1f %s", value, units[unit]);
}

ckpt_row ckpt_row_of(const tri_safetensors_entry *entry)
{
    bool is_ours = entry->dtype != TRI_DTYPE_NONE;
    ckpt_row row = {.name = entry->name,
                    .dtype = is_ours ? tri_dtype_name(entry->dtype) : entry->type_name,
                    .ndim = entry->ndim,
                    .bytes = entry->bytes};

    memcpy(row.shape, entry->shape, sizeof(row.shape));
    if (!is_ours)
        snprintf(row.note, sizeof(row.note), "a type that Trireme has not");
    return row;
}

static int columns_of(const char *text)
{
    int n = 0;

    for (; *text != '\0'; text++)
        n += !is_continuation(*text);
    return n;
}

static void shape_text(const ckpt_row *row, char text[SHAPE_BYTES])
{
    size_t used = 0;

    snprintf(text, SHAPE_BYTES, "scalar");
    for (int d = 0; d < row->ndim; d++)
        used += (size_t)snprintf(text + used, SHAPE_BYTES - used, "%s%" PRId64, d > 0 ? "x" : "",
                                 row->shape[d]);
}

static void print_padded(const char *text, int columns)
{
    ckpt_print_text(text, 0);
    printf("%*s", columns - columns_of(text) + 2, "");
}

void ckpt_table_print(const ckpt_row *rows, int64_t n)
{
    int name = 6, dtype = 5, shape = 5; /* the headings' */
    char text[SHAPE_BYTES];
    uint64_t bytes = 0;

    for (int64_t i = 0; i < n; i++) {
        int columns = columns_of(rows[i].name);

        shape_text(&rows[i], text);
        name = columns > name ? columns : name;
        dtype = (int)strlen(rows[i].dtype) > dtype ? (int)strlen(rows[i].dtype) : dtype;
        shape = (int)strlen(text) > shape ? (int)strlen(text) : shape;
        bytes += rows[i].bytes;
    }
    if (n > 0) {
        print_padded("tensor", name);
        printf("%-*s  %-*s  %12s\n", dtype, "dtype", shape, "shape", "bytes");
    }
    for (int64_t i = 0; i < n; i++) {
        shape_text(&rows[i], text);
        print_padded(rows[i].name, name);
        printf("%-*s  %-*s  %12" PRIu64 "%s", dtype, rows[i].dtype, shape, text, rows[i].bytes,
               rows[i].note[0] != '\0' ? "  " : "");
        ckpt_print_text(rows[i].note, 0);
        putchar('\n');
    }
    printf("%" PRId64 " tensor%s, ", n, n == 1 ? "" : "s");
    ckpt_print_bytes(bytes);
    putchar('\n');
}
