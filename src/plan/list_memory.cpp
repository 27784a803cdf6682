// SPDX-License-Identifier: Apache-2.0
#include "src/plan/list_memory.hpp"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

namespace vocabpipe {

namespace {

using enum Op;

class Walk {
public:
    Walk(const Schedule& schedule, const StepSizes& sizes, int rank, bool pairs_at_once)
        : schedule_(schedule), sizes_(sizes), rank_(rank), pairs_at_once_(pairs_at_once) {
        boundary_ = sizes.boundary_rows() * sizes.hidden * size_of(sizes.dtype);
        output_ = boundary_ * sizes.predicted_tokens;
        shards_ = static_cast<int64_t>(schedule.output.owners().size()) * sizes.tensor;
        input_shards_ = static_cast<int64_t>(schedule.input.owners().size()) * sizes.tensor;
        train_ = !schedule.forward_only();
        for (const Pass& pass : schedule.passes[static_cast<size_t>(rank)]) {
            if (pass.op == R) recomputed_.emplace(pass.stage, pass.microbatch);
        }
    }

    LiveBytes run() {
        const std::span<const Pass> list = schedule_.passes[static_cast<size_t>(rank_)];
        for (size_t i = 0; i < list.size();) {
            const bool paired = pairs_at_once_ && list[i].with_next && i + 1 < list.size();
            const std::span<const Pass> at_once = list.subspan(i, paired ? 2 : 1);
            int64_t workspaces = 0;
            for (const Pass& pass : at_once) {
                before(pass);
                workspaces += workspace(pass);
            }
            const LiveBytes during = {.activations = alive_.activations + workspaces,
                                      .vocabulary = alive_.vocabulary,
                                      .communication = alive_.communication};
            if (during.total() > peak_.total()) peak_ = during;
            for (const Pass& pass : at_once) after(pass);
            i += at_once.size();
        }
        return peak_;
    }

private:
    const StageBytes& stage(const Pass& pass) const { return sizes_.stages[pass.stage]; }
    bool at(size_t stage) const { return schedule_.rank_of_stage[stage] == rank_; }
    /// Bytes of recomputable activations that F leaves: 0 where an R follows.
    int64_t born(const Pass& forward) const {
        return recomputed_.contains({forward.stage, forward.microbatch})
                   ? 0
                   : stage(forward).recomputed;
    }
    /// Whether a backward follows that needs what F leaves.
    bool has_backward(const Pass& forward) const {
        return train_ && forward.stage >= schedule_.first_backward;
    }
    bool last(const Pass& pass) const { return pass.stage + 1 == schedule_.stages; }

    int64_t workspace(const Pass& pass) const {
        const ShardBytes& shard = sizes_.shards[static_cast<size_t>(rank_)];
        switch (pass.op) {
            case F:
                return stage(pass).forward_workspace + out(pass) + stage(pass).recomputed -
                       born(pass);
            case R:  // next to the gradient, which may have arrived
                return stage(pass).forward_workspace + boundary_;
            case B:
                return stage(pass).backward_workspace + out(pass);
            case I:
                return stage(pass).input_gradient_workspace + out(pass);
            case W:
                return stage(pass).weight_gradient_workspace;
            case S:
                return shard.score_workspace;
            case T:
                return shard.weight_gradient_workspace;
            default:
                return 0;
        }
    }

    /// The output of a transformer pass, and the next message of its kind, posted ahead.
    int64_t out(const Pass& pass) const {
        const bool forward = pass.op == F;
        const bool end = forward ? last(pass) : pass.stage == 0;
        const size_t next = forward ? pass.stage + 1U : pass.stage - 1U;
        if (forward && end) return output_;
        const bool keeps = end || at(next);
        return keeps ? boundary_ : 2 * boundary_;
    }

    /// Statistics of all shards, factors, and X: alive from S to T.
    int64_t kept_for_weight() const {
        const int64_t statistics = sizes_.output_rows() * sizes_.statistics * 4;
        const int64_t factors = sizes_.output_rows() * sizes_.factors * 4;
        // All slices of X.
        return sizes_.shards[static_cast<size_t>(rank_)].exp_logits + sizes_.tensor * output_ +
               statistics * (shards_ > 1 ? shards_ + 1 : 1) + (train_ ? factors : 0);
    }
    /// The shard's part of X's gradient in fp32, alive until it is reduced.
    int64_t partial_gradient() const { return sizes_.output_rows() * sizes_.hidden * 4; }

    void before(const Pass& pass) {
        switch (pass.op) {
            case F:
                alive_.activations += stage(pass).saved + born(pass);
                // The all-to-all after E already summed up the first stage's input.
                if (!(pass.stage == 0 && holds_embedded())) alive_.activations += boundary_;
                break;
            case R:
                alive_.activations += stage(pass).recomputed;
                break;
            case I:
                alive_.activations += stage(pass).for_weight;
                break;
            case S:
                alive_.vocabulary += kept_for_weight();
                if (schedule_.barriers == Barriers::one) hold_gradient();
                break;
            case T:
                if (schedule_.barriers != Barriers::one) hold_gradient();
                break;
            case E:
                if (holds_embedded()) alive_.activations += boundary_;
                if (input_shards_ > 1) set_partial(embedded_, sizes_.tensor * boundary_);
                break;
            default:
                break;
        }
    }

    void after(const Pass& pass) {
        switch (pass.op) {
            case B:
            case W:
                alive_.activations -= stage(pass).saved + stage(pass).recomputed + boundary_;
                if (pass.op == W) alive_.activations -= stage(pass).for_weight;
                break;
            case F:
                if (!has_backward(pass)) {
                    alive_.activations -= stage(pass).saved + born(pass) + boundary_;
                }
                break;
            case T:
                alive_.vocabulary -= kept_for_weight();
                break;
            case S:
                if (!train_) alive_.vocabulary -= kept_for_weight();
                break;
            default:
                break;
        }
    }

    bool holds_embedded() const { return at(0) && input_shards_ > 0; }

    /// One partial gradient is in flight at a time, next to the arriving blocks of the other ranks'
    /// partials.
    void hold_gradient() {
        if (!train_) return;
        const int64_t bytes = partial_gradient();
        alive_.vocabulary += bytes - gradient_;
        gradient_ = bytes;
        if (shards_ > 1) set_partial(blocks_, bytes);
    }
    void set_partial(int64_t& held, int64_t bytes) {
        alive_.communication += bytes - held;
        held = bytes;
    }

    const Schedule& schedule_;
    const StepSizes& sizes_;
    int rank_;
    bool pairs_at_once_;
    int64_t boundary_ = 0, output_ = 0, shards_ = 0, input_shards_ = 0;
    bool train_ = true;
    std::set<std::pair<uint16_t, uint32_t>> recomputed_;  ///< stage, microbatch
    int64_t gradient_ = 0, blocks_ = 0, embedded_ = 0;
    LiveBytes alive_, peak_;
};

}  // namespace

std::vector<LiveBytes> list_memory(const Schedule& schedule, const StepSizes& sizes,
                                   bool pairs_at_once) {
    std::vector<LiveBytes> ranks;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        ranks.push_back(Walk(schedule, sizes, rank, pairs_at_once).run());
    }
    return ranks;
}

}  // namespace vocabpipe
