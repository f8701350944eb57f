/*
 * group_calls.c - see group_calls.h; in a file of its own, since few tests see the inside of a
 * group.
 */
#include "testing/group_calls.h"

#include "comm/group/group_internal.h"

uint64_t group_calls(const tri_group *group)
{
    return group->seq;
}
