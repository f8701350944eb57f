/*
 * weights_torch_root.c - where in a file of torch.save a module's state is, and what there is
 * instead (weights.h). Called by weights_torch.c and convert.c.
 *
 * Such a file may hold a state dictionary or, as most training programs write it, a dictionary that
 * has one under some key beside counters and the optimizer's state.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "train/checkpoint/weights.h"

#define MAX_DEPTH 8 /* of dictionaries that are looked into */
#define NAMES_BYTES 160

/* PyTorch's examples and Lightning, others, DeepSpeed. */
const char *const trii_weights_keys[] = {"state_dict", "model_state_dict", "model", "module",
                                         "net",        "weights",          NULL};

static bool is_container(const tri_torch_value *value)
{
    return value != NULL && value->kind >= TRI_TORCH_TUPLE && value->kind <= TRI_TORCH_DICT;
}

/* The value after value i - 1 of a container, NULL: that was the last. i: 0 at first. */
static const tri_torch_value *next_value(const tri_torch_value *of, int64_t *i)
{
    int64_t at = of->kind == TRI_TORCH_DICT ? 2 * (*i)++ + 1 : (*i)++;

    return at < of->n ? of->items[at] : NULL;
}

/* depth: how many containers below it count, too. Which ones there are, tri_torch_open has bounded.
 */
static bool holds_tensors(const tri_torch_value *value, int depth)
{
    const tri_torch_value *item;

    if (!is_container(value))
        return false;
    for (int64_t i = 0; (item = next_value(value, &i)) != NULL;)
        if (item->kind == TRI_TORCH_TENSOR)
            return true;
    for (int64_t i = 0; depth > 0 && (item = next_value(value, &i)) != NULL;)
        if (holds_tensors(item, depth - 1))
            return true;
    return false;
}

static bool is_numpy(const tri_torch_value *object)
{
    return strncmp(object->text, "numpy.", strlen("numpy.")) == 0;
}

/* The first array of numpy or module in it; NULL: there is none. */
static const tri_torch_value *find_object(const tri_torch_value *value, int depth)
{
    const tri_torch_value *found = NULL, *item;

    if (value->kind == TRI_TORCH_OBJECT)
        return is_numpy(value) || tri_torch_item(value->state, "_modules") != NULL ? value : NULL;
    for (int64_t i = 0; depth > 0 && found == NULL && is_container(value) &&
                        (item = next_value(value, &i)) != NULL;)
        found = find_object(item, depth - 1);
    return found;
}

static tri_status refuse_object(const char *path, const char *where, const tri_torch_value *object)
{
    if (is_numpy(object))
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "%s: it holds arrays of numpy%s: save torch.from_numpy() of each", path,
                         where);
    return TRII_FAIL(
        TRI_ERR_UNSUPPORTED,
        "%s: it holds an object of class %.80s%s, whose code is in a program: save its "
        "state_dict() instead",
        path, object->text, where);
}

/* A file in which no name leads to a tensor. */
static tri_status refuse_without_tensors(const char *path, const tri_torch_value *root)
{
    static const char *const kinds[] = {
        [TRI_TORCH_NONE] = "None",       [TRI_TORCH_BOOL] = "True or False",
        [TRI_TORCH_INT] = "a number",    [TRI_TORCH_FLOAT] = "a number",
        [TRI_TORCH_TEXT] = "a text",     [TRI_TORCH_BYTES] = "bytes",
        [TRI_TORCH_TUPLE] = "a tuple",   [TRI_TORCH_LIST] = "a list",
        [TRI_TORCH_SET] = "a set",       [TRI_TORCH_DICT] = "a dictionary",
        [TRI_TORCH_TENSOR] = "a tensor", [TRI_TORCH_OBJECT] = "an object"};
    const tri_torch_value *object = find_object(root, 3);

    if (object != NULL)
        return refuse_object(path, "", object);
    return TRII_FAIL(TRI_ERR_FORMAT,
                     "%s: it holds %s without tensors: save the state_dict() of a module", path,
                     kinds[root->kind]);
}

/* Keys that lead to containers of tensors, as prefixes: "agent.", "params.net." */
static void list_prefixes(const tri_torch_value *of, const char *above, int depth,
                          char names[NAMES_BYTES])
{
    const tri_torch_value *item;

    for (int64_t i = 0; (item = next_value(of, &i)) != NULL;) {
        const tri_torch_value *key = of->kind == TRI_TORCH_DICT ? of->items[2 * i - 2] : NULL;
        size_t used = strlen(names);
        char prefix[NAMES_BYTES];

        if (!holds_tensors(item, depth))
            continue;
        if (key != NULL && key->kind == TRI_TORCH_TEXT)
            snprintf(prefix, sizeof(prefix), "%s%s.", above, key->text);
        else
            snprintf(prefix, sizeof(prefix), "%s%" PRId64 ".", above,
                     key != NULL && key->kind == TRI_TORCH_INT ? key->integer : i - 1);
        if (!holds_tensors(item, 0))
            list_prefixes(item, prefix, depth - 1, names);
        else if (used + strlen(prefix) + 4 < NAMES_BYTES)
            snprintf(names + used, NAMES_BYTES - used, "%s\"%s\"", used > 0 ? ", " : "", prefix);
    }
}

static bool is_optimizer(const tri_torch_value *root)
{
    return tri_torch_item(root, "state") != NULL && tri_torch_item(root, "param_groups") != NULL;
}

tri_status trii_weights_torch_prefix(const char *path, const tri_torch_value *root, char *prefix,
                                     size_t bytes)
{
    char names[NAMES_BYTES] = "";

    prefix[0] = '\0';
    for (int k = 0; trii_weights_keys[k] != NULL; k++) {
        const tri_torch_value *state = tri_torch_item(root, trii_weights_keys[k]);
        char where[80];

        if (holds_tensors(state, MAX_DEPTH)) {
            snprintf(prefix, bytes, "%s.", trii_weights_keys[k]);
            return TRI_OK;
        }
        snprintf(where, sizeof(where), " under \"%s\"", trii_weights_keys[k]);
        if (state != NULL && state->kind == TRI_TORCH_OBJECT)
            return refuse_object(path, where, state);
    }
    if (root->kind == TRI_TORCH_TENSOR || holds_tensors(root, 0) ||
        (root->kind == TRI_TORCH_DICT && root->n == 0))
        return TRI_OK;
    if (is_optimizer(root))
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s: it holds the state of an optimizer: a module's state is in another "
                         "file",
                         path);
    if (is_container(root))
        list_prefixes(root, "", MAX_DEPTH, names);
    if (names[0] == '\0')
        return refuse_without_tensors(path, root);
    return TRII_FAIL(TRI_ERR_FORMAT,
                     "%s: it has no state dictionary under a usual key, but tensors below %s: "
                     "tri_load_options.prefix chooses what is below one",
                     path, names);
}
