/*
 * rpc_meeting.h - how workers find each other: their records in the store, the meeting of a closed
 * set, connections.
 */
#ifndef TRII_RPC_MEETING_H
#define TRII_RPC_MEETING_H

#include "comm/rpc/rpc_internal.h"

/* --- rpc_names.c: the store ----------------------------------------------- */

/* Ports, and the record that tells of them. */
tri_status rpc_open_ports(tri_rpc *rpc, int64_t deadline_ns) TRI_MUST_CHECK;
tri_status rpc_publish(tri_rpc *rpc) TRI_MUST_CHECK;
/* It leaves. */
tri_status rpc_unpublish(tri_rpc *rpc, int64_t deadline_ns);
/* Of an open set: one of its names, from 1, "" if it is not there, and how many there have been. */
tri_status rpc_read_member(tri_rpc *rpc, int64_t number, int64_t deadline_ns,
                           char name_out[RPC_NAME], int64_t *n_out) TRI_MUST_CHECK;
/* Blocks: the names of all of a closed set, and their records. */
tri_status rpc_meet_all(tri_rpc *rpc, int64_t deadline_ns, char ***records_out) TRI_MUST_CHECK;
void rpc_free_records(const tri_rpc *rpc, char **records);
/* The record of the worker of that name. wait: until it is there. NOT_FOUND. */
tri_status rpc_read_record(tri_rpc *rpc, const char *name, bool wait, int64_t deadline_ns,
                           char record_out[640]) TRI_MUST_CHECK;

struct rpc_address {
    uint64_t incarnation;
    int pid, rank, port;
    char host[64], boot[40], unix_name[64];
    unsigned char token[RPC_TOKEN];
    char hosts[512]; /* separated by commas */
};
tri_status rpc_parse_record(const char *record, rpc_address *address_out) TRI_MUST_CHECK;

/* --- rpc_meet.c: a closed set comes together ------------------------------ */

#define RPC_MEET_NET "net"
#define RPC_MEET_NAME "name"
tri_status rpc_meet_begin(tri_rpc *rpc) TRI_MUST_CHECK;
/* Blocks: says this rank's word of a kind and waits for those of all, words[size], each to be freed
 * by tri_store_free. TIMEOUT names who is missing, STATE who has failed. */
tri_status rpc_meet(tri_rpc *rpc, const char *kind, const char *word, int64_t deadline_ns,
                    char **words) TRI_MUST_CHECK;
/* It leaves, and reads nothing more; the last of them removes what they have said. */
void rpc_meet_end(tri_rpc *rpc);
/* This rank will not come: the others hear the error line, which stays. */
void rpc_meet_fail(tri_rpc *rpc, tri_status why);

/* --- rpc_connect.c, rpc_accept.c ------------------------------------------ */

typedef struct rpc_hello {
    uint32_t magic;
    uint32_t zero;
    uint64_t from, to;              /* incarnations */
    unsigned char token[RPC_TOKEN]; /* of the receiver */
    uint64_t window_bytes;
    int32_t window_calls;
    int32_t pid;
    int32_t has_rings;
    int32_t verdict; /* of the answer */
    uint32_t ended;  /* connections that the sender has had */
    uint32_t probes; /* it only wants to know who is there */
    char host[64];
    char name[RPC_NAME];
} rpc_hello;
enum { RPC_WELCOME, RPC_BUSY, RPC_HERE };
#define RPC_HELLO_MAGIC 0x54525048u

void rpc_fill_hello(const tri_rpc *rpc, rpc_hello *hello_out);
/* Locked: what a hello says of the peer. */
void rpc_peer_meet(rpc_peer *peer, const rpc_hello *hello);
/* Blocks until the peer is UP. Not locked. PEER_LOST, TIMEOUT. */
tri_status rpc_connect(rpc_peer *peer, int64_t deadline_ns) TRI_MUST_CHECK;
/* Whether the worker of that address is still there, by tcp. */
bool rpc_probe(tri_rpc *rpc, const rpc_address *address, int64_t deadline_ns);
/* Locked; by a thread of its own. */
void rpc_connect_later(rpc_peer *peer);
/* Blocks, not locked: each of a closed set is connected, or lost; one that does not answer is left
 * to a thread. */
void rpc_connect_all(tri_rpc *rpc, char *const *records, int64_t deadline_ns);
/* Until when one of them is waited for at once. */
int64_t rpc_member_deadline(int64_t deadline_ns);
/* Not locked. It has not answered until then, and may be stopped: a thread connects it when it goes
 * on, and tri_rpc_join waits for it. */
void rpc_meet_later(tri_rpc *rpc, const char *name, const char *record);
/* Locked: it has come before, and is not forgotten until then. */
void rpc_peer_is_early(rpc_peer *peer);
void rpc_end_meeting(tri_rpc *rpc); /* not locked */
/* Without the lock: the loop watches it from now on. */
tri_status rpc_peer_watch(rpc_peer *peer) TRI_MUST_CHECK;
tri_status rpc_listen(tri_rpc *rpc) TRI_MUST_CHECK;
void rpc_unlisten(tri_rpc *rpc);

#endif
