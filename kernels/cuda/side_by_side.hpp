// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/engine.hpp"
#include "vocabpipe/context.hpp"

namespace vocabpipe::kernels::cuda {

/// Runs products that each fill a part of the GPU on up to kStreams further streams. These wait for
/// what the lane's stream holds at construction; the lane's stream waits for them at destruction.
/// Each stream has its part of the lane's workspace. Bits do not depend on which stream runs a
/// product. Do not use the lane's queue meanwhile.
class SideBySide {
public:
    static constexpr int kStreams = 4;

    /// For the operators of `ctx`, on `streams` streams, at most kStreams; 1: on the lane's own.
    /// Throws DeviceError.
    SideBySide(Context& ctx, int streams);
    /// Waits after an error, too: what has been enqueued may still use memory, and the memory's
    /// owner waits only for the lane's stream.
    ~SideBySide();
    SideBySide(const SideBySide&) = delete;
    SideBySide& operator=(const SideBySide&) = delete;

    /// Sends the following operators of the context to the next stream.
    void next();

private:
    Engine& engine_;
    Engine::Queue lane_;
    int streams_;
    int used_ = 0;
};

}  // namespace vocabpipe::kernels::cuda
