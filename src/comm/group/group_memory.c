/*
 * group_memory.c - memory of a group: the engine's, or the heap's. Where an engine's alloc may fail
 * on some ranks only, the ranks exchange how theirs went by a call that needs no memory itself.
 */
#include <string.h>

#include "base/alloc.h"
#include "comm/group/group_internal.h"
#include "os/memory_room.h"

/* From there on it is worth to look how much there is. */
#define HEAP_LOOK_BYTES ((size_t)64 << 20)

/* What a rank tells each other one. */
typedef struct memory_word {
    int32_t status;
    char why[124];
} memory_word;

_Static_assert(2 * sizeof(memory_word) == TRII_ALLOC_ROOM, "engines have room for them");

/* A rank that got memory gives it back if another rank did not. */
static tri_status agree(tri_group *group, memory_word *own, tri_status mine, void *p)
{
    memory_word *theirs = own + group->size;
    const trii_collective call = {.kind = TRII_KIND_ALL_TO_ALL,
                                  .dtype = TRI_DTYPE_U8,
                                  .src = own,
                                  .dst = theirs,
                                  .count = sizeof(*own),
                                  .bytes = sizeof(*own)};
    tri_status status;

    for (int r = 0; r < group->size; r++) {
        own[r].status = mine;
        snprintf(own[r].why, sizeof(own[r].why), "%s", mine != TRI_OK ? tri_last_error() : "");
    }
    status = trii_group_run(group, &call);
    for (int r = 0; r < group->size && status == TRI_OK; r++) {
        const char *why = theirs[r].why;

        if (theirs[r].status != TRI_OK)
            status = strncmp(why, "rank ", 5) == 0
                         ? TRII_FAIL((tri_status)theirs[r].status, "%s", why)
                         : TRII_FAIL((tri_status)theirs[r].status, "rank %d: %s", r, why);
    }
    if (status != TRI_OK && mine == TRI_OK)
        group->engine->free(group->self, p);
    return status;
}

tri_status trii_group_heap(size_t bytes, void **p_out)
{
    trii_memory_room room = {.host_bytes = SIZE_MAX, .cgroup_bytes = SIZE_MAX};
    size_t left;
    void *p;

    if (bytes >= HEAP_LOOK_BYTES)
        trii_memory_room_look("", &room);
    left = room.host_bytes < room.cgroup_bytes ? room.host_bytes : room.cgroup_bytes;
    if (bytes > left)
        return TRII_FAIL(TRI_ERR_NO_MEMORY, "%zu MiB are asked for, %zu MiB are available here",
                         bytes >> 20, left >> 20);
    p = trii_alloc_aligned(TRII_CACHE_LINE, bytes, "group_alloc");
    if (p == NULL)
        return TRI_ERR_NO_MEMORY;
    *p_out = memset(p, 0, bytes);
    return TRI_OK;
}

tri_status trii_group_takes_host_memory(const tri_group *group)
{
    if (group->engine->device == NULL)
        return TRI_OK;
    return TRII_FAIL(
        TRI_ERR_UNSUPPORTED,
        "engine %s takes memory of a device only, and this is memory of the host: give "
        "a group of another engine",
        group->engine->name);
}

tri_status trii_group_alloc(tri_group *group, size_t bytes, void **p_out)
{
    void *p = NULL, *room = NULL;
    tri_status status;

    status = trii_group_resolve(&group, "group_alloc");
    if (status != TRI_OK)
        return status;
    if (group->engine->alloc == NULL && group->engine->device != NULL)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "group_alloc: engine %s reduces memory of a device, and has none to give: "
                         "allocate it as the device does (cudaMalloc)",
                         group->engine->name);
    if (group->engine->alloc == NULL)
        return trii_group_heap(bytes, p_out);
    status = trii_fault_status(&group->fault);
    if (status != TRI_OK)
        return TRII_FAIL(status, "group_alloc: the group has failed: %s", group->fault.text);
    trii_mutex_lock(&group->memory_lock);
    status = group->engine->alloc(group->self, bytes, &p);
    if (group->engine->alloc_room != NULL)
        room = group->engine->alloc_room(group->self);
    if (room != NULL)
        status = agree(group, room, status, p);
    trii_mutex_unlock(&group->memory_lock);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "group_alloc of %zu bytes, rank %d", bytes, group->rank);
    *p_out = p;
    return TRI_OK;
}

void *tri_group_alloc(tri_group *group, size_t bytes)
{
    void *p = NULL;

    return trii_group_alloc(group, bytes, &p) == TRI_OK ? p : NULL;
}

void tri_group_free(tri_group *group, void *p)
{
    group = group != NULL ? group : trii_group_get_world();
    if (p == NULL || group == NULL || group->engine == NULL)
        return;
    if (group->engine->free == NULL)
        trii_free(p);
    else
        group->engine->free(group->self, p);
}
