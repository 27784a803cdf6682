// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>

namespace vocabpipe {

/// The events on other ranks that passes wait for. A pass waits for at most one event: the forward
/// or backward of one stage, or the E, S or T of all ranks that have one.
class PassInputs {
public:
    static constexpr size_t kNothing = std::numeric_limits<size_t>::max();

    struct Need {
        size_t event = kNothing;
        int64_t latency = 0;  ///< from the event to the waiting rank
    };

    /// Both must outlive this.
    PassInputs(const Schedule& schedule, const PassCosts& costs)
        : schedule_(schedule),
          costs_(costs),
          stages_(static_cast<size_t>(schedule.stages)),
          microbatches_(static_cast<size_t>(schedule.microbatches)),
          first_rank_(schedule.rank_of_stage.front()),
          last_rank_(schedule.rank_of_stage.back()),
          inputs_(static_cast<int>(schedule.input.owners().size())),
          outputs_(static_cast<int>(schedule.output.owners().size())),
          embeds_apart_(inputs_ > 1 || (inputs_ == 1 && schedule.input.rows(first_rank_) == 0)) {}

    [[nodiscard]] size_t events() const { return (2 * stages_ + 3) * microbatches_; }
    /// Passes that must end before event `event` has happened.
    [[nodiscard]] int producers(size_t event) const {
        if (event < 2 * stages_ * microbatches_) return 1;
        return event < (2 * stages_ + 1) * microbatches_ ? inputs_ : outputs_;
    }

    [[nodiscard]] Need need(int rank, const Pass& pass) const {
        Need need = need_of_longest(rank, pass);
        need.latency = costs_.lengths.transfer_time(need.latency, pass.microbatch);
        return need;
    }

    [[nodiscard]] size_t produced(const Pass& pass) const {
        switch (pass.op) {
            case Op::F:
                return forward(pass.stage, pass.microbatch);
            case Op::B:
            case Op::I:
                return backward(pass.stage, pass.microbatch);
            case Op::E:
            case Op::S:
            case Op::T:
                return joint(pass.op, pass.microbatch);
            default:
                return kNothing;
        }
    }

private:
    /// As if the microbatch had the longest sequences.
    [[nodiscard]] Need need_of_longest(int rank, const Pass& pass) const {
        const size_t j = pass.microbatch;
        switch (pass.op) {
            case Op::F:
                if (pass.stage > 0) return from(rank, pass.stage - 1U, forward(pass.stage - 1U, j));
                return {joint(Op::E, j), embeds_apart_ ? costs_.reduce : 0};
            case Op::B:
            case Op::I:
                if (pass.stage + 1U < stages_) {
                    return from(rank, pass.stage + 1U, backward(pass.stage + 1U, j));
                }
                if (schedule_.barriers == Barriers::one) {
                    return {joint(Op::S, j), outputs_ > 1 ? costs_.c1 + costs_.reduce : 0};
                }
                return {joint(Op::T, j), outputs_ > 1 ? costs_.reduce : 0};
            case Op::S:
                return {forward(stages_ - 1, j), last_rank_ == rank ? 0 : costs_.c0};
            case Op::T:
                return {joint(Op::S, j), outputs_ > 1 ? costs_.c1 : 0};
            case Op::G:
                return {backward(0, j), first_rank_ == rank ? 0 : costs_.gradient};
            default:
                return {};
        }
    }

    [[nodiscard]] size_t forward(size_t stage, size_t j) const { return stage * microbatches_ + j; }
    [[nodiscard]] size_t backward(size_t stage, size_t j) const {
        return forward(stages_ + stage, j);
    }
    [[nodiscard]] size_t joint(Op op, size_t j) const {
        return forward(2 * stages_ + (op == Op::E ? 0U : op == Op::S ? 1U : 2U), j);
    }
    [[nodiscard]] Need from(int rank, size_t stage, size_t event) const {
        return {event, schedule_.rank_of_stage[stage] == rank ? 0 : costs_.hop};
    }

    const Schedule& schedule_;
    const PassCosts& costs_;
    size_t stages_;
    size_t microbatches_;
    int first_rank_;
    int last_rank_;
    int inputs_;   ///< ranks with rows of the input layer
    int outputs_;  ///< ranks with rows of the output layer
    bool embeds_apart_;
};

}  // namespace vocabpipe
