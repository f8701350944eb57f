/*
 * metrics_http.h - what trirun (job_metrics.c) and its plug-in $libdir/trireme/metrics-http.so
 * agree on: HTTP for the figures of a job. It is loaded when --metrics names a port, so that a
 * trirun that serves nothing does not load libmicrohttpd.
 *
 * The plug-in has no thread and no socket of its own: trirun accepts connections and runs it from
 * its event loop. All functions are called by one thread, and none of them blocks.
 */
#ifndef TRII_LAUNCH_METRICS_HTTP_H
#define TRII_LAUNCH_METRICS_HTTP_H

#include <stddef.h>
#include <stdint.h>

#define TRII_METRICS_HTTP_ABI 1u
#define TRII_METRICS_HTTP_PLUGIN "metrics-http.so"
#define TRII_METRICS_HTTP_SYMBOL "trii_metrics_http" /* a trii_metrics_http_api */

/* What trirun hands over. make: the text of all figures, NULL without memory; it is given back to
 * release. Called from run(). */
typedef struct trii_metrics_http_source {
    char *(*make)(void *arg, size_t *bytes_out);
    void (*release)(void *text);
    void *arg;
} trii_metrics_http_source;

typedef struct trii_metrics_http_api {
    uint32_t abi, size;
    /* watch_fd_out: the server's, to be watched until close: run() is due when it is readable. The
     * source is borrowed. NULL: the library could not start. */
    void *(*open)(const trii_metrics_http_source *source, int *watch_fd_out);
    /* A connection that trirun has accepted; the server closes it, at once if there are too many.
     * Call run() afterwards. */
    void (*add)(void *server, int fd);
    /* Serves what is ready. Returns in how many milliseconds it has to run again if nothing happens
     * before, or -1: not at all. */
    int64_t (*run)(void *server);
    void (*close)(void *server); /* with all connections */
} trii_metrics_http_api;

#endif
