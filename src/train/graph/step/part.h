/*
 * part.h - which action of a pipeline's schedule a node was recorded in, as one number: the plan
 * keeps the actions apart, and a trace shows them.
 *
 * Nodes of different actions are never fused: a kernel that adds what two micro-batches give would
 * run with the second of them, and keep what the first needs until then.
 */
#ifndef TRII_PART_H
#define TRII_PART_H

#include <stdbool.h>
#include <stdint.h>

/* In this order: see parallel/pipeline/pipeline_schedule.h. */
#define TRII_PART_KINDS "FBIW"
#define TRII_PART_MOST_STAGES 1024
#define TRII_PART_MOST_MICROBATCHES 65536

/* 0 is no action. */
static inline int32_t trii_part_number(int kind, int stage, int microbatch)
{
    return 1 + (microbatch << 12 | stage << 2 | kind);
}

static inline int trii_part_kind(int32_t part)
{
    return (part - 1) & 3;
}

static inline bool trii_part_is_forward(int32_t part)
{
    return TRII_PART_KINDS[trii_part_kind(part)] == 'F';
}

static inline int trii_part_stage(int32_t part)
{
    return (part - 1) >> 2 & (TRII_PART_MOST_STAGES - 1);
}

static inline int trii_part_microbatch(int32_t part)
{
    return (part - 1) >> 12;
}

#endif
