/*
 * self.h - see self.c.
 */
#ifndef TRII_SELF_H
#define TRII_SELF_H

#include "comm/group/engine.h"

extern const trii_engine trii_engine_self;

#endif
