/*
 * endpoint.c - see endpoint.h.
 */
/* build: leaf */
#include "os/endpoint.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/err.h"
#include "base/param.h"

tri_status trii_endpoint_read(const char *text, const char *what, char *host_out, size_t bytes,
                              int *port_io)
{
    const char *host = text, *port = strchr(text, ':');
    size_t length = port != NULL ? (size_t)(port - text) : strlen(text);
    int64_t number = *port_io;
    char name[80];

    if (*text == '[') {
        const char *end = strchr(text, ']');

        if (end == NULL || end == text + 1 || (end[1] != '\0' && end[1] != ':'))
            return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s %s: an IPv6 endpoint is [ADDRESS]:PORT", what,
                             text);
        host = text + 1;
        length = (size_t)(end - host);
        port = end[1] == ':' ? end + 1 : NULL;
    } else if (port != NULL && strchr(port + 1, ':') != NULL) {
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s %s: an IPv6 address is written in brackets: [ADDRESS]:PORT, or [%s]",
                         what, text, text);
    }
    if (length >= bytes)
        return TRII_FAIL(TRI_ERR_INVALID_ARG,
                         "%s %.40s...: the host's name is longer than %zu bytes", what, text,
                         bytes - 1);
    if (port != NULL) {
        tri_status status;

        snprintf(name, sizeof(name), "port of %s", what);
        status = trii_parse_i64(port + 1, name, 0, 65535, &number);
        if (status != TRI_OK)
            return status;
    }
    memcpy(host_out, host, length);
    host_out[length] = '\0';
    *port_io = (int)number;
    return TRI_OK;
}

bool trii_host_lacks_interface(const char *host)
{
    struct in6_addr address;

    return inet_pton(AF_INET6, host, &address) == 1 && IN6_IS_ADDR_LINKLOCAL(&address);
}
