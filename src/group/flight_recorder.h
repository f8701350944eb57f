/*
 * flight_recorder.h - the flight recorder: the last operations of each rank in a file mapping that
 * survives kill -9. Its reader (trireme why) includes this header for the format.
 *
 * File TRI_RUN_DIR/rank-N.rec, little-endian, written by rank N only, TRII_RECORD_FILE_BYTES:
 *
 *   offset size  what
 *        0    8  magic "TRIREC1\0"
 *        8    4  rank                     12  4  group size when it was opened
 *       16    4  process id               20  4  number of records in the ring (n)
 *       24    8  records begun so far (k): the newest is at index (k - 1) mod n
 *       32    8  ticks of record 0's clock at opening
 *       40    8  the monotonic clock then, ns
 *       48    8  ticks per second
 *       56    8  wall clock at opening, ns since 1970
 *       64   64  zero
 *      128  64n  records
 *
 *   record:
 *        0    8  ticks when the call began
 *        8    8  sequence number of the call in its group
 *       16    8  elements
 *       24    8  address of the file name in the writer (its id; texts follow the ring)
 *       32    4  line
 *       36    2  root or peer             38  1  kind (trii_kind)
 *       39    1  dtype                    40  1  reduction
 *       41    1  state: 1 running, 2 done, 3 failed
 *       42    2  id of the group          44  4  index of the source file in the file table,
 *                                                or 0xffffffff
 *       48    8  ticks when it ended, 0 if it did not or was done at once
 *       56    8  zero
 *
 *   file table after the ring: TRII_RECORD_FILES entries of 64 bytes, zero-terminated ends of
 *   source file names.
 */
#ifndef TRII_FLIGHT_RECORDER_H
#define TRII_FLIGHT_RECORDER_H

#include <stdint.h>

#include <trireme/status.h>

typedef struct trii_recorder trii_recorder;

#endif
