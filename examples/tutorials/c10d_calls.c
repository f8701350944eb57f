/*
 * c10d_calls.c - every call of torch.distributed once, under its PyTorch name, on small arrays.
 *
 *     torchrun --nproc_per_node=2 c10d_calls.py      becomes
 *     trirun --nproc_per_node=2 build/bin/c10d_calls
 *
 * Each line says what a call left on a rank. Any number of ranks from 2 to 8 will do.
 */
#include <stdlib.h>
#include <string.h>

#include <trireme/comm.h>

#include "../command_line.h"

enum { MAX_RANKS = 8 };

#define I64 TRI_DTYPE_I64 /* a tensor is an array: a pointer, how many elements, their type */

static int rank, size;

static void show(const char *call, const int64_t *tensor, int n)
{
    char text[256];
    int used = 0;

    for (int i = 0; i < n; i++)
        used += snprintf(text + used, sizeof(text) - (size_t)used, "%s%lld", i > 0 ? ", " : "",
                         (long long)tensor[i]);
    printf("rank %d: %s [%s]\n", rank, call, n > 0 ? text : "");
}

/* --- point to point ------------------------------------------------------- */

static void messages(void)
{
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int64_t mine = 10 * rank, theirs = -1;
    tri_work *send, *recv, *batch;
    int from = -1;

    if (rank == 0)
        TRI_TRY(tri_send(NULL, &mine, 1, I64, 1, 0, NULL));
    if (rank == 1) {
        TRI_TRY(tri_recv(NULL, &theirs, 1, I64, 0, 0, NULL));
        show("recv", &theirs, 1);
    }
    TRI_TRY(tri_send(NULL, &mine, 1, I64, right, 0, &send)); /* isend */
    TRI_TRY(tri_recv(NULL, &theirs, 1, I64, left, 0, &recv));
    TRI_TRY(tri_work_wait(send, 0));
    TRI_TRY(tri_work_wait(recv, 0));
    tri_work_destroy(send);
    tri_work_destroy(recv);
    show("irecv", &theirs, 1);

    TRI_TRY(tri_group_batch_begin(NULL)); /* batch_isend_irecv: in any order */
    TRI_TRY(tri_recv(NULL, &theirs, 1, I64, right, 0, NULL));
    TRI_TRY(tri_send(NULL, &mine, 1, I64, left, 0, NULL));
    TRI_TRY(tri_group_batch_end(NULL, &batch));
    TRI_TRY(tri_work_wait(batch, 0));
    tri_work_destroy(batch);
    show("batch_isend_irecv", &theirs, 1);

    if (rank == size - 1)
        TRI_TRY(tri_send(NULL, &mine, 1, I64, 0, 7, NULL));
    if (rank == 0) { /* recv without src: from the first that sends */
        TRI_TRY(tri_recv_any(NULL, &theirs, 1, I64, 7, &from, NULL));
        show("recv from any", (const int64_t[]){theirs, from}, 2);
    }
}

/* --- collectives ---------------------------------------------------------- */

static void reductions(void)
{
    static const struct {
        const char *name;
        tri_redop op;
    } ops[] = {{"SUM", TRI_REDOP_SUM},  {"PRODUCT", TRI_REDOP_PRODUCT}, {"MIN", TRI_REDOP_MIN},
               {"MAX", TRI_REDOP_MAX},  {"BAND", TRI_REDOP_BAND},       {"BOR", TRI_REDOP_BOR},
               {"BXOR", TRI_REDOP_BXOR}};
    int64_t x, parts[MAX_RANKS];
    float real = (float)rank;
    char call[32];

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        x = rank + 1;
        TRI_TRY(tri_all_reduce(NULL, &x, &x, 1, I64, ops[i].op, NULL));
        snprintf(call, sizeof(call), "all_reduce %s", ops[i].name);
        show(call, &x, 1);
    }
    TRI_TRY(tri_all_reduce(NULL, &real, &real, 1, TRI_DTYPE_F32, TRI_REDOP_AVG, NULL));
    printf("rank %d: all_reduce AVG [%g]\n", rank, (double)real);
    TRI_TRY(tri_all_reduce_premul_sum(NULL, &real, &real, 1, TRI_DTYPE_F32, 2, NULL));
    printf("rank %d: all_reduce PREMUL_SUM [%g]\n", rank, (double)real);

    x = rank + 1;
    TRI_TRY(tri_reduce(NULL, &x, &x, 1, I64, TRI_REDOP_SUM, 0, NULL)); /* for rank 0 only */
    if (rank == 0)
        show("reduce", &x, 1);
    for (int i = 0; i < size; i++)
        parts[i] = 10 * rank + i;
    TRI_TRY(tri_reduce_scatter(NULL, parts, &x, 1, I64, TRI_REDOP_SUM, NULL));
    show("reduce_scatter", &x, 1);
}

static void moves(void)
{
    int64_t x = rank == 0 ? 42 : 0, mine[2] = {rank, -rank}, from_all[2 * MAX_RANKS];
    int64_t parts[MAX_RANKS], others[MAX_RANKS];

    TRI_TRY(tri_broadcast(NULL, &x, 1, I64, 0, NULL));
    show("broadcast", &x, 1);
    TRI_TRY(tri_all_gather(NULL, mine, from_all, 2, I64, NULL));
    show("all_gather", from_all, 2 * size);
    TRI_TRY(tri_gather(NULL, mine, from_all, 2, I64, 0, NULL));
    if (rank == 0)
        show("gather", from_all, 2 * size);
    for (int i = 0; i < size; i++)
        parts[i] = 100 * rank + i; /* for rank i */
    TRI_TRY(tri_scatter(NULL, parts, &x, 1, I64, 0, NULL));
    show("scatter", &x, 1);
    TRI_TRY(tri_all_to_all(NULL, parts, others, 1, I64, NULL));
    show("all_to_all", others, size);
}

/* Rank r's part has r + 1 elements. */
static void uneven_moves(void)
{
    enum { MOST = MAX_RANKS * (MAX_RANKS + 1) };
    size_t counts[MAX_RANKS], equal[MAX_RANKS], total = 0;
    int64_t mine[MAX_RANKS], all[MOST], out[MOST];

    for (int i = 0; i < size; i++) {
        counts[i] = (size_t)i + 1;
        equal[i] = (size_t)rank + 1; /* to each, of mine */
        mine[i] = rank;
        total += counts[i];
    }
    TRI_TRY(tri_all_gather_v(NULL, mine, all, counts, I64, NULL));
    show("all_gather, uneven", all, (int)total);
    TRI_TRY(tri_reduce_scatter_v(NULL, all, out, counts, I64, TRI_REDOP_SUM, NULL));
    show("reduce_scatter, uneven", out, rank + 1);
    for (int i = 0; i < size * (rank + 1); i++)
        all[i] = rank;
    TRI_TRY(tri_all_to_all_v(NULL, all, equal, out, counts, I64, NULL));
    show("all_to_all_single, uneven", out, (int)total);
}

static void asynchronous(void)
{
    int64_t x = rank, y = 1;
    tri_work *work;

    TRI_TRY(tri_all_reduce(NULL, &x, &x, 1, I64, TRI_REDOP_SUM, &work)); /* async_op=True */
    while (tri_work_test(work) == TRI_INPROGRESS) /* is_completed; other work goes here */
        ;
    TRI_TRY(tri_work_wait(work, 0));
    tri_work_destroy(work);
    show("all_reduce, async_op", &x, 1);

    TRI_TRY(tri_group_batch_begin(NULL)); /* _coalescing_manager: several calls as one */
    TRI_TRY(tri_all_reduce(NULL, &x, &x, 1, I64, TRI_REDOP_MAX, NULL));
    TRI_TRY(tri_all_reduce(NULL, &y, &y, 1, I64, TRI_REDOP_SUM, NULL));
    TRI_TRY(tri_group_batch_end(NULL, NULL));
    show("coalesced", (const int64_t[]){x, y}, 2);

    TRI_TRY(tri_barrier(NULL, NULL));
    TRI_TRY(tri_monitored_barrier(NULL, 30000)); /* its error names who did not come */
}

/* --- objects: bytes of a length that only their owner knows --------------- */

static void show_texts(const char *call, const char *texts, const size_t *bytes, int n)
{
    printf("rank %d: %s", rank, call);
    for (int i = 0; i < n; texts += bytes[i++])
        printf(" %.*s", (int)bytes[i], texts);
    printf("\n");
}

static void objects(void)
{
    static const char *const words[MAX_RANKS] = {"foo", "to",    "barge", "a",
                                                 "of",  "seven", "oars",  "each"};
    const char *mine = words[rank];
    const void *src[MAX_RANKS];
    size_t bytes[MAX_RANKS], lengths[MAX_RANKS];
    void *data;

    TRI_TRY(tri_all_gather_object(NULL, mine, strlen(mine), &data, bytes));
    show_texts("all_gather_object", data, bytes, size);
    tri_object_free(data);
    TRI_TRY(tri_gather_object(NULL, mine, strlen(mine), 0, &data, bytes));
    if (rank == 0)
        show_texts("gather_object", data, bytes, size);
    tri_object_free(data);
    TRI_TRY(tri_broadcast_object(NULL, mine, strlen(mine), 0, &data, bytes));
    show_texts("broadcast_object_list", data, bytes, 1);
    tri_object_free(data);
    for (int i = 0; i < size; i++) {
        src[i] = words[size - 1 - i];
        lengths[i] = strlen(words[size - 1 - i]);
    }
    TRI_TRY(tri_scatter_object(NULL, src, lengths, 0, &data, bytes));
    show_texts("scatter_object_list", data, bytes, 1);
    tri_object_free(data);
}

/* --- groups --------------------------------------------------------------- */

static void groups(void)
{
    const int ends[2] = {0, size - 1};
    int64_t x = rank;
    tri_group *pair, *half;

    TRI_TRY(tri_group_new(NULL, ends, 2, NULL, &pair)); /* new_group([0, size - 1]) */
    if (tri_group_rank(pair) >= 0) {                    /* -1: not a member */
        show("new_group", (const int64_t[]){tri_group_rank(pair), tri_group_size(pair)}, 2);
        show("get_global_rank", (const int64_t[]){tri_group_world_rank(pair, 1)}, 1);
        show("get_group_rank", (const int64_t[]){tri_group_find_rank(pair, size - 1)}, 1);
        TRI_TRY(tri_broadcast(pair, &x, 1, I64, 1, NULL)); /* group_src=1 */
        show("broadcast in it", &x, 1);
    }
    tri_group_unref(pair); /* destroy_process_group(pair) */

    x = rank;
    TRI_TRY(tri_group_split(NULL, rank % 2, 0, NULL, &half)); /* even and odd ranks */
    TRI_TRY(tri_all_reduce(half, &x, &x, 1, I64, TRI_REDOP_SUM, NULL));
    show("split_group", &x, 1);
    tri_group_unref(half);
}

/* --- stores --------------------------------------------------------------- */

static void show_value(const char *call, void *value)
{
    printf("rank %d: store.%s %s\n", rank, call, (const char *)value);
    tri_store_free(value);
}

/* A TCPStore that rank 0 serves, on a port of its choice. */
static void stores(void)
{
    static const char *const both[] = {"first_key", "counter"};
    const tri_store_tcp_options serve = {.serve = true};
    tri_store *store = NULL, *own;
    int64_t sum, n, port;
    bool found;
    void *value;

    if (rank == 0)
        TRI_TRY(tri_store_tcp("127.0.0.1", 0, &serve, &store));
    port = tri_store_port(store);
    TRI_TRY(tri_broadcast(NULL, &port, 1, I64, 0, NULL));
    if (rank != 0)
        TRI_TRY(tri_store_tcp("127.0.0.1", (int)port, NULL, &store));

    if (rank == 0)
        TRI_TRY(tri_store_set(store, "first_key", "first_value", 11));
    TRI_TRY(tri_store_get(store, "first_key", 0, &value, NULL)); /* waits for it */
    show_value("get", value);
    TRI_TRY(tri_store_add(store, "counter", 1, &sum));
    TRI_TRY(tri_store_wait(store, both, 2, 10000));
    TRI_TRY(tri_store_barrier(store, "all have counted", size, 0));
    TRI_TRY(tri_store_get(store, "counter", 0, &value, NULL));
    show_value("add", value);

    TRI_TRY(tri_store_prefix(rank == 0 ? "zero" : "other", store, &own)); /* PrefixStore */
    TRI_TRY(tri_store_compare_set(own, "key", "", 0, "mine", 4, &value, NULL));
    show_value("compare_set", value);
    tri_store_unref(own);
    if (rank == 0) {
        TRI_TRY(tri_store_append(store, "first_key", ", more", 6)); /* extended API */
        TRI_TRY(tri_store_multi_get(store, both, 1, 0, &value, NULL));
        show_value("multi_get", value);
        TRI_TRY(tri_store_queue_push(store, "queue", "a", 1));
        TRI_TRY(tri_store_queue_pop(store, "queue", 0, &value, NULL));
        show_value("queue_pop", value);
        TRI_TRY(tri_store_check(store, both, 2, &found));
        TRI_TRY(tri_store_delete(store, "first_key", &found));
        show("store.delete_key", (const int64_t[]){found}, 1);
    }
    TRI_TRY(tri_barrier(NULL, NULL)); /* the server goes last */
    tri_store_unref(store);

    TRI_TRY(tri_store_hash(&own)); /* HashStore: within a process */
    TRI_TRY(tri_store_set(own, "key", "value", 5));
    TRI_TRY(tri_store_num_keys(own, &n));
    show("store.num_keys", &n, 1);
    tri_store_unref(own);
}

static void parse(int argc, char **argv)
{
    options_none(argc, argv, "usage: trirun --nproc_per_node=N c10d_calls  (N: 2 to 8)");
}

static void check_size(void)
{
    if (size >= 2 && size <= MAX_RANKS)
        return;
    options_refuse("start 2 to %d of it: trirun --nproc_per_node=2 c10d_calls", MAX_RANKS);
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    TRI_TRY(tri_init(NULL)); /* init_process_group */
    rank = tri_rank();       /* get_rank, get_world_size */
    size = tri_world_size();
    check_size();
    printf("rank %d: is_initialized %s, get_world_size %d, is_backend_available(shm) %s\n", rank,
           tri_is_initialized() ? "True" : "False", size,
           tri_engine_is_available("shm") ? "True" : "False");
    messages();
    reductions();
    moves();
    uneven_moves();
    asynchronous();
    objects();
    groups();
    stores();
    tri_finalize(); /* destroy_process_group */
    return 0;
}
