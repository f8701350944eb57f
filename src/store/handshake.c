/*
 * handshake.c - see handshake.h. Called by both ends of every connection of a job: the TCP store
 * (tcp_open.c, tcp_server.c), the tcp engine, and agents among each other (launch/peers). The only
 * file that knows libsodium, which it loads when a key is used.
 */
/* build: leaf */
#include "store/handshake.h"

#include <string.h>

#include "base/err.h"
#include "base/param.h"
#include "os/clock.h"
#include "os/library.h"
#include "os/random.h"
#include "os/secret.h"
#include "os/socket.h"
#include "os/thread.h"

#define MAX_FILE 4096

static const unsigned char magic[8] = {'T', 'R', 'I', 'K', 'E', 'Y', '1', '\n'};

/* --- libsodium ------------------------------------------------------------ */

/* The three functions that we use of it. */
static struct {
    int (*init)(void);
    int (*hash)(unsigned char *out, size_t out_bytes, const unsigned char *in,
                unsigned long long in_bytes, const unsigned char *key, size_t key_bytes);
    int (*differ)(const void *a, const void *b, size_t bytes);
} sodium;

static trii_once sodium_once = TRII_ONCE_INITIALIZER;
static bool sodium_is_there;

static bool find(void *library, const char *name, void *function)
{
    void *address = trii_library_symbol(library, name);

    memcpy(function, &address, sizeof(address)); /* C has no cast from data to functions */
    return address != NULL;
}

static void load_sodium(void)
{
    static const char *const names[] = {"libsodium.so.23", "libsodium.so.26", "libsodium.so", NULL};
    void *library = trii_library_open(names);

    sodium_is_there = library != NULL && find(library, "sodium_init", &sodium.init) &&
                      find(library, "crypto_generichash", &sodium.hash) &&
                      find(library, "sodium_memcmp", &sodium.differ) && sodium.init() >= 0;
}

/* --- the key -------------------------------------------------------------- */

tri_status trii_job_key_load(trii_job_key *key_out)
{
    static const char label[] = "trireme job key";
    const char *path = trii_param_text(TRII_PARAM_JOB_KEY_FILE);
    unsigned char text[MAX_FILE];
    trii_job_key key = {.set = true};
    size_t bytes = 0;
    tri_status status;

    if (path == NULL) {
        *key_out = (trii_job_key){0};
        return TRI_OK;
    }
    trii_once_run(&sodium_once, load_sodium);
    if (!sodium_is_there)
        return TRII_FAIL(TRI_ERR_UNSUPPORTED,
                         "TRI_JOB_KEY_FILE is set, but libsodium, which proves the key, cannot be "
                         "loaded (Debian: libsodium23)");
    status = trii_secret_read(path, text, sizeof(text), &bytes);
    if (status != TRI_OK)
        return TRII_FAIL_CTX(status, "TRI_JOB_KEY_FILE");
    while (bytes > 0 && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
        bytes--; /* of an editor */
    if (bytes < TRII_KEY_BYTES)
        status = TRII_FAIL(TRI_ERR_IO,
                           "TRI_JOB_KEY_FILE: %s has %zu bytes, at least %d (head -c 32 "
                           "/dev/urandom | base64)",
                           path, bytes, TRII_KEY_BYTES);
    else
        (void)sodium.hash(key.bytes, sizeof(key.bytes), text, bytes, (const unsigned char *)label,
                          sizeof(label)); /* fails only on wrong sizes */
    trii_secret_wipe(text, sizeof(text));
    if (status == TRI_OK)
        *key_out = key;
    trii_secret_wipe(&key, sizeof(key));
    return status;
}

static void prove(const trii_job_key *key, const char *side, const char *purpose,
                  const unsigned char client[32], const unsigned char server[32],
                  unsigned char proof_out[TRII_PROOF_BYTES])
{
    unsigned char text[16 + 16 + 64] = {0};

    snprintf((char *)text, 16, "trireme %s", side);
    snprintf((char *)text + 16, 16, "%s", purpose);
    memcpy(text + 32, client, 32);
    memcpy(text + 64, server, 32);
    (void)sodium.hash(proof_out, TRII_PROOF_BYTES, text, sizeof(text), key->bytes,
                      sizeof(key->bytes)); /* fails only on wrong sizes */
}

/* --- client --------------------------------------------------------------- */

tri_status trii_handshake_connect(int fd, const trii_job_key *key, const char *purpose,
                                  int64_t deadline_ns)
{
    unsigned char hello[TRII_HELLO_BYTES], answer[TRII_ANSWER_BYTES], proof[TRII_PROOF_BYTES];
    tri_status status;

    if (!key->set)
        return TRI_OK;
    memcpy(hello, magic, sizeof(magic));
    if (!trii_random_bytes(hello + 8, 32))
        return TRII_FAIL(TRI_ERR_IO, "the system's random numbers are not available");
    status = trii_socket_send_all(fd, hello, sizeof(hello), deadline_ns);
    if (status == TRI_OK)
        status = trii_socket_recv_all(fd, answer, sizeof(answer), deadline_ns);
    if (status == TRI_END)
        return TRII_FAIL(status, "the peer closed the connection instead of proving the job key: "
                                 "it has no key, or another");
    if (status != TRI_OK)
        return status;
    if (memcmp(answer, magic, sizeof(magic)) != 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "the other end has no job key");
    prove(key, "server", purpose, hello + 8, answer + 8, proof);
    if (sodium.differ(proof, answer + 40, sizeof(proof)) != 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "the other end has another job key");
    prove(key, "client", purpose, hello + 8, answer + 8, proof);
    return trii_socket_send_all(fd, proof, sizeof(proof), deadline_ns);
}

/* --- server --------------------------------------------------------------- */

bool trii_handshake_is_other(const trii_handshake *shake, char first)
{
    return !shake->answered && shake->got == 0 && first != (char)magic[0];
}

tri_status trii_handshake_feed(trii_handshake *shake, const trii_job_key *key, const char *purpose,
                               const void *data, size_t bytes, size_t *used_out,
                               unsigned char answer_out[TRII_ANSWER_BYTES],
                               size_t *answer_bytes_out)
{
    size_t want = shake->answered ? TRII_PROOF_BYTES : TRII_HELLO_BYTES;
    size_t n = want - shake->got < bytes ? want - shake->got : bytes;
    size_t known;
    unsigned char proof[TRII_PROOF_BYTES];

    *used_out = *answer_bytes_out = 0;
    if (!key->set || shake->proved)
        return TRI_OK;
    memcpy(shake->in + shake->got, data, n);
    shake->got += n;
    *used_out = n;
    known = shake->got < sizeof(magic) ? shake->got : sizeof(magic);
    if (!shake->answered && memcmp(shake->in, magic, known) != 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "it does not prove a job key");
    if (shake->got < want)
        return TRI_INPROGRESS;
    shake->got = 0;
    if (!shake->answered) {
        memcpy(shake->client, shake->in + 8, 32);
        if (!trii_random_bytes(shake->server, 32))
            return TRII_FAIL(TRI_ERR_IO, "the system's random numbers are not available");
        memcpy(answer_out, magic, sizeof(magic));
        memcpy(answer_out + 8, shake->server, 32);
        prove(key, "server", purpose, shake->client, shake->server, answer_out + 40);
        *answer_bytes_out = TRII_ANSWER_BYTES;
        shake->answered = true;
        return TRI_INPROGRESS;
    }
    prove(key, "client", purpose, shake->client, shake->server, proof);
    if (sodium.differ(proof, shake->in, sizeof(proof)) != 0)
        return TRII_FAIL(TRI_ERR_FORMAT, "it has another job key");
    shake->proved = true;
    return TRI_OK;
}
