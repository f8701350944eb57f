/*
 * mesh.c - see mesh.h. A mesh keeps the group that was divided, and for each axis the group of this
 * rank's line and how far along it this rank is, in coordinates and in ranks of the whole.
 */
#include <trireme/mesh.h>

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/hash.h"
#include "comm/group/join/world.h"
#include "comm/reducer/agreement.h"

typedef struct axis {
    char name[TRI_MAX_MESH_NAME + 1];
    int size, coordinate;
    int ranks_before; /* of the whole group: from the first rank of the line to this one */
    uint64_t layout;  /* hash: sizes and distances in the whole of the axes that it is made of */
    tri_group *group; /* a reference */
} axis;

struct tri_mesh {
    tri_group *whole; /* a reference; what tri_mesh_create has divided */
    int n;
    axis axes[TRI_MAX_MESH_AXES];
};

/* --- the same on all ranks ------------------------------------------------ */

/* What a rank gave. Ranks agree on it before anything is refused that all of them should refuse, or
 * made that all have to make: none is left waiting. */
typedef struct request {
    const char *call;
    int n; /* 0: this rank's own arguments are bad */
    const char *const *names;
    int64_t sizes[TRI_MAX_MESH_AXES];
    uint64_t layouts[TRI_MAX_MESH_AXES]; /* of the axes of a mesh that has them */
    const char *name;                    /* of the new axis, or NULL */
} request;

static void describe(void *ctx, int64_t index, char line[TRII_AGREE_LINE])
{
    const request *r = ctx;

    if (r->n == 0)
        snprintf(line, TRII_AGREE_LINE, "a call with bad arguments");
    else if (index >= r->n)
        snprintf(line, TRII_AGREE_LINE, "%d axes%s%.40s", r->n,
                 r->name != NULL ? " to become " : "", r->name != NULL ? r->name : "");
    else
        snprintf(line, TRII_AGREE_LINE, "axis %lld \"%.40s\" of %lld", (long long)index,
                 r->names[index], (long long)r->sizes[index]);
}

/* Of the line, which tells apart all names that are not refused, and of what it does not say. */
static tri_status hash_entry(void *ctx, int64_t index, uint64_t *hash_out)
{
    const request *r = ctx;
    char line[TRII_AGREE_LINE];

    describe(ctx, index, line);
    *hash_out = trii_hash_text(TRII_HASH_SEED, line);
    if (index < r->n)
        *hash_out = trii_hash(*hash_out, &r->layouts[index], sizeof(r->layouts[index]));
    return TRI_OK;
}

static tri_status agree(tri_group *group, request *r)
{
    const trii_agreement agreement = {
        .group = group, .n = r->n + 1, .ctx = r, .hash = hash_entry, .describe = describe};
    trii_difference found;
    tri_status status = trii_agree(&agreement, &found);

    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "%s", r->call);
    if (found.rank != 0)
        return TRII_FAIL(TRI_ERR_MISMATCH, "%s: rank %d has %s%s; rank 0 has %s", r->call,
                         found.rank, found.line,
                         strcmp(found.line, found.line_of_0) == 0 ? " of another mesh" : "",
                         found.line_of_0);
    return TRI_OK;
}

/* --- names ---------------------------------------------------------------- */

static tri_status check_name(const char *call, const char *name)
{
    size_t length = name != NULL ? strlen(name) : 0;

    if (length >= 1 && length <= TRI_MAX_MESH_NAME)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: the name of an axis has 1 to %d bytes, not %zu",
                     call, TRI_MAX_MESH_NAME, length);
}

/* "data", "tensor" */
static void list_names(const tri_mesh *mesh, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int a = 0; a < mesh->n && used < size; a++)
        used += (size_t)snprintf(text + used, size - used, "%s\"%s\"", a > 0 ? ", " : "",
                                 mesh->axes[a].name);
}

/* The axis of this name; -1 and the error line. */
static int find_axis(const char *call, const tri_mesh *mesh, const char *name)
{
    char names[TRI_MAX_MESH_AXES * (TRI_MAX_MESH_NAME + 4)];

    if (mesh == NULL) {
        (void)TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: the mesh is NULL", call);
        return -1;
    }
    if (name == NULL && mesh->n == 1)
        return 0;
    for (int a = 0; a < mesh->n && name != NULL; a++) {
        if (strcmp(mesh->axes[a].name, name) == 0)
            return a;
    }
    list_names(mesh, names, sizeof(names));
    if (name == NULL)
        (void)TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: which of the axes %s?", call, names);
    else
        (void)TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: no axis is called \"%s\" (axes: %s)", call, name,
                        names);
    return -1;
}

/* What can be looked at: at most `most` names. */
static tri_status check_names(const char *call, const char *const *names, int n, int most)
{
    if (names == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: names is NULL", call);
    if (n < 1 || n > most)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %d axes; 1 to %d are allowed", call, n, most);
    for (int i = 0; i < n; i++) {
        if (names[i] == NULL)
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: name %d is NULL", call, i);
    }
    return TRI_OK;
}

static tri_status check_mesh(const char *call, const tri_mesh *mesh)
{
    return mesh != NULL ? TRI_OK : TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: the mesh is NULL", call);
}

/* The axes of these names, which must keep their order. */
static tri_status find_axes(const char *call, const tri_mesh *mesh, const char *const *names, int n,
                            int *found)
{
    for (int i = 0; i < n; i++) {
        int at = find_axis(call, mesh, names[i]);

        if (at < 0)
            return TRI_ERR_INVALID_ARG;
        if (i > 0 && at <= found[i - 1])
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s: \"%s\" comes after \"%s\": axes keep the order of the mesh, each "
                             "once",
                             call, names[i], names[i - 1]);
        found[i] = at;
    }
    return TRI_OK;
}

/* --- groups --------------------------------------------------------------- */

static tri_status mesh_new(tri_group *whole, tri_mesh **mesh_out)
{
    tri_mesh *mesh = trii_alloc(1, sizeof(*mesh), "mesh");

    if (mesh == NULL)
        return TRI_ERR_NO_MEMORY;
    mesh->whole = tri_group_ref(whole);
    *mesh_out = mesh;
    return TRI_OK;
}

/* The ranks that differ from this one along `a` alone. */
static tri_status make_group(tri_mesh *mesh, axis *a)
{
    if (a->size == tri_group_size(mesh->whole)) {
        a->group = tri_group_ref(mesh->whole);
        return TRI_OK;
    }
    /* the line's first rank is its color */
    return tri_group_split(mesh->whole, tri_group_rank(mesh->whole) - a->ranks_before,
                           a->coordinate, NULL, &a->group);
}

static tri_status check_sizes(const request *r, int ranks)
{
    int64_t product = 1;

    for (int a = 0; a < r->n; a++) {
        if (r->sizes[a] < 1)
            return TRII_FAIL(TRI_ERR_INVALID_ARG,
                             "%s: axis \"%s\" has %lld ranks; at least 1 is needed", r->call,
                             r->names[a], (long long)r->sizes[a]);
        product = r->sizes[a] <= ranks / product ? product * r->sizes[a] : (int64_t)ranks + 1;
        for (int b = 0; b < a; b++) {
            if (strcmp(r->names[a], r->names[b]) == 0)
                return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: two axes have the name \"%s\"", r->call,
                                 r->names[a]);
        }
    }
    if (product != ranks) {
        char sizes[TRI_MAX_MESH_AXES * 24] = "";
        size_t used = 0;

        for (int a = 0; a < r->n && used < sizeof(sizes); a++)
            used += (size_t)snprintf(sizes + used, sizeof(sizes) - used, "%s%lld",
                                     a > 0 ? " x " : "", (long long)r->sizes[a]);
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s: the sizes %s need as many ranks as their product; the group has %d",
                         r->call, sizes, ranks);
    }
    return TRI_OK;
}

static tri_status fill(tri_mesh *mesh, const request *r)
{
    int rank = tri_group_rank(mesh->whole), stride = tri_group_size(mesh->whole);
    tri_status status = TRI_OK;

    for (int a = 0; a < r->n && status == TRI_OK; a++) {
        axis *at = &mesh->axes[mesh->n++];

        snprintf(at->name, sizeof(at->name), "%s", r->names[a]);
        at->size = (int)r->sizes[a];
        stride /= at->size;
        at->coordinate = rank / stride % at->size;
        at->ranks_before = at->coordinate * stride;
        at->layout = trii_hash(TRII_HASH_SEED, (int[2]){at->size, stride}, sizeof(int[2]));
        status = make_group(mesh, at);
    }
    return status == TRI_OK ? TRI_OK : TRII_FAIL_CTX(status, "%s", r->call);
}

/* A rank that lacks memory where the others go on together cannot follow them. */
static tri_status tell(tri_group *group, tri_status status)
{
    char line[TRII_ERR_BYTES];

    if (status != TRI_ERR_NO_MEMORY)
        return status;
    snprintf(line, sizeof(line), "%s", tri_last_error());
    tri_group_abort(group, line);
    trii_err_set("%s", line);
    return status;
}

/* This rank's own arguments, and its memory. */
static tri_status begin_create(const int64_t *sizes, int n, const char *const *names,
                               tri_mesh **mesh_out, tri_group *group, tri_mesh **mesh)
{
    tri_status status;

    if (mesh_out == NULL || sizes == NULL)
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "tri_mesh_create: %s is NULL",
                         mesh_out == NULL ? "mesh_out" : "sizes");
    status = check_names("tri_mesh_create", names, n, TRI_MAX_MESH_AXES);
    return status == TRI_OK ? mesh_new(group, mesh) : status;
}

/* A failure of this rank's own is told instead of what the others say of it. */
static tri_status agree_unless(tri_status own, tri_group *group, request *r)
{
    char line[TRII_ERR_BYTES];
    tri_status status;

    snprintf(line, sizeof(line), "%s", own != TRI_OK ? tri_last_error() : "");
    if (own != TRI_OK)
        r->n = 0;
    status = agree(group, r);
    if (own != TRI_OK)
        trii_err_set("%s", line);
    return own != TRI_OK ? own : status;
}

tri_status(tri_mesh_create)(tri_group *group, const int64_t *sizes, int n, const char *const *names,
                            tri_mesh **mesh_out)
{
    request r = {.call = "tri_mesh_create", .n = n, .names = names};
    tri_mesh *mesh = NULL;
    tri_status status = trii_group_resolve(&group, r.call);

    if (status == TRI_OK)
        status = trii_group_takes_host_memory(group);
    if (status != TRI_OK)
        return status;
    status = begin_create(sizes, n, names, mesh_out, group, &mesh);
    if (status == TRI_OK)
        memcpy(r.sizes, sizes, (size_t)n * sizeof(*sizes));
    status = agree_unless(status, group, &r);
    for (int a = 0; a < r.n && status == TRI_OK; a++)
        status = check_name(r.call, names[a]);
    if (status == TRI_OK)
        status = check_sizes(&r, tri_group_size(group));
    if (status == TRI_OK)
        status = fill(mesh, &r);
    if (status != TRI_OK) {
        tri_mesh_destroy(mesh);
        return tell(group, status);
    }
    *mesh_out = mesh;
    return TRI_OK;
}

void tri_mesh_destroy(tri_mesh *mesh)
{
    if (mesh == NULL)
        return;
    for (int a = 0; a < mesh->n; a++)
        tri_group_unref(mesh->axes[a].group);
    tri_group_unref(mesh->whole);
    trii_free(mesh);
}

/* --- looking -------------------------------------------------------------- */

tri_group *tri_mesh_group(const tri_mesh *mesh, const char *name)
{
    int a = find_axis("tri_mesh_group", mesh, name);

    return a >= 0 ? mesh->axes[a].group : trii_group_not_found();
}

int tri_mesh_coordinate(const tri_mesh *mesh, const char *name)
{
    int a = find_axis("tri_mesh_coordinate", mesh, name);

    return a >= 0 ? mesh->axes[a].coordinate : -1;
}

int tri_mesh_size(const tri_mesh *mesh, const char *name)
{
    int a = find_axis("tri_mesh_size", mesh, name);

    return a >= 0 ? mesh->axes[a].size : -1;
}

int tri_mesh_axis_count(const tri_mesh *mesh)
{
    return mesh != NULL ? mesh->n : 0;
}

const char *tri_mesh_axis_name(const tri_mesh *mesh, int index)
{
    return mesh != NULL && index >= 0 && index < mesh->n ? mesh->axes[index].name : NULL;
}

/* --- parts ---------------------------------------------------------------- */

tri_status tri_mesh_submesh(const tri_mesh *mesh, const char *const *names, int n,
                            tri_mesh **sub_out)
{
    static const char call[] = "tri_mesh_submesh";
    int found[TRI_MAX_MESH_AXES];
    tri_mesh *sub;
    tri_status status = check_mesh(call, mesh);

    if (status == TRI_OK && sub_out == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: sub_out is NULL", call);
    if (status == TRI_OK)
        status = check_names(call, names, n, mesh->n);
    if (status == TRI_OK)
        status = find_axes(call, mesh, names, n, found);
    if (status == TRI_OK)
        status = mesh_new(mesh->whole, &sub);
    if (status != TRI_OK)
        return status;
    for (int i = 0; i < n; i++) {
        sub->axes[sub->n] = mesh->axes[found[i]];
        tri_group_ref(sub->axes[sub->n++].group);
    }
    *sub_out = sub;
    return TRI_OK;
}

/* The axes become one, the last of them fastest. */
static tri_status flatten(tri_mesh *flat, const tri_mesh *mesh, const int *found, int n)
{
    axis *to = &flat->axes[flat->n++];

    to->size = 1;
    to->layout = TRII_HASH_SEED;
    for (int i = 0; i < n; i++) {
        const axis *a = &mesh->axes[found[i]];

        to->size *= a->size;
        to->coordinate = to->coordinate * a->size + a->coordinate;
        to->ranks_before += a->ranks_before;
        to->layout = trii_hash(to->layout, &a->layout, sizeof(a->layout));
    }
    return make_group(flat, to);
}

/* What the ranks compare of the axes; a name that the mesh lacks has size 0. */
static void describe_axes(request *r, const tri_mesh *mesh)
{
    for (int i = 0; i < r->n; i++) {
        for (int a = 0; a < mesh->n; a++) {
            if (strcmp(mesh->axes[a].name, r->names[i]) != 0)
                continue;
            r->sizes[i] = mesh->axes[a].size;
            r->layouts[i] = mesh->axes[a].layout;
        }
    }
}

tri_status(tri_mesh_flatten)(const tri_mesh *mesh, const char *const *names, int n,
                             const char *name, tri_mesh **flat_out)
{
    request r = {.call = "tri_mesh_flatten", .n = n, .names = names, .name = name};
    int found[TRI_MAX_MESH_AXES];
    tri_mesh *flat = NULL;
    tri_status status = check_mesh(r.call, mesh);

    if (status != TRI_OK)
        return status; /* there is no group in which to say so */
    if (flat_out == NULL || name == NULL)
        status = TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s is NULL", r.call,
                           flat_out == NULL ? "flat_out" : "name");
    if (status == TRI_OK)
        status = check_names(r.call, names, n, mesh->n);
    if (status == TRI_OK)
        status = mesh_new(mesh->whole, &flat);
    if (status == TRI_OK)
        describe_axes(&r, mesh);
    status = agree_unless(status, mesh->whole, &r);
    if (status == TRI_OK)
        status = check_name(r.call, name);
    if (status == TRI_OK)
        status = find_axes(r.call, mesh, names, n, found);
    if (status == TRI_OK) {
        snprintf(flat->axes[0].name, sizeof(flat->axes[0].name), "%s", name);
        status = flatten(flat, mesh, found, n);
        if (status != TRI_OK)
            status = TRII_FAIL_CTX(status, "%s", r.call);
    }
    if (status != TRI_OK) {
        tri_mesh_destroy(flat);
        return tell(mesh->whole, status);
    }
    *flat_out = flat;
    return TRI_OK;
}
