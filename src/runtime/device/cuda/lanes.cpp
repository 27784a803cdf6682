// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/device/cuda/lanes.hpp"

#include "src/runtime/wait.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe::cuda {

namespace {

/// Largest time between two events with nothing between them: guessed, four times their resolution.
constexpr int64_t kNothingNs = 2000;

}  // namespace

LaneStreams::LaneStreams() {
    int least = 0;
    int greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    for (size_t lane = 0; lane < streams.size(); ++lane) {
        streams[lane] = make_stream(static_cast<Lane>(lane) == Lane::compute ? least : greatest);
    }
}

CudaLanes::CudaLanes(kernels::cuda::Engine& engine, const LaneStreams& streams,
                     std::array<kernels::cuda::Engine::Queue, kLanes> queues)
    : engine_(engine), streams_(streams), queues_(queues) {}

void CudaLanes::load(const Program& program, ProgramId id) {
    if (id >= names_.size()) names_.resize(id + 1);
    names_[id].clear();
    for (const Action& action : program.actions) names_[id].push_back(program.name_of(action));
    while (marks_.size() < names_[id].size()) {
        marks_.push_back({make_event(Timing::yes), make_event(Timing::yes)});
    }
    size_t waits = 0;
    row_marks_.resize(marks_.size());
    for (const uint32_t streamed : program.streamed) {
        const Edge& edge = program.edges[streamed];
        const Action& after = program.actions[edge.after];
        const auto pieces =
            static_cast<size_t>(std::max(program.actions[edge.before].pieces, after.pieces));
        std::vector<RowMark>& marks = row_marks_[edge.before];
        while (marks.size() < pieces) marks.push_back({make_event(Timing::no)});
        if (after.what == Do::pass) waits += pieces;
    }
    while (moments_.size() < 2 * waits) moments_.push_back(make_event(Timing::yes));
}

void CudaLanes::begin_step(ProgramId id) {
    program_ = id;
    for (Marks& marks : marks_) marks.ended = false;
    for (std::vector<RowMark>& marks : row_marks_) {
        for (RowMark& mark : marks) mark.recorded = false;
    }
    next_moment_ = 0;
    last_end_ = end_before_last_ = nullptr;
    // No lane is busy now, so the event happens within microseconds of the host's clock.
    start_ns_ = now_ns();
    check(cudaEventRecord(start_.get(), streams_.of(Lane::compute)), "cudaEventRecord");
}

void CudaLanes::wait(Lane lane, uint32_t before) {
    check(cudaStreamWaitEvent(streams_.of(lane), marks_[before].end.get(), 0),
          "cudaStreamWaitEvent");
}

void CudaLanes::mark_rows(Lane lane, uint32_t action, int piece) {
    RowMark& mark = row_marks_[action][static_cast<size_t>(piece)];
    check(cudaEventRecord(mark.event.get(), streams_.of(lane)), "cudaEventRecord");
    mark.recorded = true;
}

/// A pass that makes several pieces at once marks only the last of them.
void CudaLanes::wait_rows(Lane lane, uint32_t before, int piece) {
    const std::vector<RowMark>& marks = row_marks_[before];
    const auto mark =
        std::ranges::find(marks.begin() + piece, marks.end(), true, &RowMark::recorded);
    check(cudaStreamWaitEvent(streams_.of(lane), mark->event.get(), 0), "cudaStreamWaitEvent");
}

int64_t CudaLanes::moment(Lane lane) {
    check(cudaEventRecord(moments_[next_moment_].get(), streams_.of(lane)), "cudaEventRecord");
    return static_cast<int64_t>(next_moment_++);
}

void CudaLanes::begin(Lane lane, uint32_t action) {
    engine_.use(queues_[static_cast<size_t>(lane)]);
    marks_[action].range = nvtxRangeStartA(names_[program_][action].c_str());
    check(cudaEventRecord(marks_[action].begin.get(), streams_.of(lane)), "cudaEventRecord");
}

void CudaLanes::end(Lane lane, uint32_t action) {
    check(cudaEventRecord(marks_[action].end.get(), streams_.of(lane)), "cudaEventRecord");
    nvtxRangeEnd(marks_[action].range);
    marks_[action].ended = true;
    if (lane == Lane::compute)
        end_before_last_ = std::exchange(last_end_, marks_[action].end.get());
}

void CudaLanes::end_part() {
    const cudaEvent_t end = part_ends_[next_part_end_++ % part_ends_.size()].get();
    check(cudaEventRecord(end, streams_.of(Lane::compute)), "cudaEventRecord");
    end_before_last_ = std::exchange(last_end_, end);
}

bool CudaLanes::has_room() {
    if (end_before_last_ == nullptr) return true;
    if (!has_ended(cudaEventQuery(end_before_last_), "cudaEventQuery")) return false;
    end_before_last_ = nullptr;
    return true;
}

bool CudaLanes::finished(uint32_t action) {
    if (!marks_[action].ended) return false;
    return has_ended(cudaEventQuery(marks_[action].end.get()), names_[program_][action].c_str());
}

void CudaLanes::read_times(std::span<Span> spans, std::vector<PieceWait>& waits) {
    engine_.use(queues_[static_cast<size_t>(Lane::compute)]);  // operators between steps
    const auto ns = [this](const Event& event) {
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, start_.get(), event.get()),
              "cudaEventElapsedTime");
        return start_ns_ + static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
    };
    for (Span& span : spans) {
        span.begin_ns = ns(marks_[span.action].begin);
        span.end_ns = ns(marks_[span.action].end);
        const bool computes = span.lane == Lane::compute || span.lane == Lane::local;
        span.cpu_ns = computes ? span.end_ns - span.begin_ns : 0;
    }
    for (PieceWait& wait : waits) {
        wait.begin_ns = ns(moments_[static_cast<size_t>(wait.begin_ns)]);
        wait.end_ns = ns(moments_[static_cast<size_t>(wait.end_ns)]);
    }
    std::erase_if(waits,
                  [](const PieceWait& wait) { return wait.end_ns - wait.begin_ns <= kNothingNs; });
}

void CudaLanes::drain() noexcept {
    for (const Stream& stream : streams_.streams) (void)cudaStreamSynchronize(stream.get());
}

}  // namespace vocabpipe::cuda
