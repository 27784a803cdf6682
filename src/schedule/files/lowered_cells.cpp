// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/files/lowered_cells.hpp"

#include "src/schedule/files/lowered_replay.hpp"
#include "src/schedule/ops.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace vocabpipe::files {

namespace {

constexpr size_t kTransfersOfMicrobatch = 4;

class Checker {
public:
    Checker(const Schedule& schedule, const std::vector<TransferCell>& cells)
        : schedule_(schedule),
          cells_(cells),
          microbatches_(static_cast<size_t>(schedule.microbatches)),
          forward_at_(static_cast<size_t>(schedule.stages) * microbatches_),
          backward_at_(forward_at_.size()) {
        for (const std::vector<Pass>& list : schedule.passes) {
            for (size_t i = 0; i < list.size(); ++i) {
                const size_t key = key_of(list[i].stage, list[i].microbatch);
                if (list[i].op == Op::F) forward_at_[key] = i;
                if (is_backward(list[i].op)) backward_at_[key] = i;
            }
        }
    }

    std::optional<TransferFault> fault() {
        for (const TransferCell& cell : cells_) {
            if (auto reason = fault_of(cell)) return TransferFault{cell.rank, cell.column, *reason};
        }
        if (std::any_of(cells_.begin(), cells_.end(), is_message)) {
            if (auto fault = missing()) return fault;
            if (auto fault = misordered()) return fault;
            if (auto fault = not_waited_for()) return fault;
            if (auto fault = find_lowered_deadlock(schedule_, cells_)) return fault;
        }
        if (auto fault = sharding_fault()) return fault;
        return reduction_fault();
    }

private:
    static bool is_message(const TransferCell& cell) {
        return static_cast<size_t>(cell.word) < kTransfersOfMicrobatch;
    }
    static bool is_wait(const TransferCell& cell) {
        return cell.word == Transfer::wait_send_f || cell.word == Transfer::wait_send_b;
    }
    static bool is_forward(Transfer word) {
        return word == Transfer::send_f || word == Transfer::recv_f ||
               word == Transfer::wait_send_f;
    }
    size_t key_of(uint32_t stage, uint32_t microbatch) const {
        return stage * microbatches_ + microbatch;
    }
    int owner(uint32_t stage) const { return schedule_.rank_of_stage[stage]; }
    static std::string name(Transfer word, uint32_t stage, uint32_t microbatch) {
        return std::to_string(stage) + std::string(to_string(word)) + std::to_string(microbatch);
    }
    /// The stage at the other end; -1: none.
    int64_t peer(Transfer word, uint32_t stage) const {
        const bool next =
            word == Transfer::send_f || word == Transfer::recv_b || word == Transfer::wait_send_f;
        const int64_t other = int64_t{stage} + (next ? 1 : -1);
        return other < schedule_.stages ? other : -1;
    }

    std::optional<std::string> fault_of(const TransferCell& cell) {
        if (cell.stage >= static_cast<uint32_t>(schedule_.stages)) {
            return "stage " + std::to_string(cell.stage) + " does not exist; the last stage is " +
                   std::to_string(schedule_.stages - 1);
        }
        if (owner(cell.stage) != cell.rank) {
            return "stage " + std::to_string(cell.stage) + " is on rank " +
                   std::to_string(owner(cell.stage));
        }
        if (!is_message(cell) && !is_wait(cell)) return std::nullopt;
        if (cell.microbatch >= microbatches_) {
            return "microbatch " + std::to_string(cell.microbatch) +
                   " does not exist; the last microbatch is " + std::to_string(microbatches_ - 1);
        }
        const int64_t other = peer(cell.word, cell.stage);
        if (other < 0) return "there is no stage at the other end";
        if (owner(static_cast<uint32_t>(other)) == cell.rank) {
            return "stage " + std::to_string(other) +
                   " is on the same rank, so no message is needed";
        }
        const bool forward = is_forward(cell.word);
        if (!forward && schedule_.forward_only()) return "the schedule has no backward";
        const size_t key = key_of(cell.stage, cell.microbatch);
        const size_t pass = (forward ? forward_at_ : backward_at_)[key];
        if (is_wait(cell)) {
            if (!seen_.contains({sent_before(cell.word), key})) {
                return "comes before the SEND that it waits for";
            }
            if (!seen_.emplace(cell.word, key).second) return "appears twice";
            return std::nullopt;
        }
        const bool send = cell.word == Transfer::send_f || cell.word == Transfer::send_b;
        if (send && pass >= cell.before) return "comes before the pass that computes what it sends";
        if (!send && pass < cell.before) return "comes after the pass that needs it";
        if (!seen_.emplace(cell.word, key).second) return "appears twice";
        return std::nullopt;
    }

    static Transfer sent_before(Transfer wait) {
        return wait == Transfer::wait_send_f ? Transfer::send_f : Transfer::send_b;
    }

    /// A send without a wait in a file that has waits.
    std::optional<TransferFault> not_waited_for() const {
        if (std::none_of(cells_.begin(), cells_.end(), is_wait)) return std::nullopt;
        for (const TransferCell& cell : cells_) {
            if (cell.word != Transfer::send_f && cell.word != Transfer::send_b) continue;
            const bool forward = cell.word == Transfer::send_f;
            const Transfer wait = forward ? Transfer::wait_send_f : Transfer::wait_send_b;
            if (seen_.contains({wait, key_of(cell.stage, cell.microbatch)})) continue;
            return TransferFault{cell.rank, cell.column,
                                 name(wait, cell.stage, cell.microbatch) +
                                     " is missing; a file with WAIT_SEND cells needs one for every "
                                     "SEND"};
        }
        return std::nullopt;
    }

    /// If there are waits, every reduction must have one, before the next reduction of the rank.
    std::optional<TransferFault> reduction_fault() const {
        const auto waits = [](const TransferCell& cell) {
            return cell.word == Transfer::wait_reduce_grad;
        };
        if (std::none_of(cells_.begin(), cells_.end(), waits)) return std::nullopt;
        const TransferCell* pending = nullptr;
        for (const TransferCell& cell : cells_) {
            const bool other_rank = pending != nullptr && pending->rank != cell.rank;
            if (pending != nullptr && (cell.word == Transfer::reduce_grad || other_rank)) break;
            if (cell.word == Transfer::reduce_grad) pending = &cell;
            if (!waits(cell)) continue;
            if (pending == nullptr || pending->stage != cell.stage) {
                return TransferFault{cell.rank, cell.column,
                                     "comes where no REDUCE_GRAD of the stage is pending"};
            }
            pending = nullptr;
        }
        if (pending == nullptr) return std::nullopt;
        return TransferFault{pending->rank, pending->column,
                             "has no WAIT_REDUCE_GRAD before the next reduction of the rank or its "
                             "end"};
    }

    std::optional<TransferFault> missing() const {
        const size_t words = schedule_.forward_only() ? 2 : kTransfersOfMicrobatch;
        for (size_t w = 0; w < words; ++w) {
            const auto word = static_cast<Transfer>(w);
            for (uint32_t stage = 0; stage < static_cast<uint32_t>(schedule_.stages); ++stage) {
                const int64_t other = peer(word, stage);
                if (other < 0 || owner(static_cast<uint32_t>(other)) == owner(stage)) continue;
                for (uint32_t j = 0; j < microbatches_; ++j) {
                    if (seen_.contains({word, key_of(stage, j)})) continue;
                    return TransferFault{owner(stage), std::nullopt,
                                         name(word, stage, j) +
                                             " is missing; a file with SEND and RECV cells needs "
                                             "them on every edge between ranks"};
                }
            }
        }
        return std::nullopt;
    }

    /// A message that is received in another order than sent.
    std::optional<TransferFault> misordered() const {
        using Channel = std::tuple<int, int, bool>;  // from, to, forward
        std::map<Channel, std::vector<const TransferCell*>> sends;
        std::map<Channel, size_t> received;
        const auto channel = [&](const TransferCell& cell, bool send) {
            const int there = owner(static_cast<uint32_t>(peer(cell.word, cell.stage)));
            const bool forward = is_forward(cell.word);
            return send ? Channel{cell.rank, there, forward} : Channel{there, cell.rank, forward};
        };
        for (const TransferCell& cell : cells_) {
            if (cell.word == Transfer::send_f || cell.word == Transfer::send_b) {
                sends[channel(cell, true)].push_back(&cell);
            }
        }
        for (const TransferCell& cell : cells_) {
            if (cell.word != Transfer::recv_f && cell.word != Transfer::recv_b) continue;
            const Channel key = channel(cell, false);
            const TransferCell& sent = *sends.at(key)[received[key]++];  // as many as receives
            if (peer(cell.word, cell.stage) == sent.stage && cell.microbatch == sent.microbatch) {
                continue;
            }
            return TransferFault{
                cell.rank, cell.column,
                "rank " + std::to_string(sent.rank) + " sends " +
                    name(sent.word, sent.stage, sent.microbatch) +
                    " at this point of the channel; receive in the order of the sends"};
        }
        return std::nullopt;
    }

    struct Shards {
        bool used = false, whole = false, reduced = false;
        int64_t gradients_to_come = 0;
    };

    std::optional<TransferFault> sharding_fault() const {
        std::vector<Shards> stages(static_cast<size_t>(schedule_.stages));
        for (const TransferCell& cell : cells_) {
            if (cell.word == Transfer::unshard) stages[cell.stage].used = true;
        }
        for (const std::vector<Pass>& list : schedule_.passes) {
            for (const Pass& pass : list) {
                if (pass_traits(pass.op).adds_to == AddsTo::stage) {
                    ++stages[pass.stage].gradients_to_come;
                }
            }
        }
        auto cell = cells_.begin();
        for (int rank = 0; rank < schedule_.ranks; ++rank) {
            const std::vector<Pass>& list = schedule_.passes[static_cast<size_t>(rank)];
            for (size_t i = 0; i <= list.size(); ++i) {
                for (; cell != cells_.end() && cell->rank == rank && cell->before == i; ++cell) {
                    if (auto reason = apply(*cell, stages)) {
                        return TransferFault{rank, cell->column, *reason};
                    }
                }
                if (i == list.size()) continue;
                Shards& stage = stages[list[i].stage];
                if (pass_traits(list[i].op).adds_to == AddsTo::stage) --stage.gradients_to_come;
                if (stage.used && !stage.whole) {
                    return TransferFault{rank, std::nullopt,
                                         to_string(list[i]) +
                                             " runs while the weights of its stage are sharded; "
                                             "move UNSHARD before it or RESHARD after it"};
                }
            }
        }
        return std::nullopt;
    }

    static std::optional<std::string> apply(const TransferCell& cell, std::vector<Shards>& stages) {
        Shards& stage = stages[cell.stage];
        switch (cell.word) {
            case Transfer::unshard:
                if (std::exchange(stage.whole, true)) return "the stage is already unsharded";
                break;
            case Transfer::reshard:
                if (!std::exchange(stage.whole, false)) return "the stage was not unsharded";
                break;
            case Transfer::reduce_grad:
                if (stage.gradients_to_come > 0) {
                    return std::to_string(stage.gradients_to_come) +
                           " later passes add to the stage's gradients";
                }
                if (std::exchange(stage.reduced, true)) return "appears twice";
                break;
            default:
                break;
        }
        return std::nullopt;
    }

    const Schedule& schedule_;
    const std::vector<TransferCell>& cells_;
    size_t microbatches_;
    std::vector<size_t> forward_at_, backward_at_;  ///< [stage * m + microbatch], position in list
    std::set<std::pair<Transfer, size_t>> seen_;
};

}  // namespace

std::optional<TransferFault> find_transfer_fault(const Schedule& schedule,
                                                 const std::vector<TransferCell>& cells) {
    if (cells.empty()) return std::nullopt;
    return Checker(schedule, cells).fault();
}

}  // namespace vocabpipe::files
