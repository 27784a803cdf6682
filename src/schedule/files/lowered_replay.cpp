// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/files/lowered_replay.hpp"

#include <array>
#include <string>

namespace vocabpipe::files {

namespace {

class Replay {
public:
    Replay(const Schedule& schedule, const std::vector<TransferCell>& cells)
        : schedule_(schedule), next_(static_cast<size_t>(schedule.ranks)) {
        const size_t keys =
            static_cast<size_t>(schedule.stages) * static_cast<size_t>(schedule.microbatches);
        for (std::vector<bool>& done : done_) done.resize(keys, false);
        cells_.resize(next_.size());
        for (const TransferCell& cell : cells) {
            cells_[static_cast<size_t>(cell.rank)].push_back(&cell);
        }
    }

    std::optional<TransferFault> run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (size_t rank = 0; rank < next_.size(); ++rank) {
                while (step(rank)) moved = true;
            }
        }
        for (size_t rank = 0; rank < next_.size(); ++rank) {
            if (at_end(rank)) continue;
            const TransferCell* cell = cell_at(rank);
            const Message needed = cell != nullptr ? needed_by(*cell) : *needed_by(pass_at(rank));
            const std::string what = cell != nullptr ? "" : to_string(pass_at(rank)) + " ";
            return TransferFault{static_cast<int>(rank),
                                 cell != nullptr ? std::optional(cell->column) : std::nullopt,
                                 what + "waits for " + std::to_string(needed.stage) +
                                     std::string(to_string(needed.word)) +
                                     std::to_string(needed.microbatch) + ", which rank " +
                                     std::to_string(schedule_.rank_of_stage[needed.stage]) +
                                     " does not reach: a deadlock"};
        }
        return std::nullopt;
    }

private:
    struct Next {
        size_t pass = 0, cell = 0;
    };
    struct Message {
        Transfer word;
        uint32_t stage, microbatch;
    };

    const std::vector<Pass>& passes(size_t rank) const { return schedule_.passes[rank]; }
    const Pass& pass_at(size_t rank) const { return passes(rank)[next_[rank].pass]; }
    /// The next cell before the next pass, if any is left.
    const TransferCell* cell_at(size_t rank) const {
        const Next& next = next_[rank];
        if (next.cell == cells_[rank].size()) return nullptr;
        const TransferCell* cell = cells_[rank][next.cell];
        return cell->before == next.pass ? cell : nullptr;
    }
    bool at_end(size_t rank) const {
        return cell_at(rank) == nullptr && next_[rank].pass == passes(rank).size();
    }

    bool step(size_t rank) {
        if (at_end(rank)) return false;
        if (const TransferCell* cell = cell_at(rank)) {
            if (is_wait(cell->word)) {
                if (!is_done(needed_by(*cell))) return false;
            } else if (cell->word <= Transfer::recv_b) {
                done_[static_cast<size_t>(cell->word)][key_of(cell->stage, cell->microbatch)] =
                    true;
            }
            ++next_[rank].cell;
            return true;
        }
        const std::optional<Message> needed = needed_by(pass_at(rank));
        if (needed && !is_done(*needed)) return false;
        ++next_[rank].pass;
        return true;
    }

    static bool is_wait(Transfer word) {
        return word == Transfer::wait_send_f || word == Transfer::wait_send_b;
    }
    size_t key_of(uint32_t stage, uint32_t microbatch) const {
        return stage * static_cast<size_t>(schedule_.microbatches) + microbatch;
    }
    bool is_done(const Message& message) const {
        return done_[static_cast<size_t>(message.word)][key_of(message.stage, message.microbatch)];
    }

    static Message needed_by(const TransferCell& wait) {
        return wait.word == Transfer::wait_send_f
                   ? Message{Transfer::recv_f, wait.stage + 1, wait.microbatch}
                   : Message{Transfer::recv_b, wait.stage - 1, wait.microbatch};
    }
    /// The send of the pass's input, if another rank makes it.
    std::optional<Message> needed_by(const Pass& pass) const {
        const bool forward = pass.op == Op::F;
        if (!forward && !is_backward(pass.op)) return std::nullopt;
        const int64_t stage = int64_t{pass.stage} + (forward ? -1 : 1);
        if (stage < 0 || stage == schedule_.stages) return std::nullopt;
        const auto from = static_cast<uint32_t>(stage);
        if (schedule_.rank_of_stage[from] == schedule_.rank_of_stage[pass.stage]) {
            return std::nullopt;
        }
        return Message{forward ? Transfer::send_f : Transfer::send_b, from, pass.microbatch};
    }

    const Schedule& schedule_;
    std::vector<std::vector<const TransferCell*>> cells_;  ///< [rank]
    std::vector<Next> next_;                               ///< [rank]
    std::array<std::vector<bool>, 4> done_;                ///< [send or receive][stage, microbatch]
};

}  // namespace

std::optional<TransferFault> find_lowered_deadlock(const Schedule& schedule,
                                                   const std::vector<TransferCell>& cells) {
    return Replay(schedule, cells).run();
}

}  // namespace vocabpipe::files
