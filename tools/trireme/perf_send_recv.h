/*
 * perf_send_recv.h - the operation send_recv of `trireme perf`: each rank sends to the next one and
 * receives from the one before, some messages at a time.
 */
#ifndef TRIREME_PERF_SEND_RECV_H
#define TRIREME_PERF_SEND_RECV_H

#include <trireme/comm.h>

#define PERF_MOST_OUTSTANDING 4096

/* Messages of count elements that are under way at a time, each with its tag: every send before any
 * receive, and the last message is received first. dst has room for all of them. */
extern int perf_outstanding;

tri_status perf_send_recv(const void *src, void *dst, size_t count, tri_dtype dtype);

#endif
