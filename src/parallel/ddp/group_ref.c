/*
 * group_ref.c - the group that NULL stands for. Apart, because the insides of groups and of graphs
 * are not included together.
 */
#include "group/front.h"

tri_group *trii_ddp_group_ref(tri_group *group);

tri_group *trii_ddp_group_ref(tri_group *group)
{
    if (group == NULL)
        group = trii_group_get_world();
    return group != NULL ? tri_group_ref(group) : NULL;
}
