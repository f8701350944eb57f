/*
 * flight_recorder.h - the last operations of each rank in a file mapping that survives
 * kill -9. Its reader (trireme why) includes this header for the format.
 *
 * File TRI_RUN_DIR/rank-N.rec, in the byte order of the machine, written by rank N only:
 *
 *   offset size  header
 *        0    8  magic "TRIREC1\0"
 *        8    4  rank
 *       12    4  size of the first group
 *       16    4  process id
 *       20    4  number of records in the ring, n
 *       24    8  records begun so far, k: record j (from 1) is at index (j - 1) mod n
 *       32    8  ticks of the processor's counter when the file was made
 *       40    8  monotonic clock then, ns
 *       48    8  wall clock then, ns since 1970
 *       56    8  ticks per second, to a thousandth: over a long time a reader on the same host
 *                knows better, from the two clocks above and now
 *       64   64  zero
 *      128       n records, then the file table
 *
 *   offset size  record
 *        0    8  j, its number; 0 = never used. Written last
 *        8    8  ticks when the call began
 *       16    8  number of the call in its group (send, recv: in its pair)
 *       24    8  elements
 *       32    4  line of the call in the program
 *       36    4  root or peer
 *       40    4  tag
 *       44    2  group, counted from 1 in its process
 *       46    2  index into the file table, 0xffff = unknown
 *       48    1  kind (trii_kind)
 *       49    1  dtype
 *       50    1  reduction
 *       51    1  state: 1 running, 2 done, 3 failed
 *       52    4  status, if it failed
 *       56    8  zero
 *
 *   file table: TRII_RECORD_FILES entries of TRII_RECORD_FILE_BYTES, zero-terminated ends of
 *   source file names.
 */
#ifndef TRII_FLIGHT_RECORDER_H
#define TRII_FLIGHT_RECORDER_H

#include <stdatomic.h>

#include "group/engine.h"

#define TRII_RECORDS 1024 /* few enough to stay in the cache */
#define TRII_RECORD_FILES 64
#define TRII_RECORD_FILE_BYTES 64
#define TRII_RECORD_MAGIC "TRIREC1"

enum { TRII_RECORD_RUNNING = 1, TRII_RECORD_DONE = 2, TRII_RECORD_FAILED = 3 };

typedef struct trii_record {
    _Atomic uint64_t number;
    uint64_t ticks;
    uint64_t seq;
    uint64_t count;
    int32_t line;
    int32_t root;
    int32_t tag;
    uint16_t group;
    uint16_t file;
    uint8_t kind;
    uint8_t dtype;
    uint8_t op;
    uint8_t state;
    int32_t status;
    uint64_t zero;
} trii_record;

typedef struct trii_record_file {
    char magic[8];
    int32_t rank;
    int32_t size;
    int32_t pid;
    uint32_t n_records;
    _Atomic uint64_t begun;
    uint64_t ticks;
    int64_t monotonic_ns;
    int64_t wall_ns;
    uint64_t ticks_per_s;
    uint64_t zero[8];
    trii_record records[TRII_RECORDS];
    char files[TRII_RECORD_FILES][TRII_RECORD_FILE_BYTES];
} trii_record_file;

_Static_assert(sizeof(trii_record) == 64, "a record is a line");
_Static_assert(offsetof(trii_record_file, records) == 128, "the header is two lines");

typedef struct trii_recorder trii_recorder;

/* The recorder of a rank of this process; groups of one rank share it. NULL without
 * TRI_RUN_DIR, and where the file cannot be made (logged: it must not stop a job). */
trii_recorder *trii_recorder_open(int rank, int size);
void trii_recorder_close(trii_recorder *recorder); /* NULL allowed; the file stays */
/* Number for the records of one more group. */
uint16_t trii_recorder_group(trii_recorder *recorder);
/* Both together about 15 ns. Any thread. Returns the record's number; its end is dropped if the
 * ring has gone round since. */
uint64_t trii_recorder_begin(trii_recorder *recorder, const trii_collective *call, uint16_t group);
void trii_recorder_end(trii_recorder *recorder, uint64_t number, tri_status status);

#endif
