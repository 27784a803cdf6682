// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/engine.hpp"
#include "vocabpipe/context.hpp"

namespace vocabpipe::kernels::cuda {

/// Products that each fill a part of the GPU, on up to kStreams streams beside the lane's. They
/// wait for what the lane's stream held when this was made, and it waits for them when this goes.
/// Each stream has its part of the lane's workspace. Which stream a product runs on decides no bit.
/// The lane's queue must not be used meanwhile.
class SideBySide {
public:
    static constexpr int kStreams = 4;

    /// For the operators of `ctx`, up to `streams` at once; one is the lane's own. Throws
    /// DeviceError.
    SideBySide(Context& ctx, int streams);
    /// Also after an error: what has been enqueued may still use memory that only the lane's stream
    /// is waited for.
    ~SideBySide();
    SideBySide(const SideBySide&) = delete;
    SideBySide& operator=(const SideBySide&) = delete;

    /// The following operators of the context go to the next of the streams.
    void next();

private:
    Engine& engine_;
    Engine::Queue lane_;
    int streams_;
    int used_ = 0;
};

}  // namespace vocabpipe::kernels::cuda
