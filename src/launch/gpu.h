/*
 * gpu.h - how many GPUs the workers may use, without loading a driver.
 */
#ifndef TRII_LAUNCH_GPU_H
#define TRII_LAUNCH_GPU_H

/* Entries of CUDA_VISIBLE_DEVICES, else the GPUs that the NVIDIA driver lists. */
int trii_launch_count_gpus(void);

#endif
