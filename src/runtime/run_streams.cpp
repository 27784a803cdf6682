// SPDX-License-Identifier: Apache-2.0
// Streamed edges: messages in pieces, during the passes that make or use their rows. On a host a
// pass that waits for rows advances everything else of its rank. On a device with streams a pass
// records an event after each piece of rows, and its stream waits for the events of the pieces that
// it needs; the host still enqueues actions by enqueue_order().
#include "src/runtime/run_step.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace vocabpipe {

namespace {

/// Pieces in a part of a pass on a device with streams: a piece takes fewer than thirty launches
/// (S: three for each of eight chunks), and a part should have fewer than 500.
constexpr int kPiecesPerPart = 16;

}  // namespace

/// Whether the communication is sent in pieces, or waits for rows of a running pass.
bool StepRunner::is_streamed(uint32_t index) const {
    const Action& action = progress_.action(index);
    return is_communication(action.what) && progress_.loaded->edges.any() &&
           (action.pieces > 1 || progress_.loaded->edges.streams(index));
}

/// N of the microbatch that the action belongs to.
int64_t StepRunner::tokens_of(uint32_t index) const {
    return progress_.loaded->program.tokens_of(progress_.action(index));
}

TileMap StepRunner::pieces_of(uint32_t index) const {
    return TileMap::even(tokens_of(index), 1, progress_.action(index).pieces);
}

/// Pieces of the rows that an action makes or receives, as marked for the actions that take them.
TileMap StepRunner::pieces_from(uint32_t source) const {
    int pieces = progress_.action(source).pieces;
    for (const uint32_t taker : progress_.loaded->edges.takers_of(source)) {
        pieces = std::max<int>(pieces, progress_.action(taker).pieces);
    }
    return TileMap::even(tokens_of(source), 1, pieces);
}

/// Rows that a pass needs to begin: the first piece of its streamed input.
int64_t StepRunner::first_rows(uint32_t pass) const {
    const uint32_t source = progress_.loaded->edges.source_of(pass);
    return source == StreamEdges::kNone ? 0 : pieces_of(source).rows(0, 0).end;
}

/// On a device with streams, lets the action's lane wait for these rows of its streamed input,
/// which have been enqueued.
void StepRunner::await_rows(uint32_t index, int64_t end) {
    const uint32_t source = progress_.loaded->edges.source_of(index);
    if (!asynchronous_ || source == StreamEdges::kNone) return;
    const int piece = pieces_from(source).needed(0, {.first = 0, .end = end}) - 1;
    rank_.lanes.wait_rows(progress_.action(index).lane, source, piece);
}

/// Rows that are ready to be sent.
int64_t StepRunner::rows_for(uint32_t index) const {
    const uint32_t source = progress_.loaded->edges.source_of(index);
    return source == StreamEdges::kNone ? tokens_of(index) : progress_.rows[source];
}

/// Starts the pieces of a queue's head whose rows are ready; the queue moves on with the last
/// piece. Returns whether any piece was started. On a device with streams a piece is given to the
/// transport after the previous one has been enqueued, so that nothing else comes between on its
/// stream.
bool StepRunner::start_pieces(size_t queue, uint32_t index) {
    std::vector<StepProgress::Stream>& streams = progress_.streams;
    const int64_t ready = rows_for(index);
    auto open = std::ranges::find(streams, index, &StepProgress::Stream::action);
    if (open == streams.end()) {
        if (ready == 0) return false;
        TileMap pieces = pieces_of(index);
        if (pieces.rows(0, 0).end > ready) return false;
        await_rows(index, pieces.rows(0, 0).end);
        open = streams.insert(
            open, {.action = index, .span = open_span(index), .pieces = std::move(pieces)});
    }
    StepProgress::Stream& stream = *open;
    const int count = stream.pieces.pieces(0);
    const int before = stream.started;
    for (; stream.started < count; ++stream.started) {
        if (asynchronous_ && !progress_.in_flight.empty()) break;
        const RowRange rows = stream.pieces.rows(0, stream.started);
        if (rows.end > ready) break;
        if (stream.started > 0) await_rows(index, rows.end);
        const Program& program = progress_.loaded->program;
        const Action& action = progress_.action(index);
        const Transfer transfer =
            count == 1 ? transfers_.make(program, action) : transfers_.make(program, action, rows);
        progress_.in_flight.push_back(
            {index, stream.span, rank_.transport.start(transfer), stream.started});
        ++progress_.pieces;
        last_transfer_ns_ = now_ns();
    }
    if (stream.started == count) ++progress_.head[queue];
    return stream.started > before;
}

/// Records a piece that has arrived. A pass can use the rows before the first missing piece.
void StepRunner::end_piece(uint32_t index, int piece) {
    std::vector<StepProgress::Stream>& streams = progress_.streams;
    const auto stream = std::ranges::find(streams, index, &StepProgress::Stream::action);
    if (asynchronous_ && !progress_.loaded->edges.takers_of(index).empty()) {
        rank_.lanes.mark_rows(progress_.action(index).lane, index, piece);
    }
    const int before = std::countr_one(stream->arrived);
    stream->arrived |= uint64_t{1} << piece;
    ++progress_.pieces;
    const int arrived = std::countr_one(stream->arrived);
    if (arrived > 0) progress_.rows[index] = stream->pieces.rows(0, arrived - 1).end;
    if (before == 0 && arrived > 0) progress_.begin_rows(index);
    if (arrived < stream->pieces.pieces(0)) return;
    spans()[stream->span].end_ns = now_ns();
    rank_.lanes.end(progress_.action(index).lane, index);
    streams.erase(stream);
    complete(index);
}

// --- passes --------------------------------------------------------------------------------------

/// Runs a pass with its streamed rows.
void StepRunner::run_pass(uint32_t index) {
    if (!progress_.loaded->edges.streams(index)) {
        runner_of(index).run(progress_.action(index));
        return;
    }
    progress_.streaming_pass = index;
    context_of(index).stream(this);
    const struct Leave {
        StepRunner& runner;
        Context& context;
        ~Leave() {
            context.stream(nullptr);
            runner.progress_.streaming_pass = StreamEdges::kNone;
        }
    } leave{*this, context_of(index)};
    progress_.begin_rows(index);
    progress_.awaited_rows = first_rows(index);
    pieces_in_part_ = 0;
    runner_of(index).run(progress_.action(index));
    need(tokens_of(index));  // if the pass has not asked for its last rows
    made(tokens_of(index));
}

int StepRunner::input_pieces() const {
    const uint32_t source = progress_.loaded->edges.source_of(progress_.streaming_pass);
    return source == StreamEdges::kNone ? 1 : progress_.action(source).pieces;
}

int StepRunner::output_pieces() const {
    return pieces_from(progress_.streaming_pass).pieces(0);
}

void StepRunner::need(int64_t end) {
    if (asynchronous_) return need_on_stream(end);
    const uint32_t source = progress_.loaded->edges.source_of(progress_.streaming_pass);
    if (source == StreamEdges::kNone || progress_.rows[source] >= end) return;
    const int64_t cpu = thread_cpu_ns();
    const int64_t nested = local_cpu_ns_;
    const RowRange rows{progress_.rows[source], end};
    const PieceWait wait{.pass = progress_.streaming_pass,
                         .source = source,
                         .rank = static_cast<uint16_t>(rank_.communicator.rank()),
                         .piece = static_cast<uint16_t>(pieces_of(source).needed(0, rows)),
                         .begin_ns = now_ns(),
                         .end_ns = 0};
    bool begins = true;
    wait_until([&] { return progress_.rows[source] >= end; },
               [&] { return look() || run_other_lane(std::exchange(begins, false)); });
    // Without the actions that ran meanwhile, whose time is counted already.
    local_cpu_ns_ += thread_cpu_ns() - cpu - (local_cpu_ns_ - nested);
    progress_.loaded->timeline.piece_waits.push_back(wait);
    progress_.loaded->timeline.piece_waits.back().end_ns = now_ns();
}

void StepRunner::made(int64_t end) {
    if (asynchronous_) return made_on_stream(end);
    if (progress_.rows[progress_.streaming_pass] >= end) return;
    progress_.rows[progress_.streaming_pass] = end;
    tell_where([this] { progress(); });
}

// --- passes on a device with streams -------------------------------------------------------------

/// The host waits until the pieces have been enqueued. All but the last already are, because they
/// come before the pass in enqueue_order().
void StepRunner::need_on_stream(int64_t end) {
    const uint32_t pass = progress_.streaming_pass;
    const uint32_t source = progress_.loaded->edges.source_of(pass);
    if (source == StreamEdges::kNone || progress_.awaited_rows >= end) return;
    wait_until([&] { return progress_.rows[source] >= end; }, [this] { return look(); });
    const TileMap pieces = pieces_of(source);
    const int needed = pieces.needed(0, {.first = progress_.awaited_rows, .end = end});
    PieceWait wait{.pass = pass,
                   .source = source,
                   .rank = static_cast<uint16_t>(rank_.communicator.rank()),
                   .piece = static_cast<uint16_t>(needed),
                   .begin_ns = rank_.lanes.moment(Lane::compute),
                   .end_ns = 0};
    await_rows(pass, end);
    wait.end_ns = rank_.lanes.moment(Lane::compute);
    progress_.loaded->timeline.piece_waits.push_back(wait);
    progress_.awaited_rows = pieces.rows(0, needed - 1).end;
    end_part_of_pieces();
}

/// Marks the pieces that are complete.
void StepRunner::made_on_stream(int64_t end) {
    const uint32_t pass = progress_.streaming_pass;
    if (progress_.loaded->edges.takers_of(pass).empty()) return;
    const TileMap pieces = pieces_from(pass);
    int complete = 0;
    while (complete < pieces.pieces(0) && pieces.rows(0, complete).end <= end) ++complete;
    if (complete == 0 || pieces.rows(0, complete - 1).end <= progress_.rows[pass]) return;
    rank_.lanes.mark_rows(Lane::compute, pass, complete - 1);
    progress_.rows[pass] = pieces.rows(0, complete - 1).end;
    start_behind_pass();
    end_part_of_pieces();
}

/// Starts communication that follows the pass in enqueue_order(), as far as its rows are ready,
/// because enqueueing the rest of the pass may take the host long. Never waits.
void StepRunner::start_behind_pass() {
    if (progress_.streaming_pass == StreamEdges::kNone) return;
    constexpr size_t queue = LoadedProgram::kPassQueue;
    bool any = false;
    while (true) {
        tell_where([this] { progress(); });
        const uint32_t* const next = progress_.ready(queue);
        if (next == nullptr || !is_communication(progress_.action(*next).what)) break;
        if (!may_enqueue_beside(*next)) break;
        if (!is_streamed(*next)) {
            start(queue, *next);
        } else if (!start_pieces(queue, *next)) {
            break;
        }
        any = true;
    }
    if (any) rank_.lanes.begin_part();  // back to the operators of the pass
}

void StepRunner::end_part_of_pieces() {
    if (++pieces_in_part_ == kPiecesPerPart) poll();
}

}  // namespace vocabpipe
