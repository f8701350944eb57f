/*
 * plugin_socket.h - sockets that somebody else's library connects and speaks through. Links nothing
 * of this library, so that plug-ins can have it.
 */
#ifndef TRII_PLUGIN_SOCKET_H
#define TRII_PLUGIN_SOCKET_H

/* As socket(), closed on exec; a connection whose other end's system is silent for dead_ms breaks,
 * also while nothing is said. Negative: none. */
int trii_socket_make(int family, int type, int protocol, int dead_ms);

#endif
