/*
 * nan_words.h - how a failure line begins that tells of a NaN. train/graph/run/nan_check.c writes
 * it; trirun looks for it in what workers print, and tri_spawn in what they report, to tell the
 * rank that made the first NaN from those that got it.
 */
#ifndef TRII_NAN_WORDS_H
#define TRII_NAN_WORDS_H

#define TRII_NAN_MADE "NaN made by "
#define TRII_NAN_RECEIVED "NaN came in through "

#endif
