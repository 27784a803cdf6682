// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/abandon_line.hpp"
#include "src/runtime/coroutine.hpp"
#include "src/runtime/device_batch.hpp"
#include "src/runtime/executor_internals.hpp"
#include "src/runtime/lanes.hpp"
#include "src/runtime/loaded_program.hpp"
#include "src/runtime/make_transfer.hpp"
#include "src/runtime/run_pass.hpp"
#include "src/runtime/step_memory.hpp"
#include "src/runtime/step_progress.hpp"
#include "src/runtime/stuck_report.hpp"
#include "src/runtime/transport/transport.hpp"
#include "src/runtime/wait.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/executor.hpp"
#include "vocabpipe/tile_map.hpp"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace vocabpipe {

/// Runs the steps of a rank: starts communication as soon as its inputs are ready and passes in
/// order, and polls in between. On a device with streams, where starting means enqueueing, it
/// follows enqueue_order().
class StepRunner final : private StreamedRows {
public:
    /// The parts that the runner uses; all must outlive it.
    struct Parts {
        Communicator& communicator;
        Device& device;
        Lanes& lanes;
        Transport& transport;
        Context& context;
        Context& second_context;  ///< of the second passes of pairs; has links where there are any
        const RankModules& modules;
        StepMemory& memory;
        const ExecutorOptions& options;
    };
    explicit StepRunner(const Parts& parts);

    /// Runs one step. `step`: its number, for messages. Throws CommunicationError, DeviceError,
    /// StepAbandoned.
    void run(LoadedProgram& program, ProgramId id, std::span<const Microbatch> microbatches,
             int64_t step);
    /// Lets communication advance; called by passes between parts of their work.
    void poll();
    /// The same while a pass waits for other ranks: no part of the pass ends, so on a device with
    /// streams the host does not wait for one.
    void poll_within_pass();
    /// TileLinkOptions::other_lane of the links of both contexts.
    bool run_other_lane(bool begins);
    /// As ExecutorInternals::observe().
    void observe(ActionObserver observer) { observer_ = std::move(observer); }

private:
    bool advance();
    void progress();
    bool look();
    void settle();
    void leave_if_abandoned();
    [[nodiscard]] bool is_held(uint32_t index) const;
    bool end_transfers();
    bool start_beside_passes();
    bool start_next_pass();
    bool enqueue_next();
    [[nodiscard]] bool can_enqueue();
    [[nodiscard]] bool may_enqueue_beside(uint32_t index) const;
    void start(size_t queue, uint32_t index);
    void start_transfer(uint32_t index);
    void run_here(uint32_t index);
    size_t open_span(uint32_t index);
    void complete(uint32_t index);

    // Pairs: run_pairs.cpp.
    class Away;
    void run_pair(uint32_t first);
    bool run_second();
    [[nodiscard]] Context& context_of(uint32_t index);
    [[nodiscard]] PassRunner& runner_of(uint32_t index);

    // Streamed edges: run_streams.cpp.
    [[nodiscard]] bool is_streamed(uint32_t index) const;
    [[nodiscard]] int64_t tokens_of(uint32_t index) const;
    [[nodiscard]] TileMap pieces_of(uint32_t index) const;
    [[nodiscard]] TileMap pieces_from(uint32_t source) const;
    [[nodiscard]] int64_t rows_for(uint32_t index) const;
    [[nodiscard]] int64_t first_rows(uint32_t pass) const;
    void await_rows(uint32_t index, int64_t end);
    bool start_pieces(size_t queue, uint32_t index);
    void end_piece(uint32_t index, int piece);
    void run_pass(uint32_t index);
    [[nodiscard]] int input_pieces() const override;
    [[nodiscard]] int output_pieces() const override;
    void need(int64_t end) override;
    void made(int64_t end) override;
    void need_on_stream(int64_t end);
    void made_on_stream(int64_t end);
    void start_behind_pass();
    void end_part_of_pieces();

    [[nodiscard]] std::vector<Span>& spans() { return progress_.loaded->timeline.spans; }
    template <typename Done, typename Move>
    void wait_until(Done&& done, Move&& move);
    template <typename Work>
    void tell_where(Work&& work);

    static constexpr uint32_t kAlone = UINT32_MAX;

    const Parts rank_;
    const bool asynchronous_;
    TransferMaker transfers_;
    PassRunner passes_;
    PassRunner second_passes_;  ///< the second of pairs
    StepProgress progress_;     ///< of the running or the last step
    StuckReport stuck_;
    DeviceBatch batch_;
    ActionObserver observer_;
    std::vector<uint32_t> users_left_;  ///< [buffer]
    bool running_ = false;
    AbandonLine* abandon_ = nullptr;  ///< of the running step; null: cannot be abandoned
    bool has_reported_ = false;       ///< this rank's report may have been sent
    bool in_progress_ = false;
    int64_t step_ = 0;
    int64_t last_transfer_ns_ = 0;  ///< start of the last transfer
    int pieces_in_part_ = 0;        ///< of the pass being enqueued, since its last poll
    Coroutine second_;              ///< runs the second pass of a pair
    /// The second pass of the pair whose first one runs; kAlone: none.
    uint32_t second_of_pair_ = kAlone;
    bool first_moved_ = false;   ///< has computed since it last let the second one run
    bool second_moved_ = false;  ///< the same of the second one
    /// CPU time of all passes and local actions so far, and of passes while they waited for rows.
    int64_t local_cpu_ns_ = 0;
};

/// Waits until `done`. `move` returns whether anything started or ended; gives up if nothing does
/// until the deadline.
template <typename Done, typename Move>
void StepRunner::wait_until(Done&& done, Move&& move) {
    IdleWait idle(rank_.communicator.wait_options());
    while (!done()) {
        if (move()) {
            idle.reset();
            continue;
        }
        const IdleWait::Verdict verdict = idle.pause();
        if (verdict == IdleWait::Verdict::go_on) continue;
        stuck_.give_up(step_, idle, verdict);
    }
}

/// Runs `work`; adds to a peer's error which action waits for it here.
template <typename Work>
void StepRunner::tell_where(Work&& work) {
    try {
        work();
    } catch (const CommunicationError& error) {
        throw CommunicationError(stuck_.where(step_) + "; " + error.what());
    }
}

}  // namespace vocabpipe
