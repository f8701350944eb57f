/*
 * memory_room.h - how much memory can still be taken before the kernel begins to kill: of the host,
 * and of the control groups that the process is in. An estimate: others take memory too.
 */
#ifndef TRII_MEMORY_ROOM_H
#define TRII_MEMORY_ROOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct trii_memory_room {
    size_t host_bytes;   /* SIZE_MAX = not known */
    size_t cgroup_bytes; /* of the tightest control group; SIZE_MAX = no limit, or not known */
    uint64_t cgroup;     /* a number for that group, the same in all processes in it; 0 = none */
} trii_memory_room;

/* root: "" for the system's own files; a test has some below another folder. */
void trii_memory_room_look(const char *root, trii_memory_room *room_out);

#endif
