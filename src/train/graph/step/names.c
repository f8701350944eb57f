/*
 * names.c - the names that users give to values, and what messages call a value.
 */
#include "base/alloc.h"
#include "train/graph/step/recorder.h"

typedef struct trii_named_value {
    trii_vid value;
    char *name; /* owned */
} trii_named_value;

void trii_names_clear(trii_recorder *r)
{
    for (int32_t i = 0; i < r->names.n; i++)
        trii_free(r->names.list[i].name);
    r->names.n = 0;
}

const char *trii_value_name(const trii_recorder *r, trii_vid value)
{
    for (int32_t i = 0; i < r->names.n; i++) {
        if (r->names.list[i].value == value)
            return r->names.list[i].name;
    }
    return NULL;
}

tri_status trii_value_name_set(trii_recorder *r, trii_vid value, char *own_name)
{
    void *array = r->names.list;
    tri_status status;

    for (int32_t i = 0; i < r->names.n; i++) {
        if (r->names.list[i].value == value) {
            trii_free(r->names.list[i].name);
            r->names.list[i].name = own_name;
            return TRI_OK;
        }
    }
    status = trii_grow(&array, &r->names.cap, r->names.n + 1, sizeof(*r->names.list), "names");
    if (status != TRI_OK) {
        trii_free(own_name);
        return status;
    }
    r->names.list = array;
    r->names.list[r->names.n++] = (trii_named_value){value, own_name};
    return TRI_OK;
}

const char *trii_host_text(const trii_host_op *op, char text[TRII_OP_TEXT])
{
    if (op->of == NULL)
        snprintf(text, TRII_OP_TEXT, "%s", op->kind->name);
    else
        snprintf(text, TRII_OP_TEXT, "%s (%s)", op->of, op->kind->name);
    return text;
}

const char *trii_node_text(const trii_node *node, char text[TRII_OP_TEXT])
{
    if (node->host != NULL)
        return trii_host_text(node->host, text);
    snprintf(text, TRII_OP_TEXT, "tri_%s", node->op->name);
    return text;
}

const char *trii_value_text(const trii_step *step, trii_vid id, char text[TRII_VALUE_TEXT])
{
    const trii_node *node = step->values[id].node >= 0 ? &step->nodes[step->values[id].node] : NULL;
    char name[TRII_OP_TEXT];

    if (node == NULL)
        snprintf(text, TRII_VALUE_TEXT, "the value");
    else if (node->site.file == NULL)
        snprintf(text, TRII_VALUE_TEXT, "the value of %s", trii_node_text(node, name));
    else
        snprintf(text, TRII_VALUE_TEXT, "the value of %s at %s:%d", trii_node_text(node, name),
                 node->site.file, node->site.line);
    return text;
}
