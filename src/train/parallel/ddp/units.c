/*
 * units.c - which modules of a network are gathered as one (tri_zero_options.units): their
 * parameters share no bucket with those of others.
 */
#include <string.h>

#include "base/err.h"
#include "train/parallel/ddp/ddp.h"

/* The length of the path of the module that the pattern names, if the parameter `name` is in it;
 * else 0. */
static size_t module_of(const char *pattern, const char *name)
{
    const char *at = name;

    for (;;) {
        size_t n_pattern = strcspn(pattern, "."), n = strcspn(at, ".");

        if (at[n] == '\0' || !trii_name_matches(pattern, n_pattern, at, n))
            return 0; /* the last name is the parameter's own */
        if (pattern[n_pattern] == '\0')
            return (size_t)(at - name) + n;
        pattern += n_pattern + 1;
        at += n + 1;
    }
}

/* The pattern that names the parameter's module; -1: none does. */
static tri_status find(const trii_ddp *ddp, const char *name, int *pattern_out, size_t *path_out)
{
    *pattern_out = -1;
    *path_out = 0;
    for (int k = 0; k < ddp->n_units; k++) {
        size_t path = module_of(ddp->units[k], name);

        if (path == 0)
            continue;
        if (*pattern_out >= 0)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "units[%d], \"%s\", and units[%d], \"%s\": %s is "
                             "in both",
                             *pattern_out, ddp->units[*pattern_out], k, ddp->units[k], name);
        *pattern_out = k;
        *path_out = path;
    }
    return TRI_OK;
}

static tri_status check(const trii_ddp *ddp)
{
    if (ddp->n_units < 0 || (ddp->n_units > 0 && ddp->units == NULL))
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%d units%s", ddp->n_units,
                         ddp->units == NULL ? " at NULL" : "");
    for (int k = 0; k < ddp->n_units; k++) {
        bool found = false;

        if (ddp->units[k] == NULL || ddp->units[k][0] == '\0')
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "units[%d] is %s", k,
                             ddp->units[k] == NULL ? "NULL" : "empty");
        for (int i = 0; i < ddp->unit.n_placed && !found; i++)
            found = module_of(ddp->units[k], ddp->unit.placed[i].name) > 0;
        if (!found)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "units[%d], \"%s\", names no module with parameters: %s is the "
                             "first of them, and * matches any characters of one name",
                             k, ddp->units[k], ddp->unit.placed[0].name);
    }
    return TRI_OK;
}

tri_status trii_ddp_set_units(trii_ddp *ddp)
{
    const char *before = "";
    size_t path_before = 0;
    int pattern_before = -1, n = 0;
    tri_status status = check(ddp);

    for (int i = 0; i < ddp->unit.n_placed && status == TRI_OK; i++) {
        trii_placed *placed = &ddp->unit.placed[i];
        size_t path;
        int pattern;

        status = find(ddp, placed->name, &pattern, &path);
        if (status != TRI_OK || pattern < 0)
            continue;
        if (pattern != pattern_before || path != path_before ||
            memcmp(before, placed->name, path) != 0)
            n++;
        placed->group = n;
        before = placed->name;
        path_before = path;
        pattern_before = pattern;
    }
    return status;
}
