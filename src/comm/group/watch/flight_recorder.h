/*
 * flight_recorder.h - the last operations of each rank in a file mapping that survives
 * kill -9. Its reader (trireme why) includes this header for the format.
 *
 * File TRI_RUN_DIR/rank-N.rec, in the byte order of the machine, written by rank N only, which
 * holds a lock on it (os/liveness.h) as long as it lives. While another process that lives has that
 * name, as a worker whose program starts another one, it is rank-N.PID.rec:
 *
 *   offset size  header
 *        0    8  magic "TRIREC7\0"
 *        8    4  rank
 *       12    4  size of the first group
 *       16    4  process id
 *       20    4  number of records in the ring, n
 *       24    8  the newest record's number, k: record j (from 1) is at index (j - 1) mod n
 *       32    8  monotonic clock when the file was made, ns
 *       40    8  wall clock then, ns since 1970
 *       48    4  state: 1 in use, 2 left in order
 *       52    4  status of the first failure of a group, 0 = none; written after its text
 *       56    8  the boot of its system (os/unix.h), by which others know its monotonic clock
 *       64   64  name of the host
 *      128   64  the program and its arguments, as many as fit
 *      192  424  the first failure's line
 *      616    4  number of the group that failed, 0 = unknown
 *      620    4  groups that have not been left and found no place in the table
 *      624    8  numbers that were passed over, since the record at their place still runs
 *      632    8  records that were overwritten although they ran, since many in a row did
 *      640       table of groups, n records, table of source files
 *
 *   offset size  group (TRII_RECORD_GROUPS of them; number 0 = not used)
 *        0    8  the same on all of its ranks, and another one for other groups; 1 = the world,
 *                 while its ranks still meet in tri_init
 *        8    4  our rank in it
 *       12    4  its size
 *       16    2  its number, counted from 1 in its process; written last
 *       18    1  state: 1 forming, 2 formed, 3 left
 *       19    1  zero
 *       20   12  engine, once it is formed
 *       32   32  name
 *       64    8  monotonic clock when it began to form, ns
 *       72    4  its epoch (tri_group_epoch); each has an entry and an id of its own
 *       76    4  zero
 *
 *   offset size  record
 *        0    8  j, its number; 0 = never used. Written last
 *        8    8  monotonic clock when the call began, ns, to a tick of the kernel (4 ms)
 *       16    8  number of the call in its group (send, recv: in its pair)
 *       24    8  elements
 *       32    4  line of the call in the program
 *       36    4  root or peer
 *       40    4  tag
 *       44    2  number of its group, 0x8000 more if that has no place in the table
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

#include "comm/group/engine.h"

#define TRII_RECORDS 1024      /* few enough to stay in the cache */
#define TRII_RECORDS_PASSED 64 /* so many records that run are passed over in a row */
#define TRII_RECORD_GROUPS 64
#define TRII_RECORD_UNLISTED 0x8000 /* in the number of a group that has no place in the table */
#define TRII_RECORD_FILES 64
#define TRII_RECORD_FILE_BYTES 64
#define TRII_RECORD_MAGIC "TRIREC7"
#define TRII_RECORD_FAILURE_BYTES 424
#define TRII_RECORD_MEETING 1 /* the id of a world whose ranks still meet */

enum { TRII_RECORD_RUNNING = 1, TRII_RECORD_DONE = 2, TRII_RECORD_FAILED = 3 };
enum { TRII_RECORD_GROUP_FORMING = 1, TRII_RECORD_GROUP_FORMED = 2, TRII_RECORD_GROUP_LEFT = 3 };
enum { TRII_RECORD_FILE_USED = 1, TRII_RECORD_FILE_LEFT = 2 };

typedef struct trii_record_group {
    uint64_t id;
    int32_t rank;
    int32_t size;
    _Atomic uint16_t number;
    uint8_t state;
    uint8_t zero;
    char engine[12];
    char name[32];
    int64_t since_ns;
    int32_t epoch;
    int32_t zero_too;
} trii_record_group;

typedef struct trii_record {
    _Atomic uint64_t number;
    int64_t began_ns;
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
    _Atomic uint8_t state;
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
    int64_t monotonic_ns;
    int64_t wall_ns;
    int32_t state;
    atomic_int failed;
    uint64_t boot;
    char host[64];
    char program[64];
    char failure[TRII_RECORD_FAILURE_BYTES];
    uint32_t failed_group;
    _Atomic uint32_t unlisted;
    _Atomic uint64_t passed;
    _Atomic uint64_t lost;
    trii_record_group groups[TRII_RECORD_GROUPS];
    trii_record records[TRII_RECORDS];
    char files[TRII_RECORD_FILES][TRII_RECORD_FILE_BYTES];
} trii_record_file;

_Static_assert(sizeof(trii_record) == 64, "a record is a line");
_Static_assert(offsetof(trii_record_file, groups) == 640, "the header is ten lines");
_Static_assert(offsetof(trii_record_file, records) % 64 == 0, "records begin with a line");

typedef struct trii_recorder trii_recorder;

/* The recorder of a rank of this process; groups of one rank share it. NULL without
 * TRI_RUN_DIR, and where the file cannot be made (logged: it must not stop a job). */
trii_recorder *trii_recorder_open(int rank, int size);
void trii_recorder_close(trii_recorder *recorder); /* NULL allowed; the file stays */
/* One more group, which is forming: a number for its records. `facts` gives id, rank, size and
 * name. A world whose ranks were still meeting becomes that group. */
uint16_t trii_recorder_group_forms(trii_recorder *recorder, const trii_record_group *facts);
/* It is formed, with an engine, or left (NULL: the engine stays): that it is left is said once. */
void trii_recorder_group_state(trii_recorder *recorder, uint16_t number, int state,
                               const char *engine);
/* The line of a group's failure; the first one of the file stays. */
void trii_recorder_failed(trii_recorder *recorder, uint16_t group, tri_status status,
                          const char *text);
/* Both together about 10 ns. Any thread. Returns the record's number. One that runs is not
 * overwritten, unless many in a row run: then its end is dropped. */
uint64_t trii_recorder_begin(trii_recorder *recorder, const trii_collective *call, uint16_t group);
void trii_recorder_end(trii_recorder *recorder, uint64_t number, tri_status status);

#endif
