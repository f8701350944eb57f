/*
 * pickle_value.c - the values of a pickle (pickle.h), and the errors of its reader.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/option.h"
#include "train/torch/pickle.h"

void trii_pickle_error(const trii_pickle *p, const char *format, ...)
{
    const char *name = p->opcode_at < p->bytes ? trii_opcode_name(p->data[p->opcode_at]) : NULL;
    char text[256];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    trii_err_set("%s: offset %" PRIu64 ": %s%s%s", p->path, p->base + p->opcode_at,
                 name != NULL ? name : "", name != NULL ? ": " : "", text);
}

trii_value *trii_value_new(trii_pickle *p, tri_torch_kind kind)
{
    trii_value *value = trii_arena_take(p->arena, 1, sizeof(*value));

    if (value != NULL)
        value->v.kind = kind;
    return value;
}

tri_status trii_value_add(trii_pickle *p, trii_value *to, const trii_value *item)
{
    if (to->v.n == to->room) {
        int64_t room = to->room > 0 ? to->room * 2 : 4;
        const tri_torch_value **items = trii_arena_take(p->arena, (size_t)room, sizeof(*items));

        if (items == NULL)
            return TRI_ERR_NO_MEMORY;
        if (to->v.n > 0)
            memcpy(items, to->items, (size_t)to->v.n * sizeof(*items));
        to->v.items = to->items = items;
        to->room = room;
    }
    to->items[to->v.n++] = &item->v;
    return TRI_OK;
}

tri_status trii_pickle_copies(trii_pickle *p, int64_t n)
{
    p->copied += (size_t)n;
    if (p->copied <= p->at)
        return TRI_OK;
    return TRII_PICKLE_FAIL(p, TRI_ERR_FORMAT, "it copies more than the pickle has had so far");
}

const tri_torch_value *tri_torch_item(const tri_torch_value *dict, const char *key)
{
    if (dict == NULL || key == NULL || TRII_CHECK_RESERVED(tri_torch_value, dict) != TRI_OK ||
        dict->kind != TRI_TORCH_DICT)
        return NULL;
    for (int64_t i = 0; i + 1 < dict->n; i += 2) {
        const tri_torch_value *k = dict->items[i];

        if (k->kind == TRI_TORCH_TEXT && k->bytes == strlen(key) && strcmp(k->text, key) == 0)
            return dict->items[i + 1];
    }
    return NULL;
}
