/*
 * abi.h - what programs that are built against these libraries rely on: recorded by
 * scripts/check_abi --record, which compares the public headers with it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* --- libtrireme-comm.so.0 --- */
#define TRI_RESERVED(n)
typedef enum tri_status {
    TRI_OK = 0,
    TRI_INPROGRESS = 1,
    TRI_END = 2,
    TRI_ERR_INVALID_ARG = -1,
    TRI_ERR_NO_MEMORY = -2,
    TRI_ERR_UNSUPPORTED = -3,
    TRI_ERR_TIMEOUT = -4,
    TRI_ERR_IO = -5,
    TRI_ERR_NOT_FOUND = -6,
    TRI_ERR_FORMAT = -7,
    TRI_ERR_STATE = -8,
    TRI_ERR_NAN = -9,
    TRI_ERR_PEER_LOST = -40,
    TRI_ERR_ABORTED = -41,
    TRI_ERR_MISMATCH = -42,
    TRI_ERR_GROUP_TIMEOUT = -43,
    TRI_ERR_INTERNAL = -80,
} tri_status;
const char *tri_status_name(tri_status status);
const char *tri_last_error(void);
tri_status tri_status_fail(tri_status status, const char *format, ...);
tri_status tri_status_fail_at(const char *file, int line, tri_status status, const char *format, ...);
#define TRI_TRY(call)
typedef enum tri_device_kind {
    TRI_DEVICE_CPU = 0,
    TRI_DEVICE_CUDA = 1,
} tri_device_kind;
typedef int32_t tri_device;
#define TRI_MAX_DEVICES 1000
#define TRI_CPU(index) ((tri_device)(index))
#define TRI_CUDA(index) ((tri_device)(TRI_DEVICE_CUDA << 16 | (index)))
tri_status tri_device_set_queue(tri_device device, void *queue);
void *tri_device_queue(tri_device device);
typedef struct tri_site {
    const char *file;
    int line;
} tri_site;
void tri_site_set(const char *file, int line);
tri_site tri_site_enter(const char *file, int line);
typedef struct tri_store tri_store;
#define TRI_STORE_TIMEOUT_MS INT64_C(300000)
#define TRI_STORE_PORT 29500
#define TRI_STORE_MAX_KEY 8191
#define TRI_STORE_MAX_VALUE (64u << 20)
#define TRI_STORE_MAX_KEYS 131072
typedef struct tri_store_tcp_options {
    bool serve;
    bool serve_if_free;
    int world_size;
    int64_t timeout_ms;
    int listen_fd;
    uint64_t reserved[4];
} tri_store_tcp_options;
tri_status tri_store_tcp(const char *host, int port, const tri_store_tcp_options *opt, tri_store **store_out);
typedef struct tri_store_file_options {
    int world_size;
    int64_t timeout_ms;
    uint64_t reserved[4];
} tri_store_file_options;
tri_status tri_store_file(const char *path, const tri_store_file_options *opt, tri_store **store_out);
tri_status tri_store_hash(tri_store **store_out);
tri_status tri_store_prefix(const char *prefix, tri_store *base, tri_store **store_out);
tri_status tri_store_clone(tri_store *store, tri_store **store_out);
tri_store *tri_store_ref(tri_store *store);
void tri_store_unref(tri_store *store);
int tri_store_port(const tri_store *store);
tri_status tri_store_set(tri_store *store, const char *key, const void *value, size_t bytes);
tri_status tri_store_get(tri_store *store, const char *key, int64_t timeout_ms, void **value_out, size_t *bytes_out);
void tri_store_free(void *value);
tri_status tri_store_add(tri_store *store, const char *key, int64_t delta, int64_t *sum_out);
tri_status tri_store_compare_set(tri_store *store, const char *key, const void *expected, size_t expected_bytes, const void *desired, size_t desired_bytes, void **value_out, size_t *bytes_out);
tri_status tri_store_multi_get(tri_store *store, const char *const *keys, int n_keys, int64_t timeout_ms, void **values_out, size_t *bytes_out);
tri_status tri_store_multi_set(tri_store *store, const char *const *keys, const void *const *values, const size_t *bytes, int n_keys);
tri_status tri_store_append(tri_store *store, const char *key, const void *value, size_t bytes);
tri_status tri_store_wait(tri_store *store, const char *const *keys, int n_keys, int64_t timeout_ms);
tri_status tri_store_barrier(tri_store *store, const char *key, int64_t size, int64_t timeout_ms);
tri_status tri_store_check(tri_store *store, const char *const *keys, int n_keys, bool *present_out);
tri_status tri_store_delete(tri_store *store, const char *key, bool *existed_out);
tri_status tri_store_num_keys(tri_store *store, int64_t *n_out);
tri_status tri_store_list_keys(tri_store *store, char ***keys_out, int64_t *n_out);
tri_status tri_store_queue_push(tri_store *store, const char *key, const void *value, size_t bytes);
tri_status tri_store_queue_pop(tri_store *store, const char *key, int64_t timeout_ms, void **value_out, size_t *bytes_out);
tri_status tri_store_queue_try_pop(tri_store *store, const char *key, void **value_out, size_t *bytes_out);
tri_status tri_store_queue_length(tri_store *store, const char *key, int64_t *n_out);
typedef enum tri_dtype {
    TRI_DTYPE_NONE = 0,
    TRI_DTYPE_U8 = 1,
    TRI_DTYPE_I8 = 2,
    TRI_DTYPE_I16 = 3,
    TRI_DTYPE_I32 = 4,
    TRI_DTYPE_I64 = 5,
    TRI_DTYPE_F16 = 6,
    TRI_DTYPE_BF16 = 7,
    TRI_DTYPE_F32 = 8,
    TRI_DTYPE_F64 = 9,
    TRI_DTYPE_BOOL = 10,
    TRI_DTYPE_F8_E4M3 = 11,
    TRI_DTYPE_F8_E5M2 = 12,
    TRI_DTYPE_C64 = 13,
    TRI_DTYPE_C128 = 14,
} tri_dtype;
size_t tri_dtype_size(tri_dtype dtype);
const char *tri_dtype_name(tri_dtype dtype);
typedef enum tri_redop {
    TRI_REDOP_SUM = 0,
    TRI_REDOP_AVG = 1,
    TRI_REDOP_PRODUCT = 2,
    TRI_REDOP_MIN = 3,
    TRI_REDOP_MAX = 4,
    TRI_REDOP_BAND = 5,
    TRI_REDOP_BOR = 6,
    TRI_REDOP_BXOR = 7,
} tri_redop;
const char *tri_redop_name(tri_redop op);
typedef struct tri_opt {
    const char *given;
    double value;
} tri_opt;
#define TRI_SET(x) ((tri_opt){#x, (double)(x)})
#define TRI_DEFAULT ((tri_opt){NULL, 0})
#define TRI_FOREVER INT64_C(-1)
typedef struct tri_group tri_group;
typedef struct tri_work tri_work;
#define TRI_GROUP_TIMEOUT_MS INT64_C(600000)
typedef struct tri_group_options {
    const char *engine;
    int64_t timeout_ms;
    const char *name;
    const char *bind_host;
    uint64_t reserved[8];
} tri_group_options;
typedef struct tri_init_options {
    const char *url;
    tri_group_options group;
    int rank, world_size;
    tri_store *store;
    uint64_t reserved[4];
} tri_init_options;
tri_status tri_init(const tri_init_options *opt);
void tri_finalize(void);
bool tri_is_initialized(void);
int tri_rank(void);
int tri_world_size(void);
int tri_local_rank(void);
int tri_local_world_size(void);
tri_status tri_group_create(tri_store *store, int rank, int size, const tri_group_options *opt, tri_group **group_out);
tri_group *tri_group_ref(tri_group *group);
void tri_group_unref(tri_group *group);
void tri_group_abort(tri_group *group, const char *why);
tri_status tri_group_status(const tri_group *group);
int tri_group_epoch(const tri_group *group);
int tri_group_rank(const tri_group *group);
int tri_group_size(const tri_group *group);
const char *tri_group_engine(const tri_group *group);
bool tri_engine_is_available(const char *engine);
tri_status tri_group_split(tri_group *group, int color, int key, const tri_group_options *opt, tri_group **group_out);
tri_status tri_group_new(tri_group *group, const int *ranks, int n, const tri_group_options *opt, tri_group **group_out);
typedef struct tri_group_shrink_options {
    tri_group_options group;
    int64_t grace_ms;
    int min_size;
    uint64_t reserved[4];
} tri_group_shrink_options;
tri_status tri_group_shrink(tri_group *group, const tri_group_shrink_options *opt, tri_group **group_out);
void tri_group_set_timeout(tri_group *group, int64_t timeout_ms);
int tri_group_world_rank(const tri_group *group, int rank);
int tri_group_find_rank(const tri_group *group, int world_rank);
void *tri_group_alloc(tri_group *group, size_t bytes);
void tri_group_free(tri_group *group, void *p);
tri_status tri_all_reduce(tri_group *group, const void *src, void *dst, size_t count, tri_dtype dtype, tri_redop op, tri_work **work_out);
tri_status tri_reduce(tri_group *group, const void *src, void *dst, size_t count, tri_dtype dtype, tri_redop op, int root, tri_work **work_out);
tri_status tri_broadcast(tri_group *group, void *buf, size_t count, tri_dtype dtype, int root, tri_work **work_out);
tri_status tri_all_gather(tri_group *group, const void *src, void *dst, size_t count, tri_dtype dtype, tri_work **work_out);
tri_status tri_gather(tri_group *group, const void *src, void *dst, size_t count, tri_dtype dtype, int root, tri_work **work_out);
tri_status tri_scatter(tri_group *group, const void *src, void *dst, size_t count, tri_dtype dtype, int root, tri_work **work_out);
tri_status tri_reduce_scatter(tri_group *group, const void *src, void *dst, size_t count, tri_dtype dtype, tri_redop op, tri_work **work_out);
tri_status tri_all_to_all(tri_group *group, const void *src, void *dst, size_t count, tri_dtype dtype, tri_work **work_out);
tri_status tri_barrier(tri_group *group, tri_work **work_out);
tri_status tri_monitored_barrier(tri_group *group, int64_t timeout_ms);
tri_status tri_all_gather_v(tri_group *group, const void *src, void *dst, const size_t *counts, tri_dtype dtype, tri_work **work_out);
tri_status tri_reduce_scatter_v(tri_group *group, const void *src, void *dst, const size_t *counts, tri_dtype dtype, tri_redop op, tri_work **work_out);
tri_status tri_all_to_all_v(tri_group *group, const void *src, const size_t *src_counts, void *dst, const size_t *dst_counts, tri_dtype dtype, tri_work **work_out);
tri_status tri_all_reduce_premul_sum(tri_group *group, const void *src, void *dst, size_t count, tri_dtype dtype, float factor, tri_work **work_out);
tri_status tri_reduce_premul_sum(tri_group *group, const void *src, void *dst, size_t count, tri_dtype dtype, float factor, int root, tri_work **work_out);
tri_status tri_reduce_scatter_premul_sum(tri_group *group, const void *src, void *dst, size_t count, tri_dtype dtype, float factor, tri_work **work_out);
tri_status tri_reduce_scatter_v_premul_sum(tri_group *group, const void *src, void *dst, const size_t *counts, tri_dtype dtype, float factor, tri_work **work_out);
tri_status tri_send(tri_group *group, const void *src, size_t count, tri_dtype dtype, int peer, int tag, tri_work **work_out);
tri_status tri_recv(tri_group *group, void *dst, size_t count, tri_dtype dtype, int peer, int tag, tri_work **work_out);
tri_status tri_recv_any(tri_group *group, void *dst, size_t count, tri_dtype dtype, int tag, int *from_out, tri_work **work_out);
size_t tri_work_count(const tri_work *work);
tri_status tri_group_batch_begin(tri_group *group);
tri_status tri_group_batch_end(tri_group *group, tri_work **work_out);
tri_status tri_all_gather_object(tri_group *group, const void *src, size_t bytes, void **data_out, size_t *bytes_out);
tri_status tri_gather_object(tri_group *group, const void *src, size_t bytes, int root, void **data_out, size_t *bytes_out);
tri_status tri_broadcast_object(tri_group *group, const void *src, size_t bytes, int root, void **data_out, size_t *bytes_out);
tri_status tri_scatter_object(tri_group *group, const void *const *src, const size_t *bytes, int root, void **data_out, size_t *bytes_out);
void tri_object_free(void *data);
tri_status tri_work_wait(tri_work *work, int64_t timeout_ms);
tri_status tri_work_test(tri_work *work);
const char *tri_work_error(const tri_work *work);
void tri_work_destroy(tri_work *work);
const char *tri_launcher(void);
int tri_restart_count(void);
typedef enum tri_spawn_how {
    TRI_SPAWN_AUTO = 0,
    TRI_SPAWN_COPY = 1,
    TRI_SPAWN_ANEW = 2,
} tri_spawn_how;
typedef struct tri_spawn_options {
    tri_spawn_how how;
    tri_opt grace_ms;
    uint64_t reserved[4];
} tri_spawn_options;
tri_status tri_spawn(tri_status (*fn)(int rank, void *arg), void *arg, int nprocs, const tri_spawn_options *opt);
tri_status tri_stop_watch(void);
int tri_stop_signal(void);
int64_t tri_stop_left_ms(void);
typedef struct tri_reducer tri_reducer;
typedef struct tri_reducer_grad {
    void *data;
    size_t count;
    tri_dtype dtype;
    const char *name;
    size_t rows;
    uint64_t reserved[4];
} tri_reducer_grad;
typedef struct tri_bucket_part {
    const char *name;
    size_t offset, count;
    size_t rows;
    int index;
    uint64_t reserved[4];
} tri_bucket_part;
typedef struct tri_bucket {
    int index, n_buckets;
    tri_group *group;
    tri_dtype dtype;
    void *data;
    size_t count;
    double weight;
    const tri_bucket_part *parts;
    int n_parts;
    int64_t pass;
    void *owner;
    uint64_t reserved[4];
} tri_bucket;
typedef tri_status (*tri_bucket_hook)(void *state, tri_bucket *bucket, int stage, tri_work **work_out);
void *tri_bucket_memory(tri_bucket *bucket, size_t bytes);
tri_status tri_bucket_hook_f16(void *state, tri_bucket *bucket, int stage, tri_work **work_out);
tri_status tri_bucket_hook_bf16(void *state, tri_bucket *bucket, int stage, tri_work **work_out);
typedef struct tri_power_sgd_options {
    int rank;
    tri_opt start_pass;
    tri_opt min_rate;
    bool no_feedback;
    bool no_warm_start;
    uint64_t seed;
    uint64_t reserved[4];
} tri_power_sgd_options;
typedef struct tri_power_sgd tri_power_sgd;
tri_status tri_power_sgd_create(const tri_power_sgd_options *opt, tri_power_sgd **state_out);
void tri_power_sgd_destroy(tri_power_sgd *state);
tri_status tri_bucket_hook_power_sgd(void *state, tri_bucket *bucket, int stage, tri_work **work_out);
typedef struct tri_reducer_options {
    tri_group *group;
    size_t bucket_cap_bytes;
    size_t first_bucket_bytes;
    bool find_unused;
    tri_bucket_hook hook;
    void *hook_state;
    uint64_t reserved[4];
} tri_reducer_options;
tri_status tri_reducer_create(const tri_reducer_options *opt, tri_reducer **reducer_out);
void tri_reducer_destroy(tri_reducer *reducer);
tri_status tri_reducer_add(tri_reducer *reducer, const tri_reducer_grad *grad, int *index_out);
tri_status tri_reducer_commit(tri_reducer *reducer);
void *tri_reducer_data(tri_reducer *reducer, int index);
tri_status tri_reducer_begin(tri_reducer *reducer, int64_t n_samples);
tri_status tri_reducer_ready(tri_reducer *reducer, int index);
tri_status tri_reducer_finish(tri_reducer *reducer);
tri_status tri_reducer_no_sync(tri_reducer *reducer, int64_t n_samples);
tri_status tri_reducer_join(tri_reducer *reducer, tri_status (*update)(void *arg), void *arg);
bool tri_reducer_is_used(const tri_reducer *reducer, int index);
int64_t tri_reducer_sample_count(const tri_reducer *reducer);
int tri_reducer_bucket_count(const tri_reducer *reducer);
#define TRI_RPC_TIMEOUT_MS INT64_C(60000)
#define TRI_RPC_MAX_NAME 127
#define TRI_RPC_MAX_PARTS 1024
#define TRI_RPC_MAX_REFS 256
typedef struct tri_rpc tri_rpc;
typedef struct tri_rpc_ref tri_rpc_ref;
typedef struct tri_rpc_call tri_rpc_call;
typedef struct tri_rpc_request tri_rpc_request;
typedef enum tri_rpc_event_kind {
    TRI_RPC_CAME = 0,
    TRI_RPC_LEFT = 1,
    TRI_RPC_LOST = 2,
} tri_rpc_event_kind;
typedef struct tri_rpc_event {
    tri_rpc_event_kind kind;
    const char *worker;
    const char *text;
    uint64_t reserved[4];
} tri_rpc_event;
typedef struct tri_rpc_options {
    int threads;
    int max_threads;
    int64_t timeout_ms;
    size_t window_bytes;
    int window_calls;
    size_t max_message;
    bool open;
    bool tcp_only;
    void (*event)(tri_rpc *rpc, const tri_rpc_event *event, void *arg);
    void *arg;
    const struct tri_rpc_function *const *functions;
    int n_functions;
    uint64_t reserved[8];
} tri_rpc_options;
tri_status tri_rpc_init(const char *name, const tri_rpc_options *opt);
tri_status tri_rpc_fini(void);
tri_status tri_rpc_create(tri_store *store, const char *name, int rank, int size, const tri_rpc_options *opt, tri_rpc **rpc_out);
tri_status tri_rpc_join(tri_rpc *rpc, int64_t timeout_ms);
tri_status tri_rpc_leave(tri_rpc *rpc, int64_t timeout_ms);
void tri_rpc_abort(tri_rpc *rpc, const char *why);
void tri_rpc_destroy(tri_rpc *rpc);
const char *tri_rpc_name(const tri_rpc *rpc);
typedef struct tri_rpc_part {
    const void *data;
    size_t bytes;
} tri_rpc_part;
typedef struct tri_rpc_message {
    const void *data;
    size_t bytes;
    const tri_rpc_part *parts;
    tri_rpc_ref *const *refs;
    int n_parts, n_refs;
    void *owner;
    uint64_t reserved[4];
} tri_rpc_message;
void tri_rpc_message_free(tri_rpc_message *message);
void *tri_rpc_alloc(tri_rpc *rpc, size_t bytes);
void tri_rpc_free(tri_rpc *rpc, void *memory);
#define TRI_RPC_INLINE 1u
#define TRI_RPC_IDEMPOTENT 2u
struct tri_rpc_object;
typedef struct tri_rpc_function {
    const char *name;
    size_t max_request;
    size_t max_reply;
    size_t max_part;
    unsigned flags;
    tri_status (*run)(tri_rpc_request *request, void *object);
    const struct tri_rpc_object *of;
    uint64_t reserved[7];
} tri_rpc_function;
tri_status tri_rpc_serve(tri_rpc *rpc, const tri_rpc_function *const *functions, int n);
typedef struct tri_rpc_object {
    const char *name;
    bool serial;
    void (*release)(void *object);
    uint64_t reserved[8];
} tri_rpc_object;
tri_status tri_rpc_own(tri_rpc *rpc, const char *name_or_null, const tri_rpc_object *type, void *object, tri_rpc_ref **ref_out);
tri_status tri_rpc_find(tri_rpc *rpc, const char *name, tri_rpc_ref **ref_out);
tri_rpc_ref *tri_rpc_ref_ref(tri_rpc_ref *ref);
void tri_rpc_ref_unref(tri_rpc_ref *ref);
void *tri_rpc_ref_object(const tri_rpc_ref *ref);
const char *tri_rpc_ref_owner(const tri_rpc_ref *ref);
tri_status tri_rpc_ref_status(const tri_rpc_ref *ref);
typedef struct tri_rpc_call_options {
    int64_t timeout_ms;
    bool no_wait;
    void (*done)(tri_rpc_call *call, void *arg);
    void *arg;
    uint64_t reserved[4];
} tri_rpc_call_options;
tri_status tri_rpc_sync(tri_rpc_ref *to, const tri_rpc_function *function, const tri_rpc_message *in, const tri_rpc_call_options *opt, tri_rpc_message *reply_out);
tri_status tri_rpc_async(tri_rpc_ref *to, const tri_rpc_function *function, const tri_rpc_message *in, const tri_rpc_call_options *opt, tri_rpc_call **call_out);
tri_status tri_rpc_remote(tri_rpc_ref *to, const tri_rpc_function *function, const tri_rpc_message *in, const tri_rpc_call_options *opt, tri_rpc_ref **ref_out);
tri_status tri_rpc_call_wait(tri_rpc_call *call, int64_t timeout_ms);
tri_status tri_rpc_call_test(tri_rpc_call *call);
tri_status tri_rpc_wait_any(tri_rpc_call *const *calls, int n, int64_t timeout_ms, int *which_out);
void tri_rpc_call_cancel(tri_rpc_call *call);
const char *tri_rpc_call_error(const tri_rpc_call *call);
tri_status tri_rpc_call_take_reply(tri_rpc_call *call, tri_rpc_message *reply_out);
void tri_rpc_call_destroy(tri_rpc_call *call);
const tri_rpc_message *tri_rpc_request_message(tri_rpc_request *request);
const char *tri_rpc_request_caller(const tri_rpc_request *request);
int64_t tri_rpc_request_left_ms(const tri_rpc_request *request);
bool tri_rpc_request_is_cancelled(const tri_rpc_request *request);
tri_status tri_rpc_reply(tri_rpc_request *request, const tri_rpc_message *out);
void tri_rpc_fail(tri_rpc_request *request, tri_status status);

/* --- libtrireme.so.0 --- */
typedef struct tri_scope {
    void (*end)(void);
    bool open;
} tri_scope;
const char *tri_device_text(tri_device device);
int tri_device_count(tri_device_kind kind);
tri_status tri_cpu_devices_set(int n);
int tri_num_threads(void);
tri_status tri_num_threads_set(int n);
tri_status tri_set_device(tri_device device);
tri_device tri_current_device(void);
void tri_device_begin(tri_device device);
void tri_device_end(void);
#define TRI_ON(device)
#define TRI_ON_HERE(device)
typedef struct tri_tensor tri_tensor;
#define TRI_MAX_DIMS 8
#define TRI_SHAPE(...) (const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
tri_tensor *tri_tensor_create(const int64_t *shape, int ndim, tri_dtype dtype);
tri_tensor *tri_tensor_from(const int64_t *shape, int ndim, tri_dtype dtype, const void *data);
tri_tensor *tri_tensor_wrap(const int64_t *shape, int ndim, tri_dtype dtype, void *data, void (*release)(void *arg), void *arg);
tri_tensor *tri_tensor_ref(tri_tensor *tensor);
void tri_tensor_unref(tri_tensor *tensor);
tri_dtype tri_tensor_dtype(const tri_tensor *tensor);
int tri_tensor_ndim(const tri_tensor *tensor);
int64_t tri_tensor_size(const tri_tensor *tensor, int dim);
int64_t tri_tensor_numel(const tri_tensor *tensor);
const char *tri_tensor_shape_text(const tri_tensor *tensor);
tri_device tri_tensor_device(const tri_tensor *tensor);
tri_status tri_tensor_status(const tri_tensor *tensor);
tri_tensor *tri_tensor_set_name(tri_tensor *tensor, const char *name);
const char *tri_tensor_name(const tri_tensor *tensor);
const char *tri_tensor_debug(const tri_tensor *tensor);
tri_status tri_tensor_copy_in(tri_tensor *tensor, const void *data, size_t bytes);
tri_status tri_tensor_copy_out(tri_tensor *tensor, void *data, size_t bytes);
const void *tri_data(tri_tensor *tensor);
double tri_item(tri_tensor *tensor);
tri_status tri_item_status(tri_tensor *tensor, double *value_out);
void tri_tensor_print(tri_tensor *tensor, FILE *file);
size_t tri_tensor_text(tri_tensor *tensor, char *text, size_t bytes);
tri_tensor *tri_keep(tri_tensor *tensor);
tri_tensor *tri_tensor_clone(tri_tensor *tensor);
tri_status tri_run(void);
tri_status tri_step_end_status(void);
void tri_step_end(void);
void tri_requires_grad(tri_tensor *tensor, bool on);
void tri_backward(tri_tensor *loss);
tri_tensor *tri_grad(tri_tensor *tensor);
void tri_no_grad_begin(void);
void tri_no_grad_end(void);
#define TRI_NO_GRAD
#define TRI_NO_GRAD_HERE
void tri_autocast_begin(tri_dtype dtype);
void tri_autocast_end(void);
#define TRI_AUTOCAST(dtype)
#define TRI_AUTOCAST_HERE(dtype)
bool tri_is_bf16_fast(void);
void tri_manual_seed(uint64_t seed);
typedef struct tri_rng {
    uint64_t seed;
    uint64_t stream;
    int64_t step;
} tri_rng;
tri_rng tri_rng_state(void);
void tri_rng_state_set(const tri_rng *state);
typedef struct tri_backward_options {
    tri_tensor *const *seeds;
    const int64_t *count;
    bool keep_graph;
    uint64_t reserved[4];
} tri_backward_options;
void tri_backward_of(tri_tensor *const *outputs, int n, const tri_backward_options *opt);
typedef struct tri_gradients_options {
    tri_tensor *const *seeds;
    bool create_graph;
    bool keep_graph;
    bool allow_unused;
    uint64_t reserved[4];
} tri_gradients_options;
tri_status tri_gradients(tri_tensor *const *outputs, int n, tri_tensor *const *inputs, int m, const tri_gradients_options *opt, tri_tensor **grads_out);
typedef struct tri_gradcheck_options {
    tri_opt eps;
    tri_opt atol;
    tri_opt rtol;
    double nondet_tol;
    bool second_order;
    uint64_t reserved[4];
} tri_gradcheck_options;
typedef tri_tensor *(*tri_gradient_fn)(tri_tensor *const *inputs, int n, void *arg);
tri_status tri_gradcheck(tri_gradient_fn fn, void *arg, tri_tensor *const *inputs, int n, const tri_gradcheck_options *opt);
void tri_recompute_begin(void);
void tri_recompute_end(void);
#define TRI_RECOMPUTE
#define TRI_RECOMPUTE_HERE
typedef struct tri_module tri_module;
typedef struct tri_optimizer tri_optimizer;
typedef struct tri_load_options tri_load_options;
typedef struct tri_state_entry tri_state_entry;
typedef struct tri_safetensors tri_safetensors;
typedef struct tri_metadata {
    const char *key;
    const char *value;
} tri_metadata;
typedef struct tri_safetensors_entry {
    const char *name;
    tri_dtype dtype;
    const char *type_name;
    int ndim;
    int64_t shape[8];
    const void *data;
    size_t bytes;
    uint64_t reserved[4];
} tri_safetensors_entry;
tri_status tri_safetensors_open(const char *path, tri_safetensors **file_out);
void tri_safetensors_close(tri_safetensors *file);
int64_t tri_safetensors_count(const tri_safetensors *file);
const tri_safetensors_entry *tri_safetensors_at(const tri_safetensors *file, int64_t index);
const tri_safetensors_entry *tri_safetensors_find(const tri_safetensors *file, const char *name);
const char *tri_safetensors_metadata(const tri_safetensors *file, const char *key);
tri_tensor *tri_safetensors_tensor(const tri_safetensors *file, const char *name);
tri_status tri_safetensors_write(const char *path, const tri_safetensors_entry *entries, int64_t n, const tri_metadata *meta, int n_meta);
tri_status tri_save(tri_module *module, const char *path);
tri_status tri_load(tri_module *module, const char *path, const tri_load_options *opt);
typedef struct tri_checkpoint tri_checkpoint;
typedef struct tri_checkpoint_extra {
    const char *name;
    const char *text;
    const tri_state_entry *entries;
    int64_t n;
    uint64_t reserved[2];
} tri_checkpoint_extra;
typedef struct tri_checkpoint_info {
    int64_t step;
    int64_t epoch;
    const tri_metadata *meta;
    int n_meta;
    const tri_checkpoint_extra *extras;
    int n_extras;
    uint64_t reserved[2];
} tri_checkpoint_info;
typedef struct tri_checkpoint_save_options {
    int keep;
    const int64_t *keep_steps;
    int n_keep_steps;
    bool all_ranks;
    uint64_t reserved[2];
} tri_checkpoint_save_options;
tri_status tri_checkpoint_save(const char *folder, tri_module *module, tri_optimizer *optimizer, const tri_checkpoint_info *info, const tri_checkpoint_save_options *opt);
typedef struct tri_checkpoint_writer tri_checkpoint_writer;
tri_status tri_checkpoint_writer_create(const char *folder, tri_checkpoint_writer **writer_out);
void tri_checkpoint_writer_destroy(tri_checkpoint_writer *writer);
tri_status tri_checkpoint_writer_save(tri_checkpoint_writer *writer, tri_module *module, tri_optimizer *optimizer, const tri_checkpoint_info *info, const tri_checkpoint_save_options *opt);
tri_status tri_checkpoint_writer_wait(tri_checkpoint_writer *writer);
bool tri_checkpoint_writer_is_busy(tri_checkpoint_writer *writer);
double tri_checkpoint_writer_seconds(tri_checkpoint_writer *writer);
tri_status tri_checkpoint_open(const char *folder, tri_checkpoint **checkpoint_out);
tri_status tri_checkpoint_fetch(tri_group *group, const char *folder, tri_checkpoint **checkpoint_out);
void tri_checkpoint_close(tri_checkpoint *checkpoint);
int64_t tri_checkpoint_step(const tri_checkpoint *checkpoint);
int64_t tri_checkpoint_epoch(const tri_checkpoint *checkpoint);
const char *tri_checkpoint_path(const tri_checkpoint *checkpoint);
const char *tri_checkpoint_metadata(const tri_checkpoint *checkpoint, const char *key);
const char *tri_checkpoint_text(const tri_checkpoint *checkpoint, const char *name);
bool tri_checkpoint_has(const tri_checkpoint *checkpoint, const char *name);
tri_status tri_checkpoint_restore(const tri_checkpoint *checkpoint, tri_module *module, tri_optimizer *optimizer);
tri_status tri_checkpoint_restore_extra(const tri_checkpoint *checkpoint, const char *name, const tri_state_entry *entries, int64_t n);
typedef struct tri_context tri_context;
tri_status tri_context_create(tri_context **context_out);
tri_status tri_context_enter(tri_context *context);
tri_status tri_context_leave(void);
void tri_context_destroy(tri_context *context);
typedef struct tri_dataset tri_dataset;
typedef struct tri_sampler tri_sampler;
typedef struct tri_loader tri_loader;
#define TRI_MAX_FIELDS 16
typedef struct tri_field {
    tri_dtype dtype;
    int ndim;
    int64_t shape[8];
} tri_field;
typedef struct tri_request {
    const int64_t *indices;
    int64_t n;
    uint64_t seed;
    int64_t epoch;
    uint64_t reserved[4];
} tri_request;
typedef struct tri_sample {
    int n_fields;
    tri_field fields[16];
    void *data[16];
    struct tri_sample_memory *memory;
    uint64_t reserved[4];
} tri_sample;
void *tri_sample_room(tri_sample *sample, int field, tri_dtype dtype, const int64_t *shape, int ndim);
void tri_sample_clear(tri_sample *sample);
typedef struct tri_dataset_class {
    const char *name;
    tri_status (*read)(tri_dataset *self, const tri_request *request, void *const *slots);
    const void *(*peek)(const tri_dataset *self, int64_t index, int field);
    void (*destroy)(tri_dataset *self);
    tri_status (*sample)(tri_dataset *self, const tri_request *request, tri_sample *sample_out);
    uint64_t reserved[8];
} tri_dataset_class;
struct tri_dataset {
    const tri_dataset_class *cls;
    int64_t length;
    int n_fields;
    tri_field fields[16];
    uint64_t reserved[8];
};
int64_t tri_dataset_length(const tri_dataset *dataset);
void tri_dataset_destroy(tri_dataset *dataset);
tri_status tri_dataset_read(tri_dataset *dataset, const tri_request *request, void *const *slots);
tri_status tri_dataset_sample(tri_dataset *dataset, const tri_request *request, tri_sample *sample_out);
tri_status tri_dataset_arrays(int64_t length, const tri_field *fields, const void *const *data, int n_fields, tri_dataset **dataset_out);
tri_status tri_dataset_subset(tri_dataset *own_base, int64_t first, int64_t count, tri_dataset **dataset_out);
tri_status tri_dataset_idx(const char *images_path, const char *labels_path, tri_dataset **dataset_out);
typedef struct tri_dataset_tokens_options {
    int64_t stride;
    int64_t header_bytes;
    uint64_t reserved[4];
} tri_dataset_tokens_options;
tri_status tri_dataset_tokens(const char *path, int token_bytes, int64_t context, const tri_dataset_tokens_options *opt, tri_dataset **dataset_out);
typedef struct tri_dataset_image_folder_options {
    const tri_dataset *classes;
    int channels;
    bool skip_broken;
    const char *annotations;
    bool allow_one_class;
    bool allow_empty;
    uint64_t reserved[4];
} tri_dataset_image_folder_options;
tri_status tri_dataset_image_folder(const char *dir, const tri_dataset_image_folder_options *opt, tri_dataset **dataset_out);
int64_t tri_dataset_class_count(const tri_dataset *dataset);
const char *tri_dataset_class_name(const tri_dataset *dataset, int64_t class_index);
int64_t tri_dataset_broken_count(const tri_dataset *dataset);
typedef struct tri_draws tri_draws;
double tri_draws_uniform(tri_draws *draws);
int64_t tri_draws_below(tri_draws *draws, int64_t n);
typedef struct tri_transform {
    const char *name;
    int field;
    tri_status (*shape)(const struct tri_transform *self, tri_field *field_inout);
    tri_status (*apply)(const struct tri_transform *self, const tri_field *in, const void *x, tri_draws *draws, tri_sample *out);
    double numbers[20];
    void *arg;
    uint64_t reserved[8];
} tri_transform;
tri_status tri_dataset_transform(tri_dataset *own_base, const tri_transform *transforms, int n, tri_dataset **dataset_out);
tri_transform tri_transform_random_crop(int64_t height, int64_t width, int64_t padding);
tri_transform tri_transform_center_crop(int64_t height, int64_t width);
tri_transform tri_transform_resize(int64_t short_side);
tri_transform tri_transform_resize_to(int64_t height, int64_t width);
typedef struct tri_transform_random_resized_crop_options {
    tri_opt scale_min, scale_max;
    tri_opt ratio_min, ratio_max;
    uint64_t reserved[4];
} tri_transform_random_resized_crop_options;
tri_transform tri_transform_random_resized_crop(int64_t height, int64_t width, const tri_transform_random_resized_crop_options *opt);
tri_transform tri_transform_random_horizontal_flip(double p);
tri_transform tri_transform_to_float(void);
tri_transform tri_transform_normalize(const double *mean, const double *std, int channels);
typedef struct tri_sampler_class {
    const char *name;
    tri_status (*draw)(tri_sampler *self, int64_t epoch, int64_t *indices);
    void (*destroy)(tri_sampler *self);
    uint64_t reserved[8];
} tri_sampler_class;
struct tri_sampler {
    const tri_sampler_class *cls;
    int64_t length;
    int64_t *indices;
    uint64_t reserved[8];
};
tri_status tri_sampler_sequential(int64_t length, tri_sampler **sampler_out);
typedef struct tri_sampler_random_options {
    bool replacement;
    int64_t n_samples;
    uint64_t seed;
    uint64_t reserved[4];
} tri_sampler_random_options;
tri_status tri_sampler_random(int64_t length, const tri_sampler_random_options *opt, tri_sampler **sampler_out);
typedef struct tri_sampler_weighted_options {
    bool no_replacement;
    int64_t n_samples;
    uint64_t seed;
    uint64_t reserved[4];
} tri_sampler_weighted_options;
tri_status tri_sampler_weighted(const double *weights, int64_t n, const tri_sampler_weighted_options *opt, tri_sampler **sampler_out);
typedef struct tri_sampler_share_options {
    int n_replicas;
    int rank;
    bool drop_last;
    uint64_t reserved[4];
} tri_sampler_share_options;
tri_status tri_sampler_share(tri_sampler *own_base, const tri_sampler_share_options *opt, tri_sampler **sampler_out);
typedef struct tri_sampler_distributed_options {
    int n_replicas, rank;
    bool sequential;
    bool drop_last;
    uint64_t seed;
    uint64_t reserved[4];
} tri_sampler_distributed_options;
tri_status tri_sampler_distributed(int64_t length, const tri_sampler_distributed_options *opt, tri_sampler **sampler_out);
void tri_sampler_destroy(tri_sampler *sampler);
tri_status tri_sampler_set_epoch(tri_sampler *sampler, int64_t epoch);
int64_t tri_sampler_length(const tri_sampler *sampler);
const int64_t *tri_sampler_indices(const tri_sampler *sampler);
typedef tri_status (*tri_collate)(const tri_sample *samples, int64_t n, tri_sample *batch, void *arg);
tri_status tri_collate_default(const tri_sample *samples, int64_t n, tri_sample *batch, void *arg);
typedef struct tri_collate_pad_options {
    double value[16];
    int64_t multiple[8];
    uint64_t reserved[4];
} tri_collate_pad_options;
tri_status tri_collate_pad(const tri_sample *samples, int64_t n, tri_sample *batch, void *arg);
typedef struct tri_loader_options {
    int n_threads;
    int n_prefetch;
    bool drop_last;
    uint64_t seed;
    tri_collate collate;
    void *collate_arg;
    bool pin_memory;
    uint64_t reserved[8];
} tri_loader_options;
typedef struct tri_batch {
    int64_t index;
    int64_t size;
    int n_fields;
    tri_tensor *fields[16];
    uint64_t reserved[4];
} tri_batch;
tri_status tri_loader_create(tri_dataset *dataset, tri_sampler *sampler, int64_t batch_size, const tri_loader_options *opt, tri_loader **loader_out);
void tri_loader_destroy(tri_loader *loader);
int64_t tri_loader_length(const tri_loader *loader);
tri_status tri_loader_begin(tri_loader *loader, int64_t epoch, int64_t first_batch);
tri_status tri_loader_next(tri_loader *loader, tri_batch *batch_out);
#define TRI_FUNCTION_TENSORS 16
typedef struct tri_function_array {
    void *data;
    tri_dtype dtype;
    int ndim;
    int64_t shape[8];
    uint64_t reserved[4];
} tri_function_array;
typedef struct tri_function_call {
    const void *data;
    int n_in, n_out;
    const tri_function_array *in, *out;
    const tri_function_array *grad_out, *grad_in;
    uint64_t reserved[4];
} tri_function_call;
typedef struct tri_function_graph {
    const void *data;
    int n_in, n_out;
    tri_tensor *const *in, *const *out, *const *grad_out;
    const bool *needs;
    tri_tensor **grad_in;
    uint64_t reserved[4];
} tri_function_graph;
typedef struct tri_function_class {
    const char *name;
    size_t size;
    int saved;
    tri_status (*shape)(const tri_function_call *call, tri_function_array *out);
    tri_status (*forward)(const tri_function_call *call);
    tri_status (*backward)(const tri_function_call *call);
    tri_status (*record)(const tri_function_graph *graph);
    bool backward_without_in, backward_without_out;
    uint64_t reserved[8];
} tri_function_class;
void tri_function_apply(const tri_function_class *type, const void *data, tri_tensor *const *in, int n_in, tri_tensor **out, int n_out);
tri_tensor *tri_zeros(const int64_t *shape, int ndim, tri_dtype dtype);
tri_tensor *tri_ones(const int64_t *shape, int ndim, tri_dtype dtype);
tri_tensor *tri_full(const int64_t *shape, int ndim, double value, tri_dtype dtype);
tri_tensor *tri_arange(double start, double end, double step, tri_dtype dtype);
tri_tensor *tri_eye(int64_t n, int64_t m, tri_dtype dtype);
tri_tensor *tri_rand(const int64_t *shape, int ndim, tri_dtype dtype);
tri_tensor *tri_randn(const int64_t *shape, int ndim, tri_dtype dtype);
tri_tensor *tri_randint(int64_t low, int64_t high, const int64_t *shape, int ndim, tri_dtype dtype);
tri_tensor *tri_bernoulli(tri_tensor *p);
tri_tensor *tri_multinomial(tri_tensor *p, int64_t n_samples, bool replacement);
tri_tensor *tri_softmax(tri_tensor *x, int dim);
tri_tensor *tri_log_softmax(tri_tensor *x, int dim);
typedef enum tri_reduction {
    TRI_REDUCTION_MEAN = 0,
    TRI_REDUCTION_SUM = 1,
    TRI_REDUCTION_NONE = 2,
    TRI_REDUCTION_BATCHMEAN = 3,
} tri_reduction;
typedef struct tri_cross_entropy_options {
    double label_smoothing;
    tri_tensor *weight;
    tri_opt ignore_index;
    tri_reduction reduction;
    uint64_t reserved[2];
} tri_cross_entropy_options;
tri_tensor *tri_cross_entropy(tri_tensor *logits, tri_tensor *target, const tri_cross_entropy_options *opt);
typedef struct tri_nll_loss_options {
    tri_tensor *weight;
    tri_opt ignore_index;
    tri_reduction reduction;
    uint64_t reserved[2];
} tri_nll_loss_options;
tri_tensor *tri_nll_loss(tri_tensor *input, tri_tensor *target, const tri_nll_loss_options *opt);
tri_tensor *tri_count_correct(tri_tensor *logits, tri_tensor *target);
typedef struct tri_pair_loss_options {
    tri_reduction reduction;
    uint64_t reserved[2];
} tri_pair_loss_options;
tri_tensor *tri_mse_loss(tri_tensor *input, tri_tensor *target, const tri_pair_loss_options *opt);
tri_tensor *tri_l1_loss(tri_tensor *input, tri_tensor *target, const tri_pair_loss_options *opt);
tri_tensor *tri_kl_div(tri_tensor *input, tri_tensor *target, const tri_pair_loss_options *opt);
typedef struct tri_smooth_l1_loss_options {
    tri_opt beta;
    tri_reduction reduction;
    uint64_t reserved[2];
} tri_smooth_l1_loss_options;
tri_tensor *tri_smooth_l1_loss(tri_tensor *input, tri_tensor *target, const tri_smooth_l1_loss_options *opt);
typedef struct tri_bce_loss_options {
    tri_tensor *weight;
    tri_tensor *pos_weight;
    tri_reduction reduction;
    uint64_t reserved[2];
} tri_bce_loss_options;
tri_tensor *tri_bce_loss(tri_tensor *input, tri_tensor *target, const tri_bce_loss_options *opt);
tri_tensor *tri_bce_with_logits_loss(tri_tensor *input, tri_tensor *target, const tri_bce_loss_options *opt);
tri_tensor *tri_add(tri_tensor *a, tri_tensor *b);
tri_tensor *tri_sub(tri_tensor *a, tri_tensor *b);
tri_tensor *tri_mul(tri_tensor *a, tri_tensor *b);
tri_tensor *tri_div(tri_tensor *a, tri_tensor *b);
tri_tensor *tri_maximum(tri_tensor *a, tri_tensor *b);
tri_tensor *tri_minimum(tri_tensor *a, tri_tensor *b);
tri_tensor *tri_add_scalar(tri_tensor *x, double value);
tri_tensor *tri_mul_scalar(tri_tensor *x, double value);
tri_tensor *tri_neg(tri_tensor *x);
tri_tensor *tri_abs(tri_tensor *x);
tri_tensor *tri_square(tri_tensor *x);
tri_tensor *tri_sqrt(tri_tensor *x);
tri_tensor *tri_exp(tri_tensor *x);
tri_tensor *tri_log(tri_tensor *x);
tri_tensor *tri_relu(tri_tensor *x);
tri_tensor *tri_leaky_relu(tri_tensor *x, double slope);
tri_tensor *tri_sigmoid(tri_tensor *x);
tri_tensor *tri_tanh(tri_tensor *x);
typedef enum tri_gelu_form {
    TRI_GELU_ERF = 0,
    TRI_GELU_TANH = 1,
} tri_gelu_form;
tri_tensor *tri_gelu(tri_tensor *x, tri_gelu_form form);
tri_tensor *tri_silu(tri_tensor *x);
tri_tensor *tri_cast(tri_tensor *x, tri_dtype dtype);
tri_tensor *tri_dropout(tri_tensor *x, double p, bool training);
tri_tensor *tri_dropout2d(tri_tensor *x, double p, bool training);
tri_tensor *tri_pow(tri_tensor *base, tri_tensor *exponent);
tri_tensor *tri_pow_scalar(tri_tensor *x, double exponent);
tri_tensor *tri_clamp(tri_tensor *x, double min, double max);
tri_tensor *tri_sign(tri_tensor *x);
tri_tensor *tri_floor(tri_tensor *x);
tri_tensor *tri_ceil(tri_tensor *x);
tri_tensor *tri_round(tri_tensor *x);
tri_tensor *tri_rsqrt(tri_tensor *x);
tri_tensor *tri_sin(tri_tensor *x);
tri_tensor *tri_cos(tri_tensor *x);
tri_tensor *tri_elu(tri_tensor *x, double alpha);
tri_tensor *tri_softplus(tri_tensor *x, double beta, double threshold);
tri_tensor *tri_hardswish(tri_tensor *x);
tri_tensor *tri_eq(tri_tensor *a, tri_tensor *b);
tri_tensor *tri_ne(tri_tensor *a, tri_tensor *b);
tri_tensor *tri_lt(tri_tensor *a, tri_tensor *b);
tri_tensor *tri_le(tri_tensor *a, tri_tensor *b);
tri_tensor *tri_gt(tri_tensor *a, tri_tensor *b);
tri_tensor *tri_ge(tri_tensor *a, tri_tensor *b);
tri_tensor *tri_logical_and(tri_tensor *a, tri_tensor *b);
tri_tensor *tri_logical_or(tri_tensor *a, tri_tensor *b);
tri_tensor *tri_logical_xor(tri_tensor *a, tri_tensor *b);
tri_tensor *tri_logical_not(tri_tensor *x);
tri_tensor *tri_where(tri_tensor *condition, tri_tensor *a, tri_tensor *b);
tri_tensor *tri_masked_fill(tri_tensor *x, tri_tensor *mask, double value);
tri_tensor *tri_matmul(tri_tensor *a, tri_tensor *b);
tri_tensor *tri_linear(tri_tensor *x, tri_tensor *weight, tri_tensor *bias);
typedef struct tri_embedding_options {
    tri_opt padding_idx;
    uint64_t reserved[2];
} tri_embedding_options;
tri_tensor *tri_embedding(tri_tensor *indices, tri_tensor *weight, const tri_embedding_options *opt);
typedef enum tri_bag_mode {
    TRI_BAG_MEAN = 0,
    TRI_BAG_SUM = 1,
    TRI_BAG_AMAX = 2,
} tri_bag_mode;
typedef struct tri_embedding_bag_options {
    tri_bag_mode mode;
    tri_tensor *per_sample_weights;
    bool include_last_offset;
    tri_opt padding_idx;
    uint64_t reserved[2];
} tri_embedding_bag_options;
tri_tensor *tri_embedding_bag(tri_tensor *indices, tri_tensor *weight, tri_tensor *offsets, const tri_embedding_bag_options *opt);
typedef struct tri_lstm_options {
    int num_layers;
    bool no_bias;
    bool batch_first;
    bool bidirectional;
    bool training;
    double dropout;
    tri_tensor *h0, *c0;
    uint64_t reserved[2];
} tri_lstm_options;
void tri_lstm(tri_tensor *x, tri_tensor *const *weights, int n_weights, const tri_lstm_options *opt, tri_tensor **out);
typedef struct tri_attention_options {
    tri_tensor *attn_mask;
    double dropout_p;
    bool is_causal;
    tri_opt scale;
    bool enable_gqa;
    uint64_t reserved[2];
} tri_attention_options;
tri_tensor *tri_attention(tri_tensor *q, tri_tensor *k, tri_tensor *v, const tri_attention_options *opt);
typedef struct tri_conv_options {
    int stride[3];
    int padding[3];
    int dilation[3];
    int groups;
    uint64_t reserved[2];
} tri_conv_options;
tri_tensor *tri_conv(tri_tensor *x, tri_tensor *weight, tri_tensor *bias, const tri_conv_options *opt);
typedef struct tri_pool_options {
    int kernel[3];
    int stride[3];
    int padding[3];
    bool ceil_mode;
    bool exclude_padding;
    uint64_t reserved[2];
} tri_pool_options;
tri_tensor *tri_max_pool(tri_tensor *x, const tri_pool_options *opt);
tri_tensor *tri_avg_pool(tri_tensor *x, const tri_pool_options *opt);
tri_tensor *tri_adaptive_avg_pool(tri_tensor *x, const int64_t *size, int n);
tri_tensor *tri_adaptive_max_pool(tri_tensor *x, const int64_t *size, int n);
typedef struct tri_batch_norm_args {
    tri_tensor *weight, *bias, *running_mean, *running_var;
    bool training;
    tri_opt momentum;
    tri_opt eps;
    uint64_t reserved[2];
} tri_batch_norm_args;
tri_tensor *tri_batch_norm(tri_tensor *x, const tri_batch_norm_args *args);
tri_tensor *tri_layer_norm(tri_tensor *x, int n_dims, tri_tensor *weight, tri_tensor *bias, double eps);
tri_tensor *tri_rms_norm(tri_tensor *x, int n_dims, tri_tensor *weight, tri_opt eps);
tri_tensor *tri_sum(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
tri_tensor *tri_mean(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
tri_tensor *tri_amax(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
tri_tensor *tri_argmax(tri_tensor *x, int dim, bool keepdim);
tri_tensor *tri_argmin(tri_tensor *x, int dim, bool keepdim);
tri_tensor *tri_amin(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
tri_tensor *tri_max(tri_tensor *x, int dim, bool keepdim, tri_tensor **indices_out);
tri_tensor *tri_min(tri_tensor *x, int dim, bool keepdim, tri_tensor **indices_out);
tri_tensor *tri_topk(tri_tensor *x, int64_t k, int dim, bool smallest, tri_tensor **indices_out);
tri_tensor *tri_prod(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
tri_tensor *tri_any(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
tri_tensor *tri_all(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
tri_tensor *tri_var(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim, int correction);
tri_tensor *tri_std(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim, int correction);
tri_tensor *tri_norm(tri_tensor *x, double p, const int64_t *dims, int n_dims, bool keepdim);
tri_tensor *tri_logsumexp(tri_tensor *x, const int64_t *dims, int n_dims, bool keepdim);
tri_tensor *tri_cumsum(tri_tensor *x, int dim);
tri_tensor *tri_reshape(tri_tensor *x, const int64_t *shape, int ndim);
tri_tensor *tri_flatten(tri_tensor *x, int start_dim);
tri_tensor *tri_permute(tri_tensor *x, const int64_t *dims, int ndim);
tri_tensor *tri_transpose(tri_tensor *x, int dim0, int dim1);
tri_tensor *tri_expand(tri_tensor *x, const int64_t *shape, int ndim);
tri_tensor *tri_squeeze(tri_tensor *x, const int64_t *dims, int n);
tri_tensor *tri_unsqueeze(tri_tensor *x, int dim);
tri_tensor *tri_flip(tri_tensor *x, int dim);
tri_tensor *tri_to(tri_tensor *x, tri_device device);
tri_tensor *tri_narrow(tri_tensor *x, int dim, int64_t start, int64_t length);
tri_tensor *tri_slice(tri_tensor *x, int dim, int64_t start, int64_t end, int64_t step);
tri_tensor *tri_slice_scatter(tri_tensor *x, tri_tensor *src, int dim, int64_t start, int64_t end, int64_t step);
tri_tensor *tri_unfold(tri_tensor *x, int dim, int64_t size, int64_t step);
tri_tensor *tri_select(tri_tensor *x, int dim, int64_t index);
void tri_unbind(tri_tensor *x, int dim, tri_tensor **out, int n);
void tri_split(tri_tensor *x, const int64_t *sizes, int n, int dim, tri_tensor **out);
int tri_chunk(tri_tensor *x, int n, int dim, tri_tensor **out);
tri_tensor *tri_concat(tri_tensor *const *xs, int n, int dim);
tri_tensor *tri_stack(tri_tensor *const *xs, int n, int dim);
tri_tensor *tri_pad(tri_tensor *x, const int64_t *pad, int n, double value);
tri_tensor *tri_tril(tri_tensor *x, int64_t diagonal);
tri_tensor *tri_triu(tri_tensor *x, int64_t diagonal);
tri_tensor *tri_gather_along(tri_tensor *x, int dim, tri_tensor *index);
tri_tensor *tri_scatter_add(tri_tensor *x, int dim, tri_tensor *index, tri_tensor *src);
tri_tensor *tri_index_select(tri_tensor *x, int dim, tri_tensor *index);
tri_tensor *tri_one_hot(tri_tensor *index, int64_t n_classes);
typedef struct tri_nn_linear_options {
    bool no_bias;
    uint64_t reserved[4];
} tri_nn_linear_options;
tri_module *tri_nn_linear(int64_t in_features, int64_t out_features, const tri_nn_linear_options *opt);
typedef struct tri_nn_conv2d_options {
    int stride, padding, dilation, groups;
    bool no_bias;
    int kernel_hw[2], stride_hw[2], padding_hw[2], dilation_hw[2];
    uint64_t reserved[4];
} tri_nn_conv2d_options;
tri_module *tri_nn_conv2d(int64_t in_channels, int64_t out_channels, int kernel, const tri_nn_conv2d_options *opt);
typedef struct tri_nn_batch_norm2d_options {
    tri_opt eps;
    tri_opt momentum;
    bool cumulative;
    bool no_affine;
    bool no_track_running_stats;
    uint64_t reserved[4];
} tri_nn_batch_norm2d_options;
tri_module *tri_nn_batch_norm2d(int64_t channels, const tri_nn_batch_norm2d_options *opt);
tri_module *tri_nn_batch_norm1d(int64_t channels, const tri_nn_batch_norm2d_options *opt);
typedef struct tri_nn_layer_norm_options {
    tri_opt eps;
    bool no_elementwise_affine, no_bias;
    uint64_t reserved[4];
} tri_nn_layer_norm_options;
tri_module *tri_nn_layer_norm(const int64_t *shape, int ndim, const tri_nn_layer_norm_options *opt);
typedef struct tri_nn_rms_norm_options {
    tri_opt eps;
    bool no_elementwise_affine;
    uint64_t reserved[4];
} tri_nn_rms_norm_options;
tri_module *tri_nn_rms_norm(const int64_t *shape, int ndim, const tri_nn_rms_norm_options *opt);
tri_module *tri_nn_embedding(int64_t num_embeddings, int64_t embedding_dim, const tri_embedding_options *opt);
tri_tensor *tri_nn_embedding_scores(tri_module *embedding, tri_tensor *x);
typedef struct tri_nn_embedding_bag_options {
    tri_bag_mode mode;
    bool include_last_offset;
    tri_opt padding_idx;
    uint64_t reserved[4];
} tri_nn_embedding_bag_options;
tri_module *tri_nn_embedding_bag(int64_t num_embeddings, int64_t embedding_dim, const tri_nn_embedding_bag_options *opt);
typedef struct tri_nn_multihead_attention_options {
    double dropout;
    bool no_bias;
    bool is_causal;
    uint64_t reserved[4];
} tri_nn_multihead_attention_options;
tri_module *tri_nn_multihead_attention(int64_t embed_dim, int64_t num_heads, const tri_nn_multihead_attention_options *opt);
typedef struct tri_nn_lstm_options {
    int num_layers;
    bool no_bias, batch_first, bidirectional;
    double dropout;
    uint64_t reserved[4];
} tri_nn_lstm_options;
tri_module *tri_nn_lstm(int64_t input_size, int64_t hidden_size, const tri_nn_lstm_options *opt);
tri_module *tri_nn_relu(void);
tri_module *tri_nn_leaky_relu(double negative_slope);
tri_module *tri_nn_gelu(tri_gelu_form form);
tri_module *tri_nn_silu(void);
tri_module *tri_nn_tanh(void);
tri_module *tri_nn_sigmoid(void);
tri_module *tri_nn_softmax(int dim);
tri_module *tri_nn_log_softmax(int dim);
typedef struct tri_nn_pool2d_options {
    int stride, padding;
    bool ceil_mode;
    int kernel_hw[2], stride_hw[2], padding_hw[2];
    bool exclude_padding;
    uint64_t reserved[4];
} tri_nn_pool2d_options;
tri_module *tri_nn_max_pool2d(int kernel, const tri_nn_pool2d_options *opt);
tri_module *tri_nn_avg_pool2d(int kernel, const tri_nn_pool2d_options *opt);
tri_module *tri_nn_adaptive_avg_pool2d(int h, int w);
tri_module *tri_nn_adaptive_max_pool2d(int h, int w);
typedef struct tri_nn_pool1d_options {
    int stride, padding;
    bool ceil_mode;
    bool exclude_padding;
    uint64_t reserved[4];
} tri_nn_pool1d_options;
tri_module *tri_nn_max_pool1d(int kernel, const tri_nn_pool1d_options *opt);
tri_module *tri_nn_avg_pool1d(int kernel, const tri_nn_pool1d_options *opt);
tri_module *tri_nn_adaptive_avg_pool1d(int l);
tri_module *tri_nn_adaptive_max_pool1d(int l);
tri_module *tri_nn_flatten(int start_dim);
tri_module *tri_nn_dropout(double p);
tri_module *tri_nn_dropout2d(double p);
tri_module *tri_nn_identity(void);
typedef enum tri_skip_join {
    TRI_SKIP_ADD = 0,
    TRI_SKIP_CONCAT = 1,
    TRI_SKIP_ALONE = 2,
} tri_skip_join;
tri_module *tri_nn_skip_save(const char *name);
tri_module *tri_nn_skip_take(const char *name, tri_skip_join join);
tri_module *tri_nn_sequential_of(int n, tri_module *const *own_modules);
#define tri_nn_sequential(...)
typedef struct tri_module_class {
    const char *name;
    size_t size;
    void (*forward)(tri_module *self, tri_tensor *const *in, int n_in, tri_tensor **out, int n_out);
    void (*destroy)(tri_module *self);
    int (*extra_repr)(tri_module *self, char *text, size_t bytes);
    uint64_t reserved[8];
} tri_module_class;
tri_module *tri_module_create(const tri_module_class *type);
tri_module *tri_module_simple(const char *name, size_t size, tri_tensor *(*forward)(tri_module *self, tri_tensor *x));
tri_module *tri_module_fail(tri_module *self, tri_status status, const char *format, ...);
void *tri_module_data(tri_module *self);
tri_module *tri_module_add_child(tri_module *self, const char *name, tri_module *own_child);
tri_tensor *tri_module_add_parameter(tri_module *self, const char *name, tri_tensor *own_tensor);
tri_tensor *tri_module_add_buffer(tri_module *self, const char *name, tri_tensor *own_tensor);
bool tri_module_is_training(const tri_module *self);
tri_tensor *tri_forward(tri_module *module, tri_tensor *x);
void tri_forward_n(tri_module *module, tri_tensor *const *in, int n_in, tri_tensor **out, int n_out);
void tri_module_train(tri_module *module, bool training);
void tri_module_set_recompute(tri_module *module, bool on);
tri_status tri_module_to(tri_module *module, tri_device device);
tri_status tri_module_status(const tri_module *module);
void tri_module_destroy(tri_module *module);
typedef void (*tri_forward_hook)(tri_module *self, tri_tensor **in, int n_in, tri_tensor **out, int n_out, void *arg);
tri_status tri_module_add_forward_pre_hook(tri_module *module, tri_forward_hook hook, void *arg, int64_t *id_out);
tri_status tri_module_add_forward_hook(tri_module *module, tri_forward_hook hook, void *arg, int64_t *id_out);
bool tri_module_remove_hook(tri_module *module, int64_t id);
int tri_module_child_count(const tri_module *module);
tri_module *tri_module_child(tri_module *module, int index);
tri_module *tri_module_submodule(tri_module *module, const char *path);
tri_module *tri_module_unwrapped(tri_module *wrapped);
const char *tri_module_name(const tri_module *module);
const char *tri_module_type(const tri_module *module);
void tri_module_print(tri_module *module, FILE *file);
tri_status tri_module_summary(tri_module *module, tri_tensor *const *in, int n_in, FILE *file);
void tri_module_requires_grad(tri_module *module, bool on);
typedef struct tri_state_entry {
    const char *name;
    tri_tensor *tensor;
    bool parameter;
} tri_state_entry;
int64_t tri_module_state_count(tri_module *module);
tri_state_entry tri_module_state(tri_module *module, int64_t index);
int64_t tri_module_parameter_count(tri_module *module);
tri_tensor *tri_module_find(tri_module *module, const char *name);
typedef struct tri_state_source {
    const char *name;
    tri_dtype dtype;
    int ndim;
    int64_t shape[8];
    const void *data;
    uint64_t reserved[4];
} tri_state_source;
#define TRI_STATE_NAME_MAX 512
typedef struct tri_load_options {
    bool partial;
    bool convert;
    const char *prefix;
    const char *(*rename)(const char *name, char *room, void *arg);
    void *arg;
    FILE *report;
    uint64_t reserved[4];
} tri_load_options;
tri_status tri_module_load(tri_module *module, const tri_state_source *sources, int64_t n, const tri_load_options *opt);
tri_status tri_module_hash(tri_module *module, uint64_t *hash_out);
void tri_set_default_dtype(tri_dtype dtype);
tri_dtype tri_default_dtype(void);
tri_status tri_init_uniform(tri_tensor *tensor, double low, double high);
tri_status tri_init_normal(tri_tensor *tensor, double mean, double std);
tri_status tri_init_constant(tri_tensor *tensor, double value);
typedef enum tri_fan_mode {
    TRI_FAN_IN = 0,
    TRI_FAN_OUT = 1,
} tri_fan_mode;
tri_status tri_init_kaiming_uniform(tri_tensor *tensor, double a, tri_fan_mode mode);
tri_status tri_init_kaiming_normal(tri_tensor *tensor, double a, tri_fan_mode mode);
tri_status tri_init_xavier_uniform(tri_tensor *tensor, double gain);
typedef struct tri_data_parallel_options {
    const tri_device *device_ids;
    int n_devices;
    const tri_device *output_device;
    int dim;
    uint64_t reserved[4];
} tri_data_parallel_options;
tri_module *tri_data_parallel(tri_module *own_net, const tri_data_parallel_options *opt);
typedef struct tri_param_group {
    tri_module *model;
    tri_tensor *const *params;
    int n_params;
    const char *const *names;
    tri_opt lr;
    tri_opt weight_decay;
    uint64_t reserved[4];
} tri_param_group;
typedef struct tri_sgd_options {
    double momentum;
    double dampening;
    double weight_decay;
    bool nesterov;
    bool maximize;
    uint64_t reserved[4];
} tri_sgd_options;
tri_optimizer *tri_sgd(tri_module *model, double lr, const tri_sgd_options *opt);
tri_optimizer *tri_sgd_of(const tri_param_group *groups, int n, double lr, const tri_sgd_options *opt);
typedef struct tri_adam_options {
    tri_opt beta1;
    tri_opt beta2;
    tri_opt eps;
    tri_opt weight_decay;
    bool amsgrad;
    bool maximize;
    uint64_t reserved[4];
} tri_adam_options;
tri_optimizer *tri_adam(tri_module *model, double lr, const tri_adam_options *opt);
tri_optimizer *tri_adam_of(const tri_param_group *groups, int n, double lr, const tri_adam_options *opt);
tri_optimizer *tri_adamw(tri_module *model, double lr, const tri_adam_options *opt);
tri_optimizer *tri_adamw_of(const tri_param_group *groups, int n, double lr, const tri_adam_options *opt);
typedef struct tri_rmsprop_options {
    tri_opt alpha;
    tri_opt eps;
    double weight_decay;
    double momentum;
    bool centered;
    bool maximize;
    uint64_t reserved[4];
} tri_rmsprop_options;
tri_optimizer *tri_rmsprop(tri_module *model, double lr, const tri_rmsprop_options *opt);
tri_optimizer *tri_rmsprop_of(const tri_param_group *groups, int n, double lr, const tri_rmsprop_options *opt);
typedef struct tri_adagrad_options {
    double lr_decay;
    double weight_decay;
    double initial_accumulator_value;
    tri_opt eps;
    bool maximize;
    uint64_t reserved[4];
} tri_adagrad_options;
tri_optimizer *tri_adagrad(tri_module *model, double lr, const tri_adagrad_options *opt);
tri_optimizer *tri_adagrad_of(const tri_param_group *groups, int n, double lr, const tri_adagrad_options *opt);
void tri_optimizer_destroy(tri_optimizer *optimizer);
tri_status tri_optimizer_status(const tri_optimizer *optimizer);
tri_status tri_optimizer_step(tri_optimizer *optimizer);
void tri_optimizer_zero_grad(tri_optimizer *optimizer);
tri_tensor *tri_clip_grad_norm(tri_optimizer *optimizer, double max_norm);
void tri_clip_grad_value(tri_optimizer *optimizer, double limit);
tri_tensor *tri_clip_grad_norm_of(tri_tensor *const *params, int n, double max_norm);
void tri_clip_grad_value_of(tri_tensor *const *params, int n, double limit);
typedef struct tri_grad_scaler tri_grad_scaler;
typedef struct tri_grad_scaler_options {
    tri_opt init_scale;
    tri_opt growth_factor;
    tri_opt backoff_factor;
    int64_t growth_interval;
    bool disabled;
    double min_scale;
    int hysteresis;
    bool consecutive_hysteresis;
    uint64_t reserved[2];
} tri_grad_scaler_options;
tri_status tri_grad_scaler_create(const tri_grad_scaler_options *opt, tri_grad_scaler **scaler_out);
void tri_grad_scaler_destroy(tri_grad_scaler *scaler);
tri_tensor *tri_grad_scaler_scale(tri_grad_scaler *scaler, tri_tensor *loss);
void tri_grad_scaler_unscale(tri_grad_scaler *scaler, tri_optimizer *optimizer);
tri_status tri_grad_scaler_step(tri_grad_scaler *scaler, tri_optimizer *optimizer);
tri_status tri_grad_scaler_update(tri_grad_scaler *scaler);
double tri_grad_scaler_current_scale(tri_grad_scaler *scaler);
int64_t tri_grad_scaler_state_count(const tri_grad_scaler *scaler);
tri_state_entry tri_grad_scaler_state(const tri_grad_scaler *scaler, int64_t index);
typedef enum tri_hyper {
    TRI_HYPER_LR = 0,
    TRI_HYPER_WEIGHT_DECAY = 1,
    TRI_HYPER_MOMENTUM = 2,
    TRI_HYPER_DAMPENING = 3,
    TRI_HYPER_BETA1 = 4,
    TRI_HYPER_BETA2 = 5,
    TRI_HYPER_EPS = 6,
    TRI_HYPER_ALPHA = 7,
    TRI_HYPER_LR_DECAY = 8,
} tri_hyper;
#define TRI_ALL_GROUPS (-1)
int tri_optimizer_group_count(const tri_optimizer *optimizer);
void tri_optimizer_set_hyper(tri_optimizer *optimizer, int group, tri_hyper what, double value);
double tri_optimizer_hyper(const tri_optimizer *optimizer, int group, tri_hyper what);
void tri_optimizer_set_lr(tri_optimizer *optimizer, double lr);
double tri_optimizer_lr(const tri_optimizer *optimizer);
int64_t tri_optimizer_state_count(tri_optimizer *optimizer);
tri_state_entry tri_optimizer_state(tri_optimizer *optimizer, int64_t index);
typedef struct tri_ema tri_ema;
tri_status tri_ema_create(tri_module *model, double decay, tri_ema **ema_out);
void tri_ema_destroy(tri_ema *ema);
tri_status tri_ema_update(tri_ema *ema);
tri_status tri_ema_swap(tri_ema *ema);
int64_t tri_ema_state_count(const tri_ema *ema);
tri_state_entry tri_ema_state(const tri_ema *ema, int64_t index);
double tri_schedule_constant(double lr, int64_t step);
double tri_schedule_cosine(double lr, double lr_min, int64_t total_steps, int64_t step);
double tri_schedule_step(double lr, int64_t step_size, double gamma, int64_t step);
double tri_schedule_multi_step(double lr, const int64_t *milestones, int n, double gamma, int64_t step);
double tri_schedule_exponential(double lr, double gamma, int64_t step);
double tri_schedule_linear(double lr, double start_factor, double end_factor, int64_t total_steps, int64_t step);
double tri_schedule_cosine_restarts(double lr, double lr_min, int64_t first_cycle, int cycle_factor, int64_t step);
double tri_schedule_warmup_cosine(double lr, double lr_min, int64_t warmup_steps, int64_t total_steps, int64_t step);
typedef double (*tri_schedule_fn)(double lr, int64_t step, void *arg);
typedef struct tri_schedule_part {
    tri_schedule_fn fn;
    void *arg;
    int64_t steps;
    uint64_t reserved[4];
} tri_schedule_part;
void tri_optimizer_schedule(tri_optimizer *optimizer, int64_t step, tri_schedule_fn fn, void *arg);
double tri_schedule_sequential(double lr, const tri_schedule_part *parts, int n, int64_t step);
double tri_schedule_chained(double lr, const tri_schedule_part *parts, int n, int64_t step);
typedef struct tri_schedule_one_cycle_options {
    tri_opt pct_start;
    tri_opt div_factor;
    tri_opt final_div_factor;
    tri_opt momentum_base;
    tri_opt momentum_max;
    bool linear;
    bool three_phase;
    uint64_t reserved[4];
} tri_schedule_one_cycle_options;
typedef struct tri_one_cycle_point {
    double lr;
    double momentum;
} tri_one_cycle_point;
tri_one_cycle_point tri_schedule_one_cycle(double lr_max, int64_t total_steps, int64_t step, const tri_schedule_one_cycle_options *opt);
typedef struct tri_engine tri_engine;
typedef struct tri_deepspeed_args {
    bool deepspeed;
    const char *deepspeed_config;
    tri_opt local_rank;
    uint64_t reserved[4];
} tri_deepspeed_args;
tri_status tri_deepspeed_args_take(int *argc, char **argv, tri_deepspeed_args *args_out);
typedef struct tri_init_distributed_options {
    const char *dist_backend;
    int64_t timeout_ms;
    const char *init_method;
    int rank, world_size;
    uint64_t reserved[4];
} tri_init_distributed_options;
tri_status tri_init_distributed(const tri_init_distributed_options *opt);
typedef struct tri_initialize_options {
    const char *config;
    tri_optimizer *(*optimizer)(tri_module *model, void *arg);
    tri_schedule_fn lr_scheduler;
    tri_dataset *training_data;
    tri_collate collate;
    void *collate_arg;
    tri_group *group;
    void *arg;
    uint64_t reserved[8];
} tri_initialize_options;
tri_status tri_initialize(const tri_deepspeed_args *args, tri_module *own_model, const tri_initialize_options *opt, tri_engine **engine_out);
void tri_engine_destroy(tri_engine *engine);
tri_tensor *tri_engine_forward(tri_engine *engine, tri_tensor *x);
void tri_engine_forward_n(tri_engine *engine, tri_tensor *const *in, int n_in, tri_tensor **out, int n_out);
void tri_engine_backward(tri_engine *engine, tri_tensor *loss);
tri_status tri_engine_step(tri_engine *engine);
tri_status tri_engine_flush(tri_engine *engine);
void tri_engine_train(tri_engine *engine, bool training);
int64_t tri_engine_train_batch_size(const tri_engine *engine);
int64_t tri_engine_train_micro_batch_size_per_gpu(const tri_engine *engine);
int64_t tri_engine_gradient_accumulation_steps(const tri_engine *engine);
bool tri_engine_is_gradient_accumulation_boundary(const tri_engine *engine);
bool tri_engine_was_step_applied(const tri_engine *engine);
double tri_engine_lr(const tri_engine *engine);
double tri_engine_loss_scale(const tri_engine *engine);
double tri_engine_global_grad_norm(const tri_engine *engine);
int64_t tri_engine_global_steps(const tri_engine *engine);
int64_t tri_engine_skipped_steps(const tri_engine *engine);
int64_t tri_engine_global_samples(const tri_engine *engine);
int64_t tri_engine_micro_steps(const tri_engine *engine);
tri_module *tri_engine_module(const tri_engine *engine);
tri_optimizer *tri_engine_optimizer(const tri_engine *engine);
tri_loader *tri_engine_training_dataloader(const tri_engine *engine);
tri_status tri_engine_save_checkpoint(tri_engine *engine, const char *dir, const char *tag, const tri_metadata *client, int n_client);
typedef struct tri_engine_load_checkpoint_options {
    bool load_module_only;
    bool no_optimizer_states;
    bool no_lr_scheduler_states;
    uint64_t reserved[4];
} tri_engine_load_checkpoint_options;
tri_status tri_engine_load_checkpoint(tri_engine *engine, const char *dir, const char *tag, const tri_engine_load_checkpoint_options *opt);
const char *tri_engine_client(const tri_engine *engine, const char *key);
tri_tensor *tri_dist_all_reduce(tri_tensor *x, tri_redop op, tri_group *group);
tri_tensor *tri_dist_all_gather(tri_tensor *x, int dim, tri_group *group);
tri_tensor *tri_dist_reduce_scatter(tri_tensor *x, tri_redop op, int dim, tri_group *group);
tri_tensor *tri_dist_all_to_all(tri_tensor *x, tri_group *group);
tri_tensor *tri_dist_all_to_all_v(tri_tensor *x, const int64_t *to, const int64_t *from, tri_group *group);
tri_tensor *tri_dist_broadcast(tri_tensor *x, int root, tri_group *group);
tri_tensor *tri_dist_send(tri_tensor *x, int peer, int tag, tri_group *group);
tri_tensor *tri_dist_recv(const int64_t *shape, int ndim, tri_dtype dtype, bool requires_grad, int peer, int tag, tri_group *group);
tri_tensor *tri_dist_copy_to(tri_tensor *x, tri_group *group);
tri_tensor *tri_dist_reduce_from(tri_tensor *x, tri_group *group);
tri_tensor *tri_dist_scatter_to(tri_tensor *x, int dim, tri_group *group);
tri_tensor *tri_dist_gather_from(tri_tensor *x, int dim, tri_group *group);
typedef struct tri_image {
    uint8_t *pixels;
    int64_t height, width;
    int channels;
    size_t capacity;
    uint64_t reserved[4];
} tri_image;
void tri_image_clear(tri_image *image);
typedef struct tri_image_options {
    int channels;
    int64_t top, left, height, width;
    uint64_t reserved[4];
} tri_image_options;
tri_status tri_image_decode(const void *bytes, size_t n, const tri_image_options *opt, tri_image *image_out);
tri_status tri_image_read(const char *path, const tri_image_options *opt, tri_image *image_out);
tri_status tri_image_resize(const tri_image *image, const double *box, int64_t height, int64_t width, tri_image *image_out);
tri_status tri_image_write_png(const tri_image *image, const char *path);
tri_status tri_image_write_jpeg(const tri_image *image, int quality, const char *path);
typedef struct tri_memory_stats {
    size_t parameters;
    size_t gradients;
    size_t states;
    size_t averages;
    size_t buffers;
    size_t messages;
    size_t values;
    size_t total;
    size_t whole_parameters;
    size_t with_ddp;
    uint64_t reserved[8];
} tri_memory_stats;
tri_status tri_memory(tri_module *model, const tri_optimizer *optimizer, const tri_ema *ema, tri_memory_stats *stats_out);
void tri_memory_print(tri_module *model, const tri_optimizer *optimizer, const tri_ema *ema, FILE *file);
#define TRI_MAX_MESH_AXES 8
#define TRI_MAX_MESH_NAME 31
typedef struct tri_mesh tri_mesh;
tri_status tri_mesh_create(tri_group *group, const int64_t *sizes, int n, const char *const *names, tri_mesh **mesh_out);
void tri_mesh_destroy(tri_mesh *mesh);
tri_group *tri_mesh_group(const tri_mesh *mesh, const char *axis);
int tri_mesh_coordinate(const tri_mesh *mesh, const char *axis);
int tri_mesh_size(const tri_mesh *mesh, const char *axis);
int tri_mesh_axis_count(const tri_mesh *mesh);
const char *tri_mesh_axis_name(const tri_mesh *mesh, int index);
tri_status tri_mesh_submesh(const tri_mesh *mesh, const char *const *names, int n, tri_mesh **sub_out);
tri_status tri_mesh_flatten(const tri_mesh *mesh, const char *const *names, int n, const char *name, tri_mesh **flat_out);
typedef struct tri_ddp_options {
    tri_group *group;
    size_t bucket_cap_bytes;
    size_t first_bucket_bytes;
    bool no_buffer_sync;
    tri_bucket_hook hook;
    void *hook_state;
    const tri_device *device_ids;
    int n_devices;
    const tri_device *output_device;
    bool find_unused_parameters;
    bool static_graph;
    uint64_t reserved[8];
} tri_ddp_options;
tri_module *tri_ddp(tri_module *own_net, const tri_ddp_options *opt);
void tri_ddp_no_sync_begin(tri_module *model);
void tri_ddp_no_sync_end(tri_module *model);
void tri_ddp_vote_stop(tri_module *model);
bool tri_ddp_is_stopped(const tri_module *model);
int64_t tri_ddp_sample_count(const tri_module *model);
typedef struct tri_ddp_join_options {
    bool throw_on_early_termination;
    uint64_t reserved[4];
} tri_ddp_join_options;
tri_status tri_ddp_join(tri_module *model, tri_tensor *(*loss)(void *arg), tri_status (*update)(void *arg), void *arg, const tri_ddp_join_options *opt);
typedef struct tri_ddp_pass_stats {
    int64_t n_passes;
    int n_buckets;
    size_t bytes;
    size_t sent_bytes;
    double comm_ms;
    double exposed_ms;
    double hidden;
    uint64_t reserved[4];
} tri_ddp_pass_stats;
typedef struct tri_ddp_bucket_stats {
    size_t bytes, sent_bytes;
    int n_parameters;
    double comm_ms, exposed_ms;
    uint64_t reserved[4];
} tri_ddp_bucket_stats;
tri_status tri_ddp_stats(tri_module *model, tri_ddp_pass_stats *stats_out, tri_ddp_bucket_stats *buckets_out, int room);
typedef struct tri_ddp_volume_stats {
    int64_t all_reduce, reduce_scatter;
    int64_t all_gather;
    int64_t norm;
    int64_t header;
    int64_t buffer_bytes;
    int64_t hook_bytes;
    uint64_t reserved[8];
} tri_ddp_volume_stats;
tri_status tri_ddp_volume(tri_module *model, tri_ddp_volume_stats *volume_out);
tri_status tri_module_broadcast(tri_module *module, tri_group *group, int root);
tri_status tri_ddp_sync_buffers(tri_module *model);
tri_status tri_ddp_verify(tri_module *model, bool buffers);
typedef enum tri_parallel_style {
    TRI_COLWISE = 1,
    TRI_ROWWISE = 2,
    TRI_HEADS = 3,
    TRI_SEQUENCE = 4,
    TRI_PREPARE = 5,
} tri_parallel_style;
typedef enum tri_parallel_value {
    TRI_PARALLEL_DEFAULT = 0,
    TRI_WHOLE = 1,
    TRI_SHARDED = 2,
    TRI_SHARDED_SEQUENCE = 3,
} tri_parallel_value;
typedef struct tri_parallel_rule {
    const char *module;
    tri_parallel_style style;
    tri_parallel_value input, output;
    int parts;
    int64_t block;
    tri_opt dim;
    tri_parallel_value wanted_input, wanted_output;
    uint64_t reserved[3];
} tri_parallel_rule;
tri_status tri_parallelize(tri_module *module, tri_group *group, const tri_parallel_rule *rules, int n);
tri_tensor *tri_dist_cross_entropy(tri_tensor *logits, tri_tensor *target, int64_t classes, tri_group *group, const tri_cross_entropy_options *opt);
typedef enum tri_pipeline_schedule {
    TRI_PIPELINE_1F1B = 0,
    TRI_PIPELINE_GPIPE = 1,
    TRI_PIPELINE_INTERLEAVED = 2,
    TRI_PIPELINE_LOOPED_BFS = 3,
    TRI_PIPELINE_ZERO_BUBBLE = 4,
    TRI_PIPELINE_ZBV = 5,
} tri_pipeline_schedule;
typedef tri_tensor *(*tri_pipeline_count_fn)(tri_tensor *target, void *arg);
typedef struct tri_pipeline_options {
    tri_group *group;
    int n_microbatches;
    tri_pipeline_schedule schedule;
    tri_pipeline_count_fn count;
    tri_tensor *example;
    uint64_t reserved[2];
} tri_pipeline_options;
tri_module *tri_pipeline(tri_module *const *own_stages, int n, const tri_pipeline_options *opt);
tri_module *tri_pipeline_split(tri_module *own_net, const char *const *cuts, int n_stages, const tri_pipeline_options *opt);
typedef tri_tensor *(*tri_pipeline_loss_fn)(tri_tensor *output, tri_tensor *target, void *arg);
tri_tensor *tri_pipeline_step(tri_module *pipe, tri_tensor *x, tri_tensor *target, tri_pipeline_loss_fn loss, void *arg);
tri_status tri_pipeline_draw(tri_module *pipe, const char *path);
void tri_pipeline_print(tri_module *pipe, FILE *file);
typedef struct tri_progress tri_progress;
typedef struct tri_progress_options {
    FILE *stream;
    bool quiet;
    tri_opt plain_seconds;
    uint64_t reserved[4];
} tri_progress_options;
tri_status tri_progress_create(int64_t total, int64_t done, const char *unit, const tri_progress_options *opt, tri_progress **progress_out);
void tri_progress_destroy(tri_progress *progress);
bool tri_progress_is_due(const tri_progress *progress);
void tri_progress_update(tri_progress *progress, int64_t done, const char *format, ...);
void tri_progress_text(tri_progress *progress, const char *format, ...);
void tri_progress_line(tri_progress *progress, const char *format, ...);
void tri_progress_pause(tri_progress *progress);
void tri_progress_resume(tri_progress *progress);
double tri_progress_seconds(const tri_progress *progress);
double tri_progress_rate(const tri_progress *progress);
typedef struct tri_metrics tri_metrics;
typedef struct tri_metric {
    const char *key;
    double value;
} tri_metric;
tri_status tri_metrics_open(const char *path, int64_t keep_steps, tri_metrics **metrics_out);
void tri_metrics_close(tri_metrics *metrics);
tri_status tri_metrics_write(tri_metrics *metrics, const tri_metric *values, int n);
#define tri_metrics_log(metrics,...)
typedef struct tri_csv tri_csv;
tri_status tri_csv_open(const char *path, int64_t keep_steps, tri_csv **csv_out);
void tri_csv_close(tri_csv *csv);
tri_status tri_csv_write(tri_csv *csv, const tri_metric *values, int n);
typedef struct tri_tensorboard tri_tensorboard;
typedef struct tri_tensorboard_open_options {
    tri_opt keep_steps;
    tri_opt flush_seconds;
    uint64_t reserved[4];
} tri_tensorboard_open_options;
tri_status tri_tensorboard_open(const char *folder, const tri_tensorboard_open_options *opt, tri_tensorboard **board_out);
tri_status tri_tensorboard_scalar(tri_tensorboard *board, const char *tag, int64_t step, double value);
tri_status tri_tensorboard_histogram(tri_tensorboard *board, const char *tag, int64_t step, const void *values, int64_t n, tri_dtype dtype);
tri_status tri_tensorboard_image(tri_tensorboard *board, const char *tag, int64_t step, const uint8_t *pixels, const int64_t *shape, int ndim, const char *layout);
tri_status tri_tensorboard_text(tri_tensorboard *board, const char *tag, int64_t step, const char *text);
typedef struct tri_hparam {
    const char *name;
    double value;
    const char *text;
} tri_hparam;
tri_status tri_tensorboard_hparams(tri_tensorboard *board, const char *run_name, const tri_hparam *hparams, int n_hparams, const tri_metric *metrics, int n_metrics);
tri_status tri_tensorboard_flush(tri_tensorboard *board);
tri_status tri_tensorboard_close(tri_tensorboard *board);
tri_status tri_run_folder_create(const char *prefix, int64_t *number_out);
#define TRI_REMOTE_TENSORS 16
typedef enum tri_remote_versions {
    TRI_REMOTE_COPY = 0,
    TRI_REMOTE_STALE = 1,
    TRI_REMOTE_REFUSE = 2,
} tri_remote_versions;
typedef struct tri_remote_serve_options {
    tri_remote_versions versions;
    int max_graphs;
    uint64_t reserved[8];
} tri_remote_serve_options;
tri_status tri_remote_serve(tri_rpc *rpc, const char *name, tri_module *module, tri_optimizer *optimizer, const tri_remote_serve_options *opt);
tri_status tri_remote_withdraw(tri_rpc *rpc, const char *name);
typedef struct tri_remote_function {
    const char *name;
    size_t size;
    tri_status (*shape)(const tri_function_call *call, tri_function_array *out);
    void (*record)(const void *data, tri_tensor *const *in, int n_in, tri_tensor **out, int n_out, void *object);
    uint64_t reserved[8];
} tri_remote_function;
tri_status tri_remote_serve_function(tri_rpc *rpc, const tri_remote_function *function, void *object, const tri_remote_serve_options *opt);
typedef struct tri_remote_module_options {
    int64_t timeout_ms;
    uint64_t reserved[8];
} tri_remote_module_options;
tri_module *tri_remote_module(tri_rpc *rpc, const char *name, const tri_remote_module_options *opt);
void tri_remote_apply(tri_rpc *rpc, const char *worker, const tri_remote_function *function, const void *data, tri_tensor *const *in, int n_in, tri_tensor **out, int n_out);
typedef struct tri_remote_optimizer tri_remote_optimizer;
typedef struct tri_remote_optimizer_options {
    int64_t timeout_ms;
    double max_norm;
    bool average;
    tri_group *group;
    uint64_t reserved[6];
} tri_remote_optimizer_options;
tri_remote_optimizer *tri_remote_optimizer_of(tri_optimizer *own_or_null, tri_module *const *remotes, int n, const tri_remote_optimizer_options *opt);
tri_status tri_remote_optimizer_step(tri_remote_optimizer *optimizer);
void tri_remote_optimizer_zero_grad(tri_remote_optimizer *optimizer);
void tri_remote_optimizer_set_lr(tri_remote_optimizer *optimizer, double lr);
double tri_remote_optimizer_lr(const tri_remote_optimizer *optimizer);
double tri_remote_optimizer_norm(const tri_remote_optimizer *optimizer);
void tri_remote_optimizer_destroy(tri_remote_optimizer *optimizer);
typedef struct tri_nn_sync_batch_norm_options {
    tri_opt eps, momentum;
    bool cumulative, no_affine, no_track_running_stats;
    tri_group *group;
    uint64_t reserved[4];
} tri_nn_sync_batch_norm_options;
tri_module *tri_nn_sync_batch_norm(int64_t channels, const tri_nn_sync_batch_norm_options *opt);
int tri_convert_sync_batch_norm(tri_module *module, tri_group *group);
typedef struct tri_torch_file tri_torch_file;
typedef struct tri_torch_tensor {
    const char *name;
    tri_dtype dtype;
    const char *type_name;
    size_t element_bytes;
    int ndim;
    int64_t shape[8];
    int64_t stride[8];
    int64_t offset;
    const char *storage;
    uint64_t storage_bytes;
    uint64_t file_offset;
    uint64_t bytes;
    bool requires_grad;
    const char *refused;
    uint64_t reserved[3];
} tri_torch_tensor;
typedef enum tri_torch_kind {
    TRI_TORCH_NONE = 0,
    TRI_TORCH_BOOL = 1,
    TRI_TORCH_INT = 2,
    TRI_TORCH_FLOAT = 3,
    TRI_TORCH_TEXT = 4,
    TRI_TORCH_BYTES = 5,
    TRI_TORCH_TUPLE = 6,
    TRI_TORCH_LIST = 7,
    TRI_TORCH_SET = 8,
    TRI_TORCH_DICT = 9,
    TRI_TORCH_TENSOR = 10,
    TRI_TORCH_OBJECT = 11,
} tri_torch_kind;
typedef struct tri_torch_value {
    tri_torch_kind kind;
    int64_t integer;
    double real;
    const char *text;
    size_t bytes;
    const struct tri_torch_value *const *items;
    int64_t n;
    const tri_torch_tensor *tensor;
    const struct tri_torch_value *arguments;
    const struct tri_torch_value *state;
    uint64_t reserved[2];
} tri_torch_value;
tri_status tri_torch_open(const char *path, tri_torch_file **file_out);
void tri_torch_close(tri_torch_file *file);
const tri_torch_value *tri_torch_root(const tri_torch_file *file);
const tri_torch_value *tri_torch_item(const tri_torch_value *dict, const char *key);
int64_t tri_torch_count(const tri_torch_file *file);
const tri_torch_tensor *tri_torch_at(const tri_torch_file *file, int64_t index);
const tri_torch_tensor *tri_torch_find(const tri_torch_file *file, const char *name);
tri_status tri_torch_read(tri_torch_file *file, int64_t index, void *data, size_t bytes);
tri_tensor *tri_torch_tensor_named(tri_torch_file *file, const char *name);
tri_status tri_torch_write(const char *path, const tri_safetensors_entry *entries, int64_t n);
tri_status tri_torch_save(tri_module *module, const char *path);
typedef struct tri_zero_options {
    tri_group *group;
    const tri_mesh *mesh;
    int stage;
    size_t bucket_cap_bytes, first_bucket_bytes;
    bool no_buffer_sync;
    tri_bucket_hook hook;
    void *hook_state;
    int prefetch;
    bool keep_after_forward;
    int64_t keep_below;
    const char *const *units;
    int n_units;
    size_t prefetch_bytes;
    tri_dtype gather_dtype;
    int n_devices;
    const tri_device *device_ids;
    const tri_device *output_device;
    uint64_t reserved[4];
} tri_zero_options;
tri_module *tri_zero(tri_module *own_net, const tri_zero_options *opt);
tri_module *tri_fully_shard(tri_module *own_net, const tri_zero_options *opt);
tri_status tri_unshard_begin(tri_module *module);
tri_status tri_unshard_end(tri_module *module);
typedef struct tri_trainer tri_trainer;
typedef struct tri_task {
    const char *name;
    tri_module *(*model)(void *arg);
    tri_optimizer *(*optimizer)(tri_module *model, void *arg);
    tri_tensor *(*training_step)(tri_trainer *t, const tri_batch *batch, void *arg);
    void (*validation_step)(tri_trainer *t, const tri_batch *batch, void *arg);
    void (*test_step)(tri_trainer *t, const tri_batch *batch, void *arg);
    tri_tensor *(*predict_step)(tri_trainer *t, const tri_batch *batch, void *arg);
    double (*lr)(double lr, int64_t step, int64_t total_steps, void *arg);
    uint64_t reserved[8];
} tri_task;
typedef struct tri_fit_data {
    tri_dataset *train, *val, *test, *predict;
    int64_t batch_size;
    int64_t global_batch_size;
    int64_t val_batch_size;
    tri_loader_options loader;
    bool no_shuffle;
    uint64_t reserved[8];
} tri_fit_data;
typedef struct tri_fit_checkpoint_options {
    const char *monitor;
    const char *mode;
    int save_top_k;
    int keep_last;
    int64_t every_n_train_steps;
    int64_t every_n_epochs;
    double every_s;
    bool async;
    bool weights_only;
    bool on_exception;
    uint64_t reserved[8];
} tri_fit_checkpoint_options;
typedef struct tri_fit_early_stopping_options {
    const char *monitor;
    const char *mode;
    double min_delta;
    tri_opt patience;
    bool not_strict;
    bool allow_not_finite;
    tri_opt stopping_threshold;
    tri_opt divergence_threshold;
    uint64_t reserved[4];
} tri_fit_early_stopping_options;
typedef struct tri_fit_ema_options {
    tri_opt decay;
    int64_t every_n_steps;
    int64_t start_step;
    uint64_t reserved[4];
} tri_fit_ema_options;
typedef struct tri_callback tri_callback;
typedef struct tri_fit_options {
    int64_t max_epochs;
    int64_t max_steps;
    double max_time_s;
    int64_t min_epochs, min_steps;
    const char *accelerator;
    int devices;
    int num_nodes;
    const char *strategy;
    const char *precision;
    int64_t limit_train_batches, limit_val_batches, limit_test_batches, limit_predict_batches;
    double limit_train_share, limit_val_share, limit_test_share, limit_predict_share;
    int64_t overfit_batches;
    int64_t fast_dev_run;
    tri_opt num_sanity_val_steps;
    int64_t val_check_interval;
    int64_t check_val_every_n_epoch;
    int64_t accumulate_grad_batches;
    double gradient_clip_val;
    const char *gradient_clip_algorithm;
    bool sync_batchnorm;
    bool detect_anomaly;
    const char *profile;
    uint64_t seed;
    const char *default_root_dir;
    const char *run_name;
    const char *ckpt_path;
    bool resume_anyway;
    const tri_fit_checkpoint_options *checkpoint;
    const tri_fit_early_stopping_options *early_stopping;
    const tri_fit_ema_options *ema;
    tri_callback *const *callbacks;
    int n_callbacks;
    int64_t log_every_n_steps;
    bool csv, tensorboard;
    bool no_progress, no_checkpoint, no_summary;
    const tri_ddp_options *ddp;
    const tri_zero_options *zero;
    uint64_t reserved[15];
} tri_fit_options;
typedef enum tri_stop_reason {
    TRI_STOP_NONE = 0,
    TRI_STOP_MAX_EPOCHS = 1,
    TRI_STOP_MAX_STEPS = 2,
    TRI_STOP_MAX_TIME = 3,
    TRI_STOP_EARLY = 4,
    TRI_STOP_REQUEST = 5,
    TRI_STOP_SIGNAL = 6,
} tri_stop_reason;
#define TRI_FIT_MAX_VALUES 64
#define TRI_FIT_NAME_BYTES 64
#define TRI_FIT_PATH_BYTES 1024
typedef struct tri_fit_result {
    tri_stop_reason reason;
    char why[128];
    int64_t epochs, steps;
    double seconds;
    char run_dir[1024];
    char best_path[1024];
    double best_value;
    int n_values;
    char names[64][64];
    double values[64];
    uint64_t reserved[16];
} tri_fit_result;
double tri_fit_result_value(const tri_fit_result *result, const char *name);
tri_status tri_fit(const tri_task *task, const tri_fit_data *data, const tri_fit_options *opt, void *arg, tri_fit_result *result_out);
tri_status tri_validate(const tri_task *task, const tri_fit_data *data, const tri_fit_options *opt, void *arg, tri_fit_result *result_out);
tri_status tri_test(const tri_task *task, const tri_fit_data *data, const tri_fit_options *opt, void *arg, tri_fit_result *result_out);
tri_status tri_predict(const tri_task *task, const tri_fit_data *data, const tri_fit_options *opt, void *arg, tri_tensor **predictions_out);
tri_module * tri_trainer_model(const tri_trainer *t);
tri_optimizer *tri_trainer_optimizer(const tri_trainer *t);
int64_t tri_trainer_epoch(const tri_trainer *t);
int64_t tri_trainer_step(const tri_trainer *t);
int64_t tri_trainer_batch(const tri_trainer *t);
int64_t tri_trainer_total_steps(const tri_trainer *t);
int tri_trainer_rank(const tri_trainer *t);
int tri_trainer_world_size(const tri_trainer *t);
bool tri_trainer_is_global_zero(const tri_trainer *t);
bool tri_trainer_is_sanity_checking(const tri_trainer *t);
const char *tri_trainer_run_dir(const tri_trainer *t);
double tri_trainer_value(const tri_trainer *t, const char *name);
tri_tensorboard *tri_trainer_tensorboard(const tri_trainer *t);
void tri_trainer_stop(tri_trainer *t, const char *why);
typedef struct tri_trainer_log_options {
    int64_t weight;
    bool count;
    const char *reduce;
    tri_opt on_step, on_epoch;
    bool progress_bar;
    bool local;
    uint64_t reserved[4];
} tri_trainer_log_options;
void tri_trainer_log(tri_trainer *t, const char *name, tri_tensor *value, const tri_trainer_log_options *opt);
void tri_trainer_log_value(tri_trainer *t, const char *name, double value, const tri_trainer_log_options *opt);
typedef struct tri_callback_class {
    const char *name;
    tri_status (*fit_begin)(tri_callback *self, tri_trainer *t);
    tri_status (*epoch_begin)(tri_callback *self, tri_trainer *t);
    tri_status (*batch_begin)(tri_callback *self, tri_trainer *t, const tri_batch *batch);
    tri_status (*batch_end)(tri_callback *self, tri_trainer *t, const tri_batch *batch);
    tri_status (*validation_begin)(tri_callback *self, tri_trainer *t);
    tri_status (*validation_end)(tri_callback *self, tri_trainer *t);
    tri_status (*epoch_end)(tri_callback *self, tri_trainer *t);
    tri_status (*fit_end)(tri_callback *self, tri_trainer *t);
    void (*exception)(tri_callback *self, tri_trainer *t, tri_status status);
    tri_status (*record)(tri_callback *self, tri_trainer *t, const tri_metric *values, int n);
    tri_status (*state_save)(tri_callback *self, tri_trainer *t);
    tri_status (*state_load)(tri_callback *self, tri_trainer *t);
    uint64_t reserved[8];
} tri_callback_class;
struct tri_callback {
    const tri_callback_class *cls;
    uint64_t reserved[4];
};
tri_status tri_trainer_set_state(tri_trainer *t, const char *key, const char *value);
const char *tri_trainer_state(const tri_trainer *t, const char *key);
typedef struct tri_meter tri_meter;
tri_status tri_meter_create(tri_meter **meter_out);
void tri_meter_destroy(tri_meter *meter);
tri_status tri_meter_add_mean(tri_meter *meter, tri_tensor *mean, int64_t weight);
tri_status tri_meter_add_count(tri_meter *meter, tri_tensor *count, int64_t weight);
double tri_meter_value(tri_meter *meter);
double tri_meter_sum(tri_meter *meter);
int64_t tri_meter_weight(tri_meter *meter);
tri_status tri_meter_reset(tri_meter *meter);

/* --- libtrireme-models.so.0 --- */
#define TRI_MODEL_NAMES
tri_module *tri_model_by_name(const char *name, int64_t classes);
tri_module *tri_model_resnet(int depth, int64_t classes);
tri_module *tri_model_resnet_of_width(int depth, int64_t first_width, int64_t classes);
tri_tensor *tri_model_resnet_first_half(tri_module *net, tri_tensor *x);
tri_tensor *tri_model_resnet_second_half(tri_module *net, tri_tensor *x);
tri_module *tri_model_resnet_block(bool bottleneck, int64_t in, int64_t width, int stride);
typedef struct tri_model_vit_options {
    int64_t size, patch;
    int64_t width, depth, heads;
    int64_t classes;
    double dropout;
    uint64_t reserved[4];
} tri_model_vit_options;
tri_module *tri_model_vit(const tri_model_vit_options *opt);
typedef struct tri_model_gpt2_options {
    int64_t layers, width, heads;
    int64_t context, vocabulary;
    double dropout;
    uint64_t reserved[4];
} tri_model_gpt2_options;
tri_module *tri_model_gpt2(const tri_model_gpt2_options *opt);
const char *tri_model_gpt2_rename(const char *name, char *room, void *arg);
