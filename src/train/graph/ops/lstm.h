/*
 * lstm.h - the way through the time steps of a layer of an LSTM, for its kernels and its gradient.
 */
#ifndef TRII_LSTM_H
#define TRII_LSTM_H

#include "base/compiler.h"

/* Sizes of a layer, and the way through its time steps. */
typedef struct trii_lstm_sequence {
    int64_t steps, rows, hidden;
    bool reverse;
} trii_lstm_sequence;

/* What comes k-th. */
static inline int64_t trii_lstm_time(const trii_lstm_sequence *s, int64_t k)
{
    return s->reverse ? s->steps - 1 - k : k;
}

#endif
