/*
 * ckpt_values.c - what a file of torch.save holds beside tensors (ckpt.h). Values may be shared,
 * and a damaged file may have circles: the tree ends at a depth, and so does what it prints.
 */
#include <inttypes.h>
#include <stdio.h>

#include "ckpt.h"

#define MOST_DEPTH 4
#define MOST_ITEMS 20 /* of a container; what follows is counted */
#define MOST_INLINE 8 /* of one that is printed on its own line */
#define MOST_TEXT 72

static bool is_container(const tri_torch_value *v)
{
    return v->kind == TRI_TORCH_TUPLE || v->kind == TRI_TORCH_LIST || v->kind == TRI_TORCH_SET ||
           v->kind == TRI_TORCH_DICT;
}

/* A container of few plain values. */
static bool is_flat(const tri_torch_value *v)
{
    if (!is_container(v) || v->n > MOST_INLINE || (v->kind == TRI_TORCH_DICT && v->n > 0))
        return false;
    for (int64_t i = 0; i < v->n; i++)
        if (is_container(v->items[i]) || v->items[i]->kind == TRI_TORCH_OBJECT ||
            v->items[i]->kind == TRI_TORCH_TENSOR)
            return false;
    return true;
}

static const char *kind_name(const tri_torch_value *v)
{
    if (v->text != NULL)
        return v->text;
    return v->kind == TRI_TORCH_TUPLE  ? "tuple"
           : v->kind == TRI_TORCH_LIST ? "list"
           : v->kind == TRI_TORCH_SET  ? "set"
                                       : "dict";
}

static void print_inline(const tri_torch_value *v);

static void print_flat(const tri_torch_value *v)
{
    const char *marks = v->kind == TRI_TORCH_TUPLE ? "()" : v->kind == TRI_TORCH_LIST ? "[]" : "{}";

    putchar(marks[0]);
    for (int64_t i = 0; i < v->n; i++) {
        if (i > 0)
            fputs(", ", stdout);
        print_inline(v->items[i]);
    }
    putchar(marks[1]);
}

static void print_inline(const tri_torch_value *v)
{
    switch (v->kind) {
    case TRI_TORCH_NONE:
        fputs("None", stdout);
        break;
    case TRI_TORCH_BOOL:
        fputs(v->integer != 0 ? "True" : "False", stdout);
        break;
    case TRI_TORCH_INT:
        printf("%" PRId64, v->integer);
        break;
    case TRI_TORCH_FLOAT:
        printf("%.12g", v->real);
        break;
    case TRI_TORCH_BYTES:
        printf("%zu bytes", v->bytes);
        break;
    case TRI_TORCH_TENSOR:
        fputs("a tensor", stdout);
        break;
    case TRI_TORCH_TEXT:
        putchar('"');
        ckpt_print_text(v->text, MOST_TEXT);
        putchar('"');
        break;
    case TRI_TORCH_OBJECT:
        ckpt_print_text(v->text, MOST_TEXT);
        if (v->arguments != NULL && is_flat(v->arguments))
            print_flat(v->arguments);
        else if (v->arguments != NULL)
            fputs("(...)", stdout);
        break;
    case TRI_TORCH_TUPLE:
    case TRI_TORCH_LIST:
    case TRI_TORCH_SET:
    case TRI_TORCH_DICT:
        if (v->text != NULL)
            printf("%s ", v->text);
        print_flat(v);
        break;
    }
}

static void print_key(const tri_torch_value *key)
{
    if (key->kind == TRI_TORCH_TEXT)
        ckpt_print_text(key->text, MOST_TEXT);
    else if (is_container(key) && !is_flat(key))
        fputs(kind_name(key), stdout);
    else
        print_inline(key);
}

static void print_items(const tri_torch_value *v, int depth);

static void print_value(const tri_torch_value *v, int depth)
{
    const int step = v->kind == TRI_TORCH_DICT ? 2 : 1;
    int64_t tensors = 0, n;

    if (!is_container(v) || is_flat(v)) {
        print_inline(v);
        putchar('\n');
        return;
    }
    n = v->n / step;
    for (int64_t i = step - 1; i < v->n; i += step)
        tensors += v->items[i]->kind == TRI_TORCH_TENSOR;
    printf("%s of %" PRId64, kind_name(v), n);
    if (tensors > 0)
        printf(", %s%" PRId64 " tensor%s", tensors == n ? "all " : "", tensors,
               tensors == 1 ? "" : "s");
    putchar('\n');
    if (tensors < n && depth < MOST_DEPTH)
        print_items(v, depth + 1);
}

/* All but the tensors, which have a table. */
static void print_items(const tri_torch_value *v, int depth)
{
    const int step = v->kind == TRI_TORCH_DICT ? 2 : 1;
    int64_t printed = 0, left = 0;

    for (int64_t i = step - 1; i < v->n; i += step) {
        if (v->items[i]->kind == TRI_TORCH_TENSOR)
            continue;
        if (printed == MOST_ITEMS) {
            left++;
            continue;
        }
        printed++;
        printf("%*s", 2 * depth, "");
        if (step == 2)
            print_key(v->items[i - 1]);
        else
            printf("[%" PRId64 "]", i);
        fputs(": ", stdout);
        print_value(v->items[i], depth);
    }
    if (left > 0)
        printf("%*s... and %" PRId64 " more\n", 2 * depth, "", left);
}

void ckpt_values_print(const tri_torch_value *root)
{
    if (root->kind == TRI_TORCH_TENSOR)
        return;
    fputs("contents: ", stdout);
    print_value(root, 0);
}
