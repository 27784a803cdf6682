// SPDX-License-Identifier: Apache-2.0
// CUDA handles of kernels/cuda that the runtime uses.
#pragma once

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/handles.hpp"

namespace vocabpipe::cuda {

using kernels::cuda::check;
using kernels::cuda::Event;
using kernels::cuda::has_ended;
using kernels::cuda::make_event;
using kernels::cuda::make_stream;
using kernels::cuda::Stream;
using kernels::cuda::synchronize;
using kernels::cuda::Timing;

}  // namespace vocabpipe::cuda
