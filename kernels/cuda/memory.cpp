// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

#include <cuda_runtime.h>

#include "kernels/check.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/engine_state.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

/// Waits for enqueued work by polling, with the step's deadlines: the second poll ends when
/// everything before the first has run, or throws because a peer does not arrive. Between steps,
/// where nothing polls, it does not wait.
void await_enqueued(Context& ctx) {
    ctx.poll();
    ctx.poll();
}

}  // namespace

void set_zero(Context& ctx, std::span<std::byte> bytes) {
    if (bytes.empty()) return;
    check(cudaMemsetAsync(bytes.data(), 0, bytes.size(), ctx.cuda().stream()), "cudaMemsetAsync");
}

void copy(Context& ctx, std::span<const std::byte> from, std::span<std::byte> to) {
    require(from.size() == to.size(), "source and destination of one length");
    if (from.empty()) return;
    check(cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyDeviceToDevice,
                          ctx.cuda().stream()),
          "cudaMemcpyAsync");
}

void read_to_host(Context& ctx, std::span<const int32_t> from, std::span<int32_t> to) {
    require(from.size() == to.size(), "source and destination of one length");
    if (from.empty()) return;
    const cudaStream_t stream = ctx.cuda().stream();
    await_enqueued(ctx);  // first: the copy may wait, and `to` may be freed if this throws
    const cudaError_t status =
        cudaMemcpyAsync(to.data(), from.data(), from.size_bytes(), cudaMemcpyDeviceToHost, stream);
    synchronize(stream);
    check(status, "cudaMemcpyAsync");
}

void write_from_host(Context& ctx, std::span<const int32_t> from, std::span<int32_t> to) {
    require(from.size() <= to.size(), "room for what is written");
    if (from.empty()) return;
    Staging& staging = ctx.cuda().state().staging;
    if (staging.would_wait()) await_enqueued(ctx);
    staging.write(std::as_bytes(from), std::as_writable_bytes(to), ctx.cuda().stream());
}

}  // namespace vocabpipe::kernels::cuda
