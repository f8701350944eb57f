/*
 * module_tree.c - walks over a tree of modules: children, names, freezing.
 */
#include <string.h>

#include "train/nn/module.h"

/* Wrappers around a network that add nothing to its names. */
static bool is_wrapper(const tri_module *module)
{
    return module->n_children == 1 && module->children[0]->name[0] == '\0';
}

int tri_module_child_count(const tri_module *module)
{
    return module != NULL ? module->n_children : 0;
}

tri_module *tri_module_child(tri_module *module, int index)
{
    if (module == NULL || index < 0 || index >= module->n_children)
        return NULL;
    return module->children[index];
}

tri_module *tri_module_unwrapped(tri_module *wrapped)
{
    while (wrapped != NULL && is_wrapper(wrapped))
        wrapped = wrapped->children[0];
    return wrapped;
}

const tri_module *trii_module_wrapper(const tri_module *module, const tri_module_class *type)
{
    const tri_module *found = NULL;

    if (module == NULL)
        return NULL;
    if (is_wrapper(module) && (type == NULL || module->type == type))
        return module;
    for (int i = 0; i < tri_module_child_count(module) && found == NULL; i++)
        found = trii_module_wrapper(module->children[i], type);
    return found;
}

const char *trii_path_after(const char *path, const char *name)
{
    size_t n = strlen(name);

    if (strncmp(path, name, n) != 0 || (path[n] != '.' && path[n] != '\0'))
        return NULL;
    return path[n] == '.' ? path + n + 1 : path + n;
}

tri_module *tri_module_submodule(tri_module *module, const char *path)
{
    tri_module *found = NULL;

    if (module == NULL || path == NULL || path[0] == '\0')
        return path != NULL ? module : NULL;
    if (is_wrapper(module)) /* without "module." first: the network may have a child of that name */
        found = tri_module_submodule(module->children[0], path);
    for (int i = 0; i < module->n_children && found == NULL; i++)
        found = tri_module_submodule(module->children[i],
                                     trii_path_after(path, tri_module_name(module->children[i])));
    return found;
}

const char *tri_module_name(const tri_module *module)
{
    if (module == NULL || module->name == NULL)
        return "";
    return module->name[0] != '\0' ? module->name : TRII_WRAPPED;
}

const char *tri_module_type(const tri_module *module)
{
    return module != NULL && module->type != NULL ? module->type->name : "failed";
}

void tri_module_requires_grad(tri_module *module, bool on)
{
    if (module == NULL) { /* as after a path that tri_module_submodule did not find */
        trii_module_refused("tri_module_requires_grad");
        return;
    }
    for (int i = 0; i < module->parameters.n; i++)
        tri_requires_grad(module->parameters.items[i].tensor, on);
    for (int i = 0; i < module->n_children; i++)
        tri_module_requires_grad(module->children[i], on);
}

bool trii_name_matches(const char *pattern, size_t n_pattern, const char *name, size_t n)
{
    if (n_pattern == 0)
        return n == 0;
    if (*pattern != '*')
        return n > 0 && *pattern == *name &&
               trii_name_matches(pattern + 1, n_pattern - 1, name + 1, n - 1);
    for (size_t skipped = 0; skipped <= n; skipped++)
        if (trii_name_matches(pattern + 1, n_pattern - 1, name + skipped, n - skipped))
            return true;
    return false;
}
