// SPDX-License-Identifier: Apache-2.0
// Every stage is on one rank and has, per microbatch, one F and either one B or one I and one W, in
// that order; R, E, S, T and G likewise.
#include "src/schedule/validate/parts.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::validation {

namespace {

using enum Op;

constexpr uint16_t bit(Op op) {
    return static_cast<uint16_t>(1U << static_cast<unsigned>(op));
}

bool gives_input_gradient(Op op) {
    return op == B || op == I;
}

std::string with_letter(Op op, int stage, int64_t microbatch) {
    return to_string(Pass{op, static_cast<uint16_t>(stage), static_cast<uint32_t>(microbatch)});
}

/// A line has one forward-like and one backward-like pass per microbatch. It is a stage (F and B,
/// or I and W; perhaps an R between them), the input shard of a rank (E and G), or its output shard
/// (S and T).
struct Line {
    Op forward;
    Op backward;
    int stage;  ///< 0 for passes without a stage
    int rank;
};

/// Checks that every pass occurs once, on its rank, and after the passes that it needs there.
class Structure {
public:
    /// The schedule must have passed shape_violation().
    explicit Structure(const Schedule& schedule)
        : schedule_(schedule),
          microbatches_(schedule.microbatches),
          forward_only_(schedule.forward_only()),
          input_line_(static_cast<size_t>(schedule.ranks), -1),
          output_line_(static_cast<size_t>(schedule.ranks), -1) {
        for (int stage = 0; stage < schedule.stages; ++stage) {
            lines_.push_back({F, B, stage, schedule.rank_of_stage[static_cast<size_t>(stage)]});
        }
        for (int rank = 0; rank < schedule.ranks; ++rank) {
            if (schedule.input.rows(rank) > 0) {
                input_line_[static_cast<size_t>(rank)] = static_cast<int>(lines_.size());
                lines_.push_back({E, G, 0, rank});
            }
            if (schedule.output.rows(rank) > 0) {
                output_line_[static_cast<size_t>(rank)] = static_cast<int>(lines_.size());
                lines_.push_back({S, T, 0, rank});
            }
        }
        for (const std::vector<Pass>& list : schedule.passes) total_ += list.size();
    }

    std::optional<Violation> violation() {
        // With fewer passes than required forwards no table is needed, which might be large; with
        // enough passes the table is no larger than the lists.
        const bool too_few = lines_.size() * static_cast<size_t>(microbatches_) > total_;
        if (too_few) return forward_missing_by_count();
        seen_.assign(lines_.size() * static_cast<size_t>(microbatches_), 0);
        for (int rank = 0; rank < schedule_.ranks; ++rank) {
            const std::vector<Pass>& list = schedule_.passes[static_cast<size_t>(rank)];
            for (size_t index = 0; index < list.size(); ++index) {
                auto reason = fault_of(rank, list[index]);
                if (!reason) reason = fault_of_pair(list, index);
                if (!reason) continue;
                const bool known = list[index].op <= Op::Update;
                return Violation{rank, static_cast<int>(index), known ? to_string(list[index]) : "",
                                 std::move(*reason)};
            }
        }
        return missing();
    }

private:
    int line_of(int rank, const Pass& pass) const {
        if (traits(pass.op).has_stage) return pass.stage;
        const bool input = pass.op == E || pass.op == G;
        return (input ? input_line_ : output_line_)[static_cast<size_t>(rank)];
    }

    uint16_t& seen(int line, uint32_t microbatch) {
        return seen_[static_cast<size_t>(line) * static_cast<size_t>(microbatches_) + microbatch];
    }

    /// A fault of a pass by itself or after the previous passes of its rank, if any; records the
    /// pass.
    std::optional<std::string> fault_of(int rank, const Pass& pass) {
        if (pass.op > Op::Update) return "unknown kind of pass";
        const OpTraits& kind = traits(pass.op);
        if (kind.of_step) {
            return "is a pass of the step, which lowering adds; a schedule must not contain it";
        }
        if (pass.microbatch >= static_cast<uint32_t>(microbatches_)) {
            return "microbatch " + std::to_string(pass.microbatch) +
                   " does not exist; the last microbatch is " + std::to_string(microbatches_ - 1);
        }
        if (kind.has_stage && pass.stage >= schedule_.stages) {
            return "stage " + std::to_string(pass.stage) + " does not exist; the last stage is " +
                   std::to_string(schedule_.stages - 1);
        }
        if (!kind.has_stage && pass.stage != 0) {
            return "has stage " + std::to_string(pass.stage) +
                   ", but passes on a vocabulary shard " + "have no stage";
        }
        const int line = line_of(rank, pass);
        if (line < 0) {
            const bool input = pass.op == E || pass.op == G;
            return "rank " + std::to_string(rank) + " holds no rows of the " +
                   (input ? "input" : "output") + " layer";
        }
        const int owner = lines_[static_cast<size_t>(line)].rank;
        if (owner != rank) {
            return "stage " + std::to_string(pass.stage) + " is on rank " + std::to_string(owner);
        }
        uint16_t& before = seen(line, pass.microbatch);
        if ((before & bit(pass.op)) != 0) return "appears twice";
        const auto other = [&](Op op) { return with_letter(op, pass.stage, pass.microbatch); };
        if (pass.op == B && (before & bit(I)) != 0) {
            return "is a full backward next to " + other(I) + "; a microbatch has B, or I and W";
        }
        if ((pass.op == I || pass.op == W) && (before & bit(B)) != 0) {
            return "is half a backward next to " + other(B) + "; a microbatch has B, or I and W";
        }
        if (const Op needed = needed_on_its_rank(pass.op); needed != pass.op) {
            if ((before & bit(needed)) == 0) {
                return "needs " + other(needed) + ", which does not come before it";
            }
        }
        if (pass.op == R) {
            for (const Op user : {B, I}) {
                if ((before & bit(user)) == 0) continue;
                return "comes after " + other(user) + ", which needs what it recomputes";
            }
            if (forward_only_) return "has no backward that needs what it recomputes";
        }
        if (pass.op == G && forward_only_) return "has no backward to take its gradient from";
        if (const Line& of = lines_[static_cast<size_t>(line)];
            pass.op != of.forward && !has_backward(of)) {
            return "is a backward of frozen parameters, which need none";
        }
        before |= bit(pass.op);
        return std::nullopt;
    }

    /// A fault of the pair that a pass opens, if any.
    static std::optional<std::string> fault_of_pair(const std::vector<Pass>& list, size_t index) {
        const Pass& first = list[index];
        if (!first.with_next) return std::nullopt;
        if (index + 1 == list.size()) return "opens an overlapped pair, but no pass follows";
        const Pass& second = list[index + 1];
        if (second.op > Op::Update) return std::nullopt;  // reported at its own position
        const std::string pair = "is paired with " + to_string(second);
        if (second.with_next) return pair + ", which opens another pair";
        const bool forward_and_backward = (first.op == F && gives_input_gradient(second.op)) ||
                                          (gives_input_gradient(first.op) && second.op == F);
        if (!forward_and_backward) return pair + "; a pair is one F and one B or I";
        // Every backward of a microbatch needs every forward of it, directly or through others.
        if (first.microbatch == second.microbatch) {
            return pair + ", but one needs the other; a pair needs two microbatches";
        }
        return std::nullopt;
    }

    static Op needed_on_its_rank(Op op) {
        switch (op) {
            case B:
            case I:
            case R:
                return F;
            case W:
                return I;
            case T:
                return S;
            case G:
                return E;
            default:
                return op;
        }
    }

    /// Whether its parameters, or those of a line before it, are trained.
    bool has_backward(const Line& line) const {
        if (line.backward == G) return schedule_.embedding_gradient;
        return line.backward == T || line.stage >= schedule_.first_backward;
    }

    Violation missing_pass(const Line& line, Op op, int64_t microbatch) const {
        const std::string who = traits(op).has_stage ? "stage " + std::to_string(line.stage)
                                : op == E || op == G ? "a rank with input rows"
                                                     : "a rank with output rows";
        return {line.rank, -1, with_letter(op, line.stage, microbatch),
                "is missing; " + who + " needs one per microbatch"};
    }

    std::optional<Violation> missing() {
        for (size_t l = 0; l < lines_.size(); ++l) {
            const Line& line = lines_[l];
            for (uint32_t j = 0; j < static_cast<uint32_t>(microbatches_); ++j) {
                const uint16_t there = seen(static_cast<int>(l), j);
                if ((there & bit(line.forward)) == 0) return missing_pass(line, line.forward, j);
                if (forward_only_ || !has_backward(line)) continue;
                if (line.backward == B && (there & bit(I)) != 0) {
                    if ((there & bit(W)) == 0) return missing_pass(line, W, j);
                } else if ((there & bit(line.backward)) == 0) {
                    return missing_pass(line, line.backward, j);
                }
            }
        }
        return std::nullopt;
    }

    /// There are fewer passes than required forwards, so some line has fewer than m forwards.
    Violation forward_missing_by_count() const {
        std::vector<int64_t> forwards(lines_.size(), 0);
        const auto forward_line = [&](int rank, const Pass& pass) {
            if (pass.op != F && pass.op != E && pass.op != S) return -1;
            return pass.op == F && pass.stage >= schedule_.stages ? -1 : line_of(rank, pass);
        };
        const auto each_forward = [&](auto&& visit) {
            for (int rank = 0; rank < schedule_.ranks; ++rank) {
                for (const Pass& pass : schedule_.passes[static_cast<size_t>(rank)]) {
                    if (const int line = forward_line(rank, pass); line >= 0) visit(line, pass);
                }
            }
        };
        each_forward([&](int line, const Pass&) { ++forwards[static_cast<size_t>(line)]; });
        const auto few = std::find_if(forwards.begin(), forwards.end(),
                                      [&](int64_t count) { return count < microbatches_; });
        const auto lacking = static_cast<int>(few - forwards.begin());
        std::vector<bool> there(static_cast<size_t>(*few) + 1, false);
        each_forward([&](int line, const Pass& pass) {
            if (line == lacking && pass.microbatch < there.size()) there[pass.microbatch] = true;
        });
        const Line& line = lines_[static_cast<size_t>(lacking)];
        return missing_pass(line, line.forward,
                            std::find(there.begin(), there.end(), false) - there.begin());
    }

    const Schedule& schedule_;
    int microbatches_;
    bool forward_only_;
    std::vector<Line> lines_;  ///< stages first
    std::vector<int> input_line_, output_line_;
    size_t total_ = 0;
    std::vector<uint16_t> seen_;  ///< [line][microbatch], one bit per Op
};

}  // namespace

std::optional<Violation> structure_violation(const Schedule& schedule) {
    return Structure(schedule).violation();
}

}  // namespace vocabpipe::validation
