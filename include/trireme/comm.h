/*
 * comm.h - all of libtrireme-comm: process groups for programs with plain buffers.
 */
#ifndef TRIREME_COMM_H
#define TRIREME_COMM_H

#include <trireme/device_queue.h>
#include <trireme/group.h>
#include <trireme/launch.h>
#include <trireme/reducer.h>
#include <trireme/rpc.h>
#include <trireme/status.h>
#include <trireme/store.h>
#include <trireme/types.h>

#endif
