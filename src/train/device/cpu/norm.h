/*
 * norm.h - batch normalisation and what is fused into its kernels: the addition and ReLU after it,
 * and before its gradient the ReLU's gradient.
 */
#ifndef TRII_CPU_NORM_H
#define TRII_CPU_NORM_H

#include "train/device/cpu/cpu_ops.h"

/* See trii_device_ops. */
bool trii_cpu_norm_absorbs(const trii_ir *ir, const trii_group *group, const trii_ir_node *node);
bool trii_cpu_norm_absorbs_before(trii_ir *ir, trii_ir_node *before, const trii_ir_node *node);

#endif
