/*
 * devices.h - how many cores and GPUs the workers may use, without loading a driver.
 */
#ifndef TRII_LAUNCH_DEVICES_H
#define TRII_LAUNCH_DEVICES_H

/* Cores that this process, and so its workers, may run on, no more than the quota of our control
 * group allows. */
int trii_launch_count_cores(void);
/* Entries of CUDA_VISIBLE_DEVICES, else the GPUs that the NVIDIA driver lists. */
int trii_launch_count_gpus(void);

#endif
