// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <stop_token>

/// What the libraries of the stand-in toolkit (cuBLASLt, NCCL) need of its streams.
namespace cuda_stand_in {

/// Appends work to the stream and returns at once, or when the stream is no longer full. The
/// stream's own OS thread runs it after all earlier work of that stream. Work may block (a
/// collective that waits for its peers): only this stream waits then. Stream 0 runs it on the
/// calling thread after the blocking streams have drained. Work that throws ends the process with a
/// message; an unknown stream does, too.
void enqueue(cudaStream_t stream, std::function<void()> work);

/// Requested when a test gives up on the stream (control.hpp, stop_streams()). Work that blocks
/// waits with this token, for example std::condition_variable_any::wait(lock, token, predicate),
/// and returns once it is requested.
[[nodiscard]] std::stop_token stop_token_of(cudaStream_t stream);

/// Whether the stream is full, so that enqueue() would block now.
[[nodiscard]] bool would_block(cudaStream_t stream);

/// The device that was current when the stream was created.
[[nodiscard]] int device_of(cudaStream_t stream);

}  // namespace cuda_stand_in
