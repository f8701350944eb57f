/*
 * group_calls.h - how many collectives a group has posted. Tests only.
 */
#ifndef TEST_GROUP_CALLS_H
#define TEST_GROUP_CALLS_H

#include <stdint.h>

#include <trireme/group.h>

/* On this rank, while none is being posted. */
uint64_t group_calls(const tri_group *group);

#endif
