/*
 * metrics_http.c - the figures of a job by HTTP, with libmicrohttpd: see
 * launch/report/metrics_http.h. One page, /metrics; every other path is answered with where it is.
 *
 * Answers are of HTTP/1.0, which closes the connection after each: a scraper comes every few
 * seconds, and none shall keep a descriptor of trirun's meanwhile.
 */
#include "launch/report/metrics_http.h"

#include <microhttpd.h>
#include <string.h>

#include <trireme/export.h>

#define MAX_CONNECTIONS 64
#define IDLE_SECONDS 10 /* then a connection that asks nothing, or reads nothing, is closed */

static const char elsewhere[] = "trirun: the figures of the job are at /metrics\n";

/* text: copied. */
static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *text,
                              size_t bytes, const char *type)
{
    /* The library takes no const, and copies. */
    struct MHD_Response *response =
        MHD_create_response_from_buffer(bytes, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result result = MHD_NO;

    if (response == NULL)
        return MHD_NO;
    if (MHD_set_response_options(response, MHD_RF_HTTP_VERSION_1_0_RESPONSE, MHD_RO_END) ==
            MHD_YES &&
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES &&
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close") == MHD_YES)
        result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result handle(void *arg, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **request)
{
    const trii_metrics_http_source *source = arg;
    enum MHD_Result result;
    size_t bytes;
    char *text;

    (void)method;
    (void)version;
    (void)upload;
    (void)upload_bytes;
    (void)request;
    if (strcmp(url, "/metrics") != 0)
        return answer(connection, MHD_HTTP_NOT_FOUND, elsewhere, sizeof(elsewhere) - 1,
                      "text/plain");
    text = source->make(source->arg, &bytes);
    if (text == NULL)
        return MHD_NO;
    result = answer(connection, MHD_HTTP_OK, text, bytes, "text/plain; version=0.0.4");
    source->release(text);
    return result;
}

static void *server_open(const trii_metrics_http_source *source, int *watch_fd_out)
{
    struct MHD_Daemon *server =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, handle,
                         (void *)(uintptr_t)source, MHD_OPTION_CONNECTION_LIMIT, MAX_CONNECTIONS,
                         MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS, MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        server != NULL ? MHD_get_daemon_info(server, MHD_DAEMON_INFO_EPOLL_FD) : NULL;

    if (info == NULL) {
        if (server != NULL)
            MHD_stop_daemon(server);
        return NULL;
    }
    *watch_fd_out = info->epoll_fd;
    return server;
}

static void server_add(void *server, int fd)
{
    /* The peer's address is of no interest here, but the library wants room for it. */
    const struct sockaddr anybody = {.sa_family = AF_INET};

    (void)MHD_add_connection(server, fd, &anybody, sizeof(anybody)); /* it closes what it refuses */
}

static int64_t server_run(void *server)
{
    MHD_UNSIGNED_LONG_LONG wait_ms;

    (void)MHD_run(server);
    return MHD_get_timeout(server, &wait_ms) == MHD_YES ? (int64_t)wait_ms : -1;
}

static void server_close(void *server)
{
    MHD_stop_daemon(server);
}

/* Found by its name. */
extern TRI_API const trii_metrics_http_api trii_metrics_http;

const trii_metrics_http_api trii_metrics_http = {.abi = TRII_METRICS_HTTP_ABI,
                                                 .size = sizeof(trii_metrics_http_api),
                                                 .open = server_open,
                                                 .add = server_add,
                                                 .run = server_run,
                                                 .close = server_close};
