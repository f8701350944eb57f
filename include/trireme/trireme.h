/*
 * trireme.h - all of libtrireme and libtrireme-comm; models.h, of libtrireme-models, is apart.
 */
#ifndef TRIREME_TRIREME_H
#define TRIREME_TRIREME_H

#include <trireme/checkpoint.h>
#include <trireme/comm.h>
#include <trireme/context.h>
#include <trireme/data.h>
#include <trireme/data_parallel.h>
#include <trireme/deepspeed.h>
#include <trireme/device.h>
#include <trireme/dist.h>
#include <trireme/image.h>
#include <trireme/memory_stats.h>
#include <trireme/mesh.h>
#include <trireme/nn.h>
#include <trireme/ops.h>
#include <trireme/optim.h>
#include <trireme/parallel.h>
#include <trireme/parallelize.h>
#include <trireme/pipeline.h>
#include <trireme/records.h>
#include <trireme/remote.h>
#include <trireme/sync_batch_norm.h>
#include <trireme/tensor.h>
#include <trireme/torch_file.h>
#include <trireme/trainer.h>
#include <trireme/zero.h>

#endif
