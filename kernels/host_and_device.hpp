// SPDX-License-Identifier: Apache-2.0
// VOCABPIPE_HOST_AND_DEVICE: before functions that host code and kernels of GPUs share.
#pragma once

#ifdef __CUDACC__
#define VOCABPIPE_HOST_AND_DEVICE __host__ __device__
#else
#define VOCABPIPE_HOST_AND_DEVICE
#endif
