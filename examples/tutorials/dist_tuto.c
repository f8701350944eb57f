/*
 * dist_tuto.c - PyTorch's tutorial "Writing Distributed Applications with PyTorch": messages,
 * collectives and a hand-written all-reduce, between two processes (four for the last). Its
 * training is train_dist.c.
 *
 *     python run.py                      becomes
 *     build/bin/dist_tuto
 *
 * The tutorial's ways to find each other: its processes set MASTER_ADDR and MASTER_PORT, which
 * tri_spawn does for ours; a file, or an address, is named:
 *
 *     build/bin/dist_tuto file:///mnt/nfs/sharedfile
 *     build/bin/dist_tuto tcp://127.0.0.1:23456
 *
 * A tensor here is an array of C: calls take a pointer, how many elements, and their type.
 */
#include <string.h>

#include <trireme/comm.h>

#include "../command_line.h"

/* --- point to point ------------------------------------------------------- */

/* Blocking: both return when the number was handed over. */
static void run_blocking(int rank, int size)
{
    float tensor = 0;

    (void)size;
    if (rank == 0) {
        tensor += 1;
        TRI_TRY(tri_send(NULL, &tensor, 1, TRI_DTYPE_F32, 1, 0, NULL)); /* to process 1, tag 0 */
    } else {
        TRI_TRY(tri_recv(NULL, &tensor, 1, TRI_DTYPE_F32, 0, 0, NULL));
    }
    printf("Rank  %d  has data  tensor(%g.)\n", rank, (double)tensor);
}

/* With a handle (isend, irecv) the calls return at once; the number must not be touched before
 * tri_work_wait. */
static void run_non_blocking(int rank, int size)
{
    float tensor = 0;
    tri_work *req;

    (void)size;
    if (rank == 0) {
        tensor += 1;
        TRI_TRY(tri_send(NULL, &tensor, 1, TRI_DTYPE_F32, 1, 0, &req));
        printf("Rank 0 started sending\n");
    } else {
        TRI_TRY(tri_recv(NULL, &tensor, 1, TRI_DTYPE_F32, 0, 0, &req));
        printf("Rank 1 started receiving\n");
    }
    TRI_TRY(tri_work_wait(req, 0));
    tri_work_destroy(req);
    printf("Rank  %d  has data  tensor(%g.)\n", rank, (double)tensor);
}

/* --- collectives ---------------------------------------------------------- */

static void run_all_reduce(int rank, int size)
{
    float tensor = 1;
    tri_group *group;

    (void)size;
    TRI_TRY(tri_group_new(NULL, (const int[]){0, 1}, 2, NULL, &group));
    TRI_TRY(tri_all_reduce(group, &tensor, &tensor, 1, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    printf("Rank  %d  has data  tensor(%g.)\n", rank, (double)tensor);
    tri_group_unref(group);
}

/* --- our own ring all-reduce ---------------------------------------------- */

enum { N = 4 };

/* Each number goes round the ring once, and everybody adds it to what it has. */
static void allreduce(const float *send, float *recv)
{
    const int rank = tri_rank(), size = tri_world_size();
    const int left = (rank - 1 + size) % size, right = (rank + 1) % size;
    float send_buff[N], recv_buff[N];

    memcpy(send_buff, send, sizeof(send_buff));
    memcpy(recv, send, sizeof(send_buff));
    for (int i = 0; i < size - 1; i++) {
        tri_work *send_req;

        TRI_TRY(tri_send(NULL, send_buff, N, TRI_DTYPE_F32, right, 0, &send_req));
        TRI_TRY(tri_recv(NULL, recv_buff, N, TRI_DTYPE_F32, left, 0, NULL));
        for (int k = 0; k < N; k++)
            recv[k] += recv_buff[k];
        TRI_TRY(tri_work_wait(send_req, 0)); /* only now may send_buff be written */
        tri_work_destroy(send_req);
        memcpy(send_buff, recv_buff, sizeof(send_buff));
    }
}

static void run_own_allreduce(int rank, int size)
{
    float t[N], c[N], theirs[N];

    (void)size;
    for (int k = 0; k < N; k++)
        t[k] = (float)(rank + k);
    allreduce(t, c);
    TRI_TRY(tri_all_reduce(NULL, t, theirs, N, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL));
    printf("Rank  %d  has data  tensor([%g., %g., %g., %g.]), %s\n", rank, (double)c[0],
           (double)c[1], (double)c[2], (double)c[3],
           memcmp(c, theirs, sizeof(c)) == 0 ? "as tri_all_reduce has" : "and tri_all_reduce not");
}

/* --- processes ------------------------------------------------------------ */

typedef struct job {
    void (*run)(int rank, int size);
    const char *url; /* NULL: by the environment */
} job;

static tri_status init_process(int rank, void *arg)
{
    const job *j = arg;

    TRI_TRY(tri_init(&(tri_init_options){.url = j->url}));
    j->run(rank, tri_world_size());
    tri_finalize();
    return TRI_OK;
}

static const char *parse(int argc, char **argv)
{
    const char *url = NULL;
    const option options[] = {{"URL", .help = "where the processes find each other", .text = &url}};

    options_parse(argc, argv, "usage: dist_tuto [file:///PATH | tcp://HOST:PORT]", options);
    return url;
}

int main(int argc, char **argv)
{
    const char *url = parse(argc, argv);

    TRI_TRY(tri_spawn(init_process, &(job){run_blocking, url}, 2, NULL));
    TRI_TRY(tri_spawn(init_process, &(job){run_non_blocking, url}, 2, NULL));
    TRI_TRY(tri_spawn(init_process, &(job){run_all_reduce, url}, 2, NULL));
    TRI_TRY(tri_spawn(init_process, &(job){run_own_allreduce, url}, 4, NULL));
    return 0;
}
