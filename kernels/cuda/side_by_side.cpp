// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/side_by_side.hpp"

#include <algorithm>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/engine_state.hpp"

namespace vocabpipe::kernels::cuda {

SideBySide::SideBySide(Context& ctx, int streams)
    : engine_(ctx.cuda()), lane_(engine_.queue()), streams_(std::clamp(streams, 1, kStreams)) {
    if (streams_ == 1) return;
    auto& sides = engine_.state().sides;
    if (sides.empty()) {
        int priority = 0;  // the lane's: work that other ranks await runs first
        check(cudaStreamGetPriority(lane_.stream, &priority), "cudaStreamGetPriority");
        for (int i = 0; i < kStreams; ++i) {
            sides.push_back({make_stream(priority), make_event(Timing::no)});
        }
        engine_.state().sides_begin = make_event(Timing::no);
    }
    check(cudaEventRecord(engine_.state().sides_begin.get(), lane_.stream), "cudaEventRecord");
}

SideBySide::~SideBySide() {
    for (int i = 0; i < std::min(used_, streams_); ++i) {
        const SideStream& side = engine_.state().sides[static_cast<size_t>(i)];
        // An error here is the context's, and the lane's next call reports it.
        (void)cudaEventRecord(side.end.get(), side.stream.get());
        (void)cudaStreamWaitEvent(lane_.stream, side.end.get(), 0);
    }
    engine_.use(lane_);
}

void SideBySide::next() {
    if (streams_ == 1) {
        Engine::Queue queue = lane_;
        queue.rows_vary = true;
        engine_.use(queue);
        return;
    }
    const int at = used_ % streams_;
    const cudaStream_t stream = engine_.state().sides[static_cast<size_t>(at)].stream.get();
    if (used_ < streams_) {
        check(cudaStreamWaitEvent(stream, engine_.state().sides_begin.get(), 0),
              "cudaStreamWaitEvent");
    }
    ++used_;
    constexpr size_t kAlignment = 256;
    const size_t part = lane_.workspace.size() / kStreams / kAlignment * kAlignment;
    engine_.use({.stream = stream,
                 .workspace = lane_.workspace.subspan(static_cast<size_t>(at) * part, part),
                 .beside = streams_,
                 .rows_vary = true});
}

}  // namespace vocabpipe::kernels::cuda
