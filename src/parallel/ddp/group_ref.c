/*
 * group_ref.c - the group that NULL stands for, and its memory. Apart, because the insides of
 * groups and of graphs are not included together.
 */
#include "group/front.h"

tri_group *trii_ddp_group_ref(tri_group *group);
tri_status trii_ddp_group_alloc(tri_group *group, size_t bytes, void **p_out);

tri_group *trii_ddp_group_ref(tri_group *group)
{
    if (group == NULL)
        group = trii_group_get_world();
    return group != NULL ? tri_group_ref(group) : NULL;
}

tri_status trii_ddp_group_alloc(tri_group *group, size_t bytes, void **p_out)
{
    return trii_group_alloc(group, bytes, p_out);
}
