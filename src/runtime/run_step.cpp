// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/run_step.hpp"

#include "src/runtime/wait.hpp"
#include "src/schedule/ops.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/tile_link.hpp"

#include <algorithm>
#include <string>

namespace vocabpipe {

namespace {

/// Time in which NCCL's thread launches for a non-blocking communicator, tens of microseconds:
/// guessed, not measured.
constexpr int64_t kLaunchNs = 100'000;
/// Most actions of lanes other than compute that are enqueued and have not run, counted in pieces:
/// each takes at most ten entries of a stream, which has about a thousand.
constexpr size_t kMostEnqueued = 64;

/// Sets a flag while it lives.
class Setting {
public:
    explicit Setting(bool& flag) : flag_(flag) { flag_ = true; }
    ~Setting() { flag_ = false; }
    Setting(const Setting&) = delete;
    Setting& operator=(const Setting&) = delete;

private:
    bool& flag_;
};

/// Finds what each action waited for from the times of the device. With streams the host knows only
/// the order of its own calls.
void find_what_was_waited_for(LoadedProgram& loaded) {
    const Program& program = loaded.program;
    std::vector<const Span*> of(program.actions.size(), nullptr);
    for (const Span& span : loaded.timeline.spans) of[span.action] = &span;
    std::vector<int64_t> came(program.actions.size(), 0);
    std::vector<uint32_t> waited_for(program.actions.size(), UINT32_MAX);
    for (size_t i = 0, streamed = 0; i < program.edges.size(); ++i) {
        const Edge& edge = program.edges[i];
        int64_t end = of[edge.before]->end_ns;
        if (streamed < program.streamed.size() && program.streamed[streamed] == i) {
            // `after` began with the first rows; nothing more is known about their arrival.
            end = std::min(end, of[edge.after]->begin_ns);
            ++streamed;
        }
        if (waited_for[edge.after] != UINT32_MAX && end <= came[edge.after]) continue;
        waited_for[edge.after] = edge.before;
        came[edge.after] = end;
    }
    for (Span& span : loaded.timeline.spans) span.waited_for = waited_for[span.action];
}

}  // namespace

StepRunner::StepRunner(const Parts& parts)
    : rank_(parts),
      asynchronous_(parts.device.asynchronous()),
      transfers_(parts.memory),
      passes_(parts.context, parts.modules, parts.memory, parts.communicator.rank()),
      second_passes_(parts.second_context, parts.modules, parts.memory, parts.communicator.rank()),
      stuck_(parts.communicator.rank(), asynchronous_, progress_, parts.lanes) {}

void StepRunner::run(LoadedProgram& program, ProgramId id, std::span<const Microbatch> microbatches,
                     int64_t step) {
    step_ = step;
    progress_.begin(program);
    rank_.memory.use(program.program);
    users_left_ = program.users;
    program.timeline.spans.clear();
    program.timeline.piece_waits.clear();
    if (rank_.options.poison_dead_buffers) rank_.memory.poison();
    const auto count = static_cast<int>(microbatches.size());
    if (rank_.modules.output != nullptr) rank_.modules.output->begin_step(count);
    for (StageModule* const stage : rank_.modules.stages) {
        if (stage != nullptr) stage->begin_step(count);
    }
    abandon_ = nullptr;
    has_reported_ = false;
    if (rank_.options.abandon && program.report != UINT32_MAX) {
        abandon_ = &rank_.communicator.abandon_line();
        abandon_->begin_step();
    }
    const Setting running(running_);
    rank_.lanes.begin_step(id);
    const std::span<const Microbatch> batch = batch_.load(rank_.device, microbatches);
    passes_.begin_step(program.program, batch);
    second_passes_.begin_step(program.program, batch);
    wait_until([this] { return progress_.is_over(); }, [this] { return advance(); });
    if (!asynchronous_) return;
    rank_.lanes.read_times(program.timeline.spans, program.timeline.piece_waits);
    find_what_was_waited_for(program);
}

// --- progress ------------------------------------------------------------------------------------

/// Starts all that can start; returns whether anything started or ended.
bool StepRunner::advance() {
    const size_t before = progress_.moves();
    tell_where([this] { progress(); });
    const bool started = asynchronous_ ? enqueue_next() : start_next_pass();
    settle();
    if (started || progress_.moves() != before) return true;
    tell_where([this] { rank_.transport.check_health(); });
    return false;
}

void StepRunner::poll() {
    if (!running_) return;  // operators between steps
    if (!asynchronous_) {
        tell_where([this] { progress(); });
        return;
    }
    if (!progress_.enqueues_pass) return;  // a combine_softmax
    pieces_in_part_ = 0;
    rank_.lanes.end_part();
    (void)look();
    wait_until([this] { return can_enqueue(); }, [this] { return look(); });
    rank_.lanes.begin_part();
    start_behind_pass();
}

void StepRunner::poll_within_pass() {
    if (!running_) return;
    tell_where([this] { progress(); });
    settle();
}

/// Advances enqueued communication and links; returns whether anything moved. Links come first: a
/// pass that polls between two pieces has released pieces that its team waits for.
bool StepRunner::look() {
    const size_t before = progress_.moves();
    for (const Context* const context : {&rank_.context, &rank_.second_context}) {
        for (const Axis axis : {Axis::tensor, Axis::context, Axis::expert}) {
            if (TileLink* const link = context->link(axis)) link->poll();
        }
    }
    tell_where([this] { progress(); });
    settle();
    if (progress_.moves() != before) return true;
    tell_where([this] { rank_.transport.check_health(); });
    return false;
}

/// Advances everything except passes; on a device with streams, only transfers given to the
/// transport. Called while idle, between passes and by passes that poll.
void StepRunner::progress() {
    if (in_progress_) return;  // a combine_softmax inside polls as well
    const Setting in_progress(in_progress_);
    leave_if_abandoned();
    bool again = true;
    while (again) {
        again = end_transfers();
        if (!asynchronous_ && start_beside_passes()) again = true;
    }
}

/// Throws StepAbandoned once all ranks leave the step; until then the step goes on.
void StepRunner::leave_if_abandoned() {
    if (abandon_ == nullptr) return;
    abandon_->look(has_reported_, rank_.options.abandon);
    if (abandon_->leaves()) {
        throw StepAbandoned("step " + std::to_string(step_) + " was abandoned");
    }
}

/// Whether the action is the Report pass and this rank holds it back.
bool StepRunner::is_held(uint32_t index) const {
    return abandon_ != nullptr && index == progress_.loaded->report && abandon_->holds();
}

bool StepRunner::end_transfers() {
    std::vector<StepProgress::InFlight>& open = progress_.in_flight;
    bool any = false;
    for (size_t i = 0; i < open.size();) {
        if (!rank_.transport.test(open[i].ticket)) {
            ++i;
            continue;
        }
        any = true;
        const uint32_t action = open[i].action;
        if (is_streamed(action)) {
            const int piece = open[i].piece;
            open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
            end_piece(action, piece);
            continue;
        }
        rank_.lanes.end(progress_.action(action).lane, action);
        spans()[open[i].span].end_ns = now_ns();
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
        complete(action);
    }
    return any;
}

/// Counts the actions that have run on the device, in the order of their starts.
void StepRunner::settle() {
    const std::vector<uint32_t>& started = progress_.started;
    size_t& settled = progress_.settled;
    for (; settled < started.size() && rank_.lanes.finished(started[settled]); ++settled) {
        const Action& action = progress_.action(started[settled]);
        if (action.what != Do::pass) progress_.pieces_settled += action.pieces;
    }
}

// --- what may start ------------------------------------------------------------------------------

/// On a host, starts communication and local actions, lane by lane.
bool StepRunner::start_beside_passes() {
    bool any = false;
    for (const Lane lane : {Lane::collective, Lane::forward, Lane::backward, Lane::local}) {
        const auto queue = static_cast<size_t>(lane);
        while (const uint32_t* const next = progress_.ready(queue)) {
            if (is_streamed(*next)) {
                any = start_pieces(queue, *next) || any;
                if (progress_.ready(queue) == next) break;  // it waits for rows
                continue;
            }
            start(queue, *next);
            any = true;
        }
    }
    return any;
}

bool StepRunner::start_next_pass() {
    const uint32_t* const next = progress_.ready(LoadedProgram::kPassQueue);
    if (next == nullptr || is_held(*next)) return false;
    if (progress_.action(*next).pair_member == 1) {
        run_pair(*next);
    } else {
        start(LoadedProgram::kPassQueue, *next);
    }
    return true;
}

/// On a device with streams, enqueues the next action of enqueue_order() if it may be enqueued.
bool StepRunner::enqueue_next() {
    const uint32_t* const next = progress_.ready(LoadedProgram::kPassQueue);
    if (next == nullptr || is_held(*next)) return false;
    const bool is_pass = progress_.action(*next).what == Do::pass;
    if (is_pass ? !can_enqueue() : !may_enqueue_beside(*next)) return false;
    if (is_streamed(*next)) return start_pieces(LoadedProgram::kPassQueue, *next);
    start(LoadedProgram::kPassQueue, *next);
    return true;
}

/// Whether an action that is not a pass may be enqueued: at most kMostEnqueued of them at a time
/// (passes are limited by their parts).
bool StepRunner::may_enqueue_beside(uint32_t index) const {
    const Action& action = progress_.action(index);
    const bool is_open =
        std::ranges::find(progress_.streams, index, &StepProgress::Stream::action) !=
        progress_.streams.end();
    const size_t ahead = progress_.pieces_enqueued - progress_.pieces_settled;
    if (!is_open && ahead > 0 && ahead + action.pieces > kMostEnqueued) return false;
    // A communication that is not enqueued yet (its peer's memory is not known, its connection not
    // made) keeps its place on the stream.
    return !is_communication(action.what) || progress_.in_flight.empty();
}

/// Whether the host may enqueue another part of a pass: not so far ahead that it would block in the
/// driver, and not while the transport's own thread is about to launch a transfer, because the host
/// does not poll it while it enqueues.
bool StepRunner::can_enqueue() {
    const bool launching = !progress_.in_flight.empty() && now_ns() - last_transfer_ns_ < kLaunchNs;
    return !launching && rank_.lanes.has_room();
}

// --- actions -------------------------------------------------------------------------------------

/// Starts the head of a queue.
void StepRunner::start(size_t queue, uint32_t index) {
    ++progress_.head[queue];
    if (is_communication(progress_.action(index).what)) {
        start_transfer(index);
    } else {
        run_here(index);
    }
}

size_t StepRunner::open_span(uint32_t index) {
    const LoadedProgram& loaded = *progress_.loaded;
    const Lane lane = progress_.action(index).lane;
    if (!loaded.waits.empty()) {
        for (const uint32_t before : loaded.waits[index]) rank_.lanes.wait(lane, before);
    }
    rank_.lanes.begin(lane, index);
    const int64_t now = now_ns();
    const auto rank = static_cast<uint16_t>(rank_.communicator.rank());
    spans().push_back({index, progress_.waited_for[index], rank, lane, now, now, 0});
    progress_.started.push_back(index);
    const Action& action = progress_.action(index);
    if (action.what != Do::pass) progress_.pieces_enqueued += action.pieces;
    return spans().size() - 1;
}

void StepRunner::start_transfer(uint32_t index) {
    const Transfer transfer = transfers_.make(progress_.loaded->program, progress_.action(index));
    const size_t span = open_span(index);
    progress_.in_flight.push_back({index, span, rank_.transport.start(transfer)});
    last_transfer_ns_ = now_ns();
}

void StepRunner::run_here(uint32_t index) {
    const Action& action = progress_.action(index);
    await_rows(index, first_rows(index));
    if (index == progress_.loaded->report) has_reported_ = true;
    const size_t span = open_span(index);
    const int64_t cpu = thread_cpu_ns();
    const int64_t nested = local_cpu_ns_;  // a pass that polls may run a combine_softmax inside
    if (action.what == Do::pass) {
        progress_.enqueues_pass = asynchronous_;
        run_pass(index);
        progress_.enqueues_pass = false;
    } else {
        passes_.run(action);
    }
    const int64_t own = thread_cpu_ns() - cpu - (local_cpu_ns_ - nested);
    local_cpu_ns_ += own;
    rank_.lanes.end(action.lane, index);
    spans()[span].cpu_ns = own;
    spans()[span].end_ns = now_ns();
    complete(index);
}

void StepRunner::complete(uint32_t index) {
    if (observer_) {
        observer_(progress_.loaded->program, progress_.action(index), rank_.memory);
    }
    progress_.complete(index);
    if (!rank_.options.poison_dead_buffers || asynchronous_) return;
    // A buffer is dead once all its users have completed, on any lane.
    for (const uint32_t operand : progress_.loaded->program.operands_of(progress_.action(index))) {
        if (operand != kNoBuffer && --users_left_[operand] == 0) rank_.memory.poison(operand);
    }
}

}  // namespace vocabpipe
