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
/* The same by a wire that takes delay_ms in each direction and kbit kilobits a second (0 = as many
 * as come), and drops what more than queue_bytes wait for. False: this system has no /dev/net/tun
 * for us. */
bool hosts_plug_slow(int host, int delay_ms, int kbit, int queue_bytes);
/* The same by a wire that takes delay_ms and, frame by frame, up to jitter_ms more, so that some
 * overtake others, and that loses loss_per_mille of 1000. */
bool hosts_plug_lossy(int host, int delay_ms, int jitter_ms, int loss_per_mille);
/* The host's wire is cut, at the switch, so that nobody is told; or whole again. */
void hosts_cut(int host);
void hosts_heal(int host);
/* What `from` sends to `to`, 10.77.0.TO, is swallowed, what comes back is not; or no longer. */
void hosts_mute(int from, int to);
void hosts_unmute(int from, int to);

/* The words that run a command on a host, which goes by the name of hostN: ends with NULL, static,
 * good until the third call from here. */
const char *const *hosts_prefix(int host);
/* As spawn_start, on a host. */
void hosts_spawn(int host, spawn *s, const char *const *argv, const char *const *env);
/* To all processes on the host (not 0). SIGKILL: until there is none. */
void hosts_signal(int host, int number);
void hosts_end(void);

#endif
