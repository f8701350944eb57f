/*
 * rpc_record.h - the calls that a worker waits for, in a file that survives it. Its reader (trireme
 * why) includes this header for the format.
 *
 * File TRI_RUN_DIR/rpc-NAME.rec, in the byte order of the machine; its writer holds a lock on it
 * (os/liveness.h) as long as it lives:
 *
 *   offset size  header
 *        0    8  magic "TRIRPC1\0"
 *        8    4  process id
 *       12    4  rank
 *       16   64  name of the worker
 *       80    8  calls that found no place
 *       88    8  zero
 *       96       RPC_RECORDS records
 *
 *   offset size  record
 *        0    8  chain of the call; 0 = free. Written last
 *        8    8  monotonic clock when it began, ns
 *       16    4  state: 1 waits here (for credits, a promise, a connection), 2 was sent, 3 it is a
 *                request, which a thread runs while it waits for a call
 *       20    4  line of the call in the program, 0 = unknown
 *       24   40  function
 *       64   40  worker, or what the reference was found by; of a request, its caller
 *      104   40  end of the source file's name
 */
#ifndef TRII_RPC_RECORD_H
#define TRII_RPC_RECORD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define RPC_RECORD_MAGIC "TRIRPC1"
#define RPC_RECORDS 256
enum { RPC_RECORD_WAITS = 1, RPC_RECORD_SENT = 2, RPC_RECORD_RUNS = 3 };

typedef struct rpc_record {
    _Atomic uint64_t chain;
    int64_t began_ns;
    atomic_int state;
    int32_t line;
    char function[40], to[40], file[40];
} rpc_record;

typedef struct rpc_record_file {
    char magic[8];
    int32_t pid, rank;
    char name[64];
    _Atomic uint64_t unlisted;
    uint64_t zero;
    rpc_record records[RPC_RECORDS];
} rpc_record_file;

_Static_assert(sizeof(rpc_record) == 144 && offsetof(rpc_record_file, records) == 96,
               "as it is drawn");

#endif
