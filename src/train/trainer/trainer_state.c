/*
 * trainer_state.c - what callbacks have in checkpoints: texts under keys.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/grow.h"
#include "train/trainer/trainer_internal.h"

#define KEY_BYTES 64

tri_status trii_state_add(trii_state_list *list, const char *key, const char *value)
{
    trii_state_text text = {trii_strdup(key, "state"), trii_strdup(value, "state")};
    tri_status status = TRI_ERR_NO_MEMORY;

    if (text.key != NULL && text.value != NULL)
        status = trii_array_grow(&list->at, &list->room, list->n, 4, sizeof(*list->at), "state");
    if (status == TRI_OK) {
        list->at[list->n++] = text;
        return TRI_OK;
    }
    trii_free(text.key);
    trii_free(text.value);
    return status;
}

void trii_state_clear(trii_state_list *list)
{
    while (list->n > 0) {
        list->n--;
        trii_free(list->at[list->n].key);
        trii_free(list->at[list->n].value);
    }
    trii_free(list->at);
    *list = (trii_state_list){0};
}

tri_status trii_state_collect(tri_trainer *t)
{
    trii_state_clear(&t->saves);
    return trii_hooks(t, state_save);
}

static trii_state_text *find(const trii_state_list *list, const char *key)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->at[i].key, key) == 0)
            return &list->at[i];
    return NULL;
}

tri_status tri_trainer_set_state(tri_trainer *t, const char *key, const char *value)
{
    tri_status status = trii_need(t, "tri_trainer_set_state", "t");
    trii_state_text *old;
    char *copy;

    if (status == TRI_OK)
        status = trii_need_text(key, "tri_trainer_set_state", "key");
    if (status == TRI_OK)
        status = trii_need(value, "tri_trainer_set_state", "value");
    if (status != TRI_OK)
        return status;
    if (strlen(key) >= KEY_BYTES)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "tri_trainer_set_state: the key %.64s..: has %zu bytes, at most %d are "
                         "allowed",
                         key, strlen(key), KEY_BYTES - 1);
    old = find(&t->saves, key);
    if (old == NULL)
        return trii_state_add(&t->saves, key, value);
    copy = trii_strdup(value, "state");
    if (copy == NULL)
        return TRI_ERR_NO_MEMORY;
    trii_free(old->value);
    old->value = copy;
    return TRI_OK;
}

const char *tri_trainer_state(const tri_trainer *t, const char *key)
{
    const trii_state_text *text = t != NULL && key != NULL ? find(&t->loaded, key) : NULL;

    return text != NULL ? text->value : NULL;
}
