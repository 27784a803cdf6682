// SPDX-License-Identifier: Apache-2.0
// Streamed edges on a host: messages by pieces, beside the passes that make or use their rows. A
// pass that waits for rows advances everything else of its rank.
#include "src/runtime/run_step.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace vocabpipe {

/// Whether the communication travels by pieces, or waits for rows of a pass that runs.
bool StepRunner::is_streamed(uint32_t index) const {
    const Action& action = progress_.action(index);
    return is_communication(action.what) && progress_.loaded->edges.any() &&
           (action.pieces > 1 || progress_.loaded->edges.streams(index));
}

TileMap StepRunner::pieces_of(uint32_t index) const {
    return TileMap::even(rank_.memory.tokens(), 1, progress_.action(index).pieces);
}

/// Rows that may be sent.
int64_t StepRunner::rows_for(uint32_t index) const {
    const uint32_t source = progress_.loaded->edges.source_of(index);
    return source == StreamEdges::kNone ? rank_.memory.tokens() : progress_.rows[source];
}

/// The head of a queue, as far as its rows are there; the queue goes on with its last piece.
/// Whether any piece was started.
bool StepRunner::start_pieces(size_t queue, uint32_t index) {
    std::vector<StepProgress::Stream>& streams = progress_.streams;
    const int64_t ready = rows_for(index);
    auto open = std::ranges::find(streams, index, &StepProgress::Stream::action);
    if (open == streams.end()) {
        if (ready == 0) return false;
        TileMap pieces = pieces_of(index);
        if (pieces.rows(0, 0).end > ready) return false;
        open = streams.insert(
            open, {.action = index, .span = open_span(index), .pieces = std::move(pieces)});
    }
    StepProgress::Stream& stream = *open;
    const int count = stream.pieces.pieces(0);
    const int before = stream.started;
    for (; stream.started < count; ++stream.started) {
        const RowRange rows = stream.pieces.rows(0, stream.started);
        if (rows.end > ready) break;
        const Program& program = progress_.loaded->program;
        const Action& action = progress_.action(index);
        const Transfer transfer =
            count == 1 ? transfers_.make(program, action) : transfers_.make(program, action, rows);
        progress_.in_flight.push_back(
            {index, stream.span, rank_.transport.start(transfer), stream.started});
        ++progress_.pieces;
    }
    if (stream.started == count) ++progress_.head[queue];
    return stream.started > before;
}

/// Rows that follow each other from the first one on are there for the pass that uses them.
void StepRunner::end_piece(uint32_t index, int piece) {
    std::vector<StepProgress::Stream>& streams = progress_.streams;
    const auto stream = std::ranges::find(streams, index, &StepProgress::Stream::action);
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

/// With what streams into and out of it.
void StepRunner::run_pass(uint32_t index) {
    if (!progress_.loaded->edges.streams(index)) {
        passes_.run(progress_.action(index));
        return;
    }
    progress_.streaming_pass = index;
    rank_.context.stream(this);
    const struct Leave {
        StepRunner& runner;
        ~Leave() {
            runner.rank_.context.stream(nullptr);
            runner.progress_.streaming_pass = StreamEdges::kNone;
        }
    } leave{*this};
    progress_.begin_rows(index);
    passes_.run(progress_.action(index));
    need(rank_.memory.tokens());  // of a pass that has not asked for its last rows
    made(rank_.memory.tokens());
}

int StepRunner::input_pieces() const {
    const uint32_t source = progress_.loaded->edges.source_of(progress_.streaming_pass);
    return source == StreamEdges::kNone ? 1 : progress_.action(source).pieces;
}

int StepRunner::output_pieces() const {
    int pieces = 1;
    for (const uint32_t taker : progress_.loaded->edges.takers_of(progress_.streaming_pass)) {
        pieces = std::max<int>(pieces, progress_.action(taker).pieces);
    }
    return pieces;
}

void StepRunner::need(int64_t end) {
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
    wait_until([&] { return progress_.rows[source] >= end; }, [this] { return look(); });
    // Of other microbatches what ran meanwhile is counted already.
    local_cpu_ns_ += thread_cpu_ns() - cpu - (local_cpu_ns_ - nested);
    progress_.loaded->timeline.piece_waits.push_back(wait);
    progress_.loaded->timeline.piece_waits.back().end_ns = now_ns();
}

void StepRunner::made(int64_t end) {
    if (progress_.rows[progress_.streaming_pass] >= end) return;
    progress_.rows[progress_.streaming_pass] = end;
    tell_where([this] { progress(); });
}

}  // namespace vocabpipe
