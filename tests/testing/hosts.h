/*
 * hosts.h - several hosts in one test: network namespaces, joined by a switch. Tests only.
 *
 * The namespaces have no names and belong to processes of the test: whatever becomes of it, nothing
 * stays. Needs root, or a system that lets users make namespaces; and iproute2.
 */
#ifndef TEST_HOSTS_H
#define TEST_HOSTS_H

#include <stdbool.h>

#include "testing/spawn.h"

#define HOSTS_MAX 8

/* Makes n hosts, 1 to n, with nothing but a loopback interface, and the switch, host 0, in whose
 * namespace this process is then; it must have no threads. False: this system does not let us,
 * or TRI_TEST_NO_NAMESPACES is set. */
bool hosts_begin(int n);
/* `ip WORDS` on a host (0 = the switch), which must succeed. */
void hosts_ip(int host, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Gives a host (not 0) the interface eth0, up, at the switch's port `portHOST`. */
void hosts_plug(int host);
/* As spawn_start, on a host. */
void hosts_spawn(int host, spawn *s, const char *const *argv, const char *const *env);
void hosts_end(void);

#endif
