/*
 * endpoint.h - "HOST:PORT" as users write it.
 */
#ifndef TRII_ENDPOINT_H
#define TRII_ENDPOINT_H

#include <stddef.h>

#include <trireme/status.h>

/* "HOST", "HOST:PORT", "[V6]", "[V6]:PORT", ":PORT". what: begins the error's line,
 * "--rdzv-endpoint". host_out: without brackets, "" if there is none. *port_io stays as it is where
 * none is given. Errors: INVALID_ARG (an IPv6 address without its brackets could be read in two
 * ways). */
tri_status trii_endpoint_read(const char *text, const char *what, char *host_out, size_t bytes,
                              int *port_io) TRI_MUST_CHECK;
/* An address that can only be reached together with the name of an interface, which is missing:
 * fe80::1 instead of fe80::1%eth0. */
bool trii_host_lacks_interface(const char *host);

#endif
