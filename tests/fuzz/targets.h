/*
 * targets.h - the parsers of what others send or leave in files, each as a target of fuzz.h, and
 * what must hold of them whatever they are given. Tests only.
 */
#ifndef TEST_FUZZ_TARGETS_H
#define TEST_FUZZ_TARGETS_H

#include <math.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <trireme/trireme.h>

#include "base/alloc.h"
#include "train/checkpoint/weights.h"
#include "train/data/idx.h"
#include "comm/engines/tcp/tcp.h"
#include "fuzz/fuzz.h"
#include "comm/group/group_internal.h"
#include "train/image/pixels.h"
#include "launch/peers/peer_frame.h"
#include "launch/rendezvous/rdzv_pickle.h"
#include "os/clock.h"
#include "os/socket.h"
#include "os/thread.h"
#include "train/records/crc32c.h"
#include "train/records/csv_read.h"
#include "train/records/event_file.h"
#include "train/records/event_read.h"
#include "store/file_log.h"
#include "store/handshake.h"
#include "store/tcp_server.h"
#include "store/wire.h"
#include "testing/check.h"
#include "testing/socket_end.h"
#include "train/deepspeed/engine_internal.h"

static void quiet(void)
{
    setenv("TRI_LOG", "error", 1);
}

/* --- store requests ------------------------------------------------------- */

/* A hash of all requests, fed in pieces of `piece` bytes; *status_out is how it ended. */
static uint64_t parse_requests(const uint8_t *data, size_t bytes, size_t piece,
                               tri_status *status_out)
{
    trii_wire_parser parser;
    uint64_t hash = 1;
    size_t at = 0;
    tri_status status = TRI_OK;

    trii_wire_parser_init(&parser);
    while (at < bytes && status >= 0) {
        size_t n = bytes - at < piece ? bytes - at : piece, used = 0;
        trii_wire_request request = {0};

        status = trii_wire_feed(&parser, data + at, n, &used, &request);
        if (status < 0)
            break;
        assert_true(used <= n && (used > 0 || n == 0 || status == TRI_OK));
        at += used;
        if (status != TRI_OK)
            continue;
        assert_true(request.op < TRII_WIRE_OP_COUNT && request.n_parts <= bytes);
        hash = hash * 31 + (uint64_t)request.op + (uint64_t)request.number + request.word;
        for (size_t i = 0; i < request.n_parts; i++) {
            hash = hash * 31 + request.parts[i].bytes;
            for (size_t k = 0; k < request.parts[i].bytes; k++)
                hash = hash * 31 + (uint8_t)request.parts[i].data[k];
        }
    }
    /* a length that is announced costs nothing until the bytes come */
    assert_true(parser.room <= 4 * FUZZ_MAX_BYTES);
    trii_wire_parser_fini(&parser);
    *status_out = status;
    return hash;
}

static void run_requests(const uint8_t *data, size_t bytes)
{
    tri_status whole, pieces;
    uint64_t a = parse_requests(data, bytes, bytes + 1, &whole);
    uint64_t b = parse_requests(data, bytes, 1 + bytes % 7, &pieces);

    assert_true(a == b && (whole < 0) == (pieces < 0));
}

static const fuzz_target requests_target = {.name = "store_requests", .run = run_requests};

/* --- the state of a rendezvous -------------------------------------------- */

/* What is understood is understood again once it was written down. */
static void run_rendezvous(const uint8_t *data, size_t bytes)
{
    trii_rdzv_state state, again;
    trii_wire_buffer out = {0}, text = {0}, back = {0};

    trii_rdzv_state_init(&state);
    trii_rdzv_state_init(&again);
    if (trii_rdzv_pickle_read(data, bytes, &state) == TRI_OK) {
        trii_rdzv_pickle_write(&state, &out);
        assert_true(trii_rdzv_pickle_read(out.data, out.used, &again) == TRI_OK);
        assert_int_equal(again.n, state.n);
        assert_int_equal(again.round, state.round);
    } else {
        assert_int_equal(state.n, 0);
    }
    trii_base64_write(data, bytes, &text);
    assert_true(trii_base64_read(text.data, text.used, &back) == TRI_OK);
    assert_true(back.used == bytes && (bytes == 0 || memcmp(back.data, data, bytes) == 0));
    if (trii_base64_read((const char *)data, bytes, &back) != TRI_OK)
        assert_true(tri_last_error()[0] != '\0');
    trii_rdzv_state_fini(&state);
    trii_rdzv_state_fini(&again);
    trii_wire_buffer_fini(&out);
    trii_wire_buffer_fini(&text);
    trii_wire_buffer_fini(&back);
}

static const fuzz_target rendezvous_target = {.name = "rendezvous", .run = run_rendezvous};

/* The same to a server that is alive; an honest client is served in between. */
static trii_tcp_server *live_server;
static tri_store *live_client;

static void begin_server(void)
{
    const trii_tcp_server_options options = {.host = "127.0.0.1"};

    quiet();
    CHECK_OK(trii_tcp_server_create(&options, &live_server));
    CHECK_OK(tri_store_tcp("127.0.0.1", trii_tcp_server_port(live_server), NULL, &live_client));
}

static void run_server(const uint8_t *data, size_t bytes)
{
    int64_t deadline = trii_deadline_ms(20000);
    tri_status status;
    int fd;

    CHECK_OK(
        trii_socket_connect("127.0.0.1", trii_tcp_server_port(live_server), deadline, false, &fd));
    status = trii_socket_send_all(fd, data, bytes, deadline);
    assert_true(status == TRI_OK || status == TRI_ERR_PEER_LOST);
    trii_socket_shutdown(fd);
    socket_expect_end(fd);
    if (bytes % 16 == 0)
        CHECK_OK(tri_store_add(live_client, "honest", 1, NULL));
}

static void end_server(void)
{
    tri_store_unref(live_client);
    trii_tcp_server_destroy(live_server);
}

static const fuzz_target server_target = {
    .name = "store_requests", .begin = begin_server, .run = run_server, .end = end_server};

/* --- the file store's records --------------------------------------------- */

static void run_records(const uint8_t *data, size_t bytes)
{
    const char *text = (const char *)data;
    size_t used = 0, need = 0, again = 0;
    trii_kv *kv = NULL;
    int64_t n;
    tri_status status;

    CHECK_OK(trii_kv_create(&kv));
    status = trii_file_log_read(kv, text, bytes, &used, &need);
    assert_true(used <= bytes);
    n = trii_kv_count(kv);
    if (status == TRI_OK) {
        assert_true((used == bytes) == (need == 0) && (need == 0 || need > bytes - used));
        CHECK_OK(trii_file_log_read(kv, text, used, &again, &need)); /* twice is the same */
        assert_true(again == used && trii_kv_count(kv) == n);
    }
    trii_kv_destroy(kv);
}

static const fuzz_target records_target = {.name = "store_file", .run = run_records};

/* --- the handshake -------------------------------------------------------- */

static trii_job_key fuzz_key;

static void begin_handshake(void)
{
    char path[] = "/tmp/tri-fuzz-key-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "a secret that nobody can guess, at all", 38), 38);
    close(fd);
    setenv("TRI_JOB_KEY_FILE", path, 1);
    CHECK_OK(trii_job_key_load(&fuzz_key));
    remove(path);
}

static void run_handshake(const uint8_t *data, size_t bytes)
{
    trii_handshake shake = {0};
    unsigned char answer[TRII_ANSWER_BYTES];
    size_t at = 0;
    tri_status status = TRI_INPROGRESS;

    while (status == TRI_INPROGRESS && at < bytes) {
        size_t n = at + 1 + bytes % 5 > bytes ? bytes - at : 1 + bytes % 5, used = 0, out = 0;

        status = trii_handshake_feed(&shake, &fuzz_key, "store", data + at, n, &used, answer, &out);
        assert_true(used <= n && (used > 0 || status < 0) && (out == 0 || out == sizeof(answer)));
        at += used;
    }
    assert_true(status != TRI_OK && !shake.proved); /* nobody gets in by luck */
}

static const fuzz_target handshake_target = {
    .name = "handshake", .begin = begin_handshake, .run = run_handshake};

/* --- what agents send each other ------------------------------------------ */

/* A hash of all frames that are valid, in pieces of `piece` bytes. */
static uint64_t read_frames(const uint8_t *data, size_t bytes, size_t piece)
{
    const trii_job_key none = {0};
    unsigned char answer[TRII_ANSWER_BYTES];
    trii_peer_reader reader = {0};
    uint64_t hash = 1;
    size_t used, out;

    for (size_t at = 0; at < bytes; at += used) {
        size_t n = bytes - at < piece ? bytes - at : piece;
        tri_status status =
            trii_peer_reader_feed(&reader, &none, data + at, n, &used, answer, &out);

        assert_true(used > 0 && used <= n && out == 0 && reader.got < sizeof(reader.frame));
        assert_true(used == n || status != TRI_INPROGRESS);
        if (status != TRI_OK)
            continue;
        assert_int_equal(reader.frame.magic, TRII_PEER_MAGIC);
        assert_true(reader.frame.kind != TRII_PEER_HELLO || reader.frame.rank >= 0);
        assert_true(reader.frame.kind != TRII_PEER_PREEMPTION ||
                    (reader.frame.rank >= 0 && reader.frame.number > 0));
        assert_true(reader.frame.kind > TRII_PEER_HELLO || reader.frame.value >= 0);
        for (size_t i = 0; i < sizeof(reader.frame); i++)
            hash = hash * 31 + ((const unsigned char *)&reader.frame)[i];
    }
    return hash;
}

/* The handshake's corpus serves for the one with a key. */
static void run_agent_frames(const uint8_t *data, size_t bytes)
{
    uint64_t whole = read_frames(data, bytes, bytes + 1);
    unsigned char answer[TRII_ANSWER_BYTES];
    trii_peer_reader reader = {0};
    tri_status status = TRI_INPROGRESS;

    assert_true(whole == read_frames(data, bytes, 1 + bytes % 7));
    for (size_t at = 0, used = 0, out; status == TRI_INPROGRESS && at < bytes; at += used)
        status =
            trii_peer_reader_feed(&reader, &fuzz_key, data + at, bytes - at, &used, answer, &out);
    assert_true(status != TRI_OK); /* nobody gets in without the key */
}

static const fuzz_target agent_frames_target = {
    .name = "agent_frames", .begin = begin_handshake, .run = run_agent_frames};

/* --- files ---------------------------------------------------------------- */

/* The path of a file without a name of its own, which has these bytes until the next has its
 * own. */
static const char *as_file(const uint8_t *data, size_t bytes)
{
    static char path[64];
    static int fd = -1;

    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(pwrite(fd, data, bytes, 0), bytes);
    return path;
}

static void run_safetensors(const uint8_t *data, size_t bytes)
{
    tri_safetensors *file = NULL;
    volatile uint8_t sink = 0;

    if (tri_safetensors_open(as_file(data, bytes), &file) == TRI_OK) {
        for (int64_t i = 0; i < tri_safetensors_count(file); i++) {
            const tri_safetensors_entry *e = tri_safetensors_at(file, i);
            const uint8_t *first = e->data;

            assert_true(e->bytes <= bytes);
            for (size_t k = 0; k < e->bytes; k++)
                sink = (uint8_t)(sink + first[k]);
            assert_non_null(tri_safetensors_find(file, e->name));
        }
    }
    tri_safetensors_close(file);
}

static void run_torch_files(const uint8_t *data, size_t bytes)
{
    long live = trii_alloc_live();
    tri_torch_file *file = NULL;
    char elements[4096], prefix[64];

    if (tri_torch_open(as_file(data, bytes), &file) == TRI_OK) {
        (void)!trii_weights_torch_prefix("file", tri_torch_root(file), prefix, sizeof(prefix));
        for (int64_t i = 0; i < tri_torch_count(file); i++) {
            const tri_torch_tensor *t = tri_torch_at(file, i);

            assert_non_null(tri_torch_find(file, t->name));
            if (t->bytes <= sizeof(elements))
                (void)!tri_torch_read(file, i, elements, (size_t)t->bytes);
        }
    }
    tri_torch_close(file);
    assert_int_equal(trii_alloc_live(), live);
}

static void run_idx(const uint8_t *data, size_t bytes)
{
    trii_idx idx;

    if (trii_idx_read(as_file(data, bytes), &idx) == TRI_OK) {
        const uint8_t *first = idx.data;
        volatile uint8_t sink = 0;

        for (size_t k = 0; k < idx.elems * tri_dtype_size(idx.dtype); k++)
            sink = (uint8_t)(sink + first[k]);
        trii_idx_fini(&idx);
    }
}

/* A part has the pixels of the whole one, whatever these are. */
static void run_images(const uint8_t *data, size_t bytes)
{
    trii_image whole = {0}, part = {0};
    int64_t height, width;

    if (trii_image_size(data, bytes, &height, &width) != TRI_OK)
        assert_true(trii_image_decode(data, bytes, NULL, 3, &whole) != TRI_OK);
    else if (height * width <= 1 << 16 && /* more of the same, which takes its time */
             trii_image_decode(data, bytes, NULL, 3, &whole) == TRI_OK) {
        const trii_image_window w = {height / 3, width / 4, (height + 1) / 2, (width + 1) / 2};
        tri_status status = trii_image_decode(data, bytes, &w, 3, &part);

        CHECK_OK(status);
        for (int64_t y = 0; y < w.height; y++)
            assert_memory_equal(part.pixels + y * w.width * 3,
                                whole.pixels + ((w.top + y) * width + w.left) * 3,
                                (size_t)w.width * 3);
    }
    trii_image_clear(&whole);
    trii_image_clear(&part);
}

static const fuzz_target images_target = {.name = "images", .run = run_images};
static const fuzz_target torch_files_target = {.name = "torch_files", .run = run_torch_files};
static const fuzz_target safetensors_target = {.name = "safetensors", .run = run_safetensors};
static const fuzz_target idx_target = {.name = "idx", .run = run_idx};

/* Reads all; every pointer lies within the file, which ends where its memory does. */
static void read_events(const uint8_t *bytes_of_file, size_t bytes)
{
    uint8_t *data = malloc(bytes + (bytes == 0));
    trii_event_reader reader = {.path = "fuzz", .data = data, .bytes = bytes};
    volatile uint8_t sink = 0;
    trii_event event;
    tri_status status;

    assert_non_null(data);
    memcpy(data, bytes_of_file, bytes);
    while ((status = trii_event_read(&reader, &event)) == TRI_OK) {
        trii_event_value value;

        assert_true(reader.at <= bytes && reader.at > event.offset);
        assert_true(event.summary == NULL ||
                    (event.summary >= data && event.summary_bytes <= bytes &&
                     event.summary + event.summary_bytes <= data + reader.at));
        while ((status = trii_event_value_next(&reader, &event, &value)) == TRI_OK) {
            const uint8_t *tag = (const uint8_t *)value.tag;

            assert_true(value.tag_bytes == 0 ||
                        (tag >= event.summary && value.tag_bytes <= event.summary_bytes &&
                         tag + value.tag_bytes <= event.summary + event.summary_bytes));
            for (size_t i = 0; i < value.tag_bytes; i++)
                sink = (uint8_t)(sink + tag[i]);
        }
        assert_true(status == TRI_END || status == TRI_ERR_FORMAT);
    }
    assert_true(status == TRI_END || status == TRI_ERR_FORMAT);
    free(data);
}

/* With right checksums, record by record. */
static void read_sealed(const uint8_t *data, size_t bytes)
{
    static uint8_t sealed[FUZZ_MAX_BYTES];
    size_t at = 0;

    memcpy(sealed, data, bytes);
    while (bytes - at >= TRII_EVENT_HEAD + TRII_EVENT_TAIL) {
        uint32_t crc = trii_crc32c_masked(sealed + at, 8);
        uint64_t n;

        memcpy(&n, sealed + at, 8);
        memcpy(sealed + at + 8, &crc, 4);
        if (n > bytes - at - TRII_EVENT_HEAD - TRII_EVENT_TAIL)
            break;
        at += TRII_EVENT_HEAD;
        crc = trii_crc32c_masked(sealed + at, (size_t)n);
        memcpy(sealed + at + n, &crc, 4);
        at += (size_t)n + TRII_EVENT_TAIL;
    }
    read_events(sealed, bytes);
}

/* As it is, which the checksums mostly refuse; with right ones; and as the data of one record. */
static void run_events(const uint8_t *data, size_t bytes)
{
    static uint8_t frame[FUZZ_MAX_BYTES + TRII_EVENT_HEAD + TRII_EVENT_TAIL];
    const uint64_t n = bytes;
    uint32_t crc;

    read_events(data, bytes);
    read_sealed(data, bytes);
    memcpy(frame, &n, 8);
    crc = trii_crc32c_masked(frame, 8);
    memcpy(frame + 8, &crc, 4);
    memcpy(frame + TRII_EVENT_HEAD, data, bytes);
    crc = trii_crc32c_masked(data, bytes);
    memcpy(frame + TRII_EVENT_HEAD + bytes, &crc, 4);
    read_events(frame, bytes + TRII_EVENT_HEAD + TRII_EVENT_TAIL);
}

/* Cells lie within their record, and records within the file, none in two. */
static void run_csv(const uint8_t *data, size_t bytes)
{
    const char *at = (const char *)data, *end = at + bytes;
    trii_csv_record record;

    while (at < end) {
        const char *before = at;

        if (!trii_csv_next(&at, end, &record))
            break;
        assert_true(record.start == before && record.end < at && at <= end && at[-1] == '\n');
        while (record.start != NULL) {
            trii_csv_record probe = record;
            char cell[8], whole[FUZZ_MAX_BYTES + 1];
            size_t n = trii_csv_cell(&record, cell, sizeof(cell));
            double value;

            assert_true(n <= bytes && trii_csv_cell(&probe, whole, sizeof(whole)) == n);
            assert_true(strncmp(cell, whole, sizeof(cell) - 1) == 0);
            assert_true(record.start == probe.start &&
                        (record.start == NULL || record.start > before));
            (void)trii_csv_number(whole, &value);
        }
    }
}

static const fuzz_target events_target = {.name = "events", .run = run_events};
static const fuzz_target csv_target = {.name = "csv", .run = run_csv};

/* --- DeepSpeed's configurations ------------------------------------------- */

/* Lines are those of the text, in its order; nothing lies deeper than is allowed. */
static void check_tree(const trii_conf *parent, int depth, int n_lines)
{
    int line = parent->line;

    assert_true(depth <= 33);
    for (const trii_conf *c = parent->child; c != NULL; c = c->next) {
        assert_true(c->line >= line && c->line <= n_lines);
        line = c->line;
        assert_true((parent->kind == TRII_CONF_BLOCK) == (c->key != NULL));
        assert_true(c->kind != TRII_CONF_NUMBER || isfinite(c->number));
        assert_true(parent->kind != TRII_CONF_BLOCK || trii_conf_member(parent, c->key) == c);
        check_tree(c, depth + 1, n_lines);
    }
}

/* What was taken can be trained with: nothing is out of the range of its type. */
static void check_taken(const trii_engine_config *c, int world, tri_status checked)
{
    tri_engine e = {.config = *c, .model = tri_nn_linear(2, 2, NULL)};
    tri_status status;

    assert_true(c->micro_batch > 0 && c->accumulate > 0);
    assert_int_equal(c->train_batch, c->micro_batch * c->accumulate * world);
    assert_true(c->stage >= 0 && c->stage <= 3 && c->clip >= 0);
    assert_true(c->scale_window >= 0 && c->hysteresis >= 0 && c->print_every >= 0);
    for (int64_t step = 0; step < 1 << 12; step = step * 3 + 1) {
        (void)trii_rate_at(&c->rate, 0.1, step);
        (void)trii_rate_momentum(&c->rate, step);
    }
    status = trii_engine_make_optimizer(&e);
    assert_int_equal(checked, trii_conf_find(c->root, "optimizer") != NULL ? status : TRI_OK);
    tri_optimizer_destroy(e.optimizer);
    tri_module_destroy(e.model);
    tri_step_end();
}

static void run_deepspeed(const uint8_t *data, size_t bytes)
{
    const int world = 1 + (int)(bytes % 5);
    const char *path = as_file(data, bytes);
    long live = trii_alloc_live();
    trii_conf *root = NULL;
    trii_engine_config c;
    tri_status status = trii_conf_parse("fuzz", (const char *)data, bytes, &root);
    int n_lines = 1;

    for (size_t i = 0; i < bytes; i++)
        n_lines += data[i] == '\n';
    if (status == TRI_OK)
        check_tree(root, 1, n_lines);
    trii_conf_free(root);
    status = trii_engine_config_init(&c, path, world);
    trii_engine_config_fini(&c);
    assert_int_equal(trii_alloc_live(), live);
    if (status == TRI_OK) {
        status = trii_engine_config_check(&c, path);
        trii_engine_config_fini(&c);
        CHECK_OK(trii_engine_config_init(&c, path, world));
        check_taken(&c, world, status);
        trii_engine_config_fini(&c);
    } else {
        assert_true(status == TRI_ERR_FORMAT || status == TRI_ERR_INVALID_ARG ||
                    status == TRI_ERR_UNSUPPORTED);
        if (strstr(tri_last_error(), path) == NULL && strstr(tri_last_error(), "fuzz:") == NULL)
            fail_msg("no place: %s", tri_last_error());
    }
}

static const fuzz_target deepspeed_target = {.name = "deepspeed", .run = run_deepspeed};

/* --- the tcp engine's frames ---------------------------------------------- */

typedef struct frame_rank {
    tri_store *store;
    const uint8_t *data;
    size_t bytes;
    tri_status status;
    trii_thread thread;
} frame_rank;

/* Rank 1 joins as it should, then says what it likes, and leaves. */
static void rogue_main(void *arg)
{
    frame_rank *rank = arg;
    const tri_group_options options = {.engine = "tcp", .timeout_ms = 20000};
    tri_group *group = NULL;

    rank->status = tri_group_create(rank->store, 1, 2, &options, &group);
    if (rank->status == TRI_OK) {
        tcp_group *inside = group->self;
        int fd = inside->conns[0].fd;

        if (trii_socket_send_all(fd, rank->data, rank->bytes, trii_deadline_ms(20000)) != TRI_OK)
            rank->bytes = 0; /* rank 0 has hung up on us already */
        trii_socket_shutdown(fd);
    }
    tri_group_unref(group);
}

static void run_frames(const uint8_t *data, size_t bytes)
{
    const tri_group_options options = {.engine = "tcp", .timeout_ms = 20000};
    frame_rank rogue = {.data = data, .bytes = bytes};
    float message[16] = {0}, sum[16] = {0};
    tri_group *group = NULL;
    tri_work *work = NULL;
    tri_status status;

    CHECK_OK(tri_store_hash(&rogue.store));
    CHECK_OK(trii_thread_start(&rogue.thread, "rogue", rogue_main, &rogue));
    CHECK_OK(tri_group_create(rogue.store, 0, 2, &options, &group));
    /* the calls must end, and not by their deadline: with what was sent, or with an error */
    status = tri_recv(group, message, 16, TRI_DTYPE_F32, 1, 0, &work);
    if (status == TRI_OK)
        status = tri_all_reduce(group, sum, sum, 16, TRI_DTYPE_F32, TRI_REDOP_SUM, NULL);
    assert_true(status != TRI_ERR_TIMEOUT && status != TRI_INPROGRESS);
    if (work != NULL) {
        status = tri_work_wait(work, 20000);
        assert_true(status != TRI_ERR_TIMEOUT && status != TRI_INPROGRESS);
    }
    tri_work_destroy(work);
    tri_group_unref(group);
    trii_thread_join(&rogue.thread);
    CHECK_OK(rogue.status);
    tri_store_unref(rogue.store);
}

static const fuzz_target frames_target = {.name = "tcp_frames", .begin = quiet, .run = run_frames};

#endif
