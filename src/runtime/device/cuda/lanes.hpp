// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/engine.hpp"
#include "src/runtime/device/cuda/handles.hpp"
#include "src/runtime/lanes.hpp"

#include <nvtx3/nvToolsExt.h>
#include <array>
#include <string>
#include <vector>

namespace vocabpipe::cuda {

/// A stream per lane. Passes have the lowest priority: a ready message or combine_softmax goes
/// first, because other ranks wait for it and it takes few multiprocessors.
struct LaneStreams {
    LaneStreams();
    [[nodiscard]] cudaStream_t of(Lane lane) const {
        return streams[static_cast<size_t>(lane)].get();
    }
    std::array<Stream, kLanes> streams;
};

/// Orders actions by events and takes their times from them. Each action is an NVTX range.
class CudaLanes final : public Lanes {
public:
    /// Operators between begin() and end() use the lane's entry of `queues`.
    CudaLanes(kernels::cuda::Engine& engine, const LaneStreams& streams,
              std::array<kernels::cuda::Engine::Queue, kLanes> queues);

    void load(const Program& program, ProgramId id) override;
    void begin_step(ProgramId id) override;
    void wait(Lane lane, uint32_t before) override;
    void mark_rows(Lane lane, uint32_t action, int piece) override;
    void wait_rows(Lane lane, uint32_t before, int piece) override;
    void begin(Lane lane, uint32_t action) override;
    void end(Lane lane, uint32_t action) override;
    void end_part() override;
    void begin_part() override { engine_.use(queues_[static_cast<size_t>(Lane::compute)]); }
    [[nodiscard]] bool has_room() override;
    [[nodiscard]] bool finished(uint32_t action) override;
    [[nodiscard]] int64_t moment(Lane lane) override;
    void read_times(std::span<Span> spans, std::vector<PieceWait>& waits) override;
    void drain() noexcept override;

private:
    struct Marks {
        Event begin, end;
        bool ended = false;
        nvtxRangeId_t range = 0;
    };
    struct RowMark {
        Event event;
        bool recorded = false;
    };
    kernels::cuda::Engine& engine_;
    const LaneStreams& streams_;
    std::array<kernels::cuda::Engine::Queue, kLanes> queues_;
    Event start_ = make_event(Timing::yes);
    int64_t start_ns_ = 0;                         ///< on the host's clock
    std::vector<Marks> marks_;                     ///< [action] of any program
    std::vector<std::vector<RowMark>> row_marks_;  ///< [action][piece] of any program
    std::vector<Event> moments_;                   ///< of this step, then unused ones
    size_t next_moment_ = 0;
    std::vector<std::vector<std::string>> names_;  ///< [id][action]
    ProgramId program_ = 0;                        ///< of the running step
    /// Ends of parts within passes. Three, because two are in use while the third is recorded.
    std::array<Event, 3> part_ends_{make_event(Timing::no), make_event(Timing::no),
                                    make_event(Timing::no)};
    size_t next_part_end_ = 0;
    cudaEvent_t last_end_ = nullptr;         ///< of the last part of a pass; none before the first
    cudaEvent_t end_before_last_ = nullptr;  ///< null also if it has happened
};

}  // namespace vocabpipe::cuda
