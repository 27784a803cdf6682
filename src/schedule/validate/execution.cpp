// SPDX-License-Identifier: Apache-2.0
// Runs the lists without times. An overlapped pair is one node: it starts when the inputs of both
// members are ready.
#include "src/schedule/validate/parts.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::validation {

namespace {

using enum Op;

/// Whether both are the same pass, in a pair or not.
bool same(const Pass& a, const Pass& b) {
    return a.op == b.op && a.stage == b.stage && a.microbatch == b.microbatch;
}

/// Runs the lists of a schedule with a valid structure: each rank in order, waiting for inputs. A
/// pass waits for at most one thing on other ranks, here called an event.
class Execution {
public:
    explicit Execution(const Schedule& schedule)
        : schedule_(schedule),
          stages_(schedule.stages),
          microbatches_(static_cast<size_t>(schedule.microbatches)),
          remaining_((2 * static_cast<size_t>(stages_) + 3) * microbatches_, 1),
          first_waiter_(remaining_.size(), -1),
          next_waiter_(static_cast<size_t>(schedule.ranks), -1),
          position_(static_cast<size_t>(schedule.ranks), 0) {
        const auto inputs = static_cast<int>(schedule.input.owners().size());
        const auto outputs = static_cast<int>(schedule.output.owners().size());
        for (uint32_t j = 0; j < microbatches_; ++j) {
            remaining_[all(E, j)] = inputs;
            remaining_[all(S, j)] = remaining_[all(T, j)] = outputs;
        }
    }

    std::optional<Violation> violation() {
        std::vector<int> ready;
        for (int rank = schedule_.ranks - 1; rank >= 0; --rank) ready.push_back(rank);
        while (!ready.empty()) {
            const int rank = ready.back();
            ready.pop_back();
            advance(rank, ready);
        }
        for (int rank = 0; rank < schedule_.ranks; ++rank) {
            if (!finished(rank)) return deadlock(rank);
        }
        return std::nullopt;
    }

private:
    static constexpr size_t kNothing = static_cast<size_t>(-1);

    size_t forward(int stage, uint32_t j) const {
        return static_cast<size_t>(stage) * microbatches_ + j;
    }
    size_t backward(int stage, uint32_t j) const { return forward(stages_ + stage, j); }
    /// The E, S or T of all ranks that have one.
    size_t all(Op op, uint32_t j) const {
        return forward(2 * stages_ + (op == E ? 0 : op == S ? 1 : 2), j);
    }

    /// The event that the pass waits for. Dependencies within a rank, such as F before B, are
    /// checked by structure_violation().
    size_t needed(const Pass& pass) const {
        const uint32_t j = pass.microbatch;
        switch (pass.op) {
            case F:
                return pass.stage == 0 ? all(E, j) : forward(pass.stage - 1, j);
            case B:
            case I:
                if (pass.stage < stages_ - 1) return backward(pass.stage + 1, j);
                // The last stage's output gradient is formed in S (one barrier) or in T.
                return all(schedule_.barriers == Barriers::one ? S : T, j);
            case S:
                return forward(stages_ - 1, j);
            case T:
                return all(S, j);
            case G:
                return backward(0, j);
            default:
                return kNothing;
        }
    }

    size_t produced(const Pass& pass) const {
        switch (pass.op) {
            case F:
                return forward(pass.stage, pass.microbatch);
            case B:
            case I:
                return backward(pass.stage, pass.microbatch);
            case E:
            case S:
            case T:
                return all(pass.op, pass.microbatch);
            default:
                return kNothing;
        }
    }

    const std::vector<Pass>& list(int rank) const {
        return schedule_.passes[static_cast<size_t>(rank)];
    }
    size_t position(int rank) const { return position_[static_cast<size_t>(rank)]; }
    bool finished(int rank) const { return position(rank) == list(rank).size(); }
    const Pass& next(int rank) const { return list(rank)[position(rank)]; }

    /// One pass, or the two of a pair.
    std::span<const Pass> next_node(int rank) const {
        return std::span(list(rank)).subspan(position(rank), next(rank).with_next ? 2 : 1);
    }
    /// The event that the next node still waits for.
    size_t unmet(int rank) const {
        for (const Pass& pass : next_node(rank)) {
            const size_t event = needed(pass);
            if (event != kNothing && remaining_[event] > 0) return event;
        }
        return kNothing;
    }

    void advance(int rank, std::vector<int>& ready) {
        while (!finished(rank)) {
            if (const size_t event = unmet(rank); event != kNothing) {
                next_waiter_[static_cast<size_t>(rank)] = first_waiter_[event];
                first_waiter_[event] = rank;
                return;
            }
            const std::span<const Pass> node = next_node(rank);
            position_[static_cast<size_t>(rank)] += node.size();
            for (const Pass& pass : node) complete(pass, ready);
        }
    }

    void complete(const Pass& pass, std::vector<int>& ready) {
        const size_t done = produced(pass);
        if (done == kNothing || --remaining_[done] > 0) return;
        for (int waiter = first_waiter_[done]; waiter >= 0;
             waiter = next_waiter_[static_cast<size_t>(waiter)]) {
            ready.push_back(waiter);
        }
    }

    struct Located {
        Pass pass;
        int rank;
    };

    /// A pass that an unmet event lacks, on the first of several ranks. Only for the error message.
    Located lacking(size_t event) const {
        const auto row = static_cast<int>(event / microbatches_);
        const auto j = static_cast<uint32_t>(event % microbatches_);
        if (row < 2 * stages_) {
            const int stage = row % stages_;
            const int rank = schedule_.rank_of_stage[static_cast<size_t>(stage)];
            Pass pass{row < stages_ ? F : B, static_cast<uint16_t>(stage), j};
            const Pass half{I, static_cast<uint16_t>(stage), j};
            if (pass.op == B && find(rank, 0, half) != list(rank).end()) pass = half;
            return {pass, rank};
        }
        const Pass pass{row == 2 * stages_ ? E : row == 2 * stages_ + 1 ? S : T, 0, j};
        for (const int rank : (pass.op == E ? schedule_.input : schedule_.output).owners()) {
            if (find(rank, position(rank), pass) != list(rank).end()) return {pass, rank};
        }
        return {pass, -1};
    }

    std::vector<Pass>::const_iterator find(int rank, size_t from, const Pass& pass) const {
        return std::find_if(list(rank).begin() + static_cast<std::ptrdiff_t>(from),
                            list(rank).end(), [&](const Pass& other) { return same(pass, other); });
    }

    /// Follows the waits of blocked ranks until a rank repeats, which closes the cycle.
    Violation deadlock(int first) const {
        constexpr int kLongest = 16;  // ranks named in one message
        std::string reason;
        if (next(first).with_next) {
            reason = "is paired with " + to_string(next_node(first).back()) + " and ";
        }
        std::vector<bool> visited(static_cast<size_t>(schedule_.ranks), false);
        int rank = first;
        for (int named = 0;; ++named) {
            visited[static_cast<size_t>(rank)] = true;
            const auto [pass, owner] = lacking(unmet(rank));
            reason += "waits for " + to_string(pass) + " on rank " + std::to_string(owner);
            if (const auto node = next_node(owner); !same(node.front(), pass)) {
                reason += same(node.back(), pass) ? " paired with " : " after ";
                reason += to_string(node.front()) + " there";
            } else if (node.size() > 1) {
                reason += " paired with " + to_string(node.back()) + " there";
            }
            if (visited[static_cast<size_t>(owner)]) return at(first, reason + ": a deadlock");
            if (named == kLongest) return at(first, reason + ", and so on: a deadlock");
            reason += ", which ";
            rank = owner;
        }
    }

    Violation at(int rank, std::string reason) const {
        return {rank, static_cast<int>(position(rank)), to_string(next(rank)), std::move(reason)};
    }

    const Schedule& schedule_;
    int stages_;
    size_t microbatches_;
    std::vector<int> remaining_;  ///< [event], passes still to come
    std::vector<int> first_waiter_, next_waiter_;
    std::vector<size_t> position_;
};

}  // namespace

std::optional<Violation> execution_violation(const Schedule& schedule) {
    return Execution(schedule).violation();
}

}  // namespace vocabpipe::validation
